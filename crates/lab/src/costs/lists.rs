//! The indexes over a list of leaves, on memory that counts: VLAB, by default and step by step as its paper has it, and NV-Tree.
//!
//! Which leaf is a key's the index is asked; what is in it is read from the medium.

use std::borrow::Borrow;
use std::sync::Arc;

use index::chain::prelude::*;
use index::{Fixed, Schema, Words};
use pmem::region::unchecked;
use pmem::{Durability, LINE, Medium, Memory, Observed, WORD};
use bptree::roster::About;
use bptree::shape::Shape;

use super::subject::{Plan, Subject};
use super::survey::{Step, Way};
use super::tape::{Deaf, Spent, Tape};
use crate::keys::Key;

/// VLAB with a fence behind each step of a split, and combines of durable lists.
const VLAB_STEPWISE: About = About {
    name: "vlab-faithful",
    about: "VLAB, its splits and combines step by step as the paper has them",
    discipline: "one word, step by step",
    ..vlab::ABOUT
};

/// All of them.
pub const LISTS: [&About; 3] = [&vlab::ABOUT, &VLAB_STEPWISE, &nvtree::ABOUT];

/// True if the engine is one of these.
pub fn has(about: &About) -> bool {
    LISTS.iter().any(|list| list.name == about.name)
}

fn is_wide(plan: Plan) -> bool {
    plan.payload_words() > 1
}

/// The shape of leaves of this plan.
pub fn leaf_shape(about: &About, plan: Plan) -> Option<Shape> {
    let (lines, words) = (plan.node_lines, plan.payload_words());
    if about.name == nvtree::ENGINE {
        return nvtree::leaf::Shape::new::<Words>(lines, words).map(|shape| shape.entries);
    }
    vlab::bucket::Shape::new::<Words>(lines, words).map(|shape| shape.entries)
}

/// Makes an empty one.
///
/// # Errors
/// What making it may say.
pub fn make(about: &'static About, plan: Plan) -> pmem::Result<Box<dyn Subject>> {
    if is_wide(plan) { make_of::<Fixed>(about, plan) } else { make_of::<Words>(about, plan) }
}

fn make_of<S: Schema<Key = u64, KeyBuf = u64>>(
    about: &'static About,
    plan: Plan,
) -> pmem::Result<Box<dyn Subject>>
where
    u64: Key<S>,
{
    let tape = Arc::new(Tape::default());
    let memory = Memory::new(plan.capacity, 0);
    let quiet = Observed::new(Arc::clone(&memory), Arc::new(Deaf));
    let medium = Observed::new(memory, Arc::clone(&tape) as Arc<_>);
    let (lines, payload_words) = (plan.node_lines, plan.payload_words());
    if about.name == nvtree::ENGINE {
        let options = nvtree::Options { payload_words, ..nvtree::Options::new(lines, Durability::Power) };
        let index = nvtree::NvTree::<_, S>::create(medium, &options)?;
        let shape = index.shape().entries;
        return Ok(Box::new(Listed { index, shape, read: log, has_second: false, tape, quiet }));
    }
    let faithful = about.name == VLAB_STEPWISE.name;
    let options = vlab::Options { payload_words, faithful, ..vlab::Options::new(lines, Durability::Power) };
    let index = vlab::Vlab::<_, S>::create(medium, &options)?;
    let shape = index.shape().entries;
    Ok(Box::new(Listed { index, shape, read: bucket, has_second: faithful, tape, quiet }))
}

/// Where a header's bitmap, or its signs, are.
const BITS_AT: u64 = 4 * WORD;
const BIT_WORDS: usize = 4;

/// What is in a leaf.
#[derive(Default)]
struct Contents {
    /// Keys with their places.
    entries: Vec<(u64, u16)>,
    /// In a log: places taken.
    logged: Option<usize>,
}

/// Reads a leaf.
type Read = fn(&Observed, &Shape, u64) -> Contents;

fn key_at(medium: &Observed, shape: &Shape, leaf: u64, place: usize) -> u64 {
    medium.word(leaf + (shape.keys_at + place as u64 * shape.key_step) * WORD)
}

fn bits(medium: &Observed, leaf: u64) -> [u64; BIT_WORDS] {
    std::array::from_fn(|i| medium.word(leaf + BITS_AT + i as u64 * WORD))
}

fn bucket(medium: &Observed, shape: &Shape, leaf: u64) -> Contents {
    let bits = bits(medium, leaf);
    let set = (0..shape.capacity).filter(|place| bits[place / 64] >> (place % 64) & 1 == 1);
    let entries = set.map(|place| (key_at(medium, shape, leaf, place), place as u16)).collect();
    Contents { entries, logged: None }
}

fn log(medium: &Observed, shape: &Shape, leaf: u64) -> Contents {
    let signs = bits(medium, leaf);
    let count = unchecked(medium.word(leaf + WORD)).unwrap_or(0) as usize;
    let mut newest = std::collections::BTreeMap::new();
    (0..count).for_each(|place| _ = newest.insert(key_at(medium, shape, leaf, place), place as u16));
    let is_positive = |place: &u16| signs[usize::from(place / 64)] >> (place % 64) & 1 == 0;
    let entries = newest.into_iter().filter(|(_, place)| is_positive(place)).collect();
    Contents { entries, logged: Some(count) }
}

struct Listed<I> {
    index: I,
    shape: Shape,
    read: Read,
    /// There is a second list, which combines bring into the first.
    has_second: bool,
    tape: Arc<Tape>,
    quiet: Observed,
}

impl<I: Chain> Listed<I> {
    fn nxt(&self, at: u64) -> u64 {
        unchecked(self.quiet.word(at)).unwrap_or(0) * WORD
    }

    /// Leaves of the list whose head is in the word at `head_at`.
    fn count(&self, head_at: u64) -> u64 {
        std::iter::successors(Some(self.nxt(head_at)), |leaf| Some(self.nxt(*leaf)))
            .take_while(|leaf| *leaf != 0)
            .count() as u64
    }
}

impl<I, S> Subject for Listed<I>
where
    I: Chain<Medium = Observed, Schema = S>,
    S: Schema<Key = u64, KeyBuf = u64>,
    u64: Key<S>,
{
    /// A list has no loading to a fill of its own. Keys that come in descending order split the first leaf again and again, and
    /// what a split has put to the right stays half full; then more come until it is as full as it shall be, or some go.
    fn bulk_load(&mut self, keys: &[u64], fill: f64) -> pmem::Result<()> {
        let half = self.shape.capacity.div_ceil(2);
        let each = ((self.shape.capacity as f64 * fill) as usize).max(1);
        // Of random keys the number above one is free, as good as always.
        let spare = |of: &[u64]| -> Vec<u64> {
            let missing = half.saturating_sub(of.len());
            of.iter().cycle().zip(0..missing as u64).map(|(key, i)| key + 1 + i / of.len() as u64).collect()
        };
        for of in keys.rchunks(each) {
            let mut first: Vec<u64> = of.iter().copied().take(half).chain(spare(of)).collect();
            first.sort_unstable();
            first.into_iter().rev().try_for_each(|key| self.put(key, key).map(drop))?;
        }
        for of in keys.rchunks(each) {
            of.iter().skip(half).try_for_each(|key| self.put(*key, *key).map(drop))?;
            spare(of).into_iter().try_for_each(|key| self.delete(key).map(drop))?;
        }
        Ok(())
    }

    fn put(&mut self, key: u64, number: u64) -> pmem::Result<bool> {
        self.index.put(&key, <u64 as Key<S>>::value(number, self.index.payload_words()).borrow())
    }

    fn delete(&mut self, key: u64) -> pmem::Result<bool> {
        self.index.delete(&key)
    }

    fn way(&self, key: u64) -> pmem::Result<Way> {
        let leaf = self.index.sound_leaf_of(&key)?;
        let Contents { mut entries, logged } = (self.read)(&self.quiet, &self.shape, leaf);
        entries.sort_unstable();
        let rank = entries.partition_point(|(found, _)| *found < key);
        let hit = entries.get(rank).is_some_and(|(found, _)| *found == key);
        let numbers = entries.into_iter().map(|(_, place)| place).collect();
        let step = Step { node: leaf, level: 0, numbers, rank, shape: self.shape, logged };
        let meta = self.index.root_block();
        let lists = self.has_second.then(|| [meta, meta + WORD].map(|head_at| self.count(head_at)));
        Ok(Way { steps: vec![step], hit, last: self.nxt(leaf) == 0, inner: None, lists })
    }

    fn take(&mut self) -> Spent {
        self.tape.take()
    }
}

/// A header is a line.
const _: () = assert!(BITS_AT + BIT_WORDS as u64 * WORD == LINE);
