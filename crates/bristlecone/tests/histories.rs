//! Histories of real threads through the public API: engines of every kind, mapped and over a journal, with a few hot keys. For each key,
//! the results of all operations must be those of some sequential order. A batch counts as one operation.
//!
//! Real threads show the reordering by compilers and processors, but only few interleavings. Schedules (crate `schedules`) cover the
//! interleavings of single steps.
//!
//! `BRISTLECONE_ROUNDS` multiplies the number of histories (default 1). `BRISTLECONE_SEED` changes the seeds.

use crate::common::history::{Numbered, Use, beside, judge, values};
use crate::common::{number_from, options, scratch};
use bristlecone::StoreOf;
use bristlecone::{Bytes, U64};
use crash::History;

/// Mapped engines. Each has a layout or a commit protocol that the engines before it do not have.
const MAPPED: [&str; 14] = [
    "wbtree",
    "wbtree-bmp",
    "wbtree-slot",
    "btree-log",
    "ubmp-shadow",
    "wb-4k",
    "buffer-pool",
    "btree",
    "cdds",
    "cdds-unsorted",
    "cdds-hash",
    "vlab",
    "nvtree",
    "bwtree",
];
/// Engines over a journal.
const JOURNALED: [&str; 6] = ["wbtree", "unsorted-shadow", "buffer-pool", "cdds-hash", "vlab", "nvtree"];
/// Number of operations of each thread.
const STEPS: u64 = 90;
/// Number of histories for each engine and kind.
fn histories_each() -> u64 {
    crash::by_tier(8, 20)
}

/// Runs histories of one store, one after the other. Returns the number of histories, of operations, and of operations that overlap another
/// one of the same key.
fn histories<K: Numbered>(engine: &'static str, journaled: bool) -> [u64; 3] {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let dir = scratch();
    let lines = bristlecone::registry::find(engine).unwrap().about.lines.0;
    let options = options(engine, journaled).node_lines(lines);
    let store = StoreOf::<K>::open(dir.path(), options).unwrap();
    let how = Use { writers: 2, steps: STEPS, meets: 3, hurries: journaled };
    let mut total = [0; 3];
    for round in 0..histories_each() * rounds {
        let (start, history) = (values(&store), History::default());
        beside(&store, &history, seed << 20 | round, 1 + round * 12 * STEPS, how);
        let weight = judge(&history, &start, &values(&store)).unwrap_or_else(|why| {
            panic!("{engine} of {}, journal: {journaled}, seed {seed}: {why}", K::NAME)
        });
        total = [total[0] + 1, total[1] + weight.operations, total[2] + weight.overlapping];
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    total
}

#[test]
fn what_threads_are_told_can_be_explained() {
    let mut total = [0; 3];
    for (engine, journaled) in
        MAPPED.map(|engine| (engine, false)).into_iter().chain(JOURNALED.map(|engine| (engine, true)))
    {
        let own = [histories::<Bytes>(engine, journaled), histories::<U64>(engine, journaled)];
        let own: [u64; 3] = std::array::from_fn(|i| own[0][i] + own[1][i]);
        println!("{engine}, journal: {journaled}: {own:?}");
        total = std::array::from_fn(|i| total[i] + own[i]);
    }
    println!("histories, operations, of these overlapping: {total:?}");
    assert!(total[0] >= 20 * 2 * histories_each() && total[2] > 0, "{total:?}");
}

#[test]
fn concurrent_updates_of_one_key_all_count() {
    ["wbtree", "bwtree"].into_iter().for_each(concurrent_updates_count);
}

fn concurrent_updates_count(engine: &str) {
    let dir = scratch();
    let store = bristlecone::StoreU64::open(dir.path(), options(engine, false)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let store = store.clone();
            scope.spawn(move || {
                for _ in 0..5000 {
                    store
                        .update(&1, |old| {
                            bristlecone::Change::Put(std::borrow::Cow::Owned(old.map_or(1, |n| n + 1)))
                        })
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(store.get(&1).unwrap(), Some(20_000));
}
