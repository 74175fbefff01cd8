//! Models: small trees with two or three threads. loom runs every order of their loads, stores and exchanges that the memory model permits,
//! with a bound on preemptions (`LOOM_MAX_PREEMPTIONS`, default 2).
//!
//! Each model ends with a check of the tree: no violations, all pages and PIDs accounted for, and no retired memory left. A model fails if
//! a thread reads a node that was not published to it, or that was freed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as Shared;
use std::sync::atomic::AtomicU64 as Plain;
use std::time::Instant;

use loom::sync::Arc;
use loom::thread;

use crate::bytes::Bytes;
use crate::epoch::Epochs;
use crate::node::{Made, leaf_bytes};
use crate::omission::{Omission, omit};
use crate::options::Options;
use crate::page::Outline;
use crate::page::{Bounds, New};
use crate::pairs::{At, Pairs};
use crate::pool::{BATCH, Block, Depot, Pool};
use crate::structure::Contents;
use crate::sync::{AtomicPtr, NUMBER, Ordering, Watch};
use crate::table::{Pid, Table};
use crate::tree::Tree;
use crate::words::Words;

type Work = fn(&Tree<Words>);

/// Leaves of up to three records. No operation consolidates them by itself.
pub(crate) fn options() -> Options {
    Options {
        leaf_chain: 9,
        leaf_chain_read: 0,
        inner_chain: 100,
        leaf_split_bytes: 48,
        leaf_merge_bytes: 0,
        ..Options::tiny()
    }
}

/// As above, but a leaf with fewer than two records is merged.
fn merging() -> Options {
    Options { leaf_merge_bytes: 32, ..options() }
}

pub(crate) fn put(tree: &Tree<Words>, keys: &[u64]) {
    for key in keys {
        tree.put(key, &(key * 10)).unwrap();
    }
}

/// Consolidates or splits the leaf of a key.
fn maintain(tree: &Tree<Words>, key: u64) {
    let visit = tree.visit();
    let (pid, _) = visit.leaf(At(&key));
    visit.maintain(pid);
}

/// Splits the leaf of a key, of any size.
pub(crate) fn split(tree: &Tree<Words>, key: u64) {
    let visit = tree.visit();
    let (pid, head) = visit.leaf(At(&key));
    let contents = Contents::of(head, &tree.options);
    if contents.len() > 1 {
        visit.split(pid, head, &Outline::of(head), &contents);
    }
}

/// Merges the leaf of a key into its left sibling, if the options permit their size.
pub(crate) fn merge(tree: &Tree<Words>, key: u64) {
    let visit = tree.visit();
    let (pid, head) = visit.leaf(At(&key));
    visit.merge(pid, 0, Outline::of(head).low, 0);
}

/// Runs a model to its end, or for at most `LOOM_MAX_DURATION`, and prints which. Returns the number of executions.
pub(crate) fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) -> u64 {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    let executions = Shared::new(Plain::new(0));
    let counted = executions.clone();
    let (limit, start) = (builder.max_duration, Instant::now());
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    let executions = executions.load(std::sync::atomic::Ordering::Relaxed);
    let cut = limit.filter(|limit| start.elapsed() >= *limit);
    let cut = cut.map(|limit| format!(", and more that {} s were too short for", limit.as_secs()));
    println!("{name}: {executions} executions{}", cut.unwrap_or_default());
    assert!(executions > 10, "{name}: nothing happens at once");
    executions
}

/// A model: its options, the work before the threads start, the work of each thread, and the keys of the tree at the end (with ten times
/// the key as the value).
struct Model {
    options: Options,
    before: Work,
    threads: &'static [Work],
    after: &'static [u64],
}

impl Model {
    fn explore(self, name: &str) -> u64 {
        let Self { options, before, threads, after } = self;
        explore(name, move || {
            let tree = Arc::new(Tree::<Words>::new(options).unwrap());
            before(&tree);
            let run = |(number, work): (usize, &Work)| {
                let (tree, work) = (tree.clone(), *work);
                thread::spawn(move || {
                    NUMBER.with(|own| own.set(number + 1));
                    work(&tree);
                })
            };
            // The main thread of the model does the first work.
            let (first, others) = threads.split_first().unwrap();
            let others: Vec<_> = others.iter().enumerate().map(run).collect();
            first(&tree);
            others.into_iter().for_each(|thread| thread.join().unwrap());
            end(&tree, after);
        })
    }
}

pub(crate) fn end(tree: &Tree<Words>, after: &[u64]) {
    let check = tree.check();
    assert!(check.problems.is_empty() && check.is_quiet, "{check:?}");
    let found: Vec<_> = tree.iter().collect();
    assert_eq!(found, after.iter().map(|key| (*key, key * 10)).collect::<Vec<_>>());
    tree.reclaim();
    let stats = tree.stats();
    assert_eq!((stats.limbo_objects(), stats.limbo_bytes()), (0, 0), "{stats:?}");
    assert_eq!(stats.retired_pids, stats.freed_pids);
}

#[test]
fn two_appends_to_one_key() {
    // With enough places, both append in the slab. With one place, each append after the first makes a new leaf.
    two_appends(9);
    two_appends(1);
}

fn two_appends(leaf_chain: u32) {
    explore(&format!("two appends to one key, space for {leaf_chain}"), move || {
        let options = Options { leaf_chain, ..options() };
        let tree = Arc::new(Tree::<Words>::new(options).unwrap());
        let other = tree.clone();
        let thread = thread::spawn(move || {
            NUMBER.with(|own| own.set(1));
            (other.insert(&1, &10).unwrap(), other.put_with_lsn(&2, &20).unwrap())
        });
        let own = (tree.insert(&1, &11).unwrap(), tree.put_with_lsn(&2, &21).unwrap());
        let their = thread.join().unwrap();
        assert!(own.0 != their.0, "both inserted it, or nobody did");
        assert_eq!(tree.get(&1), Some(if own.0 { 11 } else { 10 }));
        // The put with the larger LSN is the later one.
        assert_eq!(tree.get(&2), Some(if own.1 > their.1 { 21 } else { 20 }));
        assert_eq!((tree.len(), tree.check().problems.len()), (2, 0));
    });
}

#[test]
fn append_and_consolidate() {
    let model = Model {
        options: options(),
        before: |tree| put(tree, &[1, 2]),
        threads: &[|tree| put(tree, &[3]), |tree| maintain(tree, 1)],
        after: &[1, 2, 3],
    };
    model.explore("append, consolidate");
}

#[test]
fn consolidate_and_consolidate() {
    let model = Model {
        options: options(),
        before: |tree| put(tree, &[1, 2]),
        threads: &[|tree| maintain(tree, 1), |tree| maintain(tree, 1), |tree| assert!(tree.contains(&2))],
        after: &[1, 2],
    };
    model.explore("consolidate, consolidate, look");
}

/// Byte strings: one thread reads a record, one replaces it, and one consolidates the page that has it.
#[test]
fn a_record_that_is_replaced_while_it_is_read() {
    explore("a record replaced, consolidated, read", || {
        let tree = Arc::new(Tree::<Bytes>::new(options()).unwrap());
        tree.put(b"a", b"1").unwrap();
        tree.put(b"b", b"1").unwrap();
        let threads: Vec<_> = [
            |tree: &Tree<Bytes>| assert!(tree.put(b"a", b"2").unwrap()),
            |tree: &Tree<Bytes>| {
                let seen = tree.get(b"a").unwrap();
                assert!(seen == b"1" || seen == b"2");
            },
        ]
        .into_iter()
        .enumerate()
        .map(|(number, work)| {
            let tree = tree.clone();
            thread::spawn(move || {
                NUMBER.with(|own| own.set(number + 1));
                work(&tree);
            })
        })
        .collect();
        let visit = tree.visit();
        let (pid, _) = visit.leaf(At(b"a".as_slice()));
        visit.maintain(pid);
        drop(visit);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((tree.get(b"a"), tree.get(b"b")), (Some(b"2".to_vec()), Some(b"1".to_vec())));
        let check = tree.check();
        assert!(check.problems.is_empty() && check.is_quiet, "{check:?}");
        tree.reclaim();
        let stats = tree.stats();
        assert_eq!((stats.limbo_objects(), stats.limbo_bytes()), (0, 0), "{stats:?}");
    });
}

/// Both halves of a split get their records with one exchange. One thread splits a leaf while another replaces a record of the right half.
#[test]
fn a_record_that_moves_with_a_split_while_it_is_replaced() {
    explore("a record moved by a split, replaced", || {
        let tree = Arc::new(Tree::<Bytes>::new(options()).unwrap());
        for key in [b"a", b"b", b"c", b"d"] {
            tree.put(key, b"1").unwrap();
        }
        let other = tree.clone();
        let thread = thread::spawn(move || {
            NUMBER.with(|own| own.set(1));
            other.put(b"d", b"2").unwrap();
            other.put(b"d", b"3").unwrap();
        });
        let visit = tree.visit();
        let (pid, _) = visit.leaf(At(b"a".as_slice()));
        visit.maintain(pid);
        drop(visit);
        let seen = tree.get(b"d").unwrap();
        assert!([b"1", b"2", b"3"].contains(&seen.as_slice().try_into().unwrap()));
        thread.join().unwrap();
        assert_eq!(tree.get(b"d"), Some(b"3".to_vec()));
        let check = tree.check();
        assert!(check.problems.is_empty() && check.is_quiet, "{check:?}");
        tree.reclaim();
        let stats = tree.stats();
        assert_eq!((stats.limbo_objects(), stats.limbo_bytes()), (0, 0), "{stats:?}");
    });
}

/// Two leaves. The second is large enough to be split.
fn two_leaves(tree: &Tree<Words>) {
    put(tree, &[10, 20, 30, 40]);
    maintain(tree, 10);
    put(tree, &[50, 60]);
}

#[test]
fn split_and_insert_into_the_moved_range() {
    let model = Model {
        options: options(),
        before: two_leaves,
        threads: &[|tree| maintain(tree, 30), |tree| put(tree, &[55])],
        after: &[10, 20, 30, 40, 50, 55, 60],
    };
    model.explore("split, insert into the moved range");
}

#[test]
fn index_term_and_a_helping_reader() {
    let model = Model {
        options: options(),
        before: two_leaves,
        threads: &[
            |tree| maintain(tree, 30),
            |tree| {
                assert_eq!(tree.get(&60), Some(600));
                assert_eq!(tree.get(&30), Some(300));
            },
        ],
        after: &[10, 20, 30, 40, 50, 60],
    };
    model.explore("index term, helping reader");
}

#[test]
fn root_split_and_two_descents() {
    let model = Model {
        options: options(),
        before: |tree| put(tree, &[10, 20, 30, 40]),
        threads: &[
            |tree| maintain(tree, 10),
            |tree| assert_eq!(tree.get(&10), Some(100)),
            |tree| put(tree, &[35]),
        ],
        after: &[10, 20, 30, 35, 40],
    };
    model.explore("root split, two descents");
}

/// Two leaves. The second is merged, and the root shrinks, after one more record is deleted.
fn nearly_one_leaf(tree: &Tree<Words>) {
    put(tree, &[10, 20, 30, 40]);
    maintain(tree, 10);
    tree.delete(&20).unwrap();
}

#[test]
fn merge_and_insert_into_the_victim() {
    let model = Model {
        options: merging(),
        before: nearly_one_leaf,
        threads: &[|tree| assert_eq!(tree.delete(&40), Ok(true)), |tree| put(tree, &[35])],
        after: &[10, 30, 35],
    };
    model.explore("remove, merge, index delete, shrink; insert into the victim");
}

#[test]
fn merge_and_readers_of_the_victim() {
    let model = Model {
        options: merging(),
        before: nearly_one_leaf,
        threads: &[
            |tree| assert_eq!(tree.delete(&40), Ok(true)),
            |tree| {
                assert_eq!(tree.get(&30), Some(300));
                let up: Vec<_> = tree.iter().map(|(key, _)| key).filter(|key| *key != 40).collect();
                assert_eq!(up, [10, 30]);
            },
        ],
        after: &[10, 30],
    };
    model.explore("remove, merge, index delete, shrink; get and scan");
}

/// Two leaves with three records together may be merged.
fn wide() -> Options {
    Options { leaf_split_bytes: 64, ..options() }
}

#[test]
fn split_and_merge_of_neighbours() {
    let model = Model {
        options: wide(),
        before: |tree| {
            put(tree, &[10, 20, 30, 40]);
            split(tree, 10);
            split(tree, 30);
        },
        threads: &[|tree| split(tree, 10), |tree| merge(tree, 30)],
        after: &[10, 20, 30, 40],
    };
    model.explore("split of the left one, merge of the right one");
}

#[test]
fn merges_of_neighbours() {
    let model = Model {
        options: wide(),
        before: |tree| {
            put(tree, &[10, 20, 30, 40]);
            split(tree, 10);
            split(tree, 10);
            split(tree, 30);
        },
        threads: &[|tree| merge(tree, 20), |tree| merge(tree, 30)],
        after: &[10, 20, 30, 40],
    };
    model.explore("two merges side by side");
}

#[test]
fn pids_are_used_again() {
    let model = Model {
        options: wide(),
        before: |tree| {
            put(tree, &[10, 20, 30, 40]);
            split(tree, 10);
            split(tree, 10);
        },
        threads: &[
            |tree| {
                // The split may reuse the PID that the merge freed.
                merge(tree, 20);
                split(tree, 30);
            },
            |tree| assert_eq!(tree.get(&20), Some(200)),
        ],
        after: &[10, 20, 30, 40],
    };
    model.explore("PIDs used again");
}

/// Does the first step of a split: the parent gets no index term.
fn half_split(tree: &Tree<Words>, key: u64) {
    let visit = tree.visit();
    let (pid, head) = visit.leaf(At(&key));
    assert!(visit.split_half(pid, head, &Outline::of(head), &Contents::of(head, &tree.options)).is_some());
}

#[test]
fn a_split_that_is_undone_while_it_is_posted() {
    let model = Model {
        options: wide(),
        before: |tree| {
            put(tree, &[10, 20, 30, 40]);
            split(tree, 10);
            half_split(tree, 30);
        },
        threads: &[
            |tree| assert_eq!(tree.get(&40), Some(400)),
            |tree| {
                assert!(tree.contains(&40));
                merge(tree, 40);
            },
        ],
        after: &[10, 20, 30, 40],
    };
    model.explore("index term, helping reader who merges it again");
}

/// An object of the model of epochs.
struct Thing {
    watch: Watch,
}

/// The objects of one model. They exist until the model ends.
struct Things {
    epochs: Epochs<usize>,
    now: AtomicPtr<Thing>,
    all: [Shared<Thing>; 3],
}

/// Reads the current object, as a reader does.
fn read(things: &Things) {
    let slot = things.epochs.enter();
    let at = things.now.load(Ordering::Acquire).addr();
    things.all[at - 1].watch.look();
    drop(slot);
}

/// Replaces the current object and frees all expired ones.
fn renew(things: &Things, to: usize) {
    let slot = things.epochs.enter();
    let old = things.now.swap(std::ptr::without_provenance_mut(to), Ordering::AcqRel).addr();
    slot.retire(old);
    free(things, &slot);
}

fn free(things: &Things, slot: &crate::epoch::ThreadSlot<'_, usize>) {
    for old in slot.expired() {
        things.all[old - 1].watch.free();
    }
}

fn epochs() {
    let all = std::array::from_fn(|_| Shared::new(Thing { watch: Watch::new() }));
    let now = AtomicPtr::new(std::ptr::without_provenance_mut(1));
    let things = Arc::new(Things { epochs: Epochs::new(BATCH), now, all });
    let threads: Vec<_> = [|things: &Things| read(things), |things: &Things| renew(things, 2)]
        .into_iter()
        .enumerate()
        .map(|(number, work)| {
            let things = things.clone();
            thread::spawn(move || {
                NUMBER.with(|own| own.set(number + 1));
                work(&things);
            })
        })
        .collect();
    renew(&things, 3);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    things.epochs.visit_all(|slot| free(&things, slot));
    assert_eq!(things.epochs.seated(), 0);
}

#[test]
fn pin_advance_reclaim() {
    explore("slot, advance, reclaim", epochs);
}

#[test]
fn the_free_list_gives_no_pid_twice() {
    explore("free list", || {
        let table = Arc::new(Table::<Words>::new(2));
        let (mut pool, depot) = (Pool::new(), Depot::new(BATCH));
        let mut page = || {
            let block = pool.take(leaf_bytes::<Words>(0, 0, 0), &depot).0;
            let bounds = Bounds { low: None, high: None, right: None };
            let new = New { level: 0, lsn: 0, bytes: 0 };
            Made::leaf(block, new, bounds, 0, Default::default(), |low, high, space, word| {
                Words::leaf(&[], low, high, 0, space, word)
            })
        };
        let all: Vec<Pid> = (0..3).map(|_| table.allocate(page()).unwrap()).collect();
        let give_back = |table: &Table<Words>, pid| {
            table.vacate(pid);
            table.release(pid);
        };
        all.iter().for_each(|pid| give_back(&table, *pid));
        let (other, their) = (table.clone(), [page(), page()]);
        let thread = thread::spawn(move || {
            let [first, second] = their;
            let first = other.allocate(first).unwrap();
            give_back(&other, first);
            other.allocate(second).unwrap()
        });
        let own = [table.allocate(page()).unwrap(), table.allocate(page()).unwrap()];
        let their = thread.join().unwrap();
        assert!(own[0] != own[1] && !own.contains(&their), "{own:?} {their:?}");
        assert_eq!(table.used(), 3 + table.count_free());
    });
}

/// Two threads free blocks that a third thread made, and then each takes blocks.
fn blocks() {
    const BYTES: usize = 32;
    let depot = Arc::new(Depot::new(BATCH));
    let mut first = Pool::new();
    let mut some = |count| (0..count).map(|_| first.take(BYTES, &depot).0).collect::<Vec<_>>();
    let (own, their) = (some(5), some(5));
    let work = |depot: &Depot, blocks: Vec<Block>| {
        let mut pool = Pool::new();
        let before: Vec<_> = blocks.iter().map(Block::at).collect();
        for block in blocks {
            pool.give(block, depot);
        }
        // The pool keeps two blocks. The others went to the depot.
        let blocks: Vec<_> = (0..3).map(|_| pool.take(BYTES, depot).0).collect();
        (pool, before, blocks)
    };
    let other = depot.clone();
    let thread = thread::spawn(move || work(&other, their));
    let own = work(&depot, own);
    let their = thread.join().unwrap();
    let mut all: Vec<_> = own.2.iter().chain(&their.2).map(Block::at).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "a block was given out twice");
    // Five blocks per thread: two stay in its pool and three go to the depot. So the first two taken blocks are known ones, not new.
    let known = own.1.iter().chain(&their.1);
    assert!(own.2[..2].iter().chain(&their.2[..2]).all(|block| known.clone().any(|at| *at == block.at())));
}

#[test]
fn the_depot_gives_no_block_twice() {
    explore("depot", blocks);
}

/// Each injected fault is detected by one of the models above.
#[test]
fn a_part_that_is_left_out_is_noticed() {
    let omissions: [(Omission, fn()); 8] = [
        (Omission::Claim, two_appends_to_one_key),
        (Omission::Depot, the_depot_gives_no_block_twice),
        (Omission::Update, two_appends_to_one_key),
        (Omission::Consolidation, append_and_consolidate),
        (Omission::Structure, split_and_insert_into_the_moved_range),
        (Omission::Pins, pin_advance_reclaim),
        (Omission::Pids, pids_are_used_again),
        (Omission::Validation, a_split_that_is_undone_while_it_is_posted),
    ];
    for (omission, model) in omissions {
        omit(omission);
        let outcome = catch_unwind(AssertUnwindSafe(model));
        omit(None);
        assert!(outcome.is_err(), "without {omission:?} all is well");
        println!("without {omission:?}: noticed");
    }
}
