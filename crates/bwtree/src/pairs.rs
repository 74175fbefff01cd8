//! What keys and values are: one trait, so that the tree is written once.
//!
//! A base page is a sorted run of keys with as many values (a leaf) or one more child than keys (an inner page). How a run lies
//! in memory is a kind of pairs' own affair.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt::Debug;

use crate::error::Result;

/// A key where it happens to be.
#[derive(Debug)]
pub enum KeyRef<'a, P: Pairs> {
    /// In a run, at an index.
    In(&'a P::Keys, usize),
    /// By itself.
    Whole(&'a P::KeyBuf),
}

/// A value where it happens to be.
#[derive(Debug)]
pub enum ValueRef<'a, P: Pairs> {
    /// In a run, at an index.
    In(&'a P::Values, usize),
    /// In a delta.
    Held(&'a P::Held),
}

impl<P: Pairs> Clone for KeyRef<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Pairs> Copy for KeyRef<'_, P> {}
impl<P: Pairs> Clone for ValueRef<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Pairs> Copy for ValueRef<'_, P> {}

impl<P: Pairs> KeyRef<'_, P> {
    /// How it compares with another key.
    pub fn compare(self, key: &P::Key) -> Ordering {
        match self {
            KeyRef::In(keys, i) => P::compare(keys, i, key),
            KeyRef::Whole(own) => own.borrow().cmp(key),
        }
    }

    /// A copy.
    pub fn to_buf(self) -> P::KeyBuf {
        match self {
            KeyRef::In(keys, i) => P::key_at(keys, i),
            KeyRef::Whole(key) => key.clone(),
        }
    }

    /// Bytes that it takes in a page.
    pub fn bytes(self) -> usize {
        match self {
            KeyRef::In(keys, i) => P::key_bytes_at(keys, i),
            KeyRef::Whole(key) => P::key_bytes(key.borrow()),
        }
    }
}

impl<'a, P: Pairs> ValueRef<'a, P> {
    /// The value.
    pub fn get(self) -> &'a P::Value {
        match self {
            ValueRef::In(values, i) => P::value_at(values, i),
            ValueRef::Held(held) => P::held(held),
        }
    }

    /// Bytes that it takes in a page.
    pub fn bytes(self) -> usize {
        match self {
            ValueRef::In(values, i) => P::value_bytes_at(values, i),
            ValueRef::Held(held) => P::held_bytes(held),
        }
    }
}

/// Changes of one leaf in one delta: whoever looks for a key meets one line or three, and not a node for each change. Each key is in it
/// once.
pub trait Group<P: Pairs>: Sized + Debug + Send + Sync {
    /// A group of those before and one more change, which takes the place of an earlier one of its key. `None` if they are too many, or
    /// there are no groups.
    fn with(before: Option<&Self>, key: &P::Key, value: Option<&P::Held>) -> Option<Self>;
    /// What a key was changed to, if it was.
    fn find(&self, key: &P::Key) -> Option<Option<&P::Held>>;
    /// A change; the first is 0.
    fn get(&self, i: usize) -> Option<(&P::KeyBuf, Option<&P::Held>)>;
    /// How many changes there are.
    fn count(&self) -> usize;
}

/// No groups.
impl<P: Pairs> Group<P> for std::convert::Infallible {
    fn with(_before: Option<&Self>, _key: &P::Key, _value: Option<&P::Held>) -> Option<Self> {
        None
    }
    fn find(&self, _key: &P::Key) -> Option<Option<&P::Held>> {
        match *self {}
    }
    fn get(&self, _i: usize) -> Option<(&P::KeyBuf, Option<&P::Held>)> {
        match *self {}
    }
    fn count(&self) -> usize {
        match *self {}
    }
}

/// A kind of keys and values. Runs are made of what is sorted and unique; a run is never changed.
pub trait Pairs: Sized + Debug + Send + Sync + 'static {
    /// A key.
    type Key: ?Sized + Ord + Debug;
    /// A key that is owned.
    type KeyBuf: Clone + Ord + Debug + Borrow<Self::Key> + Send + Sync;
    /// A value.
    type Value: ?Sized;
    /// A value that is owned.
    type ValueBuf: Clone + Debug + Borrow<Self::Value> + Send + Sync;
    /// A value in a delta.
    type Held: Debug + Send + Sync;
    /// Changes of one leaf that stand in one delta; of a kind that has no groups, nothing.
    type Group: Group<Self>;
    /// A run of keys.
    type Keys: Debug + Send + Sync;
    /// A run of values.
    type Values: Debug + Send + Sync;

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
    fn separator(left: KeyRef<'_, Self>, right: KeyRef<'_, Self>) -> Self::KeyBuf;

    /// A value for a delta. With more bytes than `large` it will stay outside of pages.
    fn hold(value: &Self::Value, large: usize) -> Self::Held;
    /// The value in a delta.
    fn held(held: &Self::Held) -> &Self::Value;

    /// A run of these keys.
    fn keys_of(keys: &[KeyRef<'_, Self>]) -> Self::Keys;
    /// How many keys a run has.
    fn count(keys: &Self::Keys) -> usize;
    /// Where a key is, or would be.
    fn find(keys: &Self::Keys, key: &Self::Key) -> std::result::Result<usize, usize>;
    /// The value of a key in a leaf's runs.
    #[inline(always)]
    fn lookup<'a>(
        keys: &'a Self::Keys,
        values: &'a Self::Values,
        key: &Self::Key,
    ) -> Option<ValueRef<'a, Self>> {
        Self::find(keys, key).ok().map(|at| ValueRef::In(values, at))
    }
    /// A leaf's runs with these changes, which are sorted, one for each key. `None`: this kind of pairs has no shorter way than record by
    /// record.
    fn merged(
        keys: &Self::Keys,
        values: &Self::Values,
        changes: &[(&Self::KeyBuf, Option<&Self::Held>)],
    ) -> Option<(Self::Keys, Self::Values)> {
        let _ = (keys, values, changes);
        None
    }
    /// How many keys of a run are at or below `key`.
    fn not_above(keys: &Self::Keys, key: &Self::Key) -> usize;
    /// How many keys of a run are below `key`.
    fn below(keys: &Self::Keys, key: &Self::Key) -> usize {
        Self::find(keys, key).unwrap_or_else(|at| at)
    }
    /// A copy of a key of a run.
    fn key_at(keys: &Self::Keys, i: usize) -> Self::KeyBuf;
    /// How a key of a run compares with another.
    fn compare(keys: &Self::Keys, i: usize, key: &Self::Key) -> Ordering;

    /// A run of these values.
    fn values_of(values: &[ValueRef<'_, Self>]) -> Self::Values;
    /// A value of a run.
    fn value_at(values: &Self::Values, i: usize) -> &Self::Value;

    /// Bytes that a key takes in a page, one more in a run or by itself.
    fn key_bytes(key: &Self::Key) -> usize;
    /// As [`key_bytes`](Self::key_bytes), of a key of a run.
    fn key_bytes_at(keys: &Self::Keys, i: usize) -> usize;
    /// Bytes that a value takes in a page.
    fn value_bytes_at(values: &Self::Values, i: usize) -> usize;
    /// Bytes that a delta's value takes in a page.
    fn held_bytes(held: &Self::Held) -> usize;

    /// Bytes of memory behind a run of keys.
    fn keys_memory(keys: &Self::Keys) -> usize;
    /// Bytes of memory behind a run of values.
    fn values_memory(values: &Self::Values) -> usize;
    /// Bytes of memory behind a key.
    fn key_memory(key: &Self::KeyBuf) -> usize;
    /// Bytes of memory behind a delta's value.
    fn held_memory(held: &Self::Held) -> usize;
}

/// Where somebody wants to go in the order of keys.
pub(crate) trait Target<P: Pairs>: Copy {
    /// True if it is at or to the right of the fence `key`.
    fn admits(self, key: &P::Key) -> bool;
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
    fn admits(self, key: &P::Key) -> bool {
        key <= self.0
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
    fn admits(self, fence: &P::Key) -> bool {
        match self {
            Self::At(key) => fence <= key,
            Self::Before(key) => fence < key,
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
