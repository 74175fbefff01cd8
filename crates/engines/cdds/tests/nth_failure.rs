//! The N-th growth or sync fails, once or from then on, N = 1, 2, 3 … until a run meets no failure any more.
//!
//! Each failure is told as an error and nothing of what failed is there; kept versions stay what they are; writes work as soon as
//! there is room; after a reopen everything is as acknowledged, and verification finds nothing. (What a crash right behind a
//! failure leaves is explored in `mutants`.)

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Sample, options, pairs};
use cdds::Inlined;
use cdds::{Mark, Order, Recovery, Sorted, Tree, Unsorted};
use crash::failing::{Failing, Faults, Plan, every_nth};
use crash::has_turn;
use index::{Life, Words, Write};
use pmem::{Error, Found, Memory, Result};

type T<S, O> = Tree<Failing, S, O>;
type Model<S> = BTreeMap<<S as index::Schema>::KeyBuf, <S as index::Schema>::ValueBuf>;

/// Value number `n`; of byte strings every fifth is cut into pieces.
fn value<S: Sample>(n: u32) -> S::ValueBuf {
    S::value(if n.is_multiple_of(5) { 8 * 3000 + n } else { n })
}

/// A run's memory, contents, kept versions and faults.
struct Run<S: Sample, O: Order> {
    memory: Arc<Memory>,
    faults: Arc<Faults>,
    model: Model<S>,
    kept: Vec<(Mark, Model<S>)>,
    failed: u64,
    order: PhantomData<fn() -> O>,
}

impl<S: Sample, O: Order> Run<S, O> {
    fn new(plan: Plan) -> Self {
        Self {
            memory: Memory::new(8 << 20, 0),
            faults: Faults::new(plan),
            model: BTreeMap::new(),
            kept: Vec::new(),
            failed: 0,
            order: PhantomData,
        }
    }

    fn medium(&self) -> Failing {
        Failing::new(&self.memory, &self.faults)
    }

    fn create(&self) -> Result<T<S, O>> {
        T::<S, O>::create(self.medium(), &options(2))
    }

    fn open(&self, recovery: Recovery) -> Result<(T<S, O>, Found)> {
        T::<S, O>::open(self.medium(), Path::new("memory"), &options(2), recovery)
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

    fn write(&mut self, tree: &T<S, O>, writes: &[(u32, Option<u32>)]) {
        let pairs: Vec<_> = writes.iter().map(|(n, v)| (S::key(*n), v.map(value::<S>))).collect();
        let borrowed: Vec<_> = pairs
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Write::Put(S::borrow(key), S::borrow_value(value)),
                None => Write::Delete(S::borrow(key)),
            })
            .collect();
        let found = self.acknowledged(|| match borrowed[..] {
            [Write::Put(key, value)] => tree.put(key, value).map(u64::from),
            [Write::Delete(key)] => tree.delete(key).map(u64::from),
            _ => tree
                .write_many(&borrowed)
                .map(|found| found.into_iter().filter(|found| *found).count() as u64),
        });
        let Some(found) = found else {
            self.failed += 1;
            return self.assert_contents(tree);
        };
        let mut were_there = 0;
        for (key, value) in pairs {
            let old = match value {
                Some(value) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
            were_there += u64::from(old.is_some());
        }
        assert_eq!(found, were_there, "{:?}", self.faults.plan());
    }

    /// Something that changes no contents.
    fn beside(&self, what: impl FnOnce() -> Result<()>) {
        self.acknowledged(what);
    }

    fn roll_back(&mut self, tree: &T<S, O>) {
        let Some((mark, model)) = self.kept.last() else { return };
        if let Some(done) = self.acknowledged(|| tree.roll_back(mark)) {
            assert!(done, "{:?}: a rollback was refused", self.faults.plan());
            self.model.clone_from(model);
        }
    }

    /// Now, and at every kept version.
    fn assert_contents(&self, tree: &T<S, O>) {
        let plan = self.faults.plan();
        let all = |model: &Model<S>| model.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
        assert!(pairs(&mut tree.cursor(), Bound::Unbounded, false) == all(&self.model), "{plan:?}");
        assert_eq!(tree.len(), self.model.len() as u64, "{plan:?}");
        for (mark, model) in &self.kept {
            let snapshot = tree.snapshot_of(mark.clone()).expect("its own mark");
            assert!(pairs(&mut snapshot.cursor(), Bound::Unbounded, false) == all(model), "{plan:?}");
        }
    }

    fn assert_sound(&self, tree: &T<S, O>) {
        let report = tree.check();
        assert!(report.problems.is_empty(), "{:?}: {:#?}", self.faults.plan(), report.problems);
        self.assert_contents(tree);
    }

    /// Writes, deletes, batches, collections, kept versions and ways back to them.
    fn work(&mut self, tree: &T<S, O>, seed: u64, count: usize) {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..count {
            let (n, v) = (random.u32(..60), random.u32(..200));
            match random.u32(..20) {
                0..9 => self.write(tree, &[(n, Some(v))]),
                9..13 => self.write(tree, &[(n, None)]),
                13..16 => {
                    let writes: Vec<_> =
                        (0..5).map(|i| (n + i, (random.u8(..4) > 0).then_some(v + i))).collect();
                    self.write(tree, &writes);
                }
                16 if self.kept.len() < 3 => self.kept.push((tree.mark(), self.model.clone())),
                16 => self.kept.clear(),
                17 => self.roll_back(tree),
                18 => self.beside(|| tree.collect_some(3).map(drop)),
                _ => self.beside(|| tree.collect_all()),
            }
        }
    }

    /// Opens the tree as the medium is now, with no failure to come, looks at everything, and works on.
    fn assert_reopens(&mut self) {
        self.faults.arm(false);
        self.kept.clear();
        let recovery = if self.faults.plan().nth.is_multiple_of(2) { Recovery::Lazy } else { Recovery::Scan };
        let (tree, _) = self.open(recovery).unwrap();
        self.assert_sound(&tree);
        self.work(&tree, 4, 60);
        self.assert_sound(&tree);
        self.kept.clear();
        tree.close().unwrap();
        drop(tree);
        let (tree, found) = self.open(recovery).unwrap();
        assert_eq!(found, Found::Clean { keys: self.model.len() as u64 });
        self.assert_sound(&tree);
    }
}

/// A life: create, work, close. Returns false if it met no failure.
fn live<S: Sample, O: Order>(plan: Plan) -> bool {
    let mut run = Run::<S, O>::new(plan);
    let Some(tree) = run.acknowledged(|| run.create()) else {
        // What is there is no tree, or an empty one.
        run.faults.arm(false);
        if let Ok((tree, _)) = run.open(Recovery::Lazy) {
            run.assert_sound(&tree);
        }
        return true;
    };
    run.work(&tree, 9, 160);
    run.assert_sound(&tree);
    // There is room again: everything works that did not.
    if plan.growth && run.faults.met() > 0 {
        run.faults.arm(false);
        let failed = run.failed;
        run.work(&tree, 10, 40);
        assert_eq!(run.failed, failed, "{plan:?}");
        run.assert_sound(&tree);
        run.faults.arm(true);
    }
    run.kept.clear();
    let closed = run.acknowledged(|| tree.close()).is_some();
    // Either way it takes no more writes, and another close does not call it a success.
    let (key, bytes) = (S::key(2), value::<S>(3));
    let refused = tree.put(S::borrow(&key), S::borrow_value(&bytes)).expect_err("a closed tree was written");
    assert!(matches!((closed, refused), (true, Error::Closed) | (false, Error::Failed)), "{plan:?}");
    assert_eq!(tree.close().is_ok(), closed, "{plan:?}");
    run.assert_contents(&tree);
    drop(tree);
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// A reopen of a tree that was closed, or left as it was, with failures to come only now.
fn reopen<S: Sample, O: Order>(plan: Plan, closed: bool, recovery: Recovery) -> bool {
    let mut run = Run::<S, O>::new(plan);
    run.faults.arm(false);
    let tree = run.create().unwrap();
    run.work(&tree, 11, 120);
    run.kept.clear();
    if closed {
        tree.close().unwrap();
    }
    drop(tree);
    run.faults.arm(true);
    if let Some((tree, _)) = run.acknowledged(|| run.open(recovery)) {
        run.assert_sound(&tree);
        run.work(&tree, 12, 400);
        run.assert_sound(&tree);
    }
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// A tree without a root (a crash during creation left it so) gets one at its next open, for which it has to grow.
fn reopen_without_root<S: Sample, O: Order>(plan: Plan) -> bool {
    let whole = Run::<S, O>::new(Plan { growth: true, nth: 2, for_good: false });
    assert!(whole.create().is_err());
    let mut run = Run::<S, O> { memory: whole.memory, ..Run::new(plan) };
    if let Some((tree, _)) = run.acknowledged(|| run.open(Recovery::Lazy)) {
        run.assert_sound(&tree);
    }
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

fn all<S: Sample, O: Order>(growths: u64) {
    every_nth(true, growths, live::<S, O>);
    every_nth(false, 5, live::<S, O>);
    for (closed, recovery) in [(true, Recovery::Lazy), (false, Recovery::Lazy), (false, Recovery::Scan)] {
        if closed {
            every_nth(false, 1, |plan| reopen::<S, O>(plan, closed, recovery));
        }
        every_nth(true, 1, |plan| reopen::<S, O>(plan, closed, recovery));
    }
    every_nth(true, 1, reopen_without_root::<S, O>);
}

#[test]
fn the_nth_growth_or_sync_fails_over_words() {
    all::<Words, Sorted>(3);
    all::<Words, Unsorted>(3);
}

/// The two orders take turns: a growth for every few values takes long.
#[test]
fn the_nth_growth_or_sync_fails_over_byte_strings() {
    if has_turn(0, 2) {
        all::<Inlined, Sorted>(20);
    }
    if has_turn(1, 2) {
        all::<Inlined, Unsorted>(20);
    }
}
