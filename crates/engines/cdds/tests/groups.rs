//! Commit groups: trees and tables over a journal, on a simulated machine with power cuts and failing calls.
//!
//! Acknowledged writes are present. A prefix of the later writes is present. A batch is present completely or not at all, even a batch that
//! needs several write groups. This does not depend on what grew, shrank, split or moved in the running group. After a failed call, readers
//! find the durable version, also in nodes and buckets that were rolled back during the read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::samples::Sample;
use crate::common::{PairOf, Tested, options};
use cdds::hash::Hashed;
use cdds::structure::WriteOf;
use cdds::{Mark, Ordered, Recovery, Unsorted, Versioned};
use crash::{Fault, Machine, Which};
use faults::{Images, mix};
use index::Life as _;
use index::{Keyed, Schema, Words, Write, WriteOptions};
use pmem::journal::{Journal, Options as Sizes};
use pmem::{Durable, Error};

const MAX_BYTES: u64 = 8 << 20;
const SIZES: Sizes = Sizes { capacity_bytes: 2 << 20, max_bytes: MAX_BYTES };
const KEYS: u32 = 60;
const STEPS: usize = 70;

type Model<X> = BTreeMap<KeyBuf<X>, ValueBuf<X>>;
type KeyBuf<X> = <<X as cdds::Structure>::Schema as Schema>::KeyBuf;
type ValueBuf<X> = <<X as cdds::Structure>::Schema as Schema>::ValueBuf;
type Subject<X> = Versioned<Durable, X>;

/// The expected states of a life.
struct Life<X: Tested> {
    /// Contents after each operation.
    states: Vec<Model<X>>,
    /// Number of operations that were acknowledged as durable.
    acknowledged: usize,
    made: bool,
    marks: Vec<(Mark, Model<X>)>,
    names: u32,
}

fn how<X: Tested>() -> X::Options {
    // Batches of more than a few keys use write groups.
    X::options(cdds::Options { group_blocks: 4, stripes: 16, ..options(2) })
}

fn files(machine: &Machine) -> [Box<dyn pmem::journal::storage::Storage>; 2] {
    [Which::Data, Which::Journal].map(|which| machine.storage(which))
}

fn open<X: Tested>(machine: &Machine) -> Result<Subject<X>, Error> {
    let [data, journal] = files(machine);
    let (journal, _) = Journal::open_on(data, journal, MAX_BYTES)?;
    let medium = Durable::from(Arc::new(journal));
    Ok(Versioned::open(medium, Path::new("machine"), &how::<X>(), Recovery::Lazy)?.0)
}

impl<X: Tested> Life<X> {
    fn new() -> Self {
        Self { states: vec![Model::<X>::new()], acknowledged: 0, made: false, marks: Vec::new(), names: 0 }
    }

    fn make(&mut self, machine: &Machine) -> Result<Subject<X>, Error> {
        let [data, journal] = files(machine);
        let medium = Durable::from(Arc::new(Journal::create_on(data, journal, [1, 2], &SIZES)?));
        let made = Versioned::create(medium, &how::<X>())?;
        made.commit()?;
        self.made = true;
        Ok(made)
    }

    fn newest(&self) -> Model<X> {
        self.states.last().expect("there is always one").clone()
    }

    /// Runs one operation. Its result becomes the newest state before the operation starts.
    fn step(&mut self, of: &Subject<X>, rng: &mut fastrand::Rng, step: usize) -> Result<(), Error> {
        let mut next = self.newest();
        // Periods of filling and of emptying alternate.
        let fills = (step / 25).is_multiple_of(2);
        let how = WriteOptions { sync: rng.u8(..4) == 0 };
        let (key, value) = (X::Schema::key(rng.u32(..KEYS)), X::Schema::value(rng.u32(..300)));
        let mut is_durable = how.sync;
        match rng.u8(..100) {
            0..50 => {
                let puts = rng.u8(..10) < if fills { 8 } else { 2 };
                let was = if puts { next.insert(key.clone(), value.clone()) } else { next.remove(&key) };
                self.states.push(next);
                let key = X::Schema::borrow(&key);
                let found = match puts {
                    true => of.put_as(key, X::Schema::borrow_value(&value), how)?,
                    false => of.delete_as(key, how)?,
                };
                assert_eq!(found, was.is_some());
            }
            50..75 => {
                let pairs: Vec<_> = (0..rng.u32(2..30))
                    .map(|_| {
                        let puts = rng.u8(..10) < if fills { 9 } else { 3 };
                        let value = puts.then(|| X::Schema::value(rng.u32(..300)));
                        (X::Schema::key(rng.u32(..KEYS)), value)
                    })
                    .collect();
                for (key, value) in &pairs {
                    match value {
                        Some(value) => _ = next.insert(key.clone(), value.clone()),
                        None => _ = next.remove(key),
                    }
                }
                let expected = [(key.clone(), self.newest().get(&key).cloned())];
                self.states.push(next);
                if rng.bool() {
                    assert!(of.batch(pairs, &expected, how)?, "it holds");
                } else {
                    let writes: Vec<_> = pairs.iter().map(write_of::<X>).collect();
                    of.write_many_as(&writes, how)?;
                }
            }
            75..80 => {
                // Without the commit, the mark could be of an older version that is durable.
                of.commit()?;
                let mark = of.mark();
                self.acknowledged = self.states.len() - 1;
                self.marks.push((mark, next));
                return Ok(());
            }
            80..84 => {
                let Some((mark, state)) = self.marks.pop() else { return of.commit() };
                self.states.push(state);
                assert!(of.roll_back(&mark)?);
                is_durable = true;
            }
            84..86 => {
                self.marks.clear();
                return Ok(());
            }
            86..89 => {
                self.names += 1;
                assert!(of.keep(&format!("name {}", self.names))?);
                is_durable = true;
            }
            89..92 => {
                is_durable = match of.kept_versions().pop() {
                    Some(kept) => of.forget(&kept.name)?,
                    None => false,
                };
            }
            92..93 => {
                self.states.push(Model::<X>::new());
                of.clear()?;
                is_durable = true;
            }
            _ => {
                of.collect_some(rng.usize(1..9))?;
                return Ok(());
            }
        }
        if is_durable {
            self.acknowledged = self.states.len() - 1;
        }
        Ok(())
    }

    fn run(&mut self, of: &Subject<X>, rng: &mut fastrand::Rng) -> Result<(), Error> {
        for step in 0..STEPS {
            self.step(of, rng, step)?;
            // Moves in the running group do not change a kept version.
            if let Some((mark, state)) = self.marks.last() {
                let at = of.snapshot_of(mark.clone()).expect("its own mark");
                assert!(X::pairs(&at).unwrap().into_iter().eq(state.clone()), "step {step}");
            }
        }
        Ok(())
    }

    /// The number of the state with these contents; the newest if there are several.
    fn state_of(&self, of: &Subject<X>) -> Result<usize, String> {
        let found: Model<X> = X::pairs(&of.snapshot())?.into_iter().collect();
        let mut value = ValueBuf::<X>::default();
        for (key, expected) in &found {
            let is_there =
                of.get(X::Schema::borrow(key), Some(&mut value)).map_err(|error| error.to_string())?;
            if !is_there || value != *expected {
                return Err(format!("get and walk differ at {key:?}"));
            }
        }
        let state = self.states.iter().rposition(|state| *state == found);
        state.ok_or_else(|| format!("{} keys as no operation left them", found.len()))
    }

    /// Opens the structure after a power cut, judges it, and continues to work.
    fn judge(&self, machine: &Machine) -> Result<bool, String> {
        let of = match open::<X>(machine) {
            Err(_) if !self.made => return Ok(false),
            other => other.map_err(|error| format!("it does not open: {error}"))?,
        };
        let state = self.state_of(&of)?;
        if state < self.acknowledged {
            return Err(format!("after {state} operations, {} were acknowledged", self.acknowledged));
        }
        for step in [0, 1] {
            if let Some(problem) = of.check().problems.first() {
                return Err(format!("{problem}, in turn {step}"));
            }
            let (key, value) = (X::Schema::key(KEYS), X::Schema::value(5));
            let puts = of.put(X::Schema::borrow(&key), X::Schema::borrow_value(&value));
            let goes_on =
                puts.and_then(|_| of.collect_all()).and_then(|()| of.get(X::Schema::borrow(&key), None));
            if !goes_on.map_err(|error| format!("it does not go on: {error}"))? {
                return Err("what was put is not there".to_owned());
            }
        }
        of.close().map_err(|error| error.to_string())?;
        Ok(true)
    }
}

fn write_of<X: Tested>((key, value): &PairOf<X>) -> WriteOf<'_, X> {
    match value {
        Some(value) => Write::Put(X::Schema::borrow(key), X::Schema::borrow_value(value)),
        None => Write::Delete(X::Schema::borrow(key)),
    }
}

/// Cuts the power at points throughout a life. Returns how often the remaining files opened.
fn cuts<X: Tested>(seed: u64, cuts: u64, images: &mut Images) -> u64 {
    let live = |cut: Option<u64>| {
        let machine = Machine::new(seed);
        if let Some(cut) = cut {
            machine.cut_at(cut);
        }
        let mut life = Life::<X>::new();
        let outcome = life.make(&machine).and_then(|of| life.run(&of, &mut fastrand::Rng::with_seed(seed)));
        assert!(cut.is_some() || outcome.is_ok(), "{outcome:?}");
        (machine, life)
    };
    let changes = live(None).0.changes();
    let mut opened = 0;
    for number in 0..cuts {
        let cut = 1 + (changes - 1) * number / cuts;
        let (machine, life) = live(Some(cut));
        let judged = images.each(&machine, mix(seed, cut), |image| {
            opened += u64::from(life.judge(image)?);
            Ok(())
        });
        judged.unwrap_or_else(|why| {
            panic!("{} of {}, seed {seed}, cut {cut} of {changes}, {why}", X::ENGINE, X::Schema::NAME)
        });
    }
    opened
}

#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut() {
    let mut images = Images::default();
    for seed in 0..6 {
        let opened = [
            cuts::<Hashed<Words>>(seed, 20, &mut images),
            cuts::<Hashed<Keyed>>(seed, 20, &mut images),
            cuts::<Ordered<Words>>(seed, 10, &mut images),
            cuts::<Ordered<cdds::Inlined>>(seed, 10, &mut images),
            cuts::<Ordered<Words, Unsorted>>(seed, 5, &mut images),
            cuts::<Ordered<cdds::Inlined, Unsorted>>(seed, 5, &mut images),
        ];
        println!("seed {seed}: {opened:?} opened");
        assert!(opened.iter().sum::<u64>() > 120);
    }
    images.require("power cuts", 2000);
}

/// A call fails. The write returns an error, later writes are refused, and all readers see the durable state, also concurrent ones.
fn after_a_failure<X: Tested>(seed: u64, fault: Fault) -> bool {
    let machine = Machine::new(seed);
    let mut life = Life::<X>::new();
    let mut rng = fastrand::Rng::with_seed(seed);
    let of = life.make(&machine).unwrap();
    let (done, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            // This thread may get errors or torn contents from memory that is rolled back meanwhile.
            while !done.load(Ordering::Acquire) {
                X::pairs(&of.snapshot()).map_or_else(
                    |why| assert!(why.contains("removed by a rollback"), "{why}"),
                    |_| _ = looks.fetch_add(1, Ordering::Relaxed),
                );
                for n in 0..KEYS {
                    of.get(X::Schema::borrow(&X::Schema::key(n)), None).unwrap();
                }
            }
        });
        let before = life.run(&of, &mut rng);
        machine.fail_at(machine.calls() + 1 + seed, fault);
        let outcome = life.run(&of, &mut rng);
        done.store(true, Ordering::Release);
        before.unwrap();
        outcome
    });
    if machine.fatal() == 0 {
        return false;
    }
    assert!(outcome.is_err(), "{fault:?}: nobody was told");
    let key = X::Schema::key(1);
    assert!(matches!(of.delete(X::Schema::borrow(&key)), Err(Error::Failed)));
    let state = life.state_of(&of).unwrap();
    assert!(state >= life.acknowledged, "{fault:?}: {state} of {}", life.acknowledged);
    assert_eq!(of.check().problems, Vec::<String>::new());
    drop(of);
    life.acknowledged = state;
    life.judge(&machine.after_restart()).unwrap()
}

#[test]
fn after_a_failed_call_everybody_sees_what_is_durable() {
    let mut failed = 0;
    for seed in 0..12 {
        for fault in [Fault::Eio, Fault::ShortThenEio, Fault::NoSpace] {
            failed += u64::from(after_a_failure::<Hashed<Words>>(seed, fault));
            failed += u64::from(after_a_failure::<Hashed<Keyed>>(seed, fault));
            failed += u64::from(after_a_failure::<Ordered<cdds::Inlined>>(seed, fault));
            failed += u64::from(after_a_failure::<Ordered<cdds::Inlined, Unsorted>>(seed, fault));
        }
    }
    println!("{failed} failures");
    assert!(failed > 40, "{failed}");
}
