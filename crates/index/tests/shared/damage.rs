//! Damaged lists: the tests flip bits and overwrite words in the leaves, the meta block and the records of an index. The tests damage
//! indexes that were closed, and indexes that were not.
//!
//! Every operation on a damaged index returns, with or without an error: no panic, no endless loop. A flipped bit in a
//! checked word is always reported. Checked words are those of the meta block, and the words of a leaf that the engine
//! lists in `CHECKED`, such as links and bounds.

#[path = "damaged.rs"]
mod damaged;

use std::cell::Cell;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::common::{CHECKED, Index, META_WORDS, Sample, open, options, rebuild};
use damaged::{BYTES, Image, Watch};
use index::leaf_list::prelude::*;
use index::{Keyed, Words, WriteOptions};
use pmem::alloc::Kind;
use pmem::{Memory, Observed, Result, WORD};

const LINES: u64 = 3;
const KEYS: u32 = 60;

/// An index after splits and merges, with large records; under `faithful` with two lists. `used`: it was not closed.
fn made<S: Sample>(used: bool, faithful: bool) -> Image {
    let memory = Memory::new(BYTES, 0);
    let medium = Observed::new(Arc::clone(&memory), Arc::new(Watch::default()));
    let mut random = fastrand::Rng::with_seed(5);
    drop(Index::<_, S>::create(medium.clone(), &options::<S>(LINES, faithful)).unwrap());
    for round in 0..4 {
        let index = open::<S>(&medium, LINES);
        for _ in 0..90 {
            let (key, value) = (S::key(random.u32(..KEYS)), S::value(random.u32(..300)));
            match random.u8(..10) {
                0..7 => _ = index.put(S::borrow(&key), S::borrow_value(&value)).unwrap(),
                _ => _ = index.delete(S::borrow(&key)).unwrap(),
            }
        }
        let (key, large) = (S::key(KEYS / 2 + round), S::value(8 * 3000));
        index.put(S::borrow(&key), S::borrow_value(&large)).unwrap();
        if round == 3 {
            let report = index.check();
            assert!(report.problems.is_empty() && report.nodes > 4, "{report:?}");
            if !used {
                index.close().unwrap();
            }
        }
    }
    Image::of(&memory)
}

/// Runs every kind of operation. The results do not matter.
fn use_it<S: Sample>(medium: &Observed, seed: u64, found: &Cell<bool>) -> Result<()> {
    let path = Path::new("damaged");
    let (index, _) = Index::<Observed, S>::open(medium.clone(), path, &options::<S>(LINES, false))?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut value = S::ValueBuf::default();
    found.set(!index.check().problems.is_empty());
    for n in 0..KEYS {
        _ = index.get(S::borrow(&S::key(n)), Some(&mut value));
    }
    let scan = |down| {
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        let mut cursor = index.cursor();
        cursor.seek(Bound::Unbounded, down);
        while matches!(cursor.next(&mut key, &mut value), Ok(true)) {}
    };
    scan(false);
    scan(true);
    // The order is random, because damage may make all later operations fail.
    for _ in 0..40 {
        let (key, value) = (S::key(random.u32(..KEYS)), S::value(random.u32(..200)));
        match random.u8(..6) {
            0..2 => _ = index.put(S::borrow(&key), S::borrow_value(&value)),
            2..4 => _ = index.delete(S::borrow(&key)),
            4 => _ = rebuild(&index),
            _ => _ = index.batch(vec![(key, Some(value)), (S::key(7), None)], &[], WriteOptions::default()),
        }
    }
    scan(false);
    _ = index.check();
    if random.bool() {
        _ = index.close();
    }
    drop(index);
    let (index, _) = Index::<Observed, S>::open(medium.clone(), path, &options::<S>(LINES, false))?;
    _ = index.check();
    index.clear()
}

/// Damages and uses this many indexes.
fn campaign<S: Sample>(cases: u64) {
    let images = [(false, false), (true, false), (false, true), (true, true)].map(|(u, f)| made::<S>(u, f));
    damaged::campaign(&images, META_WORDS, cases, use_it::<S>);
}

#[test]
fn a_damaged_index_of_words_answers_whatever_it_is_asked() {
    campaign::<Words>(2000);
}

#[test]
fn a_damaged_index_of_byte_strings_answers_whatever_it_is_asked() {
    campaign::<Keyed>(2000);
}

/// Flips each bit of the meta block, and of the words `CHECKED` of every leaf. Opening the index or its check must report each flip.
fn assert_reported<S: Sample>(faithful: bool, at_least: usize) {
    let image = made::<S>(false, faithful);
    let blocks = image.blocks();
    let mut places: Vec<(u64, &str)> =
        (0..META_WORDS).map(|word| (blocks.meta + word * WORD, "meta block")).collect();
    for (_, leaf, _) in blocks.all.iter().filter(|(kind, ..)| *kind == Kind::Leaf) {
        places.extend(CHECKED.iter().map(|(word, what)| (leaf + word * WORD, *what)));
    }
    let mut cases = 0;
    for (at, what) in places {
        for bit in 0..64 {
            let mut image = image.clone();
            *image.word(at) ^= 1 << bit;
            let (medium, _) = image.memory();
            let opened =
                Index::<Observed, S>::open(medium, Path::new("damaged"), &options::<S>(LINES, faithful));
            let is_reported = opened.map_or(true, |(index, _)| !index.check().problems.is_empty());
            assert!(is_reported, "bit {bit} of {what} at {at:#x} goes unreported");
            cases += 1;
        }
    }
    println!("{cases} bits");
    assert!(cases >= at_least, "{cases} bits");
}

#[test]
fn a_flipped_bit_of_what_is_checked_is_reported() {
    assert_reported::<Words>(false, 1000);
    assert_reported::<Words>(true, 1000);
    assert_reported::<Keyed>(false, 1000);
}
