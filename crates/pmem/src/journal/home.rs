//! Groups go home: their newest lines are written to the data file. A checkpoint and a recovery are this, and the header.
//!
//! | step | may be on the media at a power cut | recovery |
//! |---|---|---|
//! | home lines written | any sectors of them | the laps are replayed over them |
//! | data file synced | all of them | the same again, with the same outcome |
//! | first header copy written, synced | it or the other one | the laps are replayed, or are no longer live |
//! | other copy written, synced | both | the laps are no longer live |
//! | private pages given up | | |
//!
//! What is written is read back from the journal, never from the image: a line there may have stores of the running group.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::journal::group::{Header as Group, SECTOR};
use crate::journal::header::{DATA_AT, Header};
use crate::journal::storage::Files;
use crate::medium::LINE;
use crate::native::PAGE;

/// Most bytes of neighbouring lines that are written at once.
const RUN_MAX: usize = 1 << 20;

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
            if !group.region_bytes.is_multiple_of(PAGE) || !group.entries(bytes).all(|(at, _)| inside(at)) {
                let at = header.half_at(lap) + found.end as u64;
                return Err(Error::Corrupt { what: "group in the journal", at });
            }
            found.groups.push((found.end, group));
            found.end += group.bytes() as usize;
        }
        Ok(found)
    }

    /// Where behind the whole groups one was begun that is not just the next, torn.
    pub fn begun_behind(&self, salt: u64, next: u64) -> Option<usize> {
        (self.end..self.half.len()).step_by(SECTOR as usize).find(|at| {
            let group = Group::read(&self.half[*at..], salt);
            group.is_some_and(|group| (*at, group.number) != (self.end, next))
        })
    }
}

/// Writes the newest content of every line of `laps` (oldest first) to the data file and syncs it. Returns how much that
/// was, and the pages that were written to.
///
/// # Errors
/// `Io`; the files take no more writes then.
pub(super) fn write_home(files: &Files, laps: &[Lap]) -> Result<(Homed, Vec<u64>)> {
    let mut lines: Vec<(u64, &[u8])> = Vec::new();
    let mut homed = Homed::default();
    for lap in laps {
        homed.groups += lap.groups.len() as u64;
        for (from, group) in &lap.groups {
            let bytes = &lap.half[*from..];
            lines.extend(group.entries(bytes).map(|(at, from)| (at, &bytes[from..from + LINE as usize])));
        }
    }
    // Stable, so that of each line the newest stands last; that one is kept.
    lines.sort_by_key(|(at, _)| *at);
    let mut pages = BTreeSet::new();
    let mut run: Vec<u8> = Vec::new();
    let mut run_at = 0;
    for (i, (at, content)) in lines.iter().enumerate() {
        if lines.get(i + 1).is_some_and(|(next, _)| next == at) {
            continue;
        }
        if run_at + run.len() as u64 != *at || run.len() >= RUN_MAX {
            files.write(&files.data, DATA_AT + run_at, &run)?;
            run.clear();
            run_at = *at;
        }
        run.extend_from_slice(content);
        homed.lines += 1;
        pages.insert(at / PAGE);
    }
    files.write(&files.data, DATA_AT + run_at, &run)?;
    files.sync(&files.data)?;
    Ok((homed, pages.into_iter().collect()))
}
