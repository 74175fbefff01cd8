//! A writer, a collector and users of kept versions in one thread, in an order that a seed determines. So a failure can be repeated, unlike
//! one of the suite `threads`.
//!
//! `BRISTLECONE_ROUNDS` multiplies the number of orders (default 1). `BRISTLECONE_SEED` offsets the seeds.
//!
//! Former defects:
//! * A left sibling gave entries to the right one and kept its own copies, with an end version. After the parent was replaced, the search
//!   for references to a block no longer visited the left sibling. So the blocks of these entries were freed while the copies still
//!   referenced them.
//! * One step of the collector visited slots with deferred clearing twice, and freed their blocks twice.

use crate::common::beside::{Kinds, Numbered, Record, Writer};
use crate::common::{memory, options};
use cdds::Inlined;
use cdds::{Mark, Options, Order, Sorted, Tree, Unsorted};
use crash::{History, by_tier};
use index::Words;

fn turns<S: Numbered, O: Order>(seed: u64, lines: u64, rolls_back: bool, steps: usize) -> Result<(), String> {
    let text = |error: pmem::Error| error.to_string();
    let (medium, _) = memory(8 << 20);
    let options = Options { stripes: 16, ..options(lines) };
    let tree = Tree::<_, S, O>::create(medium, &options).map_err(text)?;
    let history = History::default();
    let record = Record::new(&history, tree.version());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut writer = Writer::new(&tree, &record, random.fork(), Kinds { rolls_back, stays: true });
    let mut kept: Vec<Mark> = Vec::new();
    for step in 0..steps {
        match random.u8(..32) {
            0..20 => writer.step(),
            20 if kept.len() < 3 => {
                kept.push(tree.mark());
                Ok(())
            }
            21 if !kept.is_empty() => {
                kept.swap_remove(random.usize(..kept.len()));
                Ok(())
            }
            22..30 => tree.collect_some(3).map(drop).map_err(text),
            _ => Ok(()),
        }
        .map_err(|why| format!("step {step}: {why}"))?;
        if step % 100 == 99
            && let Some(problem) = tree.check().problems.first()
        {
            return Err(format!("step {step}: {problem}"));
        }
    }
    Ok(())
}

fn number_from(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")),
        Err(_) => default,
    }
}

fn all<S: Numbered, O: Order>(seeds: u64) {
    let (rounds, first) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0) << 16);
    let seeds = first..first + seeds * rounds;
    for (lines, seed) in (2..6).flat_map(|lines| seeds.clone().map(move |seed| (lines, seed))) {
        for rolls_back in [false, true] {
            turns::<S, O>(seed, lines, rolls_back, 4000).unwrap_or_else(|why| {
                panic!("{}, seed {seed}, {lines} lines, {rolls_back}: {why}", O::ENGINE)
            });
        }
    }
}

#[test]
fn words_stay_whole_whatever_is_kept_collected_and_taken_back() {
    all::<Words, Sorted>(by_tier(3, 6));
    all::<Words, Unsorted>(by_tier(2, 3));
}

#[test]
fn byte_strings_stay_whole_whatever_is_kept_collected_and_taken_back() {
    all::<Inlined, Sorted>(by_tier(3, 6));
    all::<Inlined, Unsorted>(by_tier(2, 3));
}

#[test]
fn what_a_sibling_gave_away_is_named_until_it_is_collected() {
    turns::<Inlined, Sorted>(19, 4, false, 4000).unwrap();
}

#[test]
fn what_waits_to_be_cleared_is_not_collected_again() {
    turns::<Inlined, Sorted>(2, 3, true, 4000).unwrap();
}
