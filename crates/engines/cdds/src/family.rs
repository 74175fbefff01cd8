//! The CDDS B-Tree and the CDDS hash table as engines of the registry.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use index::check::Report;
use index::engine::{
    self, Capabilities, Count, Create, Decide, Family, Form, History, Index, KeyValue, NamedVersion,
    NextPair, Retain, Salvaged, Versions, View,
};
use index::{Keyed, Kind, Life, Schema, SchemaOf, Words, Write, WriteOptions};
use pmem::{Error, Found, Medium, Native, Region, Result};

use crate::entry_order::Order;
use crate::hash::Hashed;
use crate::inlined::Inlined;
use crate::ordered::Ordered;
use crate::pins::Kept;
use crate::pins::Mark;
use crate::snapshot::SnapshotOf;
use crate::structure::Structure;
use crate::structure::Versioned;
use crate::versioned::Recovery;

/// Maximum writes in one version where the caller does not ask for an atomic batch.
const WRITES: usize = 64;

/// The B-Tree. `O` is the order of the entries in a node.
pub struct TreeFamily<O>(PhantomData<fn() -> O>);

impl<O: Order> Family for TreeFamily<O> {
    const CAPABILITIES: Capabilities = Capabilities { versions: true, ..Capabilities::KERNEL };
    type Bytes<M: Medium> = Versioned<M, Ordered<Inlined, O>>;
    type Words<M: Medium> = Versioned<M, Ordered<Words, O>>;
}

/// The hash table.
pub struct HashFamily;

impl Family for HashFamily {
    const CAPABILITIES: Capabilities =
        Capabilities { ordered: false, versions: true, ..Capabilities::KERNEL };
    type Bytes<M: Medium> = Versioned<M, Hashed<Keyed>>;
    type Words<M: Medium> = Versioned<M, Hashed<Words>>;
}

/// A structure that can be an engine. The methods are the operations in which the B-Tree and the hash table differ.
pub trait Indexed<K: Kind>: Structure<Schema: SchemaOf<K>, Pass: Send> + Send + Sync + 'static {
    /// True if its cursors return keys in order.
    const ORDERED: bool;

    /// A cursor at the newest version.
    fn cursor<M: Medium>(of: &Versioned<M, Self>) -> Box<dyn engine::Cursor<K> + '_>;
    /// A cursor at a version.
    fn cursor_at<'a, M: Medium>(of: &SnapshotOf<'a, M, Self>) -> Box<dyn engine::Cursor<K> + 'a>;
    /// A number that changes when there may be something to collect.
    fn collectable<M: Medium>(of: &Versioned<M, Self>) -> u64;
    /// The last key, if keys have an order.
    ///
    /// # Errors
    /// `TakenBack`, `Corrupt`, `Failed`.
    fn last<M: Medium>(of: &Versioned<M, Self>) -> Result<Option<K::KeyBuf>>;
}

impl<K: Kind, S: SchemaOf<K> + Schema<Tail = [u64; 0]>, O: Order> Indexed<K> for Ordered<S, O> {
    const ORDERED: bool = true;

    fn cursor<M: Medium>(of: &Versioned<M, Self>) -> Box<dyn engine::Cursor<K> + '_> {
        Box::new(of.cursor())
    }

    fn cursor_at<'a, M: Medium>(of: &SnapshotOf<'a, M, Self>) -> Box<dyn engine::Cursor<K> + 'a> {
        Box::new(of.cursor())
    }

    fn collectable<M: Medium>(of: &Versioned<M, Self>) -> u64 {
        of.oldest_version()
    }

    fn last<M: Medium>(of: &Versioned<M, Self>) -> Result<Option<K::KeyBuf>> {
        let (mut key, mut value, mut cursor) = (K::KeyBuf::default(), K::ValueBuf::default(), of.cursor());
        cursor.seek(Bound::Unbounded, true);
        Ok(cursor.next(&mut key, &mut value)?.then_some(key))
    }
}

impl<K: Kind, S: SchemaOf<K> + Schema<Tail = [u64; 0]>> Indexed<K> for Hashed<S> {
    const ORDERED: bool = false;

    fn cursor<M: Medium>(of: &Versioned<M, Self>) -> Box<dyn engine::Cursor<K> + '_> {
        Box::new(of.pairs())
    }

    fn cursor_at<'a, M: Medium>(of: &SnapshotOf<'a, M, Self>) -> Box<dyn engine::Cursor<K> + 'a> {
        Box::new(of.pairs())
    }

    /// Every new version may leave garbage, also between two kept versions.
    fn collectable<M: Medium>(of: &Versioned<M, Self>) -> u64 {
        of.version()
    }

    fn last<M: Medium>(_: &Versioned<M, Self>) -> Result<Option<K::KeyBuf>> {
        Ok(None)
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Create<M> for Versioned<M, Ordered<S, O>> {
    fn create(medium: M, form: &Form) -> Result<Self> {
        Self::create(medium, &options(form))
    }

    fn open(medium: M, path: &Path, form: &Form) -> Result<(Self, Found)> {
        Self::open(medium, path, &options(form), Recovery::Lazy)
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Create<M> for Versioned<M, Hashed<S>> {
    fn create(medium: M, form: &Form) -> Result<Self> {
        Self::create(medium, &hash_options(form))
    }

    fn open(medium: M, path: &Path, form: &Form) -> Result<(Self, Found)> {
        Self::open(medium, path, &hash_options(form), Recovery::Lazy)
    }
}

fn options(form: &Form) -> crate::Options {
    let usual = crate::Options::new(form.node_lines, form.durability);
    let geometry = form.geometry.unwrap_or(usual.geometry);
    crate::Options { geometry, stripes: form.stripes, tables: form.tables, ..usual }
}

/// Draws a random seed. Clients choose the keys, so they must not know the seed.
fn hash_options(form: &Form) -> crate::hash::Options {
    let seed = RandomState::new().build_hasher().finish();
    let usual = crate::hash::Options::new(form.node_lines, form.durability);
    crate::hash::Options { seed, common: options(form), ..usual }
}

impl<K: Kind, M: Medium, X: Indexed<K>> Index<K> for Versioned<M, X> {
    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool> {
        self.get(key, value)
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        self.put_as(key, value, how)
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        self.delete_as(key, how)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()> {
        self.update(key, decide, how)
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        let snapshot = self.snapshot();
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
            found.extend(self.write_many_as(some, WriteOptions { sync: false })?);
        }
        if how.sync {
            Life::commit(self)?;
        }
        Ok(found)
    }

    fn batch_found(
        &self,
        writes: Vec<KeyValue<K>>,
        expected: &[KeyValue<K>],
        how: WriteOptions,
        found: &mut Vec<bool>,
    ) -> Result<bool> {
        self.batch_found(writes, expected, how, found)
    }

    fn cursor(&self) -> Box<dyn engine::Cursor<K> + '_> {
        X::cursor(self)
    }

    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>> {
        Ok(Box::new(self.snapshot()))
    }

    fn history(&self) -> Option<&dyn History<K>> {
        Some(self)
    }

    fn append(&self, next: &mut NextPair<'_, K>, _fill: f64) -> Result<u64> {
        let mut last = X::last(self)?;
        let mut appended = 0;
        loop {
            let mut pairs = engine::take_pairs::<K>(next, WRITES, u64::MAX)?;
            let taken = pairs.len();
            let mut ascends = |(key, _): &(K::KeyBuf, K::ValueBuf)| {
                let is_above = last.as_ref().is_none_or(|last| *last < *key);
                last = X::ORDERED.then(|| key.clone());
                is_above
            };
            pairs.truncate(pairs.iter().position(|pair| !ascends(pair)).unwrap_or(taken));
            let writes: Vec<_> =
                pairs.iter().map(|(key, value)| Write::Put(K::key(key), K::value(value))).collect();
            self.write_many_as(&writes, WriteOptions { sync: false })?;
            appended += pairs.len() as u64;
            if taken == WRITES && pairs.len() == taken {
                continue;
            }
            Life::commit(self)?;
            return if pairs.len() < taken { Err(Error::Order { loaded: appended }) } else { Ok(appended) };
        }
    }

    fn clear(&self) -> Result<()> {
        self.clear()
    }

    fn len(&self) -> Count {
        Count { keys: self.kernel_len(), pending: false }
    }

    fn has_maintenance(&self) -> bool {
        true
    }

    /// Records the age of versions, and does a step of the collector.
    fn maintain(&self) -> Option<Duration> {
        if self.is_closed() {
            return None;
        }
        Some(self.maintain_once(X::collectable(self)))
    }

    fn check(&self) -> Report {
        self.check()
    }

    fn salvage_leaf(region: &Region<Native>, leaf: u64) -> Vec<Salvaged<K>> {
        let met = |entry: crate::node::Entry| {
            let found = Salvaged::<K>::of::<_, X::Schema>(region, &X::of_schema(&entry));
            Salvaged { start: entry.start, ended: entry.end != 0, ..found }
        };
        crate::salvage::entries::<_, X>(region, leaf).into_iter().map(met).collect()
    }
}

impl<K: Kind, M: Medium, X: Indexed<K>> History<K> for Versioned<M, X> {
    fn at(&self, version: u64) -> Option<Box<dyn View<K> + '_>> {
        Some(Box::new(self.snapshot_of(self.mark_of(version)?)?))
    }

    fn named(&self, name: &str) -> Option<Box<dyn View<K> + '_>> {
        Some(Box::new(self.snapshot_of(self.kept_version(name)?)?))
    }

    fn versions(&self) -> Versions {
        let named = |kept: Kept| NamedVersion {
            name: kept.name,
            version: kept.mark.version(),
            keys: kept.mark.keys().unwrap_or_default(),
        };
        let named = self.kept_versions().into_iter().map(named).collect();
        Versions { oldest: self.oldest_retained(), newest: self.version(), named }
    }

    fn keep(&self, name: &str) -> Result<bool> {
        self.keep(name)
    }

    fn forget(&self, name: &str) -> Result<bool> {
        self.forget(name)
    }

    fn retain(&self, what: Retain) {
        let (versions, limit) = match what {
            Retain::Newest => (0, None),
            // The engine does not count the newest one.
            Retain::Versions(versions) => (versions.saturating_sub(1), None),
            Retain::Age(age) => (0, Some(age)),
        };
        self.retain_versions(versions);
        self.retain_age(limit);
    }

    fn roll_back(&self, version: u64) -> Result<bool> {
        let Some(mark) = self.mark_of(version) else { return Ok(false) };
        self.roll_back(&mark)
    }
}

impl<M: Medium, X: Structure> Versioned<M, X> {
    fn kernel_len(&self) -> u64 {
        index::Embed::kernel(self).len()
    }

    fn mark_of(&self, version: u64) -> Option<Mark> {
        let kept = self.kept_versions().into_iter().find(|kept| kept.mark.version() == version);
        kept.map(|kept| kept.mark).or_else(|| self.mark_at(version))
    }
}

impl<K: Kind, M: Medium, X: Indexed<K>> View<K> for SnapshotOf<'_, M, X> {
    fn version(&self) -> Option<u64> {
        Some(self.version())
    }

    fn keys(&self) -> Option<u64> {
        self.keys()
    }

    fn get(&self, key: &K::Key, value: &mut K::ValueBuf) -> Result<bool> {
        self.get(key, Some(value))
    }

    fn cursor(&self) -> Box<dyn engine::Cursor<K> + '_> {
        X::cursor_at(self)
    }
}

impl<K: Kind, M: Medium, S: SchemaOf<K> + Schema<Tail = [u64; 0]>, O: Order> engine::Cursor<K>
    for crate::scan::Cursor<'_, M, S, O>
{
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.seek(from.map(K::own_key), descending);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        self.next(key, value)
    }
}

impl<K: Kind, M: Medium, S: SchemaOf<K> + Schema<Tail = [u64; 0]>> engine::Cursor<K>
    for crate::hash::Pairs<'_, M, S>
{
    fn seek(&mut self, _: Bound<&K::Key>, _: bool) -> Result<()> {
        Err(Error::Unsupported { engine: crate::hash::ENGINE, what: pmem::error::SCANS })
    }

    fn walk(&mut self, behind: Option<&K::Key>) -> Result<()> {
        self.start(behind);
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        self.next(key, value)
    }
}
