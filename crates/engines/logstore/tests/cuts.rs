//! Power cuts of a store that several threads write, while another one makes checkpoints and evicts leaves. Each writer has its own keys.
//! After a cut, a writer's keys are as after one of its operations, and none of its acknowledged operations is lost.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (default 1). `BRISTLECONE_SEED` changes the seeds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bwtree::{Bytes, Change};
use faults::{Cut, Disk, DiskImages, Failing, Lie, Plan, mix};
use logstore::Store;
use logstore::omission::{Omission, omit};
use pmem::system::Kind;

use crate::common::life::{number_from, settings};
use crate::common::{Dir, Model, compare, contents, create, open, put};

const WRITERS: usize = 4;
const OPERATIONS: usize = 100;

/// The contents of a writer's keys after each of its operations.
type History = Vec<Model>;

/// An operation on a writer's keys.
enum Operation {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Batch(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
}

impl Operation {
    fn random(writer: usize, random: &mut fastrand::Rng) -> Self {
        let key = |random: &mut fastrand::Rng| format!("key {:03} {writer}", random.u32(..40)).into_bytes();
        match random.u32(..10) {
            0..6 => Self::Put(key(random), vec![random.u8(..); random.usize(..60)]),
            6..8 => Self::Delete(key(random)),
            _ => {
                let write = |_| (key(random), Some(vec![random.u8(..); 20]).filter(|_| random.bool()));
                Self::Batch((0..3).map(write).collect())
            }
        }
    }

    fn apply(&self, model: &mut Model) {
        let mut set = |key: &Vec<u8>, value: Option<&Vec<u8>>| match value {
            Some(value) => _ = model.insert(key.clone(), value.clone()),
            None => _ = model.remove(key),
        };
        match self {
            Self::Put(key, value) => set(key, Some(value)),
            Self::Delete(key) => set(key, None),
            Self::Batch(writes) => writes.iter().for_each(|(key, value)| set(key, value.as_ref())),
        }
    }

    /// True if the operation has a record.
    fn run(&self, store: &Store<Bytes>, sync: bool) -> pmem::Result<bool> {
        match self {
            // Half of the values are put without a read.
            Self::Put(key, value) if value.len() % 2 == 0 => {
                store.set(&key[..], Some(&value[..]), sync).map(|_| true)
            }
            Self::Put(key, value) => store.update(&key[..], |_| Change::Put(&value[..]), sync).map(|_| true),
            Self::Delete(key) => store.update(&key[..], |_| Change::<&[u8]>::Delete, sync),
            Self::Batch(writes) => {
                let batch = writes.iter().map(|(key, value)| (key.clone().into(), value.clone()));
                match writes.len() % 2 == 0 {
                    true => store.set_batch(batch.collect(), sync).map(|_| true),
                    false => store.batch(batch.collect(), &[], sync).map(|_| true),
                }
            }
        }
    }
}

/// Runs operations until one fails. Each operation is in the history before it starts.
fn write(store: &Store<Bytes>, writer: usize, seed: u64, acknowledge: &dyn Fn(usize, usize)) -> History {
    let mut random = fastrand::Rng::with_seed(mix(seed, writer as u64));
    let mut history = vec![Model::new()];
    for number in 1..=OPERATIONS {
        let (operation, sync) = (Operation::random(writer, &mut random), random.u32(..3) > 0);
        let mut next = history[number - 1].clone();
        operation.apply(&mut next);
        history.push(next);
        match operation.run(store, sync) {
            Err(_) => break,
            Ok(true) if sync => acknowledge(writer, number),
            Ok(_) => {}
        }
    }
    history
}

/// Runs all writers beside a thread that makes checkpoints.
fn write_all(
    store: &Store<Bytes>,
    seed: u64,
    omission: Option<Omission>,
    acknowledge: &(dyn Fn(usize, usize) + Sync),
) -> Vec<History> {
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let done = &done;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    omit(omission.map(|_| Omission::Slow));
                    let history = write(store, writer, seed, acknowledge);
                    done.fetch_add(1, Ordering::SeqCst);
                    history
                })
            })
            .collect();
        scope.spawn(move || {
            omit(omission);
            while done.load(Ordering::SeqCst) < WRITERS {
                let _ = store.upkeep();
                let _ = store.checkpoint();
                std::thread::yield_now();
            }
        });
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

/// The last acknowledged operation of each writer, 16 bits each.
#[derive(Default)]
struct Marks(Mutex<u64>);

impl Marks {
    fn set(&self, writer: usize, number: usize, tell: impl FnOnce(u64)) {
        let mut marks = self.0.lock().unwrap();
        *marks = *marks & !(0xffff << (16 * writer)) | (number as u64) << (16 * writer);
        tell(*marks);
    }
}

fn judge(image: &Path, seed: u64, acknowledged: u64, histories: &[History]) -> Result<(), String> {
    let store = open(image, settings(seed)).map_err(|error| format!("it does not open: {error}"))?;
    let found = contents(&store).map_err(|error| error.to_string())?;
    for (writer, history) in histories.iter().enumerate() {
        let end = format!(" {writer}").into_bytes();
        let own: Model = found
            .iter()
            .filter(|(key, _)| key.ends_with(&end))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let least = (acknowledged >> (16 * writer) & 0xffff) as usize;
        if !history[least..].contains(&own) {
            let old = history.iter().rposition(|state| *state == own);
            return Err(format!("writer {writer}: operation {old:?}, but {least} were acknowledged"));
        }
    }
    compare(&store, &found);
    put(&store, b"later", b"value").map_err(|error| error.to_string())?;
    drop(store);
    let mut found = found;
    found.insert(b"later".to_vec(), b"value".to_vec());
    compare(&open(image, settings(seed)).map_err(|error| format!("opened again: {error}"))?, &found);
    Ok(())
}

fn run(
    seed: u64,
    is_chosen: impl Fn(&Cut) -> bool,
    images_max: u64,
    omission: Option<Omission>,
) -> Result<(DiskImages, u64), String> {
    let (dir, scratch) = (Dir::new("cuts"), Dir::new("cuts-image"));
    let store = create(&dir.0, settings(seed));
    let (disk, watching) = Disk::below(&dir.0, 1, Lie::None);
    let marks = Marks::default();
    let acknowledge = |writer: usize, number: usize| marks.set(writer, number, |marks| disk.mark(marks));
    let histories = write_all(&store, seed, omission, &acknowledge);
    assert!(histories.iter().all(|history| history.len() == OPERATIONS + 1), "an operation failed");
    let checkpoints = store.stats().checkpoints;
    let cuts = disk.cuts();
    drop((store, watching));
    let mut images = DiskImages::default();
    for cut in cuts.iter().filter(|cut| is_chosen(cut)) {
        let (chosen, mut number) = (mix(seed, cut.number), 0);
        let judged = images.each(cut, chosen, &scratch.0, |image| {
            number += 1;
            if number > images_max {
                return Ok(());
            }
            judge(image, seed, cut.mark(), &histories)
        });
        judged.map_err(|why| format!("seed {seed}: {why}"))?;
    }
    Ok((images, checkpoints))
}

#[test]
fn no_thread_loses_an_acknowledged_update_by_a_power_cut() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let (mut total, mut all) = (DiskImages::default(), 0);
    for number in 0..4 * rounds {
        let seed = mix(seed ^ 0x7ead, number);
        let is_chosen = |cut: &Cut| mix(seed, cut.number).is_multiple_of(20);
        let (images, checkpoints) = run(seed, is_chosen, 20, None).unwrap_or_else(|why| panic!("{why}"));
        total.add(&images);
        all += checkpoints;
    }
    println!("cuts of threads: {total:?}, {all} checkpoints");
    assert!(total.tried >= 500 * rounds && all > 10 * rounds, "{total:?}, {all}");
}

/// The fault needs a writer between its record and its update, so the writers sleep there. Each checkpoint is judged once, when it begins to
/// remove files.
#[test]
fn a_replay_that_begins_behind_unfinished_records_is_noticed() {
    let is_chosen = |cut: &Cut| cut.kind == Kind::Remove;
    let found = (0..400).find_map(|seed| Some((seed, run(seed, is_chosen, 1, Some(Omission::Redo)).err()?)));
    println!("{found:?}");
    assert!(found.is_some_and(|(_, why)| why.contains("were acknowledged")));
}

/// A call fails, once or from then on, while threads write. No thread waits forever, and no acknowledged update is lost.
#[test]
fn no_thread_loses_an_acknowledged_update_by_a_failed_call() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let (mut runs, mut ended) = (0, 0);
    for number in 0..80 * rounds {
        let seed = mix(seed ^ 0xfa11, number);
        let dir = Dir::new("cuts-failing");
        let store = create(&dir.0, settings(seed));
        let call = 1 + seed % 500;
        let plan = if number % 2 == 0 { Plan::Once(call) } else { Plan::From(call) };
        let (failing, watching) = Failing::below(&dir.0, plan, seed);
        let marks = Marks::default();
        let histories = write_all(&store, seed, None, &|writer, number| marks.set(writer, number, |_| ()));
        drop((store, watching));
        runs += u64::from(failing.was_met());
        ended += histories.iter().filter(|history| history.len() <= OPERATIONS).count();
        let acknowledged = *marks.0.lock().unwrap();
        judge(&dir.0, seed, acknowledged, &histories)
            .unwrap_or_else(|why| panic!("seed {seed}, {plan:?}, {:?}: {why}", failing.last()));
    }
    println!("failed calls of threads: {runs} runs with a failure, {ended} writers got an error");
    assert!(runs > 40 * rounds && ended > 40, "{runs}, {ended}");
}
