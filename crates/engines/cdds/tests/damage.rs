//! Damaged memory: bits flipped and words overwritten in nodes, the meta block, dead intervals and records of trees that were closed
//! or left as they were. Whatever is done with such a tree is answered, with an error or not: no panic, no end that does not come.
//! Of what is checked (tags, order, ranges, records) no damage goes unreported.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Sample, open, options, write_many};
use cdds::Inlined;
use cdds::node::{Header, Node};
use cdds::{Order, Recovery, Sorted, Tree, Unsorted};
use crash::by_tier;
use index::{Life, Words};
use pmem::alloc::{Kind, blocks_in, chunks};
use pmem::{Event, LINE, Memory, Observed, Observer, Region, Result, WORD};

const BYTES: u64 = 1 << 20;
const LINES: u64 = 3;
const KEYS: u32 = 60;

/// What is read and stored while one damaged tree is used; beyond it, it is said to be without end.
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

/// A tree's memory, word by word.
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

/// A tree with everything in it: splits and merges, old versions, dead intervals of both kinds, large records. `used`: it was not
/// closed.
fn made<S: Sample, O: Order>(used: bool) -> Image {
    let memory = Memory::new(BYTES, 0);
    let medium = Observed::new(Arc::clone(&memory), Arc::new(Watch::default()));
    let mut random = fastrand::Rng::with_seed(5);
    drop(Tree::<_, S, O>::create(medium.clone(), &options(LINES)).unwrap());
    for round in 0..4 {
        let tree = open::<S, O>(&medium, LINES, Recovery::Lazy);
        let mut mark = tree.mark();
        for n in 0..90 {
            let (key, value) = (S::key(random.u32(..KEYS)), S::value(random.u32(..300)));
            match random.u8(..10) {
                0..6 => _ = tree.put(S::borrow(&key), S::borrow_value(&value)).unwrap(),
                6..9 => _ = tree.delete(S::borrow(&key)).unwrap(),
                _ if n > 80 => assert!(tree.roll_back(&mark).unwrap()),
                _ if round < 3 && n < 20 => tree.collect_all().unwrap(),
                _ => mark = tree.mark(),
            }
        }
        let large = S::value(8 * 3000);
        let key = S::key(KEYS / 2 + round);
        tree.put(S::borrow(&key), S::borrow_value(&large)).unwrap();
        drop(mark);
        if round == 3 {
            let mark = tree.mark();
            write_many(&tree, &[(S::key(1), None), (S::key(2), Some(S::value(9)))]).unwrap();
            assert!(tree.roll_back(&mark).unwrap());
            assert!(tree.dead_intervals() >= 2, "{} dead intervals", tree.dead_intervals());
            assert_eq!(tree.check().problems, Vec::<String>::new());
            assert!(tree.check().levels >= 3);
            if !used {
                tree.close().unwrap();
            }
        }
    }
    Image::of(&memory)
}

/// Everything that one can do with a tree; what it says is of no interest here.
fn use_it<S: Sample, O: Order>(medium: &Observed, recovery: Recovery, seed: u64) -> Result<()> {
    let path = Path::new("damaged");
    let (tree, _) = Tree::<Observed, S, O>::open(medium.clone(), path, &options(LINES), recovery)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut value = S::ValueBuf::default();
    _ = tree.check();
    for n in 0..KEYS {
        _ = tree.get(S::borrow(&S::key(n)), Some(&mut value));
    }
    let scan = |down| {
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        let mut cursor = tree.cursor();
        cursor.seek(Bound::Unbounded, down);
        while matches!(cursor.next(&mut key, &mut value), Ok(true)) {}
    };
    scan(false);
    scan(true);
    // In any order: what is damaged may refuse all that comes behind it.
    for _ in 0..12 {
        let mark = tree.mark();
        let (key, value) = (S::key(random.u32(..KEYS)), S::value(random.u32(..200)));
        match random.u8(..7) {
            0 => _ = tree.put(S::borrow(&key), S::borrow_value(&value)),
            1 => _ = tree.delete(S::borrow(&key)),
            2 => _ = tree.collect_some(3),
            3 => _ = tree.collect_all(),
            4 => _ = write_many(&tree, &[(key, Some(value)), (S::key(7), None)]),
            5 => {
                _ = tree.put(S::borrow(&key), S::borrow_value(&value));
                _ = tree.roll_back(&mark);
            }
            _ => _ = tree.snapshot_of(mark).expect("its own mark").get(S::borrow(&key), None),
        }
    }
    scan(false);
    _ = tree.check();
    if random.bool() {
        _ = tree.close();
    }
    drop(tree);
    let (tree, _) = Tree::<Observed, S, O>::open(medium.clone(), path, &options(LINES), Recovery::Lazy)?;
    _ = tree.check();
    tree.collect_all()
}

/// Blocks of a tree by what they are used for, and its meta block.
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

/// Bytes of the meta block's first line and its intervals.
const META_BYTES: u64 = cdds::meta::META_BYTES;

/// One to three words changed.
fn damage(image: &mut Image, blocks: &Blocks, random: &mut fastrand::Rng) -> String {
    let mut told = String::new();
    for _ in 0..random.u32(1..4) {
        let at = if random.u8(..5) == 0 {
            blocks.meta + random.u64(..META_BYTES / WORD) * WORD
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

/// Damages and uses so many trees.
fn campaign<S: Sample, O: Order>(cases: u64) {
    let images = [made::<S, O>(false), made::<S, O>(true)];
    let mut refused = 0;
    for case in 0..cases {
        let mut random = fastrand::Rng::with_seed(case);
        let mut image = images[random.usize(..2)].clone();
        let told = damage(&mut image, &blocks::<S>(&images[0]), &mut random);
        let recovery = if random.bool() { Recovery::Lazy } else { Recovery::Scan };
        let (medium, _) = image.memory();
        match catch_unwind(AssertUnwindSafe(|| use_it::<S, O>(&medium, recovery, case))) {
            Ok(outcome) => refused += u64::from(outcome.is_err()),
            Err(_) => panic!("{}, case {case}, {recovery:?}: {told}", O::ENGINE),
        }
    }
    println!("{cases} trees, {refused} of them refused");
    assert!(refused * 20 > cases && refused < cases, "{refused} of {cases}");
}

#[test]
fn a_damaged_tree_of_words_answers_whatever_it_is_asked() {
    campaign::<Words, Sorted>(by_tier(1500, 4000));
    campaign::<Words, Unsorted>(by_tier(700, 2000));
}

#[test]
fn a_damaged_tree_of_byte_strings_answers_whatever_it_is_asked() {
    campaign::<Inlined, Sorted>(by_tier(1500, 4000));
    campaign::<Inlined, Unsorted>(by_tier(700, 2000));
}

/// Nodes that the current version shows, from the root down.
fn live_nodes<S: Sample, O: Order>(tree: &Tree<Observed, S, O>, root: u64) -> Vec<(Node, Header)> {
    let (medium, view) = (tree.region().medium(), tree_view(tree));
    let mut open = vec![Node(root)];
    let mut nodes = Vec::new();
    while let Some(node) = open.pop() {
        let header = Header::read(medium, node).unwrap();
        if header.level > 0 {
            open.extend(node.seen(medium, tree.shape(), &view).iter().map(|(_, link)| Node(link.payload)));
        }
        nodes.push((node, header));
    }
    nodes
}

/// What the newest version shows.
fn tree_view<S: Sample, O: Order>(tree: &Tree<Observed, S, O>) -> cdds::version::View {
    let medium = tree.region().medium();
    let meta = cdds::meta::Meta(tree.region().root().unwrap());
    let version = tree.version();
    cdds::version::View { version, dead: meta.read_dead(medium, version).unwrap() }
}

/// Places of words, what they are, and which bits of them count.
fn checked_words<S: Sample, O: Order>(image: &Image) -> Vec<(u64, &'static str, u64)> {
    let (medium, _) = image.memory();
    let tree = open::<S, O>(&medium, LINES, Recovery::Lazy);
    let meta = tree.region().root().unwrap();
    let root = medium.memory().peek(meta + WORD);
    let mut places = vec![(meta, "tag of the meta block", u64::MAX), (meta + WORD, "root", u64::MAX)];
    let current = medium.memory().peek(meta + 2 * WORD);
    for count in [meta + 3 * WORD, meta + 4 * WORD] {
        if medium.memory().peek(count) >> 48 == current & 0xFFFF {
            places.push((count, "count", u64::MAX));
        }
    }
    let view = tree_view(&tree);
    for (node, header) in live_nodes(&tree, root) {
        places.push((node.0, "tag and level", u64::MAX));
        // Whole words are read: the last bits of a pointer that owns nothing say nothing.
        places.push((node.0 + 2 * WORD, "lowest key", if S::PLAIN { u64::MAX } else { !7 }));
        for (slot, entry) in node.seen(&medium, tree.shape(), &view) {
            let at = node.slot_at(slot);
            if header.level > 0 {
                places.push((at, "key of a link", u64::MAX));
                places.push((at + WORD, "child", u64::MAX));
            } else if !S::PLAIN {
                places.push((at, "pointer to a key", u64::MAX));
                places.push((at + WORD, "pointer to a value", u64::MAX));
                let head = medium.memory().peek(entry.payload);
                let check = medium.memory().peek(entry.payload + WORD);
                places.push((entry.payload, "head of a record", u64::MAX));
                let (key_bytes, pieces) = (head & 0xFFFF, check >> 32 & 0xFFFF);
                // Of no pieces the size matters not.
                let counts = if pieces == 0 { u64::MAX >> 16 } else { u64::MAX };
                places.push((entry.payload + WORD, "checksum of a record", counts));
                if key_bytes >= 8 && pieces == 0 {
                    places.push((entry.payload + 2 * WORD, "key of a record", u64::MAX));
                }
            }
            // A start beyond the newest version is none.
            places.push((at + 2 * WORD, "start of an entry", u64::MAX << 40));
        }
    }
    places
}

fn assert_reported<S: Sample, O: Order>(at_least: usize) {
    let image = made::<S, O>(false);
    let (mut cases, mut random) = (0, fastrand::Rng::with_seed(1));
    for (at, what, bits) in checked_words::<S, O>(&image) {
        // Some bits of each word, others of the next.
        for bit in (0..64).filter(|bit| bits >> bit & 1 != 0 && random.u8(..8) == 0).collect::<Vec<u32>>() {
            let mut image = image.clone();
            *image.word(at) ^= 1 << bit;
            let (medium, _) = image.memory();
            let opened =
                Tree::<Observed, S, O>::open(medium, Path::new("damaged"), &options(LINES), Recovery::Lazy);
            let is_reported = opened.map_or(true, |(tree, _)| !tree.check().problems.is_empty());
            assert!(is_reported, "bit {bit} of the {what} at {at:#x} goes unreported");
            cases += 1;
        }
    }
    println!("{cases} bits");
    assert!(cases >= at_least, "{cases} bits");
}

#[test]
fn a_flipped_bit_of_what_is_checked_in_a_tree_of_words_is_reported() {
    assert_reported::<Words, Sorted>(500);
    assert_reported::<Words, Unsorted>(500);
}

#[test]
fn a_flipped_bit_of_what_is_checked_in_a_tree_of_byte_strings_is_reported() {
    assert_reported::<Inlined, Sorted>(1000);
    assert_reported::<Inlined, Unsorted>(1000);
}

const _: () = assert!(BYTES.is_multiple_of(LINE));
