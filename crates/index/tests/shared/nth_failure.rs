//! The N-th growth or sync fails, once or from then on, N = 1, 2, 3 … until a run meets no failure any more.
//!
//! Each failure is told as an error and nothing of what failed is there; writes work as soon as there is room; after a reopen
//! everything is as acknowledged, and verification finds nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Index, Sample, options, pairs, rebuild};
use crash::failing::{Failing, Faults, Plan, every_nth};
use index::chain::prelude::*;
use index::{Keyed, Words, WriteOptions};
use pmem::{Error, Found, Memory, Result};

type T<S> = Index<Failing, S>;
type Model<S> = BTreeMap<<S as index::Schema>::KeyBuf, <S as index::Schema>::ValueBuf>;

/// Value number `n`; of byte strings every fifth is cut into pieces.
fn value<S: Sample>(n: u32) -> S::ValueBuf {
    S::value(if n.is_multiple_of(5) { 8 * 3000 + n } else { n })
}

/// A run's memory, contents and faults.
struct Run<S: Sample> {
    memory: Arc<Memory>,
    faults: Arc<Faults>,
    model: Model<S>,
    failed: u64,
}

impl<S: Sample> Run<S> {
    fn new(plan: Plan) -> Self {
        Self { memory: Memory::new(8 << 20, 0), faults: Faults::new(plan), model: BTreeMap::new(), failed: 0 }
    }

    fn medium(&self) -> Failing {
        Failing::new(&self.memory, &self.faults)
    }

    fn create(&self) -> Result<T<S>> {
        T::<S>::create(self.medium(), &options::<S>(2, false))
    }

    fn open(&self) -> Result<(T<S>, Found)> {
        T::<S>::open(self.medium(), Path::new("memory"), &options::<S>(2, false))
    }

    /// Does something, and says whether it was acknowledged. What fails without a planned failure fails the test; so does a
    /// failed sync that is not told.
    fn acknowledged<R>(&self, what: impl FnOnce() -> Result<R>) -> Option<R> {
        let (before, plan) = (self.faults.met(), self.faults.plan());
        let outcome = what();
        let met = self.faults.met() > before;
        match outcome {
            Ok(done) => {
                // A growth by several chunks that failed is tried again by one.
                assert!(!met || plan.growth, "{plan:?}: a failed sync was not told");
                Some(done)
            }
            Err(Error::NoSpace { .. } | Error::Full { .. } | Error::Io { .. }) if met => None,
            Err(error) => panic!("{plan:?}: {error}"),
        }
    }

    fn write(&mut self, index: &T<S>, writes: &[(u32, Option<u32>)]) {
        let pairs: Vec<_> = writes.iter().map(|(n, v)| (S::key(*n), v.map(value::<S>))).collect();
        let done = self.acknowledged(|| match pairs.as_slice() {
            [(key, Some(value))] => index.put(S::borrow(key), S::borrow_value(value)).map(drop),
            [(key, None)] => index.delete(S::borrow(key)).map(drop),
            _ => index.batch(pairs.clone(), &[], WriteOptions::default()).map(|done| assert!(done)),
        });
        if done.is_none() {
            self.failed += 1;
            return self.assert_contents(index);
        }
        for (key, value) in pairs {
            match value {
                Some(value) => _ = self.model.insert(key, value),
                None => _ = self.model.remove(&key),
            }
        }
    }

    fn assert_contents(&self, index: &T<S>) {
        let plan = self.faults.plan();
        let all: Vec<_> = self.model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(pairs(&mut index.cursor(), Bound::Unbounded, false) == all, "{plan:?}");
        assert_eq!(index.len(), self.model.len() as u64, "{plan:?}");
    }

    fn assert_sound(&self, index: &T<S>) {
        let report = index.check();
        assert!(report.problems.is_empty(), "{:?}: {:#?}", self.faults.plan(), report.problems);
        self.assert_contents(index);
    }

    /// Writes, deletes, batches, combines.
    fn work(&mut self, index: &T<S>, seed: u64, count: usize) {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..count {
            let (n, v) = (random.u32(..60), random.u32(..200));
            match random.u32(..20) {
                0..10 => self.write(index, &[(n, Some(v))]),
                10..15 => self.write(index, &[(n, None)]),
                15..19 => {
                    let writes: Vec<_> =
                        (0..5).map(|i| (n + i, (random.u8(..4) > 0).then_some(v + i))).collect();
                    self.write(index, &writes);
                }
                _ => _ = self.acknowledged(|| rebuild(index)),
            }
        }
    }

    /// Opens the index as the medium is now, with no failure to come, looks at everything, and works on.
    fn assert_reopens(&mut self) {
        self.faults.arm(false);
        let (index, _) = self.open().unwrap();
        self.assert_sound(&index);
        self.work(&index, 4, 60);
        self.assert_sound(&index);
        index.close().unwrap();
        drop(index);
        let (index, found) = self.open().unwrap();
        assert_eq!(found, Found::Clean { keys: self.model.len() as u64 });
        self.assert_sound(&index);
    }
}

/// A life: create, work, close. Returns false if it met no failure.
fn live<S: Sample>(plan: Plan) -> bool {
    let mut run = Run::<S>::new(plan);
    let Some(index) = run.acknowledged(|| run.create()) else {
        // What is there is no index, or an empty one.
        run.faults.arm(false);
        if let Ok((index, _)) = run.open() {
            run.assert_sound(&index);
        }
        return true;
    };
    run.work(&index, 9, 160);
    run.assert_sound(&index);
    // There is room again: everything works that did not.
    if plan.growth && run.faults.met() > 0 {
        run.faults.arm(false);
        let failed = run.failed;
        run.work(&index, 10, 40);
        assert_eq!(run.failed, failed, "{plan:?}");
        run.assert_sound(&index);
        run.faults.arm(true);
    }
    let closed = run.acknowledged(|| index.close()).is_some();
    // Either way it takes no more writes, and another close does not call it a success.
    let (key, bytes) = (S::key(2), value::<S>(3));
    let refused =
        index.put(S::borrow(&key), S::borrow_value(&bytes)).expect_err("a closed index was written");
    assert!(matches!((closed, refused), (true, Error::Closed) | (false, Error::Failed)), "{plan:?}");
    assert_eq!(index.close().is_ok(), closed, "{plan:?}");
    run.assert_contents(&index);
    drop(index);
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// A reopen of an index that was closed, or left as it was, with failures to come only now.
fn reopen<S: Sample>(plan: Plan, closed: bool) -> bool {
    let mut run = Run::<S>::new(plan);
    run.faults.arm(false);
    let index = run.create().unwrap();
    run.work(&index, 11, 120);
    if closed {
        index.close().unwrap();
    }
    drop(index);
    run.faults.arm(true);
    if let Some((index, _)) = run.acknowledged(|| run.open()) {
        run.assert_sound(&index);
        run.work(&index, 12, 400);
        run.assert_sound(&index);
    }
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// An index without a root (a crash during creation left it so) gets one at its next open, for which it has to grow.
fn reopen_without_root<S: Sample>(plan: Plan) -> bool {
    let whole = Run::<S>::new(Plan { growth: true, nth: 2, for_good: false });
    assert!(whole.create().is_err());
    let mut run = Run::<S> { memory: whole.memory, ..Run::new(plan) };
    if let Some((index, _)) = run.acknowledged(|| run.open()) {
        run.assert_sound(&index);
    }
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

fn all<S: Sample>(growths: u64) {
    every_nth(true, growths, live::<S>);
    every_nth(false, 5, live::<S>);
    for closed in [true, false] {
        if closed {
            every_nth(false, 1, |plan| reopen::<S>(plan, closed));
        }
        every_nth(true, 1, |plan| reopen::<S>(plan, closed));
    }
    every_nth(true, 1, reopen_without_root::<S>);
}

#[test]
fn the_nth_growth_or_sync_fails_over_words() {
    all::<Words>(3);
}

#[test]
fn the_nth_growth_or_sync_fails_over_byte_strings() {
    all::<Keyed>(20);
}
