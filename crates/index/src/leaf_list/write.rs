//! Puts and deletes of a list, and the space that a batch needs.

use pmem::alloc::Kind;
use pmem::region::BATCH_AT;
use pmem::{Error, Fence, LINE, Medium, Region, Result, WORD, record};

use super::core::{KeyBufOf, KeyOf, LeafList, SchemaOf, ValueBufOf, ValueOf, Writer};
use super::garbage;
use super::read::{LANES, Reads};
use super::space::HasSpace;
use super::write_group::{GROUP_WRITES, Known, WriteGroups};
use crate::batch::{Batching, Blocks, Pair, value_bytes};
use crate::group::Life;
use crate::schema::Schema;
use crate::write::{Decision, Write, WriteOptions, record_bytes};

/// The space that a batch may need.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// Maximum number of lines that it stores to.
    lines: u64,
    /// Maximum number of leaves that it allocates.
    leaves: u64,
    /// Bytes of its longest key.
    key_bytes: u64,
    /// The leaves of its keys.
    known: Known,
}

/// Writes of an index.
pub trait Writes: LeafList {
    /// Stores a value under a key. True if the key was present.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`, `NoSpace`, `Full`, `TooLarge`, `ValueBytes`, `Corrupt`: nothing has changed then. With a journal,
    /// also the errors of [`Life::commit`].
    fn put(&self, key: &KeyOf<Self>, value: &ValueOf<Self>) -> Result<bool> {
        self.put_as(key, value, WriteOptions::default())
    }

    /// As [`Writes::put`], with options.
    ///
    /// # Errors
    /// As [`Writes::put`].
    #[inline]
    fn put_as(&self, key: &KeyOf<Self>, value: &ValueOf<Self>, how: WriteOptions) -> Result<bool> {
        let mut writer = self.enter(SchemaOf::<Self>::record_bytes(key, value))?;
        self.save_image(key)?;
        let replaced = self.put_locked(&mut writer, key, value)?;
        self.leave(writer, how)?;
        Ok(replaced)
    }

    /// Removes a key. False if the key was absent.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`, `Corrupt`: nothing has changed then. With a journal, also the errors of [`Life::commit`].
    fn delete(&self, key: &KeyOf<Self>) -> Result<bool> {
        self.delete_as(key, WriteOptions::default())
    }

    /// As [`Writes::delete`], with options.
    ///
    /// # Errors
    /// As [`Writes::delete`].
    #[inline]
    fn delete_as(&self, key: &KeyOf<Self>, how: WriteOptions) -> Result<bool> {
        let mut writer = self.enter(0)?;
        self.save_image(key)?;
        let found = self.delete_locked(&mut writer, key)?;
        self.leave(writer, how)?;
        Ok(found)
    }

    /// Applies many writes, each atomic by itself. Writes of the same key keep their order. Writes to different leaves share their fences
    /// ([`super::write_group`]). Returns for each write whether its key was present.
    ///
    /// # Errors
    /// As [`Writes::put`]. Some of the writes are done then.
    fn write_many_as(
        &self,
        writes: &[Write<'_, KeyOf<Self>, ValueOf<Self>>],
        how: WriteOptions,
    ) -> Result<Vec<bool>> {
        if self.pending.is_none() {
            let mut found = vec![false; writes.len()];
            let mut writer = self.enter(0)?;
            for (writes, found) in writes.chunks(GROUP_WRITES).zip(found.chunks_mut(GROUP_WRITES)) {
                self.write_groups(&mut writer, writes, &Known::default(), found)?;
                self.move_some(&mut writer);
            }
            self.leave(writer, how)?;
            return Ok(found);
        }
        let mut found = Vec::with_capacity(writes.len());
        let mut rest = writes;
        while let Some(write) = rest.first() {
            let mut writer = self.enter(record_bytes::<SchemaOf<Self>>(write))?;
            while let Some((write, others)) = rest.split_first() {
                if !found.is_empty()
                    && !self.has_lines_beside(self.lines_of_operation(record_bytes::<SchemaOf<Self>>(write)))
                {
                    break;
                }
                let saved = self.save_image(write.key());
                match saved.and_then(|()| self.write_locked(&mut writer, write)) {
                    Ok(was_there) => found.push(was_there),
                    Err(error) => {
                        self.leave(writer, how)?;
                        return Err(error);
                    }
                }
                rest = others;
            }
            self.leave(writer, WriteOptions { sync: how.sync && rest.is_empty() })?;
        }
        Ok(found)
    }

    /// Reads and changes one key in one step. No other write can come between.
    ///
    /// # Errors
    /// As [`Writes::put`].
    fn update<W: std::borrow::Borrow<ValueOf<Self>>>(
        &self,
        key: &KeyOf<Self>,
        mut decide: impl FnMut(Option<&ValueOf<Self>>) -> Decision<W>,
        how: WriteOptions,
    ) -> Result<()> {
        let mut value = ValueBufOf::<Self>::default();
        let mut bytes = 0;
        loop {
            let mut writer = self.enter(bytes)?;
            let found = self.look(key, Some(&mut value))?.0;
            match writer.outside(|| decide(found.then(|| SchemaOf::<Self>::borrow_value(&value)))) {
                Decision::Keep => {}
                Decision::Put(new) => {
                    let needed = SchemaOf::<Self>::record_bytes(key, std::borrow::Borrow::borrow(&new));
                    if needed > bytes && self.pending.is_some() {
                        bytes = needed;
                        continue;
                    }
                    self.save_image(key)?;
                    self.put_locked(&mut writer, key, std::borrow::Borrow::borrow(&new))?;
                }
                Decision::Delete => {
                    self.save_image(key)?;
                    self.delete_locked(&mut writer, key)?;
                }
            }
            // The value that `decide` saw may belong to the running group.
            return self.leave(writer, how);
        }
    }

    /// Removes every key in one step. The cost does not depend on the number of keys ([`crate::garbage`]). The blocks are freed later. With
    /// an open snapshot, or without space for an empty list, the keys are deleted one by one.
    ///
    /// # Errors
    /// As [`Writes::delete`].
    fn clear(&self) -> Result<()> {
        garbage::clear(self)
    }

    /// Removes every key, one by one.
    ///
    /// # Errors
    /// As [`Writes::delete`].
    fn clear_by_key(&self) -> Result<()> {
        let (mut key, mut value) = (KeyBufOf::<Self>::default(), ValueBufOf::<Self>::default());
        let mut cursor = self.cursor().unsettled();
        cursor.seek(std::ops::Bound::Unbounded, true);
        while cursor.next_now(&mut key, &mut value)? {
            self.delete_as(SchemaOf::<Self>::borrow(&key), WriteOptions { sync: false })?;
        }
        self.commit()
    }

    /// Loads pairs in ascending order of distinct keys, all above every key of the index. Leaves are filled one after the other. Returns
    /// the number of pairs. The iterator must not use the index.
    ///
    /// # Errors
    /// `Order` at the first key that is not above the previous one. As [`Writes::put`] otherwise. The earlier pairs stay.
    fn bulk_load<'a>(
        &self,
        pairs: impl IntoIterator<Item = (&'a KeyOf<Self>, &'a ValueOf<Self>)>,
    ) -> Result<u64>
    where
        KeyOf<Self>: 'a,
        ValueOf<Self>: 'a,
    {
        let mut greatest = KeyBufOf::<Self>::default();
        let mut cursor = self.cursor().unsettled();
        cursor.seek(std::ops::Bound::Unbounded, true);
        let any = cursor.next_now(&mut greatest, &mut ValueBufOf::<Self>::default())?;
        let mut last: Option<&KeyOf<Self>> = any.then(|| SchemaOf::<Self>::borrow(&greatest));
        let mut loaded = 0;
        let outcome = pairs.into_iter().try_for_each(|(key, value)| {
            if last
                .is_some_and(|last| SchemaOf::<Self>::order_probe(SchemaOf::<Self>::probe(key), last).is_le())
            {
                return Err(Error::Order { loaded });
            }
            last = Some(key);
            self.put_as(key, value, WriteOptions { sync: false })?;
            loaded += 1;
            Ok(())
        });
        // The loaded pairs stay after an error, so they must be durable in any case.
        let durable = if self.pending.is_some() { self.commit() } else { Ok(()) };
        outcome.and(durable).map(|()| loaded)
    }
}

impl<T: LeafList> Writes for T {}

impl<T: LeafList> Batching for T {
    type Extent = Extent;

    fn payload_words(&self) -> usize {
        LeafList::payload_words(self)
    }

    fn value_now(&self, key: &KeyOf<T>, value: Option<&mut ValueBufOf<T>>) -> Result<bool> {
        Ok(self.look(key, value)?.0)
    }

    fn survey(&self, writes: &[Pair<SchemaOf<T>>]) -> Result<(Vec<Pair<SchemaOf<T>>>, Extent)> {
        let mut before = Vec::with_capacity(writes.len());
        let mut known = Known { leaves: Vec::with_capacity(writes.len()), changes: 0 };
        for some in writes.chunks(LANES) {
            let (changes, mut leaves) = (self.changes.settled(&self.stripes), [0; LANES]);
            if known.leaves.is_empty() {
                known.changes = changes;
            }
            let keys: Vec<_> = some.iter().map(|(key, _)| SchemaOf::<T>::borrow(key)).collect();
            self.leaves_to_read(&keys, &mut leaves[..some.len()]);
            // The writes read whole leaves.
            let medium = self.region.medium();
            leaves[..some.len()].iter().for_each(|leaf| medium.prefetch(*leaf, self.leaf_bytes()));
            known.leaves.extend_from_slice(&leaves[..some.len()]);
            for ((key, _), leaf) in some.iter().zip(leaves) {
                let leaf = (leaf != 0).then_some((leaf, changes));
                let mut value = ValueBufOf::<T>::default();
                let found = self.look_in(leaf, SchemaOf::<T>::borrow(key), Some(&mut value))?.0;
                before.push((key.clone(), found.then_some(value)));
            }
        }
        Ok((before, extent_of(self, writes, known)?))
    }

    fn lines_of(&self, extent: &Extent) -> u64 {
        extent.lines
    }

    fn blocks_of(&self, extent: &Extent) -> Result<Vec<Blocks>> {
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let separators = if SchemaOf::<T>::PLAIN { 0 } else { extent.leaves };
        let separator = record::needs(Kind::Separator, extent.key_bytes, 0, chunk_bytes)[0].1;
        let leaves = (Kind::Leaf, self.leaf_bytes(), extent.leaves);
        Ok(vec![leaves, (Kind::Separator, separator, separators)])
    }

    fn write_all(
        &self,
        writer: &mut Writer<<T as LeafList>::Own>,
        writes: &[Write<'_, KeyOf<T>, ValueOf<T>>],
        extent: &Extent,
        found: &mut [bool],
    ) -> Result<()> {
        self.write_groups(writer, writes, &extent.known, found)
    }

    fn name_batch(&self, writer: &mut Writer<<T as LeafList>::Own>, record: u64) -> Result<()> {
        let medium = self.region.medium();
        medium.fence(Fence::Payload);
        writer.allocator.flip(&self.region);
        medium.publish(BATCH_AT, Region::<<T as LeafList>::Medium>::root_word(record));
        medium.flush(BATCH_AT, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
        Ok(())
    }
}

/// Computes the space that a batch may need. The keys are in ascending order. The caller holds the writer's lock. `known` has the leaf of
/// each key, or 0.
fn extent_of<T: LeafList>(index: &T, writes: &[Pair<SchemaOf<T>>], known: Known) -> Result<Extent> {
    let chunk_bytes = index.region.geometry().chunk_bytes;
    let mut extent = Extent { lines: index.lines_once(), ..Extent::default() };
    let mut leaves: Vec<(u64, u64)> = Vec::new();
    for ((key, value), leaf) in writes.iter().zip(&known.leaves) {
        let key = SchemaOf::<T>::borrow(key);
        let leaf = if *leaf != 0 && index.is_leaf(*leaf) { *leaf } else { index.sound_leaf_of(key)? };
        match leaves.last_mut() {
            Some((last, writes)) if *last == leaf => *writes += 1,
            _ => leaves.push((leaf, 1)),
        }
        let key_bytes = SchemaOf::<T>::key_bytes(key).as_ref().len() as u64;
        extent.key_bytes = extent.key_bytes.max(key_bytes);
        // The entry, the leaf's header, and the intents and allocation bits of two records.
        extent.lines += 8;
        if let Some(value) = value.as_ref().filter(|_| !SchemaOf::<T>::PLAIN) {
            let bytes = value_bytes::<SchemaOf<T>>(value);
            let [head, pieces] = record::needs(Kind::Record, key_bytes, bytes, chunk_bytes);
            extent.lines += head.1 / LINE + 2 + pieces.2 * (pieces.1 / LINE + 4);
        }
    }
    for (leaf, writes) in leaves {
        let taken = index.leaves_for(leaf, writes);
        extent.leaves += taken;
        extent.lines += (taken + 2) * (index.leaf_lines() + 6);
    }
    extent.known = known;
    Ok(extent)
}
