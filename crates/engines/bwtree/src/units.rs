//! The free units of a chunk: a bitmap. Blocks of any number of units are taken out of it, and free neighbours join again. So memory that
//! blocks of one size have left serves blocks of other sizes.

/// Number of units of a chunk.
pub(crate) const UNITS: usize = 1024;
const WORDS: usize = UNITS / 64;

/// The free units of a chunk.
#[derive(Debug)]
pub(crate) struct Units {
    /// A bit for each unit. 1: it is free.
    free: [u64; WORDS],
    /// Length of the longest run of free units.
    longest: usize,
    /// Number of free units.
    count: usize,
}

/// A run of free units: the first one, and their number.
type Run = (usize, usize);

impl Units {
    /// All units are free.
    pub(crate) fn new() -> Self {
        Self { free: [u64::MAX; WORDS], longest: UNITS, count: UNITS }
    }

    /// Length of the longest run of free units.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// True if all units are free.
    pub(crate) fn is_free(&self) -> bool {
        self.count == UNITS
    }

    /// The first unit from `from` on whose bit is `wanted`, or [`UNITS`].
    fn next(&self, from: usize, wanted: bool) -> usize {
        let flip = if wanted { 0 } else { u64::MAX };
        let mut at = from / 64;
        let mut bits = match self.free.get(at) {
            Some(word) => (word ^ flip) & (u64::MAX << (from % 64)),
            None => return UNITS,
        };
        while bits == 0 {
            at += 1;
            match self.free.get(at) {
                Some(word) => bits = word ^ flip,
                None => return UNITS,
            }
        }
        at * 64 + bits.trailing_zeros() as usize
    }

    /// The first unit of the run of free units that ends before `end`.
    fn start(&self, end: usize) -> usize {
        let mut at = end / 64;
        let mut taken = self.free.get(at).map_or(0, |word| !word & !(u64::MAX << (end % 64)));
        while taken == 0 {
            if at == 0 {
                return 0;
            }
            at -= 1;
            taken = !self.free[at];
        }
        at * 64 + 64 - taken.leading_zeros() as usize
    }

    /// Calls `with` for each run of free units.
    fn runs(&self, mut with: impl FnMut(Run)) {
        let mut at = self.next(0, true);
        while at < UNITS {
            let end = self.next(at, false);
            with((at, end - at));
            at = self.next(end, true);
        }
    }

    fn set(&mut self, from: usize, count: usize, is_free: bool) {
        let mut at = from;
        while at < from + count {
            let bits = (64 - at % 64).min(from + count - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            if is_free {
                self.free[at / 64] |= mask
            } else {
                self.free[at / 64] &= !mask
            }
            at += bits;
        }
    }

    /// Takes units out of the shortest run that has enough. `None` if no run has. O(units / 64 + runs).
    pub(crate) fn take(&mut self, count: usize) -> Option<usize> {
        let (mut best, mut second): (Option<Run>, usize) = (None, 0);
        let mut longest = 0;
        self.runs(|run| {
            if run.1 >= count && best.is_none_or(|best| run.1 < best.1) {
                best = Some(run);
            }
            if run.1 >= longest {
                (second, longest) = (longest, run.1);
            } else {
                second = second.max(run.1);
            }
        });
        let (from, length) = best?;
        self.set(from, count, false);
        self.count -= count;
        // If the best run was the longest one, its rest or the second one is the longest now.
        self.longest = if length == longest { second.max(length - count) } else { longest };
        Some(from)
    }

    /// Frees units.
    pub(crate) fn give(&mut self, from: usize, count: usize) {
        self.set(from, count, true);
        self.count += count;
        let (start, end) = (self.start(from), self.next(from, false));
        self.longest = self.longest.max(end - start);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn runs_are_taken_and_join_again() {
        let (mut units, mut random) = (Units::new(), fastrand::Rng::with_seed(1));
        let mut model = [true; UNITS];
        let mut taken: Vec<Run> = Vec::new();
        for _ in 0..30_000 {
            let runs = |model: &[bool; UNITS]| {
                let lengths = model.split(|is_free| !is_free).map(<[bool]>::len);
                lengths.filter(|length| *length > 0).collect::<Vec<_>>()
            };
            assert_eq!(units.longest(), runs(&model).into_iter().max().unwrap_or(0));
            if random.u32(..100) < 52 || taken.is_empty() {
                let count = random.usize(1..40);
                let best = runs(&model).into_iter().filter(|length| *length >= count).min();
                let Some(from) = units.take(count) else {
                    assert_eq!(best, None);
                    continue;
                };
                assert!(model[from..from + count].iter().all(|is_free| *is_free));
                let before = model[..from].iter().rev().take_while(|is_free| **is_free).count();
                let length = before + model[from..].iter().take_while(|is_free| **is_free).count();
                assert_eq!(Some(length), best);
                model[from..from + count].fill(false);
                taken.push((from, count));
            } else {
                let (from, count) = taken.swap_remove(random.usize(..taken.len()));
                units.give(from, count);
                model[from..from + count].fill(true);
            }
        }
        taken.into_iter().for_each(|(from, count)| units.give(from, count));
        assert!(units.is_free() && units.longest() == UNITS);
    }
}
