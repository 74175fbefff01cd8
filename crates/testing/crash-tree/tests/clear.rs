//! Tests of clear for every engine: its cost, the space that it leaves, and its behaviour among other writes. An earlier implementation of
//! clear deleted the keys one by one, with one descent for each key.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bristlecone::registry;
use crash_tree::subject::{Numbered, Sampled};
use index::{About, Create, Family, Form, Index, Kind, Lifecycle, Visitor, Write, WriteOptions, kind};
use pmem::{Durability, Event, Geometry, Memory, Observed, Observer};

const SYNCED: WriteOptions = WriteOptions { sync: true };
const BYTES: u64 = 64 << 20;

/// Counts lines read, stores, flushes and fences.
#[derive(Default)]
struct Steps(AtomicU64);

impl Observer for Steps {
    fn read(&self, _line: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn event(&self, _event: Event) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// An index in memory, and the counter of its steps.
struct Made<I> {
    index: I,
    memory: Arc<Memory>,
    steps: Arc<Steps>,
    form: Form,
}

fn make<K: Sampled, I: Index<K> + Create<Observed>>(about: &'static About, chunk_bytes: u64) -> Made<I> {
    make_in::<K, I>(about, chunk_bytes, BYTES)
}

fn make_in<K: Sampled, I: Index<K> + Create<Observed>>(
    about: &'static About,
    chunk_bytes: u64,
    bytes: u64,
) -> Made<I> {
    let (memory, steps) = (Memory::new(bytes, 0), Arc::new(Steps::default()));
    let medium = Observed::new(Arc::clone(&memory), Arc::clone(&steps) as Arc<_>);
    let geometry = Geometry { chunk_bytes, ..Geometry::default() };
    let usual = Form::new(about.name, about.default_lines, Durability::Power);
    let form = Form { geometry: Some(geometry), payload_words: K::PAYLOAD_WORDS, ..usual };
    Made { index: I::create(medium, &form).unwrap(), memory, steps, form }
}

impl<I> Made<I> {
    /// Opens the index again, whether or not it was closed.
    fn reopen<K: Kind>(&mut self)
    where
        I: Index<K> + Create<Observed>,
    {
        let medium = Observed::new(Arc::clone(&self.memory), Arc::clone(&self.steps) as Arc<_>);
        self.index = I::open(medium, Path::new("memory"), &self.form).unwrap().0;
    }
}

fn put<K: Sampled>(index: &impl Index<K>, n: u32, value: u32) {
    let (key, value) = (K::number_key(n), K::number_value(value));
    index.put(K::key(&key), K::value(&value), SYNCED).unwrap();
}

/// Completes all background work. For an engine that always has more, does many steps of it.
fn maintain<K: Kind>(index: &impl Index<K>) {
    for _ in 0..20_000 {
        if index.maintain().is_none() {
            return;
        }
    }
}

fn assert_sound<K: Kind>(index: &impl Index<K>) {
    let problems = index.check().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

/// A test that runs on an index of both kinds of keys.
trait Test: Copy {
    fn run<K: Sampled, I: Index<K> + Create<Observed>>(self, about: &'static About);
}

struct Both<T>(T);

impl<T: Test> Visitor for Both<T> {
    type Out = ();
    fn visit<F: Family>(self, about: &'static About) {
        println!("{}", about.name);
        self.0.run::<kind::U64, F::Words<Observed>>(about);
        self.0.run::<kind::Bytes, F::Bytes<Observed>>(about);
    }
}

fn of_every_durable_engine(test: impl Test) {
    for about in registry::engines().filter(|about| about.durable) {
        registry::visit(about.name, Both(test)).expect("an engine of the registry");
    }
}

#[derive(Clone, Copy)]
struct Cost;

impl Test for Cost {
    fn run<K: Sampled, I: Index<K> + Create<Observed>>(self, about: &'static About) {
        let steps_of = |keys: u32| {
            let made = make::<K, I>(about, 64 << 10);
            (0..keys).for_each(|n| put::<K>(&made.index, n, n % 64));
            let before = made.steps.0.load(Ordering::Relaxed);
            made.index.clear().unwrap();
            let steps = made.steps.0.load(Ordering::Relaxed) - before;
            assert_eq!(made.index.len().keys, 0);
            steps
        };
        let [few, many] = [500, 8000].map(steps_of);
        println!("{}: {few} steps to clear 500 keys, {many} to clear 8000", K::NAME);
        assert!(many < few + 500, "{}: {few} steps for 500 keys, {many} for 8000", about.name);
    }
}

#[test]
fn a_clear_costs_the_same_however_many_keys_there_are() {
    of_every_durable_engine(Cost);
}

#[derive(Clone, Copy)]
struct Space;

impl Test for Space {
    fn run<K: Sampled, I: Index<K> + Create<Observed>>(self, about: &'static About) {
        let made = make::<K, I>(about, 64 << 10);
        let index = &made.index;
        // The meta block, and a leaf.
        put::<K>(index, 1, 1);
        let new = index.usage().live_bytes;
        let (mut most, mut region) = (0, 0);
        for round in 0..4 {
            (0..3000).for_each(|n| put::<K>(index, n, n % 1600));
            most = most.max(index.usage().live_bytes);
            index.clear().unwrap();
            maintain::<K>(index);
            let left = index.usage().live_bytes;
            assert!(left <= new + 4096, "{}: {left} bytes are left, {new} were used by one key", about.name);
            assert_sound::<K>(index);
            if round == 1 {
                region = index.region_bytes();
            }
        }
        assert!(most > 2 * new && region > most, "{most} bytes, a region of {region}");
        let grown = index.region_bytes();
        assert!(grown <= region + (64 << 10), "{}: from {region} to {grown} bytes", about.name);
    }
}

#[test]
fn what_a_clear_leaves_is_freed_and_used_again() {
    of_every_durable_engine(Space);
}

#[derive(Clone, Copy)]
struct Full;

impl Test for Full {
    fn run<K: Sampled, I: Index<K> + Create<Observed>>(self, about: &'static About) {
        let made = make_in::<K, I>(about, 64 << 10, 2 << 20);
        let index = &made.index;
        if index.history().is_some() {
            return; // a clear is a version of its own, for which a full region has no space
        }
        let pair = |n| (K::number_key(n), K::number_value(n % 1600));
        let is_put = |n: &u32| {
            let (key, value) = pair(*n);
            index.put(K::key(&key), K::value(&value), SYNCED).is_ok()
        };
        let keys = (0..400_000).take_while(is_put).count() as u32;
        assert!(keys < 400_000, "{}: never full", about.name);
        index.clear().unwrap();
        // Half of the keys need far more space than the region had left.
        let pairs: Vec<_> = (0..keys / 2).map(pair).collect();
        let writes: Vec<_> =
            pairs.iter().map(|(key, value)| Write::Put(K::key(key), K::value(value))).collect();
        let were = index.write_many(&writes, SYNCED).unwrap_or_else(|why| panic!("{}: {why}", about.name));
        assert_eq!((were.len(), were.contains(&true)), (writes.len(), false));
        assert_eq!(index.len().keys, u64::from(keys / 2));
        assert_sound::<K>(index);
    }
}

#[test]
fn many_writes_at_once_find_the_space_that_a_clear_left() {
    of_every_durable_engine(Full);
}

#[derive(Clone, Copy)]
struct Model;

type Contents<K> = BTreeMap<u32, (<K as Kind>::KeyBuf, <K as Kind>::ValueBuf)>;

fn assert_same<K: Sampled>(index: &impl Index<K>, model: &Contents<K>, is_ordered: bool) {
    let (mut key, mut value) = <(K::KeyBuf, K::ValueBuf)>::default();
    for n in 0..400 {
        let found = index.get(K::key(&K::number_key(n)), Some(&mut value)).unwrap();
        let expected = model.get(&n).map(|(_, value)| value);
        assert_eq!(found.then_some(&value).map(Numbered::bytes), expected.map(Numbered::bytes), "key {n}");
    }
    if is_ordered {
        let mut cursor = index.cursor();
        cursor.seek(Bound::Unbounded, false).unwrap();
        let mut expected = model.values();
        while cursor.next(&mut key, &mut value).unwrap() {
            let (model_key, _) = expected.next().expect("no more keys than the model has");
            assert_eq!(key.bytes(), model_key.bytes());
        }
        assert!(expected.next().is_none());
    }
    assert_sound::<K>(index);
}

impl Test for Model {
    fn run<K: Sampled, I: Index<K> + Create<Observed>>(self, about: &'static About) {
        let mut made = make::<K, I>(
            about,
            if about.name == cdds::hash::ENGINE { 64 << 10 } else { 4096.max(about.default_lines * 1024) },
        );
        let mut random = fastrand::Rng::with_seed(7);
        let mut model = Contents::<K>::new();
        let is_ordered = about.name != cdds::hash::ENGINE;
        for step in 0..3000 {
            let (n, number) = (random.u32(..400), random.u32(..1600));
            match random.u32(..1000) {
                0..12 => {
                    made.index.clear().unwrap();
                    model.clear();
                }
                12..22 => made.reopen::<K>(),
                22..30 => {
                    Lifecycle::close(&made.index).unwrap();
                    made.reopen::<K>();
                }
                30..36 => {
                    // A clear during a snapshot creates before-images of all keys.
                    let view = made.index.snapshot().unwrap();
                    made.index.clear().unwrap();
                    let mut value = K::ValueBuf::default();
                    for (key, old) in model.values() {
                        assert!(view.get(K::key(key), &mut value).unwrap());
                        assert_eq!(value.bytes(), old.bytes());
                    }
                    model.clear();
                }
                36..50 => _ = made.index.maintain(),
                50..650 => {
                    put::<K>(&made.index, n, number);
                    model.insert(n, (K::number_key(n), K::number_value(number)));
                }
                650..700 => {
                    let writes = (n..n + 5).map(|n| (K::number_key(n), Some(K::number_value(number))));
                    assert!(made.index.batch(writes.collect(), &[], SYNCED).unwrap());
                    model.extend((n..n + 5).map(|n| (n, (K::number_key(n), K::number_value(number)))));
                }
                _ => {
                    let key = K::number_key(n);
                    let was_there = made.index.delete(K::key(&key), SYNCED).unwrap();
                    assert_eq!(was_there, model.remove(&n).is_some());
                }
            }
            if step % 100 == 0 {
                assert_same::<K>(&made.index, &model, is_ordered);
            }
        }
        made.index.count_all().unwrap();
        assert_eq!(made.index.len().keys, model.len() as u64);
        assert_same::<K>(&made.index, &model, is_ordered);
    }
}

#[test]
fn clears_among_other_writes_equal_the_model() {
    of_every_durable_engine(Model);
}
