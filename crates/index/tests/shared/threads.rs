//! Readers beside a writer, on real threads. Readers always find the keys that the writer never deletes. Each value
//! belongs to its key, and no reader sees an older value of a key after a newer one. Scans return keys in order. A
//! reader sees all or none of each batch.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{Bytes, Index, Options, Sample, options};
use index::leaf_list::prelude::*;
use index::{Fixed, Keyed, Words, WriteOptions};
use pmem::{Durability, Geometry, Medium, Native};

/// Default number of keys. Every fourth key stays. Two of every eight are written together. The others come and go.
const KEYS: u32 = 400;
/// Operations of the writer. Each is followed by a lookup.
const WRITES: u32 = 12_000;

/// Values that contain the number of their write.
trait Numbered: Sample {
    fn numbered(key: u32, number: u32) -> Self::ValueBuf;
    fn number(key: u32, value: &Self::ValueBuf) -> Option<u32>;
}

impl Numbered for Words {
    fn numbered(key: u32, number: u32) -> u64 {
        u64::from(key) << 32 | u64::from(number)
    }
    fn number(key: u32, value: &u64) -> Option<u32> {
        (value >> 32 == u64::from(key)).then_some(*value as u32)
    }
}

fn numbered_bytes(key: u32, number: u32, words: usize) -> Vec<u8> {
    Words::numbered(key, number).to_le_bytes().repeat(words)
}

fn number_of_bytes(key: u32, value: &[u8]) -> Option<u32> {
    let (words, rest) = value.as_chunks::<8>();
    let first = u64::from_le_bytes(*words.first()?);
    let same = rest.is_empty() && words.iter().all(|word| u64::from_le_bytes(*word) == first);
    Words::number(key, &first).filter(|_| same)
}

impl Numbered for Fixed {
    fn numbered(key: u32, number: u32) -> Vec<u8> {
        numbered_bytes(key, number, 3)
    }
    fn number(key: u32, value: &Vec<u8>) -> Option<u32> {
        number_of_bytes(key, value)
    }
}

impl Numbered for Keyed {
    fn numbered(key: u32, number: u32) -> Vec<u8> {
        numbered_bytes(key, number, 1 + number as usize % 40)
    }
    fn number(key: u32, value: &Vec<u8>) -> Option<u32> {
        number_of_bytes(key, value)
    }
}

fn stays(key: u32) -> bool {
    key.is_multiple_of(4)
}

/// True if the key is always written together with the next one.
fn is_paired(key: u32) -> bool {
    key % 8 == 1
}

fn write<M: Medium, S: Numbered>(index: &Index<M, S>, keys: u32) {
    let mut rng = fastrand::Rng::with_seed(3);
    for number in 1..WRITES {
        // Regions fill and empty in turn, so that buckets split and merge.
        let group = (number / (2 * keys)).is_multiple_of(2);
        let key = rng.u32(..keys);
        if is_paired(key) || is_paired(key.wrapping_sub(1)) {
            let first = if is_paired(key) { key } else { key - 1 };
            let come = group || rng.bool();
            let writes = [first, first + 1].map(|key| (S::key(key), come.then(|| S::numbered(key, number))));
            assert!(index.batch(writes.into(), &[], WriteOptions::default()).unwrap());
        } else if stays(key) || rng.u8(..100) < if group { 85 } else { 15 } {
            index.put(S::borrow(&S::key(key)), S::borrow_value(&S::numbered(key, number))).unwrap();
        } else {
            index.delete(S::borrow(&S::key(key))).unwrap();
        }
    }
}

/// The last value of each key that a reader saw.
#[derive(Default)]
struct Seen(HashMap<u32, u32>);

impl Seen {
    fn note<S: Numbered>(&mut self, key: u32, value: &S::ValueBuf) {
        let number = S::number(key, value).unwrap_or_else(|| panic!("a value of another key under {key}"));
        let last = self.0.insert(key, number).unwrap_or(0);
        assert!(last <= number, "key {key} went back from {last} to {number}");
    }
}

fn read<M: Medium, S: Numbered>(index: &Index<M, S>, keys: u32, seed: u64, done: &AtomicBool) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut seen = Seen::default();
    let numbers: HashMap<_, _> = (0..keys).map(|key| (S::key(key).bytes(), key)).collect();
    let mut looks = 0;
    while !done.load(Ordering::Relaxed) || looks < 50 {
        looks += 1;
        for _ in 0..20 {
            let key = rng.u32(..keys);
            let mut value = S::ValueBuf::default();
            let found = index.get(S::borrow(&S::key(key)), Some(&mut value)).unwrap();
            assert!(found || !stays(key), "key {key} is not found");
            if found {
                seen.note::<S>(key, &value);
            }
        }
        let first = rng.u32(..keys / 8) * 8 + 1;
        let pair = [S::key(first), S::key(first + 1)];
        let mut both = Vec::new();
        index
            .get_each(&pair.each_ref().map(|key| S::borrow(key)), &mut |value| {
                both.push(value);
                true
            })
            .unwrap();
        let of = |i: usize| both[i].as_ref().map(|value| S::number(first + i as u32, value));
        assert_eq!(of(0), of(1), "half of a batch");
        let (from, down) = (rng.u32(..keys), rng.bool());
        let mut cursor = index.cursor();
        cursor.seek(Bound::Included(S::key(from)), down);
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        let mut scanned: Vec<(u32, Option<u32>)> = Vec::new();
        while cursor.next(&mut key, &mut value).unwrap() {
            let number = numbers[&key.bytes()];
            scanned.push((number, S::number(number, &value)));
            assert!(scanned.last().is_some_and(|(_, value)| value.is_some()), "a value of another key");
        }
        let in_order =
            |pair: &[(u32, Option<u32>)]| if down { pair[0].0 > pair[1].0 } else { pair[0].0 < pair[1].0 };
        assert!(scanned.windows(2).all(in_order), "out of order");
        let range = if down { 0..=from } else { from..=keys - 1 };
        let by_key: HashMap<u32, Option<u32>> = scanned.iter().copied().collect();
        let missing = range.clone().filter(|key| stays(*key)).find(|key| !by_key.contains_key(key));
        assert_eq!(missing, None, "a key that stays is not scanned");
        let at = |key: u32| by_key.get(&key);
        for first in range.clone().filter(|key| is_paired(*key) && range.contains(&(key + 1))) {
            assert_eq!(at(first), at(first + 1), "half of a batch in a scan");
        }
    }
    looks
}

fn beside<S: Numbered>(lines: u64) {
    let medium = Native::anonymous(64 << 20, Durability::Power).unwrap();
    let geometry = Geometry { chunk_bytes: 64 << 10, ..Geometry::tiny() };
    beside_in::<S>(medium, &Options { geometry, stripes: 16, ..options::<S>(lines, false) }, KEYS);
}

/// The same test in this memory, with this many keys.
#[allow(private_bounds)]
pub fn beside_in<S: Numbered>(medium: Native, options: &Options, keys: u32) {
    let index = Index::<_, S>::create(medium, options).unwrap();
    for key in (0..keys).filter(|key| stays(*key)) {
        index.put(S::borrow(&S::key(key)), S::borrow_value(&S::numbered(key, 0))).unwrap();
    }
    let done = AtomicBool::new(false);
    let looks: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn({
                    let (index, done) = (&index, &done);
                    move || read(index, keys, seed, done)
                })
            })
            .collect();
        write(&index, keys);
        done.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("a reader saw what it may not")).sum()
    });
    println!("{} lines: {looks} looks", options.lines);
    let problems = index.check().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn readers_of_words_beside_a_writer() {
    beside::<Words>(2);
    beside::<Words>(6);
}

#[test]
fn readers_of_wide_values_beside_a_writer() {
    beside::<Fixed>(3);
}

#[test]
fn readers_of_byte_strings_beside_a_writer() {
    beside::<Keyed>(2);
    beside::<Keyed>(5);
}
