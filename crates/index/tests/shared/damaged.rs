//! The loop that damages words of an index and then uses the index. No use may panic or loop endlessly.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pmem::alloc::{Kind, blocks_in, chunks};
use pmem::{Event, Memory, Observed, Observer, Region, Result, WORD};

pub const BYTES: u64 = 1 << 20;

/// Maximum number of loads and stores of one damaged index. Beyond it the run counts as endless.
const STEPS_MAX: u64 = 20_000_000;

/// Counts the loads and stores of a run, and stops an endless run.
#[derive(Debug, Default)]
pub struct Watch(AtomicU64);

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

/// The words of an index.
#[derive(Clone)]
pub struct Image {
    pub words: Vec<u64>,
}

impl Image {
    pub fn of(memory: &Memory) -> Self {
        Self { words: (0..memory.len() / WORD).map(|word| memory.peek(word * WORD)).collect() }
    }

    pub fn memory(&self) -> (Observed, Arc<Watch>) {
        let memory = Memory::new(BYTES, self.words.len() as u64 * WORD);
        (0..).zip(&self.words).for_each(|(word, value)| memory.poke(word * WORD, *value));
        let watch = Arc::new(Watch::default());
        (Observed::new(memory, Arc::clone(&watch) as Arc<_>), watch)
    }

    pub fn word(&mut self, at: u64) -> &mut u64 {
        &mut self.words[(at / WORD) as usize]
    }

    /// The blocks of the index, by use.
    pub fn blocks(&self) -> Blocks {
        let (region, _) = Region::open(self.memory().0, Path::new("image")).unwrap();
        let of_chunk = |(chunk, class): (u64, pmem::alloc::FoundClass)| {
            let class = class.unwrap()?;
            let blocks = blocks_in(&region, chunk, class);
            Some(blocks.map(|at| (class.kind, at, class.block_bytes)).collect::<Vec<_>>())
        };
        let used = (0..).zip(&self.words).filter(|(_, value)| **value != 0).map(|(word, _)| word * WORD);
        let all = chunks(&region).filter_map(of_chunk).flatten().collect();
        Blocks { all, meta: region.root().unwrap(), used: used.collect() }
    }
}

/// The blocks of an index, by use.
pub struct Blocks {
    /// Kind, address, bytes.
    pub all: Vec<(Kind, u64, u64)>,
    /// The meta block.
    pub meta: u64,
    /// Addresses of all words that are not 0.
    used: Vec<u64>,
}

/// Overwrites one to three words.
fn damage(image: &mut Image, blocks: &Blocks, meta_words: u64, random: &mut fastrand::Rng) -> String {
    let mut told = String::new();
    for _ in 0..random.u32(1..4) {
        let at = match random.u8(..10) {
            0..2 => blocks.meta + random.u64(..meta_words) * WORD,
            // Superblock, log and heads of chunks.
            2 => *random.choice(&blocks.used).unwrap(),
            _ => {
                // Nodes as often as records, although there are more records.
                let nodes = random.bool();
                let of: Vec<_> = blocks.all.iter().filter(|(kind, ..)| kind.is_node() == nodes).collect();
                let of = if of.is_empty() { blocks.all.iter().collect() } else { of };
                let (_, block, bytes) = **random.choice(&of).unwrap();
                block + random.u64(..bytes / WORD) * WORD
            }
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

/// Damages and uses this many indexes. `use_it` runs every kind of operation, chosen by a seed. It sets the cell if verification found a
/// problem.
pub fn campaign(
    images: &[Image],
    meta_words: u64,
    cases: u64,
    use_it: impl Fn(&Observed, u64, &Cell<bool>) -> Result<()>,
) {
    let blocks: Vec<_> = images.iter().map(Image::blocks).collect();
    let (mut refused, mut reported) = (0, 0);
    for case in 0..cases {
        let mut random = fastrand::Rng::with_seed(case);
        let which = random.usize(..images.len());
        let mut image = images[which].clone();
        let told = damage(&mut image, &blocks[which], meta_words, &mut random);
        let (medium, _) = image.memory();
        let found = Cell::new(false);
        match catch_unwind(AssertUnwindSafe(|| use_it(&medium, case, &found))) {
            Ok(outcome) => refused += u64::from(outcome.is_err()),
            Err(_) => panic!("case {case}: {told}"),
        }
        reported += u64::from(found.get());
    }
    println!("{cases} indexes, {refused} of them refused, problems found in {reported}");
    assert!(refused * 20 > cases && refused < cases, "{refused} of {cases}");
    assert!(reported * 10 > cases, "problems found in {reported} of {cases}");
}
