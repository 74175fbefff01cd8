//! `bench cdds`: the CDDS B-Tree compared with Berkeley DB and with a tree without versions [thesis §5.3].
//!
//! * Comparison with the B-tree of Berkeley DB: one thread puts, gets and deletes keys of 25 bytes and values of 2,048, one by one. There
//!   are three phases: all puts, then all gets, then all deletes. Each phase has its own random order of keys. The processor's caches are
//!   emptied before each phase. Each store is measured in durable and in volatile mode. Every store is made anew in every round, is alone
//!   on the backing while it is measured, and is removed afterwards.
//! * Comparison with `btree`, the volatile tree of the wB+ paper, with neither tree flushed: 64-bit keys and values, at growing numbers of
//!   keys. The difference is the cost of versions.
//!
//! Answers are checked: the bytes of each get; after the deletes, that no key remains; in the comparison with `btree`, the number of new
//! and of found keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bristlecone::Durability;
use competitors::place::{Place, bytes_free};
use competitors::{Promise, ours};

use crate::keys::Random as _;
use crate::measured::{Making, of_words};
use crate::scratch::{self, Instructions};
use crate::verdict::Verdict;
use crate::{Error, median, wrong};

/// Bytes of a key and of a value of the comparison with Berkeley DB.
const KEY_BYTES: usize = 25;
const VALUE_BYTES: usize = 2048;
/// Bytes of the cache of Berkeley DB.
const CACHE_BYTES: u64 = 8 << 30;
/// Bytes read to empty the caches: several times the size of processor caches.
const EVICTION_BYTES: usize = 512 << 20;
/// Cache lines of a node in the comparison with `btree`. Both trees are fastest at this size.
const NODE_LINES: u64 = 16;
/// Maximum bytes that a store needs per byte of a pair: two logs and half-full pages.
const SPACE_PER_BYTE: u64 = 4;

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of pairs in the comparison with Berkeley DB.
    pub pairs: u64,
    /// Numbers of keys in the comparison with `btree`.
    pub keys: Vec<u64>,
    /// Number of rounds; medians are reported.
    pub rounds: usize,
    /// Directory for the files.
    pub backing: PathBuf,
    /// Seed of keys and their order.
    pub seed: u64,
}

/// Operations of the comparison with Berkeley DB.
const OPERATIONS: [&str; 3] = ["put", "get", "delete"];

/// Medians of a store.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Store and mode.
    pub name: &'static str,
    /// Settings that give the mode its durability.
    pub setting: &'static str,
    /// Pairs per second by operation.
    pub rate: BTreeMap<&'static str, f64>,
}

/// Cost of versions at one number of keys.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Price {
    /// Number of keys.
    pub keys: u64,
    /// Nanoseconds per insert: `btree`, `cdds`.
    pub insert_ns: [f64; 2],
    /// Nanoseconds per get: `btree`, `cdds`.
    pub get_ns: [f64; 2],
}

/// The tables of results.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Number of pairs in the comparison with Berkeley DB.
    pub pairs: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Directory of the files.
    pub backing: PathBuf,
    /// One row per store and mode.
    pub rows: Vec<Row>,
    /// False if Berkeley DB is not in this build.
    pub with_berkeley: bool,
    /// Costs of versions by number of keys.
    pub prices: Vec<Price>,
    /// The claims of the thesis.
    pub claims: Vec<Verdict>,
}

/// A way to open a store.
struct Mode {
    name: &'static str,
    setting: &'static str,
    kind: Option<competitors::Kind>,
    durability: Durability,
}

fn modes() -> Vec<Mode> {
    let ours = |name, setting, durability| Mode { name, setting, kind: None, durability };
    let mut modes = vec![
        ours("cdds durable", "every change flushed and fenced", Durability::Power),
        ours("cdds volatile", "never flushed", Durability::Process),
    ];
    let durable = competitors::KINDS.iter().find(|kind| kind.name == "berkeley").copied();
    if let (Some(durable), Some(plain)) = (durable, competitors::plain(1)) {
        let theirs = |name, kind: competitors::Kind| Mode {
            name,
            setting: (kind.setting)(Promise::Power),
            kind: Some(kind),
            durability: Durability::Power,
        };
        modes.extend([theirs("berkeley durable", durable), theirs("berkeley volatile", plain)]);
    }
    modes
}

/// Runs the benchmark. Reports each step to `progress`.
///
/// # Errors
/// Before any work: `Place` and `Room`. Later: `Store`, `Own`, `Pmem`, `Wrong` or `File`.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let place = Place::take(&options.backing)?;
    let needed = options.pairs * (KEY_BYTES + VALUE_BYTES) as u64 * SPACE_PER_BYTE;
    let free = bytes_free(&options.backing)?;
    if free < needed {
        let (free, needed) = (free >> 20, needed >> 20);
        return Err(Error::Room { path: options.backing.clone(), free, needed });
    }
    let modes = modes();
    let mut samples = vec![BTreeMap::<&str, Vec<f64>>::new(); modes.len()];
    for round in 0..options.rounds {
        for turn in 0..modes.len() {
            let number = (turn + round) % modes.len();
            let mode = &modes[number];
            progress(&format!("round {} of {}: {}", round + 1, options.rounds, mode.name));
            let folder = place.folder(&format!("{number}-{round}"))?;
            let rates = measure(options, mode, &folder)?;
            std::fs::remove_dir_all(&folder)
                .map_err(|source| Error::File { path: folder.clone(), source })?;
            for (operation, rate) in OPERATIONS.into_iter().zip(rates) {
                samples[number].entry(operation).or_default().push(rate);
            }
        }
    }
    let rows: Vec<Row> = modes
        .iter()
        .zip(samples)
        .map(|(mode, samples)| Row {
            name: mode.name,
            setting: mode.setting,
            rate: samples.into_iter().map(|(operation, rates)| (operation, median(rates))).collect(),
        })
        .collect();
    let prices: Vec<Price> =
        options.keys.iter().map(|keys| price(options, *keys, progress)).collect::<Result<_, _>>()?;
    let claims = claims(&rows, &prices);
    Ok(Report {
        pairs: options.pairs,
        rounds: options.rounds,
        backing: options.backing.clone(),
        with_berkeley: rows.len() > 2,
        rows,
        prices,
        claims,
    })
}

type Pair = [u8; KEY_BYTES];

fn key(seed: u64, number: u64) -> Pair {
    let mut key = [b'.'; KEY_BYTES];
    key[..20].copy_from_slice(&<crate::keys::Text>::numbered(seed, number));
    key
}

/// Fills in the value of a key. It contains the number, so that values differ.
fn fill(value: &mut [u8], number: u64) {
    value[..8].copy_from_slice(&number.to_le_bytes());
    let last = value.len() - 8;
    value[last..].copy_from_slice(&(!number).to_le_bytes());
}

/// Pairs per second of each operation.
fn measure(options: &Options, mode: &Mode, folder: &Path) -> Result<[f64; 3], Error> {
    let store = match mode.kind {
        None => {
            let opening = bristlecone::Options::default().engine(cdds::ENGINE).durability(mode.durability);
            ours::open_as(&folder.join("store"), opening)?
        }
        Some(kind) => {
            // A quarter, because the cache has four times this bound.
            let opening = competitors::Options {
                promise: Promise::Power,
                bytes_max: CACHE_BYTES / 4,
                memory_bytes: None,
            };
            (kind.open)(folder, &opening)?
        }
    };
    let rates = phases(options, mode.name, &mut *store.session()?)?;
    store.close()?;
    Ok(rates)
}

fn phases(
    options: &Options,
    name: &'static str,
    store: &mut dyn competitors::Session,
) -> Result<[f64; 3], Error> {
    let mut order: Vec<u64> = (0..options.pairs).collect();
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut value = vec![b'v'; VALUE_BYTES];
    let mut found = Vec::with_capacity(VALUE_BYTES);
    let mut phase = |each: &mut dyn FnMut(u64, &Pair) -> Result<(), Error>| -> Result<f64, Error> {
        random.shuffle(&mut order);
        let keys: Vec<(u64, Pair)> =
            order.iter().map(|number| (*number, key(options.seed, *number))).collect();
        empty_caches();
        let start = Instant::now();
        keys.iter().try_for_each(|(number, key)| each(*number, key))?;
        Ok(options.pairs as f64 / start.elapsed().as_secs_f64())
    };
    let put = phase(&mut |number, key| {
        fill(&mut value, number);
        Ok(store.put(key, &value)?)
    })?;
    let get = phase(&mut |number, key| {
        let is_found = store.get(key, &mut found)?;
        let (first, last) = (number.to_le_bytes(), (!number).to_le_bytes());
        let is_right =
            is_found && found.len() == VALUE_BYTES && found.starts_with(&first) && found.ends_with(&last);
        if is_right { Ok(()) } else { Err(wrong(name, format!("the value of key {number}"))) }
    })?;
    let delete = phase(&mut |_, key| Ok(store.delete(key)?))?;
    let mut left = 0;
    for number in 0..options.pairs {
        left += u64::from(store.get(&key(options.seed, number), &mut found)?);
    }
    if left > 0 {
        return Err(wrong(name, format!("{left} keys are there after their removal")));
    }
    Ok([put, get, delete])
}

/// Evicts the data of the store from the processor's caches.
fn empty_caches() {
    let mut other = vec![1_u8; EVICTION_BYTES];
    for at in (0..EVICTION_BYTES).step_by(64) {
        other[at] = other[at].wrapping_add(at as u8);
    }
    std::hint::black_box(other);
}

/// Measures both trees alternately, without flushes.
fn price(options: &Options, count: u64, progress: &dyn Fn(&str)) -> Result<Price, Error> {
    let names = ["btree", cdds::ENGINE];
    let mut samples = [const { [Vec::new(), Vec::new()] }; 2];
    let mut keys = u64::range(options.seed, 0, count);
    let mut random = fastrand::Rng::with_seed(options.seed);
    for round in 0..options.rounds {
        random.shuffle(&mut keys);
        let mut looked_up = keys.clone();
        random.shuffle(&mut looked_up);
        for turn in 0..names.len() {
            let number = (turn + round) % names.len();
            progress(&format!("{count} keys in {}, round {}", names[number], round + 1));
            let engine = crate::engine(names[number]).expect("both are measured everywhere");
            let max_bytes = (64 << 20) + count * 256;
            let (durability, best) = (Durability::Process, Instructions::Best);
            let medium = scratch::medium(&options.backing, names[number], max_bytes, durability, best)?;
            let name = names[number].to_owned();
            let making = Making { name, medium, node_lines: NODE_LINES, durability, payload_words: 1 };
            let mut tree = of_words(engine, making)?;
            let mut timed = |what: usize, answer: &mut dyn FnMut() -> pmem::Result<u64>| {
                let start = Instant::now();
                let met = answer()?;
                samples[what][number].push(start.elapsed().as_nanos() as f64 / count as f64);
                if met == count {
                    return Ok(());
                }
                Err(wrong(names[number], format!("{met} of {count} keys")))
            };
            timed(0, &mut || tree.insert(&keys))?;
            timed(1, &mut || tree.get(&looked_up))?;
        }
    }
    let [insert_ns, get_ns] = samples.map(|of| of.map(median));
    Ok(Price { keys: count, insert_ns, get_ns })
}

fn claims(rows: &[Row], prices: &[Price]) -> Vec<Verdict> {
    let mut claims = Vec::new();
    let rate = |name: &str, operation: &str| {
        rows.iter().find(|row| row.name == name).and_then(|row| row.rate.get(operation)).copied()
    };
    let mut gain = |operation: &str, percent: f64, of: (&str, &str)| {
        if let (Some(first), Some(second)) = (rate(of.0, operation), rate(of.1, operation)) {
            let ours = (first / second - 1.0) * 100.0;
            claims.push(Verdict {
                claim: format!("{operation}: {} {percent:+.0} % to {}", of.0, of.1),
                ours: format!("{ours:+.0} %"),
                holds: ours >= percent,
            });
        }
    };
    for (operation, percent) in OPERATIONS.into_iter().zip([74.0, 138.0, 503.0]) {
        gain(operation, percent, ("cdds durable", "berkeley durable"));
    }
    for (operation, percent) in [("put", 80.0), ("delete", 27.0)] {
        gain(operation, percent, ("cdds volatile", "cdds durable"));
    }
    for price in prices {
        let parts = [("inserts", price.insert_ns, 25.0), ("gets", price.get_ns, 12.0)];
        for (what, [without, with], percent) in parts {
            // Converts a decrease of the rate into an increase of the time.
            let ours = (1.0 - without / with) * 100.0;
            claims.push(Verdict {
                claim: format!("{} keys: {what} at most {percent:.0} % slower for versions", price.keys),
                ours: format!("{ours:.0} %"),
                holds: ours <= percent,
            });
        }
    }
    claims
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} pairs, keys of {KEY_BYTES} bytes, values of {VALUE_BYTES}, one thread, caches emptied between phases, median of \
             {} rounds, on {}; pairs a second:\n",
            self.pairs,
            self.rounds,
            self.backing.display()
        )?;
        writeln!(f, "{:20}{:>12}{:>12}{:>12}", "", OPERATIONS[0], OPERATIONS[1], OPERATIONS[2])?;
        for row in &self.rows {
            write!(f, "{:20}", row.name)?;
            OPERATIONS.iter().try_for_each(|operation| write!(f, "{:>12.0}", row.rate[operation]))?;
            writeln!(f, "   {}", row.setting)?;
        }
        if !self.with_berkeley {
            writeln!(
                f,
                "\nTo measure Berkeley DB in the same run, build with `--features competitors` (Debian: libdb5.3-dev)."
            )?;
        }
        if !self.prices.is_empty() {
            writeln!(f, "\n{:>12}{:>24}{:>24}", "keys", "insert, ns", "get, ns")?;
            writeln!(f, "{:>12}{:>12}{:>12}{:>12}{:>12}", "", "btree", "cdds", "btree", "cdds")?;
        }
        for Price { keys, insert_ns, get_ns } in &self.prices {
            let [ib, ic, gb, gc] = [insert_ns[0], insert_ns[1], get_ns[0], get_ns[1]];
            writeln!(f, "{keys:>12}{ib:>12.0}{ic:>12.0}{gb:>12.0}{gc:>12.0}")?;
        }
        writeln!(f)?;
        self.claims.iter().try_for_each(|claim| writeln!(f, "{claim}"))
    }
}
