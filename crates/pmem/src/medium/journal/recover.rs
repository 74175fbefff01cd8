//! Opening a pair of files in any state: recovery reads and checks both live generations, writes complete groups to the
//! data file, and begins two new generations.
//!
//! A group is begun only after the sync of the previous one succeeded. So a power failure leaves at most one torn
//! group, after the complete groups. Its number is the next one, and it was never acknowledged. If the journal also has
//! the header of a group with a higher number, the incomplete group was acknowledged. Then it is damaged, and recovery
//! reports this before it changes anything. If only the newest group is damaged, recovery cannot distinguish it from a
//! torn group.
//!
//! Until the complete groups are durable in the data file, recovery changes no byte of the journal: it rewrites the bytes that it
//! found. Its writes to the data file are the same each time it runs, so the next recovery completes an interrupted one. New
//! generations begin even if no group was found, so no sector of a torn group becomes part of a later one.
//!
//! | step | may be on the media at a power failure | next recovery |
//! |---|---|---|
//! | newest header written again in place, synced (H1 of `header`) | the newest header; an older header, if the newest was not durable | uses either |
//! | newest complete group written again in place | any of its sectors, if it was not durable | replays with or without this group |
//! | journal synced | all of it | all complete groups are replayed |
//! | data file's page and lines written | any sectors of them | replayed over them |
//! | data file synced, with its length | all of them | the same |
//! | a header written, synced (H1) | the new header or the old one | the groups are no longer live, or they are replayed |
//!
//! Invariants:
//! * R1: recovery may read data that is only in the page cache, because the previous process may have ended between a write and its
//!   sync, or after a failed sync. So recovery first makes the data durable that it depends on. It rewrites this data, because after a
//!   failed sync the kernel may treat a page as clean that the disk never received. A sync alone would skip the page.
//! * R2: among the headers, only the newest one can be in the page cache but not on the disk (H1 of `header`). Among the groups, only the
//!   newest complete one can be (J1 of [`super`]): the others were synced before this group was begun.
//! * R3: recovery must make the first page and the length of the data file durable. A line of the data file that may not be durable is in a
//!   live generation, so recovery writes it again: a generation ends only after the sync of the data file. Nothing is acknowledged that
//!   depends on a page or a length that recovery has not made durable.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::file::io;
use crate::medium::holes::Holes;
use crate::medium::journal::checkpoint::{Generation, by_address, write_data_file};
use crate::medium::journal::group::{Patch, put, word};
use crate::medium::journal::header::{DATA_AT, Header};
use crate::medium::journal::sizes::REGION_MAX;
use crate::medium::journal::storage::{FileStorage, Files};
use crate::medium::native::Native;
use crate::medium::traits::{LINE, Medium, WORD};
use crate::medium::view::PAGE;
use crate::system;

/// The groups that opening found in the journal and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Groups that were replayed.
    pub groups: u64,
    /// Distinct lines that were written to the data file.
    pub lines: u64,
    /// Bytes of the journal that the groups took.
    pub bytes: u64,
    /// Number of the newest durable group; 0 if none was ever committed.
    pub newest: u64,
}

/// Brings the pair of files into the state of the newest complete group. Returns the header for the session, the region's length in
/// bytes, and statistics.
///
/// # Errors
/// `Foreign`, `Version`, `Journal`; `Truncated` if the data file is shorter than a group says; `Corrupt` if an acknowledged group
/// is bad; `NoSpace` if holes of the files cannot be filled; `Io`.
pub(super) fn recover(files: &Files) -> Result<(Header, u64, Replay)> {
    let mut header = Header::read(files)?;
    let generations = read_generations(files, &header)?;
    let region_bytes = (files.data.len()? - DATA_AT) & !(PAGE - 1);
    let next =
        header.first + generations.iter().map(|generation| generation.groups.len() as u64).sum::<u64>();
    let bytes = generations.iter().map(|generation| generation.end as u64).sum();
    fill_holes(files, &generations)?;
    header.settle(files)?;
    make_newest_durable(files, &header, &generations)?;
    header.write_data_page(files)?;
    // Syncs the page and the length too, even if there are no lines to write (R3).
    let (checkpointed, _) = write_data_file(files, &generations)?;
    header.advance(files, header.oldest + 2, next, || false)?;
    header.cut_annex(files);
    Ok((
        header,
        region_bytes,
        Replay { groups: checkpointed.groups, lines: checkpointed.lines, bytes, newest: next - 1 },
    ))
}

/// Allocates storage for the ranges that recovery is about to write. A write into a hole on a full disk would fail and end writing.
/// Other holes of the data file stay (`space`).
fn fill_holes(files: &Files, generations: &[Generation]) -> Result<()> {
    for (from, to) in files.journal.holes()? {
        files.journal.fill_holes(from, to)?;
    }
    let mut holes = Holes::default();
    files.data.holes()?.into_iter().for_each(|(from, to)| holes.add(from, to));
    let patches = by_address(generations);
    let pages = patches.chunk_by(|one, next| one.at / PAGE == next.at / PAGE).map(|of_page| of_page[0].at);
    for page in std::iter::once(0).chain(pages.map(|at| DATA_AT + at / PAGE * PAGE)) {
        for (from, to) in holes.within(page, page + PAGE) {
            files.data.fill_holes(from, to)?;
        }
    }
    Ok(())
}

/// Reads both live generations with their complete groups, and checks whether the other groups are torn or damaged. A closed
/// journal has no generations. Changes nothing.
///
/// # Errors
/// `Truncated` if the data file is shorter than a group says; `Corrupt` if an acknowledged group is bad; `Io`.
pub(super) fn read_generations(files: &Files, header: &Header) -> Result<Vec<Generation>> {
    if header.closed {
        return Ok(Vec::new());
    }
    let mut next = header.first;
    let mut generations: Vec<Generation> = Vec::new();
    for number in [header.oldest, header.oldest + 1] {
        let generation = Generation::read(files, header, number, header.half_bytes, next)?;
        next += generation.groups.len() as u64;
        if let Some(begun) = generation.begun_behind(header.salt(number), next) {
            // The younger generation begins with another group than the next one: the bad group is in the older generation.
            let (number, end) = match generations.first() {
                Some(older) if begun == 0 => (header.oldest, older.end),
                _ => (number, generation.end),
            };
            let at = header.half_at(number) + end as u64;
            return Err(Error::Corrupt { what: "group in the journal", at });
        }
        generations.push(generation);
    }
    // The length is read now: a concurrent writer makes the file longer before a group says so.
    let region_bytes = files.data.len()?.saturating_sub(DATA_AT) & !(PAGE - 1);
    let groups = generations.iter().flat_map(|generation| &generation.groups);
    if let Some((_, longest)) = groups.max_by_key(|(_, group)| group.region_bytes)
        && longest.region_bytes > region_bytes
    {
        let (path, found) = (files.data.path().to_owned(), region_bytes + DATA_AT);
        return Err(Error::Truncated { path, found, expected: longest.region_bytes + DATA_AT });
    }
    Ok(generations)
}

/// The remains of a pair of files: see [`look`].
#[derive(Debug)]
pub struct Remains {
    /// The region.
    pub image: Native,
    /// The journal was read, and no acknowledged group is damaged.
    pub journal_is_whole: bool,
    /// Bytes of the region that the data file does not have. There, the image has the stores of the journal's groups, otherwise
    /// zeros.
    pub missing_bytes: u64,
}

/// The content of a pair of files for salvage: the data file's bytes with every complete group applied, in memory. The image is as
/// long as the newest group says, even if the data file was truncated. Neither file is changed, and both may be read-only. If the
/// journal cannot be read, or a group is damaged, the image holds the content of the data file from there on.
///
/// # Errors
/// `Io` if the data file cannot be inspected or mapped.
pub fn look(data: File, path: &Path, journal_path: &Path) -> Result<Remains> {
    let len = system::inspect(&data, path).map_err(|source| io("cannot inspect", path, source))?.len();
    let bytes = len.saturating_sub(DATA_AT) & !(PAGE - 1);
    let mapped = system::duplicate(&data, path).map_err(|source| io("cannot open", path, source))?;
    let (generations, journal_is_whole) = generations_left(data, path, journal_path);
    let groups = generations.iter().flat_map(|generation| &generation.groups);
    let region_bytes = groups.map(|(_, group)| group.region_bytes).filter(|bytes| *bytes <= REGION_MAX).max();
    let region_bytes = region_bytes.map_or(bytes, |longest| longest.max(bytes));
    let image = Native::map_aside(mapped, path, DATA_AT, region_bytes)?;
    image.grow(region_bytes)?;
    copy_into(
        &image,
        generations.iter().flat_map(Generation::patches).filter(|patch| patch.at + LINE <= region_bytes),
    );
    Ok(Remains { image, journal_is_whole, missing_bytes: region_bytes - bytes })
}

/// The generations of a journal as far as they can be read, and whether those are all.
fn generations_left(data: File, path: &Path, journal_path: &Path) -> (Vec<Generation>, bool) {
    let mut generations: Vec<Generation> = Vec::new();
    let Ok(journal) = system::open(File::options().read(true), journal_path) else {
        return (generations, false);
    };
    let [data, journal] =
        [(data, path), (journal, journal_path)].map(|(file, path)| FileStorage::new(file, path));
    let files = Files::new(Box::new(data), Box::new(journal));
    let Ok(header) = Header::read_to_look(&files) else { return (generations, false) };
    if header.closed {
        return (generations, true);
    }
    let mut next = header.first;
    for number in [header.oldest, header.oldest + 1] {
        let Ok(generation) = Generation::read(&files, &header, number, header.half_bytes, next) else {
            return (generations, false);
        };
        next += generation.groups.len() as u64;
        let is_whole = generation.begun_behind(header.salt(number), next).is_none();
        generations.push(generation);
        if !is_whole {
            return (generations, false);
        }
    }
    (generations, true)
}

/// Applies the lines, in their order, to an image that no other thread uses.
pub(super) fn copy_into<'a>(image: &Native, patches: impl IntoIterator<Item = Patch<'a>>) {
    for patch in patches {
        let mut line = [0; LINE as usize];
        (0..8).for_each(|i| put(&mut line, i, image.word(patch.at + i as u64 * WORD)));
        patch.lay_over(&mut line);
        patch.words().for_each(|i| image.copy(patch.at + i as u64 * WORD, word(&line, i)));
    }
}

/// Bytes of both halves of the journal at this path, if it is one. Its data file is not read.
pub fn capacity_of(journal_path: &Path) -> Option<u64> {
    let file = system::open(File::options().read(true), journal_path).ok()?;
    let journal = Box::new(FileStorage::new(file, journal_path));
    Some(2 * Header::read_alone(journal).ok()?.half_bytes)
}

/// Writes the newest complete group again in place and syncs the journal (R1, R2): lines of a group that a power failure can still
/// destroy must not be written to the data file.
fn make_newest_durable(files: &Files, header: &Header, generations: &[Generation]) -> Result<()> {
    let newest = (header.oldest..)
        .zip(generations)
        .filter_map(|(number, generation)| Some((number, generation.newest()?)))
        .last();
    let Some((number, (from, group, annex))) = newest else { return Ok(()) };
    files.write(&files.journal, header.annex_at(), annex)?;
    files.write(&files.journal, header.half_at(number) + from, group)?;
    files.sync(&files.journal)
}
