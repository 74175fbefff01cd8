//! Copies of a region's file, for backups.
//!
//! Ranges of data are copied by a system call, so a file system that can share blocks between files shares them. Holes stay
//! holes. The caller makes the target durable and turns it into a store.
//!
//! Invariant: the source is only read.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::file::{io as failed, next_data};
use crate::system::{self, Kind};

/// The target of a copy: a file that no other thread uses, from its byte `origin` on.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Open for reading and writing.
    pub file: &'a File,
    /// Its path, for errors.
    pub path: &'a Path,
    /// Offset of the region's first byte.
    pub origin: u64,
}

/// Called with the number of bytes copied and the total number of bytes.
pub type Progress<'a> = &'a dyn Fn(u64, u64);

/// Bytes between two reports of progress.
const STEP: u64 = 16 << 20;

/// Copies `bytes` bytes of a file from `from_at` on. The target file then ends after the last copied byte. No other thread may
/// seek in either file meanwhile. Concurrent writes to the source may be in the copy or not, byte by byte.
///
/// # Errors
/// `NoSpace` if the target's file system is full; `Io`.
pub fn copy_file(
    from: &File,
    from_path: &Path,
    from_at: u64,
    bytes: u64,
    target: &Target<'_>,
    progress: Progress<'_>,
) -> Result<()> {
    target.resize(bytes)?;
    let end = from_at + bytes;
    let mut at = from_at;
    while let Some((data, hole)) = next_data(from, from_path, at, end)? {
        at = data.max(at);
        while at < hole {
            let count = STEP.min(hole - at);
            let (mut source, mut sink) = (from, target.file);
            let seek = source.seek(SeekFrom::Start(at));
            seek.map_err(|source| failed("cannot read", from_path, source))?;
            let copied = system::call(Kind::Write, target.path, Some(target.file), |part| {
                sink.seek(SeekFrom::Start(target.origin + at - from_at))?;
                io::copy(&mut source.take(if part { count / 2 } else { count }), &mut sink)
            });
            let copied = copied.map_err(|source| target.refused(source, bytes))?;
            if copied != count {
                let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(failed("cannot read", from_path, source));
            }
            at += count;
            progress(at - from_at, bytes);
        }
    }
    progress(bytes, bytes);
    Ok(())
}

impl Target<'_> {
    /// Sets the length for a region of `bytes` bytes. New bytes are a hole.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(crate) fn resize(&self, bytes: u64) -> Result<()> {
        system::set_len(self.file, self.path, self.origin + bytes)
            .map_err(|source| self.refused(source, bytes))
    }

    /// Writes bytes of the region.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let written = system::write_all_at(self.file, self.path, self.origin + at, bytes);
        written.map_err(|source| self.refused(source, bytes.len() as u64))
    }

    /// The error of a failed call on the target.
    fn refused(&self, source: io::Error, bytes: u64) -> Error {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => {
                Error::NoSpace { path: self.path.to_owned(), bytes }
            }
            _ => failed("cannot copy to", self.path, source),
        }
    }
}
