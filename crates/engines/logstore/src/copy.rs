//! Copies of a store's files, for backups.
//!
//! A copy has the checkpoint, all segments, and the log. The log may be longer than the checkpoint needs, and a segment may have images that
//! the checkpoint does not name: an open ignores both. Blocks of zeros are not written, so the allocated rest of a log file takes no space.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use pmem::file::io;
use pmem::system::OWNER;
use pmem::{Error, Result, system};

use crate::checkpoint;
use crate::log::LOG;
use crate::place::Place;
use crate::segments::PAGES;

/// Gets the copied bytes and all bytes.
pub type Progress<'p> = &'p dyn Fn(u64, u64);

const BLOCK: usize = 1 << 20;

/// Copies the files of the store in `from` whose names begin with `stem` into `to`, and syncs the copies. The log file with the
/// number `extent.0` is copied up to byte `extent.1`. The caller ensures that no other thread makes a checkpoint. Returns the copied bytes.
///
/// # Errors
/// `NoSpace`; `Io`.
pub fn copy(
    from: &Path,
    stem: &str,
    to: &Path,
    extent: Option<(u64, u64)>,
    progress: Progress<'_>,
) -> Result<u64> {
    let place = Place { dir: from.to_owned(), stem: stem.to_owned(), store: 0 };
    let length = |path: &Path| -> Result<u64> {
        Ok(std::fs::metadata(path).map_err(|source| io("cannot inspect", path, source))?.len())
    };
    let checkpoint = checkpoint::path(&place);
    // Path, length, and the bytes that are copied; the rest is zeros.
    let bytes = length(&checkpoint)?;
    let mut files = vec![(checkpoint, bytes, bytes)];
    for kind in [PAGES, LOG] {
        for number in place.numbers(kind)? {
            let path = place.path(kind, number);
            let bytes = length(&path)?;
            let mut filled = bytes;
            if let Some((current, end)) = extent
                && kind == LOG
            {
                // Files behind the current one have no records yet.
                filled = if number < current {
                    bytes
                } else if number == current {
                    end
                } else {
                    continue;
                };
            }
            files.push((path, bytes, filled.min(bytes)));
        }
    }
    let total = files.iter().map(|(.., filled)| filled).sum();
    let mut done = 0;
    for (path, bytes, filled) in &files {
        let Some(name) = path.file_name() else { continue };
        copy_file(path, &to.join(name), *bytes, *filled, &mut |count| {
            done += count;
            progress(done, total);
        })?;
    }
    system::sync_dir(to).map_err(|source| io("cannot sync directory", to, source))?;
    Ok(total)
}

fn copy_file(from: &Path, to: &Path, bytes: u64, filled: u64, copied: &mut dyn FnMut(u64)) -> Result<()> {
    let source = system::open(OpenOptions::new().read(true), from)
        .map_err(|source| io("cannot open", from, source))?;
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(true).mode(OWNER);
    let target = system::open(&how, to).map_err(|source| io("cannot make", to, source))?;
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::NoSpace { path: to.to_owned(), bytes }
        }
        _ => io("cannot write", to, source),
    };
    system::set_len(&target, to, bytes).map_err(failed)?;
    let mut block = vec![0; BLOCK];
    let mut at = 0;
    while at < filled {
        let most = (filled - at).min(BLOCK as u64) as usize;
        let count = match system::read_at(&source, from, at, &mut block[..most]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(io("cannot read", from, source)),
        };
        if block[..count].iter().any(|byte| *byte != 0) {
            system::write_all_at(&target, to, at, &block[..count]).map_err(failed)?;
        }
        at += count as u64;
        copied(count as u64);
    }
    system::sync_all(&target, to).map_err(|source| io("cannot sync", to, source))
}
