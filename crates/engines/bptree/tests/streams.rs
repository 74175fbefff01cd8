//! Random streams: a tree against `BTreeMap`. Contents are compared by get, by scans in both directions and by the full check, across
//! reopens.
//!
//! This crate runs them for the default engine. The tests of `bristlecone-crash-tree` include this file for all trees, because all trees
//! are compiled there already.
//!
//! `BRISTLECONE_SEED=N` adds N to all seeds, which gives other streams; `cargo xtask soak` uses it. A failure prints its seed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layouts;
use bptree::roster::{ByteStrings, Visitor, log_records};
use bptree::{Tree, TreeOptions, WriteAhead};
use index::About;
use index::Tail;
use index::{Life, Schema, Words};
use pmem::simd::Vectors;
use pmem::{Counter, Durability, Durable, Geometry, Medium, Memory, Native, Observed};

/// Keys and values from small numbers.
pub trait Numbered: Sized {
    fn key(n: u64) -> Self;
    fn value(n: u64) -> Self;
    /// A value of this many words, for trees whose values all have the same number of words.
    fn of_words(n: u64, _words: usize) -> Self {
        Self::value(n)
    }
}

impl Numbered for u64 {
    fn key(n: u64) -> u64 {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
    fn value(n: u64) -> u64 {
        n
    }
}

impl Numbered for Vec<u8> {
    fn key(n: u64) -> Vec<u8> {
        text(n)
    }
    fn value(n: u64) -> Vec<u8> {
        payload(n)
    }
    fn of_words(n: u64, words: usize) -> Vec<u8> {
        (0..words as u64).flat_map(|i| (n * 7 + i).to_be_bytes()).collect()
    }
}

pub trait Sample: Schema<KeyBuf: Ord + Numbered, ValueBuf: PartialEq + Numbered> {
    fn key(n: u64) -> Self::KeyBuf {
        Self::KeyBuf::key(n)
    }
    /// Value number `n`. It has `words` words if the tree has values of one length.
    fn value(n: u64, words: usize) -> Self::ValueBuf {
        if Self::Tail::EMPTY { Self::ValueBuf::value(n) } else { Self::ValueBuf::of_words(n, words) }
    }
}
impl<S: Schema<KeyBuf: Ord + Numbered, ValueBuf: PartialEq + Numbered>> Sample for S {}

pub fn text(n: u64) -> Vec<u8> {
    // Common prefixes longer and shorter than a prefix word; lengths from 1 to about 40.
    let stem = ["", "a", "user:", "session/2026/", "the same long beginning of many a key "][n as usize % 5];
    format!("{stem}{}", n.wrapping_mul(0x9E37_79B9) % 100_003).into_bytes()
}

pub fn payload(n: u64) -> Vec<u8> {
    // Some values are stored in pieces (chunks of 16 KiB have pieces of about 2,000 bytes).
    let bytes = if n.is_multiple_of(50) { n * 12 } else { n % 97 };
    (0..bytes).map(|i| (n + i) as u8).collect()
}

pub fn assert_same<M: Medium, S: Sample, L: Layouts, D: CommitProtocol>(
    tree: &Tree<M, S, L, D>,
    model: &BTreeMap<S::KeyBuf, S::ValueBuf>,
    seed: u64,
) {
    let report = tree.check();
    assert!(report.problems.is_empty(), "seed {seed}: {:#?}", report.problems);
    assert_eq!(tree.len(), (model.len() as u64, false), "seed {seed}");
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    for descending in [false, true] {
        let mut cursor = tree.cursor();
        cursor.seek(Bound::Unbounded, descending);
        let mut pairs: Vec<_> = model.iter().collect();
        if descending {
            pairs.reverse();
        }
        for (k, v) in pairs {
            assert!(cursor.next(&mut key, &mut value).unwrap(), "seed {seed}: scan ends before {k:?}");
            assert!(key == *k && value == *v, "seed {seed}: scan gives {key:?}, not {k:?}");
        }
        assert!(!cursor.next(&mut key, &mut value).unwrap(), "seed {seed}: scan goes on with {key:?}");
    }
}

fn assert_bounds<M: Medium, S: Sample, L: Layouts, D: CommitProtocol>(
    tree: &Tree<M, S, L, D>,
    model: &BTreeMap<S::KeyBuf, S::ValueBuf>,
    at: S::KeyBuf,
) {
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    for bound in [Bound::Included(at.clone()), Bound::Excluded(at)] {
        let mut cursor = tree.cursor();
        cursor.seek(bound.clone(), false);
        let mut wanted = model.range((bound.clone(), Bound::Unbounded));
        for _ in 0..3 {
            let next = cursor.next(&mut key, &mut value).unwrap().then_some(&key);
            assert_eq!(next, wanted.next().map(|(k, _)| k));
        }
        cursor.seek(bound.clone(), true);
        let mut wanted = model.range((Bound::Unbounded, bound)).rev();
        for _ in 0..3 {
            let next = cursor.next(&mut key, &mut value).unwrap().then_some(&key);
            assert_eq!(next, wanted.next().map(|(k, _)| k));
        }
    }
}

/// One stream: the tree grows, changes, and shrinks to nothing.
pub fn run<M: Medium, S: Sample, L: Layouts, D: CommitProtocol>(
    tree: &Tree<M, S, L, D>,
    model: &mut BTreeMap<S::KeyBuf, S::ValueBuf>,
    keys: u64,
    operations: usize,
    seed: u64,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let words = tree.leaf_shape().payload_words;
    for step in 0..operations {
        let key = S::key(random.u64(..keys));
        let deletes = [2, 5, 8][step * 3 / operations];
        if random.u64(..10) < deletes {
            assert_eq!(
                tree.delete(S::borrow(&key)).unwrap(),
                model.remove(&key).is_some(),
                "seed {seed} step {step}"
            );
        } else {
            let value = S::value(random.u64(..1000), words);
            let replaced = tree.put(S::borrow(&key), S::borrow_value(&value)).unwrap();
            assert_eq!(replaced, model.insert(key.clone(), value).is_some(), "seed {seed} step {step}");
        }
        let probe = S::key(random.u64(..keys));
        let mut value = S::ValueBuf::default();
        let found = tree.get(S::borrow(&probe), Some(&mut value)).unwrap();
        assert_eq!(found.then_some(&value), model.get(&probe), "seed {seed} step {step}");
        if step % 97 == 0 {
            assert_bounds(tree, model, probe);
        }
        if step % (operations / 10) == 0 {
            assert_same(tree, model, seed);
        }
    }
    assert_same(tree, model, seed);
}

/// Seed number `base` of this run.
pub fn seed(base: u64) -> u64 {
    let offset = match std::env::var("BRISTLECONE_SEED") {
        Ok(text) => text.parse().expect("BRISTLECONE_SEED is a number"),
        Err(_) => 0,
    };
    base.wrapping_add(offset)
}

/// Prints the seed of the stream if the test panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let offset = std::env::var("BRISTLECONE_SEED").unwrap_or_else(|_| "0".into());
            eprintln!("the stream had seed {}; to repeat it: BRISTLECONE_SEED={offset}", self.0);
        }
    }
}

/// Small chunks, and a log into which the largest change fits.
pub fn options<D: CommitProtocol>(lines: u64) -> TreeOptions {
    let log_records = match log_records::<D>(lines) {
        1024 => 256,
        more => more,
    };
    TreeOptions {
        geometry: Geometry { chunk_bytes: 16 << 10, log_records },
        ..TreeOptions::new("t", lines, Durability::Power)
    }
}

fn empty_out<M: Medium, S: Sample, L: Layouts, D: CommitProtocol>(
    tree: &Tree<M, S, L, D>,
    model: &mut BTreeMap<S::KeyBuf, S::ValueBuf>,
) {
    while let Some((key, _)) = model.pop_first() {
        assert!(tree.delete(S::borrow(&key)).unwrap());
    }
    assert_same(tree, model, 0);
    let report = tree.check();
    assert_eq!((report.nodes, report.levels), (1, 1), "an emptied tree is one empty leaf");
    assert_eq!(report.live_bytes, tree.leaf_shape().bytes(), "and owns nothing else");
}

/// A stream over observed memory, with payloads of this many words.
pub fn on_observed<S: Sample, L: Layouts, D: CommitProtocol>(lines: u64, payload_words: usize, base: u64) {
    let seed = seed(base);
    let _told = Told(seed);
    let memory = Memory::new(16 << 20, 0);
    let medium = || Observed::new(Arc::clone(&memory), Arc::new(Counter::default()));
    let mut model = BTreeMap::new();
    let made = TreeOptions { payload_words, ..options::<D>(lines) };
    let tree = Tree::<_, S, L, D>::create(medium(), &made).unwrap();
    assert!(!tree.uses_vectors(), "a medium that sees every read shows no whole lines");
    run(&tree, &mut model, 600, 3000, seed);
    drop(tree); // as a crash that loses nothing
    let open = || Tree::<_, S, L, D>::open(medium(), Path::new("memory"), "t", Durability::Power, 2).unwrap();
    let (tree, found) = open();
    assert_eq!(found, pmem::Found::InUse);
    while tree.count_some(7).unwrap() {}
    assert_same(&tree, &model, seed);
    run(&tree, &mut model, 600, 1000, seed.wrapping_add(1));
    tree.close().unwrap();
    assert!(tree.put(S::borrow(&S::key(1)), S::borrow_value(&S::value(1, payload_words))).is_err());
    let (tree, found) = open();
    assert_eq!(found, pmem::Found::Clean { keys: model.len() as u64 });
    assert_same(&tree, &model, seed);
    empty_out(&tree, &mut model);
}

fn on_native<S: Sample, L: Layouts, D: CommitProtocol>(lines: u64, base: u64) {
    let seed = seed(base);
    let _told = Told(seed);
    let tree = || {
        let medium = Durable::from(Native::anonymous(1 << 28, Durability::Power).unwrap());
        let mut options = TreeOptions::new("t", lines, Durability::Power);
        options.geometry.log_records = log_records::<D>(lines);
        Tree::<_, S, L, D>::create(medium, &options).unwrap()
    };
    let stream = |tree: Tree<_, S, L, D>| {
        let mut model = BTreeMap::new();
        let operations = crash::by_tier(6_000, 60_000);
        run(&tree, &mut model, operations as u64 / 3, operations, seed);
        empty_out(&tree, &mut model);
    };
    // Both searches if there are two. In a pool, only nodes of a power of two lines have pages of their own.
    let apart = D::NAME != WriteAhead::NAME || lines.is_power_of_two();
    let has_vectors = match Vectors::of_processor() {
        Some(Vectors::Wide(_)) => true,
        Some(Vectors::Narrow(_)) => D::SPECIALISED && L::SPECIALISED,
        None => false,
    };
    assert_eq!(tree().uses_vectors(), S::PLAIN && lines <= 16 && apart && has_vectors);
    assert!(!tree().without_vectors().uses_vectors());
    if tree().uses_vectors() {
        stream(tree());
    }
    stream(tree().without_vectors());
}

/// Both kinds of keys, on both media, with every node size of the tree.
pub struct Streams;

impl Visitor for Streams {
    type Out = ();

    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) {
        for lines in [2, 3, 4, 8, 16, 20, 64].into_iter().filter(|lines| about.allows(*lines)) {
            on_native::<Words, L, D>(lines, lines);
            on_native::<B, L, D>(lines, lines);
            if D::DURABLE {
                on_observed::<Words, L, D>(lines, 1, lines);
                on_observed::<B, L, D>(lines, 1, lines);
            }
        }
    }
}
