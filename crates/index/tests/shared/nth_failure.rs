//! The N-th growth of the medium or the N-th sync fails, only once or also all later ones, for N = 1, 2, 3 … until a
//! run has no failure.
//!
//! Each failure is reported as an error. No acknowledged write is lost, and no refused write is present. Snapshots do
//! not change. After a failed growth, writes work again as soon as there is space. After a reopen, the contents are
//! those that were acknowledged, verification finds no problem, and every block has an owner.
//!
//! The memory keeps all stores, as a file does when the process dies. A former defect: the second sync of a close
//! failed after the close had stored the mark `clean`, and the tree still took writes. The next open trusted the mark
//! and its number of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::engine::{KeyOf, KindOf, Model, Subject, ValueOf};
use crate::common::samples::Sample;
use crash::failing::{Failing, Faults, Plan, every_nth};
use index::engine::{Cursor, View};
use index::{Embed, Index, Kind, Lifecycle, Write, WriteOptions};
use pmem::{Durability, Error, Found, Memory, Result};

type Over<X> = <X as Subject>::Over<Failing>;
/// A snapshot and its expected contents.
type Kept<'a, X> = (Box<dyn View<KindOf<X>> + 'a>, Model<X>);

fn key<X: Subject>(n: u32) -> KeyOf<X> {
    X::Schema::key(n)
}

/// Value number `n`. Every fifth byte string is stored in pieces, some in more pieces than one fence covers.
fn value<X: Subject>(n: u32) -> ValueOf<X> {
    let more = if n % 40 == 35 {
        8 * 40_000
    } else if n.is_multiple_of(5) {
        8 * 3000
    } else {
        0
    };
    X::Schema::value(more + n)
}

/// All pairs that a cursor returns.
fn pairs<X: Subject>(mut cursor: Box<dyn Cursor<KindOf<X>> + '_>) -> Vec<(KeyOf<X>, ValueOf<X>)> {
    let (mut key, mut value, mut pairs) = (KeyOf::<X>::default(), ValueOf::<X>::default(), Vec::new());
    cursor.walk(None).unwrap();
    while cursor.next(&mut key, &mut value).unwrap() {
        pairs.push((key.clone(), value.clone()));
    }
    if !X::ORDERED {
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
    }
    pairs
}

/// The memory, contents and faults of a run.
struct Run<'x, X: Subject> {
    subject: &'x X,
    memory: Arc<Memory>,
    faults: Arc<Faults>,
    model: Model<X>,
    failed: u64,
}

impl<'x, X: Subject> Run<'x, X> {
    fn new(subject: &'x X, plan: Plan) -> Self {
        let (memory, faults) = (Memory::new(16 << 20, 0), Faults::new(plan));
        Self { subject, memory, faults, model: BTreeMap::new(), failed: 0 }
    }

    fn medium(&self) -> Failing {
        Failing::new(&self.memory, &self.faults)
    }

    fn create(&self) -> Result<Over<X>> {
        self.subject.create(self.medium())
    }

    fn open(&self, durability: Durability, way: u64) -> Result<(Over<X>, Found)> {
        self.subject.open(self.medium(), durability, way)
    }

    /// Runs `what`. `Some` if it was acknowledged. The test fails if `what` fails without a planned fault, or if a failed sync is not
    /// reported.
    fn acknowledged<R>(&self, what: impl FnOnce() -> Result<R>) -> Option<R> {
        let (before, plan) = (self.faults.met(), self.faults.plan());
        let outcome = what();
        let met = self.faults.met() > before;
        match outcome {
            Ok(done) => {
                // After a failed growth by several chunks, the allocator tries to grow by one.
                assert!(!met || plan.growth, "{plan:?}: a failed sync was not told");
                Some(done)
            }
            Err(Error::NoSpace { .. } | Error::Full { .. } | Error::Io { .. }) if met => None,
            Err(error) => panic!("{plan:?}: {error}"),
        }
    }

    /// One write, or several: as a batch or as a write group.
    fn write(&mut self, index: &Over<X>, writes: &[(u32, Option<u32>)], batch: bool) {
        let how = WriteOptions::default();
        let pairs: Vec<_> = writes.iter().map(|(n, v)| (key::<X>(*n), v.map(value::<X>))).collect();
        let borrowed: Vec<_> = pairs
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Write::Put(KindOf::<X>::key(key), KindOf::<X>::value(value)),
                None => Write::Delete(KindOf::<X>::key(key)),
            })
            .collect();
        let done = self.acknowledged(|| match borrowed[..] {
            [Write::Put(key, value)] => index.put(key, value, how).map(|found| Some(vec![found])),
            [Write::Delete(key)] => index.delete(key, how).map(|found| Some(vec![found])),
            _ if batch => index.batch(pairs.clone(), &[], how).map(|done| {
                assert!(done, "a batch without conditions was refused");
                None
            }),
            _ => index.write_many(&borrowed, how).map(Some),
        });
        drop(borrowed);
        let Some(found) = done else {
            self.failed += 1;
            if pairs.len() > 1 && !batch && !X::WRITES_AT_ONCE {
                pairs.into_iter().for_each(|(key, value)| self.settle(index, key, value));
            }
            return;
        };
        let mut was = |(key, value)| match value {
            Some(value) => self.model.insert(key, value).is_some(),
            None => self.model.remove(&key).is_some(),
        };
        let were: Vec<bool> = pairs.into_iter().map(&mut was).collect();
        assert!(found.is_none_or(|found| found == were), "{:?}: wrong answers", self.faults.plan());
    }

    /// After a failed write group, each of its writes may be present or absent.
    fn settle(&mut self, index: &Over<X>, key: KeyOf<X>, new: Option<ValueOf<X>>) {
        let mut value = ValueOf::<X>::default();
        let found = index.get(KindOf::<X>::key(&key), Some(&mut value)).unwrap().then_some(value);
        assert!(found == new || found.as_ref() == self.model.get(&key), "{:?}: {key:?}", self.faults.plan());
        match found {
            Some(value) => _ = self.model.insert(key, value),
            None => _ = self.model.remove(&key),
        }
    }

    /// Appends keys. After a failed append, a prefix of them may be present.
    fn append(&mut self, index: &Over<X>, keys: std::ops::Range<u32>) {
        let pairs: Vec<_> = keys.map(|n| (key::<X>(n), value::<X>(n))).collect();
        let mut rest = pairs.iter();
        let mut next = |key: &mut KeyOf<X>, value: &mut ValueOf<X>| {
            let pair = rest.next();
            if let Some(pair) = pair {
                (*key, *value) = pair.clone();
            }
            Ok(pair.is_some())
        };
        let all = self.acknowledged(|| index.append(&mut next, 0.8)).is_some();
        for (key, value) in pairs {
            if !index.get(KindOf::<X>::key(&key), None).unwrap() {
                assert!(!all, "{:?}: {key:?} was appended and is not there", self.faults.plan());
                break;
            }
            self.model.insert(key, value);
        }
    }

    /// Rolls back to the newest snapshot, if the engine supports it.
    fn roll_back(&mut self, index: &Over<X>, kept: &[Kept<'_, X>]) {
        if let (Some(history), Some((view, model))) = (index.history(), kept.last()) {
            let version = view.version().expect("an engine with a history has versions");
            if let Some(done) = self.acknowledged(|| history.roll_back(version)) {
                // A hash table may have dropped a version that only a snapshot keeps.
                assert!(done || !X::ORDERED, "{:?}: a rollback was refused", self.faults.plan());
                if done {
                    self.model.clone_from(model);
                }
            }
        }
    }

    /// Checks the contents of the index and of every snapshot.
    fn assert_contents(&self, index: &Over<X>, kept: &[Kept<'_, X>]) {
        let plan = self.faults.plan();
        assert!(pairs::<X>(index.cursor()).into_iter().eq(self.model.clone()), "{plan:?}");
        index.count_all().unwrap();
        let count = index.len();
        assert_eq!((count.keys, count.pending), (self.model.len() as u64, false), "{plan:?}");
        for (view, model) in kept {
            assert!(pairs::<X>(view.cursor()).into_iter().eq(model.clone()), "{plan:?}: a snapshot changed");
        }
    }

    /// Checks contents, verification, and the owner of every block, on the medium and in the allocator's lists.
    fn assert_sound(&self, index: &Over<X>, kept: &[Kept<'_, X>]) {
        let (plan, report, kernel) = (self.faults.plan(), Index::check(index), index.kernel());
        assert!(report.problems.is_empty(), "{plan:?}: {:#?}", report.problems);
        let (live, unseen) = kernel.writer_side().allocator.live_bytes(kernel.region());
        assert!(unseen > 0 || live == report.live_bytes, "{plan:?}: {live}, used {}", report.live_bytes);
        self.assert_contents(index, kept);
    }

    /// Random writes, deletes, batches, snapshots, rollbacks and background work.
    fn work<'a>(&mut self, index: &'a Over<X>, kept: &mut Vec<Kept<'a, X>>, seed: u64, count: usize) {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..count {
            let (n, v) = (random.u32(..X::KEYS), random.u32(..200));
            let failed = self.failed;
            match random.u32(..20) {
                0..9 => self.write(index, &[(n, Some(v))], false),
                9..13 => self.write(index, &[(n, None)], false),
                13..16 => {
                    let of = |i| (n + i, (random.u8(..4) > 0).then_some(v + i));
                    let writes: Vec<_> = (0..5).map(of).collect();
                    self.write(index, &writes, random.bool());
                }
                16 if kept.len() < 3 => kept.push((index.snapshot().unwrap(), self.model.clone())),
                16 => kept.clear(),
                17 => self.roll_back(index, kept),
                18 => _ = self.acknowledged(|| X::tend(index, false)),
                _ => _ = self.acknowledged(|| X::tend(index, true)),
            }
            if self.failed > failed {
                self.assert_contents(index, kept);
            }
        }
    }

    /// Opens the index in the current state of the medium, without further faults. Checks it and continues to work.
    fn assert_reopens(&mut self) {
        self.faults.arm(false);
        let way = self.faults.plan().nth % X::WAYS;
        let (index, _) = self.open(Durability::Power, way).unwrap();
        self.assert_sound(&index, &[]);
        let mut kept = Vec::new();
        self.work(&index, &mut kept, 4, 60);
        self.assert_sound(&index, &kept);
        kept.clear();
        index.close().unwrap();
        let (index, found) = self.open(Durability::Power, way).unwrap();
        assert_eq!(found, Found::Clean { keys: self.model.len() as u64 });
        self.assert_sound(&index, &[]);
    }
}

/// A life: create, work, append, sync, close. False if no fault occurred.
fn live<X: Subject>(subject: &X, plan: Plan) -> bool {
    let how = WriteOptions::default();
    let mut run = Run::new(subject, plan);
    let Some(index) = run.acknowledged(|| run.create()) else {
        // The creation failed: there is no index, or an empty one.
        run.faults.arm(false);
        if let Ok((index, _)) = run.open(Durability::Power, 0) {
            run.assert_sound(&index, &[]);
        }
        return true;
    };
    let mut kept = Vec::new();
    run.work(&index, &mut kept, 9, 160);
    run.append(&index, 1000..1000 + X::APPENDED);
    run.append(&index, 2000..2005);
    run.assert_sound(&index, &kept);
    // With space again, everything that failed works.
    if plan.growth && run.faults.met() > 0 {
        run.faults.arm(false);
        let failed = run.failed;
        run.work(&index, &mut kept, 10, 40);
        assert_eq!(run.failed, failed, "{plan:?}");
        run.assert_sound(&index, &kept);
        run.faults.arm(true);
    }
    kept.clear();
    let (some, bytes) = (key::<X>(2), value::<X>(3));
    let (some, bytes) = (KindOf::<X>::key(&some), KindOf::<X>::value(&bytes));
    let closed = if run.acknowledged(|| index.sync()).is_some() {
        run.write(&index, &[(3000, Some(5))], false);
        run.acknowledged(|| index.close()).is_some()
    } else {
        // A failed sync is final, because a later successful sync may not cover the lost writes.
        assert!(matches!(index.put(some, bytes, how), Err(Error::Failed)), "{plan:?}");
        assert!(matches!(index.delete(some, how), Err(Error::Failed)), "{plan:?}");
        assert!(matches!(index.close(), Err(Error::Failed)), "{plan:?}: not everything was kept");
        false
    };
    // In both cases the index refuses writes, and a second close has the result of the first.
    let refused = index.put(some, bytes, how).expect_err("a closed index was written");
    assert!(matches!((closed, refused), (true, Error::Closed) | (false, Error::Failed)), "{plan:?}");
    assert_eq!(index.close().is_ok(), closed, "{plan:?}");
    run.assert_sound(&index, &[]);
    drop(kept);
    drop(index);
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// Reopens an index that was closed or left as it was. Faults begin with the reopen.
fn reopen<X: Subject>(subject: &X, plan: Plan, closed: bool, way: u64) -> bool {
    let mut run = Run::new(subject, plan);
    run.faults.arm(false);
    let index = run.create().unwrap();
    // Few enough keys that the work after the reopen has to grow the region.
    run.work(&index, &mut Vec::new(), 11, X::KEYS as usize * 2 / 3);
    if closed {
        index.close().unwrap();
    }
    drop(index);
    run.faults.arm(true);
    // A different durability, so that the superblock changes even if it already says `in use`.
    if let Some((index, _)) = run.acknowledged(|| run.open(Durability::Process, way)) {
        run.assert_sound(&index, &[]);
        let mut kept = Vec::new();
        run.work(&index, &mut kept, 12, 400);
        run.append(&index, 1000..1000 + X::APPENDED);
        run.assert_sound(&index, &kept);
    }
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// An index without a root, after a crash during creation. Its next open makes one and needs to grow for it.
fn reopen_without_root<X: Subject>(subject: &X, plan: Plan) -> bool {
    let whole = Run::new(subject, Plan { growth: true, nth: 2, for_good: false });
    assert!(whole.create().is_err());
    let mut run = Run { memory: whole.memory, ..Run::new(subject, plan) };
    if let Some((index, _)) = run.acknowledged(|| run.open(Durability::Power, 0)) {
        run.assert_sound(&index, &[]);
    }
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// Runs all cases. A life must have more than `growths` growths.
pub fn the_nth_growth_or_sync_fails<X: Subject>(subject: &X, growths: u64) {
    every_nth(true, growths, |plan| live(subject, plan));
    every_nth(false, 5, |plan| live(subject, plan));
    for closed in [true, false] {
        every_nth(false, 1, |plan| reopen(subject, plan, closed, 0));
        for way in 0..if closed { 1 } else { X::WAYS } {
            every_nth(true, 1, |plan| reopen(subject, plan, closed, way));
        }
    }
    every_nth(true, 1, |plan| reopen_without_root(subject, plan));
}
