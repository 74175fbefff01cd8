//! Opening after anything: both laps are read and judged, whole groups go home, and two fresh laps begin.
//!
//! A group is begun only after the sync of the one before it succeeded. So behind the whole groups there is at most one torn
//! group, and its number is the next: it was never acknowledged. Where a group of a higher number was begun, the bad one
//! before it *was* acknowledged: that is damage, and told as such, before anything is changed.
//!
//! No byte of the journal is changed, but what was found is written again as it is, until the whole groups are durable in the
//! data file, and what is written there is the same however often it is begun: a crash inside recovery is answered by recovery. Fresh laps begin even where no group was
//! found, so that no sector of a torn one is ever part of a later.
//!
//! | step | may be on the media at a power cut | next recovery |
//! |---|---|---|
//! | header written again in place, synced (H1) | it or an older one, if it was not durable | by the one or the other |
//! | newest whole group written again in place | any of its sectors, if it was not durable | as before it, or with it |
//! | journal synced | all of it | all whole groups are replayed |
//! | data file's page and home lines written | any sectors of them | replayed over them |
//! | data file synced, with its length | all of them | the same again |
//! | a header written, synced (H1) | the one or the other | replayed, or no longer live |
//!
//! Invariants:
//! * R1: what is read here may be in the page cache alone: the process before may have ended between a write and its sync, or
//!   after a sync that failed. So what recovery builds on is made durable first, and by writing it: after a failed sync the
//!   kernel may call a page clean that the disk never got, and a sync alone would skip it.
//! * R2: of the headers, only the newest can be such (H1); of the groups, only the newest whole one (J1): the others were synced
//!   before it was begun.
//! * R3: of the data file, only its page and its length can be: its lines are written again while their laps are live, and
//!   laps are left only after its sync. Nothing is acknowledged on a page or a length that recovery has not made durable.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::file::io;
use crate::medium::holes::Holes;
use crate::medium::journal::group::{Patch, put, word};
use crate::medium::journal::header::{DATA_AT, Header};
use crate::medium::journal::home::{Lap, by_address, write_home};
use crate::medium::journal::sizes::REGION_MAX;
use crate::medium::journal::storage::{FileStorage, Files};
use crate::medium::native::Native;
use crate::medium::traits::{LINE, Medium, WORD};
use crate::medium::view::PAGE;
use crate::system;

/// What opening found in the journal and brought home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Groups that were replayed.
    pub groups: u64,
    /// Distinct lines that were written home.
    pub lines: u64,
    /// Bytes of the journal that they took.
    pub bytes: u64,
    /// Number of the newest group that there is; 0 if none was ever committed.
    pub newest: u64,
}

/// Brings the pair of files into the state that the newest whole group left. Returns the header to go on with and the
/// region's length.
///
/// # Errors
/// `Foreign`, `Version`, `Journal`; `Truncated` if the data file is shorter than a group says; `Corrupt` if a group is bad
/// that was acknowledged; `NoSpace` if holes of the files cannot be filled; `Io`.
pub(super) fn recover(files: &Files) -> Result<(Header, u64, Replay)> {
    let mut header = Header::read(files)?;
    let laps = read_laps(files, &header)?;
    let region_bytes = (files.data.len()? - DATA_AT) & !(PAGE - 1);
    let next = header.first + laps.iter().map(|lap| lap.groups.len() as u64).sum::<u64>();
    let bytes = laps.iter().map(|lap| lap.end as u64).sum();
    fill_holes(files, &laps)?;
    header.settle(files)?;
    make_newest_durable(files, &header, &laps)?;
    header.write_data_page(files)?;
    // Syncs the page and the length too, with or without a line to write (R3).
    let (homed, _) = write_home(files, &laps)?;
    header.advance(files, header.oldest + 2, next, || false)?;
    header.cut_annex(files);
    Ok((header, region_bytes, Replay { groups: homed.groups, lines: homed.lines, bytes, newest: next - 1 }))
}

/// Gives storage to what recovery is about to write. A home write into a hole of a full disk would fail, and that ends writing. Other
/// holes of the data file stay (`space`).
fn fill_holes(files: &Files, laps: &[Lap]) -> Result<()> {
    for (from, to) in files.journal.holes()? {
        files.journal.fill_holes(from, to)?;
    }
    let mut holes = Holes::default();
    files.data.holes()?.into_iter().for_each(|(from, to)| holes.add(from, to));
    let patches = by_address(laps);
    let pages = patches.chunk_by(|one, next| one.at / PAGE == next.at / PAGE).map(|of_page| of_page[0].at);
    for page in std::iter::once(0).chain(pages.map(|at| DATA_AT + at / PAGE * PAGE)) {
        for (from, to) in holes.within(page, page + PAGE) {
            files.data.fill_holes(from, to)?;
        }
    }
    Ok(())
}

/// Both live laps with their whole groups, judged; none of a journal that was closed. Nothing is changed.
///
/// # Errors
/// `Truncated` if the data file is shorter than a group says; `Corrupt` if a group is bad that was acknowledged; `Io`.
pub(super) fn read_laps(files: &Files, header: &Header) -> Result<Vec<Lap>> {
    if header.closed {
        return Ok(Vec::new());
    }
    let mut next = header.first;
    let mut laps: Vec<Lap> = Vec::new();
    for number in [header.oldest, header.oldest + 1] {
        let lap = Lap::read(files, header, number, header.half_bytes, next)?;
        next += lap.groups.len() as u64;
        if let Some(begun) = lap.begun_behind(header.salt(number), next) {
            // A younger lap that begins with another group than the next: the bad one is in the older lap.
            let (number, end) = match laps.first() {
                Some(older) if begun == 0 => (header.oldest, older.end),
                _ => (number, lap.end),
            };
            let at = header.half_at(number) + end as u64;
            return Err(Error::Corrupt { what: "group in the journal", at });
        }
        laps.push(lap);
    }
    // The length now: whoever writes beside this made the file longer before a group said so.
    let region_bytes = files.data.len()?.saturating_sub(DATA_AT) & !(PAGE - 1);
    let groups = laps.iter().flat_map(|lap| &lap.groups);
    if let Some((_, longest)) = groups.max_by_key(|(_, group)| group.region_bytes)
        && longest.region_bytes > region_bytes
    {
        let (path, found) = (files.data.path().to_owned(), region_bytes + DATA_AT);
        return Err(Error::Truncated { path, found, expected: longest.region_bytes + DATA_AT });
    }
    Ok(laps)
}

/// What is left of a pair of files: see [`look`].
#[derive(Debug)]
pub struct Remains {
    /// The region.
    pub image: Native,
    /// The journal was read, and no group that was acknowledged is damaged.
    pub journal_is_whole: bool,
    /// Bytes of the region that the data file does not have. There, the image has what the journal's groups stored, and zeros.
    pub missing_bytes: u64,
}

/// What a pair of files holds, for reading what is left of it: the data file's bytes with every whole group laid over them, in
/// memory. The image is as long as the newest group says, even if the data file was truncated. Neither file is changed, and both may be
/// read-only. Without a journal that can be read, or behind a damaged group, the image holds what the data file has.
///
/// # Errors
/// `Io` if the data file cannot be inspected or mapped.
pub fn look(data: File, path: &Path, journal_path: &Path) -> Result<Remains> {
    let len = system::inspect(&data, path).map_err(|source| io("cannot inspect", path, source))?.len();
    let bytes = len.saturating_sub(DATA_AT) & !(PAGE - 1);
    let mapped = system::duplicate(&data, path).map_err(|source| io("cannot open", path, source))?;
    let (laps, journal_is_whole) = laps_left(data, path, journal_path);
    let groups = laps.iter().flat_map(|lap| &lap.groups);
    let region_bytes = groups.map(|(_, group)| group.region_bytes).filter(|bytes| *bytes <= REGION_MAX).max();
    let region_bytes = region_bytes.map_or(bytes, |longest| longest.max(bytes));
    let image = Native::map_aside(mapped, path, DATA_AT, region_bytes)?;
    image.grow(region_bytes)?;
    copy_into(&image, laps.iter().flat_map(Lap::patches).filter(|patch| patch.at + LINE <= region_bytes));
    Ok(Remains { image, journal_is_whole, missing_bytes: region_bytes - bytes })
}

/// The laps of a journal as far as they can be read, and whether that is all of them.
fn laps_left(data: File, path: &Path, journal_path: &Path) -> (Vec<Lap>, bool) {
    let mut laps: Vec<Lap> = Vec::new();
    let Ok(journal) = system::open(File::options().read(true), journal_path) else { return (laps, false) };
    let [data, journal] =
        [(data, path), (journal, journal_path)].map(|(file, path)| FileStorage::new(file, path));
    let files = Files::new(Box::new(data), Box::new(journal));
    let Ok(header) = Header::read_to_look(&files) else { return (laps, false) };
    if header.closed {
        return (laps, true);
    }
    let mut next = header.first;
    for number in [header.oldest, header.oldest + 1] {
        let Ok(lap) = Lap::read(&files, &header, number, header.half_bytes, next) else {
            return (laps, false);
        };
        next += lap.groups.len() as u64;
        let is_whole = lap.begun_behind(header.salt(number), next).is_none();
        laps.push(lap);
        if !is_whole {
            return (laps, false);
        }
    }
    (laps, true)
}

/// Stores what the lines say, in their order, to an image that nobody else has.
pub(super) fn copy_into<'a>(image: &Native, patches: impl IntoIterator<Item = Patch<'a>>) {
    for patch in patches {
        let mut line = [0; LINE as usize];
        (0..8).for_each(|i| put(&mut line, i, image.word(patch.at + i as u64 * WORD)));
        patch.lay_over(&mut line);
        patch.words().for_each(|i| image.copy(patch.at + i as u64 * WORD, word(&line, i)));
    }
}

/// Bytes of the halves of the journal at this path, if it is one; its data file is not asked.
pub fn capacity_of(journal_path: &Path) -> Option<u64> {
    let file = system::open(File::options().read(true), journal_path).ok()?;
    let journal = Box::new(FileStorage::new(file, journal_path));
    Some(2 * Header::read_alone(journal).ok()?.half_bytes)
}

/// Writes the newest whole group again where it stands and syncs the journal (R1, R2): lines of a group that a power cut can
/// still take away must not go home.
fn make_newest_durable(files: &Files, header: &Header, laps: &[Lap]) -> Result<()> {
    let newest = (header.oldest..).zip(laps).filter_map(|(number, lap)| Some((number, lap.newest()?))).last();
    let Some((number, (from, group, annex))) = newest else { return Ok(()) };
    files.write(&files.journal, header.annex_at(), annex)?;
    files.write(&files.journal, header.half_at(number) + from, group)?;
    files.sync(&files.journal)
}
