//! Storage of free chunks: it is returned to the file system, and allocated again before the next store.
//!
//! ```text
//! in use --discard--> waiting --punch, after a checkpoint--> hole --provide--> in use
//!                        `--provide--> in use
//! ```
//!
//! A discarded range waits until the generation with the group that freed it is checkpointed. From then on the chunk is free in the data
//! file, too, and no live generation has a line of it. Then the image maps anonymous memory, all zeros, over the range in place of the
//! pages of the file, and the blocks are punched out of the file. The new mapping drops the private pages of the range, and no load asks
//! the file system for a block. (In a simulation, there is no file to map and the image is a copy. There the range is overwritten with
//! zeros after the punch.)
//!
//! Invariants:
//! * P1: a range is punched only after the checkpoint of the generation that freed it, when the header durably says that the
//!   generation is no longer live, and only while the range waits. So a replay never writes to a range that was already punched.
//! * P2: there is no store to a range that waits or is a hole. [`Image::provide`] comes first, under the lock that excludes the
//!   punch.
//! * P3: a group with stores to a former hole is written to the journal only after the range was allocated and the data file
//!   synced. A group holds only changes, here relative to zeros. So the zeros and the blocks must be durable first.
//! * P4: between a punch and the header that tells other processes of it (V4 of `copy`) the range is *young*. A thread that needs
//!   storage for a young range waits for that header.
//! * P5: a failed punch or allocation changes no content: the range keeps its blocks, or stays a hole.
//!
//! | step passed | the image shows | may be on the media at a power failure | recovery |
//! |---|---|---|---|
//! | discarded, group not durable | the old bytes | the chunk in use, or free | the newest group decides; the blocks stay |
//! | generation checkpointed, header synced | the old bytes | the chunk free, its old bytes | nothing to replay for the range |
//! | punched | zeros | of each sector the old bytes or zeros | finds a free or an empty chunk (A6 of `alloc`) |
//! | allocated | zeros | the same | the same |
//! | data file synced | zeros, new stores | zeros and blocks | finds zeros |
//! | group with stores there durable | new stores | zeros and blocks | its lines are written over zeros |
//!
//! A range that still waits when the process ends keeps its blocks until the chunk is used and freed again.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::medium::journal::freed::RUNNING;
use crate::medium::journal::header::DATA_AT;
use crate::medium::journal::image::Image;
use crate::medium::journal::storage::Files;
use crate::medium::traits::Medium;
use crate::medium::view::PAGE;

impl Image {
    /// Queues the whole pages of `from..to` for their punch. False if there are none.
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

    /// Prepares `from..to` for stores: the range no longer waits, and its holes get blocks. Returns false if the caller has to
    /// wait for the header (P4).
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Failed`; a hole then stays a hole.
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

    /// Punches the ranges that were freed by generations up to this one, which is checkpointed and no longer live (P1). Returns
    /// true if there were any. The caller holds the header lock and writes the header before [`Image::end_punch`].
    pub fn punch(&self, files: &Files, generation: u64) -> bool {
        let freed = self.space.freed();
        let due = freed.waiting.iter().filter(|(_, (_, freed_by))| *freed_by <= generation);
        let due: Vec<u64> = due.map(|(from, _)| *from).collect();
        drop(freed);
        for from in &due {
            // The lock is taken for each range separately: the writer may take a range off the queue meanwhile.
            let mut freed = self.space.freed();
            let Some((to, _)) =
                freed.waiting.get(from).copied().filter(|(_, freed_by)| *freed_by <= generation)
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
        // Hidden first, so that no load reads from a hole. If the system has too few mappings, the blocks stay.
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

    /// The header was written after all punches: no range is young any more (P4).
    pub fn end_punch(&self) {
        self.space.freed().young.clear();
    }

    /// Finds the holes of the data file and replaces them with zeros of the reserved range.
    ///
    /// # Errors
    /// `Io`; `NoSpace` if the system has too few mappings for the holes, and the disk is full.
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
