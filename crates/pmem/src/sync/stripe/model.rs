//! The protocol under a model checker: every order in which the threads' loads and stores may take effect, with at most
//! `LOOM_MAX_PREEMPTIONS` preemptions (2).
//!
//! * One node of two words, a writer and a reader: torn pairs, and the reader that asks the writer to give way.
//! * A tree of four blocks, with the descent rule of trees: inserts, splits, merges, changes of the root, and blocks that are
//!   reused while a reader or a scan is on its way to them.
//! * Records, which have no version. One writer replaces a record and frees the block of the old one; a second writer then writes to this
//!   block, while a reader may still read it.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::sync::atomics::Mutex;
use crate::sync::omission::Omission;

/// A node of two words that change together, and the number of the last durable round.
struct Shared {
    stripes: Stripes,
    words: [AtomicU64; 2],
    durable: AtomicU64,
}

const NODE: u64 = 4096;
const ROUNDS: u64 = 2;

impl Shared {
    fn write(&self) {
        for round in 1..=ROUNDS {
            let mut held = Held::default();
            self.stripes.give_way();
            self.stripes.lock(NODE, &mut held);
            self.words.iter().for_each(|word| word.store(round, Ordering::Relaxed));
            self.durable.store(round, Ordering::Relaxed);
            self.stripes.unlock(&mut held);
        }
    }

    /// One attempt of a get: `None` if the validation failed.
    fn read(&self) -> Option<u64> {
        let version = self.stripes.read(NODE);
        let [first, second] = [0, 1].map(|i: usize| self.words[i].load(Ordering::Relaxed));
        self.stripes.check(version).then(|| {
            assert_eq!(first, second, "a torn pair");
            let durable = self.durable.load(Ordering::Relaxed);
            assert!(durable >= first, "round {first} was returned, {durable} was durable");
            first
        })
    }
}

/// Runs a model to its end. An exploration that ends at once tests nothing.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let executions = crate::sync::model::explored(model);
    assert!(executions >= EXECUTIONS_MIN, "{executions} executions");
}

/// Minimum of executions of a model: each has two threads that share a few words.
const EXECUTIONS_MIN: u64 = 100;

/// A writer concurrent with a reader.
fn explore(reader: fn(&Shared)) {
    check(move || {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let shared = Arc::new(Shared { stripes: Stripes::new(2), words, durable: AtomicU64::new(0) });
        let beside = Arc::clone(&shared);
        let thread = thread::spawn(move || reader(&beside));
        shared.write();
        thread.join().unwrap();
        assert_eq!(shared.read(), Some(ROUNDS));
        assert_eq!(shared.stripes.asking.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_reader_returns_whole_durable_rounds_in_order() {
    explore(|shared| {
        let (first, second) = (shared.read(), shared.read());
        assert!(second.is_none() || first <= second, "{second:?} after {first:?}");
    });
}

#[test]
fn a_reader_that_asks_comes_to_an_end_and_lets_the_writer_go_on() {
    explore(|shared| {
        let mut tries = shared.stripes.tries();
        while shared.read().is_none() {
            tries.fail().expect("the writer is there");
        }
    });
}

/// A small tree: four blocks of three words, each with a version of its own.
///
/// Word 0 is the level. Words 1 and 2 of a leaf are entries, key and value, ascending. In an inner node they are the leftmost
/// child, and a separator with the child to its right. A word is 0 if it is not used.
struct Tree {
    stripes: Stripes,
    root: AtomicU64,
    blocks: [[AtomicU64; 3]; BLOCKS],
}

const BLOCKS: usize = 4;
const LEAF: u64 = 0;
const INNER: u64 = 1;

/// A key with its value, or a separator with the child to its right.
const fn entry(key: u64, payload: u64) -> u64 {
    key << 8 | payload
}

/// The values of key 1 and key 2 during the whole model.
const ONE: u64 = entry(1, 10);
const TWO: u64 = entry(2, 20);
/// A value that no reader may see: it was stored under key 2 in a block that is no longer in the tree.
const FOREIGN: u64 = entry(2, 99);

/// The stores of a change: block, word, value.
type Stores<'a> = &'a [(usize, usize, u64)];

impl Tree {
    fn new(root: usize, contents: [[u64; 3]; BLOCKS]) -> Arc<Self> {
        let blocks = contents.map(|words| words.map(AtomicU64::new));
        Arc::new(Self { stripes: Stripes::new(STRIPES), root: AtomicU64::new(root as u64), blocks })
    }

    /// The block's address: one of the first four with versions of their own.
    fn address(&self, block: usize) -> u64 {
        let first = |index: &usize| (1..).map(|n| n * 64).find(|at| self.stripes.index(*at) == *index);
        first(&block).expect("each stripe has blocks")
    }

    fn word(&self, block: usize, word: usize) -> u64 {
        self.blocks[block][word].load(Ordering::Relaxed)
    }

    /// As `Tree::change_and` of trees.
    fn change(&self, locked: &[usize], stores: Stores<'_>, root: Option<usize>) {
        let mut held = Held::default();
        for block in locked {
            self.stripes.lock(self.address(*block), &mut held);
        }
        for (block, word, value) in stores {
            self.blocks[*block][*word].store(*value, Ordering::Relaxed);
        }
        if let Some(root) = root {
            self.root.store(root as u64, Ordering::Release);
        }
        self.stripes.unlock(&mut held);
    }

    /// The block at any address: reading is total.
    fn block(&self, address: u64) -> usize {
        self.stripes.index(address) % BLOCKS
    }

    /// One attempt of a get, by the descent of trees; `None` if a validation failed.
    fn get(&self, key: u64) -> Option<u64> {
        let root = || self.address(self.root.load(Ordering::Acquire) as usize);
        let descent = self.stripes.descend(root, 2, |at| {
            let block = self.block(at);
            if self.word(block, 0) == LEAF {
                let entries = [1, 2].map(|word| self.word(block, word));
                return Step::Target(entries.into_iter().find(|entry| entry >> 8 == key));
            }
            let (leftmost, separator) = (self.word(block, 1), self.word(block, 2));
            let child = if separator != 0 && key >= separator >> 8 { separator & 0xFF } else { leftmost };
            Step::Child(self.address(child as usize % BLOCKS))
        })?;
        match descent {
            Descent::Target { version, target, .. } => {
                self.stripes.check(version).then_some(target.unwrap_or(0))
            }
            other => panic!("{other:?}: a path that is too deep stood the second look"),
        }
    }
}

/// A writer concurrent with a reader that looks up key 1 or key 2, which are always present.
fn explore_tree(root: usize, contents: [[u64; 3]; BLOCKS], write: fn(&Tree)) {
    for (key, wanted) in [(1, ONE), (2, TWO)] {
        check(move || {
            let tree = Tree::new(root, contents);
            let beside = Arc::clone(&tree);
            let reader = thread::spawn(move || {
                if let Some(found) = beside.get(key) {
                    assert_eq!(found, wanted, "key {key} beside the writer");
                }
            });
            write(&tree);
            reader.join().unwrap();
            assert_eq!(tree.get(key), Some(wanted), "key {key} behind the writer");
        });
    }
}

/// A block that is not in the tree.
const UNUSED: [u64; 3] = [LEAF, FOREIGN, 0];

#[test]
fn a_reader_finds_keys_that_an_insert_moves() {
    // Smaller keys come first, so that the others move.
    let contents = [[INNER, 1, entry(2, 2)], [LEAF, ONE, 0], [LEAF, TWO, 0], UNUSED];
    explore_tree(0, contents, |tree| {
        tree.change(&[1], &[(1, 1, entry(0, 5)), (1, 2, ONE)], None);
        tree.change(&[2], &[(2, 1, entry(1, 5)), (2, 2, TWO)], None);
    });
}

#[test]
fn a_reader_finds_keys_that_a_split_moves() {
    let contents = [[INNER, 1, 0], [LEAF, ONE, TWO], UNUSED, UNUSED];
    explore_tree(0, contents, |tree| {
        tree.change(&[2, 1, 0], &[(2, 1, TWO), (1, 2, 0), (0, 2, entry(2, 2))], None);
    });
}

#[test]
fn a_reader_finds_keys_that_a_merge_moves_even_if_the_block_is_used_again() {
    let contents = [[INNER, 1, entry(2, 2)], [LEAF, ONE, 0], [LEAF, TWO, 0], UNUSED];
    explore_tree(0, contents, |tree| {
        tree.change(&[1, 2, 0], &[(1, 2, TWO), (0, 2, 0)], None);
        // Reused as a leaf elsewhere.
        tree.change(&[2], &[(2, 1, FOREIGN)], None);
    });
    explore_tree(0, contents, |tree| {
        tree.change(&[1, 2, 0], &[(1, 2, TWO), (0, 2, 0)], None);
        // Reused as an inner node whose subtree does not have the reader's keys.
        tree.change(&[2], &[(2, 0, INNER), (2, 1, 3), (2, 2, 0)], None);
    });
}

#[test]
fn a_reader_finds_keys_below_a_root_that_changes() {
    let contents = [UNUSED, [LEAF, ONE, TWO], UNUSED, UNUSED];
    explore_tree(1, contents, |tree| {
        let root = [(0, 0, INNER), (0, 1, 1), (0, 2, entry(2, 2))];
        let split = [&[(2, 1, TWO), (1, 2, 0)], &root[..]].concat();
        tree.change(&[2, 1, 0], &split, Some(0));
    });
}

#[test]
fn a_reader_finds_keys_below_a_root_that_gives_way_and_is_used_again() {
    let contents = [[INNER, 1, entry(2, 2)], [LEAF, ONE, 0], [LEAF, TWO, 0], UNUSED];
    explore_tree(0, contents, |tree| {
        tree.change(&[1, 2, 0], &[(1, 2, TWO)], Some(1));
        tree.change(&[0], &[(0, 0, LEAF), (0, 1, FOREIGN), (0, 2, 0)], None);
    });
}

/// Linked leaves of one entry: word 1 is the entry, word 2 the next leaf. A scan continues from the first leaf as cursors of trees
/// do, while a writer removes the second leaf and reuses its block as a leaf far to the left.
#[test]
fn a_scan_follows_no_link_to_a_block_that_is_used_again() {
    check(|| {
        let tree = Tree::new(1, [UNUSED, [LEAF, ONE, 2], [LEAF, TWO, 0], UNUSED]);
        let beside = Arc::clone(&tree);
        // The leaf that the scan finds after the first one; `None` if a validation failed.
        let scan = move || -> Option<u64> {
            let first = beside.stripes.read(beside.address(1));
            let next = beside.word(1, 2) as usize;
            if !beside.stripes.check(first) {
                return None;
            }
            if next == 0 {
                return beside.stripes.check(first).then_some(0);
            }
            let second = beside.stripes.read(beside.address(next));
            if !beside.stripes.check(first) {
                return None;
            }
            let found = beside.word(next, 1);
            beside.stripes.check(second).then_some(found)
        };
        let reader = thread::spawn(move || {
            if let Some(found) = scan() {
                assert!([0, TWO].contains(&found), "{found:#x} behind the first leaf");
            }
        });
        tree.change(&[1, 2], &[(1, 2, 0)], None);
        tree.change(&[2], &[(2, 1, FOREIGN)], None);
        reader.join().unwrap();
    });
}

/// A leaf with one entry that points to a record, and two blocks for records. The block of the old record has no version.
struct Records {
    stripes: Stripes,
    /// The address of the entry's record.
    leaf: AtomicU64,
    /// A value and its checksum.
    records: [[AtomicU64; 2]; 2],
    /// The writer's lock. It protects the newest value.
    writer: Mutex<u64>,
}

fn checksum(value: u64) -> u64 {
    value ^ 0xFF
}

impl Records {
    /// Stores the next value in a new record.
    fn update(&self) {
        let mut newest = self.writer.lock().unwrap();
        self.stripes.take_over();
        *newest += 1;
        // The block that the previous change freed.
        let block = (*newest % 2) as usize;
        self.records[block][0].store(*newest, Ordering::Relaxed);
        self.records[block][1].store(checksum(*newest), Ordering::Relaxed);
        let mut held = Held::default();
        self.stripes.lock(NODE, &mut held);
        self.leaf.store(block as u64, Ordering::Relaxed);
        self.stripes.unlock(&mut held);
    }

    /// One attempt of a get: it returns the value that was there when the version was read (S3).
    fn read(&self) {
        let version = self.stripes.read(NODE);
        let block = self.leaf.load(Ordering::Relaxed) as usize;
        let [value, check] = [0, 1].map(|i: usize| self.records[block][i].load(Ordering::Relaxed));
        if self.stripes.check(version) {
            assert_eq!(check, checksum(value), "a torn record stood the second look");
            assert_eq!(value, version.even / 2, "not what was there at the first look");
        }
    }
}

#[test]
fn a_reader_sees_no_record_of_a_block_that_another_writer_uses_again() {
    check(|| {
        let records = [[0, checksum(0)], [0, 0]].map(|words| words.map(AtomicU64::new));
        let (stripes, leaf, writer) = (Stripes::new(2), AtomicU64::new(0), Mutex::new(0));
        let shared = Arc::new(Records { stripes, leaf, records, writer });
        let writers = [0, 1].map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.update())
        });
        shared.read();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        shared.read();
    });
}

/// A model above detects each injected fault.
#[test]
fn omissions_are_noticed() {
    let omissions: [(Omission, fn()); 7] = [
        (Omission::FirstRead, a_reader_returns_whole_durable_rounds_in_order),
        (Omission::Validation, a_reader_returns_whole_durable_rounds_in_order),
        (Omission::Unlock, a_reader_returns_whole_durable_rounds_in_order),
        (Omission::LockFence, a_reader_returns_whole_durable_rounds_in_order),
        (Omission::FirstReadOrder, a_reader_returns_whole_durable_rounds_in_order),
        (Omission::ValidationFence, a_reader_returns_whole_durable_rounds_in_order),
        (Omission::TakeOver, a_reader_sees_no_record_of_a_block_that_another_writer_uses_again),
    ];
    for (omission, model) in omissions {
        crate::sync::model::is_noticed(omission, model);
    }
}
