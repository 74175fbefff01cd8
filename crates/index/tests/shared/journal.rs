//! Commit groups: lists over a journal, on a simulated machine with power cuts and failing calls.
//!
//! After a power cut and a reopen, all writes that were acknowledged as durable are present, and also a prefix of the
//! later writes. Each batch is present completely or not at all. After a failed commit, readers see the durable state.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Index, Options, Sample, options, pairs};
use crash::{Fault, Machine, Survivors, Which};
use index::Life as _;
use index::leaf_list::prelude::*;
use index::{Keyed, Schema, Words, WriteOptions};
use pmem::journal::Options as Sizes;
use pmem::{Durable, Error, Geometry, Journal, Result};

const MAX_BYTES: u64 = 16 << 20;
const SIZES: Sizes = Sizes { capacity_bytes: 512 << 10, max_bytes: MAX_BYTES };
const KEYS: u32 = 60;

type Map<S> = BTreeMap<<S as Schema>::KeyBuf, <S as Schema>::ValueBuf>;
type Stored<S> = Index<Durable, S>;

fn sized<S: Sample>(faithful: bool) -> Options {
    Options { geometry: Geometry::default(), ..options::<S>(3, faithful) }
}

fn create<S: Sample>(machine: &Machine, faithful: bool) -> Result<Stored<S>> {
    let [data, journal] = [Which::Data, Which::Journal].map(|which| machine.storage(which));
    let journal = Journal::create_on(data, journal, [1, 2], &SIZES)?;
    Index::create(Durable::from(Arc::new(journal)), &sized::<S>(faithful))
}

fn open<S: Sample>(machine: &Machine) -> Result<Stored<S>> {
    let [data, journal] = [Which::Data, Which::Journal].map(|which| machine.storage(which));
    let (journal, _) = Journal::open_on(data, journal, MAX_BYTES)?;
    Ok(Index::open(Durable::from(Arc::new(journal)), Path::new("machine"), &sized::<S>(false))?.0)
}

/// The expected states of an index.
struct Life<S: Sample> {
    /// Contents after each operation.
    states: Vec<Map<S>>,
    /// Number of operations that were acknowledged as durable.
    acknowledged: usize,
}

impl<S: Sample> Life<S> {
    fn new() -> Self {
        Self { states: vec![Map::<S>::new()], acknowledged: 0 }
    }

    /// Runs one operation. Its result becomes the newest state before the operation starts.
    fn step(&mut self, index: &Stored<S>, rng: &mut fastrand::Rng) -> Result<()> {
        let sync = rng.u8(..) < 140;
        let mut next = self.states.last().cloned().unwrap_or_default();
        let count = if rng.u8(..) < 40 { rng.u32(2..30) } else { 1 };
        let writes: Vec<_> = (0..count)
            .map(|_| (S::key(rng.u32(..KEYS)), (rng.u8(..) < 170).then(|| S::value(rng.u32(..500)))))
            .collect();
        for (key, value) in &writes {
            match value {
                Some(value) => _ = next.insert(key.clone(), value.clone()),
                None => _ = next.remove(key),
            }
        }
        self.states.push(next);
        let how = WriteOptions { sync };
        match writes.as_slice() {
            [(key, Some(value))] => index.put_as(S::borrow(key), S::borrow_value(value), how).map(drop)?,
            [(key, None)] => index.delete_as(S::borrow(key), how).map(drop)?,
            _ => assert!(index.batch(writes, &[], how)?),
        }
        if sync {
            self.acknowledged = self.states.len() - 1;
        } else if rng.u8(..) < 40 {
            index.commit()?;
            self.acknowledged = self.states.len() - 1;
        }
        Ok(())
    }

    /// Checks that the index has the contents after one of the operations from the last acknowledged one on.
    #[track_caller]
    fn assert_holds(&self, index: &Stored<S>, what: &str) {
        let found: Map<S> = pairs(&mut index.cursor(), Bound::Unbounded, false).into_iter().collect();
        let state = self.states.iter().rposition(|state| *state == found);
        let state = state.unwrap_or_else(|| panic!("{what}: {} keys as no operation left them", found.len()));
        assert!(
            state >= self.acknowledged,
            "{what}: {state} operations of {} acknowledged",
            self.acknowledged
        );
        let problems = index.check().problems;
        assert!(problems.is_empty(), "{what}: {problems:?}");
        assert_eq!(index.len(), found.len() as u64, "{what}");
    }
}

/// Runs a life with a power cut at change `cut`, or a fault at call `fail`. False if neither happened.
fn live<S: Sample>(seed: u64, faithful: bool, cut: Option<u64>, fail: Option<(u64, Fault)>) -> bool {
    let what = format!("seed {seed}, cut {cut:?}, fault {fail:?}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let machine = Machine::new(seed);
    let mut life = Life::<S>::new();
    let index = create::<S>(&machine, faithful).unwrap();
    if let Some(cut) = cut {
        machine.cut_at(machine.changes() + cut);
    }
    if let Some((call, fault)) = fail {
        machine.fail_at(machine.calls() + call, fault);
    }
    let mut failed = false;
    for _ in 0..120 {
        if let Err(error) = life.step(&index, &mut rng) {
            assert!(
                matches!(error, Error::Io { .. } | Error::NoSpace { .. } | Error::Failed),
                "{what}: {error}"
            );
            failed = true;
            break;
        }
    }
    if failed && !machine.is_off() {
        // Readers see the durable state. The index takes no more writes; after a lack of space it does.
        life.assert_holds(&index, &what);
    }
    let happened = failed || machine.is_off() || machine.faults() > 0;
    let survivors = [Survivors::None, Survivors::All, Survivors::Random(seed)][seed as usize % 3];
    drop(index);
    let after = machine.after_power_cut(survivors);
    let again = open::<S>(&after).unwrap_or_else(|error| panic!("{what}: it does not open: {error}"));
    life.assert_holds(&again, &what);
    let rest = 1 + life.states.len();
    let found: Map<S> = pairs(&mut again.cursor(), Bound::Unbounded, false).into_iter().collect();
    let mut life = Life::<S> { states: vec![found], acknowledged: 0 };
    for _ in 0..20 {
        life.step(&again, &mut rng).unwrap_or_else(|error| panic!("{what}: after {rest}: {error}"));
    }
    again.commit().unwrap();
    again.close().unwrap();
    drop(again);
    life.acknowledged = life.states.len() - 1;
    life.assert_holds(&open::<S>(&after).unwrap(), &what);
    happened
}

fn campaign<S: Sample>() {
    let mut happened = 0;
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cut = rng.u64(..200);
        happened += u64::from(live::<S>(seed, seed % 4 == 3, Some(cut), None));
        let fault = if rng.bool() { Fault::Eio } else { Fault::NoSpace };
        happened += u64::from(live::<S>(seed, seed % 4 == 3, None, Some((rng.u64(..120), fault))));
    }
    println!("{happened} lives of 120 met a cut or a fault");
    assert!(happened >= 60, "{happened}");
}

#[test]
fn words_behind_a_journal_are_as_acknowledged_whatever_happens() {
    campaign::<Words>();
}

#[test]
fn byte_strings_behind_a_journal_are_as_acknowledged_whatever_happens() {
    campaign::<Keyed>();
}

#[test]
fn a_batch_that_is_larger_than_half_of_the_journal_is_there_whole_after_a_power_cut() {
    let machine = Machine::new(1);
    let index = create::<Words>(&machine, false).unwrap();
    index.put(&1, &1).unwrap();
    let expected: Vec<_> = (0..60_000).map(|n| (n, n * n + 7)).collect();
    let writes = expected.iter().map(|(key, value)| (*key, Some(*value))).collect();
    assert!(index.batch(writes, &[(1, Some(1))], WriteOptions::default()).unwrap());
    let after = machine.after_power_cut(Survivors::None);
    let again = open::<Words>(&after).unwrap();
    assert!(pairs(&mut again.cursor(), Bound::Unbounded, false) == expected);
    assert!(again.batch(vec![(2, Some(2)), (1, None)], &[(1, Some(8))], WriteOptions::default()).unwrap());
    assert!(!again.batch(vec![(3, Some(2))], &[(1, Some(8))], WriteOptions::default()).unwrap());
    assert_eq!(pairs(&mut again.cursor(), Bound::Included(1), false)[0], (2, 2));
}
