//! The replay of the log at an open.
//!
//! Records set values, so they become late changes of the leaves of the checkpoint ([`bwtree::late`]): the open reads a leaf only if the log has
//! many changes of it. Records are collected and applied in the order of their keys, so such a leaf is read once. Only the last record of
//! a key counts (C2 of [`checkpoint`](crate::checkpoint)).

use std::borrow::Borrow;
use std::collections::BTreeMap;

use bwtree::Pairs;
use pmem::{Error, Result};

use crate::record;
use crate::replay::{self, Replayed};
use crate::settings::Opened;
use crate::store::Store;
use crate::sync::lock;

/// The most bytes of records that are collected.
const COLLECTED_MAX: u64 = 32 << 20;
/// Approximate bytes of memory of a collected update besides its record.
const UPDATE: u64 = 100;

impl<P: Pairs> Store<P> {
    /// Applies the records of the log from `redo` on.
    ///
    /// # Errors
    /// `Corrupt`; `Foreign`; `Io`; `NoSpace` if leaves have to be saved to keep the memory budget.
    pub(crate) fn replay(&self, redo: u64, opened: &mut Opened) -> Result<Replayed> {
        let collected_max = COLLECTED_MAX.min(self.settings.memory_bytes / 8);
        let (mut last, mut bytes) = (BTreeMap::new(), 0);
        let replayed = replay::replay(&self.place, redo, &mut |contents| {
            opened.records += 1;
            let updates = record::decode::<P>(contents)
                .ok_or(Error::Corrupt { what: "record of the commit log", at: opened.log_bytes })?;
            bytes += contents.len() as u64 + UPDATE * updates.len() as u64;
            last.extend(updates);
            if bytes > collected_max {
                bytes = 0;
                self.apply(std::mem::take(&mut last))?;
            }
            Ok(())
        })?;
        self.apply(last)?;
        opened.log_bytes = replayed.bytes;
        Ok(replayed)
    }

    fn apply(&self, updates: BTreeMap<P::KeyBuf, Option<P::ValueBuf>>) -> Result<()> {
        for (i, (key, value)) in updates.into_iter().enumerate() {
            let value = value.as_ref().map(Borrow::borrow);
            self.tree.set(key.borrow(), value, false, &()).map_err(|error| self.refused(error))?;
            if i % 256 == 255 && !self.settings.read_only {
                self.make_room(&mut lock(&self.upkeep))?;
            }
        }
        Ok(())
    }
}
