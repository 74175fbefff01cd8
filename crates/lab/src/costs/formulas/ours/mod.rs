//! The expected cost of an operation, derived from the protocols: exact words and fences, and bounds of flushes.
//!
//! A formula combines two parts, as the trees do: the words that a layout writes, by class of words ([`Nodes`], one file per layout;
//! [`Change`] has the classes), and the cost of each class under a commit protocol ([`Protocol`], one file per commit protocol). The
//! formulas follow the module heads of the engines' layouts and commit protocols. A formula also needs facts about the nodes on the path to
//! the key ([`Way`]), for example their numbers of entries and the position of the key.
//!
//! *Data words* (`home` in the code) are the words of the index that a log record changes. *Data lines* are the lines
//! that contain data words.
//!
//! Rules of counting:
//!
//! * Words: the stored words of nodes and of log records.
//! * Flushes: the flushed lines of log records, and those lines of nodes that the commit flushes itself because their words are not in the
//!   log. A commit counts each line once.
//! * Data lines are counted apart, each once in a commit: most protocols flush them later, after the commit. Under a protocol that waits
//!   for them, this count is added to the flushes.
//! * Fences: all fences of an operation, except those of log truncations and of the allocator. The allocator has fences when it records a
//!   block before the log references the block, and when it begins to use a new chunk.
//!
//! Flushes have bounds because the records of a commit begin anywhere in a line of the log.

mod appended;
mod bitmap;
mod bucket;
mod counted;
mod log_leaf;
mod one_word;
mod redo;
mod shadow;
mod slot_only;
mod slotted;
mod sorted;
mod split;
mod undo_redo;
mod write_atomic;

use std::collections::BTreeSet;
use std::ops::{Add, AddAssign};

pub use appended::Appended;
pub use bitmap::Bitmap;
use bptree::shape::Shape;
pub use bucket::Bucket;
pub use counted::Counted;
pub use log_leaf::LogLeaf;
pub use one_word::{OneWord, has_combined};
use pmem::WORD;
pub use redo::Redo;
pub use shadow::Shadow;
pub use slot_only::SlotOnly;
pub use slotted::Slotted;
pub use sorted::Sorted;
pub use undo_redo::UndoRedo;
pub use write_atomic::{LineOrder, Stepwise, WriteAtomic};

use crate::costs::survey::{Step, Way};
use crate::costs::tape::Spent;

/// Number of words of a line.
const LINE_WORDS: u64 = 8;
/// Entries per bitmap word.
const GROUP: u16 = 63;

/// Minimum and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Bounds {
    /// Minimum.
    pub least: u64,
    /// Maximum.
    pub most: u64,
}

impl Bounds {
    /// Bounds that allow only `number`.
    pub fn exactly(number: u64) -> Self {
        Self { least: number, most: number }
    }

    /// True if `number` is within the bounds.
    pub fn hold(self, number: u64) -> bool {
        (self.least..=self.most).contains(&number)
    }

    /// Lines of `records` consecutive records that begin anywhere in a line. A line holds `per_line` whole records.
    pub fn of_records(records: u64, per_line: u64) -> Self {
        Self { least: records.div_ceil(per_line), most: (records + per_line - 1).div_ceil(per_line) }
    }
}

impl Add for Bounds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { least: self.least + other.least, most: self.most + other.most }
    }
}

/// The expected cost of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Words stored into nodes, including data words.
    pub node_words: u64,
    /// Words of log records.
    pub log_words: u64,
    /// Flushed lines of nodes and log records.
    pub flushes: Bounds,
    /// Flushed data lines.
    pub homes: u64,
    /// Fences.
    pub fences: u64,
}

impl AddAssign for Price {
    fn add_assign(&mut self, other: Self) {
        self.node_words += other.node_words;
        self.log_words += other.log_words;
        self.flushes = self.flushes + other.flushes;
        self.homes += other.homes;
        self.fences += other.fences;
    }
}

/// Consecutive words in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first word in the node.
    pub first: u64,
    /// Number of words.
    pub words: u64,
}

impl Run {
    /// Words from index `first`.
    pub const fn new(first: u64, words: u64) -> Self {
        Self { first, words }
    }

    fn lines(self) -> impl Iterator<Item = u64> {
        (self.first..self.first + self.words).map(|word| word / LINE_WORDS)
    }
}

/// The link of every node.
const LINK: Run = Run::new(0, 1);

/// Number of words in runs.
fn words_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.words).sum()
}

/// Number of distinct lines in runs.
fn lines_of(runs: &[Run]) -> u64 {
    runs.iter().flat_map(|run| run.lines()).collect::<BTreeSet<_>>().len() as u64
}

/// The words that a change writes into one node, by the classes that a commit protocol distinguishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Offset of the node; 0 for a new node.
    pub node: u64,
    /// Words in unused space.
    pub fresh: Vec<Run>,
    /// True if a valid bit is cleared first.
    pub guard: bool,
    /// Words that are meaningful only while that bit is set.
    pub guarded: Vec<Run>,
    /// Overwritten words in use.
    pub over: Vec<Run>,
}

impl Change {
    /// A change that only overwrites words in use.
    fn over(node: u64, over: Vec<Run>) -> Self {
        Self { node, over, ..Self::default() }
    }

    /// All words, in the order of a log that records all of them.
    fn all(&self) -> Vec<Run> {
        [&self.fresh[..], &self.guarded, &self.over].concat()
    }

    /// Words in use, in the order of the log.
    fn in_use(&self) -> Vec<Run> {
        [&self.guarded[..], &self.over].concat()
    }
}

/// The part of a split node that stays.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Number of its entries that stay, the first by rank.
    pub keep: usize,
    /// Rank of the new entry, if it stays on this side.
    pub join: Option<usize>,
    /// True if the link changes (leaves: the new right neighbour).
    pub relink: bool,
}

/// A layout: the words that a change writes.
pub trait Nodes: Sync {
    /// Insert of an entry at `node.rank`.
    fn insert(&self, node: &Step) -> Change;
    /// Delete of the entry at `node.rank`.
    fn remove(&self, node: &Step) -> Change;
    /// Creation of a node with `count` entries.
    fn fill(&self, shape: &Shape, count: usize) -> Change;
    /// Removal of the entries that a cut does not keep from a full node.
    fn shrink(&self, node: &Step, cut: Cut) -> Change;
    /// Positions of the entries after [`Nodes::insert`]. By default no entry moves, and the new entry takes the lowest free position.
    fn inserted(&self, node: &Step) -> Vec<u16> {
        let mut numbers = node.numbers.clone();
        numbers.insert(node.rank, free_place(&node.numbers));
        numbers
    }
    /// Positions of the entries of a new node, in key order.
    fn filled(&self, _shape: &Shape, count: usize) -> Vec<u16> {
        (0..count as u16).collect()
    }
    /// Positions of the entries after [`Nodes::shrink`], by the same default.
    fn kept(&self, node: &Step, cut: Cut) -> Vec<u16> {
        let mut kept = node.numbers[..cut.keep].to_vec();
        if let Some(rank) = cut.join {
            kept.insert(rank, free_place(&kept));
        }
        kept
    }
}

/// A commit protocol: the cost of changes.
pub trait Protocol: Sync {
    /// Cost of an insert into a leaf with space.
    fn insert(&self, parts: &Parts, way: &Way) -> Price;
    /// Cost of an insert with splits. `after` is the path to the key after the insert. `spent` is used only to find out whether unused
    /// words went through the log.
    fn split(&self, parts: &Parts, way: &Way, after: &Way, spent: &Spent) -> Price;
    /// Cost of a delete without merge.
    fn delete(&self, parts: &Parts, way: &Way) -> Price;
    /// True if an operation waits for its data lines. Then they belong to its cost and not to a log truncation.
    fn awaits_homes(&self) -> bool {
        false
    }
    /// True if an insert or delete copies its leaf.
    fn copies_leaves(&self) -> bool {
        false
    }
}

/// The parts of an engine.
pub struct Parts {
    /// Layout of leaves.
    pub leaf: Box<dyn Nodes>,
    /// Layout of inner nodes; `None` for a list.
    pub inner: Option<Box<dyn Nodes>>,
    /// The commit protocol.
    pub protocol: &'static dyn Protocol,
}

impl Parts {
    /// The layout of the nodes of a level.
    fn nodes(&self, level: usize) -> &dyn Nodes {
        let inner = || self.inner.as_deref().expect("what has levels has inner nodes");
        if level == 0 { &*self.leaf } else { inner() }
    }

    /// Cost of an insert into a leaf with space.
    pub fn insert(&self, way: &Way) -> Price {
        self.protocol.insert(self, way)
    }

    /// Cost of an insert with splits.
    pub fn split(&self, way: &Way, after: &Way, spent: &Spent) -> Price {
        self.protocol.split(self, way, after, spent)
    }

    /// Cost of a delete without merge.
    pub fn delete(&self, way: &Way) -> Price {
        self.protocol.delete(self, way)
    }

    /// Words that an insert, with or without splits, writes into nodes beyond those of the same change in place: words of a copied leaf and
    /// of the pointers to it.
    pub fn surplus_of_insert(&self, way: &Way) -> u64 {
        if !self.protocol.copies_leaves() {
            return 0;
        }
        let nothing_seen = Spent::default();
        let (price, in_place) = if way.leaf().is_full() {
            (self.split(way, way, &nothing_seen), split::at_once(self, way))
        } else {
            (self.insert(way), vec![self.leaf.insert(way.leaf())])
        };
        surplus(&price, &in_place)
    }

    /// The same for a delete.
    pub fn surplus_of_delete(&self, way: &Way) -> u64 {
        if !self.protocol.copies_leaves() {
            return 0;
        }
        surplus(&self.delete(way), &[self.leaf.remove(way.leaf())])
    }
}

fn surplus(price: &Price, in_place: &[Change]) -> u64 {
    let words: u64 = in_place.iter().map(|change| words_of(&change.all())).sum();
    price.node_words.saturating_sub(words)
}

/// The words of the entry at position `place`: key and payload, adjacent or in two columns.
fn entry(shape: &Shape, place: usize) -> Vec<Run> {
    let (key_words, payload_words) = (shape.key_words as u64, shape.payload_words as u64);
    let key_at = shape.keys_at + place as u64 * shape.key_step;
    let payload_at = shape.payloads_at + place as u64 * shape.payload_step;
    if payload_at == key_at + key_words {
        return vec![Run::new(key_at, key_words + payload_words)];
    }
    vec![Run::new(key_at, key_words), Run::new(payload_at, payload_words)]
}

/// The words of the entries at the positions `places`, in order.
fn entries(shape: &Shape, places: impl Iterator<Item = usize>) -> Vec<Run> {
    places.flat_map(|place| entry(shape, place)).collect()
}

/// The lowest position that none of these entries has.
fn free_place(numbers: &[u16]) -> u16 {
    (0..).find(|place| !numbers.contains(place)).unwrap_or(0)
}

/// The words of the new entry in a node whose entries do not move.
fn newcomer(node: &Step, cut: Cut, kept: &[u16]) -> Vec<Run> {
    cut.join.map_or(Vec::new(), |rank| entry(&node.shape, usize::from(kept[rank])))
}

/// Offset of a run's first word in a node.
fn offset(node: u64, run: &Run) -> u64 {
    node + run.first * WORD
}

/// The words of a bitmap with these entries set.
fn bitmap_words(numbers: &[u16], groups: usize) -> Vec<u64> {
    let mut words = vec![0; groups];
    numbers.iter().for_each(|number| words[usize::from(number / GROUP)] |= 1 << (number % GROUP));
    words
}

/// The words that differ, one run each. `first` is the index of the first word.
fn differing<T: PartialEq>(first: u64, old: &[T], new: &[T]) -> Vec<Run> {
    let differ = (0..new.len()).filter(|word| old[*word] != new[*word]);
    differ.map(|word| Run::new(first + word as u64, 1)).collect()
}
