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

use std::borrow::Borrow;

use pmem::alloc::Kind;
use pmem::region::BATCH_AT;
use pmem::sync::{AtomicU8, Ordering};
use pmem::{Error, Fence, LINE, Medium, Region, Result, WORD, record};
use tree::batch::{decode, encode, last_of_each, write_of};
use tree::insert::Decision;
use tree::{Pair, Schema, Write, WriteOptions};

use crate::bucket::Bucket;
use crate::index::{BROKEN, FAILED, Vlab, Writer};

/// What a batch may need.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    /// Lines that it may store to.
    lines: u64,
    /// Most splits.
    splits: u64,
    /// Bytes of its longest key.
    key_bytes: u64,
}

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Carries out writes in their order, each durable by itself; says of each whether it found its key.
    ///
    /// # Errors
    /// As [`Vlab::put`]: those before it are done then.
    pub fn write_many_as(
        &self,
        writes: &[Write<'_, S::Key, S::Value>],
        how: WriteOptions,
    ) -> Result<Vec<bool>> {
        let mut found = Vec::with_capacity(writes.len());
        let mut rest = writes;
        while let Some(write) = rest.first() {
            let mut writer = self.enter(bytes_of_write::<S>(write))?;
            while let Some((write, others)) = rest.split_first() {
                if !found.is_empty()
                    && !matches!(
                        self.has_lines(self.lines_of_operation(bytes_of_write::<S>(write))),
                        Ok(true)
                    )
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

    fn write_locked(&self, writer: &mut Writer<S>, write: &Write<'_, S::Key, S::Value>) -> Result<bool> {
        match write {
            Write::Put(key, value) => self.put_locked(writer, key, value),
            Write::Delete(key) => self.delete_locked(writer, key),
        }
    }

    /// Reads and changes one key in one step: no other write comes between.
    ///
    /// # Errors
    /// As [`Vlab::put`].
    pub fn update<W: Borrow<S::Value>>(
        &self,
        key: &S::Key,
        mut decide: impl FnMut(Option<&S::Value>) -> Decision<W>,
        how: WriteOptions,
    ) -> Result<()> {
        let mut value = S::ValueBuf::default();
        let mut bytes = 0;
        loop {
            let mut writer = self.enter(bytes)?;
            let found = self.look(key, Some(&mut value))?.0;
            match decide(found.then(|| S::borrow_value(&value))) {
                Decision::Keep => {}
                Decision::Put(new) => {
                    let needed = S::record_bytes(key, new.borrow());
                    if needed > bytes && self.pending.is_some() {
                        bytes = needed;
                        continue;
                    }
                    self.put_locked(&mut writer, key, new.borrow())?;
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
    /// As [`Vlab::delete`].
    pub fn clear(&self) -> Result<()> {
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        let mut cursor = self.cursor().unsettled();
        cursor.seek(std::ops::Bound::Unbounded, true);
        while cursor.next(&mut key, &mut value)? {
            self.delete_as(S::borrow(&key), WriteOptions { sync: false })?;
        }
        self.commit()
    }

    /// Loads pairs in ascending order of distinct keys, all above every key there is; buckets are filled one after the other. Returns the
    /// number of keys loaded. The iterator must not use the index.
    ///
    /// # Errors
    /// `Order` at the first key that is not above the one before it; as [`Vlab::put`] otherwise. What came before stays.
    pub fn bulk_load<'a>(&self, pairs: impl IntoIterator<Item = (&'a S::Key, &'a S::Value)>) -> Result<u64>
    where
        S::Key: 'a,
        S::Value: 'a,
    {
        let mut greatest = S::KeyBuf::default();
        let mut cursor = self.cursor().unsettled();
        cursor.seek(std::ops::Bound::Unbounded, true);
        let any = cursor.next(&mut greatest, &mut S::ValueBuf::default())?;
        let mut last: Option<&S::Key> = any.then(|| S::borrow(&greatest));
        let mut loaded = 0;
        let outcome = pairs.into_iter().try_for_each(|(key, value)| {
            if last.is_some_and(|last| S::order_probe(S::probe(key), last).is_le()) {
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
    pub fn batch(&self, writes: Vec<Pair<S>>, expected: &[Pair<S>], how: WriteOptions) -> Result<bool> {
        for value in writes.iter().filter_map(|(_, value)| value.as_ref()) {
            S::check_value(S::borrow_value(value), self.shape.entries.payload_words)?;
        }
        let writes = last_of_each::<S>(writes);
        let down = (self.pending.is_none() && writes.len() > 1).then(|| encode::<S>(&writes));
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
                writes.len() < 2 || !pending.has_any(writes.iter().map(|(key, _)| S::hash(S::borrow(key))))
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
            self.write_locked(&mut writer, &write_of::<S>(write))?;
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

    /// True if all of these keys have these values. The writer's lock is held.
    fn holds(&self, expected: &[Pair<S>]) -> Result<bool> {
        let mut value = S::ValueBuf::default();
        for (key, expected) in expected {
            let found = self.look(S::borrow(key), Some(&mut value))?.0;
            if found.then(|| S::borrow_value(&value)) != expected.as_ref().map(S::borrow_value) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What these keys are now.
    fn as_they_are(&self, writes: &[Pair<S>]) -> Result<Vec<Pair<S>>> {
        let as_it_is = |(key, _): &Pair<S>| {
            let mut value = S::ValueBuf::default();
            let found = self.look(S::borrow(key), Some(&mut value))?.0;
            Ok((key.clone(), found.then_some(value)))
        };
        writes.iter().map(as_it_is).collect()
    }

    /// What room a batch, its keys ascending, may need. The writer's lock is held.
    fn survey(&self, writes: &[Pair<S>]) -> Result<Extent> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let (capacity, chunk_bytes) = (shape.capacity() as u64, self.region.geometry().chunk_bytes);
        let mut extent = Extent { lines: self.lines_once(), ..Extent::default() };
        let mut buckets: Vec<(Bucket, u64)> = Vec::new();
        for (key, value) in writes {
            let key = S::borrow(key);
            let bucket = self.bucket_of(key)?;
            match buckets.last_mut() {
                Some((last, writes)) if *last == bucket => *writes += 1,
                _ => buckets.push((bucket, 1)),
            }
            let key_bytes = S::key_bytes(key).as_ref().len() as u64;
            extent.key_bytes = extent.key_bytes.max(key_bytes);
            // Entry, bits of the bucket, intents and bits of two records.
            extent.lines += 8;
            if let Some(value) = value.as_ref().filter(|_| !S::PLAIN) {
                let bytes = S::value_bytes(S::borrow_value(value)).as_ref().len() as u64;
                let [head, pieces] = record::needs(Kind::Record, key_bytes, bytes, chunk_bytes);
                extent.lines += head.1 / LINE + 2 + pieces.2 * (pieces.1 / LINE + 4);
            }
        }
        for (bucket, writes) in buckets {
            // An update may split a bucket that is not full, for its bitmap word is; a delete may merge.
            let held = bucket.count(medium, shape) as u64;
            let splits = writes.min(2 + 3 * (held + writes) / capacity);
            extent.splits += splits;
            extent.lines += (splits + 2) * (self.bucket_lines() + 6);
        }
        Ok(extent)
    }

    /// Sees to it that the blocks of a batch can be taken, whatever splits come of it, and a record of so many bytes.
    fn prepare_batch(
        &self,
        writer: &mut Writer<S>,
        writes: &[Pair<S>],
        extent: &Extent,
        down: u64,
    ) -> Result<()> {
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let buckets = (Kind::Leaf, self.shape.bytes(), extent.splits);
        let separators = if S::PLAIN { 0 } else { extent.splits };
        let separator = record::needs(Kind::Separator, extent.key_bytes, 0, chunk_bytes)[0].1;
        let down_needs = record::needs(Kind::Batch, 0, down, chunk_bytes);
        let records = writes.iter().filter(|_| !S::PLAIN).filter_map(|(key, value)| {
            let key_bytes = S::key_bytes(S::borrow(key)).as_ref().len() as u64;
            let value = S::value_bytes(S::borrow_value(value.as_ref()?)).as_ref().len() as u64;
            Some(record::needs(Kind::Record, key_bytes, value, chunk_bytes))
        });
        let needs = [buckets, (Kind::Separator, separator, separators)].into_iter();
        let needs = needs.chain(down_needs.into_iter().filter(|_| down > 0)).chain(records.flatten());
        let needs = needs.filter(|(.., blocks)| *blocks > 0);
        writer.allocator.prepare(&self.region, &mut writer.log, needs)
    }

    /// Writes a batch down and names it: its commit point. Returns its record.
    fn write_down(&self, writer: &mut Writer<S>, bytes: &[u8]) -> Result<u64> {
        let at = record::write(&self.region, &mut writer.allocator, &mut writer.log, Kind::Batch, &[], bytes)
            .map_err(|error| self.give_up(writer, error))?;
        self.name(writer, at);
        Ok(at)
    }

    /// Makes a record the running batch, or 0 none, durably, and ends the operation that took it or gives it back.
    fn name(&self, writer: &mut Writer<S>, at: u64) {
        let medium = self.region.medium();
        medium.fence(Fence::Payload);
        writer.allocator.flip(&self.region);
        medium.publish(BATCH_AT, Region::<M>::root_word(at));
        medium.flush(BATCH_AT, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(&self.region, &mut writer.log);
    }

    /// Makes all writes of a batch, and forgets the batch.
    fn carry_out(&self, writer: &mut Writer<S>, writes: &[Pair<S>], record: Option<u64>) -> Result<()> {
        for write in writes {
            self.write_locked(writer, &write_of::<S>(write))?;
        }
        let Some(at) = record else { return Ok(()) };
        record::give(&self.region, &mut writer.allocator, at).map_err(|error| self.give_up(writer, error))?;
        self.name(writer, 0);
        Ok(())
    }

    /// Finishes the batch that a crash cut short, if there is one. Nobody else has the index yet.
    pub(crate) fn finish_batch(&self) -> Result<()> {
        let at = self.region.batch()?;
        if at == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let sound = record::read(self.region.medium(), at, None, &mut bytes);
        let writes = sound.then(|| decode::<S>(&bytes)).flatten();
        let corrupt = Error::Corrupt { what: "record of a batch", at };
        let Some(writes) = writes else { return Err(corrupt) };
        for value in writes.iter().filter_map(|(_, value)| value.as_ref()) {
            S::check_value(S::borrow_value(value), self.shape.entries.payload_words)?;
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

fn bytes_of_write<S: Schema>(write: &Write<'_, S::Key, S::Value>) -> u64 {
    match write {
        Write::Put(key, value) => S::record_bytes(key, value),
        Write::Delete(_) => 0,
    }
}
