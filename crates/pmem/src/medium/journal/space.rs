//! Storage of free chunks goes back to the file system, and comes back before they are stored to again.
//!
//! ```text
//! in use --discard--> waiting (group, then its lap) --checkpoint of that lap: punch--> hole --provide--> in use
//!                        `--provide--> in use
//! ```
//!
//! A range that was discarded waits until the group that freed it is home: only then is the chunk free in the data file, too, and no
//! live lap has a line of it. Then its blocks are punched out of the file, and the image shows zeros of the reserved range in its place,
//! so its private pages are gone, and no load asks the file system for a block.
//!
//! Invariants:
//! * P1: a range is punched only behind the checkpoint of the lap that freed it, when the header says durably that the lap is no longer
//!   live, and only while it waits. So what a replay lays over the file is never of a range that was punched before it.
//! * P2: nothing is stored to a range that waits or is a hole: [`Image::provide`] comes first, and it excludes the punch by the lock.
//! * P3: a group that has stores to a range which was a hole is written to the journal after a sync of the data file that followed the
//!   range's allocation. Groups hold what changed alone, here over zeros: so the zeros are durable first, and so are the blocks.
//! * P4: between a punch and the header that tells other processes of it (V4 of `copy`) the range is *young*: who provides for it waits.
//! * P5: a punch or an allocation that fails changes no content: the range keeps its blocks, or stays a hole.
//!
//! | step passed | the image shows | may be on the media at a power cut | recovery |
//! |---|---|---|---|
//! | discarded, group not durable | the old bytes | the chunk in use, or free | as the newest group says; the blocks stay |
//! | the lap is home, header synced | the old bytes | the chunk free, its old bytes | nothing of it in a live lap |
//! | punched | zeros | of each sector the old bytes or zeros | a free or an empty chunk (A6 of `alloc`) |
//! | allocated | zeros | the same | the same |
//! | data file synced | zeros, new stores | zeros and blocks | zeros |
//! | group with stores there durable | new stores | zeros and blocks | its lines are laid over zeros |
//!
//! What waits when the process ends keeps its blocks until the chunk is used and freed again.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::medium::journal::freed::RUNNING;
use crate::medium::journal::header::DATA_AT;
use crate::medium::journal::image::Image;
use crate::medium::journal::storage::Files;
use crate::medium::traits::Medium;
use crate::medium::view::PAGE;

impl Image {
    /// The whole pages of `from..to` wait for their punch. False if there are none.
    pub fn discard(&self, from: u64, to: u64) -> bool {
        let (from, to) = (from.next_multiple_of(PAGE), to.min(self.memory.len()) & !(PAGE - 1));
        if from >= to {
            return false;
        }
        let mut freed = self.space.freed();
        freed.waiting.insert(from, (to, RUNNING));
        freed.running.push(from);
        true
    }

    /// `from..to` may be stored to when this returns true: it waits no longer, and holes have blocks. False if the header has to be
    /// waited for (P4).
    ///
    /// # Errors
    /// `NoSpace`, `Io`; a hole stays one then.
    pub fn provide(&self, files: &Files, from: u64, to: u64) -> Result<bool> {
        let mut freed = self.space.freed();
        for first in freed.waiting_in(from, to) {
            freed.waiting.remove(&first);
        }
        if freed.young.iter().any(|(first, end)| *first < to && from < *end) {
            return files.check().map(|()| false);
        }
        for (from, to) in freed.holes.within(from, to) {
            files.check()?;
            files.data.fill_holes(DATA_AT + from, DATA_AT + to)?;
            if !self.copied {
                self.memory.show(from, to)?;
            }
            freed.holes.remove(from, to);
            self.space.unsynced.store(true, Ordering::Release);
        }
        Ok(true)
    }

    /// Punches what was freed by laps up to this one, which is home and no longer live (P1). True if there was something. The header
    /// is held, and tells of it before [`Image::end_punch`].
    pub fn punch(&self, files: &Files, lap: u64) -> bool {
        let freed = self.space.freed();
        let due = freed.waiting.iter().filter(|(_, (_, freed_by))| *freed_by <= lap);
        let due: Vec<u64> = due.map(|(from, _)| *from).collect();
        drop(freed);
        for from in &due {
            // Each under a lock of its own: the writer may take it off the queue meanwhile.
            let mut freed = self.space.freed();
            let Some((to, _)) = freed.waiting.get(from).copied().filter(|(_, freed_by)| *freed_by <= lap)
            else {
                continue;
            };
            freed.waiting.remove(from);
            if self.punch_range(files, *from, to) {
                freed.holes.add(*from, to);
                freed.young.push((*from, to));
            }
        }
        !due.is_empty()
    }

    /// False if the range keeps its blocks.
    fn punch_range(&self, files: &Files, from: u64, to: u64) -> bool {
        // Hidden first, so that no load meets a hole. Beyond what the system has mappings for, the blocks stay.
        if !self.copied && self.memory.hide(from, to).is_err() {
            return false;
        }
        match files.data.discard(DATA_AT + from, DATA_AT + to) {
            Ok(()) if self.copied => self.overwrite(from, &vec![0; (to - from) as usize]),
            Ok(()) => {}
            Err(_) => return !self.copied && self.memory.show(from, to).is_err(),
        }
        true
    }

    /// The header was written behind all punches: no range is young any more (P4).
    pub fn end_punch(&self) {
        self.space.freed().young.clear();
    }

    /// Puts zeros in the place of the holes that the data file was found to have.
    ///
    /// # Errors
    /// `Io`; `NoSpace` if there are more than the system has mappings for, and the disk is full.
    pub fn find_holes(&self, files: &Files) -> Result<()> {
        for (from, to) in files.data.holes()? {
            let first = from.saturating_sub(DATA_AT).next_multiple_of(PAGE);
            let end = to.saturating_sub(DATA_AT).min(self.memory.len()) & !(PAGE - 1);
            if first >= end {
                continue;
            }
            if !self.copied && self.memory.hide(first, end).is_err() {
                files.data.fill_holes(from, to)?;
                continue;
            }
            self.space.freed().holes.add(first, end);
        }
        Ok(())
    }
}
