//! Windows of remapped pages. The tests verify that an index has a window or reports why it has none, that lookups find the same with and
//! without a window, and that nothing durable depends on it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::{Home, Mapped, Sample, memory, open_in, options, rewired};
use index::leaf_list::prelude::*;
use index::{Fixed, Keyed, Words, WriteOptions};
use pmem::page_remap::{MAPPING_BYTES, Pages};
use pmem::{Durability, Fence, Geometry, Line, Medium, Native, Result};
use vlab::{Addressed, Addressing, Options, Vlab};

/// Buckets of one page, addressed by windows, otherwise with production settings.
fn production() -> Options {
    Options { addressing: Addressing::Rewired, ..Options::new(64, Durability::Process) }
}

/// Number of mappings of the window.
fn mappings<M: Medium, S: Sample>(index: &Vlab<M, S>) -> Option<u64> {
    match index.addressed() {
        Addressed::Window { mappings, .. } => Some(mappings),
        Addressed::Directory(_) => None,
    }
}

#[track_caller]
fn assert_sound<M: Medium, S: Sample>(index: &Vlab<M, S>) {
    let problems = index.check().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

/// Random words, and the buckets that they make.
fn fill<M: Medium>(index: &Vlab<M, Words>, count: usize, seed: u64) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let keys: Vec<u64> = (0..count).map(|_| rng.u64(..)).collect();
    keys.iter().for_each(|key| assert!(!index.put(key, &!key).unwrap()));
    keys
}

#[track_caller]
fn assert_has<M: Medium>(index: &Vlab<M, Words>, keys: &[u64]) {
    for key in keys {
        let mut value = 0;
        assert!(index.get(key, Some(&mut value)).unwrap() && value == !key, "{key:#x}");
        assert!(!index.get(&(key ^ 1), None).unwrap());
    }
    let mut given = Vec::new();
    let some: Vec<&u64> = keys.iter().take(500).collect();
    let each = index.get_each(&some, &mut |value| {
        given.push(value);
        true
    });
    each.unwrap();
    assert!(given.iter().zip(&some).all(|(value, key)| *value == Some(!**key)));
}

#[test]
fn an_index_that_is_opened_has_a_window_and_a_combine_makes_a_new_one() {
    let home = Mapped::new();
    let index: Vlab<_, Words> = Vlab::create(home.medium(), &production()).unwrap();
    let keys = fill(&index, 100_000, 1);
    index.combine().unwrap();
    let paths = index.paths();
    let taken = mappings(&index).unwrap();
    assert!(taken <= paths.directory as u64 + 2 && taken > paths.directory as u64 / 2, "{taken}, {paths:?}");
    assert_eq!(paths.window_bytes, taken * MAPPING_BYTES + 8 * paths.directory as u64);
    println!("{}: {paths:?}", index.addressed());
    assert_has(&index, &keys);
    assert_sound(&index);
    index.close().unwrap();
    drop(index);
    let index: Vlab<_, Words> = open_in(&home, &production());
    assert_eq!(mappings(&index), Some(taken));
    assert_has(&index, &keys);
    // The index is not closed this time.
    let more = fill(&index, 20_000, 2);
    drop(index);
    let index: Vlab<_, Words> = open_in(&home, &production());
    assert!(mappings(&index).is_some_and(|more| more > taken));
    assert_has(&index, &keys);
    assert_has(&index, &more);
    assert_sound(&index);
}

#[test]
fn keys_in_order_need_a_mapping_for_each_chunk_alone() {
    let index: Vlab<_, Words> = Vlab::create(Mapped::new().medium(), &production()).unwrap();
    (1..200_000_u64).for_each(|n| assert!(!index.put(&(n << 20), &n).unwrap()));
    index.combine().unwrap();
    let buckets = index.paths().directory as u64;
    // A chunk of 256 KiB has 63 pages of buckets after one for its header.
    let chunks = buckets.div_ceil(63) + 1;
    let taken = mappings(&index).unwrap();
    assert!(taken <= 2 * chunks && buckets > 700, "{taken} mappings of {buckets} buckets");
}

#[test]
fn without_a_file_a_page_or_words_there_is_a_directory_and_it_says_why() {
    fn told<M: Medium, S: Sample>(medium: M, options: &Options) -> String {
        let options = Options { payload_words: S::PAYLOAD_WORDS, ..options.clone() };
        let index: Vlab<M, S> = Vlab::create(medium, &options).unwrap();
        index.put(S::borrow(&S::key(7)), S::borrow_value(&S::value(7))).unwrap();
        index.combine().unwrap();
        assert!(index.get(S::borrow(&S::key(7)), None).unwrap());
        assert_sound(&index);
        assert_eq!(index.paths().window_bytes != 0, mappings(&index).is_some());
        index.addressed().to_string()
    }
    let file = || Mapped::new().medium();
    let anonymous = Native::anonymous(64 << 20, Durability::Process).unwrap();
    let in_memory = "directory (the memory is not a file that is mapped and shared)";
    assert_eq!(told::<_, Words>(anonymous, &production()), in_memory);
    assert_eq!(told::<_, Words>(memory(64 << 20).0, &production()), in_memory);
    assert_eq!(told::<_, Keyed>(file(), &production()), "directory (keys are not words)");
    let short = Options { addressing: Addressing::Rewired, ..Options::new(32, Durability::Process) };
    assert_eq!(told::<_, Words>(file(), &short), "directory (buckets have 2048 bytes and not 4096)");
    let asked = Options::new(64, Durability::Process);
    assert_eq!(told::<_, Words>(file(), &asked), "directory (as asked for)");
    assert!(told::<_, Fixed>(file(), &production()).starts_with("rewired (2 mappings"));
    // The medium of a store.
    let told_of_a_store = told::<_, Words>(pmem::Durable::from(file()), &production());
    assert!(told_of_a_store.starts_with("rewired (2 mappings"), "{told_of_a_store}");
}

#[test]
fn where_mappings_do_not_suffice_the_directory_goes_on_and_no_write_fails() {
    let few = Options { mappings_max: Some(300), ..production() };
    let home = Mapped::new();
    let index: Vlab<_, Words> = Vlab::create(home.medium(), &few).unwrap();
    let mut keys = fill(&index, 20_000, 3);
    index.combine().unwrap();
    assert!(mappings(&index).is_some(), "{}", index.addressed());
    keys.extend(fill(&index, 80_000, 4));
    index.combine().unwrap();
    let told = index.addressed().to_string();
    assert!(told.contains("mappings are needed and 300 are allowed"), "{told}");
    assert_has(&index, &keys);
    assert_sound(&index);
    drop(index);
    let index: Vlab<_, Words> = open_in(&home, &few);
    assert!(mappings(&index).is_none());
    assert_has(&index, &keys);
    // With fewer buckets there is space again.
    for key in keys.split_off(2_000) {
        assert!(index.delete(&key).unwrap());
    }
    index.combine().unwrap();
    assert!(mappings(&index).is_some(), "{}", index.addressed());
    assert_has(&index, &keys);
    assert_sound(&index);
}

/// A merge frees a bucket's page for another bucket. The window's places that showed the page must show the remaining bucket at once,
/// because the next splits write the page anew.
#[test]
fn pages_of_merged_buckets_are_used_again_under_the_same_window() {
    let index: Vlab<_, Words> = Vlab::create(Mapped::new().medium(), &production()).unwrap();
    let mut keys = fill(&index, 100_000, 5);
    index.combine().unwrap();
    keys.sort_unstable();
    let (mut through, mut nodes) = (0, index.check().nodes);
    let (mut merged, mut split) = (0, 0);
    for round in 0..40_u64 {
        // A range of keys is removed, and then filled with other keys.
        let from = (round as usize * 7919) % (keys.len() - 3_000);
        let gone: Vec<u64> = keys.drain(from..from + 2_500).collect();
        for key in &gone {
            assert!(index.delete(key).unwrap());
        }
        assert_sound(&index);
        let now = index.check().nodes;
        (merged, nodes) = (merged + nodes.saturating_sub(now), now);
        let fresh: Vec<u64> = gone.iter().map(|key| key ^ 0xFFF0).collect();
        for key in &fresh {
            index.put(key, &!key).unwrap();
        }
        keys.splice(from..from, fresh);
        keys.sort_unstable();
        keys.dedup();
        assert_sound(&index);
        let now = index.check().nodes;
        (split, nodes) = (split + now.saturating_sub(nodes), now);
        through += u64::from(mappings(&index).is_some());
        assert_has(&index, &keys[from..from + 2_000]);
    }
    println!("{merged} buckets merged, {split} split, {through} rounds through a window");
    assert!(merged > 300 && split > 200 && through > 20, "{merged}, {split}, {through}");
    assert_has(&index, &keys);
}

/// Deleting from the top merges the same bucket again and again. Each merge would have to change more places of the window.
#[test]
fn a_merge_that_would_change_many_places_gives_up_the_window_until_the_next_combine() {
    let index: Vlab<_, Words> = Vlab::create(Mapped::new().medium(), &production()).unwrap();
    let mut keys = fill(&index, 60_000, 6);
    index.combine().unwrap();
    keys.sort_unstable();
    let mut told = Vec::new();
    while keys.len() > 20_000 {
        assert!(index.delete(&keys.pop().unwrap()).unwrap());
        let now = index.addressed().to_string();
        let kind = now.split(' ').take(4).collect::<Vec<_>>().join(" ");
        if mappings(&index).is_none() && told.last() != Some(&kind) {
            told.push(kind);
        }
    }
    assert!(told.iter().any(|told| told.contains("a merge changed")), "{told:?}");
    assert_sound(&index);
    assert_has(&index, &keys);
    index.combine().unwrap();
    assert!(mappings(&index).is_some());
    assert_sound(&index);
    assert_has(&index, &keys);
}

/// A medium that counts calls.
struct Counted {
    below: Native,
    verbs: &'static [AtomicU64; 4],
}

impl Medium for Counted {
    fn line(&self, at: u64) -> &Line {
        self.below.line(at)
    }
    fn copy(&self, at: u64, value: u64) {
        self.verbs[0].fetch_add(1, Ordering::Relaxed);
        self.below.copy(at, value);
    }
    fn publish(&self, at: u64, value: u64) {
        self.verbs[1].fetch_add(1, Ordering::Relaxed);
        self.below.publish(at, value);
    }
    fn flush(&self, at: u64, bytes: u64) {
        self.verbs[2].fetch_add(pmem::medium::lines_of(at, bytes).count() as u64, Ordering::Relaxed);
        self.below.flush(at, bytes);
    }
    fn fence(&self, why: Fence) {
        self.verbs[3].fetch_add(1, Ordering::Relaxed);
        self.below.fence(why);
    }
    fn prefetch(&self, at: u64, bytes: u64) {
        self.below.prefetch(at, bytes);
    }
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn grow(&self, bytes: u64) -> Result<()> {
        self.below.grow(bytes)
    }
    fn provide(&self, at: u64, bytes: u64) -> Result<()> {
        self.below.provide(at, bytes)
    }
    fn holes(&self) -> Vec<(u64, u64)> {
        self.below.holes()
    }
    fn sync(&self, at: u64, bytes: u64) -> Result<()> {
        self.below.sync(at, bytes)
    }
    fn pages(&self) -> Option<Pages<'_>> {
        self.below.pages()
    }
    fn lines(&self, at: u64, count: usize) -> Option<&[Line]> {
        self.below.lines(at, count)
    }
}

#[test]
fn the_same_words_are_stored_and_the_same_lines_flushed_with_a_window_and_without() {
    for faithful in [false, true] {
        let seen = [Addressing::Directory, Addressing::Rewired].map(|addressing| {
            let home = Mapped::new();
            let verbs: &'static [AtomicU64; 4] = Box::leak(Box::default());
            let counted = Counted { below: home.medium(), verbs };
            let how = Options { addressing, ..rewired::<Words>(faithful) };
            let index: Vlab<_, Words> = Vlab::create(counted, &how).unwrap();
            let mut rng = fastrand::Rng::with_seed(8);
            let mut through = 0;
            for step in 0..60_000_u32 {
                let grows = (step / 15_000).is_multiple_of(2);
                let key = Words::key(rng.u32(..6_000));
                match rng.u32(..100) {
                    0 => {
                        let writes =
                            (0..6).map(|_| (Words::key(rng.u32(..6_000)), rng.bool().then_some(key)));
                        index.batch(writes.collect(), &[], WriteOptions::default()).map(drop).unwrap();
                    }
                    n if (n < 75) == grows => _ = index.put(&key, &u64::from(step)).unwrap(),
                    _ => _ = index.delete(&key).unwrap(),
                }
                through += u32::from(mappings(&index).is_some());
            }
            assert_eq!(through > 10_000, addressing == Addressing::Rewired, "{through}");
            assert_sound(&index);
            index.close().unwrap();
            drop(index);
            let medium = home.medium();
            let words: Vec<u64> = (0..medium.len() / 8).map(|i| medium.word(i * 8)).collect();
            (words, verbs.each_ref().map(|verb| verb.load(Ordering::Relaxed)))
        });
        println!("copied, published, flushed, fenced: {:?}", seen[0].1);
        assert_eq!(seen[0].1, seen[1].1);
        assert!(seen[0].0 == seen[1].0, "the files differ");
    }
}

/// Readers look for keys that stay. Meanwhile other keys come and go and windows are switched.
#[test]
fn readers_find_what_stays_while_buckets_split_and_merge_and_windows_are_switched() {
    let how = Options { stripes: 16, combine_step: 64, ..rewired::<Words>(false) };
    let index: Vlab<_, Words> = Vlab::create(Mapped::new().medium(), &how).unwrap();
    let (stays, kinds) = (|n: u64| n << 40, 300_u64);
    (1..=kinds).for_each(|n| assert!(!index.put(&stays(n), &!stays(n)).unwrap()));
    let done = AtomicBool::new(false);
    let mut switched = 0;
    let looks: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (index, done) = (&index, &done);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let mut looks = 0;
                    while !done.load(Ordering::Relaxed) {
                        let key = stays(rng.u64(1..=kinds));
                        let mut value = 0;
                        assert!(index.get(&key, Some(&mut value)).unwrap(), "{key:#x} is not found");
                        assert_eq!(value, !key);
                        assert!(!index.get(&(key - 1), None).unwrap(), "nobody ever wrote {:#x}", key - 1);
                        looks += 2;
                    }
                    looks
                })
            })
            .collect();
        let mut rng = fastrand::Rng::with_seed(9);
        let mut before = false;
        let mut note = |now: bool| switched += u64::from(now != std::mem::replace(&mut before, now));
        for group in 0..24_u64 {
            // A window is made when no reader holds the previous one. A descheduled reader may hold it.
            while mappings(&index).is_none() {
                index.combine().unwrap();
                thread::yield_now();
            }
            note(true);
            // Inserts in any order. Then deletes of runs, so that buckets are merged and their pages reused.
            let (mut some, base) = (Vec::new(), rng.u64(1..kinds - 60));
            for _ in 0..6_000 {
                some.push(stays(base + rng.u64(..60)) + 1 + rng.u64(..1 << 39));
                let key = some[some.len() - 1];
                index.put(&key, &group).unwrap();
            }
            some.sort_unstable();
            some.dedup();
            for key in &some {
                assert!(index.delete(key).unwrap());
                note(mappings(&index).is_some());
            }
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("a reader saw what it may not")).sum()
    });
    println!("{looks} looks, {switched} switches");
    assert!(switched > 20, "{switched} switches");
    assert_sound(&index);
}

/// The version lock of a slot's first address also protects reads through its second address. Otherwise a reader could copy a slot while
/// the slot gets another key, and no change of the list would reveal it.
#[test]
fn a_value_read_through_a_window_is_of_its_key_and_whole_beside_a_writer_of_the_same_slots() {
    const WORDS: usize = 15;
    const KEYS: u64 = 60;
    let how = Options { payload_words: WORDS, stripes: 1024, ..rewired::<Words>(false) };
    let index: Vlab<_, Fixed> = Vlab::create(Mapped::new().medium(), &how).unwrap();
    let value = |key: u64, number: u64| (key << 32 | number).to_le_bytes().repeat(WORDS);
    // Twice as many keys as a bucket holds, so that there are several buckets. Most keys stay.
    (0..400).for_each(|key| assert!(!index.put(&key, &value(key, 0)).unwrap()));
    index.combine().unwrap();
    assert!(mappings(&index).is_some());
    let done = AtomicBool::new(false);
    let looks: u64 = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut rng, mut looks, mut got) = (fastrand::Rng::with_seed(11), 0, Vec::new());
            while !done.load(Ordering::Relaxed) {
                let key = rng.u64(..KEYS);
                if index.get(&key, Some(&mut got)).unwrap() {
                    let number = u64::from(u32::from_le_bytes(*got.first_chunk().unwrap()));
                    assert_eq!(got, value(key, number), "key {key}");
                    looks += 1;
                }
            }
            looks
        });
        let mut rng = fastrand::Rng::with_seed(12);
        for number in 1..400_000 {
            let key = rng.u64(..KEYS);
            if rng.u8(..3) == 0 {
                index.delete(&key).unwrap();
            } else {
                index.put(&key, &value(key, number)).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("a reader saw what it may not")
    });
    println!("{looks} looks, {}", index.addressed());
    assert!(mappings(&index).is_some());
    assert_sound(&index);
}

#[test]
fn small_buckets_are_refused_no_region_for_being_asked_to_be_rewired() {
    let geometry = Geometry::tiny();
    let how = Options { addressing: Addressing::Rewired, geometry, ..options::<Words>(2, false) };
    let home = Mapped::new();
    let index: Vlab<_, Words> = Vlab::create(home.medium(), &how).unwrap();
    fill(&index, 500, 10);
    drop(index);
    let (index, _) = Vlab::<_, Words>::open(home.medium(), Path::new("memory"), &how).unwrap();
    assert_eq!(index.addressed().to_string(), "directory (buckets have 128 bytes and not 4096)");
    assert_sound(&index);
}
