//! Lookups, concurrent with the writer.
//!
//! A reader reads the counter of structure changes ([`pmem::changes`]), finds the leaf, reads the leaf's version, and reads
//! the entry. Finally it validates: if the version is unchanged, the entry was consistent; if the counter is unchanged,
//! this was the leaf of the key.

use crate::schema::Schema;
use pmem::stripe::Version;
use pmem::{Error, Result};

use super::core::{EntryOf, KeyOf, LeafList, SchemaOf, ValueBufOf};
use crate::group::Life;

/// Number of keys whose leaves are prefetched together.
pub(super) const LANES: usize = 16;

/// A leaf, with the state that a reader must validate.
pub struct Seen {
    /// The leaf's address.
    pub leaf: u64,
    /// The leaf's version, from before the read.
    pub version: Version,
    changes: u64,
}

/// Lookups of an index. See the module's head.
pub trait Reads: LeafList {
    /// The leaf of a key, for the writer.
    ///
    /// # Errors
    /// `Corrupt` if there is no leaf.
    fn sound_leaf_of(&self, key: &KeyOf<Self>) -> Result<u64> {
        let leaf = self.leaf_of(key, false);
        if self.is_leaf(leaf) { Ok(leaf) } else { Err(Error::Corrupt { what: "leaf", at: leaf }) }
    }

    /// Validates a read.
    #[inline]
    fn is_good(&self, seen: &Seen) -> bool {
        self.stripes.check(seen.version) && self.changes.are_unchanged(seen.changes, &self.stripes)
    }

    /// Copies the value of `key` into `value` (if given). False if the key is absent.
    ///
    /// # Errors
    /// `Corrupt` if the leaf or the record is damaged. `Failed` if the writer panicked while it changed the leaf.
    #[inline]
    fn get(&self, key: &KeyOf<Self>, mut value: Option<&mut ValueBufOf<Self>>) -> Result<bool> {
        if self.pending.is_none()
            && let Some((found, _)) = self.look_once(key, value.as_deref_mut())
            && !self.images.is_running()
        {
            return Ok(found);
        }
        self.get_again(key, value)
    }

    /// As [`Reads::get`]. Apart from the first attempt of a lookup, which almost always succeeds, so that this one stays short: lookups
    /// overlap in the processor only if each of them has few instructions.
    #[inline(never)]
    fn get_again(&self, key: &KeyOf<Self>, mut value: Option<&mut ValueBufOf<Self>>) -> Result<bool> {
        loop {
            let found = self.get_durable(key, value.as_deref_mut())?;
            if !self.images.is_running() {
                return Ok(found);
            }
            let Some((before, ticket)) = self.images.before(key, value.as_deref_mut()) else {
                return Ok(found);
            };
            // After an error it was rolled back: read again.
            if self.wait_for_image(ticket).is_ok() {
                return Ok(before);
            }
        }
    }

    /// As [`Reads::get`], without regard to a running batch. Returns when the value is durable.
    fn get_durable(&self, key: &KeyOf<Self>, value: Option<&mut ValueBufOf<Self>>) -> Result<bool> {
        self.get_durable_in(None, key, value)
    }

    /// As [`Reads::get_durable`]. `leaf` is the key's leaf with the number of changes from before it was found.
    fn get_durable_in(
        &self,
        leaf: Option<(u64, u64)>,
        key: &KeyOf<Self>,
        mut value: Option<&mut ValueBufOf<Self>>,
    ) -> Result<bool> {
        let Some(pending) = &self.pending else { return Ok(self.look_in(leaf, key, value)?.0) };
        loop {
            let failed = pending.has_failed();
            let (found, leaf) = self.look_in(leaf, key, value.as_deref_mut())?;
            if failed || !pending.may_wait_for_node(leaf) {
                return Ok(found);
            }
            match self.wait_for_key(pending, SchemaOf::<Self>::hash(key)) {
                Some(ticket) if self.wait_to_read(pending, ticket).is_err() => {} // rolled back: read again
                _ => return Ok(found),
            }
        }
    }

    /// Calls `give` with the values of these keys, in order, until `give` returns false. All or nothing of each atomic batch is visible.
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
            let (changes, mut leaves) = (self.changes.settled(&self.stripes), [0; LANES]);
            self.leaves_to_read(some, &mut leaves[..some.len()]);
            for (key, leaf) in some.iter().zip(leaves) {
                let leaf = (leaf != 0).then_some((leaf, changes));
                let mut value = ValueBufOf::<Self>::default();
                let found = self.get_durable_in(leaf, key, Some(&mut value))?.then_some(value);
                // This must follow the validation. If the value is from a batch, the batch has its images by now.
                let found = self.replaced(&now, key)?.unwrap_or(found);
                if !give(found) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Looks up a key, durable or not. Returns true if it is present, and its leaf.
    fn look(&self, key: &KeyOf<Self>, value: Option<&mut ValueBufOf<Self>>) -> Result<(bool, u64)> {
        self.look_in(None, key, value)
    }

    /// As [`Reads::look`]. `leaf` as in [`Reads::get_durable_in`].
    #[inline]
    fn look_in(
        &self,
        leaf: Option<(u64, u64)>,
        key: &KeyOf<Self>,
        mut value: Option<&mut ValueBufOf<Self>>,
    ) -> Result<(bool, u64)> {
        let found = match leaf {
            Some(at) => self.look_at(at, key, value.as_deref_mut()),
            None => self.look_once(key, value.as_deref_mut()),
        };
        found.map_or_else(|| self.look_again(key, value), Ok)
    }

    /// As [`Reads::look`], with as many attempts as it takes.
    #[inline(never)]
    fn look_again(&self, key: &KeyOf<Self>, mut value: Option<&mut ValueBufOf<Self>>) -> Result<(bool, u64)> {
        let mut tries = self.stripes.tries();
        loop {
            let changes = self.changes.settled(&self.stripes);
            let (seen, entry, is_leaf) = self.entry_for(key, |leaf| self.seen_at(leaf, changes));
            let sound = self.read_value_of(&entry, value.as_deref_mut());
            if !self.is_good(&seen) {
                tries.fail()?;
                continue;
            }
            return match (is_leaf, sound) {
                (true, true) => Ok((entry.is_some(), seen.leaf)),
                (false, _) => Err(Error::Corrupt { what: "leaf", at: seen.leaf }),
                (_, false) => {
                    Err(Error::Corrupt { what: "record", at: entry.map_or(0, |entry| entry.payload) })
                }
            };
        }
    }

    /// The state of a leaf before it is read. `changes` is the number of structure changes from before the leaf was found.
    #[inline(always)]
    fn seen_at(&self, leaf: u64, changes: u64) -> Seen {
        Seen { leaf, version: self.stripes.read(leaf), changes }
    }

    /// Copies the value of an entry, if both are given. False if the value is not sound.
    #[inline(always)]
    fn read_value_of(&self, entry: &Option<EntryOf<Self>>, value: Option<&mut ValueBufOf<Self>>) -> bool {
        match (entry, value) {
            (Some(entry), Some(value)) => SchemaOf::<Self>::read_value(self.region.medium(), entry, value),
            _ => true,
        }
    }

    /// The end of one attempt to look up a key ([`LeafList::look_once`]): copies the value and validates. `None` if the attempt failed, for
    /// whatever reason.
    #[inline(always)]
    fn look_validated(
        &self,
        seen: &Seen,
        (entry, is_leaf): (Option<EntryOf<Self>>, bool),
        value: Option<&mut ValueBufOf<Self>>,
    ) -> Option<(bool, u64)> {
        let sound = self.read_value_of(&entry, value);
        (self.is_good(seen) && is_leaf && sound).then_some((entry.is_some(), seen.leaf))
    }
}

impl<T: LeafList> Reads for T {}
