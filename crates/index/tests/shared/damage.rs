//! Damaged memory: bits flipped and words overwritten in buckets, the meta block and records of indexes that were closed or left as they
//! were. Whatever is done with such an index is answered, with an error or not: no panic, no end that does not come. Of what is checked
//! (links, bounds, the phase of a combine, records) no damage goes unreported.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{CHECKED, Index, META_WORDS, Sample, open, options, rebuild};
use index::chain::prelude::*;
use index::{Keyed, Words, WriteOptions};
use pmem::alloc::{Kind, blocks_in, chunks};
use pmem::{Event, Memory, Observed, Observer, Region, Result, WORD};

const BYTES: u64 = 1 << 20;
const LINES: u64 = 3;
const KEYS: u32 = 60;

/// What is read and stored while one damaged index is used; beyond it, it is said to be without end.
const STEPS_MAX: u64 = 20_000_000;

/// Counts, and stops what does not end.
#[derive(Debug, Default)]
struct Watch(AtomicU64);

impl Watch {
    fn step(&self) {
        let steps = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(steps < STEPS_MAX, "it does not end");
    }
}

impl Observer for Watch {
    fn read(&self, _line: u64) {
        self.step();
    }
    fn event(&self, _event: Event) {
        self.step();
    }
}

/// An index's memory, word by word.
#[derive(Clone)]
struct Image {
    words: Vec<u64>,
}

impl Image {
    fn of(memory: &Memory) -> Self {
        Self { words: (0..memory.len() / WORD).map(|word| memory.peek(word * WORD)).collect() }
    }

    fn memory(&self) -> (Observed, Arc<Watch>) {
        let memory = Memory::new(BYTES, self.words.len() as u64 * WORD);
        (0..).zip(&self.words).for_each(|(word, value)| memory.poke(word * WORD, *value));
        let watch = Arc::new(Watch::default());
        (Observed::new(memory, Arc::clone(&watch) as Arc<_>), watch)
    }

    fn word(&mut self, at: u64) -> &mut u64 {
        &mut self.words[(at / WORD) as usize]
    }
}

/// An index with everything in it: splits and merges, large records; under `faithful` two lists. `used`: it was not closed.
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

/// Everything that one can do with an index; what it says is of no interest here.
fn use_it<S: Sample>(medium: &Observed, seed: u64) -> Result<()> {
    let path = Path::new("damaged");
    let (index, _) = Index::<Observed, S>::open(medium.clone(), path, &options::<S>(LINES, false))?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut value = S::ValueBuf::default();
    _ = index.check();
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
    // In any order: what is damaged may refuse all that comes behind it.
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

/// Blocks of an index by what they are used for, and its meta block.
struct Blocks {
    all: Vec<(Kind, u64, u64)>,
    meta: u64,
}

fn blocks<S: Sample>(image: &Image) -> Blocks {
    let (medium, _) = image.memory();
    let (region, _) = Region::open(medium, Path::new("image")).unwrap();
    let of_chunk = |(chunk, class): (u64, pmem::alloc::FoundClass)| {
        let class = class.unwrap()?;
        Some(
            blocks_in(&region, chunk, class)
                .map(|at| (class.kind, at, class.block_bytes))
                .collect::<Vec<_>>(),
        )
    };
    Blocks { all: chunks(&region).filter_map(of_chunk).flatten().collect(), meta: region.root().unwrap() }
}

/// One to three words changed.
fn damage(image: &mut Image, blocks: &Blocks, random: &mut fastrand::Rng) -> String {
    let mut told = String::new();
    for _ in 0..random.u32(1..4) {
        let at = if random.u8(..5) == 0 {
            blocks.meta + random.u64(..META_WORDS) * WORD
        } else {
            // Of nodes and of records as often, though there are more of these.
            let nodes = random.bool();
            let of: Vec<_> = blocks.all.iter().filter(|(kind, ..)| kind.is_node() == nodes).collect();
            let of = if of.is_empty() { blocks.all.iter().collect() } else { of };
            let (_, block, bytes) = **random.choice(&of).unwrap();
            block + random.u64(..bytes / WORD) * WORD
        };
        let (_, other, _) = *random.choice(&blocks.all).unwrap();
        let any = random.u64(..image.words.len() as u64) * WORD;
        let neighbour = *image.word((at ^ WORD).min(any));
        let copied = *image.word(any);
        let word = image.word(at);
        *word = match random.u8(..9) {
            0..3 => *word ^ 1 << random.u32(..64),
            3 => other,
            4 => random.u64(..300),
            5 => 0,
            6 => copied,
            7 => neighbour,
            _ => random.u64(..),
        };
        told.push_str(&format!("{at:#x}: {:#x}; ", *word));
    }
    told
}

/// Damages and uses so many indexes.
fn campaign<S: Sample>(cases: u64) {
    let images = [(false, false), (true, false), (false, true), (true, true)].map(|(u, f)| made::<S>(u, f));
    let mut refused = 0;
    for case in 0..cases {
        let mut random = fastrand::Rng::with_seed(case);
        let which = random.usize(..4);
        let mut image = images[which].clone();
        let told = damage(&mut image, &blocks::<S>(&images[which]), &mut random);
        let (medium, _) = image.memory();
        match catch_unwind(AssertUnwindSafe(|| use_it::<S>(&medium, case))) {
            Ok(outcome) => refused += u64::from(outcome.is_err()),
            Err(_) => panic!("case {case}: {told}"),
        }
    }
    println!("{cases} indexes, {refused} of them refused");
    assert!(refused * 20 > cases && refused < cases, "{refused} of {cases}");
}

#[test]
fn a_damaged_index_of_words_answers_whatever_it_is_asked() {
    campaign::<Words>(2000);
}

#[test]
fn a_damaged_index_of_byte_strings_answers_whatever_it_is_asked() {
    campaign::<Keyed>(2000);
}

/// Each bit of every leaf's links and bounds, of the meta block, and of byte strings' entries is flipped in turn.
fn assert_reported<S: Sample>(faithful: bool, at_least: usize) {
    let image = made::<S>(false, faithful);
    let blocks = blocks::<S>(&image);
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
