//! What keys and values are: one trait, so that the tree is written once.
//!
//! A leaf is a run of records, sorted by their keys; an inner page has a run of separators and one more child. How these lie in memory
//! is a kind of pairs' own affair.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt::Debug;

use crate::error::Result;
use crate::pool::{Block, Space};
use crate::record::{Dead, Kept};

/// Bytes that a record takes in a leaf: two words, or a slot.
pub(crate) const RECORD_BYTES: usize = 16;

/// Where a key is in a run of records, or would be: a change has it noted, so that who makes the next run does not look for it again
/// [OpenBw-Tree §3.2].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot(u32);

impl Spot {
    #[inline(always)]
    pub(crate) fn new(found: std::result::Result<usize, usize>) -> Self {
        // A key that would be in front of another is before it in the order of spots, too. Pages have up to 16 MiB.
        Self(found.map_or_else(|at| (at as u32) << 1, |at| (at as u32) << 1 | 1))
    }

    /// The records from `.0` on, below `.1`, are those of the key.
    #[inline(always)]
    pub(crate) fn records(self) -> (usize, usize) {
        let at = (self.0 >> 1) as usize;
        (at, at + usize::from(self.is_there()))
    }

    /// True if a record of the key is in the run.
    #[inline(always)]
    pub(crate) fn is_there(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Changes beside a leaf, the newest first, with their spots in it.
#[derive(Debug)]
pub struct Changes<'a, P: Pairs>(pub(crate) Vec<Spotted<'a, P>>);

/// A record, and where its key is in a leaf.
pub(crate) type Spotted<'a, P> = (Spot, <P as Pairs>::Record<'a>);

impl<'a, P: Pairs> Changes<'a, P> {
    /// One for each key, the newest, in order; and the records of the others.
    pub(crate) fn sorted(self) -> (Vec<Spotted<'a, P>>, Vec<P::Record<'a>>) {
        let (mut changes, mut dead) = (self.0, Vec::new());
        // Keys of one record are the same; of keys between two records the order is to be seen.
        let compare = |a: &Spotted<'a, P>, b: &Spotted<'a, P>| {
            a.0.cmp(&b.0).then_with(|| {
                if a.0.is_there() { Ordering::Equal } else { P::record_key(a.1).cmp(P::record_key(b.1)) }
            })
        };
        // Stable: of one key the newest is first.
        changes.sort_by(compare);
        changes.dedup_by(|later, first| {
            let is_same = compare(later, first).is_eq();
            if is_same {
                dead.push(later.1);
            }
            is_same
        });
        (changes, dead)
    }
}

/// A kind of keys and values. Runs are made of what is sorted and unique; a run is never changed.
pub trait Pairs: Sized + Debug + Send + Sync + 'static {
    /// A key.
    type Key: ?Sized + Ord + Debug;
    /// A key that is owned.
    type KeyBuf: Clone + Ord + Debug + Borrow<Self::Key> + Send + Sync;
    /// A key that bounds pages.
    type Fence: Clone + Ord + Debug + Borrow<Self::Key> + Send + Sync;
    /// A value.
    type Value: ?Sized;
    /// A value that is owned.
    type ValueBuf: Clone + Debug + Borrow<Self::Value> + Send + Sync;
    /// A key with a value; or, without one, that there is none.
    type Record<'a>: Copy + Debug;
    /// A record that is in no page yet.
    type Fresh: Debug;
    /// A change of a leaf's records as it stands beside the leaf.
    type Change: Copy + Debug + Send + Sync;
    /// Something of a key that tells nearly all others from it.
    type Hint: Copy;
    /// A run of records.
    type Leaf: Debug + Send + Sync;
    /// A run of separators.
    type Keys: Debug + Send + Sync;

    /// Refuses keys that are too long.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong).
    fn check_key(key: &Self::Key) -> Result<()>;
    /// Refuses values that are too long.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong).
    fn check_value(value: &Self::Value) -> Result<()>;

    /// A copy of a key.
    fn own_key(key: &Self::Key) -> Self::KeyBuf;
    /// A copy of a value.
    fn own_value(value: &Self::Value) -> Self::ValueBuf;
    /// A key at or below `right` and above `left`, as short as there is one.
    fn separator(left: &Self::Key, right: &Self::Key) -> Self::Fence;

    /// Bytes of the block that a record of these needs, outside of pages; 0 if it needs none.
    fn fresh_space(key: &Self::Key, value: Option<&Self::Value>) -> usize;
    /// A record of these, whose lengths were checked, in such a block, if it needs one.
    fn fresh(key: &Self::Key, value: Option<&Self::Value>, block: Option<Block>) -> Self::Fresh;
    /// A look at it.
    fn record(fresh: &Self::Fresh) -> Self::Record<'_>;
    /// A record's key.
    fn record_key<'a>(record: Self::Record<'a>) -> &'a Self::Key;
    /// Its value, if there is one.
    fn record_value<'a>(record: Self::Record<'a>) -> Option<&'a Self::Value>;
    /// Bytes of memory that it takes by itself, outside of pages.
    fn record_memory(record: Self::Record<'_>) -> usize;
    /// What is retired when a record is taken out of the tree. `None`: all of it is in pages.
    fn dead(record: Self::Record<'_>) -> Option<Dead>;
    /// A change to this record.
    fn change(record: Self::Record<'_>, word: Kept) -> Self::Change;
    /// The record that a change made, if it is there; or, that there is none.
    fn changed(change: &Self::Change, is_there: bool) -> Self::Record<'_>;
    /// See [`Hint`](Self::Hint).
    fn hint(key: &Self::Key) -> Self::Hint;
    /// True if a change is of this key, whose hint this is.
    fn is_of(change: &Self::Change, hint: Self::Hint, key: &Self::Key) -> bool;
    /// Bytes that a run of so many records takes behind a page's node, at most.
    fn leaf_space(records: usize) -> usize;
    /// A run of these records, in a page of these bounds, in a space of so many bytes.
    fn leaf(
        records: &[Self::Record<'_>],
        low: Option<&Self::Key>,
        high: Option<&Self::Key>,
        space: &mut Space,
        word: Kept,
    ) -> Self::Leaf;
    /// A run with these changes, in a page of the same bounds; and what of both is not in it. The space is one for all of them.
    fn merged<'a>(
        leaf: &'a Self::Leaf,
        changes: Changes<'a, Self>,
        space: &mut Space,
        word: Kept,
    ) -> (Self::Leaf, Vec<Self::Record<'a>>);
    /// How many records a run has.
    fn len(leaf: &Self::Leaf) -> usize;
    /// A record of a run.
    fn at(leaf: &Self::Leaf, i: usize) -> Self::Record<'_>;
    /// Where a key that may be in the page is.
    fn spot(leaf: &Self::Leaf, key: &Self::Key) -> Spot;
    /// The record of a key that may be in the page, if it is.
    fn lookup<'a>(leaf: &'a Self::Leaf, key: &Self::Key) -> Option<Self::Record<'a>>;

    /// Bytes that a run of these separators takes behind a page's node, at most.
    fn keys_space<'a>(keys: impl Iterator<Item = &'a Self::Key>) -> usize;
    /// A run of these separators, in a page of these bounds, in a space of so many bytes.
    fn separators(
        keys: &[&Self::Key],
        low: Option<&Self::Key>,
        high: Option<&Self::Key>,
        space: &mut Space,
    ) -> Self::Keys;
    /// How many separators a run has.
    fn count(keys: &Self::Keys) -> usize;
    /// One of a run.
    fn separator_at(keys: &Self::Keys, i: usize) -> &Self::Key;
    /// How many of a run are at or below a key that may be in the page. `about` is told about how many before it is known.
    fn not_above(keys: &Self::Keys, key: &Self::Key, about: impl FnOnce(usize)) -> usize;
    /// How many of a run are below a key that may be in the page, or is where it ends.
    fn below(keys: &Self::Keys, key: &Self::Key) -> usize;

    /// A key that bounds pages.
    fn fence(key: &Self::Key) -> Self::Fence;
    /// How one compares with a key.
    fn compare(fence: &Self::Fence, key: &Self::Key) -> Ordering;
    /// Bytes that a separator takes in a page.
    fn key_bytes(key: &Self::Key) -> usize;
    /// Bytes of memory behind a fence.
    fn fence_memory(fence: &Self::Fence) -> usize;
}

/// Where somebody wants to go in the order of keys.
pub(crate) trait Target<P: Pairs>: Copy {
    /// True if it is at or to the right of the fence.
    fn admits(self, fence: &P::Fence) -> bool;
    /// How many keys of a run are fences that it is not left of. `about` may be told about how many before it is known.
    fn admitted(self, keys: &P::Keys, about: impl FnOnce(usize)) -> usize;
}

/// At a key.
#[derive(Debug)]
pub(crate) struct At<'a, P: Pairs>(pub &'a P::Key);

impl<P: Pairs> Clone for At<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Pairs> Copy for At<'_, P> {}

impl<P: Pairs> Target<P> for At<'_, P> {
    #[inline(always)]
    fn admits(self, fence: &P::Fence) -> bool {
        P::compare(fence, self.0).is_le()
    }
    #[inline(always)]
    fn admitted(self, keys: &P::Keys, about: impl FnOnce(usize)) -> usize {
        P::not_above(keys, self.0, about)
    }
}

/// At a key, just before one, or at an end.
#[derive(Debug)]
pub(crate) enum Place<'a, P: Pairs> {
    /// At a key, there or not.
    At(&'a P::Key),
    /// Behind all keys below this one.
    Before(&'a P::Key),
    /// Before all keys.
    First,
    /// Behind all keys.
    Last,
}

impl<P: Pairs> Clone for Place<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Pairs> Copy for Place<'_, P> {}

impl<P: Pairs> Target<P> for Place<'_, P> {
    fn admits(self, fence: &P::Fence) -> bool {
        match self {
            Self::At(key) => P::compare(fence, key).is_le(),
            Self::Before(key) => P::compare(fence, key).is_lt(),
            Self::First => false,
            Self::Last => true,
        }
    }
    fn admitted(self, keys: &P::Keys, about: impl FnOnce(usize)) -> usize {
        match self {
            Self::At(key) => P::not_above(keys, key, about),
            Self::Before(key) => P::below(keys, key),
            Self::First => 0,
            Self::Last => P::count(keys),
        }
    }
}
