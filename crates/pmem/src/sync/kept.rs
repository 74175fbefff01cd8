//! A *kept line*: a volatile cache line with seven words that a reader derived from a node, for later readers of the node.
//!
//! Word 0 is the state: the bits `FULL` and `FILLING`, and a generation above them. The other words are the contents. A reader that has
//! derived the words of a node may *fill* the line with them. The writer *clears* the line when it changes the node such that the words are
//! no longer right. A line that is never filled costs readers nothing but a read of the state.
//!
//! Invariants:
//! * K1: while the version of the node ([`stripe`](super::stripe)) is not locked, the contents of a full line are right for the node. The
//!   writer clears the line while it holds the version locked. A reader that fills the line first takes it (sets `FILLING`), and then
//!   validates that the node has not changed since it derived the words. If the writer clears the line before the reader takes it, the
//!   validation fails. If the writer clears it later, the reader finds another generation at the end and leaves the line empty.
//! * K2: only one reader at a time stores contents: the one that set `FILLING`. A clear leaves this bit alone.
//! * K3: a reader validates the version of the node after it has read the contents, as for everything that it reads of the node.
//! * K4: the words that [`Kept::read`] returns are of one fill. Another reader may replace the contents while the version stays: for
//!   example, because a writer added to the node, and did not clear the line because the words were still right. So a reader also
//!   validates that the state of the line is the same before and after.

use super::atomics::{AtomicU64, Ordering, fence};
use super::omission::{Omission, is_omitted};

/// Number of words of the contents. (A model has two: enough for contents of two readers.)
pub const WORDS: usize = if cfg!(all(test, loom)) { 2 } else { 7 };

/// Set in the state if the line has contents.
const FULL: u64 = 1;
/// Set in the state while a reader stores contents.
const FILLING: u64 = 2;
/// The lowest bit of the generation.
const GENERATION: u64 = 4;

/// A kept line. Empty at first.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Kept {
    state: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Kept {
    /// Begins to load the line into the cache.
    #[inline(always)]
    pub fn prefetch(&self) {
        crate::medium::view::prefetch(std::ptr::from_ref(self).cast());
    }

    /// The contents. `None` if the line is empty, or changes meanwhile (K4). The caller validates the version of the node afterwards (K3).
    #[inline(always)]
    pub fn read(&self) -> Option<[u64; WORDS]> {
        let state = self.state.load(Ordering::Acquire);
        if state & FULL == 0 {
            return None;
        }
        let words = std::array::from_fn(|word| self.words[word].load(Ordering::Relaxed));
        // A reader that has loaded a word of a later fill sees the state that this fill took.
        fence(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) == state || is_omitted(Omission::KeptRead)).then_some(words)
    }

    /// Fills the line. `is_good` validates that the node has not changed since the words were derived. Does nothing if another reader is
    /// filling the line, or if the words are no longer right.
    pub fn fill(&self, words: &[u64; WORDS], is_good: impl FnOnce() -> bool) {
        let state = self.state.load(Ordering::Relaxed);
        let taken = (state & !FULL | FILLING) + GENERATION;
        let take = |from, to| self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        if state & FILLING != 0 || take(state, taken).is_err() {
            return;
        }
        if is_good() || is_omitted(Omission::KeptCheck) {
            // A reader that loads one of these words also sees the state that was taken, and the version that was validated.
            fence(Ordering::Release);
            self.words.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
            if take(taken, taken & !FILLING | FULL).is_ok() {
                return;
            }
        }
        // The line stays empty. A clear may change the generation meanwhile.
        self.change(|state| state & !FILLING);
    }

    /// Writer: empties the line. The version of the node is locked.
    #[inline]
    pub fn clear(&self) {
        if !is_omitted(Omission::KeptClear) {
            // A clear changes the generation of an empty line, too: a reader that takes it later then sees the locked version.
            self.change(|state| (state & !FULL) + GENERATION);
        }
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let mut state = self.state.load(Ordering::Relaxed);
        while let Err(now) =
            self.state.compare_exchange(state, to(state), Ordering::AcqRel, Ordering::Relaxed)
        {
            state = now;
        }
    }
}

#[cfg(all(test, loom))]
mod model;

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_what_a_validated_reader_stored_until_it_is_cleared() {
        let line = Kept::default();
        assert_eq!(line.read(), None);
        line.fill(&[1; WORDS], || false);
        assert_eq!(line.read(), None);
        line.fill(&[2; WORDS], || true);
        assert_eq!(line.read(), Some([2; WORDS]));
        line.fill(&[3; WORDS], || true);
        assert_eq!(line.read(), Some([3; WORDS]));
        // A writer clears the line, and another reader comes, while a reader fills it.
        line.fill(&[4; WORDS], || {
            line.clear();
            line.fill(&[5; WORDS], || true);
            true
        });
        assert_eq!(line.read(), None);
        line.fill(&[6; WORDS], || true);
        line.clear();
        assert_eq!(line.read(), None);
    }
}
