//! Copies the region of a pair of files to a file of its own while writers continue, and reads the files of a pair
//! without changing them.
//!
//! Only checkpoints change the data file. The lines that a checkpoint writes stay in the journal until the header says
//! that their generation is checkpointed. While the header is unchanged, a copy takes the bytes of the data file first,
//! and reads the complete groups of the journal *after* that. Then it applies these groups to the bytes. The result is
//! the state of the newest of these groups, because every line that a checkpoint may have been writing is in one of
//! them.
//!
//! The process that has the pair open keeps the header unchanged by holding off checkpoints. Its writers go on until both halves of the
//! journal are full. Another process cannot hold off checkpoints: it reads the header before and after the copy, and begins again if the
//! header changed.
//!
//! Invariants:
//! * V1: the data file is read before the groups. So the content of each line that the copy took from the data file is of a group that the
//!   copy also read, or of an older group.
//! * V2: a copy takes complete groups only, from the oldest one on, without a gap. So it contains a prefix of all groups, with every
//!   group that was durable when the copy began.
//! * V3: a copy has an id of its own ([`pair`]), so its files cannot be confused with the original's.
//! * V4: a copy may read a range of the data file before the range is punched. Its groups must then have no stores to the hole. The header
//!   is written between a punch and the first group that may have such stores (`space`). So a copy that read such a group finds a changed
//!   header and begins again. While the process that has the pair open copies it, it suspends changes of the header, and punches nothing.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::file::{io, lock};
use crate::medium::copy::{Progress, Target, copy_file};
use crate::medium::journal::checkpoint::{self, Generation, by_address};
use crate::medium::journal::header::{DATA_AT, Header};
use crate::medium::journal::journaled::{Journal, random_id};
use crate::medium::journal::live::{Live, guard};
use crate::medium::journal::recover::{copy_into, read_generations};
use crate::medium::journal::sizes::half_of;
use crate::medium::journal::storage::{FileStorage, Files};
use crate::medium::native::Native;
use crate::medium::view::PAGE;
use crate::system::{self, Kind};

/// Number of attempts to read a pair that another process writes to.
const TRIES: u32 = 8;

/// Bytes before the region in the data file of a pair.
pub const ORIGIN: u64 = DATA_AT;

impl Journal {
    /// Copies the region in the state of the newest durable group, or of a later one, concurrently with readers and writers.
    /// Commits wait only if both halves become full meanwhile.
    ///
    /// # Errors
    /// `Failed` after a failure; `Corrupt` if an acknowledged group cannot be read back; `NoSpace` if the target's file system is
    /// full; `Io`.
    pub fn copy_region(&self, target: &Target<'_>, progress: Progress<'_>) -> Result<()> {
        // Checkpoints are held off before the header is locked. So the checkpoint thread does not block on the header and
        // continues with its other work.
        let _held = HeldOff::new(self);
        let header = guard(&self.header);
        self.files.check()?;
        copy_data(&self.files, target, progress)?;
        let generations = self.live_generations(&header)?;
        lay_over(&generations, target)
    }

    /// The groups that are not checkpointed. The header is held.
    fn live_generations(&self, header: &Header) -> Result<Vec<Generation>> {
        let live = guard(&self.live);
        let Live { oldest, generation, used, first, next, .. } = *live;
        drop(live);
        (oldest..=generation)
            .map(|number| {
                let half = (number % 2) as usize;
                let behind = if number == generation { next } else { first[1 - half] };
                let found = Generation::read(&self.files, header, number, used[half], first[half])?;
                if found.groups.len() as u64 != behind - first[half] || found.end as u64 != used[half] {
                    let at = header.half_at(number) + found.end as u64;
                    return Err(Error::Corrupt { what: "group in the journal", at });
                }
                Ok(found)
            })
            .collect()
    }
}

/// Holds off checkpoints until it is dropped.
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

/// Copies the region of the pair at these paths. If `shared` is true, another process may have the pair open and write to it;
/// otherwise no process may.
///
/// # Errors
/// `Busy` if the pair is written faster than it can be read; the errors of [`Journal::open`] for files that are not a sound pair;
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
        // Apparent damage may come from a concurrent write. If it remains, it is damage.
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

/// True if the copy is sound: the pair had the same files and the same header before and after.
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
    let generations = read_generations(&files, &header);
    let unchanged = Header::read(&files)?.is_same(&header);
    if !unchanged || !std::fs::metadata(data_path).is_ok_and(|now| is_same_file(&now, &taken)) {
        return Ok(false); // even if the halves could not be read
    }
    lay_over(&generations?, target)?;
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

/// Copies the region's bytes in the data file.
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

/// Applies the changes of `generations` to the copy, which grows with the region.
fn lay_over(generations: &[Generation], target: &Target<'_>) -> Result<()> {
    let have = system::inspect(target.file, target.path)
        .map_err(|source| io("cannot inspect", target.path, source))?
        .len();
    let longest = generations
        .iter()
        .flat_map(|generation| &generation.groups)
        .map(|(_, group)| group.region_bytes)
        .max();
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
    checkpoint::lay_over(&by_address(generations), read, |at, bytes| target.write(at, bytes))
}

/// Turns `data` into the data file of a new pair. `data` already has a region's bytes, from offset [`ORIGIN`] on. The call writes
/// the first page of `data`, and an empty journal of `capacity_bytes` at `journal_path`. A file at that path is overwritten,
/// unless it is in use. Both files are durable when this returns, but not their names.
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

/// Makes `data` the data file of the journal at `journal_path`, in place of the previous data file. `data` already has a region's
/// bytes, from offset [`ORIGIN`] on. The call writes the first page of `data`. All groups in the journal must be checkpointed,
/// and the journal must not be in use. `data` is durable when this returns.
///
/// # Errors
/// `Journal` if the journal has groups that are not checkpointed, is missing, or is no journal; `Version`; `Truncated` and
/// `Corrupt` as [`Journal::open`]; `Io`.
pub fn adopt(data: File, path: &Path, journal_path: &Path) -> Result<()> {
    let data = Box::new(FileStorage::new(data, path));
    let files = Files::new(data, Box::new(FileStorage::new(open_journal(journal_path)?, journal_path)));
    let header = Header::read_to_look(&files)?;
    if read_generations(&files, &header)?.iter().any(|generation| !generation.groups.is_empty()) {
        return Err(Error::Journal { path: journal_path.to_owned(), why: "still holds writes" });
    }
    header.write_data_page(&files)?;
    files.sync(&files.data)
}

/// The content of a sound pair of files, for reading: the data file's bytes with every complete group applied, in memory. Neither
/// file is changed, both may be read-only, and no process may write to them meanwhile.
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
    let generations = read_generations(&files, &header)?;
    let image = Native::map_aside(mapped, path, DATA_AT, 0)?;
    copy_into(&image, by_address(&generations));
    Ok(image)
}
