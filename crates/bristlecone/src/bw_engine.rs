//! The Bw-tree as an engine: volatile, so without a file, a journal or a promise; and without a lock, so many writers at once.
//!
//! What follows from that: a write is done when the call returns, and there is nothing to sync; many look-ups are not of one moment;
//! there are no batches, because several keys change in several steps.

use std::borrow::{Borrow, Cow};
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::index::{Write, WriteOptions};
use bwtree::{Pairs, Tree};
use pmem::LINE;
use pmem::copy::Progress;
use bptree::roster::About;

use crate::backup::Backup;
use crate::engine::{
    Capabilities, Change, CheckReport, Count, Cursor, Decide, Engine, History, Kind, LimboStats, NextPair,
    Pair, Space, Stats, View,
};
use crate::error::{Error, Result};
use crate::house::Home;
use crate::latency::LatencyStats;
use crate::registry;
use crate::store::Options;
use crate::tree_index::payload_words;

/// The engine's name.
pub(crate) const ENGINE: &str = "bwtree";

/// What it is.
pub(crate) const ABOUT: About = About {
    name: ENGINE,
    about: "latch-free Bw-tree in memory: writers do not wait for each other; nothing survives the process",
    leaf: "deltas",
    inner: "deltas",
    discipline: "one exchange",
    durable: false,
    lines: (4, 64),
    default_lines: 64,
};

pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    ordered: true,
    durable: false,
    snapshots: false,
    versions: false,
    atomic_batch: false,
    several_writers: true,
    fixed_values: false,
};

/// Pairs whose keys and values are those of a kind.
pub(crate) trait PairsOf<K: Kind>: Pairs<Key = K::Key, Value = K::Value> {
    /// A key as a store hands it out.
    fn key(key: Self::KeyBuf) -> K::KeyBuf;
    /// A value as a store hands it out.
    fn value(value: Self::ValueBuf) -> K::ValueBuf;
    /// Copies a value into a buffer.
    fn copy(value: &K::Value, to: &mut K::ValueBuf);
}

impl PairsOf<crate::Bytes> for bwtree::Bytes {
    fn key(key: Box<[u8]>) -> Vec<u8> {
        key.into_vec()
    }
    fn value(value: Vec<u8>) -> Vec<u8> {
        value
    }
    fn copy(value: &[u8], to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(value);
    }
}

impl PairsOf<crate::U64> for bwtree::Words {
    fn key(key: u64) -> u64 {
        key
    }
    fn value(value: u64) -> u64 {
        value
    }
    fn copy(value: &u64, to: &mut u64) {
        *to = *value;
    }
}

struct BwEngine<K, P: Pairs> {
    tree: Tree<P>,
    /// What its pages and what waits to be freed may take.
    max_bytes: u64,
    /// Writes are refused.
    closed: AtomicBool,
    kind: PhantomData<fn() -> K>,
}

/// Makes an empty tree.
pub(crate) fn open<K: Kind, P: PairsOf<K>>(
    engine: &'static About,
    home: Home,
    options: &Options,
) -> Result<Arc<dyn Engine<K>>>
where
    K::Value: ToOwned,
{
    let node_lines = crate::house::node_lines(engine, options)?;
    if !matches!(home, Home::Nowhere) {
        return Err(Error::Option(format!("{} keeps nothing: no file can hold it", engine.name)));
    }
    payload_words::<::index::Words>(options.value_bytes, true)?;
    let tree = Tree::<P>::new(bwtree::Options::of_pages((node_lines * LINE) as usize))?;
    Ok(Arc::new(BwEngine {
        tree,
        max_bytes: options.max_bytes,
        closed: AtomicBool::new(false),
        kind: PhantomData,
    }))
}

impl<K: Kind, P: PairsOf<K>> BwEngine<K, P>
where
    K::Value: ToOwned,
{
    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(pmem::Error::Closed.into()) } else { Ok(()) }
    }

    /// Refuses what takes memory when there is too much of it. (Deletes go on, though they take some before they give it back.)
    fn check_room(&self) -> Result<()> {
        // As a rule a look at one word says it: what is used is never more than what the system gave.
        if self.tree.held_bytes() < self.max_bytes {
            return Ok(());
        }
        let memory = self.tree.memory();
        if memory.total() - memory.spare_bytes < self.max_bytes {
            return Ok(());
        }
        Err(pmem::Error::Full { max_bytes: self.max_bytes }.into())
    }

    /// Asks `decide` what becomes of a key, and does it.
    fn change(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>) -> Result<bool> {
        self.check_open()?;
        let mut room = Ok(());
        let was_there = self.tree.update(key, |old| match decide(old) {
            Change::Keep => bwtree::Change::<Cow<'static, K::Value>>::Keep,
            Change::Delete => bwtree::Change::Delete,
            Change::Put(value) => {
                room = self.check_room();
                if room.is_ok() { bwtree::Change::Put(value) } else { bwtree::Change::Keep }
            }
        })?;
        room.map(|()| was_there)
    }
}

impl<K: Kind, P: PairsOf<K>> Engine<K> for BwEngine<K, P>
where
    K::Value: ToOwned,
{
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        Ok(self.tree.get_with(key, |found| P::copy(found, value)).is_some())
    }

    fn contains(&self, key: &K::Key) -> Result<bool> {
        Ok(self.tree.contains(key))
    }

    fn put(&self, key: &K::Key, value: &K::Value, _how: WriteOptions) -> Result<bool> {
        self.check_open()?;
        self.check_room()?;
        Ok(self.tree.put(key, value)?)
    }

    fn delete(&self, key: &K::Key, _how: WriteOptions) -> Result<bool> {
        self.check_open()?;
        Ok(self.tree.delete(key)?)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, _how: WriteOptions) -> Result<()> {
        self.change(key, decide).map(drop)
    }

    fn commit(&self) -> Result<()> {
        Ok(())
    }

    fn commits_with_sync(&self) -> bool {
        false
    }

    fn is_quiet(&self) -> bool {
        true
    }

    /// A look-up here is one chain of lines, of which each tells where the next one is: there is nothing to ask for ahead.
    fn prefetch(&self, _keys: &[&K::Key]) {}

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        let mut values = keys.iter().map(|key| self.tree.get(key).map(P::value));
        values.all(give);
        Ok(())
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        let each = writes.iter().map(|write| match write {
            Write::Put(key, value) => self.put(key, value, how),
            Write::Delete(key) => self.delete(key, how),
        });
        each.collect()
    }

    /// Of one key there is a batch, because that is an update.
    fn batch(&self, writes: Vec<Pair<K>>, expected: &[Pair<K>], _how: WriteOptions) -> Result<bool> {
        let mut keys = writes.iter().chain(expected).map(|(key, _)| key);
        let Some(key) = keys.next() else { return Ok(true) };
        if keys.any(|other| other != key) {
            return Err(registry::no_batches(ENGINE));
        }
        let mut is_expected = true;
        self.change(K::key(key), &mut |old| {
            is_expected = expected.iter().all(|(_, value)| value.as_ref().map(K::value) == old);
            match writes.last().filter(|_| is_expected) {
                None => Change::Keep,
                Some((_, None)) => Change::Delete,
                Some((_, Some(value))) => Change::Put(Cow::Owned(K::value(value).to_owned())),
            }
        })?;
        Ok(is_expected)
    }

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(BwCursor { tree: &self.tree, cursor: None, kind: PhantomData })
    }

    fn len(&self) -> Count {
        Count { keys: self.tree.len(), pending: false }
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<CheckReport> {
        let (found, sizes) = (self.tree.check(), self.tree.stats());
        Ok(CheckReport {
            keys: found.records,
            nodes: found.pages,
            levels: u64::from(sizes.levels),
            live_bytes: self.space().live_bytes,
            problems: found.problems,
        })
    }

    fn stats(&self) -> Stats {
        let (memory, options) = (self.tree.memory(), self.tree.options());
        Stats {
            engine: ENGINE.into(),
            kind: K::NAME.into(),
            medium: "memory of the process".into(),
            durability: pmem::Durability::Process.to_string(),
            durability_reason: "a volatile engine: nothing survives the process".into(),
            keys: self.tree.len(),
            keys_pending: false,
            file_bytes: None,
            region_bytes: memory.total(),
            node_bytes: options.leaf_split_bytes as u64,
            recovery_us: 0,
            opened: "new".into(),
            read_only: false,
            journal: None,
            limbo: Some(LimboStats { bytes: memory.limbo_bytes }),
            latency: LatencyStats::default(),
        }
    }

    fn space(&self) -> Space {
        let bwtree::Memory { page_bytes, limbo_bytes, table_bytes, spare_bytes } = self.tree.memory();
        Space { live_bytes: page_bytes, free_bytes: limbo_bytes + spare_bytes, overhead_bytes: table_bytes }
    }

    fn backup(&self, _dir: &Path, _progress: Progress<'_>) -> Result<Backup> {
        Err(Error::Option(format!("{ENGINE} keeps nothing: there is no store to back up")))
    }

    fn append(&self, next: &mut NextPair<'_, K>) -> Result<u64> {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        let mut appended = 0;
        while next(&mut key, &mut value)? {
            self.put(K::key(&key), K::value(&value), WriteOptions::default())?;
            appended += 1;
        }
        Ok(appended)
    }

    fn clear(&self) -> Result<()> {
        for (key, _) in &self.tree {
            self.delete(key.borrow(), WriteOptions::default())?;
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Option<Box<dyn View<K> + '_>>> {
        Ok(None)
    }

    fn history(&self) -> Option<&dyn History<K>> {
        None
    }

    fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

struct BwCursor<'t, K, P: Pairs> {
    tree: &'t Tree<P>,
    cursor: Option<bwtree::Cursor<'t, P>>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind, P: PairsOf<K>> Cursor<K> for BwCursor<'_, K, P> {
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.cursor = Some(match descending {
            false => self.tree.range(from, Bound::Unbounded),
            true => self.tree.range_descending(Bound::Unbounded, from),
        });
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        let cursor = self.cursor.get_or_insert_with(|| self.tree.iter());
        let Some(pair) = cursor.next() else { return Ok(false) };
        (*key, *value) = (P::key(pair.0), P::value(pair.1));
        Ok(true)
    }
}
