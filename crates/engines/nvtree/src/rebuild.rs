//! How inner nodes are built anew, beside use.
//!
//! When a parent of leaves has little space left, new inner nodes are made aside from the old ones, some parents with each operation,
//! and take their place when they are whole. A leaf that comes or goes meanwhile is told to both, if the making has passed its
//! place; else it is met there. So an insert does not wait for a rebuild: parents are filled to the half and a rebuild begins at three
//! quarters, which leaves as many splits as it takes. Where that does not hold it is brought to its end at once
//! ([`Paths::hurried`](crate::index::Paths)).

use index::leaf_list::bound::bound;
use index::leaf_list::prelude::*;
use index::{Schema, WriteOptions};
use pmem::{Medium, Result};

use crate::index::{NvTree, Writer};
use crate::inner::{Inner, Place};
use crate::leaf::Leaf;

/// A rebuild ends within so many operations, however many parents there are.
const OPERATIONS: usize = 1024;

/// New inner nodes in the making.
pub(crate) struct Rebuild {
    inner: Inner,
    /// The old one's parent to take over next.
    next: usize,
}

/// What became of leaves, for what leads to them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A leaf takes another's place.
    Replaced(u64),
    /// A leaf comes behind another; it must not be the first.
    Behind(u64),
    /// A leaf is gone.
    Gone,
}

/// What all keys from `first` to `last` begin with.
fn common(first: &[u8], last: &[u8]) -> Vec<u8> {
    first.iter().zip(last).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
}

/// What the bounds of these two and of all between them begin with.
pub(crate) fn begin_of<S: Schema>(first: &S::KeyBuf, last: &S::KeyBuf) -> Vec<u8> {
    if S::PLAIN {
        return Vec::new();
    }
    common(S::key_bytes(S::borrow(first)).as_ref(), S::key_bytes(S::borrow(last)).as_ref())
}

impl<M: Medium, S: Schema> NvTree<M, S> {
    /// The place of a key.
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

    /// Takes over so many parents; true when there are no more.
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

    /// Goes on with the running rebuild.
    pub(crate) fn rebuild_some(&self, writer: &mut Writer) {
        if writer.rebuild.is_some() {
            let step = 1 + self.inner().parents() / OPERATIONS;
            // A bound that cannot be read is told to whoever asks for it; the old inner nodes stay.
            let _ = self.rebuild_on(writer, step);
        }
    }

    /// Takes over some parents; true when that was the last of the rebuild.
    fn rebuild_on(&self, writer: &mut Writer, parents: usize) -> Result<bool> {
        let old = self.inner();
        let Some(mut rebuild) = writer.rebuild.take() else { return Ok(true) };
        if !self.take_over(&mut rebuild, &old, parents)? {
            writer.rebuild = Some(rebuild);
            return Ok(false);
        }
        rebuild.inner.finish();
        // Both lead to the same leaves: nobody has to look again.
        self.set_inner(rebuild.inner);
        writer.turnover.rebuilds += 1;
        Ok(true)
    }

    /// Sees to it that the parent of the leaf of a key can take one in. Returns the leaf's place.
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

    /// Tells what leads to the leaves of a change at a place, whose bound is `min`: the inner nodes, and those in the making if they know
    /// the place already. `new` is the bound of a leaf that comes. The stripes of all leaves concerned are odd.
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
            // What does not fit is too much for it: another begins when one is wanted.
            if is_there && apply::<S>(&rebuild.inner, there, change, new) {
                writer.rebuild = Some(rebuild);
            }
        }
        self.begin_change();
        apply::<S>(&inner, place, change, new);
        self.end_change();
    }

    /// Builds the inner nodes anew, at once; a running rebuild is brought to its end.
    ///
    /// # Errors
    /// `Closed`, `Failed`; `Corrupt` if the bound of a leaf cannot be read.
    pub fn rebuild(&self) -> Result<()> {
        let mut writer = self.enter(0)?;
        if writer.rebuild.is_none() {
            writer.rebuild = Some(self.begin_rebuild(&self.inner()));
        }
        while !self.rebuild_on(&mut writer, usize::MAX)? {}
        self.leave(writer, WriteOptions::default())
    }
}

/// Makes a change at a place; false if there is no space for it.
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
