//! The rebuild of the inner nodes, in small steps, concurrent with reads and writes.
//!
//! A *parent* is an inner node of the lowest level: its entries reference leaves. An insert or update that finds no space in its leaf
//! begins a rebuild if the leaf's parent is three quarters full, or if there are several parents and the index has fewer than a quarter of
//! the leaves that it had at the last build. Each write then copies the entries of some old parents into new inner nodes. When all entries
//! are copied, the new inner nodes replace the old ones. A write that adds, replaces or removes a leaf during the rebuild changes the old
//! inner nodes. If the rebuild has already copied the leaf's parent, the write changes the new inner nodes, too. If the new inner nodes
//! have no space for the change, the writer drops them, and a later write begins a new rebuild. If the rebuild has not reached the parent
//! yet, it copies the change later.
//!
//! So an insert usually does not wait for a rebuild. After a rebuild, parents are half full. When the next rebuild begins, the last quarter
//! of the parent is usually enough for the leaf splits until the rebuild ends. If a parent becomes full, the writer completes the rebuild
//! before it adds the leaf. [`Paths::hurried`](crate::index::Paths) counts these cases.

use index::leaf_list::bound::bound;
use index::leaf_list::prelude::*;
use index::{Schema, WriteOptions};
use pmem::{Medium, Result};

use crate::index::{NvTree, Writer};
use crate::inner::{Inner, Place};
use crate::leaf::Leaf;

/// Maximum number of operations until a rebuild ends, whatever the number of parents.
const OPERATIONS: usize = 1024;

/// New inner nodes that are being built.
pub(crate) struct Rebuild {
    inner: Inner,
    /// The next parent of the old nodes to take over.
    next: usize,
}

/// A change of the leaves, for the search structure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A leaf replaces another leaf.
    Replaced(u64),
    /// A leaf is added after another one, never as the first.
    Behind(u64),
    /// A leaf is removed.
    Gone,
}

/// The common prefix of all byte strings from `first` to `last`.
fn common(first: &[u8], last: &[u8]) -> Vec<u8> {
    first.iter().zip(last).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
}

/// The common prefix of the bounds from `first` to `last`.
pub(crate) fn begin_of<S: Schema>(first: &S::KeyBuf, last: &S::KeyBuf) -> Vec<u8> {
    if S::PLAIN {
        return Vec::new();
    }
    common(S::key_bytes(S::borrow(first)).as_ref(), S::key_bytes(S::borrow(last)).as_ref())
}

impl<M: Medium, S: Schema> NvTree<M, S> {
    /// The place of the leaf for a key; if `below` is set, of the leaf for the keys strictly below it.
    #[inline]
    pub(crate) fn place_in(&self, inner: &Inner, key: &S::Key, below: bool) -> Place {
        let medium = self.region.medium();
        inner.find::<S>(key, below, |leaf| {
            let min = Leaf(leaf).min(medium);
            let order = if min == 0 {
                std::cmp::Ordering::Less
            } else {
                pmem::record::compare_key(medium, min, S::key_bytes(key).as_ref())
            };
            order.is_gt() || (below && order.is_eq())
        })
    }

    /// The bound of the leaf at a place.
    fn bound_at(&self, inner: &Inner, place: Place) -> Result<S::KeyBuf> {
        let medium = self.region.medium();
        bound::<M, S>(medium, Leaf(inner.leaf(place)).min(medium))
    }

    fn begin_rebuild(&self, old: &Inner) -> Rebuild {
        let ends = old.behind((0, 0)).map(|second| (second, old.last()));
        let begin = ends.and_then(|(second, last)| {
            let (second, last) = (self.bound_at(old, second).ok()?, self.bound_at(old, last).ok()?);
            Some(begin_of::<S>(&second, &last))
        });
        let parents = old.leaves() / (self.space / 2) + 8;
        let begin = begin.unwrap_or_default();
        Rebuild { inner: Inner::with_capacity(begin, parents + parents / 8, self.space), next: 0 }
    }

    /// Takes over up to `parents` parents. True if none remains.
    ///
    /// # Errors
    /// `Corrupt` if the bound of a leaf cannot be read.
    fn take_over(&self, rebuild: &mut Rebuild, old: &Inner, parents: usize) -> Result<bool> {
        for _ in 0..parents {
            if rebuild.next == old.parents() {
                break;
            }
            for entry in 0..old.entries_of(rebuild.next) {
                let place = (rebuild.next, entry);
                let word = if S::PLAIN || old.begin() == rebuild.inner.begin() || place == (0, 0) {
                    old.word(place.0, place.1)
                } else {
                    let key = self.bound_at(old, place)?;
                    rebuild.inner.word_of::<S>(S::borrow(&key))
                };
                rebuild.inner.push(word, old.leaf(place));
            }
            rebuild.next += 1;
        }
        Ok(rebuild.next == old.parents())
    }

    /// Continues the running rebuild.
    pub(crate) fn rebuild_some(&self, writer: &mut Writer) {
        if writer.rebuild.is_some() {
            let step = 1 + self.inner().parents() / OPERATIONS;
            // If a bound cannot be read, the old inner nodes stay, and reads of the bound report the damage.
            let _ = self.rebuild_on(writer, step);
        }
    }

    /// Takes over some parents. True if the rebuild has ended.
    fn rebuild_on(&self, writer: &mut Writer, parents: usize) -> Result<bool> {
        let old = self.inner();
        let Some(mut rebuild) = writer.rebuild.take() else { return Ok(true) };
        if !self.take_over(&mut rebuild, &old, parents)? {
            writer.rebuild = Some(rebuild);
            return Ok(false);
        }
        rebuild.inner.finish();
        // The old and the new inner nodes lead to the same leaves, so no reader has to retry.
        self.set_inner(rebuild.inner);
        writer.turnover.rebuilds += 1;
        Ok(true)
    }

    /// Makes space for another leaf in the parent of a key's leaf. Returns the leaf's place.
    ///
    /// # Errors
    /// `Corrupt` if the bound of a leaf cannot be read.
    pub(crate) fn make_space_above(&self, writer: &mut Writer, key: &S::Key) -> Result<Place> {
        loop {
            let inner = self.inner();
            let place = self.place_in(&inner, key, false);
            if writer.rebuild.is_none() && inner.wants_rebuild(place.0) {
                writer.rebuild = Some(self.begin_rebuild(&inner));
            }
            if !inner.is_full(place.0) {
                return Ok(place);
            }
            writer.hurried += 1;
            while !self.rebuild_on(writer, usize::MAX)? {}
        }
    }

    /// Applies a change at a place, whose bound is `min`, to the inner nodes, and to the new ones if their build has passed the place.
    /// `new` is the bound of an added leaf. The versions of all changed leaves are locked.
    pub(crate) fn show(
        &self,
        writer: &mut Writer,
        (place, min): (Place, &S::Key),
        change: Change,
        new: &S::Key,
    ) {
        let inner = self.inner();
        if let Some(rebuild) = writer.rebuild.take_if(|rebuild| place.0 < rebuild.next) {
            let there = self.place_in(&rebuild.inner, min, false);
            let is_there = rebuild.inner.leaf(there) == inner.leaf(place);
            // If the change does not fit, the rebuild is dropped. A new one begins when it is due.
            if is_there && apply::<S>(&rebuild.inner, there, change, new) {
                writer.rebuild = Some(rebuild);
            }
        }
        self.changes.begin();
        apply::<S>(&inner, place, change, new);
        self.changes.end();
    }

    /// Rebuilds the inner nodes at once. Completes a running rebuild.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`; `Corrupt` if the bound of a leaf cannot be read; the errors of [`Life::commit`].
    pub fn rebuild(&self) -> Result<()> {
        let mut writer = self.enter(0)?;
        if writer.rebuild.is_none() {
            writer.rebuild = Some(self.begin_rebuild(&self.inner()));
        }
        while !self.rebuild_on(&mut writer, usize::MAX)? {}
        self.leave(writer, WriteOptions::default())
    }
}

/// Applies a change at a place. False if there is no space for it.
fn apply<S: Schema>(inner: &Inner, place: Place, change: Change, new: &S::Key) -> bool {
    match change {
        Change::Replaced(leaf) => inner.replace(place, leaf),
        Change::Behind(_) if inner.is_full(place.0) => return false,
        Change::Behind(leaf) => inner.insert_behind(place, inner.word_of::<S>(new), leaf),
        Change::Gone if place == (0, 0) || inner.entries_of(place.0) < 2 => return false,
        Change::Gone => inner.remove(place),
    }
    true
}
