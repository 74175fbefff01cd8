//! The kinds of keys and values, behind one trait, so that the tree is written once.
//!
//! A leaf is a run of records, sorted by key. An inner page has a run of separators and one more child than separators. Each kind of pairs
//! decides the layout of its runs in memory.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt::Debug;

use crate::error::Result;
use crate::image::Raw;
use crate::pool::{Block, Space};
use crate::record::{Dead, Kept};

/// Bytes of a record in a leaf: two words, or one slot.
pub(crate) const RECORD_BYTES: usize = 16;

/// The position of a key in a run of records, existing or not. A change stores it, so the next consolidation does not search again
/// [OpenBw-Tree §3.2].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot(u32);

impl Spot {
    #[inline(always)]
    pub(crate) fn new(found: std::result::Result<usize, usize>) -> Self {
        // A position before an existing key orders before that key's own position. 32 bits are enough, because pages have at most 16 MiB.
        Self(found.map_or_else(|at| (at as u32) << 1, |at| (at as u32) << 1 | 1))
    }

    /// The indexes of the key's records in the run, from `.0` to before `.1`. There is at most one record.
    #[inline(always)]
    pub(crate) fn records(self) -> (usize, usize) {
        let at = (self.0 >> 1) as usize;
        (at, at + usize::from(self.is_there()))
    }

    /// True if the run has a record of the key.
    #[inline(always)]
    pub(crate) fn is_there(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Changes of a leaf, newest first, with their positions in the leaf's run.
#[derive(Debug)]
pub struct Changes<'a, P: Pairs>(pub(crate) Vec<Spotted<'a, P>>);

/// A record, and the position of its key in a leaf.
pub(crate) type Spotted<'a, P> = (Spot, <P as Pairs>::Record<'a>);

/// Compares the keys of two changes of the same leaf. Two changes at an existing record are of the same key. At a gap between records the keys
/// must be compared.
pub(crate) fn by_key<P: Pairs>(a: &Spotted<'_, P>, b: &Spotted<'_, P>) -> Ordering {
    a.0.cmp(&b.0).then_with(|| {
        if a.0.is_there() { Ordering::Equal } else { P::record_key(a.1).cmp(P::record_key(b.1)) }
    })
}

impl<'a, P: Pairs> Changes<'a, P> {
    /// The newest change of each key, in key order, and the records of the other changes.
    pub(crate) fn sorted(self) -> (Vec<Spotted<'a, P>>, Vec<P::Record<'a>>) {
        let (mut changes, mut dead) = (self.0, Vec::new());
        // The sort is stable, so the newest change of a key stays first.
        changes.sort_by(by_key::<P>);
        changes.dedup_by(|later, first| {
            let is_same = by_key::<P>(later, first).is_eq();
            if is_same {
                dead.push(later.1);
            }
            is_same
        });
        (changes, dead)
    }
}

/// Number of records of a leaf with these changes applied ([`Pairs::merged`]).
pub(crate) fn merged_count<P: Pairs>(leaf: &P::Leaf, changes: &[Spotted<'_, P>]) -> usize {
    let is_new = |(_, change): &&Spotted<'_, P>| P::record_value(*change).is_some();
    let (new, replaced) = (changes.iter().filter(is_new), changes.iter().filter(|(spot, _)| spot.is_there()));
    P::len(leaf) + new.count() - replaced.count()
}

/// A record that was read from an image, for a new leaf.
#[derive(Debug)]
pub enum Read<'a, P: Pairs> {
    /// The leaf gets a copy of these bytes ([`Pairs::sizes_of_copy`]).
    Copied(Raw<'a>),
    /// A record that was made.
    Made(P::Record<'a>),
}

impl<'a, P: Pairs> Read<'a, P> {
    /// The record that was made.
    fn made(&self) -> Option<P::Record<'a>> {
        if let Self::Made(record) = self { Some(*record) } else { None }
    }
}

/// A kind of keys and values. The tree makes runs from sorted unique items and never changes a run.
pub trait Pairs: Sized + Debug + Send + Sync + 'static {
    /// A key.
    type Key: ?Sized + Ord + Debug + std::hash::Hash;
    /// An owned key.
    type KeyBuf: Clone + Ord + Debug + Borrow<Self::Key> + Send + Sync;
    /// A key that bounds pages.
    type Fence: Clone + Ord + Debug + Borrow<Self::Key> + Send + Sync;
    /// A value.
    type Value: ?Sized;
    /// An owned value.
    type ValueBuf: Clone + Debug + Borrow<Self::Value> + Send + Sync;
    /// A key with its value, or a key with the mark that it has no value (deleted).
    type Record<'a>: Copy + Debug;
    /// A record that is in no page yet.
    type Fresh: Debug;
    /// A change of a leaf's record, as the slab stores it.
    type Change: Copy + Debug + Send + Sync;
    /// A small digest of a key, different for nearly all other keys.
    type Hint: Copy;
    /// A run of records.
    type Leaf: Debug + Send + Sync;
    /// A run of separators.
    type Keys: Debug + Send + Sync;

    /// Checks the length of a key.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong).
    fn check_key(key: &Self::Key) -> Result<()>;
    /// Checks the length of a value.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong).
    fn check_value(value: &Self::Value) -> Result<()>;

    /// Appends the bytes of a key, for an image or a log. [`read_key`](Self::read_key) reads them.
    fn write_key(key: &Self::Key, to: &mut Vec<u8>);
    /// Appends the bytes of a value.
    fn write_value(value: &Self::Value, to: &mut Vec<u8>);
    /// Reads a key. `None` if the bytes are not those of a key.
    fn read_key(bytes: &[u8]) -> Option<Self::KeyBuf>;
    /// Reads a value. `None` if the bytes are not those of a value.
    fn read_value(bytes: &[u8]) -> Option<Self::ValueBuf>;

    /// Calls `with` with the key and the value of these bytes. `None` if the bytes are not those of a key and a value.
    fn with_bytes<R>(
        key: &[u8],
        value: &[u8],
        with: impl FnOnce(&Self::Key, &Self::Value) -> R,
    ) -> Option<R> {
        Some(with(Self::read_key(key)?.borrow(), Self::read_value(value)?.borrow()))
    }
    /// Compares two keys by their bytes. `None` if one is no key.
    fn order(a: &[u8], b: &[u8]) -> Option<Ordering> {
        Some(Self::read_key(a)?.cmp(&Self::read_key(b)?))
    }

    /// A number for the bytes of a key. Where the numbers of two keys differ, their order is that of the keys.
    fn rank(_key: &[u8]) -> u64 {
        0
    }

    /// Copies a key.
    fn own_key(key: &Self::Key) -> Self::KeyBuf;
    /// Copies a key, into the memory of an earlier copy if there is one.
    fn own_key_in(key: &Self::Key, copy: &mut Option<Self::KeyBuf>) {
        *copy = Some(Self::own_key(key));
    }
    /// Copies a value.
    fn own_value(value: &Self::Value) -> Self::ValueBuf;
    /// The shortest possible key that is above `left` and not above `right`.
    fn separator(left: &Self::Key, right: &Self::Key) -> Self::Fence;

    /// Bytes of the block that this record needs outside of pages. 0 if it needs none.
    fn fresh_space(key: &Self::Key, value: Option<&Self::Value>) -> usize;
    /// Makes a record in a block of [`fresh_space`](Self::fresh_space) bytes, if it needs one. The caller has checked the lengths.
    fn fresh(key: &Self::Key, value: Option<&Self::Value>, block: Option<Block>) -> Self::Fresh;
    /// Borrows the record.
    fn record(fresh: &Self::Fresh) -> Self::Record<'_>;
    /// The key of a record.
    fn record_key<'a>(record: Self::Record<'a>) -> &'a Self::Key;
    /// The value of a record. `None` if the key is deleted.
    fn record_value<'a>(record: Self::Record<'a>) -> Option<&'a Self::Value>;
    /// Prefetches a record outside of its page, which will be read soon.
    fn fetch(_record: Self::Record<'_>) {}
    /// Bytes of memory of a record outside of pages.
    fn record_memory(record: Self::Record<'_>) -> usize;
    /// Bytes that a record takes in a page that weighs its records. The same for a record and its copy.
    fn record_weight(record: Self::Record<'_>) -> usize {
        Self::record_memory(record)
    }
    /// True if a leaf that copies records ([`Pairs::leaf`]) has this record in its own block.
    fn is_copied(_record: Self::Record<'_>) -> bool {
        false
    }
    /// Bytes of the copies of these records that a leaf has in its own block.
    fn copied_bytes(_records: &[Self::Record<'_>]) -> usize {
        0
    }
    /// For a record that was read from an image: the bytes of its copy in a leaf, and its weight. `None` if a leaf has no copies of such
    /// records.
    fn sizes_of_copy(_raw: Raw<'_>) -> Option<(usize, usize)> {
        None
    }
    /// True if these are the bytes of a key and a value.
    fn is_pair((key, value): Raw<'_>) -> bool {
        Self::read_key(key).is_some() && Self::read_value(value).is_some()
    }
    /// The object to retire when a record is taken out of the tree. `None` if the record has no block.
    fn dead(record: Self::Record<'_>) -> Option<Dead>;
    /// Makes the change that gives the record's key this record.
    fn change(record: Self::Record<'_>, word: Kept) -> Self::Change;
    /// The record of a change. `is_there`: the record has a value.
    fn changed(change: &Self::Change, is_there: bool) -> Self::Record<'_>;
    /// The [`Hint`](Self::Hint) of a key.
    fn hint(key: &Self::Key) -> Self::Hint;
    /// True if a change is of this key. `hint` is the key's hint.
    fn is_of(change: &Self::Change, hint: Self::Hint, key: &Self::Key) -> bool;
    /// Maximum bytes that a run of `records` records takes after the node in a page's block.
    fn leaf_space(records: usize) -> usize;
    /// Makes a run of these records, for a page with these bounds. If `copied_bytes` is not 0, small records are copied into the page's
    /// block; it is the result of [`copied_bytes`](Self::copied_bytes) then. `space` has at least [`leaf_space`](Self::leaf_space) bytes, and
    /// these.
    fn leaf(
        records: &[Self::Record<'_>],
        low: Option<&Self::Key>,
        high: Option<&Self::Key>,
        copied_bytes: usize,
        space: &mut Space,
        word: Kept,
    ) -> Self::Leaf;
    /// As [`leaf`](Self::leaf), of records that were read from an image.
    fn leaf_of_read(
        read: &[Read<'_, Self>],
        low: Option<&Self::Key>,
        high: Option<&Self::Key>,
        copied_bytes: usize,
        space: &mut Space,
        word: Kept,
    ) -> Self::Leaf {
        let records: Vec<_> = read.iter().filter_map(Read::made).collect();
        Self::leaf(&records, low, high, copied_bytes, space, word)
    }
    /// Bytes of the copies in the run that [`merged`](Self::merged) makes, for a tree that copies records.
    fn merged_copies(_leaf: &Self::Leaf, _changes: &[Spotted<'_, Self>]) -> usize {
        0
    }
    /// Makes a run of this leaf with these changes applied, for a page with the same bounds. `changes` has one change of each key, in key
    /// order. Also returns the records of the leaf and of the changes that are not in the new run, or none if records need no blocks. If
    /// `copied_bytes` is not 0, the new run has copies of small records; it is the result of [`merged_copies`](Self::merged_copies) then.
    /// `space` has [`leaf_space`](Self::leaf_space) bytes for `merged_count` records, and these.
    fn merged<'a>(
        leaf: &'a Self::Leaf,
        changes: &[Spotted<'a, Self>],
        copied_bytes: usize,
        space: &mut Space,
        word: Kept,
    ) -> (Self::Leaf, Vec<Self::Record<'a>>);
    /// Number of records of a run.
    fn len(leaf: &Self::Leaf) -> usize;
    /// The record at index `i` of a run. Panics if the run is shorter.
    fn at(leaf: &Self::Leaf, i: usize) -> Self::Record<'_>;
    /// Calls `with` for each record of a run that has no copy in the block of its leaf.
    fn for_outside<'a>(leaf: &'a Self::Leaf, with: &mut dyn FnMut(Self::Record<'a>)) {
        (0..Self::len(leaf)).for_each(|i| with(Self::at(leaf, i)));
    }
    /// The position of a key that belongs in the page. O(log records).
    fn spot(leaf: &Self::Leaf, key: &Self::Key) -> Spot;
    /// The record of a key that belongs in the page. O(log records).
    fn lookup<'a>(leaf: &'a Self::Leaf, key: &Self::Key) -> Option<Self::Record<'a>>;

    /// Maximum bytes that a run of these separators takes after the node in a page's block.
    fn keys_space<'a>(keys: impl Iterator<Item = &'a Self::Key>) -> usize;
    /// Makes a run of these separators, for a page with these bounds. `space` has at least [`keys_space`](Self::keys_space) bytes.
    fn separators(
        keys: &[&Self::Key],
        low: Option<&Self::Key>,
        high: Option<&Self::Key>,
        space: &mut Space,
    ) -> Self::Keys;
    /// Number of separators of a run.
    fn count(keys: &Self::Keys) -> usize;
    /// The separator at index `i` of a run. Panics if the run is shorter.
    fn separator_at(keys: &Self::Keys, i: usize) -> &Self::Key;
    /// Number of separators at or below a key that belongs in the page. `about` may get an early estimate of this number. O(log
    /// separators).
    fn not_above(keys: &Self::Keys, key: &Self::Key, about: impl FnOnce(usize)) -> usize;
    /// Number of separators below a key that belongs in the page or is its high key. O(log separators).
    fn below(keys: &Self::Keys, key: &Self::Key) -> usize;

    /// Copies a key into a fence.
    fn fence(key: &Self::Key) -> Self::Fence;
    /// Compares a fence with a key.
    fn compare(fence: &Self::Fence, key: &Self::Key) -> Ordering;
    /// Bytes of a separator in a page.
    fn key_bytes(key: &Self::Key) -> usize;
    /// Bytes of memory of a fence outside of its node.
    fn fence_memory(fence: &Self::Fence) -> usize;
}

/// The target of a descent, in key order.
pub(crate) trait Target<P: Pairs>: Copy {
    /// True if the target is at or to the right of the fence.
    fn admits(self, fence: &P::Fence) -> bool;
    /// Number of separators at or to the left of the target. `about` may get an early estimate of this number.
    fn admitted(self, keys: &P::Keys, about: impl FnOnce(usize)) -> usize;
}

/// The target at a key.
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

/// The target at a key, just before a key, or at an end.
#[derive(Debug)]
pub(crate) enum Place<'a, P: Pairs> {
    /// At a key, existing or not.
    At(&'a P::Key),
    /// After all keys below this one.
    Before(&'a P::Key),
    /// Before all keys.
    First,
    /// After all keys.
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
