//! Writes of several keys, and writes that look first. A batch is there whole or not at all, after a crash and to every reader.
//!
//! As the trees have it ([`tree::batch`]): where fences make writes durable, a batch is first written down as a record, which one word
//! in the root line names; that word is its commit point. Then its writes are carried out as any others are, and the word is
//! cleared. What a crash cuts short is carried out again when the index is opened. Over a medium of groups the group does all
//! that. Readers beside it see what its keys were before ([`tree::before`]).
//!
//! | fence passed | may be on the medium | recovery |
//! |---|---|---|
//! | none | some of the record | nobody owns the record: its block is free |
//! | payload | the record; the word or not | old index, or the batch is carried out |
//! | commit | the word, some of the writes | the batch is carried out |
//! | commit of the clearing | everything | nothing to do |
//!
//! A batch is refused before it changes anything if a condition does not hold or room is lacking: in memory for its blocks and for
//! every split that it may need, in a group for the lines. If it fails all the same behind its commit point, the index takes no
//! more writes and readers see what was before it: over groups it is taken back, else the next open finishes it.

use pmem::alloc::Kind;
use pmem::region::BATCH_AT;
use pmem::sync::{AtomicU8, Ordering};
use pmem::{Error, Fence, LINE, Medium, Region, Result, WORD, record};
use tree::batch::{decode, encode, last_of_each, write_of};
use tree::insert::Decision;
use tree::{Pair, Schema, Write, WriteOptions};

use crate::core::{BROKEN, Chain, FAILED, KeyBufOf, KeyOf, SchemaOf, ValueBufOf, ValueOf, Writer};
use crate::group::Groups;
use crate::read::Reads;
use crate::wave::{Waves, bytes_of};

/// What a batch may need.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    /// Lines that it may store to.
    lines: u64,
    /// Most leaves taken.
    leaves: u64,
    /// Bytes of its longest key.
    key_bytes: u64,
}

/// Writes of an index. See the module's head.
pub trait Writes: Chain {
    /// Stores a value under a key; true if that replaced one.
    ///
    /// # Errors
    /// `Closed`, `Failed`, `NoSpace`, `Full`, `TooLarge`, `ValueBytes`, `Corrupt`: nothing has changed then.
    fn put(&self, key: &KeyOf<Self>, value: &ValueOf<Self>) -> Result<bool> {
        self.put_as(key, value, WriteOptions::default())
    }

    /// As [`Writes::put`].
    ///
    /// # Errors
    /// As there.
    fn put_as(&self, key: &KeyOf<Self>, value: &ValueOf<Self>, how: WriteOptions) -> Result<bool> {
        let mut writer = self.enter(SchemaOf::<Self>::record_bytes(key, value))?;
        let replaced = self.put_locked(&mut writer, key, value)?;
        self.leave(writer, how)?;
        Ok(replaced)
    }

    /// Removes a key; false if it was absent.
    ///
    /// # Errors
    /// `Closed`, `Failed`, `Corrupt`: nothing has changed then.
    fn delete(&self, key: &KeyOf<Self>) -> Result<bool> {
        self.delete_as(key, WriteOptions::default())
    }

    /// As [`Writes::delete`].
    ///
    /// # Errors
    /// As there.
    fn delete_as(&self, key: &KeyOf<Self>, how: WriteOptions) -> Result<bool> {
        let mut writer = self.enter(0)?;
        let found = self.delete_locked(&mut writer, key)?;
        self.leave(writer, how)?;
        Ok(found)
    }

    /// Carries out writes, in order where they are of one key, each durable by itself; says of each whether it found its key. Writes
    /// of different leaves share their fences ([`crate::wave`]).
    ///
    /// # Errors
    /// As [`Writes::put`]: some of the writes are done then, others not.
    fn write_many_as(
        &self,
        writes: &[Write<'_, KeyOf<Self>, ValueOf<Self>>],
        how: WriteOptions,
    ) -> Result<Vec<bool>> {
        if self.pending.is_none() {
            let mut found = vec![false; writes.len()];
            let mut writer = self.enter(0)?;
            self.write_waves(&mut writer, writes, &mut found)?;
            self.leave(writer, how)?;
            return Ok(found);
        }
        let mut found = Vec::with_capacity(writes.len());
        let mut rest = writes;
        while let Some(write) = rest.first() {
            let mut writer = self.enter(bytes_of::<Self>(write))?;
            while let Some((write, others)) = rest.split_first() {
                if !found.is_empty()
                    && !matches!(self.has_lines(self.lines_of_operation(bytes_of::<Self>(write))), Ok(true))
                {
                    break;
                }
                match self.write_locked(&mut writer, write) {
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

    /// Reads and changes one key in one step: no other write comes between.
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
            match decide(found.then(|| SchemaOf::<Self>::borrow_value(&value))) {
                Decision::Keep => {}
                Decision::Put(new) => {
                    let needed = SchemaOf::<Self>::record_bytes(key, std::borrow::Borrow::borrow(&new));
                    if needed > bytes && self.pending.is_some() {
                        bytes = needed;
                        continue;
                    }
                    self.put_locked(&mut writer, key, std::borrow::Borrow::borrow(&new))?;
                }
                Decision::Delete => _ = self.delete_locked(&mut writer, key)?,
            }
            // What was decided on may be of the running group.
            return self.leave(writer, how);
        }
    }

    /// Removes every key, one after the other.
    ///
    /// # Errors
    /// As [`Writes::delete`].
    fn clear(&self) -> Result<()> {
        let (mut key, mut value) = (KeyBufOf::<Self>::default(), ValueBufOf::<Self>::default());
        let mut cursor = self.cursor().unsettled();
        cursor.seek(std::ops::Bound::Unbounded, true);
        while cursor.next(&mut key, &mut value)? {
            self.delete_as(SchemaOf::<Self>::borrow(&key), WriteOptions { sync: false })?;
        }
        self.commit()
    }

    /// Loads pairs in ascending order of distinct keys, all above every key there is; leaves are filled one after the other. Returns the
    /// number of keys loaded. The iterator must not use the index.
    ///
    /// # Errors
    /// `Order` at the first key that is not above the one before it; as [`Writes::put`] otherwise. What came before stays.
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
        let any = cursor.next(&mut greatest, &mut ValueBufOf::<Self>::default())?;
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
        // Whatever came of it: what was loaded stays, so it has to be durable.
        let durable = if self.pending.is_some() { self.commit() } else { Ok(()) };
        outcome.and(durable).map(|()| loaded)
    }

    /// Puts and removes several keys in one step, if all of `expected` have these values (none: are absent). Of several writes of
    /// one key the last counts. False if it was not done because of a condition.
    ///
    /// # Errors
    /// `TooLarge` if no group or record can hold it, `NoSpace`, `Full`, `ValueBytes`, `Corrupt`: nothing has changed then.
    /// `Unfinished` if it failed behind its commit point: the index takes no more writes, readers see what was before it, and the
    /// next open finishes it. Over groups it is taken back instead, as by a failed commit, and the error is what was met.
    fn batch(
        &self,
        writes: Vec<Pair<SchemaOf<Self>>>,
        expected: &[Pair<SchemaOf<Self>>],
        how: WriteOptions,
    ) -> Result<bool> {
        for value in writes.iter().filter_map(|(_, value)| value.as_ref()) {
            SchemaOf::<Self>::check_value(SchemaOf::<Self>::borrow_value(value), self.payload_words())?;
        }
        let writes = last_of_each::<SchemaOf<Self>>(writes);
        let down = (self.pending.is_none() && writes.len() > 1).then(|| encode::<SchemaOf<Self>>(&writes));
        if let Some(bytes) =
            down.as_ref().map(|bytes| bytes.len() as u64).filter(|b| *b > record::VALUE_BYTES_MAX)
        {
            let words = |bytes: u64| (bytes / WORD) as usize;
            return Err(Error::TooLarge { records: words(bytes), limit: words(record::VALUE_BYTES_MAX) });
        }
        let (mut writer, extent) = loop {
            let writer = self.enter_for(|| Ok(0))?;
            if !self.holds(expected)? {
                // What was decided on may be of the running group.
                self.leave(writer, how)?;
                return Ok(false);
            }
            let extent = self.survey(&writes)?;
            // What readers are given in place of the batch has to be durable.
            let shows_durable = |pending: &pmem::pending::Pending| {
                writes.len() < 2
                    || !pending.has_any(
                        writes.iter().map(|(key, _)| SchemaOf::<Self>::hash(SchemaOf::<Self>::borrow(key))),
                    )
            };
            let Some(pending) = &self.pending else { break (writer, extent) };
            if self.has_lines(extent.lines)? && shows_durable(pending) {
                break (writer, extent);
            }
            let ticket = pending.ticket();
            drop(writer);
            self.settle(pending, ticket)?;
        };
        let before = self.as_they_are(&writes)?;
        self.prepare_batch(&mut writer, &writes, &extent, down.as_ref().map_or(0, Vec::len) as u64)?;
        if let [write] = writes.as_slice() {
            self.write_locked(&mut writer, &write_of::<SchemaOf<Self>>(write))?;
        } else if !writes.is_empty() {
            let record = match &down {
                Some(bytes) => Some(self.write_down(&mut writer, bytes)?),
                None => None,
            };
            self.batches.begin(before);
            let unfinished =
                Unfinished { state: &self.state, then: if self.pending.is_some() { BROKEN } else { FAILED } };
            if let Err(error) = self.carry_out(&mut writer, &writes, record) {
                drop(unfinished);
                let Some(pending) = &self.pending else {
                    return Err(Error::Unfinished { why: error.to_string() });
                };
                let ticket = pending.ticket();
                drop(writer);
                // A leader, this one or another, takes it back; a group before it may still be on its way.
                let _ = self.settle(pending, ticket);
                return Err(error);
            }
            std::mem::forget(unfinished);
            self.batches.end();
        }
        self.leave(writer, how)?;
        Ok(true)
    }

    /// Finishes the batch that a crash cut short, if there is one. Nobody else has the index yet.
    fn finish_batch(&self) -> Result<()> {
        let at = self.region.batch()?;
        if at == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let sound = record::read(self.region.medium(), at, None, &mut bytes);
        let writes = sound.then(|| decode::<SchemaOf<Self>>(&bytes)).flatten();
        let corrupt = Error::Corrupt { what: "record of a batch", at };
        let Some(writes) = writes else { return Err(corrupt) };
        for value in writes.iter().filter_map(|(_, value)| value.as_ref()) {
            SchemaOf::<Self>::check_value(SchemaOf::<Self>::borrow_value(value), self.payload_words())?;
        }
        let mut writer = self.lock_writer()?;
        let extent = self.survey(&writes)?;
        // Without room for the worst there may be enough: some of it may be done, and what lacks here was there before the crash.
        match self.prepare_batch(&mut writer, &writes, &extent, 0) {
            Err(Error::NoSpace { .. } | Error::Full { .. }) => {}
            other => other?,
        }
        self.carry_out(&mut writer, &writes, Some(at))
    }
}

/// Steps of these.
trait Steps: Chain {
    /// True if all of these keys have these values. The writer's lock is held.
    fn holds(&self, expected: &[Pair<SchemaOf<Self>>]) -> Result<bool> {
        let mut value = ValueBufOf::<Self>::default();
        for (key, expected) in expected {
            let found = self.look(SchemaOf::<Self>::borrow(key), Some(&mut value))?.0;
            if found.then(|| SchemaOf::<Self>::borrow_value(&value))
                != expected.as_ref().map(SchemaOf::<Self>::borrow_value)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What these keys are now.
    fn as_they_are(&self, writes: &[Pair<SchemaOf<Self>>]) -> Result<Vec<Pair<SchemaOf<Self>>>> {
        let as_it_is = |(key, _): &Pair<SchemaOf<Self>>| {
            let mut value = ValueBufOf::<Self>::default();
            let found = self.look(SchemaOf::<Self>::borrow(key), Some(&mut value))?.0;
            Ok((key.clone(), found.then_some(value)))
        };
        writes.iter().map(as_it_is).collect()
    }

    /// What room a batch, its keys ascending, may need. The writer's lock is held.
    fn survey(&self, writes: &[Pair<SchemaOf<Self>>]) -> Result<Extent> {
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let mut extent = Extent { lines: self.lines_once(), ..Extent::default() };
        let mut leaves: Vec<(u64, u64)> = Vec::new();
        for (key, value) in writes {
            let key = SchemaOf::<Self>::borrow(key);
            let leaf = self.sound_leaf_of(key)?;
            match leaves.last_mut() {
                Some((last, writes)) if *last == leaf => *writes += 1,
                _ => leaves.push((leaf, 1)),
            }
            let key_bytes = SchemaOf::<Self>::key_bytes(key).as_ref().len() as u64;
            extent.key_bytes = extent.key_bytes.max(key_bytes);
            // Entry, header of the leaf, intents and bits of two records.
            extent.lines += 8;
            if let Some(value) = value.as_ref().filter(|_| !SchemaOf::<Self>::PLAIN) {
                let value = SchemaOf::<Self>::borrow_value(value);
                let bytes = SchemaOf::<Self>::value_bytes(value).as_ref().len() as u64;
                let [head, pieces] = record::needs(Kind::Record, key_bytes, bytes, chunk_bytes);
                extent.lines += head.1 / LINE + 2 + pieces.2 * (pieces.1 / LINE + 4);
            }
        }
        for (leaf, writes) in leaves {
            let taken = self.leaves_for(leaf, writes);
            extent.leaves += taken;
            extent.lines += (taken + 2) * (self.leaf_lines() + 6);
        }
        Ok(extent)
    }

    /// Sees to it that the blocks of a batch can be taken, whatever splits come of it, and a record of so many bytes.
    fn prepare_batch(
        &self,
        writer: &mut Writer<Self::Own>,
        writes: &[Pair<SchemaOf<Self>>],
        extent: &Extent,
        down: u64,
    ) -> Result<()> {
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let leaves = (Kind::Leaf, self.leaf_bytes(), extent.leaves);
        let separators = if SchemaOf::<Self>::PLAIN { 0 } else { extent.leaves };
        let separator = record::needs(Kind::Separator, extent.key_bytes, 0, chunk_bytes)[0].1;
        let down_needs = record::needs(Kind::Batch, 0, down, chunk_bytes);
        let records = writes.iter().filter(|_| !SchemaOf::<Self>::PLAIN).filter_map(|(key, value)| {
            let key_bytes = SchemaOf::<Self>::key_bytes(SchemaOf::<Self>::borrow(key)).as_ref().len() as u64;
            let value = SchemaOf::<Self>::value_bytes(SchemaOf::<Self>::borrow_value(value.as_ref()?))
                .as_ref()
                .len() as u64;
            Some(record::needs(Kind::Record, key_bytes, value, chunk_bytes))
        });
        let needs = [leaves, (Kind::Separator, separator, separators)].into_iter();
        let needs = needs.chain(down_needs.into_iter().filter(|_| down > 0)).chain(records.flatten());
        let needs = needs.filter(|(.., blocks)| *blocks > 0);
        writer.allocator.prepare(&self.region, &mut writer.log, needs)
    }

    /// Writes a batch down and names it: its commit point. Returns its record.
    fn write_down(&self, writer: &mut Writer<Self::Own>, bytes: &[u8]) -> Result<u64> {
        let at = record::write(&self.region, &mut writer.allocator, &mut writer.log, Kind::Batch, &[], bytes)
            .map_err(|error| self.give_up(writer, error))?;
        self.name(writer, at);
        Ok(at)
    }

    /// Makes a record the running batch, or 0 none, durably, and ends the operation that took it or gives it back.
    fn name(&self, writer: &mut Writer<Self::Own>, at: u64) {
        let medium = self.region.medium();
        medium.fence(Fence::Payload);
        writer.allocator.flip(&self.region);
        medium.publish(BATCH_AT, Region::<Self::Medium>::root_word(at));
        medium.flush(BATCH_AT, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
    }

    /// Makes all writes of a batch, and forgets the batch.
    fn carry_out(
        &self,
        writer: &mut Writer<Self::Own>,
        writes: &[Pair<SchemaOf<Self>>],
        record: Option<u64>,
    ) -> Result<()> {
        let all: Vec<_> = writes.iter().map(write_of::<SchemaOf<Self>>).collect();
        self.write_waves(writer, &all, &mut vec![false; all.len()])?;
        let Some(at) = record else { return Ok(()) };
        record::give(&self.region, &mut writer.allocator, at).map_err(|error| self.give_up(writer, error))?;
        self.name(writer, 0);
        Ok(())
    }
}

impl<T: Chain> Steps for T {}

impl<T: Chain> Writes for T {}

/// Ends an index's writes when it is dropped: with an error, or a panic, in the midst of a batch.
struct Unfinished<'a> {
    state: &'a AtomicU8,
    then: u8,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.state.store(self.then, Ordering::Release);
    }
}
