//! Leaf-list indexes on memory that counts stores, flushes and fences: VLAB, in its default variant and in the stepwise variant of its
//! paper, and NV-Tree.
//!
//! The index itself finds the leaf of a key. This module reads the contents of the leaf from the medium.

use index::leaf_list::prelude::*;
use index::shape::Shape;
use index::{About, Fixed, Kind, Schema, SchemaOf, Words, kind};
use pmem::region::unchecked;
use pmem::{Durability, LINE, Medium, Observed, WORD};

use super::subject::{Load, Plan, Subject};
use super::survey::{Step, Way};
use crate::keys::Key;

/// VLAB with a fence after each step of a split, and with combines of durable lists.
const VLAB_STEPWISE: About = About {
    name: "vlab-faithful",
    about: "VLAB, its splits and combines step by step as the paper has them",
    commit_protocol: "one word, step by step",
    ..vlab::ABOUT
};

/// All leaf-list indexes.
pub const LISTS: [&About; 3] = [&vlab::ABOUT, &VLAB_STEPWISE, &nvtree::ABOUT];

/// True if the engine is in [`LISTS`].
pub fn has(about: &About) -> bool {
    LISTS.iter().any(|list| list.name == about.name)
}

fn is_wide(plan: Plan) -> bool {
    plan.payload_words() > 1
}

/// The shape of the leaves of a plan.
pub fn leaf_shape(about: &About, plan: Plan) -> Option<Shape> {
    let (lines, words) = (plan.node_lines, plan.payload_words());
    if about.name == nvtree::ENGINE {
        return nvtree::leaf::Shape::new::<Words>(lines, words).map(|shape| shape.entries);
    }
    vlab::bucket::Shape::new::<Words>(lines, words).map(|shape| shape.entries)
}

/// Makes an empty index.
///
/// # Errors
/// Errors of making the index.
pub fn make(about: &'static About, plan: Plan) -> pmem::Result<Box<dyn Subject>> {
    if is_wide(plan) {
        make_of::<kind::Fixed, Fixed>(about, plan)
    } else {
        make_of::<kind::U64, Words>(about, plan)
    }
}

fn make_of<K, S>(about: &'static About, plan: Plan) -> pmem::Result<Box<dyn Subject>>
where
    K: Kind<Key = u64, KeyBuf = u64>,
    S: SchemaOf<K>,
    u64: Key<K>,
{
    let (lines, payload_words) = (plan.node_lines, plan.payload_words());
    let load = Load::Split(leaf_shape(about, plan).map_or(0, |shape| shape.capacity));
    if about.name == nvtree::ENGINE {
        let options = nvtree::Options { payload_words, ..nvtree::Options::new(lines, Durability::Power) };
        let create = |medium| nvtree::NvTree::<_, S>::create(medium, &options);
        let way = |index: &nvtree::NvTree<_, S>, quiet: &_, key| {
            way(index, (quiet, &index.shape().entries), log, false, key)
        };
        return plan.count::<K, _>(create, load, way);
    }
    let faithful = about.name == VLAB_STEPWISE.name;
    let options = vlab::Options { payload_words, faithful, ..vlab::Options::new(lines, Durability::Power) };
    let create = |medium| vlab::Vlab::<_, S>::create(medium, &options);
    let way = if faithful { buckets_way::<S, true> } else { buckets_way::<S, false> };
    plan.count::<K, _>(create, load, way)
}

fn buckets_way<S: Schema<Key = u64>, const FAITHFUL: bool>(
    index: &vlab::Vlab<Observed, S>,
    quiet: &Observed,
    key: u64,
) -> pmem::Result<Way> {
    way(index, (quiet, &index.shape().entries), bucket, FAITHFUL, key)
}

/// Offset of the bitmap, or of the signs, in a leaf header.
const BITS_AT: u64 = 4 * WORD;
const BIT_WORDS: usize = 4;

/// The contents of a leaf.
#[derive(Default)]
struct Contents {
    /// Keys with their positions.
    entries: Vec<(u64, u16)>,
    /// For a log leaf: number of positions in use.
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

/// The leaf that the link at offset `at` references.
fn next_leaf(quiet: &Observed, at: u64) -> u64 {
    unchecked(quiet.word(at)).unwrap_or(0) * WORD
}

/// Number of leaves of the list whose head is the word at `head_at`.
fn count_leaves(quiet: &Observed, head_at: u64) -> u64 {
    std::iter::successors(Some(next_leaf(quiet, head_at)), |leaf| Some(next_leaf(quiet, *leaf)))
        .take_while(|leaf| *leaf != 0)
        .count() as u64
}

/// The path to a key. `has_second`: the index has a second list, which combines merge into the first.
fn way<I: LeafList<Medium = Observed, Schema: Schema<Key = u64>>>(
    index: &I,
    (quiet, shape): (&Observed, &Shape),
    read: Read,
    has_second: bool,
    key: u64,
) -> pmem::Result<Way> {
    let leaf = index.sound_leaf_of(&key)?;
    let Contents { mut entries, logged } = read(quiet, shape, leaf);
    entries.sort_unstable();
    let rank = entries.partition_point(|(found, _)| *found < key);
    let hit = entries.get(rank).is_some_and(|(found, _)| *found == key);
    let numbers = entries.into_iter().map(|(_, place)| place).collect();
    let step = Step { node: leaf, level: 0, numbers, rank, shape: *shape, logged };
    let meta = index.root_block();
    let lists = has_second.then(|| [meta, meta + WORD].map(|head_at| count_leaves(quiet, head_at)));
    Ok(Way { steps: vec![step], hit, last: next_leaf(quiet, leaf) == 0, inner: None, lists })
}

/// A header occupies one line.
const _: () = assert!(BITS_AT + BIT_WORDS as u64 * WORD == LINE);
