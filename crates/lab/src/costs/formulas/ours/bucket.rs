//! VLAB's buckets: a header of one line (link, a word for the combine operation ([`vlab::combine`]), two bounds, four words of bitmap),
//! then entries in any order. The columns of the table are fields of [`Change`]: *fresh*, words in unused space; *over*, overwritten words
//! in use.
//!
//! | change | fresh | over |
//! |---|---|---|
//! | insert | the entry | its bitmap word |
//! | delete | | its bitmap word |
//! | new bucket of c entries | c entries, the header | |
//! | split | | bitmap words that differ; the upper bound; the link, if the new bucket follows in the same list |
//!
//! Each bitmap word describes 64 positions. A new entry takes a free position of the word with the most free positions.
//! The entries of a new bucket are distributed evenly over the words.

use bptree::shape::Shape;

use super::{Change, Cut, Nodes, Run, differing, entries, entry};
use crate::costs::survey::Step;

/// Layout of a bucket. See the module's head.
pub struct Bucket;

const NXT: Run = Run::new(0, 1);
const MAX: Run = Run::new(3, 1);
const BITS_AT: u64 = 4;
const BIT_WORDS: usize = 4;
const HEADER: Run = Run::new(0, 8);
/// Entries per bitmap word.
const BITS: usize = 64;

fn bitmap_of(place: usize) -> Run {
    Run::new(BITS_AT + (place / BITS) as u64, 1)
}

fn bitmap(numbers: &[u16]) -> [u64; BIT_WORDS] {
    let mut words = [0; BIT_WORDS];
    numbers
        .iter()
        .map(|number| usize::from(*number))
        .for_each(|place| words[place / BITS] |= 1 << (place % BITS));
    words
}

/// The position of a new entry.
fn free_place(shape: &Shape, numbers: &[u16]) -> usize {
    let words = bitmap(numbers);
    let is_free = |place: &usize| words[place / BITS] >> (place % BITS) & 1 == 0;
    let free_of = |word: usize| (word * BITS..shape.capacity.min((word + 1) * BITS)).filter(is_free);
    let most =
        (0..shape.capacity.div_ceil(BITS)).rev().max_by_key(|word| free_of(*word).count()).unwrap_or(0);
    free_of(most).next().unwrap_or(0)
}

/// The positions of the entries of a new bucket.
fn spread(shape: &Shape, count: usize) -> Vec<usize> {
    let words = shape.capacity.div_ceil(BITS);
    let places = (0..words * BITS).map(|i| i % words * BITS + i / words);
    places.filter(|place| *place < shape.capacity).take(count).collect()
}

impl Nodes for Bucket {
    fn insert(&self, node: &Step) -> Change {
        let place = free_place(&node.shape, &node.numbers);
        let fresh = entry(&node.shape, place);
        Change { fresh, ..Change::over(node.node, vec![bitmap_of(place)]) }
    }

    fn remove(&self, node: &Step) -> Change {
        Change::over(node.node, vec![bitmap_of(node.numbers[node.rank].into())])
    }

    fn fill(&self, shape: &Shape, count: usize) -> Change {
        let mut fresh = entries(shape, spread(shape, count).into_iter());
        fresh.push(HEADER);
        Change { fresh, ..Change::default() }
    }

    fn shrink(&self, node: &Step, cut: Cut) -> Change {
        let mut over = differing(BITS_AT, &bitmap(&node.numbers), &bitmap(&self.kept(node, cut)));
        over.push(MAX);
        over.extend(cut.relink.then_some(NXT));
        Change::over(node.node, over)
    }

    fn inserted(&self, node: &Step) -> Vec<u16> {
        let mut numbers = node.numbers.clone();
        numbers.insert(node.rank, free_place(&node.shape, &node.numbers) as u16);
        numbers
    }

    fn filled(&self, shape: &Shape, count: usize) -> Vec<u16> {
        spread(shape, count).into_iter().map(|place| place as u16).collect()
    }
}
