//! The Bw-tree in files: [`logstore::Store`] as an index.
//!
//! Consequences:
//! * Several writers can write at the same time. A batch keeps other writers out while it is applied.
//! * Pages that were not used lately are evicted, so the contents may be larger than memory.
//! * [`Index::set`] does not read a page that is not in memory. Then the number of keys is pending until the page is read.
//! * There are no snapshots. A scan returns each pair as it is at its turn.

use std::borrow::Cow;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::index::engine::{
    Capabilities, Change, Count, Cursor, Decide, Files, InFiles, KeyValue, NextPair, Paging, View,
};
use ::index::schema::TABLES;
use ::index::{Index, Kind, Lifecycle, Report, Write, WriteOptions};
use bwtree::Pairs;
use logstore::{BatchWrite, Settings, Store, StoreCursor};
use pmem::alloc::Usage;
use pmem::region::Identity;
use pmem::{Durability, Error, Found, LINE, Result};

use crate::bw_index::{ENGINE, PairsOf, VISITED_TOGETHER};
use crate::in_files::PAGE_LINES;

/// The capabilities.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    durable: true,
    snapshots: false,
    atomic_batch: true,
    several_writers: true,
    ..Capabilities::KERNEL
};

/// Makes or opens the index.
pub(crate) fn open<K: Kind, P: PairsOf<K> + 'static>(files: &Files<'_>) -> InFiles<K> {
    let Files { form, .. } = files;
    let settings = Settings {
        survives_power: form.durability != Durability::Process,
        memory_bytes: files.memory_bytes,
        log_bytes: files.log_bytes,
        page_bytes: (form.node_lines * PAGE_LINES * LINE) as usize,
        compresses: files.compresses,
        direct_io: files.direct_io,
        read_only: files.read_only,
        ..Settings::default()
    };
    let (store, found) = match files.is_found {
        false => (Store::create(files.dir, files.stem, files.id, settings)?, Found::New),
        true => {
            let (store, opened) = Store::<P>::open(files.dir, files.stem, files.id, settings)?;
            let keys = store.len();
            (store, if opened.records == 0 { Found::Clean { keys } } else { Found::InUse })
        }
    };
    let identity = Identity {
        engine: ENGINE.to_owned(),
        kind: format!("{}{}", K::NAME, if form.tables { TABLES } else { "" }),
        node_lines: form.node_lines,
    };
    let is_full = AtomicBool::new(false);
    Ok((Arc::new(BwFiles { store, identity, max_bytes: form.max_bytes, is_full }), found))
}

/// A Bw-tree in files.
struct BwFiles<P: Pairs> {
    store: Store<P>,
    identity: Identity,
    /// Maximum bytes of the images.
    max_bytes: u64,
    is_full: AtomicBool,
}

impl<P: Pairs> BwFiles<P> {
    fn check_space(&self) -> Result<()> {
        let is_full = self.is_full.load(Ordering::Relaxed);
        if is_full { Err(Error::Full { max_bytes: self.max_bytes }) } else { Ok(()) }
    }

    fn check_space_for<K, V>(&self, writes: &[(K, Option<V>)]) -> Result<()> {
        if writes.iter().any(|(_, value)| value.is_some()) { self.check_space() } else { Ok(()) }
    }
}

/// A write of a batch, in the types of the store.
fn converted<K: Kind, P: PairsOf<K>>((key, value): KeyValue<K>) -> BatchWrite<P> {
    (P::key_of(key), value.map(P::value_of))
}

impl<P: Pairs + 'static> Lifecycle for BwFiles<P> {
    fn commit(&self) -> Result<()> {
        self.store.commit()
    }

    fn is_quiet(&self) -> bool {
        self.store.is_quiet()
    }

    fn durable_ticket(&self) -> u64 {
        self.store.stable()
    }

    fn wait_for_ticket(&self, ticket: u64) -> Result<()> {
        self.store.wait_for(ticket)
    }

    fn sync(&self) -> Result<()> {
        self.store.commit()
    }

    fn refuse_writes(&self) {
        self.store.refuse_writes();
    }

    fn hold_writers(&self, run: &mut dyn FnMut()) -> Result<()> {
        self.store.hold_writers(run)
    }

    fn close(&self) -> Result<()> {
        self.store.close()
    }

    fn copy_files(&self, to: &Path, progress: &dyn Fn(u64, u64)) -> Result<u64> {
        self.store.copy_to(to, progress)
    }

    fn compact_files(&self, progress: &dyn Fn(u64, u64)) -> Result<()> {
        self.store.compact(progress)
    }

    fn set_snapshot_bytes(&self, _bytes: u64) {}

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }

    fn region_bytes(&self) -> u64 {
        self.store.stats().segment_bytes
    }

    fn usage(&self) -> Usage {
        let stats = self.store.stats();
        let live_bytes = stats.live_bytes.min(stats.segment_bytes);
        Usage { live_bytes, free_bytes: stats.segment_bytes - live_bytes, overhead_bytes: 0 }
    }

    fn paging(&self) -> Option<Paging> {
        let stats = self.store.stats();
        Some(Paging {
            memory_bytes: self.store.settings().memory_bytes,
            page_bytes: stats.memory.page_bytes,
            unsaved_bytes: stats.unsaved_bytes,
            used_leaves: stats.used_leaves,
            read_leaves: stats.paged_in,
            evictions: stats.evictions,
            put_bytes: stats.put_bytes,
            log_bytes: stats.log.written_bytes,
            image_bytes: stats.image_bytes_written,
            saved_bytes: stats.saved_bytes,
            read_bytes: stats.image_bytes_read,
            syncs: stats.log.syncs,
            checkpoints: stats.checkpoints,
            checkpoint_bytes: stats.checkpoint_bytes,
            moved_images: stats.moved_images,
            waits: stats.waits,
            waited_us: stats.waited.as_micros() as u64,
        })
    }

    fn limbo_bytes(&self) -> Option<u64> {
        Some(self.store.tree().memory().limbo_bytes)
    }
}

impl<K: Kind, P: PairsOf<K> + 'static> Index<K> for BwFiles<P> {
    fn get(&self, key: &K::Key, value: Option<&mut K::ValueBuf>) -> Result<bool> {
        match value {
            Some(value) => self.store.get(key, |found| P::copy(found, value)),
            None => self.store.get(key, |_| ()),
        }
    }

    fn put(&self, key: &K::Key, value: &K::Value, how: WriteOptions) -> Result<bool> {
        self.check_space()?;
        self.store.update(key, |_| bwtree::Change::Put(value), how.sync)
    }

    fn delete(&self, key: &K::Key, how: WriteOptions) -> Result<bool> {
        self.store.update(key, |_| bwtree::Change::<&K::Value>::Delete, how.sync)
    }

    fn set(&self, key: &K::Key, value: Option<&K::Value>, how: WriteOptions) -> Result<Option<bool>> {
        value.map_or(Ok(()), |_| self.check_space())?;
        self.store.set(key, value, how.sync)
    }

    fn update(&self, key: &K::Key, decide: &mut Decide<'_, K::Value>, how: WriteOptions) -> Result<()> {
        let mut space = Ok(());
        let decide = |old: Option<&K::Value>| match decide(old) {
            Change::Keep => bwtree::Change::<Cow<'static, K::Value>>::Keep,
            Change::Delete => bwtree::Change::Delete,
            Change::Put(value) => {
                space = self.check_space();
                if space.is_ok() { bwtree::Change::Put(value) } else { bwtree::Change::Keep }
            }
        };
        self.store.update(key, decide, how.sync)?;
        space
    }

    fn get_each(&self, keys: &[&K::Key], give: &mut dyn FnMut(Option<K::ValueBuf>) -> bool) -> Result<()> {
        let mut values = self.store.get_each(keys)?.into_iter().map(|value| value.map(P::value));
        values.all(give);
        Ok(())
    }

    fn write_many(&self, writes: &[Write<'_, K::Key, K::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        const UNSYNCED: WriteOptions = WriteOptions { sync: false };
        let each = writes.iter().map(|write| match write {
            Write::Put(key, value) => Index::<K>::put(self, key, value, UNSYNCED),
            Write::Delete(key) => Index::<K>::delete(self, key, UNSYNCED),
        });
        let found = each.collect::<Result<Vec<_>>>()?;
        if how.sync {
            self.store.wait_for_all()?;
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
        found.clear();
        self.check_space_for(&writes)?;
        let writes = writes.into_iter().map(converted::<K, P>).collect();
        let expected: Vec<_> = expected.iter().cloned().map(converted::<K, P>).collect();
        let done = self.store.batch(writes, &expected, how.sync)?;
        *found = done.found;
        Ok(done.is_done)
    }

    fn set_batch(&self, writes: Vec<KeyValue<K>>, how: WriteOptions) -> Result<Vec<Option<bool>>> {
        self.check_space_for(&writes)?;
        self.store.set_batch(writes.into_iter().map(converted::<K, P>).collect(), how.sync)
    }

    fn cursor(&self) -> Box<dyn Cursor<K> + '_> {
        Box::new(FilesCursor { store: &self.store, cursor: None })
    }

    fn snapshot(&self) -> Result<Box<dyn View<K> + '_>> {
        Err(Error::Unsupported { engine: ENGINE, what: pmem::error::SNAPSHOTS })
    }

    fn append(&self, next: &mut NextPair<'_, K>, _fill: f64) -> Result<u64> {
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        let mut appended = 0;
        while next(&mut key, &mut value)? {
            Index::<K>::put(self, K::key(&key), K::value(&value), WriteOptions { sync: false })?;
            appended += 1;
        }
        self.store.wait_for_all()?;
        Ok(appended)
    }

    fn clear(&self) -> Result<()> {
        self.store.clear()
    }

    fn len(&self) -> Count {
        Count { keys: self.store.len(), pending: !self.store.is_counted() }
    }

    fn count_all(&self) -> Result<()> {
        self.store.count_all()
    }

    fn has_maintenance(&self) -> bool {
        true
    }

    fn maintain(&self) -> Option<Duration> {
        let rest = self.store.upkeep()?;
        self.is_full.store(self.store.stats().segment_bytes > self.max_bytes, Ordering::Relaxed);
        Some(rest)
    }

    fn check(&self) -> Report {
        let (problems, found) = self.store.check();
        Report {
            keys: found.records,
            nodes: found.pages,
            levels: u64::from(found.levels),
            live_bytes: self.store.stats().live_bytes,
            problems,
            ..Report::default()
        }
    }
}

struct FilesCursor<'s, P: Pairs> {
    store: &'s Store<P>,
    cursor: Option<StoreCursor<'s, P>>,
}

impl<K: Kind, P: PairsOf<K>> Cursor<K> for FilesCursor<'_, P> {
    fn seek(&mut self, from: Bound<&K::Key>, descending: bool) -> Result<()> {
        self.cursor = Some(match descending {
            false => self.store.range(from, Bound::Unbounded, false),
            true => self.store.range(Bound::Unbounded, from, true),
        });
        Ok(())
    }

    fn next(&mut self, key: &mut K::KeyBuf, value: &mut K::ValueBuf) -> Result<bool> {
        let whole = || self.store.range(Bound::Unbounded, Bound::Unbounded, false);
        let copy = |found: &K::Key, own: &K::Value| {
            P::copy_key(found, key);
            P::copy(own, value);
        };
        Ok(self.cursor.get_or_insert_with(whole).next_with(copy)?.is_some())
    }

    fn visit(&mut self, with: &mut dyn FnMut(&K::Key, &K::Value) -> bool) -> Result<bool> {
        let whole = || self.store.range(Bound::Unbounded, Bound::Unbounded, false);
        self.cursor.get_or_insert_with(whole).visit(VISITED_TOGETHER, with)
    }
}
