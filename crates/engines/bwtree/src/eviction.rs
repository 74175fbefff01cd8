//! Eviction of leaves. A bit for each page says whether the eviction looks at the page. Most pages of a large store are evicted leaves, and
//! the eviction skips them without a read of their nodes.
//!
//! Invariants:
//! * V1: the bit of a page is set while the page is a leaf in memory, or an evicted leaf that keeps changes or copies. A thread that makes
//!   it one sets the bit after its exchange. The eviction clears the bit of another page, then looks at the page again: so it either finds
//!   the new state, or the bit is set after it was cleared.
//! * V2: a thread that merges two leaves holds the lock `Tree::merging` from before it sees both in memory until the merge is complete. An
//!   eviction happens only while no thread does. So both leaves are in memory from the announcement of the merge to its end, and a merge
//!   needs no read that could fail. (A panic in between would release the lock.)
//!
//! Commit point: the exchange that replaces the leaf with an evicted leaf. Paper: Bw-tree §V.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{OnceLock, TryLockError};

use crate::digest;
use crate::image::{Address, Image};
use crate::node::Body;
use crate::omission::{Omission, is_omitted};
use crate::page::Records;
use crate::paged::{Kept, NewEvicted};
use crate::pairs::Pairs;
use crate::sync::{AtomicU64, Ordering};
use crate::table::{Pid, ROOT};
use crate::tree::Tree;

/// Bits of a word.
const BITS: u32 = u64::BITS;
/// Binary logarithm of the number of words of the first segment. Each further segment has twice as many.
const FIRST: u32 = 4;
/// All words of 2^32 pages.
const SEGMENTS: usize = (32 - BITS.ilog2() - FIRST) as usize + 1;

/// The eviction prefetches a page that comes at least this many pages later.
const FETCHED_AHEAD: u32 = 8;

/// The bits of all pages.
#[derive(Debug)]
pub(crate) struct Candidates([OnceLock<Box<[AtomicU64]>>; SEGMENTS]);

/// Segment and index of a word.
fn place(word: u32) -> (usize, usize) {
    let number = word + (1 << FIRST);
    let bits = number.ilog2();
    ((bits - FIRST) as usize, (number ^ (1 << bits)) as usize)
}

impl Candidates {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// Sets the bit of a page.
    pub(crate) fn set(&self, page: u32) {
        let (segment, index) = place(page / BITS);
        let words = self.0[segment]
            .get_or_init(|| (0..1 << (FIRST as usize + segment)).map(|_| AtomicU64::new(0)).collect());
        // Release: the thread that clears the bit finds the page as it was when the bit was set, or later.
        words[index].fetch_or(1 << (page % BITS), Ordering::AcqRel);
    }

    /// Clears the bit of a page.
    pub(crate) fn clear(&self, page: u32) {
        let (segment, index) = place(page / BITS);
        if let Some(words) = self.0[segment].get() {
            words[index].fetch_and(!(1 << (page % BITS)), Ordering::AcqRel);
        }
    }

    /// The first page from `from` on whose bit is set.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let (mut segment, mut index) = place(from / BITS);
        let mut mask = u64::MAX << (from % BITS);
        while segment < SEGMENTS {
            let words = self.0[segment].get().map_or(&[][..], |words| words);
            for (i, word) in words.iter().enumerate().skip(index) {
                // Acquire: a page's word was written before its bit.
                let bits = word.load(Ordering::Acquire) & mask;
                if bits != 0 {
                    let before = (1_u64 << (FIRST as usize + segment)) - (1 << FIRST);
                    let page = (before + i as u64) * u64::from(BITS) + u64::from(bits.trailing_zeros());
                    return u32::try_from(page).ok();
                }
                mask = u64::MAX;
            }
            (segment, index, mask) = (segment + 1, 0, u64::MAX);
        }
        None
    }
}

/// The state of a page that the eviction looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// It was used since the last round.
    Used,
    /// It can be evicted.
    Clean,
    /// It has to be saved first, or to keep its changes.
    Dirty,
    /// It is evicted, and keeps changes that are not saved.
    Unsaved,
    /// It is evicted, and keeps copies of records, but no changes.
    Copies,
}

/// The end of an attempt to evict a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// It is evicted. The bytes of memory that become free.
    Done(u64),
    /// It cannot be evicted just now. A later attempt may succeed.
    Busy,
    /// It has to be saved first, or is no leaf in memory.
    Kept,
}

impl<P: Pairs> Tree<P> {
    /// The state of a page. `None`: it is no leaf in memory and keeps no changes, or it is being merged.
    pub(crate) fn residence(&self, page: u32) -> Option<Residence> {
        let visit = self.visit();
        if let Some(ahead) = self.candidates.next(page.saturating_add(FETCHED_AHEAD)) {
            // The load of a word prefetches the page.
            let _ = visit.load(Pid(ahead));
        }
        let head = visit.load(Pid(page)).filter(|head| Pid(page) != ROOT && head.level() == 0)?;
        match head.body() {
            Body::Leaf { saved, .. } if saved.cool() => Some(Residence::Used),
            Body::Leaf { saved, .. } if saved.current(head).is_some() => Some(Residence::Clean),
            Body::Leaf { .. } => Some(Residence::Dirty),
            Body::Evicted { leaf, .. } if leaf.kept.bytes() > 0 => Some(Residence::Unsaved),
            Body::Evicted { leaf, .. } if leaf.copies.bytes() > 0 => Some(Residence::Copies),
            _ => None,
        }
    }

    /// The first page from this number on that the eviction has to look at, and its state. `None` if there are no more. Takes a use away from
    /// a leaf that was used.
    pub fn candidate(&self, mut from: u32) -> Option<(u32, Residence)> {
        loop {
            let page = self.candidates.next(from)?;
            if let Some(state) = self.residence(page) {
                return Some((page, state));
            }
            // V1.
            self.candidates.clear(page);
            if let Some(state) = self.residence(page).filter(|_| !is_omitted(Omission::Candidate)) {
                self.candidates.set(page);
                return Some((page, state));
            }
            from = page.checked_add(1)?;
        }
    }

    /// Evicts the leaf with this page number, if it is clean (I1), or if it `may_keep` its changes and these are few. `may_evict`
    /// decides by the address of an image that will be needed. Called as [`save`](Self::save) (I4).
    pub fn evict(&self, page: u32, may_keep: bool, may_evict: impl Fn(Address) -> bool) -> Eviction {
        if u64::from(page) >= self.table.used() {
            return Eviction::Kept;
        }
        let visit = self.visit();
        let pid = Pid(page);
        let Some(head) = visit.load(pid).filter(|head| pid != ROOT && head.level() == 0) else {
            return Eviction::Kept;
        };
        let Body::Leaf { saved, .. } = head.body() else { return Eviction::Kept };
        let current = match &saved.lineage {
            Some(lineage) if is_omitted(Omission::Clean) => lineage.image(),
            _ => saved.current(head),
        };
        let (image, unsaved, records) = match (current, &saved.lineage) {
            (Some(image), _) => (image, Vec::new(), head.base_records()),
            (None, Some(lineage)) if may_keep => {
                let live = Records::of(head).live;
                let Some(difference) = self.difference(lineage, head, &live) else { return Eviction::Kept };
                (Image { address: difference.base, base: None }, difference.image, live.len())
            }
            _ => return Eviction::Kept,
        };
        if !may_evict(image.address) || image.base.is_some_and(|base| !may_evict(base)) {
            return Eviction::Kept;
        }
        let kept = Kept { unsaved: &unsaved[..], late: &[] };
        let live = || Records::of(head).live;
        let digest = match &saved.lineage {
            _ if !unsaved.is_empty() => digest::of(&unsaved),
            Some(lineage) if image.base.is_some() => {
                let changes = lineage.difference::<P>(head, &live(), |_| true);
                changes.map_or_else(Vec::new, |changes| digest::of(&changes.image))
            }
            _ => Vec::new(),
        };
        let guide = saved.lineage.as_ref().map_or(&[][..], |lineage| lineage.guide());
        let (digest, guide) = (digest.into(), guide.into());
        let leaf = NewEvicted { kept, digest, guide, ..NewEvicted::of(image, records as u32, true) };
        let kept = unsaved.len() as u64;
        // The evicted leaf has no records in memory, so all of them are dead (N6).
        let mut dead = Vec::new();
        head.for_records(|record| dead.push(record));
        let freed = (head.chain_memory() as u64).saturating_sub(kept);
        // V2. A merge that begins after the exchange finds the evicted leaf. The exchange fails if one has changed the leaf before.
        let lock = self.merging.try_write();
        if matches!(lock, Err(TryLockError::WouldBlock)) && !is_omitted(Omission::Merging) {
            return Eviction::Busy;
        }
        if !visit.replace(pid, head, visit.stub_of(head, leaf), &dead, Omission::Consolidation) {
            return Eviction::Kept;
        }
        self.unsaved.fetch_add(kept, Relaxed);
        Eviction::Done(freed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_set_are_found_in_order() {
        let (candidates, mut random) = (Candidates::new(), fastrand::Rng::with_seed(1));
        let mut model = std::collections::BTreeSet::new();
        let mut page = || {
            let bits = random.u32(1..18);
            random.u32(..1 << bits)
        };
        for round in 0..3000 {
            let (page, from) = (page(), page());
            if round % 2 == 0 {
                candidates.set(page);
                model.insert(page);
            } else {
                candidates.clear(page);
                model.remove(&page);
            }
            assert_eq!(candidates.next(from), model.range(from..).next().copied(), "from {from}");
        }
        assert_eq!(place(u32::MAX / BITS).0, SEGMENTS - 1);
        assert_eq!(Candidates::new().next(u32::MAX), None);
    }
}
