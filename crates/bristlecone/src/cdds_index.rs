//! The CDDS B-Tree and the CDDS hash table as indexes: their collector and their ages live in a thread beside them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::index::{Decision, Life, Schema, Write, WriteOptions};
use cdds::hash::Hashed;
use cdds::{Kept, Mark, Order, Ordered, Recovery, SnapshotOf, Structure, Versioned};
use pmem::region::Identity;
use pmem::{Durable, Error, Found, Medium, alloc};

use crate::engine::{
    Capabilities, Count, Cursor, History, Kind, NamedVersion, NextPair, Pair, Retain, Versions, View,
};
use crate::error::Result;
use crate::index::{Form, Index, SchemaOf};
use crate::store::Options;

/// Writes that are one version where they need not be.
const WRITES: usize = 64;
/// Nodes or buckets of a step of the collector, which holds writers up meanwhile.
const STEP: usize = 32;
/// The collector rests so many times as long as a step took: its bounded share of time.
const REST: u32 = 4;
/// How long it waits at most before it looks for work.
const IDLE: Duration = Duration::from_millis(50);
/// Ages are told apart by so much of what is kept.
const AGES: u32 = 64;

/// See the module's head.
pub(crate) struct CddsIndex<X: Structure> {
    tree: Versioned<Durable, X>,
    ages: Mutex<Ages>,
}

/// A structure that is an index: what differs.
pub(crate) trait Indexed<K: Kind>: Structure<Schema: SchemaOf<K>> + Send + Sync + 'static {
    const ORDERED: bool;
    type Cursor<'a>: Cursor<K> + 'a;

    fn options(form: &Form<'_>) -> Self::Options;
    fn cursor(of: &Versioned<Durable, Self>) -> Self::Cursor<'_>;
    fn cursor_at<'a>(of: &SnapshotOf<'a, Durable, Self>) -> Self::Cursor<'a>;
    /// What a change of tells that there may be something to collect.
    fn collectable(of: &Versioned<Durable, Self>) -> u64;
    /// The last key, where keys have an order.
    fn last(of: &Versioned<Durable, Self>) -> Result<Option<K::KeyBuf>>;
}

impl<K: Kind, S: SchemaOf<K> + Schema<Tail = [u64; 0]>, O: Order> Indexed<K> for Ordered<S, O> {
    const ORDERED: bool = true;
    type Cursor<'a> = cdds::Cursor<'a, Durable, S, O>;

    fn options(form: &Form<'_>) -> cdds::Options {
        cdds::Options::new(form.node_lines, form.durability)
    }

    fn cursor(of: &Versioned<Durable, Self>) -> cdds::Cursor<'_, Durable, S, O> {
        of.cursor()
    }

    fn cursor_at<'a>(of: &SnapshotOf<'a, Durable, Self>) -> cdds::Cursor<'a, Durable, S, O> {
        of.cursor()
    }

    fn collectable(of: &Versioned<Durable, Self>) -> u64 {
        of.oldest_version()
    }

    fn last(of: &Versioned<Durable, Self>) -> Result<Option<K::KeyBuf>> {
        let (mut key, mut value, mut cursor) = (K::KeyBuf::default(), K::ValueBuf::default(), of.cursor());
        cursor.seek(Bound::Unbounded, true);
        Ok(cursor.next(&mut key, &mut value)?.then_some(key))
    }
}

impl<K: Kind, S: SchemaOf<K> + Schema<Tail = [u64; 0]>> Indexed<K> for Hashed<S> {
    const ORDERED: bool = false;
    type Cursor<'a> = cdds::hash::Pairs<'a, Durable, S>;

    /// With a seed that nobody knows who chooses keys.
    fn options(form: &Form<'_>) -> cdds::hash::Options {
        let seed = RandomState::new().build_hasher().finish();
        cdds::hash::Options { seed, ..cdds::hash::Options::new(form.node_lines, form.durability) }
    }

    fn cursor(of: &Versioned<Durable, Self>) -> cdds::hash::Pairs<'_, Durable, S> {
        of.pairs()
    }

    fn cursor_at<'a>(of: &SnapshotOf<'a, Durable, Self>) -> cdds::hash::Pairs<'a, Durable, S> {
        of.pairs()
    }

    /// Between two versions that are kept everything is garbage.
    fn collectable(of: &Versioned<Durable, Self>) -> u64 {
        of.version()
    }

    fn last(_: &Versioned<Durable, Self>) -> Result<Option<K::KeyBuf>> {
        Ok(None)
    }
}

/// When which version was the newest.
#[derive(Default)]
struct Ages {
    limit: Option<Duration>,
    seen: VecDeque<(Instant, u64)>,
}

impl Ages {
    /// Notes the newest version and says from which one on versions are kept.
    fn note(&mut self, version: u64) -> Option<u64> {
        let (limit, now) = (self.limit?, Instant::now());
        if self.seen.back().is_none_or(|(at, _)| now.duration_since(*at) >= limit / AGES) {
            self.seen.push_back((now, version));
        }
        while self.seen.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= limit) {
            self.seen.pop_front();
        }
        self.seen.front().map(|(_, version)| *version)
    }
}

impl<X: Structure> CddsIndex<X> {
    fn new(tree: Versioned<Durable, X>) -> Self {
        Self { tree, ages: Mutex::default() }
    }

    fn ages(&self) -> std::sync::MutexGuard<'_, Ages> {
        self.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark_of(&self, version: u64) -> Option<Mark> {
        let kept = self.tree.kept_versions().into_iter().find(|kept| kept.mark.version() == version);
        kept.map(|kept| kept.mark).or_else(|| self.tree.mark_at(version))
    }
}

impl<X: Structure> CddsIndex<X> {
    /// Ages, and a step of the collector if there may be something to collect; how long to rest then.
    fn tend_once<K: Kind>(&self, passes: &mut Passes) -> Duration
    where
        X: Indexed<K>,
    {
        self.tree.retain_since(self.ages().note(self.tree.version()));
        if !passes.is_due(X::collectable(&self.tree), self.tree.dead_intervals()) {
            return IDLE;
        }
        let since = Instant::now();
        // A damaged node is told to whoever reads it, and a full disk to whoever writes; both may be over next time.
        if self.tree.collect_some(STEP).unwrap_or(true) {
            passes.end(self.tree.dead_intervals());
        }
        since.elapsed() * REST
    }
}

/// Which passes of the collector ran. A pass takes many steps, and what it may collect is settled when it begins: a snapshot that is
/// dropped while it runs leaves entries behind in nodes that it has passed already, for another pass.
#[derive(Debug, Default)]
struct Passes {
    /// What the running pass could collect when it began.
    begun: Option<u64>,
    /// The same of the last pass that ended, and the dead intervals that it left.
    ended: Option<(u64, usize)>,
}

impl Passes {
    /// True if a pass runs, or there may be something to collect for a new one.
    fn is_due(&mut self, collectable: u64, dead_intervals: usize) -> bool {
        if self.ended == Some((collectable, dead_intervals)) {
            return false;
        }
        self.begun.get_or_insert(collectable);
        true
    }

    /// The running pass ended.
    fn end(&mut self, dead_intervals: usize) {
        self.ended = self.begun.take().map(|collectable| (collectable, dead_intervals));
    }
}

impl<K: Kind, X: Indexed<K, Pass: Send>> Index<K> for CddsIndex<X>
where
    K::Value: ToOwned,
{
    const CAPABILITIES: Capabilities = Capabilities {
        ordered: X::ORDERED,
        durable: true,
        snapshots: true,
        versions: true,
        atomic_batch: true,
        several_writers: false,
        fixed_values: false,
    };
    type Cursor<'a> = X::Cursor<'a>;

    fn check_options(options: &Options, _is_new: bool) -> Result<()> {
        match options.value_bytes {
            None => Ok(()),
            Some(bytes) => Err(crate::Error::Option(format!(
                "values of {bytes} bytes each: {} keeps byte strings of any length, or 64-bit integers",
                X::ENGINE
            ))),
        }
    }

    fn create(memory: Durable, form: &Form<'_>) -> Result<Self> {
        Ok(Self::new(Versioned::create(memory, &X::options(form))?))
    }

    fn open(memory: Durable, path: &Path, form: &Form<'_>) -> Result<(Self, Found)> {
        let (tree, found) = Versioned::open(memory, path, &X::options(form), Recovery::Lazy)?;
        Ok((Self::new(tree), found))
    }

    fn refuse_writes(&self) {
        self.tree.refuse_writes();
    }

    fn tend(this: &Arc<Self>) -> Option<JoinHandle<()>> {
        let this = Arc::downgrade(this);
        let tend = move || {
            let mut passes = Passes::default();
            while let Some(index) = this.upgrade() {
                if index.tree.is_closed() {
                    break;
                }
                let rest = index.tend_once::<K>(&mut passes);
                drop(index);
                std::thread::park_timeout(rest.min(Duration::from_secs(1)));
            }
        };
        // Without a thread, writers remove what is in their way.
        crate::house::spawn("collect", Box::new(tend))
    }

    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool> {
        Ok(self.tree.get(key, value)?)
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        Ok(self.tree.put_as(key, value, how)?)
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        Ok(self.tree.delete_as(key, how)?)
    }

    fn update(
        &self,
        key: &K::Key,
        decide: impl FnMut(Option<&K::Value>) -> Decision<Cow<'static, K::Value>>,
        how: WriteOptions,
    ) -> Result<()> {
        Ok(self.tree.update(key, decide, how)?)
    }

    fn commit(&self) -> Result<()> {
        Ok(self.tree.commit()?)
    }

    fn is_quiet(&self) -> bool {
        self.tree.is_quiet()
    }

    /// Nothing: a look-up is what would bring it in.
    fn prefetch(&self, _keys: &[&K::Key]) {}

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        let snapshot = self.tree.snapshot();
        for key in keys {
            let mut value = K::ValueBuf::default();
            let found = snapshot.get(key, Some(&mut value))?;
            if !give(found.then_some(value)) {
                break;
            }
        }
        Ok(())
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        let mut found = Vec::with_capacity(writes.len());
        for some in writes.chunks(WRITES) {
            found.extend(self.tree.write_many_as(some, WriteOptions { sync: false })?);
        }
        if how.sync {
            self.tree.commit()?;
        }
        Ok(found)
    }

    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], how: WriteOptions) -> Result<bool> {
        Ok(self.tree.batch(writes, expected, how)?)
    }

    fn cursor(&self) -> X::Cursor<'_> {
        X::cursor(&self.tree)
    }

    fn len(&self) -> Count {
        Count { keys: self.tree.len(), pending: false }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.tree.sync()?)
    }

    fn check(&self) -> ::index::Report {
        self.tree.check()
    }

    fn append(&self, next: &mut NextPair<'_, K>) -> Result<u64> {
        let mut last = X::last(&self.tree)?;
        let mut appended = 0;
        loop {
            let mut pairs: Vec<(K::KeyBuf, K::ValueBuf)> = Vec::new();
            let mut is_out_of_order = false;
            while pairs.len() < WRITES {
                let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
                if !next(&mut key, &mut value)? {
                    break;
                }
                if last.as_ref().is_some_and(|last| *last >= key) {
                    is_out_of_order = true;
                    break;
                }
                last = X::ORDERED.then(|| key.clone());
                pairs.push((key, value));
            }
            let writes: Vec<_> =
                pairs.iter().map(|(key, value)| Write::Put(K::key(key), K::value(value))).collect();
            self.tree.write_many_as(&writes, WriteOptions { sync: false })?;
            appended += pairs.len() as u64;
            if is_out_of_order {
                self.tree.commit()?;
                return Err(Error::Order { loaded: appended }.into());
            }
            if pairs.len() < WRITES {
                self.tree.commit()?;
                return Ok(appended);
            }
        }
    }

    fn clear(&self) -> Result<()> {
        Ok(self.tree.clear()?)
    }

    fn close(&self) -> Result<()> {
        Ok(self.tree.close()?)
    }

    fn close_on_drop(&self) {
        self.tree.close_on_drop();
    }

    fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        Ok(self.tree.hold_writers(look)?)
    }

    fn identity(&self) -> &Identity {
        self.tree.region().identity()
    }

    fn region_bytes(&self) -> u64 {
        self.tree.region().medium().len()
    }

    fn usage(&self) -> alloc::Usage {
        alloc::usage(self.tree.region())
    }

    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>> {
        Ok(History::snapshot(self))
    }

    fn history(&self) -> Option<&dyn History<K>> {
        Some(self)
    }
}

impl<K: Kind, X: Indexed<K, Pass: Send>> History<K> for CddsIndex<X>
where
    K::Value: ToOwned,
{
    fn snapshot(&self) -> Box<dyn View<K> + '_> {
        Box::new(Past(self.tree.snapshot()))
    }

    fn at(&self, version: u64) -> Option<Box<dyn View<K> + '_>> {
        Some(Box::new(Past(self.tree.snapshot_of(self.mark_of(version)?)?)))
    }

    fn named(&self, name: &str) -> Option<Box<dyn View<K> + '_>> {
        Some(Box::new(Past(self.tree.snapshot_of(self.tree.kept_version(name)?)?)))
    }

    fn versions(&self) -> Versions {
        let named = |kept: Kept| NamedVersion {
            name: kept.name,
            version: kept.mark.version(),
            keys: kept.mark.keys().unwrap_or_default(),
        };
        let named = self.tree.kept_versions().into_iter().map(named).collect();
        Versions { oldest: self.tree.oldest_retained(), newest: self.tree.version(), named }
    }

    fn keep(&self, name: &str) -> Result<bool> {
        Ok(self.tree.keep(name)?)
    }

    fn forget(&self, name: &str) -> Result<bool> {
        Ok(self.tree.forget(name)?)
    }

    fn retain(&self, what: Retain) {
        let (versions, limit) = match what {
            Retain::Newest => (0, None),
            Retain::Versions(versions) => (versions, None),
            Retain::Age(age) => (0, Some(age)),
        };
        let mut ages = self.ages();
        *ages = Ages { limit, ..Ages::default() };
        self.tree.retain_versions(versions);
        self.tree.retain_since(ages.note(self.tree.version()));
    }

    fn roll_back(&self, version: u64) -> Result<bool> {
        let Some(mark) = self.mark_of(version) else { return Ok(false) };
        Ok(self.tree.roll_back(&mark)?)
    }
}

/// A view of the past.
struct Past<'a, X: Structure>(SnapshotOf<'a, Durable, X>);

impl<K: Kind, X: Indexed<K, Pass: Send>> View<K> for Past<'_, X> {
    fn version(&self) -> Option<u64> {
        Some(self.0.version())
    }

    fn keys(&self) -> Option<u64> {
        self.0.keys()
    }

    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.0.get(key, Some(value))?)
    }

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(X::cursor_at(&self.0))
    }
}

impl<K: Kind, S: SchemaOf<K> + Schema<Tail = [u64; 0]>, O: Order> Cursor<K>
    for cdds::Cursor<'_, Durable, S, O>
{
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.next(key, value)?)
    }
}

impl<K: Kind, S: SchemaOf<K> + Schema<Tail = [u64; 0]>> Cursor<K> for cdds::hash::Pairs<'_, Durable, S> {
    fn seek(&mut self, _: Bound<&K::Key>, _: bool) -> Result<()> {
        Err(crate::registry::unordered(cdds::hash::ENGINE))
    }

    fn walk(&mut self, behind: Option<&K::Key>) -> Result<()> {
        self.start(behind);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.next(key, value)?)
    }
}

#[cfg(test)]
mod tests {
    use super::Passes;

    /// A snapshot was dropped in the middle of a pass. The pass counted as one that had seen all that could be collected at its end, and
    /// what lay behind it stayed until the next write.
    #[test]
    fn what_becomes_collectable_while_a_pass_runs_is_for_another_pass() {
        let mut passes = Passes::default();
        assert!(passes.is_due(5, 0));
        assert!(passes.is_due(9, 0), "the pass runs on");
        passes.end(0);
        assert!(passes.is_due(9, 0), "another pass");
        passes.end(0);
        assert!(!passes.is_due(9, 0));
        assert!(passes.is_due(9, 1), "a rollback");
    }
}
