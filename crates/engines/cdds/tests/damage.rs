//! Damaged trees and tables: bits are flipped and words are overwritten in nodes, the meta block, dead intervals and records, both of
//! structures that were closed and of structures that were not.
//!
//! Every operation on a damaged structure returns, with or without an error: no panic, no endless loop. Damage to checked words (tags,
//! order, ranges, records) is always reported.

#[path = "../../../index/tests/shared/damaged.rs"]
mod damaged;

use std::cell::Cell;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::common::samples::Sample as _;
use crate::common::{Sample, Tested, open, options, write_many};
use cdds::family::Indexed;
use cdds::hash::Hashed;
use cdds::node::{Header, Node};
use cdds::structure::ValueBufOf;
use cdds::{Inlined, Order, Ordered, Recovery, Sorted, Tree, Unsorted, Versioned};
use crash::by_tier;
use damaged::{BYTES, Image, Watch};
use index::{Keyed, Life, Schema, Words};
use pmem::{LINE, Memory, Observed, Result, WORD};

const LINES: u64 = 3;
const KEYS: u32 = 60;

/// A tree or table after splits and merges, with old versions, dead intervals of both kinds, and large records. `used`: it was not closed.
fn made<X: Tested>(used: bool) -> Image {
    let memory = Memory::new(BYTES, 0);
    let medium = Observed::new(Arc::clone(&memory), Arc::new(Watch::default()));
    let mut random = fastrand::Rng::with_seed(5);
    drop(Versioned::<_, X>::create(medium.clone(), &X::options(options(LINES))).unwrap());
    for round in 0..4 {
        let tree = X::open_in(&medium, LINES, Recovery::Lazy);
        let mut mark = tree.mark();
        for n in 0..90 {
            let (key, value) = (X::Schema::key(random.u32(..KEYS)), X::Schema::value(random.u32(..300)));
            match random.u8(..10) {
                0..6 => _ = tree.put(X::Schema::borrow(&key), X::Schema::borrow_value(&value)).unwrap(),
                6..9 => _ = tree.delete(X::Schema::borrow(&key)).unwrap(),
                _ if n > 80 => assert!(tree.roll_back(&mark).unwrap()),
                _ if round < 3 && n < 20 => tree.collect_all().unwrap(),
                _ => mark = tree.mark(),
            }
        }
        let large = X::Schema::value(8 * 3000);
        let key = X::Schema::key(KEYS / 2 + round);
        tree.put(X::Schema::borrow(&key), X::Schema::borrow_value(&large)).unwrap();
        drop(mark);
        if round == 3 {
            let mark = tree.mark();
            write_many(&tree, &[(X::Schema::key(1), None), (X::Schema::key(2), Some(X::Schema::value(9)))])
                .unwrap();
            assert!(tree.roll_back(&mark).unwrap());
            assert!(tree.dead_intervals() >= 2, "{} dead intervals", tree.dead_intervals());
            assert_eq!(tree.check().problems, Vec::<String>::new());
            assert!(tree.check().levels >= if X::ORDERED { 3 } else { 1 });
            if !used {
                tree.close().unwrap();
            }
        }
    }
    Image::of(&memory)
}

/// Runs every kind of operation. The results do not matter.
fn use_it<X: Tested>(medium: &Observed, seed: u64, found: &Cell<bool>) -> Result<()> {
    let open = |recovery| {
        let options = X::options(options(LINES));
        Versioned::<Observed, X>::open(medium.clone(), Path::new("damaged"), &options, recovery)
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let (tree, _) = open(if random.bool() { Recovery::Lazy } else { Recovery::Scan })?;
    let mut value = ValueBufOf::<X>::default();
    found.set(!tree.check().problems.is_empty());
    for n in 0..KEYS {
        _ = tree.get(X::Schema::borrow(&X::Schema::key(n)), Some(&mut value));
    }
    let scan = |down| {
        let (mut key, mut value) = (<X::Schema as Schema>::KeyBuf::default(), ValueBufOf::<X>::default());
        let mut cursor = <X as Indexed<_>>::cursor(&tree);
        _ = if X::ORDERED { cursor.seek(Bound::Unbounded, down) } else { cursor.walk(None) };
        while matches!(cursor.next(&mut key, &mut value), Ok(true)) {}
    };
    scan(false);
    scan(true);
    // The order is random, because damage may make all later operations fail.
    for _ in 0..12 {
        let mark = tree.mark();
        let (key, value) = (X::Schema::key(random.u32(..KEYS)), X::Schema::value(random.u32(..200)));
        match random.u8(..7) {
            0 => _ = tree.put(X::Schema::borrow(&key), X::Schema::borrow_value(&value)),
            1 => _ = tree.delete(X::Schema::borrow(&key)),
            2 => _ = tree.collect_some(3),
            3 => _ = tree.collect_all(),
            4 => _ = write_many(&tree, &[(key, Some(value)), (X::Schema::key(7), None)]),
            5 => {
                _ = tree.put(X::Schema::borrow(&key), X::Schema::borrow_value(&value));
                _ = tree.roll_back(&mark);
            }
            _ => _ = tree.snapshot_of(mark).expect("its own mark").get(X::Schema::borrow(&key), None),
        }
    }
    scan(false);
    all_at_once(&tree);
    _ = tree.check();
    if random.bool() {
        _ = tree.close();
    }
    drop(tree);
    let (tree, _) = open(Recovery::Lazy)?;
    _ = tree.check();
    tree.collect_all()
}

/// Puts, rolls back and deletes every key.
fn all_at_once<X: Tested>(tree: &Versioned<Observed, X>) {
    let mark = tree.mark();
    for n in 0..KEYS {
        let (key, value) = (X::Schema::key(n), X::Schema::value(n));
        _ = tree.put(X::Schema::borrow(&key), X::Schema::borrow_value(&value));
    }
    _ = tree.roll_back(&mark);
    drop(mark);
    for n in 0..KEYS {
        _ = tree.delete(X::Schema::borrow(&X::Schema::key(n)));
    }
    _ = tree.collect_all();
}

/// Number of words of the meta block's first line and its intervals.
const META_WORDS: u64 = cdds::meta::META_BYTES / WORD;

/// Damages and uses this many structures.
fn campaign<X: Tested>(cases: u64) {
    println!("{}", X::ENGINE);
    damaged::campaign(&[made::<X>(false), made::<X>(true)], META_WORDS, cases, use_it::<X>);
}

#[test]
fn a_damaged_tree_of_words_answers_whatever_it_is_asked() {
    campaign::<Ordered<Words>>(by_tier(1500, 4000));
    campaign::<Ordered<Words, Unsorted>>(by_tier(700, 2000));
}

#[test]
fn a_damaged_tree_of_byte_strings_answers_whatever_it_is_asked() {
    campaign::<Ordered<Inlined>>(by_tier(1500, 4000));
    campaign::<Ordered<Inlined, Unsorted>>(by_tier(700, 2000));
}

#[test]
fn a_damaged_table_answers_whatever_it_is_asked() {
    campaign::<Hashed<Words>>(3000);
    campaign::<Hashed<Keyed>>(3000);
}

/// Nodes of the current version, from the root down.
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

/// The newest version.
fn tree_view<S: Sample, O: Order>(tree: &Tree<Observed, S, O>) -> cdds::version::View {
    let medium = tree.region().medium();
    let meta = cdds::meta::Meta(tree.region().root().unwrap());
    let version = tree.version();
    cdds::version::View { version, dead: meta.read_dead(medium, version).unwrap() }
}

/// Checked words: address, description, and mask of the checked bits.
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
        // Checks read whole words. The last bits of a pointer that owns nothing have no meaning.
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
                // Without pieces, the size of a piece does not matter.
                let counts = if pieces == 0 { u64::MAX >> 16 } else { u64::MAX };
                places.push((entry.payload + WORD, "checksum of a record", counts));
                if key_bytes >= 8 && pieces == 0 {
                    places.push((entry.payload + 2 * WORD, "key of a record", u64::MAX));
                }
            }
            // A start beyond the newest version makes an entry invisible.
            places.push((at + 2 * WORD, "start of an entry", u64::MAX << 40));
        }
    }
    places
}

fn assert_reported<S: Sample, O: Order>(at_least: usize) {
    let image = made::<Ordered<S, O>>(false);
    let (mut cases, mut random) = (0, fastrand::Rng::with_seed(1));
    for (at, what, bits) in checked_words::<S, O>(&image) {
        // A random selection of the bits of each word.
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
