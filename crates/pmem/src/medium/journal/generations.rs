//! The generations of the journal. This module finds the place of the next group in the current generation, begins a new generation when
//! the current one is full, and checkpoints old ones.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::medium::journal::checkpoint::{self, Generation, write_data_file};
use crate::medium::journal::group::{self, Position, SECTOR};
use crate::medium::journal::header::Header;
use crate::medium::journal::journaled::Journal;
use crate::medium::journal::live::guard;
use crate::medium::journal::sizes::{self, Checkpoint, MEMORY_PART};
use crate::medium::view::PAGE;

impl Journal {
    /// Finds the place and the number of a group of at most `bytes` bytes and `pages` pages. Checkpoints a generation if
    /// necessary. `appending` is held (J9).
    pub(super) fn make_space(&self, bytes: u64, pages: u64) -> Result<(Position, u64)> {
        let half_bytes = self.pair.half_bytes;
        if bytes > group::BODY_BYTES_MAX {
            let limit = group::BODY_BYTES_MAX;
            return Err(Error::TooLarge { of: "bytes of a group of writes", asked: bytes, limit });
        }
        let in_annex = bytes > half_bytes;
        let bytes_in_half = if in_annex { SECTOR } else { bytes };
        let pages_max =
            self.group_lines_max().min(self.memory_bytes.load(Ordering::Relaxed) / MEMORY_PART / PAGE);
        loop {
            let mut live = guard(&self.live);
            let half = (live.generation % 2) as usize;
            let from = live.used[half];
            // The limit of pages does not apply to an empty generation: no other generation could offer more.
            let few_pages = from == 0 || live.pages[half] + pages <= pages_max;
            let is_annex_free = !in_annex || live.annex.is_none();
            if from + bytes_in_half <= half_bytes && few_pages && is_annex_free {
                let space = (Position { generation: live.generation, from, in_annex }, live.next);
                drop(live);
                if in_annex {
                    self.make_annex(bytes)?;
                }
                return Ok(space);
            }
            let oldest = live.oldest;
            if live.generation == oldest {
                live.turn();
                self.turned.notify_all();
            } else {
                drop(live);
                self.checkpoint_generation(oldest)?;
            }
        }
    }

    /// Allocates an annex of `bytes` bytes. No live generation may have a group in it.
    pub(super) fn make_annex(&self, bytes: u64) -> Result<()> {
        let (found, end) = (self.files.journal.len()?, self.pair.annex_at() + bytes);
        if end > found { self.files.journal.allocate(found, end) } else { Ok(()) }
    }

    /// Checkpoints a generation that gets no more groups; `None` if it is already checkpointed.
    pub(super) fn checkpoint_generation(&self, generation: u64) -> Result<Option<Checkpoint>> {
        let mut header = guard(&self.header);
        self.files.check()?;
        let live = guard(&self.live);
        let half = (generation % 2) as usize;
        let (used, first, behind) = (live.used[half], live.first[half], live.first[1 - half]);
        if live.oldest != generation {
            return Ok(None);
        }
        assert!(live.generation == generation + 1, "a generation that takes groups is not checkpointed");
        drop(live);
        let outcome = self.write_and_advance(&mut header, generation, used, first, behind);
        let (checkpointed, pages) = outcome.map_err(|error| self.fail(error))?;
        let mut live = guard(&self.live);
        if live.annex == Some(generation) {
            // Under the lock and before the annex is free, so that no other thread extends it meanwhile.
            header.cut_annex(&self.files);
            live.annex = None;
        }
        live.oldest = generation + 1;
        live.checkpoints += 1;
        drop(live);
        drop(header);
        let kept_max = sizes::kept_pages_max(self.memory_bytes.load(Ordering::Relaxed));
        let pages_dropped = self.image.give_up(&self.files, generation, pages, kept_max);
        Ok(Some(Checkpoint { groups: checkpointed.groups, lines: checkpointed.lines, pages_dropped }))
    }

    fn write_and_advance(
        &self,
        header: &mut Header,
        generation: u64,
        used: u64,
        first: u64,
        behind: u64,
    ) -> Result<(checkpoint::Checkpointed, Vec<u64>)> {
        let found = Generation::read(&self.files, header, generation, used, first)?;
        if found.groups.len() as u64 != behind - first || found.end as u64 != used {
            let at = header.half_at(generation) + found.end as u64;
            return Err(Error::Corrupt { what: "group in the journal", at });
        }
        let (checkpointed, pages) = write_data_file(&self.files, &[found])?;
        header.advance(&self.files, generation + 1, behind, || {
            let has_punched = self.image.punch(&self.files, generation);
            if has_punched {
                self.trim_file(false);
            }
            has_punched
        })?;
        self.image.end_punch();
        Ok((checkpointed, pages))
    }
}
