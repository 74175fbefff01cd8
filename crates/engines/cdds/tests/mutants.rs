//! Mutants of the CDDS B-Tree, made by the crash explorer ([`crash::mutants`](mod@crash::mutants)). A mutant leaves out one flush or fence
//! of the tree's code, or stores one publish before the preceding fence or in two halves. At least one of the images that a crash of the
//! mutant can leave must be wrong, unless the mutant is equivalent; then a table gives the reason.
//!
//! A mutant is tried on the workloads in which it changes something, in their order, until an image is wrong.

use crate::common::argued::ARGUED_OF_TREES;
use crate::common::subject::{LAZY, Op, SCAN, Sizes, Work, lives, mixed, sizes};
use crate::common::trials::{assert_nothing_can_be_left_out, deep, first, low, of_chunks, rollbacks, roomy};
use cdds::{Inlined, Order, Ordered, Sorted, Unsorted};
use crash::{Options, Trial};
use index::Words;

/// Number of chunks of the smallest region in which a large value gets exactly 64 pieces.
const CHUNKS: u64 = 12;

/// Operations that fail half way and leave entries in nodes, which the next operation declares dead. Then the entries are removed.
fn refused() -> Vec<Op> {
    let mut ops = vec![Op::Put(2, 7), Op::Put(4, 7), Op::Put(6, 7)];
    ops.push(Op::Refused(vec![(3, Some(1)), (4, None)]));
    ops.extend([Op::Put(9, 1), Op::Delete(9), Op::Put(4, 3)]);
    ops.push(Op::Refused(vec![(2, Some(1)), (5, Some(1))]));
    ops.push(Op::Refused(vec![(6, None)]));
    ops.extend([Op::Put(1, 1), Op::CollectAll, Op::Put(5, 5), Op::Kill, Op::Delete(4), Op::CollectAll]);
    ops
}

fn of_words<O: Order>(name: &str, options: Options, work: Work<Ordered<Words, O>>) -> Trial {
    Trial::of(name, options, work)
}

fn of_bytes<O: Order>(name: &str, options: Options, work: Work<Ordered<Inlined, O>>) -> Trial {
    Trial::of(name, options, work)
}

fn trials<O: Order>(seed: u64) -> Vec<Trial> {
    // An inner node of four lines has the size of the meta block. So no chunk is opened, and there is no fence before its intents.
    let split = Op::Batch((1..9).map(|key| (key, Some(key))).collect());
    let split_first = Work::new(Sizes { lines: 4, ..roomy() }, [split]);
    let small = Sizes { capacity: 80 << 10, ..sizes(2, LAZY) };
    let mut trials = vec![
        of_words::<O>("words, first operations", deep(seed), first(seed as u32)),
        of_words::<O>("a split first", deep(seed), split_first),
        // One change shifts entries across two lines.
        of_words::<O>("words, five lines", low(118), mixed(118, sizes(5, LAZY), 60, 24, 0)),
        of_words::<O>("words, four lines", low(6), mixed(6, sizes(4, LAZY), 60, 24, 0)),
        of_bytes::<O>("byte strings, first operations", deep(seed), first(seed as u32)),
        of_bytes::<O>("byte strings, random", low(seed), mixed(seed, sizes(2, LAZY), 60, 14, 0)),
        of_words::<O>("words, random", low(seed), mixed(seed, sizes(2, LAZY), 60, 14, 0)),
        of_bytes::<O>("refused", low(seed), Work::new(small, refused())),
        of_words::<O>("rollbacks", low(seed), rollbacks(LAZY, false)),
        of_bytes::<O>("lives", low(seed), lives(sizes(3, LAZY), 20)),
        of_bytes::<O>("byte strings, cut", low(seed), mixed(seed + 1, sizes(2, LAZY), 120, 14, 3)),
        of_bytes::<O>("byte strings, cut, scan", low(seed), mixed(seed + 2, sizes(3, SCAN), 60, 20, 3)),
    ];
    trials.extend(of_chunks::<Ordered<Inlined, O>>(seed, CHUNKS));
    if !O::SHIFTS {
        // Without shifts, other workloads detect the mutants of these.
        const MORE: [&str; 4] = ["words, four lines", "words, random", "lives", "byte strings, cut, scan"];
        trials.retain(|trial| !MORE.contains(&trial.name()));
    }
    trials
}

pub fn nothing_can_be_left_out_of_nodes_in_order() {
    assert_nothing_can_be_left_out("cdds", &trials::<Sorted>(21), ARGUED_OF_TREES.to_vec(), 97);
}

pub fn nothing_can_be_left_out_of_nodes_without_order() {
    assert_nothing_can_be_left_out("cdds-unsorted", &trials::<Unsorted>(21), ARGUED_OF_TREES.to_vec(), 94);
}
