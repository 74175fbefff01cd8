//! Batches: several writes in one step. A batch is one record of the log, so a crash keeps all of it or nothing. It closes the gate for other
//! threads while it applies its writes, so readers see all of it or nothing (A2 of [`store`](crate::store)).

use std::borrow::Borrow;

use bwtree::{Change, Pairs};
use pmem::{Error, Result};

use crate::gate::Alone;
use crate::log::Log;
use crate::record;
use crate::settings::BATCH_BYTES_MAX;
use crate::store::{Store, check_length, thread};

/// The contents of a batch first get space for at most this many bytes.
const RESERVED: usize = 1 << 20;

/// A write of a batch: `None` removes the key.
pub type BatchWrite<P> = bwtree::image::Change<P>;

/// The result of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchDone {
    /// False if a condition did not hold; then nothing has changed.
    pub is_done: bool,
    /// For each key of the batch, in ascending order: whether it was present before.
    pub found: Vec<bool>,
}

impl<P: Pairs> Store<P> {
    /// Applies several writes in one step, if all pairs of `expected` match. If a key has several writes, the last one counts. If `sync`,
    /// the batch is durable as promised when this returns.
    ///
    /// # Errors
    /// `TooLarge`, `Length`, `NoSpace`: nothing has changed. `Io`, `Corrupt`, `Closed`, `ReadOnly`, `Failed`.
    pub fn batch(
        &self,
        mut writes: Vec<BatchWrite<P>>,
        expected: &[BatchWrite<P>],
        sync: bool,
    ) -> Result<BatchDone> {
        let log = self.log()?;
        let contents = self.contents(&mut writes)?;
        let alone = self.gate.alone();
        let mut end = 0;
        for (key, value) in expected {
            let mut is_equal = value.is_none();
            let expected_bytes = value.as_ref().map(|value| bytes_of::<P>(value.borrow()));
            self.tree
                .look_up(key.borrow(), |now| {
                    is_equal = expected_bytes.as_ref().is_some_and(|bytes| *bytes == bytes_of::<P>(now));
                })
                .map_err(|error| self.refused(error))?;
            end = end.max(self.marks.end(key.borrow()));
            if !is_equal {
                drop(alone);
                self.wait_readable(end)?;
                return Ok(BatchDone::default());
            }
        }
        // A2: after this all pages are in memory. A lookup would read a record and leave its page on flash.
        let mut found = Vec::with_capacity(writes.len());
        for (key, _) in &writes {
            let was_there = self.tree.update(key.borrow(), |_| Change::<&P::Value>::Keep);
            found.push(was_there.map_err(|error| self.refused(error))?);
        }
        if !writes.is_empty() {
            let apply = |(key, value): &BatchWrite<P>| match value {
                Some(value) => self.tree.put(key.borrow(), value.borrow()).map(drop),
                None => self.tree.delete(key.borrow()).map(drop),
            };
            end = self.apply_batch(log, alone, &writes, &contents, || writes.iter().try_for_each(apply))?;
        } else {
            drop(alone);
        }
        self.end(end, sync)?;
        self.relieve_after_updates(writes.len());
        Ok(BatchDone { is_done: true, found })
    }

    /// Applies several writes in one step, as [`batch`](Self::batch), and each of them as [`set`](Self::set). Returns for each key, in
    /// ascending order, whether it was present before.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub fn set_batch(&self, mut writes: Vec<BatchWrite<P>>, sync: bool) -> Result<Vec<Option<bool>>> {
        let log = self.log()?;
        let contents = self.contents(&mut writes)?;
        let mut found = Vec::with_capacity(writes.len());
        if writes.is_empty() {
            return Ok(found);
        }
        log.write_ahead()?;
        let alone = self.gate.alone();
        // A2: after this each leaf is in memory, or has room for its late changes.
        let plan = self.tree.plan(&writes).map_err(|error| self.refused(error))?;
        let apply = || plan.make(|was_there| found.push(was_there));
        let end = self.apply_batch(log, alone, &writes, &contents, apply)?;
        self.end(end, sync)?;
        self.relieve_after_updates(writes.len());
        Ok(found)
    }

    /// Sorts the writes of a batch, keeps the last one of each key, and makes the contents of their record.
    fn contents(&self, writes: &mut Vec<BatchWrite<P>>) -> Result<Vec<u8>> {
        for (key, value) in writes.iter() {
            P::check_key(key.borrow()).map_err(|error| self.refused(error))?;
            value
                .as_ref()
                .map_or(Ok(()), |value| P::check_value(value.borrow()))
                .map_err(|error| self.refused(error))?;
        }
        // The sort is stable: of equal keys the last one is last.
        writes.sort_by(|a, b| a.0.cmp(&b.0));
        writes.reverse();
        writes.dedup_by(|later, first| later.0 == first.0);
        writes.reverse();
        let own = |(key, value): &BatchWrite<P>| {
            record::HEAD + P::fresh_space(key.borrow(), value.as_ref().map(Borrow::borrow))
        };
        let bytes = writes.iter().map(own).sum::<usize>();
        let mut contents = Vec::with_capacity(bytes.min(RESERVED));
        for (key, value) in writes.iter() {
            let before = contents.len();
            record::encode::<P>(key.borrow(), value.as_ref().map(Borrow::borrow), &mut contents);
            check_length(contents.len() - before)?;
            let asked = contents.len() as u64;
            if asked > BATCH_BYTES_MAX {
                return Err(Error::TooLarge { of: "bytes", asked, limit: BATCH_BYTES_MAX });
            }
        }
        Ok(contents)
    }

    /// Adds the record of a batch to the log, and applies its writes, while no other thread writes. Returns the end of the record.
    fn apply_batch(
        &self,
        log: &Log,
        alone: Alone<'_>,
        writes: &[BatchWrite<P>],
        contents: &[u8],
        apply: impl FnOnce() -> bwtree::Result<()>,
    ) -> Result<u64> {
        let entry = log.add(contents)?;
        let end = entry.end;
        writes.iter().for_each(|(key, _)| self.marks.note::<P::Key>(key.borrow(), end));
        if let Err(error) = alone.apply(apply) {
            // A2 excludes this. If it happens all the same, half of a batch must not become durable.
            log.fail();
            drop(entry);
            return Err(self.refused(error));
        }
        entry.commit();
        self.counts.leaves(thread(), writes.len() as u64);
        self.counts.put(thread(), record::pair_bytes(contents.len(), writes.len()));
        Ok(end)
    }

    /// Removes all keys, in steps that are batches.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub fn clear(&self) -> Result<()> {
        loop {
            let mut cursor = self.tree.iter();
            let keys: Vec<BatchWrite<P>> = cursor.by_ref().take(1000).map(|(key, _)| (key, None)).collect();
            if let Some(error) = cursor.take_error() {
                return Err(self.refused(error));
            }
            if keys.is_empty() {
                return self.commit();
            }
            self.batch(keys, &[], false)?;
        }
    }
}

fn bytes_of<P: Pairs>(value: &P::Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    P::write_value(value, &mut bytes);
    bytes
}
