//! The N-th growth or sync fails, once or from then on, N = 1, 2, 3 … until a run meets no failure any more.
//!
//! Each failure is told as an error; nothing acknowledged is lost and nothing refused is there; the tree goes on or says that
//! it is closed; after a reopen everything is as acknowledged, verification finds nothing, and no block is without an owner.
//!
//! The memory keeps what was stored, as a file does when the process dies. Once, a close whose second sync failed had stored
//! the mark `clean`, and the tree took further writes: the next open trusted the mark and its number of keys.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bptree::{Slotted, Tree, TreeOptions, WriteAtomic};
use crash::failing::{Failing, Faults, Plan, every_nth};
use index::{Keyed, Life, Prefixed, Schema, Words};
use pmem::{Durability, Error, Found, Geometry, Memory, Result};

/// Keys and values of a schema from small numbers.
trait Sample: Schema<KeyBuf: Ord, ValueBuf: PartialEq> {
    fn key(n: u64) -> Self::KeyBuf;
    fn value(n: u64) -> Self::ValueBuf;
}

impl Sample for Words {
    fn key(n: u64) -> u64 {
        n
    }
    fn value(n: u64) -> u64 {
        n * 3
    }
}

/// Every fifth is cut into pieces (4 KiB chunks have pieces of some 500 bytes), some of them into more than a fence covers.
fn bytes(n: u64) -> Vec<u8> {
    let bytes = if n.is_multiple_of(40) {
        40_000
    } else if n.is_multiple_of(5) {
        3000 + n * 10
    } else {
        n % 60
    };
    (0..bytes).map(|i| (n + i) as u8).collect()
}

impl Sample for Keyed {
    fn key(n: u64) -> Vec<u8> {
        format!("some beginning {n:05}").into_bytes()
    }
    fn value(n: u64) -> Vec<u8> {
        bytes(n)
    }
}

impl Sample for Prefixed {
    fn key(n: u64) -> Vec<u8> {
        format!("some beginning {n:05}").into_bytes()
    }
    fn value(n: u64) -> Vec<u8> {
        bytes(n)
    }
}

type T<S> = Tree<Failing, S, (Slotted, Slotted), WriteAtomic>;
type Model<S> = BTreeMap<<S as Schema>::KeyBuf, <S as Schema>::ValueBuf>;

/// A run's memory, contents and faults.
struct Run<S: Sample> {
    memory: Arc<Memory>,
    faults: Arc<Faults>,
    model: Model<S>,
}

impl<S: Sample> Run<S> {
    fn new(plan: Plan) -> Self {
        Self { memory: Memory::new(8 << 20, 0), faults: Faults::new(plan), model: BTreeMap::new() }
    }

    fn medium(&self) -> Failing {
        Failing::new(&self.memory, &self.faults)
    }

    fn create(&self) -> Result<T<S>> {
        let options =
            TreeOptions { geometry: Geometry::tiny(), ..TreeOptions::new("t", 4, Durability::Power) };
        T::<S>::create(self.medium(), &options)
    }

    fn open(&self) -> Result<(T<S>, Found)> {
        self.open_with(Durability::Power)
    }

    fn open_with(&self, durability: Durability) -> Result<(T<S>, Found)> {
        T::<S>::open(self.medium(), Path::new("memory"), "t", durability, 64)
    }

    /// Does something, and says whether it was acknowledged. What fails without a planned failure fails the test; so does a
    /// failed sync that is not told.
    fn acknowledged<R>(&self, what: impl FnOnce() -> Result<R>) -> Option<R> {
        let before = self.faults.met();
        let outcome = what();
        let met = self.faults.met() > before;
        match outcome {
            Ok(done) => {
                // A growth by several chunks that failed is tried again by one.
                assert!(
                    !met || self.faults.plan().growth,
                    "a failed sync was not told: {:?}",
                    self.faults.plan()
                );
                Some(done)
            }
            Err(Error::NoSpace { .. } | Error::Full { .. } | Error::Io { .. }) if met => None,
            Err(error) => panic!("{:?}: {error}", self.faults.plan()),
        }
    }

    fn put(&mut self, tree: &T<S>, key: u64, value: u64) {
        let (key, value) = (S::key(key), S::value(value));
        let replaced = self.acknowledged(|| tree.put(S::borrow(&key), S::borrow_value(&value)));
        if let Some(replaced) = replaced {
            assert_eq!(replaced, self.model.insert(key, value).is_some());
        }
    }

    fn delete(&mut self, tree: &T<S>, key: u64) {
        let key = S::key(key);
        if let Some(found) = self.acknowledged(|| tree.delete(S::borrow(&key))) {
            assert_eq!(found, self.model.remove(&key).is_some());
        }
    }

    /// Loads keys; of a load that failed some leaves may be there, the first ones.
    fn load(&mut self, tree: &T<S>, keys: std::ops::Range<u64>) {
        let pairs: Vec<_> = keys.map(|n| (S::key(n), S::value(n))).collect();
        let borrowed = pairs.iter().map(|(key, value)| (S::borrow(key), S::borrow_value(value)));
        let all = self.acknowledged(|| tree.bulk_load(borrowed, 0.8)).is_some();
        for (key, value) in pairs {
            let found = tree.get(S::borrow(&key), None).unwrap();
            assert!(found || !all, "{:?}: a loaded key is not there", self.faults.plan());
            if !found {
                break;
            }
            self.model.insert(key, value);
        }
    }

    /// Contents, verification, ownership of every block: on the medium and in the allocator's own books.
    fn assert_sound(&self, tree: &T<S>) {
        let plan = self.faults.plan();
        while tree.count_some(100).unwrap() {}
        let report = tree.check();
        assert!(report.problems.is_empty(), "{plan:?}: {:#?}", report.problems);
        assert_eq!(tree.len(), (self.model.len() as u64, false), "{plan:?}");
        let (live, unseen) = tree.live_bytes();
        assert!(
            unseen > 0 || live == report.live_bytes,
            "{plan:?}: {live} taken, {} used",
            report.live_bytes
        );
        let mut cursor = tree.cursor();
        cursor.seek(Bound::Unbounded, false);
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        for (k, v) in &self.model {
            assert!(
                cursor.next(&mut key, &mut value).unwrap() && key == *k && value == *v,
                "{plan:?}: {k:?}"
            );
        }
        assert!(!cursor.next(&mut key, &mut value).unwrap(), "{plan:?}: {key:?} is too much");
    }

    /// Opens the tree as the medium is now, with no failure to come, looks at everything, and works on.
    fn assert_reopens(&mut self) {
        self.faults.arm(false);
        let (tree, _) = self.open().unwrap();
        self.assert_sound(&tree);
        for n in 0..40 {
            self.put(&tree, 3000 + n, n);
        }
        self.assert_sound(&tree);
        tree.close().unwrap();
        let (tree, found) = self.open().unwrap();
        assert_eq!(found, Found::Clean { keys: self.model.len() as u64 });
        self.assert_sound(&tree);
    }
}

/// A life: create, puts, a bulk load, deletes, sync, close. Returns false if it met no failure.
fn live<S: Sample>(plan: Plan) -> bool {
    let mut run = Run::<S>::new(plan);
    let Some(tree) = run.acknowledged(|| run.create()) else {
        // What is there is no tree, or an empty one.
        run.faults.arm(false);
        if let Ok((tree, _)) = run.open() {
            run.assert_sound(&tree);
        }
        return true;
    };
    let mut random = fastrand::Rng::with_seed(9);
    for n in 0..160 {
        run.put(&tree, random.u64(..120), n);
        if n % 4 == 0 {
            run.delete(&tree, random.u64(..120));
        }
    }
    run.load(&tree, 1000..1100);
    run.load(&tree, 1100..1105);
    if run.faults.met() > 0 {
        run.assert_sound(&tree);
    }
    let synced = run.acknowledged(|| tree.sync()).is_some();
    if synced {
        run.put(&tree, 2000, 5);
    } else {
        // After a failed sync nothing more is promised: what a later one says may not be true.
        let (key, value) = (S::key(2000), S::value(5));
        assert!(matches!(tree.put(S::borrow(&key), S::borrow_value(&value)), Err(Error::Failed)), "{plan:?}");
        assert!(matches!(tree.delete(S::borrow(&key)), Err(Error::Failed)), "{plan:?}");
    }
    run.assert_sound(&tree);
    let closed = if synced {
        run.acknowledged(|| tree.close()).is_some()
    } else {
        assert!(matches!(tree.close(), Err(Error::Failed)), "{plan:?}: not everything was kept");
        false
    };
    // Whatever `close` said: either the tree takes writes, and keeps them, or it says that it does not.
    let (key, value) = (S::key(2001), S::value(7));
    match tree.put(S::borrow(&key), S::borrow_value(&value)) {
        Ok(replaced) => {
            assert!(!closed && !replaced, "{plan:?}");
            run.model.insert(key, value);
        }
        Err(Error::Closed) => assert!(closed, "{plan:?}"),
        Err(Error::Failed) => {
            // Nor does another close call it a success.
            assert!(!closed && matches!(tree.close(), Err(Error::Failed)), "{plan:?}");
        }
        Err(error) => assert!(!closed && run.faults.met() > 0, "{plan:?}: {error}"),
    }
    run.assert_sound(&tree);
    drop(tree);
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// A reopen of a tree that was closed, or left as it was, with failures to come only now.
fn reopen<S: Sample>(plan: Plan, closed: bool) -> bool {
    let mut run = Run::<S>::new(plan);
    run.faults.arm(false);
    let tree = run.create().unwrap();
    for n in 0..200 {
        run.put(&tree, n * 7 % 150, n);
    }
    if closed {
        tree.close().unwrap();
    }
    drop(tree);
    run.faults.arm(true);
    // Another promise than before, so that the superblock changes even if it says `in use` already.
    if let Some((tree, _)) = run.acknowledged(|| run.open_with(Durability::Process)) {
        run.assert_sound(&tree);
        for n in 0..60 {
            run.put(&tree, n, n + 1);
        }
        run.assert_sound(&tree);
    }
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

/// A tree without a root (a crash during creation left it so) gets one at its next open, for which it has to grow.
fn reopen_without_root<S: Sample>(plan: Plan) -> bool {
    let first = Plan { growth: true, nth: 2, for_good: false };
    let whole = Run::<S>::new(first);
    assert!(whole.create().is_err());
    let mut run = Run::<S> { faults: Faults::new(plan), ..whole };
    if let Some((tree, _)) = run.acknowledged(|| run.open()) {
        run.assert_sound(&tree);
    }
    let met = run.faults.met() > 0;
    run.assert_reopens();
    met
}

fn all<S: Sample>(growths: u64) {
    every_nth(true, growths, live::<S>);
    every_nth(false, 5, live::<S>);
    for closed in [false, true] {
        every_nth(false, 2, |plan| reopen::<S>(plan, closed));
    }
    every_nth(true, 1, reopen_without_root::<S>);
}

#[test]
fn the_nth_growth_or_sync_fails_over_words() {
    all::<Words>(3);
}

#[test]
fn the_nth_growth_or_sync_fails_over_key_pointers() {
    all::<Keyed>(50);
}

#[test]
fn the_nth_growth_or_sync_fails_over_prefixes() {
    all::<Prefixed>(50);
}
