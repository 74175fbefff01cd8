//! VLAB replaces its directory by a new one from time to time (a *combine*, see [`vlab::combine`]). Each operation does a small part of
//! this work: some steps that build the new directory, or the free of one part of the old one. The tests verify the bound of this part, for
//! any number of buckets and any distribution of keys.

use crate::common::{Sample, memory};
use index::leaf_list::prelude::*;
use index::{Keyed, Words};
use pmem::{Durability, Observed};
use vlab::{Options, Vlab, Work};

/// Number of directory entries that are freed at once.
const SEGMENT: u64 = 1024;

struct Watched<S: Sample> {
    index: Vlab<Observed, S>,
    step: u64,
    before: Work,
    most_left: u64,
}

impl<S: Sample> Watched<S> {
    fn new(combine_step: usize) -> Self {
        let (medium, _) = memory(256 << 20);
        let production = Options::new(4, Durability::Power);
        let options = Options { payload_words: S::PAYLOAD_WORDS, combine_step, ..production };
        let index = Vlab::create(medium, &options).unwrap();
        Self { before: index.work(), index, step: combine_step as u64, most_left: 0 }
    }

    /// Checks the work of one operation.
    fn look(&mut self) {
        let after = self.index.work();
        let (steps, parts) = (after.steps - self.before.steps, after.parts - self.before.parts);
        assert!(steps <= self.step && parts <= 1, "{steps} steps and {parts} parts at once: {after:?}");
        if after.combines > self.before.combines {
            assert_eq!(after.combines, self.before.combines + 1);
            assert!(after.parts_left > 0, "nothing was kept to be given back by and by");
        }
        self.most_left = self.most_left.max(after.parts_left);
        self.before = after;
    }

    /// Checks that every directory was traversed in steps and freed in parts.
    fn end(self, combines: u64) {
        let (work, paths) = (self.index.work(), self.index.paths());
        println!("{work:?}, {paths:?}");
        assert!(work.combines >= combines, "{work:?}");
        assert_eq!((work.most, work.most_parts), (self.step, 1));
        // The last directory has this many entries, and the one before it at least those of a segment.
        assert!(work.steps >= paths.directory as u64, "{work:?}");
        assert!(work.parts >= paths.directory as u64 / SEGMENT, "{work:?}");
        assert!(self.most_left > paths.directory as u64 / SEGMENT / 2, "{}", self.most_left);
        assert!(self.index.check().problems.is_empty());
    }
}

/// Inserts this many words, then deletes most of them.
fn of_words(key: impl Fn(u64) -> u64, combine_step: usize) {
    let mut watched = Watched::<Words>::new(combine_step);
    let count = 60_000;
    for n in 0..count {
        watched.index.put(&key(n), &n).unwrap();
        watched.look();
    }
    for n in (0..count).filter(|n| n % 8 > 0) {
        watched.index.delete(&key(n)).unwrap();
        watched.look();
    }
    watched.end(10);
}

#[test]
fn no_operation_passes_more_than_a_step_where_words_are_even() {
    of_words(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, 64);
    of_words(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, 7);
}

/// Most keys are in few cells of the table, and most cells are empty.
#[test]
fn no_operation_passes_more_than_a_step_where_words_are_not() {
    of_words(|n| (n + 1) << (n % 3 * 20), 64);
    of_words(|n| if n % 100 == 0 { (n + 1) << 47 } else { n.wrapping_mul(0x9E37_79B9) % (1 << 32) + 1 }, 64);
}

#[test]
fn no_operation_passes_more_than_a_step_of_byte_strings() {
    let mut watched = Watched::<Keyed>::new(64);
    for n in 0..15_000 {
        let key = Keyed::key(n * 7919 % 15_013);
        watched.index.put(&key, &Keyed::value(n)).unwrap();
        watched.look();
    }
    watched.end(10);
}
