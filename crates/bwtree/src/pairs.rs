//! What keys and values are: one trait, so that the tree is written once.
//!
//! A leaf is a run of records, sorted by their keys; an inner page has a run of separators and one more child. How these lie in memory
//! is a kind of pairs' own affair.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt::Debug;

use crate::error::Result;
use crate::record::{Dead, Kept};

/// Bytes that a record takes in a leaf: two words, or a slot.
pub(crate) const RECORD_BYTES: usize = 16;

/// Changes of one leaf in one delta: whoever looks for a key meets one line or three, and not a node for each change. Each key is in it
/// once.
pub trait Group<P: Pairs>: Sized + Debug + Send + Sync {
    /// A group of those before and one more change, which takes the place of an earlier one of its key; and that one. `None` if they
    /// are too many.
    fn with<'a>(
        before: Option<&'a Self>,
        change: P::Record<'_>,
        word: Kept,
    ) -> Option<(Self, Option<P::Record<'a>>)>;
    /// What became of a key, if something did.
    fn find(&self, key: &P::Key) -> Option<P::Record<'_>>;
    /// A change; the first is 0.
    fn get(&self, i: usize) -> Option<P::Record<'_>>;
    /// How many changes there are.
    fn count(&self) -> usize;
}

/// Changes in front of a leaf, the newest first.
#[derive(Debug)]
pub struct Changes<'a, P: Pairs>(pub(crate) Vec<P::Record<'a>>);

impl<'a, P: Pairs> Changes<'a, P> {
    /// One for each key, the newest, in order; and the others.
    pub(crate) fn sorted(self) -> (Vec<P::Record<'a>>, Vec<P::Record<'a>>) {
        let (mut changes, mut dead) = (self.0, Vec::new());
        // Stable: of one key the newest is first.
        changes.sort_by(|a, b| P::record_key(*a).cmp(P::record_key(*b)));
        changes.dedup_by(|later, first| {
            let is_same = P::record_key(*later) == P::record_key(*first);
            if is_same {
                dead.push(*later);
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
    /// Changes of one leaf that stand in one delta.
    type Group: Group<Self>;
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

    /// A record of these, whose lengths were checked.
    fn fresh(key: &Self::Key, value: Option<&Self::Value>) -> Self::Fresh;
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
    /// A run of these records, in a page of these bounds.
    fn leaf(
        records: &[Self::Record<'_>],
        low: Option<&Self::Key>,
        high: Option<&Self::Key>,
        word: Kept,
    ) -> Self::Leaf;
    /// A run with these changes, in a page of the same bounds; and what of both is not in it.
    fn merged<'a>(
        leaf: &'a Self::Leaf,
        changes: Changes<'a, Self>,
        word: Kept,
    ) -> (Self::Leaf, Vec<Self::Record<'a>>);
    /// How many records a run has.
    fn len(leaf: &Self::Leaf) -> usize;
    /// A record of a run.
    fn at(leaf: &Self::Leaf, i: usize) -> Self::Record<'_>;
    /// The record of a key that may be in the page, if it is.
    fn lookup<'a>(leaf: &'a Self::Leaf, key: &Self::Key) -> Option<Self::Record<'a>>;
    /// Bytes of memory behind a run of records, without what lies outside of pages.
    fn leaf_memory(leaf: &Self::Leaf) -> usize;

    /// A run of these separators, in a page of these bounds.
    fn separators(keys: &[&Self::Key], low: Option<&Self::Key>, high: Option<&Self::Key>) -> Self::Keys;
    /// How many separators a run has.
    fn count(keys: &Self::Keys) -> usize;
    /// One of a run.
    fn separator_at(keys: &Self::Keys, i: usize) -> &Self::Key;
    /// How many of a run are at or below a key that may be in the page.
    fn not_above(keys: &Self::Keys, key: &Self::Key) -> usize;
    /// How many of a run are below a key that may be in the page, or is where it ends.
    fn below(keys: &Self::Keys, key: &Self::Key) -> usize;

    /// A key that bounds pages.
    fn fence(key: &Self::Key) -> Self::Fence;
    /// How one compares with a key.
    fn compare(fence: &Self::Fence, key: &Self::Key) -> Ordering;
    /// Bytes that a separator takes in a page.
    fn key_bytes(key: &Self::Key) -> usize;
    /// Bytes of memory behind a run of separators.
    fn keys_memory(keys: &Self::Keys) -> usize;
    /// Bytes of memory behind a fence.
    fn fence_memory(fence: &Self::Fence) -> usize;
}

/// Where somebody wants to go in the order of keys.
pub(crate) trait Target<P: Pairs>: Copy {
    /// True if it is at or to the right of the fence.
    fn admits(self, fence: &P::Fence) -> bool;
    /// How many keys of a run are fences that it is not left of.
    fn admitted(self, keys: &P::Keys) -> usize;
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
    fn admitted(self, keys: &P::Keys) -> usize {
        P::not_above(keys, self.0)
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
    fn admitted(self, keys: &P::Keys) -> usize {
        match self {
            Self::At(key) => P::not_above(keys, key),
            Self::Before(key) => P::below(keys, key),
            Self::First => 0,
            Self::Last => P::count(keys),
        }
    }
}
