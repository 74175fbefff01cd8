//! Our own price of an operation, from what the protocols say: exact words and fences, flushes but for what the formula
//! cannot know.
//!
//! A formula combines two parts, as the trees do: the words that a layout writes, by class ([`Nodes`], one file per layout), and the cost
//! of each class under a commit protocol ([`Protocol`], one file per commit protocol). The formulas follow the heads of the layouts and
//! commit protocols. They know only the path to the key ([`Way`]): counts, ranks and positions.
//!
//! Where the line is drawn: words are those of nodes and of the log's records; flushes those of nodes' lines, each once in a
//! commit, and of records; fences all of an operation but the allocator's own (blocks are named before the log leads to them,
//! a chunk is opened) and the settling of the log. Home lines, which the log flushes for its settling, each once in a commit,
//! stand apart unless the operation waits for them.
//!
//! Flushes have bounds because a commit's records begin anywhere in a line of the log.

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

/// Words of a line.
const LINE_WORDS: u64 = 8;
/// Entries that a word of a bitmap stands for.
const GROUP: u16 = 63;

/// Fewest and most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Bounds {
    /// Fewest.
    pub least: u64,
    /// Most.
    pub most: u64,
}

impl Bounds {
    /// Exactly this many.
    pub fn exactly(number: u64) -> Self {
        Self { least: number, most: number }
    }

    /// True if `number` is within.
    pub fn hold(self, number: u64) -> bool {
        (self.least..=self.most).contains(&number)
    }

    /// Lines of `records` records that lie one behind the other, `per_line` of them whole in a line, wherever they begin.
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

/// What an operation costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Words stored into nodes, home words among them.
    pub node_words: u64,
    /// Words of the log's records.
    pub log_words: u64,
    /// Lines flushed of nodes and records.
    pub flushes: Bounds,
    /// Home lines flushed.
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

/// Words one behind the other in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the first, from the node's start.
    pub first: u64,
    /// How many.
    pub words: u64,
}

impl Run {
    /// Words from `first` on.
    pub const fn new(first: u64, words: u64) -> Self {
        Self { first, words }
    }

    fn lines(self) -> impl Iterator<Item = u64> {
        (self.first..self.first + self.words).map(|word| word / LINE_WORDS)
    }
}

/// Every node's link.
const LINK: Run = Run::new(0, 1);

/// Number of words in runs.
fn words_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.words).sum()
}

/// Lines of runs.
fn lines_of(runs: &[Run]) -> u64 {
    runs.iter().flat_map(|run| run.lines()).collect::<BTreeSet<_>>().len() as u64
}

/// The words that a change writes into one node, by the classes that a commit protocol distinguishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Offset of the node; 0 for one that is only being made.
    pub node: u64,
    /// Into unused space.
    pub fresh: Vec<Run>,
    /// A valid bit is cleared first.
    pub guard: bool,
    /// What means something only while that bit is set.
    pub guarded: Vec<Run>,
    /// Over words in use.
    pub over: Vec<Run>,
}

impl Change {
    /// Words in use that change, and nothing else.
    fn over(node: u64, over: Vec<Run>) -> Self {
        Self { node, over, ..Self::default() }
    }

    /// All words in the order of a log that takes them all.
    fn all(&self) -> Vec<Run> {
        [&self.fresh[..], &self.guarded, &self.over].concat()
    }

    /// Words that are in use, in the order of the log.
    fn in_use(&self) -> Vec<Run> {
        [&self.guarded[..], &self.over].concat()
    }
}

/// What stays in a node that is split.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// How many of its entries, the first by rank.
    pub keep: usize,
    /// The newcomer's rank, if it stays on this side.
    pub join: Option<usize>,
    /// The link changes (leaves: the new right neighbour).
    pub relink: bool,
}

/// A layout: what a change writes.
pub trait Nodes: Sync {
    /// A new entry at `node.rank`.
    fn insert(&self, node: &Step) -> Change;
    /// The entry at `node.rank` leaves.
    fn remove(&self, node: &Step) -> Change;
    /// A new node with `count` entries.
    fn fill(&self, shape: &Shape, count: usize) -> Change;
    /// A full node loses what a cut does not keep.
    fn shrink(&self, node: &Step, cut: Cut) -> Change;
    /// Places of the entries after [`Nodes::insert`]; unless said otherwise none moves and the newcomer takes the lowest that is
    /// free.
    fn inserted(&self, node: &Step) -> Vec<u16> {
        let mut numbers = node.numbers.clone();
        numbers.insert(node.rank, free_place(&node.numbers));
        numbers
    }
    /// Places of the entries of a new node, in key order.
    fn filled(&self, _shape: &Shape, count: usize) -> Vec<u16> {
        (0..count as u16).collect()
    }
    /// Places of the entries after [`Nodes::shrink`], likewise.
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
    /// An insert into a leaf with space.
    fn insert(&self, parts: &Parts, way: &Way) -> Price;
    /// An insert that splits. `after` is the way to the key when all is done; `spent` only says of unused words whether they
    /// went through the log.
    fn split(&self, parts: &Parts, way: &Way, after: &Way, spent: &Spent) -> Price;
    /// A delete that leaves enough.
    fn delete(&self, parts: &Parts, way: &Way) -> Price;
    /// True if an operation waits for its home lines: then they belong to it, and not to the log's settling.
    fn awaits_homes(&self) -> bool {
        false
    }
    /// True if an entry that comes or goes makes a copy of its leaf.
    fn copies_leaves(&self) -> bool {
        false
    }
}

/// What an engine is made of.
pub struct Parts {
    /// Its leaves.
    pub leaf: Box<dyn Nodes>,
    /// Its inner nodes; a list has none.
    pub inner: Option<Box<dyn Nodes>>,
    /// How changes become durable.
    pub protocol: &'static dyn Protocol,
}

impl Parts {
    /// The layout of a level.
    fn nodes(&self, level: usize) -> &dyn Nodes {
        let inner = || self.inner.as_deref().expect("what has levels has inner nodes");
        if level == 0 { &*self.leaf } else { inner() }
    }

    /// An insert into a leaf with space.
    pub fn insert(&self, way: &Way) -> Price {
        self.protocol.insert(self, way)
    }

    /// An insert that splits.
    pub fn split(&self, way: &Way, after: &Way, spent: &Spent) -> Price {
        self.protocol.split(self, way, after, spent)
    }

    /// A delete that leaves enough.
    pub fn delete(&self, way: &Way) -> Price {
        self.protocol.delete(self, way)
    }

    /// Words that an insert, with splits or without, writes into nodes beyond those of the same change in place: those of a
    /// copied leaf and of the pointers to it.
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

    /// The same of a delete.
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

/// The words of the entry in place `place`: key, then payload, side by side or in two columns.
fn entry(shape: &Shape, place: usize) -> Vec<Run> {
    let (key_words, payload_words) = (shape.key_words as u64, shape.payload_words as u64);
    let key_at = shape.keys_at + place as u64 * shape.key_step;
    let payload_at = shape.payloads_at + place as u64 * shape.payload_step;
    if payload_at == key_at + key_words {
        return vec![Run::new(key_at, key_words + payload_words)];
    }
    vec![Run::new(key_at, key_words), Run::new(payload_at, payload_words)]
}

/// The words of entries in the places `places`, in order.
fn entries(shape: &Shape, places: impl Iterator<Item = usize>) -> Vec<Run> {
    places.flat_map(|place| entry(shape, place)).collect()
}

/// The lowest place that none of these entries has.
fn free_place(numbers: &[u16]) -> u16 {
    (0..).find(|place| !numbers.contains(place)).unwrap_or(0)
}

/// The newcomer's words in a node whose entries stay where they are.
fn newcomer(node: &Step, cut: Cut, kept: &[u16]) -> Vec<Run> {
    cut.join.map_or(Vec::new(), |rank| entry(&node.shape, usize::from(kept[rank])))
}

/// Offset of a run's first word in a node.
fn offset(node: u64, run: &Run) -> u64 {
    node + run.first * WORD
}

/// For every word of a bitmap, which of its entries are there.
fn bitmap_words(numbers: &[u16], groups: usize) -> Vec<u64> {
    let mut words = vec![0; groups];
    numbers.iter().for_each(|number| words[usize::from(number / GROUP)] |= 1 << (number % GROUP));
    words
}

/// Words, from number `first` on, that differ: one run each.
fn differing<T: PartialEq>(first: u64, old: &[T], new: &[T]) -> Vec<Run> {
    let differ = (0..new.len()).filter(|word| old[*word] != new[*word]);
    differ.map(|word| Run::new(first + word as u64, 1)).collect()
}
