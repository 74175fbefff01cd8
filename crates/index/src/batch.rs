//! Atomic batches: writes of several keys that become visible together and are durable together or not at all.
//!
//! Without a journal, fences make writes durable. The writer first writes the whole batch as one record and publishes
//! the address of the record in a word of the root line (the batch word). The writes follow as ordinary write groups,
//! each with its own commit. At the end, the writer clears the batch word and frees the record in one commit. After a
//! crash, the next open repeats all writes of the record in key order. A repeated write changes nothing if it was
//! already complete.
//!
//! So a batch works the same way in every engine. The maximum size of a record bounds the size of a batch; the size of the redo log does
//! not. In addition to its writes, a batch costs a second copy of its bytes and two commits: one sets the batch word, one clears it. A
//! write-atomic commit protocol takes two fences for each of them.
//!
//! With a journal, no record is needed: the writer holds the lock until all writes are done, so they are in one commit
//! group. A commit group is durable as a whole or not at all.
//!
//! While a batch runs, no reader sees a part of it: see [`crate::images`].
//!
//! The bytes of the record are described at [`encode`].
//!
//! Invariants:
//! * B1: a batch is refused before its first change if a condition does not hold, if a key's path is damaged, or if there is not enough
//!   space: in the region for its blocks and for every possible split, in the commit group for its lines.
//! * B2: if a batch fails while its writes are applied, the index takes no more writes, and readers see the values from
//!   before the batch. With a journal, the batch is rolled back. Without a journal, its commit point was before the
//!   first write, so the next open finishes it.
//! * B3: a reader may get a value from before a running batch that is not durable yet. It then waits, as for any value of its group, for the
//!   ticket that the batch has noted ([`Life::wait_for_image`]).
//!
//! The commit point is the publish of the batch word; with a journal, it is the commit of the group. A batch of one
//! write is an ordinary write. The crash table is for batches without a journal:
//!
//! | fence passed ([`pmem::Fence`]) | may be on the medium | recovery |
//! |---|---|---|
//! | none | some of the record | the record has no owner; its block is free |
//! | payload (after the record) | the record; perhaps the batch word | without the batch word: the old index, and the record's block is freed; with it: the batch is applied |
//! | commit (after the batch word) | the batch word, some of the writes | the batch is applied |
//! | commit of the clearing | everything | nothing to do |

use pmem::alloc::Kind;
use pmem::{Error, Result, record};

use crate::group::Life;
pub use crate::images::Pair;
use crate::kernel::{Embed, Phase, Writer};
use crate::schema::Schema;
use crate::sorting::last_of_each;
use crate::write::{Write, WriteOf, WriteOptions};

/// Stands in place of the value's length if the write removes the key.
const REMOVED: u32 = u32::MAX;

/// Blocks to be allocated: kind, bytes of one block, number of blocks.
pub type Blocks = (Kind, u64, u64);

/// The current values of the keys of a batch, and the space that the batch needs.
pub type Survey<T> = (Vec<Pair<<T as Embed>::Schema>>, <T as Batching>::Extent);

/// Batches, and what an engine provides for them. See the module's head.
pub trait Batching: Life {
    /// The space that a batch needs.
    type Extent;

    /// False if the index is volatile. Then a batch needs no record.
    fn is_durable(&self) -> bool {
        true
    }

    /// Words of a value in an entry.
    fn payload_words(&self) -> usize;

    /// Copies a key's current value into `value` (if given). False if the key is absent. The value may not be durable yet. The caller holds
    /// the writer's lock or reads through a snapshot.
    ///
    /// # Errors
    /// `Corrupt`; `Failed` if a read can no longer distinguish the value from a rolled-back one.
    fn value_now(
        &self,
        key: &<Self::Schema as Schema>::Key,
        value: Option<&mut <Self::Schema as Schema>::ValueBuf>,
    ) -> Result<bool>;

    /// Reads the current values of the keys of a batch and computes the space that it needs. The keys are in ascending order. The caller
    /// holds the writer's lock.
    ///
    /// # Errors
    /// `Corrupt`.
    fn survey(&self, writes: &[Pair<Self::Schema>]) -> Result<Survey<Self>>;

    /// Maximum number of lines that a batch stores to.
    fn lines_of(&self, extent: &Self::Extent) -> u64;

    /// Maximum number of blocks that a batch allocates in addition to its records.
    ///
    /// # Errors
    /// `Corrupt`.
    fn blocks_of(&self, extent: &Self::Extent) -> Result<Vec<Blocks>>;

    /// Applies writes, whose extent was surveyed. Sets `found` for each write: true if its key was present.
    ///
    /// # Errors
    /// As for one write. Some of the writes are done then.
    fn write_all(
        &self,
        writer: &mut Writer<Self::Own>,
        writes: &[WriteOf<'_, Self::Schema>],
        extent: &Self::Extent,
        found: &mut [bool],
    ) -> Result<()>;

    /// Durably sets the batch word to this record, or clears it (0). This ends the operation that allocated or freed the record.
    ///
    /// # Errors
    /// As for a change.
    fn name_batch(&self, writer: &mut Writer<Self::Own>, record: u64) -> Result<()>;

    /// Saves the value of a key for open snapshots before a single write changes the key. The caller holds the writer's lock. Without a
    /// snapshot this costs one load.
    ///
    /// # Errors
    /// `Corrupt` if the key's value cannot be read.
    #[inline(always)]
    fn save_image(&self, key: &<Self::Schema as Schema>::Key) -> Result<()> {
        if self.kernel().images.saves() { save_image(self, key) } else { Ok(()) }
    }

    /// As [`Batching::save_image`], for the keys of several writes.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    fn save_images(&self, writes: &[WriteOf<'_, Self::Schema>]) -> Result<()> {
        if !self.kernel().images.saves() {
            return Ok(());
        }
        writes.iter().try_for_each(|write| save_image(self, write.key()))
    }

    /// Puts and deletes several keys in one step, if all keys of `expected` have the given values (`None`: the key is absent). If a key has
    /// several writes, the last one counts. False if a condition did not hold.
    ///
    /// # Errors
    /// `TooLarge` for more than 256 MiB of keys and values or more lines than a commit group can hold, `NoSpace`, `Full`, `ValueBytes`,
    /// `Corrupt`, `Closed`, `ReadOnly`, `Failed`: nothing has changed then. `Unfinished` if the batch failed after its commit point: the
    /// index takes no more writes, readers see the values from before the batch, and the next open finishes it. With a journal, the batch
    /// is rolled back instead, as by a failed commit, and the error is the original one. The errors of [`Life::commit`] are possible, too.
    fn batch(
        &self,
        writes: Vec<Pair<Self::Schema>>,
        expected: &[Pair<Self::Schema>],
        how: WriteOptions,
    ) -> Result<bool> {
        self.batch_found(writes, expected, how, &mut Vec::new())
    }

    /// As [`Batching::batch`]. Sets `found`: for each key of the batch, in ascending order, whether it was present before. Empty if a
    /// condition did not hold.
    ///
    /// # Errors
    /// As there.
    fn batch_found(
        &self,
        writes: Vec<Pair<Self::Schema>>,
        expected: &[Pair<Self::Schema>],
        how: WriteOptions,
        found: &mut Vec<bool>,
    ) -> Result<bool> {
        let kernel = self.kernel();
        found.clear();
        check_values(self, &writes)?;
        let writes = last_of_each(writes);
        if self.is_durable() && writes.len() > 1 {
            check_bytes::<Self::Schema>(&writes)?;
        }
        let is_written_down = self.is_durable() && kernel.pending.is_none() && writes.len() > 1;
        let record = is_written_down.then(|| encode::<Self::Schema>(&writes));
        let record_bytes = record.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let (mut writer, before, extent) = loop {
            let writer = self.enter_for(|_| Ok(0))?;
            let (before, extent) = self.survey(&writes)?;
            if !holds(self, expected, &before)? {
                // The values that the conditions were checked against may belong to the running group.
                self.leave(writer, how)?;
                return Ok(false);
            }
            let Some(pending) = &kernel.pending else { break (writer, before, extent) };
            if self.has_lines(self.lines_of(&extent))? {
                break (writer, before, extent);
            }
            let ticket = pending.ticket();
            drop(writer);
            self.wait_until_durable(pending, ticket)?;
        };
        prepare(self, &mut writer, &writes, &extent, record_bytes)?;
        found.extend(before.iter().map(|(_, value)| value.is_some()));
        let mut spare = None;
        if let [write] = writes.as_slice() {
            self.write_all(&mut writer, &[write_of::<Self::Schema>(write)], &extent, &mut [false])?;
        } else if !writes.is_empty() {
            let record = match &record {
                Some(bytes) => Some(write_down(self, &mut writer, bytes)?),
                None => None,
            };
            // The values from before the batch may belong to the running group (B3).
            kernel.images.begin(before, kernel.pending.as_ref().map_or(0, |pending| pending.noted()));
            if let Err(error) = carry_out(self, &mut writer, &writes, &extent, record) {
                let Some(pending) = &kernel.pending else {
                    kernel.set_phase(Phase::Failed);
                    let why = error.to_string();
                    return Err(if record.is_some() { Error::Unfinished { why } } else { error });
                };
                kernel.set_phase(Phase::Broken);
                let ticket = pending.ticket();
                drop(writer);
                // A leader, this thread or another one, rolls the batch back. An earlier group may still be on its way to the disk.
                let _ = self.wait_until_durable(pending, ticket);
                return Err(error);
            }
            spare = Some(kernel.images.end());
        }
        let left = self.leave(writer, how);
        drop(spare);
        left.map(|()| true)
    }

    /// Finishes a batch that a crash interrupted, if there is one. No other thread has the index yet.
    ///
    /// # Errors
    /// `Corrupt` if the batch's record is damaged. As [`Batching::batch`] otherwise.
    fn finish_batch(&self) -> Result<()> {
        let region = &self.kernel().region;
        let at = region.batch()?;
        if at == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let sound = record::read(region.medium(), at, None, &mut bytes);
        let writes = sound.then(|| decode::<Self::Schema>(&bytes)).flatten();
        let writes = writes.ok_or(Error::Corrupt { what: "record of a batch", at })?;
        check_values(self, &writes)?;
        let mut writer = self.lock_writer()?;
        let (_, extent) = self.survey(&writes)?;
        // An error is not final here. There may be too little space for the worst case and yet enough for the batch: some of the writes may
        // be done, and the batch reserved its space before the crash.
        match prepare(self, &mut writer, &writes, &extent, 0) {
            Err(Error::NoSpace { .. } | Error::Full { .. }) => {}
            other => other?,
        }
        carry_out(self, &mut writer, &writes, &extent, Some(at))?;
        // This truncates the log, so that a second recovery stores nothing.
        writer.log.truncate(region.medium());
        Ok(())
    }
}

#[cold]
fn save_image<T: Batching>(index: &T, key: &<T::Schema as Schema>::Key) -> Result<()> {
    index.kernel().images.save(key, || {
        let mut value = <T::Schema as Schema>::ValueBuf::default();
        Ok(index.value_now(key, Some(&mut value))?.then_some(value))
    })
}

/// Returns an error if a value does not fit into an entry.
fn check_values<T: Batching>(index: &T, writes: &[Pair<T::Schema>]) -> Result<()> {
    let mut values = writes.iter().filter_map(|(_, value)| value.as_ref());
    values.try_for_each(|value| T::Schema::check_value(T::Schema::borrow_value(value), index.payload_words()))
}

/// Returns an error if the batch is too large for one record. The limit is the same over every medium.
fn check_bytes<S: Schema>(writes: &[Pair<S>]) -> Result<()> {
    let bytes_of = |(key, value): &Pair<S>| {
        let key_bytes = S::key_bytes(S::borrow(key)).as_ref().len() as u64;
        8 + key_bytes + value.as_ref().map_or(0, value_bytes::<S>)
    };
    let (asked, limit) = (writes.iter().map(bytes_of).sum(), record::VALUE_BYTES_MAX);
    if asked > limit { Err(Error::TooLarge { of: "bytes of keys and values", asked, limit }) } else { Ok(()) }
}

/// True if all of these keys have these values. `before` has the values of some keys, in ascending order. The caller holds the writer's lock.
fn holds<T: Batching>(index: &T, expected: &[Pair<T::Schema>], before: &[Pair<T::Schema>]) -> Result<bool> {
    let mut value = <T::Schema as Schema>::ValueBuf::default();
    for (key, expected) in expected {
        let found = match before.binary_search_by(|(known, _)| known.cmp(key)) {
            Ok(at) => before[at].1.as_ref(),
            Err(_) => index.value_now(T::Schema::borrow(key), Some(&mut value))?.then_some(&value),
        };
        if found.map(T::Schema::borrow_value) != expected.as_ref().map(T::Schema::borrow_value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reserves the blocks of a batch, for every possible split, and a record of `record_bytes`.
fn prepare<T: Batching>(
    index: &T,
    writer: &mut Writer<T::Own>,
    writes: &[Pair<T::Schema>],
    extent: &T::Extent,
    record_bytes: u64,
) -> Result<()> {
    let region = &index.kernel().region;
    let chunk_bytes = region.geometry().chunk_bytes;
    let down = record::needs(Kind::Batch, 0, record_bytes, chunk_bytes);
    let down = down.into_iter().filter(|_| record_bytes > 0);
    let records = writes.iter().filter(|_| !T::Schema::PLAIN).filter_map(|(key, value)| {
        let key_bytes = T::Schema::key_bytes(T::Schema::borrow(key)).as_ref().len() as u64;
        let value_bytes = value_bytes::<T::Schema>(value.as_ref()?);
        Some(record::needs(Kind::Record, key_bytes, value_bytes, chunk_bytes))
    });
    let needs = index.blocks_of(extent)?.into_iter().chain(down).chain(records.flatten());
    let needs = needs.filter(|(.., blocks)| *blocks > 0);
    writer.allocator.prepare(region, &mut writer.log, needs)
}

/// Writes the batch's record and publishes its address: the commit point. Returns the record.
fn write_down<T: Batching>(index: &T, writer: &mut Writer<T::Own>, bytes: &[u8]) -> Result<u64> {
    let kernel = index.kernel();
    let at = record::write(&kernel.region, &mut writer.allocator, &mut writer.log, Kind::Batch, &[], bytes)
        .map_err(|error| kernel.give_up(writer, error))?;
    index.name_batch(writer, at)?;
    Ok(at)
}

/// Applies all writes of a batch, clears the batch word and frees the record.
fn carry_out<T: Batching>(
    index: &T,
    writer: &mut Writer<T::Own>,
    writes: &[Pair<T::Schema>],
    extent: &T::Extent,
    record: Option<u64>,
) -> Result<()> {
    let kernel = index.kernel();
    let all: Vec<_> = writes.iter().map(write_of::<T::Schema>).collect();
    index.write_all(writer, &all, extent, &mut vec![false; all.len()])?;
    let Some(at) = record else { return Ok(()) };
    record::give(&kernel.region, &mut writer.allocator, at).map_err(|error| kernel.give_up(writer, error))?;
    index.name_batch(writer, 0)
}

/// Bytes of a value in the record of a batch.
pub fn value_bytes<S: Schema>(value: &S::ValueBuf) -> u64 {
    S::value_bytes(S::borrow_value(value)).as_ref().len() as u64
}

/// Converts a pair of a batch to a write.
pub fn write_of<S: Schema>((key, value): &Pair<S>) -> WriteOf<'_, S> {
    match value {
        Some(value) => Write::Put(S::borrow(key), S::borrow_value(value)),
        None => Write::Delete(S::borrow(key)),
    }
}

/// Encodes a batch. Each write: key length and value length in 4 bytes each (value length with all bits set: delete), then key and value.
pub fn encode<S: Schema>(writes: &[Pair<S>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in writes {
        let key = S::key_bytes(S::borrow(key));
        let value = value.as_ref().map(|value| S::value_bytes(S::borrow_value(value)));
        let value = value.as_ref().map(AsRef::as_ref);
        bytes.extend((key.as_ref().len() as u32).to_le_bytes());
        bytes.extend(value.map_or(REMOVED, |value| value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key.as_ref());
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    bytes
}

/// Decodes the bytes of [`encode`]. `None` if they are anything else.
pub fn decode<S: Schema>(mut bytes: &[u8]) -> Option<Vec<Pair<S>>> {
    let mut writes = Vec::new();
    while !bytes.is_empty() {
        let mut length = || -> Option<u32> {
            let (length, rest) = bytes.split_first_chunk()?;
            bytes = rest;
            Some(u32::from_le_bytes(*length))
        };
        let (key_bytes, value_bytes) = (length()?, length()?);
        let (key, rest) = bytes.split_at_checked(key_bytes as usize)?;
        let (value, rest) = match value_bytes {
            REMOVED => (None, rest),
            value_bytes => {
                let (value, rest) = rest.split_at_checked(value_bytes as usize)?;
                (Some(S::value_of(value)?), rest)
            }
        };
        writes.push((S::key_of(key)?, value));
        bytes = rest;
    }
    Some(writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Prefixed, Words};

    #[test]
    fn what_is_written_down_is_read_again_and_nothing_else_is() {
        let words = vec![(3, Some(4)), (5, None), (u64::MAX, Some(u64::MAX))];
        assert_eq!(decode::<Words>(&encode::<Words>(&words)), Some(words));
        let strings =
            vec![(b"a".to_vec(), Some(Vec::new())), (b"bc".to_vec(), Some(vec![7; 300])), (vec![0], None)];
        let bytes = encode::<Prefixed>(&strings);
        assert_eq!(decode::<Prefixed>(&bytes).as_ref(), Some(&strings));
        for cut in (1..bytes.len()).filter(|cut| ![9, 9 + 8 + 302].contains(cut)) {
            assert_eq!(decode::<Prefixed>(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(decode::<Words>(&encode::<Prefixed>(&strings)), None);
    }
}
