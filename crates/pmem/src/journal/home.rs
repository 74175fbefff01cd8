//! Groups go home: their newest lines are written to the data file. A checkpoint and a recovery are this, and the header.
//!
//! | step | may be on the media at a power cut | recovery |
//! |---|---|---|
//! | the groups are durable | all of them: a checkpoint's are acknowledged, recovery makes its own so | the laps are replayed |
//! | home lines written | any sectors of them | the laps are replayed over them |
//! | data file synced | all of them | the same again, with the same outcome |
//! | first header copy written, synced | it, and the other one as it was | the laps are no longer live |
//! | other copy written | it, whole or not, or as it was | the same |
//! | private pages given up | | |
//!
//! What is written is read back from the journal, never from the image: a line there may have stores of the running group.

use crate::error::{Error, Result};
use crate::journal::group::{Header as Group, SECTOR};
use crate::journal::header::{DATA_AT, Header};
use crate::journal::storage::Files;
use crate::medium::LINE;
use crate::native::PAGE;

/// About the most bytes that are written at once.
const STRETCH_MAX: u64 = 1 << 20;

/// The groups of one lap, as they stand in its half.
#[derive(Debug)]
pub(super) struct Lap {
    half: Vec<u8>,
    /// Where each group begins, with its header.
    pub groups: Vec<(usize, Group)>,
    /// The first sector behind them.
    pub end: usize,
}

/// How much went home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Homed {
    pub groups: u64,
    pub lines: u64,
}

impl Lap {
    /// Reads the first `bytes` of a lap's half, and in it whole groups numbered from `first` on.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if a group that is whole names a line outside its region.
    pub fn read(files: &Files, header: &Header, lap: u64, bytes: u64, first: u64) -> Result<Self> {
        let mut half = vec![0; bytes as usize];
        files.journal.read(header.half_at(lap), &mut half)?;
        let mut found = Self { half, groups: Vec::new(), end: 0 };
        let salt = header.salt(lap);
        while let Some(group) = Group::read(&found.half[found.end..], salt) {
            let bytes = &found.half[found.end..];
            if group.number != first + found.groups.len() as u64 || !group.is_whole(bytes) {
                break;
            }
            let inside = |at: u64| at.is_multiple_of(LINE) && at < group.region_bytes;
            // What no file can have: sums with it would overflow.
            let sane = group.region_bytes <= i64::MAX as u64 && group.region_bytes.is_multiple_of(PAGE);
            if !sane || !group.entries(bytes).all(|(at, _)| inside(at)) {
                let at = header.half_at(lap) + found.end as u64;
                return Err(Error::Corrupt { what: "group in the journal", at });
            }
            found.groups.push((found.end, group));
            found.end += group.bytes() as usize;
        }
        Ok(found)
    }

    /// The lines of all groups, oldest group first.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.groups.iter().flat_map(|(from, group)| {
            let bytes = &self.half[*from..];
            group.entries(bytes).map(move |(at, from)| (at, &bytes[from..from + LINE as usize]))
        })
    }

    /// The newest whole group: its offset in the half, and its bytes.
    pub fn newest(&self) -> Option<(u64, &[u8])> {
        let (from, group) = self.groups.last()?;
        Some((*from as u64, &self.half[*from..][..group.bytes() as usize]))
    }

    /// Where behind the whole groups one was begun that is not just the next, torn.
    pub fn begun_behind(&self, salt: u64, next: u64) -> Option<usize> {
        (self.end..self.half.len()).step_by(SECTOR as usize).find(|at| {
            let group = Group::read(&self.half[*at..], salt);
            group.is_some_and(|group| (*at, group.number) != (self.end, next))
        })
    }
}

/// The newest content of every line of `laps` (oldest first), by ascending address.
pub(super) fn newest_lines(laps: &[Lap]) -> Vec<(u64, &[u8])> {
    let mut lines: Vec<(u64, &[u8])> = laps.iter().flat_map(Lap::lines).collect();
    // Stable, so that of each line the newest stands last; that one is kept.
    lines.sort_by_key(|(at, _)| *at);
    let mut newest: Vec<(u64, &[u8])> = Vec::with_capacity(lines.len());
    for line in lines {
        match newest.last_mut().filter(|last| last.0 == line.0) {
            Some(last) => *last = line,
            None => newest.push(line),
        }
    }
    newest
}

/// Writes the newest content of every line of `laps` (oldest first) to the data file and syncs it. Returns how much that
/// was, and the pages that were written to.
///
/// # Errors
/// `Io`; the files take no more writes then.
pub(super) fn write_home(files: &Files, laps: &[Lap]) -> Result<(Homed, Vec<u64>)> {
    let newest = newest_lines(laps);
    let groups = laps.iter().map(|lap| lap.groups.len() as u64).sum();
    let homed = Homed { groups, lines: newest.len() as u64 };
    let mut pages: Vec<u64> = newest.iter().map(|(at, _)| at / PAGE).collect();
    pages.dedup();
    let mut rest = &newest[..];
    while let Some((first, _)) = rest.first() {
        let near = |pair: &[(u64, &[u8])]| {
            pair[1].0 / PAGE <= pair[0].0 / PAGE + 1 && pair[1].0 - first < STRETCH_MAX
        };
        let count = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let (stretch, behind) = rest.split_at(count);
        write_stretch(files, stretch)?;
        rest = behind;
    }
    files.sync(&files.data)?;
    Ok((homed, pages))
}

/// Writes lines (ascending) of neighbouring pages in one call. What lies between them is written again as it is in the
/// file, which nobody else writes to; the kernel writes whole pages anyway.
fn write_stretch(files: &Files, lines: &[(u64, &[u8])]) -> Result<()> {
    let (Some((first, _)), Some((last, _))) = (lines.first(), lines.last()) else { return Ok(()) };
    let mut bytes = vec![0; (last + LINE - first) as usize];
    if bytes.len() as u64 > lines.len() as u64 * LINE {
        files.data.read(DATA_AT + first, &mut bytes)?;
    }
    for (at, content) in lines {
        bytes[(at - first) as usize..][..LINE as usize].copy_from_slice(content);
    }
    files.write(&files.data, DATA_AT + first, &bytes)
}
