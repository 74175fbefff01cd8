//! The protocol of readers of a list of leaves under a model checker. The directory is one separator and the leaf to its right. It has no
//! version: only the counter protects it. The writer splits a leaf, or merges two leaves and uses the freed block again.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::sync::stripe::Held;

/// Minimum of executions of a model. An exploration that ends at once tests nothing.
const EXECUTIONS_MIN: u64 = 100;
/// Addresses of the leaves. Their versions differ.
const LEFT: u64 = 64;
const RIGHT: u64 = 128;
/// The values of keys 1 and 2 during the whole model. An entry is a key and its value.
const ONE: u64 = 1 << 8 | 10;
const TWO: u64 = 2 << 8 | 20;
/// An entry that no reader may see: it is in a block that is not in the list.
const FOREIGN: u64 = 2 << 8 | 99;

struct List {
    stripes: Stripes,
    changes: Changes,
    /// The lower bound of the right leaf (0: there is none), and its address.
    directory: [AtomicU64; 2],
    /// Two entries in each of the two leaves.
    leaves: [[AtomicU64; 2]; 2],
}

impl List {
    fn new(directory: [u64; 2], leaves: [[u64; 2]; 2]) -> Arc<Self> {
        let stripes = Stripes::default();
        let [left, right] = [LEFT, RIGHT].map(|leaf| stripes.read(leaf));
        assert_ne!(left, right, "each leaf has a version of its own");
        let leaves = leaves.map(|leaf| leaf.map(AtomicU64::new));
        Arc::new(Self {
            stripes,
            changes: Changes::default(),
            directory: directory.map(AtomicU64::new),
            leaves,
        })
    }

    fn leaf(&self, address: u64) -> &[AtomicU64; 2] {
        &self.leaves[usize::from(address == RIGHT)]
    }

    /// One attempt of a get, as in `index::leaf_list::read`: the entry of a key, 0 if it is absent; `None` if a validation failed.
    fn get(&self, key: u64) -> Option<u64> {
        let changes = self.changes.settled(&self.stripes);
        let [bound, right] = [0, 1].map(|word: usize| self.directory[word].load(Ordering::Relaxed));
        let leaf = if bound != 0 && key >= bound { right } else { LEFT };
        let version = self.stripes.read(leaf);
        let entries = self.leaf(leaf).each_ref().map(|entry| entry.load(Ordering::Relaxed));
        let is_good = self.stripes.check(version) && self.changes.are_unchanged(changes, &self.stripes);
        is_good.then(|| entries.into_iter().find(|entry| entry >> 8 == key).unwrap_or(0))
    }

    fn set(&self, leaf: u64, slot: usize, entry: u64) {
        self.leaf(leaf)[slot].store(entry, Ordering::Relaxed);
    }

    /// Changes the directory in place.
    fn lead(&self, bound: u64, right: u64) {
        self.changes.begin();
        self.directory[0].store(bound, Ordering::Relaxed);
        self.directory[1].store(right, Ordering::Relaxed);
        self.changes.end();
    }

    /// Key 2 moves to the right leaf, whose block no reader can reach before the directory leads to it.
    fn split(&self) {
        let mut held = Held::default();
        self.stripes.take_over();
        self.set(RIGHT, 0, TWO);
        self.stripes.lock(LEFT, &mut held);
        self.lead(2, RIGHT);
        self.set(LEFT, 1, 0);
        self.stripes.unlock(&mut held);
    }

    /// Key 2 moves to the left leaf. Then another change writes to the block of the right leaf.
    fn merge(&self) {
        let mut held = Held::default();
        self.stripes.take_over();
        self.stripes.lock(LEFT, &mut held);
        self.stripes.lock(RIGHT, &mut held);
        self.set(LEFT, 1, TWO);
        self.lead(0, 0);
        self.stripes.unlock(&mut held);
        self.stripes.take_over();
        self.set(RIGHT, 0, FOREIGN);
    }
}

/// A writer concurrent with a reader of key 1 or key 2, which are always present.
fn explore(directory: [u64; 2], leaves: [[u64; 2]; 2], write: fn(&List)) {
    for (key, wanted) in [(1, ONE), (2, TWO)] {
        let executions = crate::sync::model::explored(move || {
            let list = List::new(directory, leaves);
            let beside = Arc::clone(&list);
            let reader = thread::spawn(move || {
                if let Some(found) = beside.get(key) {
                    assert_eq!(found, wanted, "key {key} beside the writer");
                }
            });
            write(&list);
            reader.join().unwrap();
            assert_eq!(list.get(key), Some(wanted), "key {key} after the writer");
        });
        assert!(executions >= EXECUTIONS_MIN, "{executions} executions");
    }
}

#[test]
fn a_reader_finds_keys_that_a_split_moves() {
    explore([0, 0], [[ONE, TWO], [FOREIGN, 0]], List::split);
}

#[test]
fn a_reader_finds_keys_that_a_merge_moves_even_if_the_block_is_used_again() {
    explore([2, RIGHT], [[ONE, 0], [TWO, 0]], List::merge);
}

/// A model above detects each injected fault.
#[test]
fn injected_faults_are_detected() {
    let omissions: [(Omission, fn()); 3] = [
        (Omission::Settled, a_reader_finds_keys_that_a_split_moves),
        (Omission::Changes, a_reader_finds_keys_that_a_split_moves),
        (Omission::ChangesFence, a_reader_finds_keys_that_a_split_moves),
    ];
    for (omission, model) in omissions {
        crate::sync::model::is_noticed(omission, model);
    }
}
