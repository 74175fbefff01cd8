//! What batches replaced: so that nobody sees half of one.
//!
//! While a batch is carried out operation by operation, the values that its keys had before stand here; gets beside it answer
//! from them, so all of it is seen at once, at its end. A scan that began before that end goes on without the batch, however
//! long it takes: what batches replaced hangs between the moments before and behind them, in a chain, and a scan holds the moment
//! of its begin. What no scan can ask for any more is dropped; so a scan that stands still costs memory, and hinders no writer.
//!
//! Invariants:
//! * B1: a batch is chained to the newest ended one before it changes anything, with every key that it will change; whoever sees
//!   a change of it, between two looks at a node, sees it in the chain. It is the newest ended one when all is changed.
//! * B2: one batch runs at a time: its writer has the lock.
//!
//! A scan takes hold of a moment with one atomic count, when it is placed; gets write nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use pmem::canary::{Canary, sings};
use pmem::sync::{AtomicBool, Ordering, step};

use crate::schema::Schema;

/// A key and its value; none if it is absent, or is to be.
pub type Pair<S> = (<S as Schema>::KeyBuf, Option<<S as Schema>::ValueBuf>);

/// A moment between two batches.
#[derive(Debug)]
pub struct Moment<S: Schema> {
    next: OnceLock<Replaced<S>>,
}

/// What the batch behind a moment replaced.
#[derive(Debug)]
struct Replaced<S: Schema> {
    /// Its keys, ascending, as they were before.
    pairs: Vec<Pair<S>>,
    /// The moment behind it.
    then: Arc<Moment<S>>,
}

impl<S: Schema> Moment<S> {
    fn new() -> Arc<Self> {
        Arc::new(Self { next: OnceLock::new() })
    }

    /// What a key was at this moment, if a batch behind it replaced that: what the oldest of them found.
    #[inline]
    pub fn replaced(&self, key: &S::Key) -> Option<Option<&S::ValueBuf>> {
        let mut next = self.next.get();
        while let Some(batch) = next {
            if let Some(old) = batch.of(key) {
                return Some(old);
            }
            next = batch.then.next.get();
        }
        None
    }
}

impl<S: Schema> Drop for Moment<S> {
    /// One after the other: a scan may have held a chain of thousands.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(replaced) = next {
            next = Arc::into_inner(replaced.then).and_then(|mut moment| moment.next.take());
        }
    }
}

impl<S: Schema> Replaced<S> {
    /// What a key was, if it is one of the batch's.
    fn of(&self, key: &S::Key) -> Option<Option<&S::ValueBuf>> {
        let probe = S::probe(key);
        let at = self.pairs.binary_search_by(|(key, _)| S::order_probe(probe, S::borrow(key)).reverse());
        Some(self.pairs[at.ok()?].1.as_ref())
    }
}

/// The batches of a tree.
pub struct Batches<S: Schema> {
    /// The moment behind the newest batch that ended.
    newest: ArcSwap<Moment<S>>,
    running: AtomicBool,
}

impl<S: Schema> Default for Batches<S> {
    fn default() -> Self {
        Self { newest: ArcSwap::new(Moment::new()), running: AtomicBool::new(false) }
    }
}

impl<S: Schema> Batches<S> {
    /// A batch is about to change its first key (B1); its keys, ascending, as they are.
    pub fn begin(&self, pairs: Vec<Pair<S>>) {
        step();
        let chained = self.newest.load().next.set(Replaced { pairs, then: Moment::new() });
        debug_assert!(chained.is_ok(), "two batches at once");
        self.running.store(true, Ordering::Release);
    }

    /// The running batch has changed its last key.
    pub fn end(&self) {
        let then = self.newest.load().next.get().map(|replaced| Arc::clone(&replaced.then));
        if let Some(then) = then {
            step();
            self.newest.store(then);
        }
        self.running.store(false, Ordering::Release);
    }

    /// True while a batch runs. To be asked behind the second look at what was read.
    #[inline(always)]
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) && !sings(Canary::Batches)
    }

    /// What a key was before the running batch, if it is one of that: whether it was there, and its value.
    #[cold]
    pub fn before(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Option<bool> {
        step();
        let newest = self.newest.load();
        let old = newest.next.get()?.of(key)?;
        if let (Some(value), Some(old)) = (value, old) {
            value.clone_from(old);
        }
        Some(old.is_some())
    }

    /// The moment behind the newest batch that ended.
    pub fn now(&self) -> Arc<Moment<S>> {
        step();
        self.newest.load_full()
    }

    /// What a scan from `from` on sees.
    pub fn view(&self, from: Bound<S::KeyBuf>) -> View<S> {
        View { at: self.now(), behind: from, hidden: BTreeMap::new(), ahead: None, ended: false }
    }
}

/// A scan's sight of the tree: without the batches that ended after its begin.
#[derive(Debug)]
pub struct View<S: Schema> {
    /// Behind the newest batch that is seen, or whose keys are among the hidden.
    at: Arc<Moment<S>>,
    /// Everything given out is behind this. While the tree's own pairs are what is seen, the cursor knows that.
    behind: Bound<S::KeyBuf>,
    /// Keys before the scan that later batches changed, as the oldest of these found them.
    hidden: BTreeMap<S::KeyBuf, Option<S::ValueBuf>>,
    /// A pair of the tree that the scan has not come to.
    ahead: Option<(S::KeyBuf, S::ValueBuf)>,
    /// The tree has no more.
    ended: bool,
}

impl<S: Schema> View<S> {
    /// True if the tree's own pairs are what the scan sees.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.hidden.is_empty() && self.ahead.is_none() && !self.ended
    }

    /// Everything up to this key was given out.
    fn pass(&mut self, key: &S::KeyBuf) {
        match &mut self.behind {
            Bound::Excluded(behind) => behind.clone_from(key),
            behind => *behind = Bound::Excluded(key.clone()),
        }
    }

    /// Takes note of batches that began meanwhile; true if there are any. To be asked behind the second look at what was read,
    /// with what the tree was read up to before.
    #[inline(always)]
    pub fn takes_note(&mut self, from: &Bound<S::KeyBuf>, descending: bool) -> bool {
        if self.at.next.get().is_none() {
            return false;
        }
        if self.is_plain() {
            self.behind = from.clone();
        }
        self.take_note(descending);
        true
    }

    #[cold]
    fn take_note(&mut self, descending: bool) {
        while let Some(then) = self.at.next.get().map(|replaced| Arc::clone(&replaced.then)) {
            for (key, value) in self.at.next.get().into_iter().flat_map(|replaced| &replaced.pairs) {
                let is_ahead = match (&self.behind, descending) {
                    (Bound::Unbounded, _) => true,
                    (Bound::Included(behind), false) => key >= behind,
                    (Bound::Excluded(behind), false) => key > behind,
                    (Bound::Included(behind), true) => key <= behind,
                    (Bound::Excluded(behind), true) => key < behind,
                };
                if is_ahead && !self.hidden.contains_key(key) {
                    self.hidden.insert(key.clone(), value.clone());
                }
            }
            self.at = then;
        }
    }

    /// The tree gave this, or had no more.
    pub fn meet(&mut self, pair: Option<(S::KeyBuf, S::ValueBuf)>) {
        self.ended |= pair.is_none();
        self.ahead = pair;
    }

    /// True if the tree has to be asked for its next pair.
    pub fn wants_more(&self) -> bool {
        self.ahead.is_none() && !self.ended
    }

    /// The next pair that the scan sees; `None` if the tree has to be asked first, or all was given out.
    pub fn take(&mut self, descending: bool) -> Option<(S::KeyBuf, S::ValueBuf)> {
        loop {
            if self.wants_more() {
                return None;
            }
            let hidden =
                if descending { self.hidden.last_key_value() } else { self.hidden.first_key_value() };
            let comes_first = match (hidden, &self.ahead) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some((hidden, _)), Some((ahead, _))) if descending => hidden >= ahead,
                (Some((hidden, _)), Some((ahead, _))) => hidden <= ahead,
            };
            if !comes_first {
                let pair = self.ahead.take()?;
                self.pass(&pair.0);
                return Some(pair);
            }
            let (key, value) = if descending { self.hidden.pop_last() } else { self.hidden.pop_first() }?;
            self.ahead.take_if(|(ahead, _)| *ahead == key);
            self.pass(&key);
            if let Some(value) = value {
                return Some((key, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Words;

    fn run(batches: &Batches<Words>, pairs: &[(u64, Option<u64>)]) {
        batches.begin(pairs.to_vec());
        batches.end();
    }

    /// What a scan gives of a tree that holds `tree` at its first step and thereafter.
    fn scan(mut view: View<Words>, tree: &[(u64, u64)], descending: bool) -> Vec<(u64, u64)> {
        let mut tree = tree.to_vec();
        if descending {
            tree.reverse();
        }
        let mut rest = tree.into_iter();
        let mut seen = Vec::new();
        let mut from = view.behind;
        loop {
            while view.wants_more() {
                let pair = rest.next();
                view.takes_note(&from, descending);
                if let Some((key, _)) = pair {
                    from = Bound::Excluded(key);
                }
                view.meet(pair);
            }
            match view.take(descending) {
                Some(pair) => seen.push(pair),
                None if view.wants_more() => {}
                None => return seen,
            }
        }
    }

    #[test]
    fn a_get_beside_a_batch_sees_what_was_before_and_behind_it_nothing_of_that() {
        let batches = Batches::<Words>::default();
        let now = batches.now();
        batches.begin(vec![(3, Some(30)), (5, None)]);
        let mut value = 0;
        assert!(batches.is_running());
        assert_eq!((batches.before(&3, Some(&mut value)), value), (Some(true), 30));
        assert_eq!((batches.before(&5, None), batches.before(&4, None)), (Some(false), None));
        batches.end();
        assert!(!batches.is_running());
        assert_eq!(batches.before(&3, None), None);
        // Many keys at once are as they were at their first look; the oldest batch behind that knows.
        run(&batches, &[(3, Some(33)), (4, Some(40))]);
        let replaced = [3, 4, 5, 6].map(|key| now.replaced(&key).map(Option::<&u64>::copied));
        assert_eq!(replaced, [Some(Some(30)), Some(Some(40)), Some(None), None]);
    }

    #[test]
    fn a_scan_sees_nothing_of_batches_after_its_begin_in_either_direction() {
        for descending in [false, true] {
            let batches = Batches::<Words>::default();
            run(&batches, &[(1, None)]);
            let view = batches.view(Bound::Unbounded);
            // 2 was 20 and goes, 4 comes, 6 was 60; then 6 and 8 are changed again, and 2 comes back.
            run(&batches, &[(2, Some(20)), (4, None), (6, Some(60))]);
            run(&batches, &[(2, None), (6, Some(61)), (8, Some(80))]);
            let mut expected = vec![(1, 10), (2, 20), (3, 30), (6, 60), (8, 80)];
            if descending {
                expected.reverse();
            }
            let tree = [(1, 10), (2, 22), (3, 30), (4, 44), (6, 66), (8, 88)];
            assert_eq!(scan(view, &tree, descending), expected);
            assert_eq!(scan(batches.view(Bound::Unbounded), &tree, false), tree);
        }
    }

    #[test]
    fn keys_outside_of_the_range_or_behind_the_scan_do_not_come_back() {
        let batches = Batches::<Words>::default();
        let (up, down) = (batches.view(Bound::Excluded(4)), batches.view(Bound::Excluded(4)));
        run(&batches, &[(2, Some(20)), (4, Some(40)), (6, Some(60))]);
        assert_eq!(scan(up, &[], false), [(6, 60)]);
        assert_eq!(scan(down, &[], true), [(2, 20)]);
        let mut view = batches.view(Bound::Unbounded);
        assert!(!view.takes_note(&Bound::Unbounded, false));
        view.behind = Bound::Excluded(5);
        run(&batches, &[(2, Some(20)), (5, Some(50)), (7, Some(70))]);
        assert_eq!(scan(view, &[], false), [(7, 70)]);
    }

    #[test]
    fn a_long_chain_is_dropped_without_a_deep_stack() {
        let batches = Batches::<Words>::default();
        let view = batches.view(Bound::Unbounded);
        for key in 0..200_000 {
            run(&batches, &[(key, None)]);
        }
        drop(view);
    }
}
