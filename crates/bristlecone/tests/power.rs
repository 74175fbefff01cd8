//! Stores of every engine on a simulated machine. The power is cut, or a call fails, at writes and syncs throughout the life of the store.
//! After a cut, all acknowledged writes are present. A prefix of the writes that were not acknowledged is present, possibly an empty one. A
//! batch is present completely or not at all. No reader got a value that a crash rolls back.
//!
//! `BRISTLECONE_ROUNDS` sets the number of lives of each engine in the campaign of cuts (default 1). `BRISTLECONE_SEED` changes the seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::history;
use crate::common::number_from;
use bristlecone::journal::{Journal, Options as Sizes};
use bristlecone::registry::{self, Open};
use bristlecone::{Bytes, Error, Fixed, Kind, Options, StoreOf, StoreU64, Transaction, U64, WriteOptions};
use crash::{Fault, History, Machine, Operation, Which, by_tier, has_turn};
use faults::{Images, mix};

const MAX_BYTES: u64 = 64 << 20;
const SIZES: Sizes = Sizes { capacity_bytes: 512 << 10, max_bytes: MAX_BYTES };
const KEYS: u32 = 24;

/// Kinds with keys and values by number.
pub trait Sample: Open
where
    Self::Value: ToOwned,
{
    fn sample_key(number: u32) -> Self::KeyBuf;
    fn sample_value(number: u32) -> Self::ValueBuf;
    fn options(engine: &str) -> Options {
        let lines = registry::find(engine).unwrap().about.lines.0;
        Options::default().engine(engine).node_lines(lines)
    }
}

impl Sample for Bytes {
    fn sample_key(number: u32) -> Vec<u8> {
        format!("key {number:04}").into_bytes()
    }
    fn sample_value(number: u32) -> Vec<u8> {
        number.to_le_bytes().repeat(1 + number as usize % 60)
    }
}

impl Sample for U64 {
    fn sample_key(number: u32) -> u64 {
        u64::from(number) * 3
    }
    fn sample_value(number: u32) -> u64 {
        u64::from(number)
    }
}

impl Sample for Fixed {
    fn sample_key(number: u32) -> u64 {
        u64::from(number) * 3
    }
    fn sample_value(number: u32) -> Vec<u8> {
        number.to_le_bytes().repeat(6)
    }
    fn options(engine: &str) -> Options {
        Options::default().engine(engine).value_bytes(24)
    }
}

type Map<K> = BTreeMap<<K as Kind>::KeyBuf, <K as Kind>::ValueBuf>;

/// The expected states of a store.
pub struct Life<K: Kind> {
    engine: &'static str,
    /// Contents after each operation.
    states: Vec<Map<K>>,
    /// Number of operations acknowledged as durable.
    acknowledged: usize,
    /// True once the store was made.
    made: bool,
    /// Counts an unsynced write as acknowledged: an injected fault.
    hasty: bool,
}

#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    opened: u64,
    newer: u64,
    not_made: u64,
    images: Images,
    /// States from which a store continued after the current cut.
    went_on: BTreeSet<usize>,
}

impl<K: Sample> Life<K>
where
    K::ValueBuf: PartialEq,
{
    pub fn new(engine: &'static str) -> Self {
        Self { engine, states: vec![Map::<K>::new()], acknowledged: 0, made: false, hasty: false }
    }

    fn files(machine: &Machine) -> [Box<dyn bristlecone::journal::storage::Storage>; 2] {
        [Which::Data, Which::Journal].map(|which| machine.storage(which))
    }

    pub fn make(&mut self, machine: &Machine) -> Result<StoreOf<K>, Error> {
        let [data, journal] = Self::files(machine);
        let journal = Journal::create_on(data, journal, [1, 2], &SIZES)?;
        let store = StoreOf::open_over(journal, None, K::options(self.engine))?;
        self.made = true;
        Ok(store)
    }

    pub fn open(machine: &Machine) -> Result<StoreOf<K>, Error> {
        let [data, journal] = Self::files(machine);
        let (journal, replay) = Journal::open_on(data, journal, MAX_BYTES)?;
        StoreOf::open_over(journal, Some(replay), Options::default())
    }

    /// Runs one operation. Its result becomes the newest state before the operation starts.
    fn step(&mut self, store: &StoreOf<K>, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (key, value) = (K::sample_key(rng.u32(..KEYS)), K::sample_value(rng.u32(..)));
        let sync = rng.u8(..) < 160;
        let writer = store.with(WriteOptions { sync });
        let mut next = self.states.last().unwrap().clone();
        if rng.u8(..) < 40 {
            // A batch is one step from state to state.
            let mut batch = writer.batch();
            for _ in 0..rng.u32(2..30) {
                let (key, value) = (K::sample_key(rng.u32(..KEYS)), K::sample_value(rng.u32(..)));
                match rng.u8(..) < 80 {
                    true => {
                        batch.delete(K::key(&key));
                        next.remove(&key);
                    }
                    false => {
                        batch.put(K::key(&key), K::value(&value));
                        next.insert(key, value);
                    }
                }
            }
            self.states.push(next);
            assert!(batch.commit()?, "nothing was required");
            if sync || self.hasty {
                self.acknowledged = self.states.len() - 1;
            }
            return Ok(());
        }
        let deletes = rng.u8(..) < 80;
        if deletes {
            next.remove(&key)
        } else {
            next.insert(key.clone(), value.clone())
        };
        self.states.push(next);
        match deletes {
            true => writer.delete(K::key(&key)).map(drop)?,
            false => writer.put(K::key(&key), K::value(&value)).map(drop)?,
        }
        if sync || self.hasty {
            self.acknowledged = self.states.len() - 1;
        } else if rng.u8(..) < 40 {
            store.commit()?;
            self.acknowledged = self.states.len() - 1;
        }
        Ok(())
    }

    fn run(&mut self, store: &StoreOf<K>, rng: &mut fastrand::Rng, steps: usize) -> Result<(), Error> {
        (0..steps).try_for_each(|_| self.step(store, rng))
    }

    /// The number of the state with the contents of the store; the newest if there are several.
    fn state_of(&self, store: &StoreOf<K>) -> Result<usize, String> {
        let found: Map<K> = store.walk().collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let state = self.states.iter().rposition(|state| *state == found);
        state.ok_or_else(|| format!("{} keys as no operation left them", found.len()))
    }

    /// Opens the store after a cut, judges it, and continues to work. Among the images with the same state after one cut, only the first
    /// continues.
    fn judge(&self, machine: &Machine, tally: &mut Tally) -> Result<(), String> {
        let store = match Self::open(machine) {
            Err(_) if !self.made => {
                tally.not_made += 1;
                return Ok(());
            }
            other => other.map_err(|error| format!("it does not open: {error}"))?,
        };
        tally.opened += 1;
        let state = self.state_of(&store)?;
        if state < self.acknowledged {
            return Err(format!("after {state} operations, {} were acknowledged", self.acknowledged));
        }
        tally.newer += u64::from(state > self.acknowledged);
        let problems = store.check().map_err(|error| error.to_string())?.problems;
        if !problems.is_empty() {
            return Err(format!("{problems:?}"));
        }
        if !tally.went_on.insert(state) {
            return Ok(());
        }
        let go_on = || -> Result<bool, Error> {
            let (key, value) = (K::sample_key(KEYS), K::sample_value(5));
            store.put(K::key(&key), K::value(&value))?;
            store.close()?;
            let again = Self::open(machine)?;
            let clean = again.stats().opened == "clean"
                && again.stats().journal.unwrap().activity.unwrap().replayed_groups == 0;
            Ok(clean && again.get(K::key(&key))? == Some(value))
        };
        match go_on() {
            Ok(true) => Ok(()),
            other => Err(format!("it does not go on: {other:?}")),
        }
    }
}

/// Cuts the power `cuts` times, spread over the life of an engine.
fn cuts<K: Sample>(
    engine: &'static str,
    seed: u64,
    cuts: u64,
    lies: Option<Which>,
    hasty: bool,
) -> Result<Tally, String>
where
    K::ValueBuf: PartialEq,
{
    let live = |cut: Option<u64>| {
        let machine = Machine::new(seed);
        if let Some(cut) = cut {
            machine.cut_at(cut);
        }
        let mut life = Life::<K>::new(engine);
        life.hasty = hasty;
        let mut rng = fastrand::Rng::with_seed(seed);
        if let Ok(store) = life.make(&machine) {
            machine.lie_about_syncs_of(lies);
            let _ = life.run(&store, &mut rng, 60);
        }
        (machine, life)
    };
    let changes = live(None).0.changes();
    let mut tally = Tally::default();
    for number in 0..cuts {
        let cut = 1 + (changes - 1) * number / cuts.max(1);
        let (machine, life) = live(Some(cut));
        tally.cuts += 1;
        tally.went_on.clear();
        let mut images = std::mem::take(&mut tally.images);
        let judged = images.each(&machine, mix(seed, cut), |image| life.judge(image, &mut tally));
        judged.map_err(|why| format!("{engine} of {}, cut {cut} of {changes}, {why}", K::NAME))?;
        tally.images = images;
    }
    Ok(tally)
}

fn durable_engines() -> impl Iterator<Item = &'static str> {
    registry::names().filter(|name| registry::find(name).unwrap().about.durable)
}

#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut_in_any_engine() {
    let mut total = Tally::default();
    let mut add = |tally: Result<Tally, String>| {
        let tally = tally.unwrap_or_else(|why| panic!("{why}"));
        total.cuts += tally.cuts;
        total.opened += tally.opened;
        total.newer += tally.newer;
        total.not_made += tally.not_made;
        total.images.add(&tally.images);
    };
    let rounds = number_from("BRISTLECONE_ROUNDS", 1);
    let lives = (0..rounds).flat_map(|_| durable_engines());
    for (seed, engine) in (number_from("BRISTLECONE_SEED", 0)..).zip(lives) {
        add(cuts::<Bytes>(engine, seed, by_tier(3, 13), None, false));
        add(cuts::<U64>(engine, seed, by_tier(2, 8), None, false));
        if registry::find(engine).unwrap().capabilities.fixed_values {
            add(cuts::<Fixed>(engine, seed, by_tier(1, 6), None, false));
        }
    }
    println!("power cuts: {total:?}");
    total.images.require("power cuts", by_tier(600, 3000) * rounds);
    assert!(
        total.cuts >= by_tier(110, 500) * rounds
            && total.opened > by_tier(220, 1000)
            && total.newer > by_tier(20, 100)
            && total.not_made > 0,
        "{total:?}"
    );
}

#[test]
fn who_acknowledges_before_the_sync_or_does_not_sync_is_caught() {
    let engine = registry::DEFAULT;
    cuts::<Bytes>(engine, 7, 40, None, false).unwrap();
    let faults = [
        ("acknowledged before the sync", cuts::<Bytes>(engine, 7, 40, None, true)),
        ("the journal's syncs do nothing", cuts::<Bytes>(engine, 7, 40, Some(Which::Journal), false)),
    ];
    for (name, outcome) in faults {
        println!("{name}: {}", outcome.expect_err(name));
    }
}

/// A call fails. The store reports it, refuses later writes, and shows the durable state.
#[test]
fn after_a_failed_call_writes_are_refused_and_readers_see_what_is_durable() {
    let (mut failed, mut went_on) = (0, 0);
    for engine in durable_engines() {
        for (seed, fault) in (0..).zip([Fault::Eio, Fault::ShortThenEio, Fault::NoSpace]) {
            let machine = Machine::new(seed);
            let mut life = Life::<U64>::new(engine);
            let mut rng = fastrand::Rng::with_seed(seed);
            let store = life.make(&machine).unwrap();
            life.run(&store, &mut rng, 20).unwrap();
            machine.fail_at(machine.calls() + 1 + seed, fault);
            let outcome = life.run(&store, &mut rng, 40);
            if machine.fatal() == 0 {
                went_on += 1;
                continue;
            }
            failed += 1;
            assert!(outcome.is_err(), "{engine} {fault:?}: nobody was told");
            let refused = store.put(&1, &1).unwrap_err();
            assert!(matches!(refused, Error::Pmem(pmem::Error::Failed)), "{engine}: {refused}");
            // A buffer pool cannot tell durable contents of its frames from others. So it refuses reads.
            let state = match life.state_of(&store) {
                Err(why) => {
                    assert!(
                        engine == "buffer-pool" && why.contains("takes no more writes"),
                        "{engine}: {why}"
                    );
                    life.acknowledged
                }
                Ok(state) => state,
            };
            assert!(state >= life.acknowledged, "{engine} {fault:?}: {state} of {}", life.acknowledged);
            drop(store);
            life.acknowledged = state;
            life.judge(&machine.after_restart(), &mut Tally::default()).unwrap();
        }
    }
    println!("{failed} failures, {went_on} lives without");
    assert!(failed > 20);
}

/// Scans beside a writer of one leaf that never pauses, with slow syncs. A reader that asks the writer to pause and a reader that waits for
/// a commit must not wait for each other.
#[test]
fn scans_of_a_leaf_that_is_written_without_end_come_to_an_end() {
    for sync in [false, true] {
        let machine = Machine::new(3);
        machine.make_slow();
        let store = Life::<Bytes>::new(registry::DEFAULT).make(&machine).unwrap();
        for number in 0..6 {
            store.put(&Bytes::sample_key(number), &Bytes::sample_value(number)).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for first in 0..2 {
                let (writer, done) = (store.with(WriteOptions { sync }), &done);
                scope.spawn(move || {
                    for number in (first..).step_by(2) {
                        if done.load(Ordering::Acquire) {
                            break;
                        }
                        writer.put(&Bytes::sample_key(number % 6), &Bytes::sample_value(number)).unwrap();
                    }
                });
            }
            for scan in 0..60 {
                let scan = if scan % 2 == 0 { store.scan(..) } else { store.scan(..).descending() };
                assert_eq!(scan.map(Result::unwrap).count(), 6);
            }
            done.store(true, Ordering::Release);
        });
    }
}

/// How reads and writes become durable before their results are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// Each call waits.
    Calls,
    /// The thread waits for a ticket.
    Tickets,
    /// Gets are in a transaction, which does not wait for more.
    Transactions,
}

/// Writes, and returns when the write is durable.
fn put_durably(store: &StoreU64, waits: Waits, key: u64, value: u64) -> Result<(), Error> {
    if waits != Waits::Tickets {
        return store.put(&key, &value).map(|_| ());
    }
    let (written, ticket) = store.apply(|store| store.put(&key, &value));
    written.and_then(|_| store.wait(ticket))
}

/// The values of keys 0 to 3, durably read by a scan or by gets. `None` if they were rolled back.
fn read_durably(store: &StoreU64, waits: Waits, scans: bool) -> Option<Vec<(u64, u64)>> {
    let read = |store: &StoreU64| -> Vec<(u64, u64)> {
        match scans {
            true => store.scan(..4).map(Result::unwrap).collect(),
            false => (0..4).map(|key| (key, store.get(&key).unwrap().unwrap_or(0))).collect(),
        }
    };
    match waits {
        Waits::Tickets => {
            let (values, ticket) = store.apply(read);
            store.wait(ticket).is_ok().then_some(values)
        }
        Waits::Transactions if !scans => {
            let mut transaction = Transaction::new(store);
            Some((0..4).map(|key| (key, transaction.get(&key).unwrap().unwrap_or(0))).collect())
        }
        _ => Some(read(store)),
    }
}

/// Writers with keys of their own, readers of all keys, and a cut. Acknowledged values and read values are present after it. They wait
/// in each way.
#[test]
fn what_anybody_read_before_the_cut_is_there_after_it() {
    let (mut acknowledged_groups, mut reads, mut images) = (0, 0, Images::default());
    let campaign = number_from("BRISTLECONE_SEED", 0);
    for seed in 0..40 {
        let machine = Machine::new(seed);
        machine.make_slow();
        let mut life = Life::<U64>::new(if seed % 2 == 0 { registry::DEFAULT } else { "wb-4k" });
        let store: StoreU64 = life.make(&machine).unwrap();
        machine.cut_at(machine.changes() + 20 + seed * 9);
        let newest: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let seen: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let done = AtomicBool::new(false);
        let waits = [Waits::Tickets, Waits::Calls, Waits::Transactions][seed as usize % 3];
        std::thread::scope(|scope| {
            for (key, newest) in (0..).zip(&newest) {
                let (store, done) = (store.clone(), &done);
                scope.spawn(move || {
                    for value in 1.. {
                        match put_durably(&store, waits, key, value) {
                            Ok(()) => newest.store(value, Ordering::Relaxed),
                            Err(_) => break,
                        }
                        // Other keys, so that leaves split.
                        if put_durably(&store, waits, 100 + value * 4 + key, value).is_err() {
                            break;
                        }
                    }
                    done.store(true, Ordering::Release);
                });
            }
            for scans in [false, true] {
                let (store, done, seen) = (store.clone(), &done, &seen);
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        for (key, value) in read_durably(&store, waits, scans).unwrap_or_default() {
                            seen[key as usize].fetch_max(value, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(machine.is_off(), "seed {seed}");
        acknowledged_groups += store.stats().journal.unwrap().activity.unwrap().groups;
        drop(store);
        let judge = |image: &Machine| {
            let store = Life::<U64>::open(image).map_err(|error| error.to_string())?;
            for key in 0..4 {
                let found = store.get(&(key as u64)).unwrap().unwrap_or(0);
                let (newest, seen) = (newest[key].load(Ordering::Relaxed), seen[key].load(Ordering::Relaxed));
                reads += seen;
                if found < newest.max(seen) {
                    return Err(format!("key {key} holds {found}, {newest} was acknowledged, {seen} read"));
                }
            }
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
            Ok(())
        };
        images.each(&machine, mix(campaign, seed), judge).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    println!("{images:?}, {acknowledged_groups} groups, values read up to a sum of {reads}");
    assert!(reads > 0);
}

/// Writers and readers of the same keys, and a cut. Some sequential order explains the contents after it. That order contains every
/// operation that returned before the cut, also reads. Returns the number of operations.
fn a_history_that_is_cut_short<K: Sample + history::Numbered>(
    engine: &'static str,
    seed: u64,
    lies: Option<Which>,
    promises: fn(&Operation) -> bool,
    images: &mut Images,
) -> Result<u64, String>
where
    K::ValueBuf: PartialEq,
{
    let machine = Machine::new(seed);
    let mut life = Life::<K>::new(engine);
    let store = life.make(&machine).unwrap();
    let start = history::values(&store);
    machine.make_slow();
    machine.lie_about_syncs_of(lies);
    machine.cut_at(machine.changes() + 5 + seed % 60);
    let told = History::default();
    let how = history::Use { writers: 3, steps: 200, meets: 0, hurries: true };
    history::beside(&store, &told, seed, 1, how);
    assert!(machine.is_off(), "{engine}, seed {seed}: it came to an end before the cut");
    drop(store);
    let end = told.now();
    let judge = |image: &Machine| {
        let store = Life::<K>::open(image).map_err(|error| error.to_string())?;
        history::judge(&told.until(end, promises), &start, &history::values(&store))?;
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        Ok(())
    };
    let judged = images.each(&machine, seed, judge);
    judged.map_err(|why| format!("{engine} of {}, seed {seed}, {why}", K::NAME))?;
    Ok(told.operations().len() as u64)
}

#[test]
fn what_is_there_after_a_cut_is_explained_by_what_was_told_before_it() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let (mut operations, mut images) = (0, Images::default());
    // Each run tests one of three groups of engines, in turn.
    let lives = (0..rounds).flat_map(|_| durable_engines()).enumerate();
    for (round, engine) in lives.filter(|(round, _)| has_turn(*round as u64, 3)) {
        let seed = seed + round as u64 * 7;
        let outcomes = [
            a_history_that_is_cut_short::<Bytes>(engine, seed, None, history::promises, &mut images),
            a_history_that_is_cut_short::<U64>(engine, seed + 3, None, history::promises, &mut images),
        ];
        operations +=
            outcomes.map(|outcome| outcome.unwrap_or_else(|why| panic!("{why}"))).iter().sum::<u64>();
    }
    println!("{operations} operations in histories that were cut short");
    images.require("histories that were cut short", by_tier(33, 100) * rounds);
    // The judge must detect injected faults.
    let caught = |lies, promises| {
        let cut = |seed| {
            let images = &mut Images::default();
            a_history_that_is_cut_short::<U64>(registry::DEFAULT, seed, lies, promises, images)
        };
        (0..40).map(cut).find_map(Result::err).expect("forty histories without a loss")
    };
    let line = |why: String| why.lines().next().unwrap_or_default().to_owned();
    println!("a write that does not wait passes for one that does: {}", line(caught(None, |_| true)));
    println!("the journal's syncs do nothing: {}", line(caught(Some(Which::Journal), history::promises)));
}
