//! The replay of the log at an open.
//!
//! Records set values, so they become late changes of the leaves of the checkpoint ([`bwtree::late`]): the open reads a leaf only if the
//! log has many changes of it. Records are collected and applied in the order of their keys, so such a leaf is read once. Only the last
//! record of a key counts (C2 of [`checkpoint`](crate::checkpoint)).

use std::cmp::Ordering;

use bwtree::{Late, Pairs};
use pmem::{Error, Result};

use crate::record;
use crate::replay::{self, Replayed};
use crate::settings::Opened;
use crate::store::Store;
use crate::sync::lock;

/// The most bytes of updates that are collected.
const COLLECTED_MAX: usize = 32 << 20;

/// Updates in the order of the log.
#[derive(Default)]
struct Collected {
    /// Their keys and values.
    bytes: Vec<u8>,
    updates: Vec<Place>,
}

/// The place of an update in [`Collected::bytes`].
struct Place {
    key: u32,
    value: u32,
    end: u32,
    is_put: bool,
}

impl Collected {
    fn add(&mut self, (key, value): Late<'_>) {
        let mut add = |bytes: &[u8]| {
            self.bytes.extend(bytes);
            self.bytes.len() as u32
        };
        let (at, key_end) = (add(&[]), add(key));
        let end = add(value.unwrap_or_default());
        self.updates.push(Place { key: at, value: key_end, end, is_put: value.is_some() });
    }

    /// Bytes of memory.
    fn memory(&self) -> usize {
        self.bytes.len() + self.updates.len() * (size_of::<Place>() + size_of::<(u64, Late<'_>)>())
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.updates.clear();
    }

    /// The last update of each key, in the order of the keys.
    fn last<P: Pairs>(&self) -> Vec<Late<'_>> {
        let bytes = |from: u32, to: u32| &self.bytes[from as usize..to as usize];
        let ranked = |place: &Place| {
            let (key, value) = (bytes(place.key, place.value), bytes(place.value, place.end));
            (P::rank(key), (key, place.is_put.then_some(value)))
        };
        // The keys were read before.
        let order = |a: &[u8], b: &[u8]| P::order(a, b).unwrap_or(Ordering::Equal);
        let mut updates: Vec<(u64, Late<'_>)> = self.updates.iter().rev().map(ranked).collect();
        // A stable sort: the last update of a key stays before the others.
        updates.sort_by(|(a, (key_a, _)), (b, (key_b, _))| a.cmp(b).then_with(|| order(key_a, key_b)));
        updates.dedup_by(|(a, (key_a, _)), (b, (key_b, _))| a == b && order(key_a, key_b).is_eq());
        updates.into_iter().map(|(_, update)| update).collect()
    }
}

impl<P: Pairs> Store<P> {
    /// Applies the records of the log from `redo` on.
    ///
    /// # Errors
    /// `Corrupt`; `Foreign`; `Io`; `NoSpace` if leaves have to be saved to keep the memory budget.
    pub(crate) fn replay(&self, redo: u64, opened: &mut Opened) -> Result<Replayed> {
        let collected_max = (self.settings.memory_bytes / 4).min(COLLECTED_MAX as u64) as usize;
        let mut collected = Collected::default();
        let replayed = replay::replay(&self.place, redo, &mut |contents| {
            opened.records += 1;
            let updates = record::decode::<P>(contents)
                .ok_or(Error::Corrupt { what: "record of the commit log", at: opened.log_bytes })?;
            updates.into_iter().for_each(|update| collected.add(update));
            if collected.memory() > collected_max {
                self.apply(&collected.last::<P>())?;
                collected.clear();
            }
            Ok(())
        })?;
        self.apply(&collected.last::<P>())?;
        opened.log_bytes = replayed.bytes;
        Ok(replayed)
    }

    /// Applies updates in the order of their keys.
    fn apply(&self, mut updates: &[Late<'_>]) -> Result<()> {
        let mut rounds = 0u32;
        while let [first, rest @ ..] = updates {
            updates = match self.tree.set_late(updates).map_err(|error| self.refused(error))? {
                // The leaf is in memory.
                0 => {
                    let set = |key: &P::Key, value: Option<&P::Value>| self.tree.set(key, value, false, &());
                    record::with::<P, _>(*first, set).transpose().map_err(|error| self.refused(error))?;
                    rest
                }
                done => &updates[done..],
            };
            rounds += 1;
            if rounds.is_multiple_of(64) && !self.settings.read_only {
                match self.make_room(&mut lock(&self.upkeep)) {
                    // Without space for images the pages stay in memory.
                    Ok(()) | Err(Error::NoSpace { .. }) => {}
                    failed => failed?,
                }
            }
        }
        Ok(())
    }
}
