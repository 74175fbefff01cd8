//! Writes groups to the data file: the common part of a checkpoint and of recovery. The caller writes the header afterwards.
//!
//! Lines are read back from the journal, never from the image, because a line of the image may have stores of the running group.
//!
//! | step | may be on the media at a power failure | recovery |
//! |---|---|---|
//! | none yet | all groups: the caller synced them (a checkpoint writes acknowledged groups, and recovery syncs the groups that it found) | the generations are replayed |
//! | lines written to the data file | any sectors of them | the generations are replayed over them |
//! | data file synced | all of them | the same |
//! | first header copy written, synced | this copy, and the old content of the other copy | the generations are no longer live |
//! | other copy written | its new content, some of it, or its old content | the same |
//! | private pages dropped (by a checkpoint only) | as before: the step changes only memory | the same |

use crate::error::{Error, Result};
use crate::medium::journal::group::{Header as Group, Patch, SECTOR, bytes_of};
use crate::medium::journal::header::{DATA_AT, Header};
use crate::medium::journal::storage::Files;
use crate::medium::traits::LINE;
use crate::medium::view::PAGE;

/// Approximate maximum of bytes written in one call.
const STRETCH_MAX: u64 = 1 << 20;

/// The groups of one generation, as read from its half and the annex.
#[derive(Debug)]
pub(super) struct Generation {
    half: Vec<u8>,
    /// The annex, if it contains the body of one of the groups; else empty.
    annex: Vec<u8>,
    /// The offset of each group in the half, and its header.
    pub groups: Vec<(usize, Group)>,
    /// Offset in the half of the first sector after the groups.
    pub end: usize,
}

/// The amount of data that was written to the data file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpointed {
    pub groups: u64,
    pub lines: u64,
}

impl Generation {
    /// Reads the first `bytes` bytes of a generation's half, and decodes the complete groups numbered from `first` on.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the body of a complete group is invalid, for example with a line outside the region.
    pub fn read(files: &Files, header: &Header, generation: u64, bytes: u64, first: u64) -> Result<Self> {
        let mut half = vec![0; bytes as usize];
        files.journal.read(header.half_at(generation), &mut half)?;
        let mut found = Self { half, annex: Vec::new(), groups: Vec::new(), end: 0 };
        let salt = header.salt(generation);
        while let Some(group) = Group::read(&found.half[found.end..], salt) {
            if group.number != first + found.groups.len() as u64 {
                break;
            }
            if group.in_annex {
                if !found.annex.is_empty() {
                    break; // a generation has at most one group there (G1)
                }
                found.annex = read_annex(files, header, &group)?;
            }
            let Some(body) = found.body(found.end, &group).filter(|body| group.is_whole(body)) else { break };
            // A size that no file can have is refused, because sums with it would overflow.
            let sane = group.region_bytes <= i64::MAX as u64 && group.region_bytes.is_multiple_of(PAGE);
            if !sane || !group.is_sound(body) {
                let at = header.half_at(generation) + found.end as u64;
                return Err(Error::Corrupt { what: "group in the journal", at });
            }
            found.groups.push((found.end, group));
            found.end += group.bytes() as usize;
        }
        Ok(found)
    }

    /// The body of the group that begins at `from`, if there are enough bytes.
    fn body(&self, from: usize, group: &Group) -> Option<&[u8]> {
        group.body(if group.in_annex { &self.annex } else { &self.half[from..] })
    }

    /// The changes of the groups, in their order.
    pub fn patches(&self) -> impl Iterator<Item = Patch<'_>> {
        let bodies = self.groups.iter().filter_map(|(from, group)| Some((group, self.body(*from, group)?)));
        bodies.flat_map(|(group, body)| group.patches(body))
    }

    /// The newest complete group: its offset in the half, its bytes there, and those in the annex.
    pub fn newest(&self) -> Option<(u64, &[u8], &[u8])> {
        let (from, group) = self.groups.last()?;
        let annex = if group.in_annex { &self.annex[..] } else { &[] };
        Some((*from as u64, &self.half[*from..][..group.bytes() as usize], annex))
    }

    /// Searches the sectors after the complete groups for the header of a group that was begun. The next group, directly after
    /// them, does not count: it may be torn. Returns the offset in the half.
    pub fn begun_behind(&self, salt: u64, next: u64) -> Option<usize> {
        (self.end..self.half.len()).step_by(SECTOR as usize).find(|at| {
            let group = Group::read(&self.half[*at..], salt);
            group.is_some_and(|group| (*at, group.number) != (self.end, next))
        })
    }
}

/// The content of the annex for a group whose body is there; empty if the file is too short for it.
fn read_annex(files: &Files, header: &Header, group: &Group) -> Result<Vec<u8>> {
    let bytes = bytes_of(group.body_bytes);
    let there = files.journal.len()?.saturating_sub(header.annex_at());
    let mut annex = vec![0; if bytes <= there { bytes as usize } else { 0 }];
    files.journal.read(header.annex_at(), &mut annex)?;
    Ok(annex)
}

/// The changes of the groups of `generations` (oldest first), by ascending address. The changes of one line stay in the order of the
/// groups. O(n log n).
pub(super) fn by_address(generations: &[Generation]) -> Vec<Patch<'_>> {
    let mut patches: Vec<_> = generations.iter().flat_map(Generation::patches).collect();
    // Stable: the changes of one line keep the order of the groups.
    patches.sort_by_key(|patch| patch.at);
    patches
}

/// Writes everything that `generations` (oldest first) changed to the data file and syncs it. Returns the amount, and the pages that were
/// written to.
///
/// # Errors
/// `Io`; the files take no more writes then.
pub(super) fn write_data_file(files: &Files, generations: &[Generation]) -> Result<(Checkpointed, Vec<u64>)> {
    let patches = by_address(generations);
    let groups = generations.iter().map(|generation| generation.groups.len() as u64).sum();
    let lines = patches.chunk_by(|one, next| one.at == next.at).count() as u64;
    let mut pages: Vec<u64> = patches.iter().map(|patch| patch.at / PAGE).collect();
    pages.dedup();
    lay_over(
        &patches,
        |at, bytes| files.data.read(DATA_AT + at, bytes),
        |at, bytes| files.write(&files.data, DATA_AT + at, bytes),
    )?;
    files.sync(&files.data)?;
    Ok((Checkpointed { groups, lines }, pages))
}

/// Applies lines (in the order of [`by_address`]) to the region's bytes that `read` and `write` access. Lines of neighbouring pages are
/// written in one call. The bytes between these lines are written back unchanged; no other thread writes to them. The kernel writes whole
/// pages anyway.
///
/// # Errors
/// The errors of `read` and `write`.
pub(super) fn lay_over(
    patches: &[Patch<'_>],
    read: impl Fn(u64, &mut [u8]) -> Result<()>,
    write: impl Fn(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut rest, mut bytes) = (patches, Vec::new());
    while let Some(Patch { at: first, .. }) = rest.first().copied() {
        let near = |pair: &[Patch<'_>]| {
            pair[1].at / PAGE <= pair[0].at / PAGE + 1 && pair[1].at - first < STRETCH_MAX
        };
        let count = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let (stretch, behind) = rest.split_at(count);
        let end = stretch.last().map_or(first, |last| last.at) + LINE;
        bytes.resize((end - first) as usize, 0);
        let whole = stretch.iter().filter(|patch| patch.is_whole()).map(|patch| patch.at);
        if !whole.eq((first..end).step_by(LINE as usize)) {
            read(first, &mut bytes)?;
        }
        for patch in stretch {
            patch.lay_over(&mut bytes[(patch.at - first) as usize..]);
        }
        write(first, &bytes)?;
        rest = behind;
    }
    Ok(())
}
