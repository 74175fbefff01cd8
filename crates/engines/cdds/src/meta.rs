//! The meta block: root, current version and count in one line, followed by the list of dead versions.
//!
//! ```text
//! line 0   word 0 tag   word 1 root   word 2 current version   words 3, 4 count in bits 0..48, its version in 48..64
//!          word 5 the record of named versions, 0: none
//! lines 1 to 3   twelve dead intervals of two words: first version (bit 63: rolled back), last version; first 0: none
//! ```
//!
//! The region's root word references the block. Commit point of every operation: word 2 ([`Meta::commit`]). Root and count are published
//! before it in the same line. The count goes to the one of words 3 and 4 that does not hold the previous version's count. A count word
//! also has the lowest 16 bits of the version to which the count belongs.
//!
//! Invariants:
//! * M1: after a crash the version that may have left traces is [`in_flight`]: the greatest among the current version and all versions that
//!   are known to have crashed, plus one.
//! * M2: if the last version of a rolled-back interval is equal to or above the current version, the interval was not committed and does
//!   not count.
//! * M3: a rolled-back interval that *begins* after the current version has the write groups of an interrupted batch ([`crate::batch`]).
//!   The version after the interval is the write group that was in flight at the crash. Recovery declares this version dead and moves the
//!   current version past it ([`Meta::settle_cut`]). From then on the interval counts (M2). The new entries of the write groups in the
//!   interval own blocks, like the new entries of any rolled-back version. The new entries of the write group in flight own none.

use pmem::{Error, Fence, LINE, Medium, Result, WORD};

use crate::persist::Persist;
use crate::version::{Dead, Death, INTERVALS, Interval};

/// Bytes of the block.
pub const META_BYTES: u64 = LINE + INTERVALS as u64 * 2 * WORD;
const TAG: u64 = u64::from_le_bytes(*b"CDDSMETA");
const COUNT_BITS: u32 = 48;

/// The block's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta(pub u64);

/// The decoded line 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The root.
    pub root: u64,
    /// The current version.
    pub current: u64,
    /// Keys at that version.
    pub keys: u64,
}

fn count_word(state: &State) -> u64 {
    state.keys | state.current << COUNT_BITS
}

/// The version of the operation in flight, or of the operation that a crash interrupted (M1).
pub fn in_flight(current: u64, dead: &Dead) -> u64 {
    let crashed = dead.intervals().iter().filter(|interval| interval.death == Death::Crashed);
    crashed.map(|interval| interval.hi).fold(current, u64::max) + 1
}

impl Meta {
    fn word_at(self, word: u64) -> u64 {
        self.0 + word * WORD
    }

    fn interval_at(self, slot: usize) -> u64 {
        self.0 + LINE + slot as u64 * 2 * WORD
    }

    /// Writes a fresh block and flushes it.
    pub fn create<M: Medium>(self, medium: &M, state: &State) {
        let words = [TAG, state.root, state.current, count_word(state)];
        for word in 0..META_BYTES / WORD {
            medium.copy(self.word_at(word), words.get(word as usize).copied().unwrap_or(0));
        }
        medium.flush(self.0, META_BYTES);
    }

    /// The record of named versions; 0 if there is none.
    pub fn kept<M: Medium>(self, medium: &M) -> u64 {
        medium.word(self.word_at(5))
    }

    /// Publishes the address of another record of named versions and flushes the word.
    pub fn publish_kept<M: Medium>(self, medium: &M, persist: Persist, at: u64) {
        medium.publish(self.word_at(5), at);
        persist.flush(medium, self.word_at(5), WORD);
    }

    /// Reads line 0.
    ///
    /// # Errors
    /// `Corrupt` if it is not a valid line 0.
    pub fn read<M: Medium>(self, medium: &M) -> Result<State> {
        let corrupt = |what| Error::Corrupt { what, at: self.0 };
        if !self.0.is_multiple_of(LINE) || medium.word(self.0) != TAG {
            return Err(corrupt("meta block"));
        }
        let [root, current] = [1, 2].map(|word| medium.word(self.word_at(word)));
        if current == 0 || current >= 1 << 62 {
            return Err(corrupt("current version"));
        }
        let of_it = |word: &u64| word >> COUNT_BITS == current & 0xFFFF;
        let count = [3, 4].map(|word| medium.word(self.word_at(word))).into_iter().find(of_it);
        let keys = count.ok_or(corrupt("count"))? & ((1 << COUNT_BITS) - 1);
        Ok(State { root, current, keys })
    }

    /// If a crash interrupted a batch in write groups, rolls back its write groups and declares the version after them dead (M3). Durable
    /// on return.
    ///
    /// # Errors
    /// `Corrupt` if an interval is invalid, or if the list has no space for another one.
    pub fn settle_cut<M: Medium>(self, medium: &M, persist: Persist, state: State) -> Result<State> {
        let all = (0..INTERVALS).filter_map(|slot| self.interval(medium, slot).transpose());
        let all: Vec<Interval> = all.collect::<Result<_>>()?;
        let is_cut =
            |interval: &&Interval| interval.death == Death::RolledBack && interval.lo > state.current;
        let Some(write_groups) = all.iter().find(is_cut) else { return Ok(state) };
        let in_flight = Interval { lo: write_groups.hi + 1, hi: write_groups.hi + 1, death: Death::Crashed };
        let mut dead = self.read_dead(medium, state.current)?;
        let more = [*write_groups, in_flight].into_iter().filter(|more| !dead.intervals().contains(more));
        let more: Vec<Interval> = more.collect();
        if dead.intervals().len() + more.len() > INTERVALS {
            return Err(Error::Corrupt { what: "list of dead intervals", at: self.0 });
        }
        more.into_iter().for_each(|interval| dead.push(interval));
        self.write_dead(medium, persist, &dead);
        let settled = State { current: in_flight.hi + 1, ..state };
        self.commit(medium, persist, &state, &settled);
        Ok(settled)
    }

    /// The interval of a slot, if there is one.
    fn interval<M: Medium>(self, medium: &M, slot: usize) -> Result<Option<Interval>> {
        let at = self.interval_at(slot);
        let (lo, hi) = (medium.word(at), medium.word(at + WORD));
        if lo == 0 {
            return Ok(None);
        }
        let interval = Interval::of(lo, hi).filter(|interval| interval.hi < 1 << 62);
        interval.map(Some).ok_or(Error::Corrupt { what: "dead interval", at })
    }

    /// Reads the dead intervals (M2 applied).
    ///
    /// # Errors
    /// `Corrupt` if one of them is invalid.
    pub fn read_dead<M: Medium>(self, medium: &M, current: u64) -> Result<Dead> {
        let mut dead = Dead::default();
        for slot in 0..INTERVALS {
            let Some(interval) = self.interval(medium, slot)? else { continue };
            if interval.death == Death::Crashed || interval.hi < current {
                dead.push(interval);
            }
        }
        Ok(dead)
    }

    /// Makes `state` the durable state; `old` is the state before. All data of the new state must be durable already.
    pub fn commit<M: Medium>(self, medium: &M, persist: Persist, old: &State, state: &State) {
        if state.root != old.root {
            medium.publish(self.word_at(1), state.root);
        }
        if state.current != old.current {
            let holds_old = medium.word(self.word_at(3)) == count_word(old);
            medium.publish(self.word_at(if holds_old { 4 } else { 3 }), count_word(state));
            medium.publish(self.word_at(2), state.current);
        }
        persist.flush(medium, self.0, LINE);
        persist.fence(medium, Fence::Commit);
    }

    /// Makes `dead` the durable list. Unchanged intervals keep their slots; new ones go to free slots. False if there are too few slots.
    /// Durable on return.
    pub fn write_dead<M: Medium>(self, medium: &M, persist: Persist, dead: &Dead) -> bool {
        let read = |slot| [0, WORD].map(|word| medium.word(self.interval_at(slot) + word));
        let matches = |slot: usize, interval: &Interval| {
            let (lo, hi) = interval.words();
            read(slot)[0] == lo && read(slot)[1] <= hi
        };
        let mut slots = [None; INTERVALS];
        for interval in dead.intervals() {
            let free = |slot: &usize| slots[*slot].is_none();
            let kept = (0..INTERVALS).filter(free).find(|slot| matches(*slot, interval));
            let slot = kept.or_else(|| {
                let unused = |slot: &usize| !dead.intervals().iter().any(|other| matches(*slot, other));
                (0..INTERVALS).filter(free).find(unused)
            });
            let Some(slot) = slot else { return false };
            slots[slot] = Some(*interval);
        }
        let mut changed = false;
        for (slot, interval) in slots.into_iter().enumerate() {
            let (lo, hi) = interval.map_or((0, 0), Interval::words);
            let [old_lo, old_hi] = read(slot);
            if old_lo == lo && (lo == 0 || old_hi == hi) {
                continue;
            }
            let at = self.interval_at(slot);
            // An interval that grows keeps its first version. Otherwise the slot is invalid while its last version changes.
            if old_lo != lo && old_lo != 0 {
                medium.publish(at, 0);
            }
            if lo != 0 {
                medium.publish(at + WORD, hi);
                if old_lo != lo {
                    medium.publish(at, lo);
                }
            }
            persist.flush(medium, at, 2 * WORD);
            changed = true;
        }
        if changed {
            persist.fence(medium, Fence::Payload);
        }
        true
    }
}
