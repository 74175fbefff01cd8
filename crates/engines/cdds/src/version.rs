//! Versions: determines from the start version and the end version of an entry whether a reader at a version sees it.
//!
//! Invariants:
//! * V1: a version is *dead* if a crash interrupted it or a rollback removed it. The meta block has a list of intervals of dead versions
//!   ([`crate::meta`]). Versions are never reused. A version that may have left traces and was not committed stays dead as long as a trace
//!   may exist.
//! * V2: no reader uses a version inside a dead interval. A rollback waits for the readers that use such a version, and a new reader checks
//!   the list of dead intervals before it reads. So an end version inside a dead interval may be overwritten. A [`Mark`](crate::pins::Mark)
//!   of a version may still exist after a rollback has made the version dead. Until the mark is gone, the interval stays in the list. A
//!   view at a version that is not dead sees no entry that began inside a dead interval.
//! * V3: an entry that a crashed version began is void: it references no block, and its slot is equal to a free one. A rolled-back entry
//!   references its blocks until it is removed.

use pmem::sync::{AtomicU64, Ordering, fence};

/// Maximum dead intervals in the list.
pub const INTERVALS: usize = 12;

/// The reason why versions are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// They were never committed.
    Crashed,
    /// They were committed and rolled back.
    RolledBack,
}

/// An interval of dead versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First dead version.
    pub lo: u64,
    /// Last dead version.
    pub hi: u64,
    /// The reason why they are dead.
    pub death: Death,
}

const ROLLED_BACK: u64 = 1 << 63;

impl Interval {
    /// Encodes the interval: first version with the kind, last version. A first word of 0 means no interval.
    pub fn words(self) -> (u64, u64) {
        let kind = if self.death == Death::RolledBack { ROLLED_BACK } else { 0 };
        (self.lo | kind, self.hi)
    }

    /// Decodes the interval of two words. `None` if it is not valid.
    pub fn of(lo: u64, hi: u64) -> Option<Self> {
        let death = if lo & ROLLED_BACK == 0 { Death::Crashed } else { Death::RolledBack };
        let interval = Self { lo: lo & !ROLLED_BACK, hi, death };
        (interval.lo != 0 && interval.lo <= hi).then_some(interval)
    }

    /// True for the versions from `lo` to `hi`.
    pub fn holds(&self, version: u64) -> bool {
        self.lo <= version && version <= self.hi
    }
}

/// A list of dead intervals. It is usually empty, and then it needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct Dead(Vec<Interval>);

impl Dead {
    /// The intervals.
    pub fn intervals(&self) -> &[Interval] {
        &self.0
    }

    /// True if there are no intervals.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an interval.
    ///
    /// # Panics
    /// Beyond [`INTERVALS`].
    pub fn push(&mut self, interval: Interval) {
        assert!(self.0.len() < INTERVALS, "the list has space for {INTERVALS} intervals");
        self.0.push(interval);
    }

    /// The list with one more crashed version. The version extends a crashed interval that ends just before it, or forms a new interval.
    /// `None` if there is no space for a new interval.
    pub fn with_crashed(&self, version: u64) -> Option<Self> {
        let mut dead = self.clone();
        let last = |interval: &&mut Interval| interval.death == Death::Crashed && interval.hi + 1 == version;
        let is_full = dead.0.len() == INTERVALS;
        match dead.0.iter_mut().find(last) {
            Some(interval) => interval.hi = version,
            None if is_full => return None,
            None => dead.push(Interval { lo: version, hi: version, death: Death::Crashed }),
        }
        Some(dead)
    }

    /// The list without these intervals.
    pub fn without(&self, removed: &[Interval]) -> Self {
        let mut dead = Self::default();
        let kept = self.intervals().iter().filter(|interval| !removed.contains(interval));
        kept.for_each(|interval| dead.push(*interval));
        dead
    }
}

/// The visibility of entries at one version.
#[derive(Clone, Debug)]
pub struct View {
    /// The version.
    pub version: u64,
    /// Dead intervals. Only an interval that ends before `version` counts (V2).
    pub dead: Dead,
}

impl View {
    /// True if the version is dead in this view.
    #[inline]
    pub fn is_dead(&self, version: u64) -> bool {
        let dead = |interval: &Interval| interval.hi < self.version && interval.holds(version);
        !self.dead.is_empty() && self.dead.intervals().iter().any(dead)
    }

    /// True if entries that began at `start` do not exist in this view: `start` is 0, a later version, or a version that was never
    /// committed (V3).
    #[inline]
    pub fn is_void(&self, start: u64) -> bool {
        start == 0 || start > self.version || (!self.dead.is_empty() && self.is_crashed(start))
    }

    fn is_crashed(&self, start: u64) -> bool {
        let crashed = |interval: &Interval| interval.death == Death::Crashed && interval.holds(start);
        self.dead.intervals().iter().any(crashed)
    }

    /// True if the view sees an entry with these versions.
    #[inline]
    pub fn sees(&self, start: u64, end: u64) -> bool {
        let is = |version| version != 0 && version <= self.version && !self.is_dead(version);
        is(start) && !is(end)
    }

    /// True if no reader at `horizon` or later sees an entry with these versions. The entry must not be void.
    pub fn is_garbage(&self, start: u64, end: u64, horizon: u64) -> bool {
        self.is_dead(start) || (end != 0 && end <= horizon && !self.is_dead(end))
    }
}

/// The dead intervals for readers. A reader copies the list between a read and a validation of its sequence number.
#[derive(Debug)]
pub struct SharedDead {
    sequence: AtomicU64,
    count: AtomicU64,
    words: [[AtomicU64; 2]; INTERVALS],
}

impl SharedDead {
    /// A shared list with this content.
    pub fn new(dead: &Dead) -> Self {
        let shared = Self {
            sequence: AtomicU64::new(0),
            count: AtomicU64::new(0),
            words: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        };
        shared.set(dead);
        shared
    }

    /// Replaces the list. Only the writer calls it.
    pub fn set(&self, dead: &Dead) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, interval) in self.words.iter().zip(dead.intervals()) {
            let (lo, hi) = interval.words();
            place[0].store(lo, Ordering::Relaxed);
            place[1].store(hi, Ordering::Relaxed);
        }
        self.count.store(dead.intervals().len() as u64, Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Copies the list.
    #[inline]
    pub fn get(&self) -> Dead {
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            let count = (self.count.load(Ordering::Relaxed) as usize).min(INTERVALS);
            let mut dead = Dead::default();
            for place in &self.words[..count] {
                let [lo, hi] = [0, 1].map(|word: usize| place[word].load(Ordering::Relaxed));
                if let Some(interval) = Interval::of(lo, hi) {
                    dead.push(interval);
                }
            }
            fence(Ordering::Acquire);
            if sequence & 1 == 0 && self.sequence.load(Ordering::Relaxed) == sequence {
                return dead;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(version: u64, intervals: &[(u64, u64, Death)]) -> View {
        let mut dead = Dead::default();
        intervals.iter().for_each(|&(lo, hi, death)| dead.push(Interval { lo, hi, death }));
        View { version, dead }
    }

    #[test]
    fn an_entry_is_seen_from_its_start_to_its_end_but_for_dead_ones() {
        let plain = view(5, &[]);
        assert!(plain.sees(5, 0) && plain.sees(1, 6) && !plain.sees(1, 5) && !plain.sees(6, 0));
        assert!(!plain.sees(0, 0) && !plain.sees(3, 3));
        let crashed = view(5, &[(4, 4, Death::Crashed)]);
        assert!(crashed.sees(1, 4) && !crashed.sees(4, 0) && crashed.is_void(4));
        let back = view(9, &[(4, 6, Death::RolledBack)]);
        assert!(back.sees(1, 5) && !back.sees(5, 0) && !back.is_void(5));
    }

    #[test]
    fn what_ended_at_or_before_the_horizon_is_garbage_but_for_dead_ends() {
        let back = view(9, &[(4, 6, Death::RolledBack)]);
        assert!(back.is_garbage(5, 0, 1) && back.is_garbage(1, 3, 3) && !back.is_garbage(1, 3, 2));
        assert!(!back.is_garbage(1, 5, 9));
    }

    #[test]
    fn a_shared_list_gives_what_was_set() {
        let set = view(9, &[(4, 6, Death::RolledBack), (8, 8, Death::Crashed)]).dead;
        let shared = SharedDead::new(&set);
        assert_eq!(shared.get().intervals(), set.intervals());
        shared.set(&Dead::default());
        assert!(shared.get().is_empty());
    }
}
