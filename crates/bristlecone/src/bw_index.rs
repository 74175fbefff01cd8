//! The Bw-tree as an index. It is volatile and latch-free. The one in files is [`bw_files`](crate::bw_files).
//!
//! Consequences:
//! * There is no file, no journal and no durability. A write is complete when its call returns.
//! * Several writers can write at the same time.
//! * Lookups of many keys do not see the state of one moment.
//! * There are no batches of several keys, because an atomic step changes only one key.

use std::borrow::{Borrow, Cow};
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ::index::engine::{
    About, Capabilities, Change, Count, Create, Cursor, Decide, Family, Files, Form, InFiles, KeyValue,
    NextPair, View,
};
use ::index::kind::{Bytes, U64};
use ::index::{Index, Kind, Lifecycle, Report, Write, WriteOptions};
use bwtree::{Pairs, Tree};
use pmem::alloc::Usage;
use pmem::region::Identity;
use pmem::{Error, Found, LINE, Medium, Result};

/// Name of the engine.
pub(crate) const ENGINE: &str = "bwtree";

/// The registry entry.
pub(crate) const ABOUT: About = About {
    name: ENGINE,
    about: "latch-free Bw-tree: in memory, or with `--durability` in files that may be larger than memory",
    leaf: "deltas",
    inner: "deltas",
    commit_protocol: "one exchange",
    durable: false,
    lines: (4, 64),
    default_lines: 64,
};

/// The family of the registry.
pub struct BwFamily;

impl Family for BwFamily {
    const CAPABILITIES: Capabilities = Capabilities {
        durable: false,
        snapshots: false,
        atomic_batch: false,
        several_writers: true,
        ..Capabilities::KERNEL
    };
    const FILES: Option<Capabilities> = Some(crate::bw_files::CAPABILITIES);
    type Bytes<M: Medium> = BwIndex<bwtree::Bytes>;
    type Words<M: Medium> = BwIndex<bwtree::Words>;
    fn bytes_in_files(files: &Files<'_>) -> InFiles<Bytes> {
        crate::bw_files::open::<Bytes, bwtree::Bytes>(files)
    }
    fn words_in_files(files: &Files<'_>) -> InFiles<U64> {
        crate::bw_files::open::<U64, bwtree::Words>(files)
    }
}

/// Pairs of the Bw-tree with the keys and values of a kind.
pub(crate) trait PairsOf<K: Kind>: Pairs<Key = K::Key, Value = K::Value> {
    /// Converts a key of a store to a key of the tree.
    fn key_of(key: K::KeyBuf) -> Self::KeyBuf;
    /// Converts a value of a store to a value of the tree.
    fn value_of(value: K::ValueBuf) -> Self::ValueBuf;
    /// Converts a value of the tree to a value of a store.
    fn value(value: Self::ValueBuf) -> K::ValueBuf;
    /// Copies a key into a buffer.
    fn copy_key(key: &K::Key, to: &mut K::KeyBuf);
    /// Copies a value into a buffer.
    fn copy(value: &K::Value, to: &mut K::ValueBuf);
}

impl PairsOf<Bytes> for bwtree::Bytes {
    fn key_of(key: Vec<u8>) -> Box<[u8]> {
        key.into()
    }
    fn value_of(value: Vec<u8>) -> Vec<u8> {
        value
    }
    fn value(value: Vec<u8>) -> Vec<u8> {
        value
    }
    fn copy_key(key: &[u8], to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(key);
    }
    fn copy(value: &[u8], to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(value);
    }
}

impl PairsOf<U64> for bwtree::Words {
    fn key_of(key: u64) -> u64 {
        key
    }
    fn value_of(value: u64) -> u64 {
        value
    }
    fn value(value: u64) -> u64 {
        value
    }
    fn copy_key(key: &u64, to: &mut u64) {
        *to = *key;
    }
    fn copy(value: &u64, to: &mut u64) {
        *to = *value;
    }
}

/// A Bw-tree with a bound on its memory.
pub struct BwIndex<P: Pairs> {
    tree: Tree<P>,
    /// Maximum bytes of its pages and of blocks that wait to be freed.
    max_bytes: u64,
    /// True after the close. Then writes are refused.
    closed: AtomicBool,
}

/// The medium is not used.
impl<M: Medium, P: Pairs + 'static> Create<M> for BwIndex<P> {
    fn create(_medium: M, form: &Form) -> Result<Self> {
        let options = bwtree::Options::of_pages((form.node_lines * LINE) as usize);
        let tree = Tree::<P>::new(options).map_err(refused)?;
        Ok(Self { tree, max_bytes: form.max_bytes, closed: AtomicBool::new(false) })
    }

    fn open(_medium: M, path: &Path, _form: &Form) -> Result<(Self, Found)> {
        Err(Error::Foreign { path: path.to_owned(), why: "bwtree keeps nothing: no file can hold it" })
    }
}

/// Translates an error of the tree: a key or value that is too long for a page, or a wrong option.
fn refused(error: bwtree::Error) -> Error {
    let too_long = |of, bytes, max| Error::Length { of, bytes: bytes as u64, limit: max as u64 };
    match error {
        bwtree::Error::KeyTooLong { bytes, max } => too_long("a key", bytes, max),
        bwtree::Error::ValueTooLong { bytes, max } => too_long("a value", bytes, max),
        _ => Error::Unsupported { engine: ENGINE, what: "pages of this size" },
    }
}

impl<P: Pairs> BwIndex<P> {
    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Returns an error if the memory bound is reached. Deletes do not check it, because they free memory in the end.
    fn check_space(&self) -> Result<()> {
        // The used memory never exceeds the held memory, so in most cases one load is enough.
        if self.tree.held_bytes() < self.max_bytes {
            return Ok(());
        }
        let memory = self.tree.memory();
        if memory.total() - memory.spare_bytes < self.max_bytes {
            return Ok(());
        }
        Err(Error::Full { max_bytes: self.max_bytes })
    }

    /// Changes a key as `decide` says. True if the key was present.
    fn change<K: Kind>(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>) -> Result<bool>
    where
        P: PairsOf<K>,
    {
        self.check_open()?;
        let mut space = Ok(());
        let was_there = self
            .tree
            .update(key, |old| match decide(old) {
                Change::Keep => bwtree::Change::<Cow<'static, K::Value>>::Keep,
                Change::Delete => bwtree::Change::Delete,
                Change::Put(value) => {
                    space = self.check_space();
                    if space.is_ok() { bwtree::Change::Put(value) } else { bwtree::Change::Keep }
                }
            })
            .map_err(refused)?;
        space.map(|()| was_there)
    }
}

impl<P: Pairs + 'static> Lifecycle for BwIndex<P> {
    fn commit(&self) -> Result<()> {
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        true
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn refuse_writes(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn hold_writers(&self, _run: &mut dyn FnMut()) -> Result<()> {
        Err(Error::Unsupported { engine: ENGINE, what: "lock that writers take" })
    }

    fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn set_snapshot_bytes(&self, _bytes: u64) {}

    fn identity(&self) -> Option<&Identity> {
        None
    }

    fn region_bytes(&self) -> u64 {
        self.tree.memory().total()
    }

    fn usage(&self) -> Usage {
        let bwtree::Memory { page_bytes, limbo_bytes, table_bytes, spare_bytes } = self.tree.memory();
        Usage { live_bytes: page_bytes, free_bytes: limbo_bytes + spare_bytes, overhead_bytes: table_bytes }
    }

    fn limbo_bytes(&self) -> Option<u64> {
        Some(self.tree.memory().limbo_bytes)
    }
}

impl<K: Kind, P: PairsOf<K> + 'static> Index<K> for BwIndex<P> {
    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool> {
        Ok(match value {
            Some(value) => self.tree.get_with(key, |found| P::copy(found, value)).is_some(),
            None => self.tree.contains(key),
        })
    }

    fn put(&self, key: &K::Key, value: &K::Value, _how: WriteOptions) -> Result<bool> {
        self.check_open()?;
        self.check_space()?;
        self.tree.put(key, value).map_err(refused)
    }

    fn delete(&self, key: &K::Key, _how: WriteOptions) -> Result<bool> {
        self.check_open()?;
        self.tree.delete(key).map_err(refused)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, _how: WriteOptions) -> Result<()> {
        self.change::<K>(key, decide).map(drop)
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        let mut values = keys.iter().map(|key| self.tree.get(key).map(P::value));
        values.all(give);
        Ok(())
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        let each = writes.iter().map(|write| match write {
            Write::Put(key, value) => Index::<K>::put(self, key, value, how),
            Write::Delete(key) => Index::<K>::delete(self, key, how),
        });
        each.collect()
    }

    /// Only batches of one key are supported. Such a batch is an update.
    fn batch_found(
        &self,
        writes: Vec<KeyValue<K>>,
        expected: &[KeyValue<K>],
        _how: WriteOptions,
        found: &mut Vec<bool>,
    ) -> Result<bool> {
        found.clear();
        let mut keys = writes.iter().chain(expected).map(|(key, _)| key);
        let Some(key) = keys.next() else { return Ok(true) };
        if keys.any(|other| other != key) {
            return Err(Error::Unsupported { engine: ENGINE, what: pmem::error::BATCHES });
        }
        let (mut is_expected, mut was_there) = (true, false);
        self.change::<K>(K::key(key), &mut |old| {
            is_expected = expected.iter().all(|(_, value)| value.as_ref().map(K::value) == old);
            was_there = old.is_some();
            match writes.last().filter(|_| is_expected) {
                None => Change::Keep,
                Some((_, None)) => Change::Delete,
                Some((_, Some(value))) => Change::Put(Cow::Owned(K::value(value).to_owned())),
            }
        })?;
        found.extend((is_expected && !writes.is_empty()).then_some(was_there));
        Ok(is_expected)
    }

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(BwCursor { tree: &self.tree, cursor: None })
    }

    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>> {
        Err(Error::Unsupported { engine: ENGINE, what: pmem::error::SNAPSHOTS })
    }

    fn append(&self, next: &mut NextPair<'_, K>, _fill: f64) -> Result<u64> {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        let mut appended = 0;
        while next(&mut key, &mut value)? {
            Index::<K>::put(self, K::key(&key), K::value(&value), WriteOptions::default())?;
            appended += 1;
        }
        Ok(appended)
    }

    fn clear(&self) -> Result<()> {
        for (key, _) in &self.tree {
            Index::<K>::delete(self, key.borrow(), WriteOptions::default())?;
        }
        Ok(())
    }

    fn len(&self) -> Count {
        Count { keys: self.tree.len(), pending: false }
    }

    fn check(&self) -> Report {
        let (found, sizes) = (self.tree.check(), self.tree.stats());
        Report {
            keys: found.records,
            nodes: found.pages,
            levels: u64::from(sizes.levels),
            live_bytes: self.tree.memory().page_bytes,
            problems: found.problems,
            ..Report::default()
        }
    }
}

/// Number of pairs that a visit reads of one state of a leaf. Meanwhile the tree frees no memory.
pub(crate) const VISITED_TOGETHER: usize = 32;

struct BwCursor<'t, P: Pairs> {
    tree: &'t Tree<P>,
    cursor: Option<bwtree::Cursor<'t, P>>,
}

impl<K: Kind, P: PairsOf<K>> Cursor<K> for BwCursor<'_, P> {
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.cursor = Some(match descending {
            false => self.tree.range(from, Bound::Unbounded),
            true => self.tree.range_descending(Bound::Unbounded, from),
        });
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        let cursor = self.cursor.get_or_insert_with(|| self.tree.iter());
        let copy = |found: &K::Key, own: &K::Value| {
            P::copy_key(found, key);
            P::copy(own, value);
        };
        Ok(cursor.next_with(copy).is_some())
    }

    fn visit(&mut self, with: &mut dyn FnMut(&K::Key, &K::Value) -> bool) -> Result<bool> {
        let cursor = self.cursor.get_or_insert_with(|| self.tree.iter());
        let mut goes_on = true;
        while goes_on && cursor.place() {
            cursor.visit(VISITED_TOGETHER, |key, value| {
                goes_on = with(key, value);
                goes_on
            });
        }
        Ok(!goes_on)
    }
}
