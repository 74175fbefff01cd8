//! Lookups, beside the writer.
//!
//! A reader notes `changes`, finds the leaf, looks at its stripe, reads, and looks again: at the stripe, for what was read, and at
//! `changes`, for whether this was the leaf (C1).

use crate::schema::Schema;
use pmem::canary::{Canary, sings};
use pmem::stripe::Version;
use pmem::sync::{Ordering, yield_now};
use pmem::{Error, Result};

use super::core::{KeyOf, LeafList, SchemaOf, ValueBufOf};
use crate::group::Life;

/// Keys whose leaves are asked for before they are looked at.
const LANES: usize = 16;

/// A leaf as a reader found it.
pub struct Seen {
    /// Its address.
    pub leaf: u64,
    /// The first look at it.
    pub version: Version,
    changes: u64,
}

/// Lookups of an index. See the module's head.
pub trait Reads: LeafList {
    /// The writer's leaf for a key.
    ///
    /// # Errors
    /// `Corrupt` if there is no leaf.
    fn sound_leaf_of(&self, key: &KeyOf<Self>) -> Result<u64> {
        let leaf = self.leaf_of(key, false);
        if self.is_leaf(leaf) { Ok(leaf) } else { Err(Error::Corrupt { what: "leaf", at: leaf }) }
    }

    /// A reader's first look at the leaf that `choose` finds.
    #[inline]
    fn see(&self, choose: impl Fn() -> u64) -> Seen {
        let changes = self.settled_changes();
        let leaf = choose();
        Seen { leaf, version: self.stripes.read(leaf), changes }
    }

    /// Number of changes so far, when none is half done.
    #[inline]
    fn settled_changes(&self) -> u64 {
        let mut changes = self.changes.load(Ordering::Acquire);
        while changes & 1 == 1 && !sings(Canary::Settled) && !self.stripes.is_abandoned() {
            // A few words are being moved; but whoever moves them may have lost his processor.
            yield_now();
            changes = self.changes.load(Ordering::Acquire);
        }
        changes
    }

    /// A reader's second look.
    #[inline]
    fn is_good(&self, seen: &Seen) -> bool {
        // A change that a panic cut short is half done for good.
        let is_settled = seen.changes & 1 == 0 || !self.stripes.is_abandoned();
        self.stripes.check(seen.version)
            && is_settled
            && (self.changes.load(Ordering::Relaxed) == seen.changes || sings(Canary::Changes))
    }

    /// Copies the value of `key` into `value` (if given); false if the key is absent.
    ///
    /// # Errors
    /// `Corrupt` if the leaf or the record is damaged.
    fn get(&self, key: &KeyOf<Self>, mut value: Option<&mut ValueBufOf<Self>>) -> Result<bool> {
        let found = self.get_durable(key, value.as_deref_mut())?;
        if self.images.is_running() {
            return Ok(self.images.before(key, value).unwrap_or(found));
        }
        Ok(found)
    }

    /// Looks for a key and answers when what was read is durable.
    fn get_durable(&self, key: &KeyOf<Self>, mut value: Option<&mut ValueBufOf<Self>>) -> Result<bool> {
        let Some(pending) = &self.pending else { return Ok(self.look(key, value)?.0) };
        loop {
            let failed = pending.has_failed();
            let (found, leaf) = self.look(key, value.as_deref_mut())?;
            if failed || !pending.may_wait_for_node(leaf) {
                return Ok(found);
            }
            match self.wait_for_key(pending, SchemaOf::<Self>::hash(key)) {
                Some(ticket) if self.settle(pending, ticket).is_err() => {} // it was taken back
                _ => return Ok(found),
            }
        }
    }

    /// Values of these keys in their order, until `give` returns false. Of each atomic batch all is seen or nothing.
    ///
    /// # Errors
    /// As [`Reads::get`].
    fn get_each(
        &self,
        keys: &[&KeyOf<Self>],
        give: &mut dyn FnMut(Option<ValueBufOf<Self>>) -> bool,
    ) -> Result<()> {
        let now = self.images.view();
        for some in keys.chunks(LANES) {
            self.prefetch(some);
            for key in some {
                let mut value = ValueBufOf::<Self>::default();
                let found = self.get_durable(key, Some(&mut value))?.then_some(value);
                // After the validation: a batch that shows in what was read has its images by now.
                let found = now.replaced(key)?.unwrap_or(found);
                if !give(found) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Looks for a key, durable or not; and where.
    fn look(&self, key: &KeyOf<Self>, mut value: Option<&mut ValueBufOf<Self>>) -> Result<(bool, u64)> {
        let medium = self.region.medium();
        let mut tries = self.stripes.tries();
        loop {
            let changes = self.settled_changes();
            let first_look = |leaf| Seen { leaf, version: self.stripes.read(leaf), changes };
            let (seen, entry, is_leaf) = self.entry_for(key, first_look);
            let leaf = seen.leaf;
            let sound = match (&entry, &mut value) {
                (Some(entry), Some(value)) => SchemaOf::<Self>::read_value(medium, entry, value),
                _ => true,
            };
            if !self.is_good(&seen) {
                tries.fail()?;
                continue;
            }
            return match (is_leaf, sound) {
                (true, true) => Ok((entry.is_some(), leaf)),
                (false, _) => Err(Error::Corrupt { what: "leaf", at: leaf }),
                (_, false) => {
                    Err(Error::Corrupt { what: "record", at: entry.map_or(0, |entry| entry.payload) })
                }
            };
        }
    }

    /// Has the processor bring in what looks for these keys begin with.
    fn prefetch(&self, keys: &[&KeyOf<Self>]) {
        for key in keys {
            self.prefetch_for(key);
        }
    }
}

impl<T: LeafList> Reads for T {}
