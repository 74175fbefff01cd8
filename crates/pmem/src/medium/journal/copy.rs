//! The region of a pair as a file of its own: a copy made while writers go on, and a view of files that are only read.
//!
//! The data file changes by checkpoints alone, and what a checkpoint writes home stands in the journal until the header says
//! otherwise. So the data file's bytes as they are at any moments between two looks at an unchanged header, with the whole groups
//! that the journal holds *afterwards* laid over them, are what the newest of those groups left: every line that a checkpoint may
//! have been writing is in a group that is laid over it.
//!
//! The process that has the pair open keeps the header by holding off checkpoints: its writers go on until both halves of the journal
//! are full. Another process cannot: it reads the header before and after, and begins again if the header changed.
//!
//! Invariants:
//! * V1: data first, groups afterwards. A group that is read may name lines that are not home, never the other way round.
//! * V2: groups are taken from the oldest on, without a gap, whole ones alone: so what a copy holds is what some beginning of
//!   all groups left, with every group that was durable when the copying began.
//! * V3: a copy has an id of its own ([`pair`]), so its files and the original's are never taken for each other's.
//! * V4: a header is written anew between a punch and the first group that may have stores to that hole (`space`): a copy that read the
//!   range before the punch is begun again. The process that has the pair open keeps the header, and punches nothing.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::file::{io, lock};
use crate::medium::copy::{Progress, Target, copy_file};
use crate::medium::journal::header::{DATA_AT, Header};
use crate::medium::journal::home::{self, Lap, by_address};
use crate::medium::journal::journaled::{Journal, random_id};
use crate::medium::journal::live::{Live, guard};
use crate::medium::journal::recover::{copy_into, read_laps};
use crate::medium::journal::sizes::half_of;
use crate::medium::journal::storage::{FileStorage, Files};
use crate::medium::native::Native;
use crate::medium::view::PAGE;
use crate::system::{self, Kind};

/// How often a pair that another process writes to is read before that is given up.
const TRIES: u32 = 8;

/// Bytes before the region's in the data file of a pair.
pub const ORIGIN: u64 = DATA_AT;

impl Journal {
    /// Copies the region as the newest durable group left it, or a younger one, beside readers and writers. Commits wait only if
    /// both halves get full meanwhile.
    ///
    /// # Errors
    /// `Failed` after a failure; `Corrupt` if an acknowledged group cannot be read back; `NoSpace` if the target's file system is
    /// full; `Io`.
    pub fn copy_region(&self, target: &Target<'_>, progress: Progress<'_>) -> Result<()> {
        // Before the header is held: the thread that makes checkpoints goes on with its other work then.
        let _held = HeldOff::new(self);
        let header = guard(&self.header);
        self.files.check()?;
        copy_data(&self.files, target, progress)?;
        let laps = self.live_laps(&header)?;
        lay_over(&laps, target)
    }

    /// The groups that are not home. The header is held.
    fn live_laps(&self, header: &Header) -> Result<Vec<Lap>> {
        let live = guard(&self.live);
        let Live { oldest, lap, used, first, next, .. } = *live;
        drop(live);
        (oldest..=lap)
            .map(|number| {
                let half = (number % 2) as usize;
                let behind = if number == lap { next } else { first[1 - half] };
                let found = Lap::read(&self.files, header, number, used[half], first[half])?;
                if found.groups.len() as u64 != behind - first[half] || found.end as u64 != used[half] {
                    let at = header.half_at(number) + found.end as u64;
                    return Err(Error::Corrupt { what: "group in the journal", at });
                }
                Ok(found)
            })
            .collect()
    }
}

/// Tells the thread that makes checkpoints that none can be made now, until it is dropped.
struct HeldOff<'a>(&'a Journal);

impl<'a> HeldOff<'a> {
    fn new(journal: &'a Journal) -> Self {
        guard(&journal.live).held_off += 1;
        Self(journal)
    }
}

impl Drop for HeldOff<'_> {
    fn drop(&mut self) {
        guard(&self.0.live).held_off -= 1;
        self.0.turned.notify_all();
    }
}

/// Copies the region of the pair at these paths. `shared`: another process may have it open and write to it; else nobody may.
///
/// # Errors
/// `Busy` if the pair is written to faster than it can be read; what [`Journal::open`] says of files that are not a sound pair;
/// `NoSpace` if the target's file system is full; `Io`.
pub fn copy_files(
    data_path: &Path,
    journal_path: &Path,
    shared: bool,
    target: &Target<'_>,
    progress: Progress<'_>,
) -> Result<()> {
    let mut outcome = Ok(false);
    for _ in 0..if shared { TRIES } else { 1 } {
        // What looks damaged may have been read while it was written; if it still does, it is.
        outcome = copy_once(data_path, journal_path, target, progress);
        match outcome {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(Error::NoSpace { .. } | Error::Version { .. }) => break,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    outcome.and(Err(Error::Busy { path: data_path.to_owned() }))
}

/// True if the copy is sound: the pair was the same, with the same header, before and after.
fn copy_once(
    data_path: &Path,
    journal_path: &Path,
    target: &Target<'_>,
    progress: Progress<'_>,
) -> Result<bool> {
    let open = |path: &Path| {
        system::open(File::options().read(true), path).map_err(|source| io("cannot open", path, source))
    };
    let data = open(data_path)?;
    let taken =
        system::inspect(&data, data_path).map_err(|source| io("cannot inspect", data_path, source))?;
    let files = Files::new(
        Box::new(FileStorage::new(data, data_path)),
        Box::new(FileStorage::new(open_journal(journal_path)?, journal_path)),
    );
    let header = Header::read(&files)?;
    copy_data(&files, target, progress)?;
    let laps = read_laps(&files, &header);
    let unchanged = Header::read(&files)?.is_same(&header);
    if !unchanged || !std::fs::metadata(data_path).is_ok_and(|now| is_same_file(&now, &taken)) {
        return Ok(false); // whatever was read of the halves
    }
    lay_over(&laps?, target)?;
    Ok(true)
}

fn open_journal(path: &Path) -> Result<File> {
    match system::open(File::options().read(true), path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::Journal { path: path.to_owned(), why: "is missing" })
        }
        other => other.map_err(|source| io("cannot open", path, source)),
    }
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Copies what the data file has of the region.
fn copy_data(files: &Files, target: &Target<'_>, progress: Progress<'_>) -> Result<()> {
    let bytes = files.data.len()?.saturating_sub(DATA_AT) & !(PAGE - 1);
    if let Some(file) = files.data.file() {
        return copy_file(file, files.data.path(), DATA_AT, bytes, target, progress);
    }
    let mut page = [0; PAGE as usize];
    target.resize(bytes)?;
    for at in (0..bytes).step_by(page.len()) {
        files.data.read(DATA_AT + at, &mut page)?;
        target.write(at, &page)?;
        progress(at + PAGE, bytes);
    }
    Ok(())
}

/// Lays everything that `laps` changed over the copy, which grows with the region.
fn lay_over(laps: &[Lap], target: &Target<'_>) -> Result<()> {
    let have = system::inspect(target.file, target.path)
        .map_err(|source| io("cannot inspect", target.path, source))?
        .len();
    let longest = laps.iter().flat_map(|lap| &lap.groups).map(|(_, group)| group.region_bytes).max();
    if let Some(bytes) = longest.filter(|bytes| target.origin + bytes > have) {
        target.resize(bytes)?;
    }
    let read = |at: u64, bytes: &mut [u8]| {
        let file = target.file;
        let read = system::call(Kind::Read, target.path, Some(file), |_| {
            file.read_exact_at(bytes, target.origin + at)
        });
        read.map_err(|source| io("cannot read", target.path, source))
    };
    home::lay_over(&by_address(laps), read, |at, bytes| target.write(at, bytes))
}

/// Makes a file with a region's bytes from [`ORIGIN`] on the data file of a new pair: it gets its page, and a journal at
/// `journal_path` of `capacity_bytes` with nothing in it. A file there is overwritten, unless it is in use. Durable when this
/// returns, but for the names.
///
/// # Errors
/// `Io`, `NoSpace`, `Locked`; `Durability` for a capacity out of bounds.
pub fn pair(data: File, path: &Path, journal_path: &Path, capacity_bytes: u64) -> Result<()> {
    let half_bytes = half_of(capacity_bytes)?;
    let how = system::new_or_found();
    let journal = system::open(&how, journal_path);
    let journal = journal.map_err(|source| io("cannot make", journal_path, source))?;
    lock(&journal, journal_path)?;
    system::set_len(&journal, journal_path, 0).map_err(|source| io("cannot empty", journal_path, source))?;
    let data = Box::new(FileStorage::new(data, path));
    let files = Files::new(data, Box::new(FileStorage::new(journal, journal_path)));
    Header::new(random_id()?, half_bytes).make(&files)
}

/// Makes a file with a region's bytes from [`ORIGIN`] on the data file of the journal at `journal_path`, in place of the one
/// that it had: it gets its page. The journal holds nothing that is not home, and nobody uses it. Durable when this returns.
///
/// # Errors
/// `Journal` if it does hold something, or is none; `Io`, `NoSpace`.
pub fn adopt(data: File, path: &Path, journal_path: &Path) -> Result<()> {
    let data = Box::new(FileStorage::new(data, path));
    let files = Files::new(data, Box::new(FileStorage::new(open_journal(journal_path)?, journal_path)));
    let header = Header::read_to_look(&files)?;
    if read_laps(&files, &header)?.iter().any(|lap| !lap.groups.is_empty()) {
        return Err(Error::Journal { path: journal_path.to_owned(), why: "still holds writes" });
    }
    header.write_data_page(&files)?;
    files.sync(&files.data)
}

/// What a sound pair of files holds, for reading: the data file's bytes with every whole group laid over them, in memory.
/// Neither file is changed, both may be read-only, and nobody may write to them meanwhile.
///
/// # Errors
/// As [`Journal::open`].
pub fn view(data: File, path: &Path, journal_path: &Path) -> Result<Native> {
    let mapped = system::duplicate(&data, path).map_err(|source| io("cannot open", path, source))?;
    let files = Files::new(
        Box::new(FileStorage::new(data, path)),
        Box::new(FileStorage::new(open_journal(journal_path)?, journal_path)),
    );
    let header = Header::read(&files)?;
    let laps = read_laps(&files, &header)?;
    let image = Native::map_aside(mapped, path, DATA_AT, 0)?;
    copy_into(&image, by_address(&laps));
    Ok(image)
}
