//! The shared battery: every engine of the registry, for both kinds of keys, through the public API only. A new engine needs only its line
//! in the registry.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::scratch;
use bristlecone::registry::{self, Open};
use bristlecone::{Bytes, Error, Fixed, Kind, Options, Store, StoreFixed, StoreOf, U64, Write};
use crash::by_tier;

/// Keys and values of a kind from small numbers.
trait Sample: Open<Value: ToOwned> + Kind<ValueBuf: PartialEq> {
    /// The length of a value, which stores of fixed values need as an option.
    const VALUE_BYTES: Option<u64> = None;
    fn make_key(n: u64) -> Self::KeyBuf;
    fn make_value(n: u64) -> Self::ValueBuf;
    fn number(value: &Self::ValueBuf) -> u64;
}

impl Sample for Bytes {
    fn make_key(n: u64) -> Vec<u8> {
        format!(
            "{}{:x}",
            ["", "user:", "a rather long beginning "][n as usize % 3],
            n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        )
        .into_bytes()
    }
    fn make_value(n: u64) -> Vec<u8> {
        let mut value = n.to_be_bytes().to_vec();
        value.resize(8 + n as usize % 200, n as u8);
        value
    }
    fn number(value: &Vec<u8>) -> u64 {
        u64::from_be_bytes(value[..8].try_into().unwrap())
    }
}

impl Sample for U64 {
    fn make_key(n: u64) -> u64 {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
    fn make_value(n: u64) -> u64 {
        n
    }
    fn number(value: &u64) -> u64 {
        *value
    }
}

impl Sample for Fixed {
    const VALUE_BYTES: Option<u64> = Some(56);

    fn make_key(n: u64) -> u64 {
        U64::make_key(n)
    }
    fn make_value(n: u64) -> Vec<u8> {
        (0..7).flat_map(|i| (n << i).to_be_bytes()).collect()
    }
    fn number(value: &Vec<u8>) -> u64 {
        let words: Vec<u64> =
            value.as_chunks().0.iter().map(|bytes: &[u8; 8]| u64::from_be_bytes(*bytes)).collect();
        assert!(words.len() == 7 && (0..7).all(|i| words[i] == words[0] << i), "torn: {words:?}");
        words[0]
    }
}

fn options(engine: &str) -> Options {
    Options::default().engine(engine).max_bytes(1 << 32)
}

/// Engines that support values of one length.
fn fixed() -> impl Iterator<Item = &'static str> {
    registry::names().filter(|name| registry::find(name).unwrap().capabilities.fixed_values)
}

/// The medium below an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    Mapped,
    Journal,
    /// Files of the engine's own.
    Files,
}

/// Every engine with each of its media. The engines of papers take turns: a mapped file in one run, a journal in the next.
fn engines() -> impl Iterator<Item = (&'static str, Under)> {
    let durable = |name: &&str| registry::find(name).unwrap().about.durable;
    let mapped = registry::names().map(|name| (name, Under::Mapped));
    let all = mapped.chain(registry::names().filter(durable).map(|name| (name, Under::Journal)));
    let in_files = |name: &&str| registry::find(name).unwrap().files.is_some();
    let all = all.chain(registry::names().filter(in_files).map(|name| (name, Under::Files)));
    all.filter(move |(name, under)| {
        let is_turn = || {
            let number = registry::names().position(|other| other == *name).expect("it is registered") as u64;
            (number + crash::turn()).is_multiple_of(2) == (*under == Under::Journal)
        };
        let is_always =
            crash::is_soak() || !durable(name) || registry::feature_of(name) != Some("paper-engines");
        is_always || is_turn()
    })
}

fn open<K: Sample>(dir: &std::path::Path, engine: &str) -> StoreOf<K> {
    open_on(dir, engine, Under::Mapped)
}

fn open_on<K: Sample>(dir: &std::path::Path, engine: &str, under: Under) -> StoreOf<K> {
    let options = options(engine).value_bytes(K::VALUE_BYTES);
    let options = match under {
        Under::Mapped => options.durability(
            registry::find(engine).unwrap().about.durable.then_some(bristlecone::Durability::Process),
        ),
        Under::Journal => options.journal_bytes(4 << 20),
        Under::Files => options.durability(bristlecone::Durability::Process),
    };
    StoreOf::<K>::open(dir, options).unwrap()
}

fn assert_equals<K: Sample>(store: &StoreOf<K>, model: &BTreeMap<K::KeyBuf, K::ValueBuf>) {
    let wanted: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let walked: Vec<_> = store.walk().map(Result::unwrap).collect();
    if store.capabilities().ordered {
        let forward: Vec<_> = store.scan(..).map(Result::unwrap).collect();
        let mut backward: Vec<_> = store.scan(..).descending().map(Result::unwrap).collect();
        backward.reverse();
        assert!(forward == wanted && backward == wanted && walked == wanted);
        assert!(crate::common::visited(store.scan(..)) == wanted);
        assert_eq!(store.first().unwrap(), wanted.first().cloned());
        assert_eq!(store.last().unwrap(), wanted.last().cloned());
    } else {
        let mut sorted = walked.clone();
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        assert!(sorted == wanted);
        let asked = [
            store.first().err(),
            store.last().err(),
            store.scan(..).next().and_then(Result::err),
            store.scan(..).descending().next().and_then(Result::err),
            store.walk().descending().next().and_then(Result::err),
        ];
        for error in asked {
            let error = error.expect("an order of something that has none");
            assert!(
                matches!(error, Error::Unordered { .. }) && error.to_string().contains("wbtree"),
                "{error}"
            );
        }
    }
    // A walk can continue after any key.
    for at in [0, walked.len() / 2, walked.len().saturating_sub(1)] {
        let Some((key, _)) = walked.get(at) else { break };
        let rest: Vec<_> = store.walk_behind(K::key_ref(key)).map(Result::unwrap).collect();
        assert!(rest == walked[at + 1..]);
    }
    let report = store.check().unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!((report.keys, store.len().keys), (model.len() as u64, model.len() as u64));
}

fn equals_the_model<K: Sample>(engine: &str, under: Under) {
    let dir = scratch();
    let store = open_on::<K>(dir.path(), engine, under);
    let mut model = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..by_tier(6_000, 20_000_u64) {
        let key = K::make_key(random.u64(..2000));
        let value = K::make_value(random.u64(..10_000));
        let (k, v) = (K::key_ref(&key), K::make_value(0));
        match random.u8(..9) {
            8 => {
                // Up to 200 writes, some to the same key. One batch in three has a condition that holds, and one in three has a condition
                // that usually does not. For an engine without batches all writes are to one key, which every engine supports.
                let is_of_one = !store.capabilities().atomic_batch;
                let mut batch = store.batch();
                let holds = random.u8(..3);
                if holds > 0 {
                    let now = model.get(&key).map(K::value_ref);
                    batch.require(k, if holds == 1 { now } else { Some(K::value_ref(&v)) });
                }
                let is_done = holds != 2 || model.get(&key) == Some(&v);
                for _ in 0..random.u64(..[3, 30, 200][step as usize % 3]) {
                    let (other, value) =
                        (K::make_key(random.u64(..2000)), K::make_value(random.u64(..10_000)));
                    let key = if is_of_one { key.clone() } else { other };
                    let deletes = random.u8(..3) == 0;
                    match deletes {
                        true => batch.delete(K::key_ref(&key)),
                        false => batch.put(K::key_ref(&key), K::value_ref(&value)),
                    };
                    match (is_done, deletes) {
                        (false, _) => {}
                        (true, true) => _ = model.remove(&key),
                        (true, false) => _ = model.insert(key, value),
                    }
                }
                assert_eq!(batch.commit().unwrap(), is_done);
            }
            0..=2 => {
                assert_eq!(store.put(k, K::value_ref(&value)).unwrap(), model.insert(key, value).is_some())
            }
            3..=4 => assert_eq!(store.delete(k).unwrap(), model.remove(&key).is_some()),
            5 => {
                let absent = !model.contains_key(&key);
                assert_eq!(store.put_if_absent(k, K::value_ref(&value)).unwrap(), absent);
                if absent {
                    model.insert(key, value);
                }
            }
            6 => {
                let old = model.get(&key).cloned();
                let expected = if random.bool() { old.clone() } else { Some(v) };
                let swapped = store
                    .compare_and_swap(k, expected.as_ref().map(K::value_ref), Some(K::value_ref(&value)))
                    .unwrap();
                assert_eq!(swapped, old == expected);
                if swapped {
                    model.insert(key, value);
                }
            }
            _ => {
                assert_eq!(store.get(k).unwrap(), model.get(&key).cloned());
                assert_eq!(store.contains(k).unwrap(), model.contains_key(&key));
                if !store.capabilities().ordered {
                    continue;
                }
                let (low, high) = (key.clone().min(K::make_key(step)), key.max(K::make_key(step)));
                let found: Vec<_> =
                    store.scan(low.clone()..high.clone()).take(5).map(|p| p.unwrap().0).collect();
                let wanted: Vec<_> = model.range(low..high).take(5).map(|(k, _)| k.clone()).collect();
                assert_eq!(found, wanted);
            }
        }
    }
    assert_equals(&store, &model);
    let durable = store.capabilities().durable;
    store.close().unwrap();
    assert!(
        store.put(K::key_ref(&K::make_key(1)), K::value_ref(&K::make_value(1))).is_err(),
        "a closed store takes no writes"
    );
    drop(store);
    let store = open_on::<K>(dir.path(), engine, under);
    assert_eq!(store.stats().opened, if durable { "clean" } else { "new" });
    if !durable {
        model.clear();
    }
    assert_equals(&store, &model);
    store.clear().unwrap();
    assert_equals(&store, &BTreeMap::new());
}

/// Shorthands for the associated borrow functions of a kind.
trait Borrowed: Kind {
    fn key_ref(key: &Self::KeyBuf) -> &Self::Key {
        <Self as Kind>::key(key)
    }
    fn value_ref(value: &Self::ValueBuf) -> &Self::Value {
        <Self as Kind>::value(value)
    }
}
impl<K: Kind> Borrowed for K {}

#[test]
fn every_engine_equals_the_model_across_a_reopen() {
    for (engine, under) in engines() {
        equals_the_model::<Bytes>(engine, under);
        equals_the_model::<U64>(engine, under);
        if fixed().any(|name| name == engine) {
            equals_the_model::<Fixed>(engine, under);
        }
    }
}

/// Many keys in one call, some of them repeated, against single operations.
fn many_equal_one_by_one<K: Sample>(engine: &str, under: Under) {
    let dir = scratch();
    let store = open_on::<K>(dir.path(), engine, under);
    let mut model = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(13);
    for step in 0..by_tier(150, 300_u64) {
        let count = random.usize(..70);
        let pairs: Vec<_> = (0..count)
            .map(|_| {
                // Adjacent keys fill leaves. A few keys repeat.
                let n = if random.bool() { random.u64(..4000) } else { step * 3 % 700 + random.u64(..5) };
                (K::make_key(n), (random.u8(..) < 170).then(|| K::make_value(random.u64(..10_000))))
            })
            .collect();
        let writes: Vec<_> = pairs
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Write::Put(K::key_ref(key), K::value_ref(value)),
                None => Write::Delete(K::key_ref(key)),
            })
            .collect();
        let was_there = store.write_many(&writes).unwrap();
        for ((key, value), was_there) in pairs.iter().zip(was_there) {
            let old = match value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(key),
            };
            assert_eq!(old.is_some(), was_there, "{engine}, {under:?}, step {step}");
        }
        let keys: Vec<_> = (0..random.u64(..50)).map(|_| K::make_key(random.u64(..4000))).collect();
        let refs: Vec<_> = keys.iter().map(K::key_ref).collect();
        let found = store.get_many(&refs).unwrap();
        let wanted: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
        assert!(found == wanted, "{engine}, {under:?}, step {step}");
        // `get_each` stops when its callback returns false.
        let (mut given, wants) = (0, random.usize(1..40));
        let give = |_| {
            given += 1;
            given < wants
        };
        store.get_each(&refs, give).unwrap();
        assert_eq!(given, wants.min(refs.len()), "{engine}, {under:?}, step {step}");
    }
    assert_equals(&store, &model);
    let keys: Vec<_> = model.keys().cloned().collect();
    let refs: Vec<_> = keys.iter().map(K::key_ref).collect();
    assert!(store.delete_many(&refs).unwrap().into_iter().all(|was_there| was_there));
    assert_equals(&store, &BTreeMap::new());
}

#[test]
fn many_keys_at_once_equal_one_by_one() {
    for (engine, under) in engines() {
        many_equal_one_by_one::<Bytes>(engine, under);
        many_equal_one_by_one::<U64>(engine, under);
        if fixed().any(|name| name == engine) {
            many_equal_one_by_one::<Fixed>(engine, under);
        }
    }
}

#[test]
fn every_engine_declares_what_it_can_do() {
    for engine in registry::names() {
        let dir = scratch();
        let found = open::<Bytes>(dir.path(), engine).capabilities();
        let pages = engine.contains("-4k") || ["vlab", "nvtree", "toy"].contains(&engine);
        assert_eq!((found.fixed_values, fixed().any(|name| name == engine)), (pages, pages), "{engine}");
        let durable = match engine {
            "wbtree" | "wbtree-keyptr" | "wbtree-bmp" | "wbtree-slot" | "wbtree-line" => true,
            "btree-log" | "unsorted-log" | "ubmp-log" => true,
            "btree-shadow" | "unsorted-shadow" | "ubmp-shadow" => true,
            "trad-4k" | "trad-4k-shadow" | "cnt-4k" | "bmp-4k" | "wb-4k" | "bmp-all-4k" => true,
            "buffer-pool" => true,
            "cdds" | "cdds-unsorted" | "cdds-hash" | "vlab" | "nvtree" | "toy" | "line" => true,
            "btree" | "bwtree" => false,
            other => panic!("say here what {other} can do"),
        };
        assert_eq!((found.snapshots, found.versions), (engine != "bwtree", engine.starts_with("cdds")));
        assert_eq!(found.ordered, engine != "cdds-hash");
        let is_latch_free = engine == "bwtree";
        assert_eq!((found.atomic_batch, found.several_writers), (!is_latch_free, is_latch_free));
        assert_eq!((found.durable, registry::find(engine).unwrap().about.durable), (durable, durable));
        assert_eq!(dir.path().join(bristlecone::store_dir::FILE_NAME).exists(), durable);
    }
}

#[test]
fn a_store_of_values_of_one_length_says_what_it_has_to_be_told() {
    let dir = scratch();
    let path = dir.path().join("store");
    let open = |value_bytes, engine: Option<&str>| {
        StoreFixed::open(&path, Options::default().value_bytes(value_bytes).engine(engine))
    };
    let refused = |value_bytes, engine| open(value_bytes, engine).err().unwrap().to_string();
    assert!(refused(None, None).contains("say how many bytes a value has"));
    assert!(refused(Some(12), None).contains("a multiple of 8 up to 120"));
    assert!(refused(Some(128), None).contains("a multiple of 8 up to 120"));
    let error = refused(Some(24), Some("wbtree"));
    assert!(error.starts_with("wbtree has no store of") && error.contains("trad-4k, "), "{error}");
    let error = Store::open(&path, Options::default().value_bytes(24)).err().unwrap().to_string();
    assert!(error.contains("64-bit keys to bytes of one length"), "{error}");
    let store = open(Some(24), None).unwrap();
    assert_eq!(
        (store.stats().engine.as_str(), store.stats().kind.as_str()),
        (registry::DEFAULT_FIXED, "u64, 24 bytes")
    );
    store.put(&1, &[7; 24]).unwrap();
    let error = store.put(&1, &[8; 25]).unwrap_err().to_string();
    assert!(error.contains("a value of 25 bytes: in this store every value has 24"), "{error}");
    drop(store);
    assert!(refused(Some(32), None).contains("the kind \"u64, 24 bytes\", not with \"u64, 32 bytes\""));
    assert!(Store::open(&path, Options::default()).err().unwrap().to_string().contains("u64, 24 bytes"));
    assert_eq!(open(None, None).unwrap().get(&1).unwrap(), Some(vec![7; 24]));
    let other = dir.path().join("other");
    drop(Store::open(&other, Options::default()).unwrap());
    let error = StoreFixed::open(&other, Options::default()).err().unwrap().to_string();
    assert!(error.contains("the kind \"bytes"), "{error}");
}

/// Readers beside a writer. Every get finds the keys that stay, and every scan returns them exactly once and in order. A rewritten key
/// always has a value that was stored, and never an older one than read before.
fn readers_beside_a_writer<K: Sample>(engine: &str, under: Under) {
    let dir = scratch();
    let store = open_on::<K>(dir.path(), engine, under);
    // Multiples of 4 stay, others come and go, key 0 is a counter.
    for n in 0..2000 {
        store.put(K::key_ref(&K::make_key(n)), K::value_ref(&K::make_value(n))).unwrap();
    }
    let stay: std::collections::BTreeSet<_> = (4..2000).step_by(4).map(K::make_key).collect();
    let done = AtomicBool::new(false);
    let scans = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for descending in [false, true] {
            let (store, done, stay, scans) = (store.clone(), &done, &stay, &scans);
            scope.spawn(move || {
                let mut latest = 0;
                let mut random = fastrand::Rng::with_seed(3);
                while !done.load(Ordering::Relaxed) || scans.load(Ordering::Relaxed) < 4 {
                    let is_ordered = store.capabilities().ordered;
                    let scan = if is_ordered { store.scan(..) } else { store.walk() };
                    let scan = if descending && is_ordered { scan.descending() } else { scan };
                    let mut keys: Vec<_> = scan.map(|pair| pair.unwrap().0).collect();
                    if !is_ordered {
                        keys.sort_by(|one, other| if descending { other.cmp(one) } else { one.cmp(other) });
                    }
                    assert!(keys.windows(2).all(|w| if descending { w[0] > w[1] } else { w[0] < w[1] }));
                    let met = keys.iter().filter(|key| stay.contains(key)).count();
                    assert_eq!(met, stay.len(), "a scan met each staying key once");
                    scans.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..200 {
                        let n = random.u64(1..500) * 4;
                        assert_eq!(store.get(K::key_ref(&K::make_key(n))).unwrap(), Some(K::make_value(n)));
                        let counter =
                            store.get(K::key_ref(&K::make_key(0))).unwrap().map(|v| K::number(&v)).unwrap();
                        assert!(counter >= latest, "the counter went back from {latest} to {counter}");
                        latest = counter;
                    }
                    let keys: Vec<_> = (1..40).map(|n| K::make_key(n * 4)).collect();
                    let refs: Vec<_> = keys.iter().map(K::key_ref).collect();
                    for (n, value) in (1..40).zip(store.get_many(&refs).unwrap()) {
                        assert_eq!(value, Some(K::make_value(n * 4)));
                    }
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(5);
        // Over a journal each write is a commit.
        let steps = if under == Under::Mapped { by_tier(10_000, 60_000) } else { by_tier(1000, 4000) };
        for step in 1..steps {
            let n = random.u64(..3000);
            let key = K::make_key(n);
            if !n.is_multiple_of(4) || n >= 2000 {
                if random.bool() {
                    store.put(K::key_ref(&key), K::value_ref(&K::make_value(n))).unwrap();
                } else {
                    store.delete(K::key_ref(&key)).unwrap();
                }
            }
            store.put(K::key_ref(&K::make_key(0)), K::value_ref(&K::make_value(step))).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn readers_beside_a_writer_miss_nothing_that_stays() {
    for (engine, under) in engines() {
        readers_beside_a_writer::<Bytes>(engine, under);
        readers_beside_a_writer::<U64>(engine, under);
        if fixed().any(|name| name == engine) {
            readers_beside_a_writer::<Fixed>(engine, under);
        }
    }
}

#[test]
fn random_sizes_turned_over_ten_times_leave_a_file_near_its_peak() {
    let dir = scratch();
    let store = open::<Bytes>(dir.path(), "wbtree");
    let mut random = fastrand::Rng::with_seed(11);
    // Sizes are evenly distributed over the orders of magnitude from 1 byte to 1 MiB.
    let mut size = || (2_f64.powf(random.f64() * 20.0)) as usize;
    let bytes: Vec<u8> = (0..1 << 20).map(|i| i as u8).collect();
    let mut live: Vec<usize> = Vec::new();
    let (mut live_bytes, mut peak) = (0, 0);
    let keys = 1500;
    for round in 0..11 {
        for key in 0..keys {
            let bytes = &bytes[..size()];
            let name = format!("key {key}");
            store.put(name.as_bytes(), bytes).unwrap();
            if round == 0 {
                live.push(bytes.len());
            } else {
                live_bytes -= live[key];
                live[key] = bytes.len();
            }
            live_bytes += bytes.len();
            peak = peak.max(live_bytes);
        }
    }
    let file = store.stats().region_bytes as f64;
    assert!(
        file <= 1.25 * peak as f64,
        "{file} bytes of file for a peak of {peak}: {:.3}",
        file / peak as f64
    );
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn records_of_every_order_of_magnitude_come_back_whole() {
    let dir = scratch();
    // Tables add bytes to the longest keys and values.
    let plain = options("wbtree").tables(false);
    let plain = plain.durability(bristlecone::Durability::Process);
    let store = Store::open(dir.path(), plain).unwrap();
    let bytes: Vec<u8> = (0..256_u64 << 20).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    let sizes = [0, 1, 7, 8, 9, 255, 65_400, 65_408, 65_409, 98_112, 1 << 20, (5 << 20) + 1, 256 << 20];
    let long_key = vec![b'k'; 65_535];
    for size in sizes {
        store.put(&long_key, &bytes[..size]).unwrap();
        assert!(store.get(&long_key).unwrap().unwrap() == bytes[..size], "{size} bytes");
    }
    drop(store);
    let store = open::<Bytes>(dir.path(), "wbtree");
    assert!(store.get(&long_key).unwrap().unwrap() == bytes);
    assert!(matches!(store.put(b"", b""), Err(Error::KeyLength { bytes: 0 })));
    assert!(matches!(store.put(&vec![0; 65_536], b""), Err(Error::KeyLength { bytes: 65_536 })));
    assert!(matches!(store.put(b"k", &vec![0; (256 << 20) + 1]), Err(Error::ValueLength { .. })));
    store.delete(&long_key).unwrap();
    let report = store.check().unwrap();
    assert_eq!((report.keys, report.nodes, report.problems.len()), (0, 1, 0));
    assert_eq!(report.live_bytes, store.stats().node_bytes, "the value's pieces are free again");
}

#[test]
fn a_prefix_scan_ends_where_the_prefix_does() {
    let dir = scratch();
    let store: Store = open::<Bytes>(dir.path(), "wbtree");
    for key in [&b"a"[..], b"b", b"b\0", b"b\xff", b"b\xff\xff", b"c", b"\xff", b"\xff\xff\x01"] {
        store.put(key, b"").unwrap();
    }
    let keys = |prefix: &[u8]| store.scan_prefix(prefix).map(|p| p.unwrap().0).collect::<Vec<_>>();
    assert_eq!(keys(b"b"), [&b"b"[..], b"b\0", b"b\xff", b"b\xff\xff"]);
    assert_eq!(keys(b"b\xff"), [&b"b\xff"[..], b"b\xff\xff"]);
    assert_eq!(keys(b"\xff"), [&b"\xff"[..], b"\xff\xff\x01"]);
    assert_eq!(keys(b"").len(), 8);
    assert_eq!(store.scan_prefix(b"b").descending().next().unwrap().unwrap().0, b"b\xff\xff");
    let before = store.snapshot().unwrap();
    store.delete(b"b\xff").unwrap();
    let keys: Vec<_> = before.scan_prefix(b"b\xff").map(|pair| pair.unwrap().0).collect();
    assert_eq!(keys, [&b"b\xff"[..], b"b\xff\xff"], "a snapshot's prefix scan sees its moment");
}

#[path = "../examples/tour.rs"]
mod tour;

#[test]
fn the_example_runs() {
    tour::main().unwrap();
}

/// Signals the end of its thread, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Batches that set all keys to one number, or delete some of them and put them back, beside readers of all kinds. No reader sees two
/// numbers, or a smaller number than before.
fn batches_are_seen_whole<K: Sample>(engine: &str, under: Under) {
    const KEYS: u64 = 300;
    const ROUNDS: u64 = 60;
    let dir = scratch();
    let store = open_on::<K>(dir.path(), engine, under);
    let keys: Vec<_> = (0..KEYS).map(K::make_key).collect();
    let odd = |n: usize| n % 2 == 1;
    let write = |round: u64| {
        let mut batch = store.batch();
        for (n, key) in keys.iter().enumerate() {
            match odd(n) && round % 2 == 1 {
                true => batch.delete(K::key_ref(key)),
                false => batch.put(K::key_ref(key), K::value_ref(&K::make_value(round))),
            };
        }
        assert!(batch.commit().unwrap());
    };
    write(0);
    let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let whole = |values: Vec<u64>, least: u64| {
        let round = values[0];
        assert!(values.iter().all(|value| *value == round), "{engine}: two numbers: {values:?}");
        let wanted = if round % 2 == 1 { KEYS / 2 } else { KEYS };
        assert_eq!(values.len() as u64, wanted, "{engine}: keys of half a batch");
        assert!(round >= least, "{engine}: {round} after {least} was acknowledged");
        round
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = Ends(&done);
            for round in 1..=ROUNDS {
                write(round);
                acknowledged.store(round, Ordering::Release);
            }
        });
        scope.spawn(|| {
            let mut seen = 0;
            for turn in 0.. {
                let least = acknowledged.load(Ordering::Acquire).max(seen);
                let is_forward = turn % 2 == 0 || !store.capabilities().ordered;
                let scan = if is_forward { store.walk() } else { store.scan(..).descending() };
                let mut values = Vec::new();
                for pair in scan {
                    values.push(K::number(&pair.unwrap().1));
                    if turn % 3 == 0 && values.len() % 50 == 0 {
                        std::thread::yield_now();
                    }
                }
                seen = whole(values, least);
                if done.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        // Each key must be at least as new as the previous one.
        let mut seen = 0;
        while !done.load(Ordering::Acquire) {
            for key in keys.iter().step_by(2) {
                let number = K::number(&store.get(K::key_ref(key)).unwrap().unwrap());
                assert!(number >= seen, "{engine}: {number} behind {seen}");
                seen = number;
            }
            let some: Vec<_> = keys.iter().step_by(4).map(K::key_ref).collect();
            let many = store.get_many(&some).unwrap().into_iter().map(|value| K::number(&value.unwrap()));
            let many: Vec<_> = many.collect();
            assert!(many[0] >= seen && many.iter().all(|number| *number == many[0]), "{engine}: {many:?}");
            seen = many[0];
        }
    });
    whole(store.walk().map(|pair| K::number(&pair.unwrap().1)).collect(), ROUNDS);
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn of_a_batch_readers_see_all_or_nothing() {
    let with_batches = |name| registry::find(name).unwrap().capabilities.atomic_batch;
    for (engine, under) in engines().filter(|(name, _)| with_batches(name)) {
        batches_are_seen_whole::<Bytes>(engine, under);
        batches_are_seen_whole::<U64>(engine, under);
    }
}

/// Free space is used before the file grows, no matter which chunks were visited since the open.
#[test]
fn a_batch_after_each_opening_does_not_make_the_file_grow() {
    let dir = scratch();
    let lived = |value: u8| {
        let store = open::<Bytes>(dir.path(), registry::DEFAULT);
        let mut batch = store.batch();
        (0..100_u8).for_each(|n| _ = batch.put(&[n], &[value; 1000]));
        assert!(batch.commit().unwrap());
        store.close().unwrap();
        store.stats().region_bytes
    };
    lived(0);
    let settled = lived(1);
    for value in 2..12 {
        assert_eq!(lived(value), settled, "opening number {value}");
    }
}

#[test]
fn a_batch_too_large_or_against_the_rules_changes_nothing() {
    for under in [Under::Mapped, Under::Journal] {
        let dir = scratch();
        let store = open_on::<Bytes>(dir.path(), registry::DEFAULT, under);
        store.put(b"key", b"value").unwrap();
        let large = vec![7; 3 << 20];
        let mut batch = store.batch();
        batch.put(b"key", b"other").put(b"", b"no key").delete(b"key");
        assert!(matches!(batch.commit(), Err(Error::KeyLength { bytes: 0 })));
        let mut batch = store.batch();
        batch.delete(b"key");
        (0..100_u8).for_each(|n| _ = batch.put(&[n], &large));
        let refused = batch.commit();
        assert!(matches!(refused, Err(Error::Pmem(pmem::Error::TooLarge { .. }))), "{refused:?}");
        assert_eq!(
            store.scan(..).map(Result::unwrap).collect::<Vec<_>>(),
            [(b"key".to_vec(), b"value".to_vec())]
        );
        // The store takes further batches.
        let mut batch = store.batch();
        batch.delete(b"key").put(b"another", b"value");
        assert!(batch.commit().unwrap());
        assert_eq!(store.len().keys, 1);
    }
}
