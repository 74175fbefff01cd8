//! The campaign: runs many executions of an index, judges them, and checks that injected faults are detected. Its callers choose the
//! indexes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crash::{Fault, History, Machine, Operation, Which};
use index::{Index, Lifecycle, WriteOptions};
use pmem::journal::{Journal, Options as Sizes};
use pmem::omission::{Omission, omit};
use pmem::{Durable, Medium};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

use crate::disk::Cuts;
use crate::medium::{self, Points, recorded};
use crate::scheduled::{Numbered, Sampled, Scheduled, Turnover};
use crate::scheduler::{Bursts, Until};
use crate::work::{FAILED, KEYS, TOGETHER, UNSYNCED, Worker, whole};

/// Operations per thread.
const STEPS: usize = 5;
/// Maximum number of executions until an injected fault is detected.
const OMISSION_EXECUTIONS: u64 = 40_000;

/// Counts of executions.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Executions.
    pub executions: u64,
    /// Judged operations.
    pub operations: u64,
    /// Operations that overlap another operation on the same key.
    pub overlapping: u64,
    /// Images of power cuts.
    pub cuts: u64,
    /// Executions with a failed call to the disk.
    pub failures: u64,
    /// Halves of a journal that were checkpointed while the other threads ran.
    pub homes: u64,
    /// Events on nodes while several threads ran.
    pub turnover: Turnover,
}

impl Tally {
    /// Adds other counts.
    pub fn add(&mut self, other: Tally) {
        self.executions += other.executions;
        self.operations += other.operations;
        self.overlapping += other.overlapping;
        self.cuts += other.cuts;
        self.failures += other.failures;
        self.homes += other.homes;
        for (what, times) in other.turnover {
            *self.turnover.entry(what).or_default() += times;
        }
    }
}

/// The counts of executions, or the violation that was found.
pub type Verdict = Result<Tally, String>;
/// One execution.
pub type Execution = fn(How) -> Verdict;

/// The settings of an execution.
#[derive(Clone, Copy)]
pub struct How {
    /// True to judge the answers that threads got, in addition to the contents after a crash.
    pub live: bool,
    /// True if fences and syncs work; false if they do nothing.
    pub honest: bool,
    /// Number of power cuts of an execution.
    pub cuts: usize,
}

/// Judges everything.
pub const WHOLE: How = How { live: true, honest: true, cuts: 3 };
/// Judges only the contents after crashes.
pub const CRASHES: How = How { live: false, honest: true, cuts: 12 };
/// Judges only the contents after crashes. Fences and syncs do nothing.
pub const LIES: How = How { live: false, honest: false, cuts: 3 };

/// Runs executions until the scheduler has no more, or one is wrong.
fn run(scheduler: impl Scheduler + 'static, how: How, execution: Execution) -> Verdict {
    let found = Arc::new(AtomicBool::new(false));
    let verdict = Arc::new(Mutex::new(Ok(Tally::default())));
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    // The seed repeats a failure, so no file is needed.
    config.failure_persistence = FailurePersistence::None;
    let runner = Runner::new(Until { scheduler, found: found.clone() }, config);
    let shared = verdict.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runner.run(move || match execution(how) {
            Ok(tally) => {
                if let Ok(total) = &mut *shared.lock().unwrap() {
                    total.add(tally);
                }
            }
            Err(why) => {
                *shared.lock().unwrap() = Err(why);
                found.store(true, Ordering::Relaxed);
            }
        })
    }));
    match outcome {
        Ok(executions) => {
            verdict.lock().unwrap().clone().map_err(|why| format!("execution {executions}: {why}"))
        }
        Err(_) => Err("a thread panicked".to_owned()),
    }
}

fn number_from(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")),
        Err(_) => default,
    }
}

/// Runs this many executions with the scheduler `Bursts`, and a quarter of that number with priorities. The environment variable
/// `BRISTLECONE_ROUNDS` multiplies both numbers.
///
/// # Panics
/// If an execution is wrong, or if too few operations overlap.
pub fn campaign(name: &str, executions: u64, execution: Execution) -> Tally {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let mut total = Tally::default();
    let by_priorities = PctScheduler::new_from_seed(seed, 3, (executions / 4 * rounds) as usize);
    for verdict in
        [run(Bursts::new(seed, executions * rounds), WHOLE, execution), run(by_priorities, WHOLE, execution)]
    {
        total.add(verdict.unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}")));
    }
    println!("{name}: {total:?}");
    assert!(total.overlapping * 4 > total.operations, "{name}: too few operations overlap: {total:?}");
    total
}

/// The initial value of a key.
fn start(n: u64) -> Option<u64> {
    (n.is_multiple_of(2) && !TOGETHER.contains(&n)).then_some(1000 + n)
}

fn fill<K: Sampled>(index: &dyn Index<K>) -> Result<(), pmem::Error> {
    for n in 1..=KEYS {
        if let Some(value) = start(n) {
            let (key, value) = (K::KeyBuf::key(n), K::ValueBuf::value(value));
            index.put(K::key(&key), K::value(&value), WriteOptions::default())?;
        }
    }
    Ok(())
}

/// Two writers and two readers. If `told` is set, writers may get the error of a failed call or of a closed index. Sometimes a fifth thread
/// closes the index.
fn beside<K: Scheduled, M: Medium>(
    index: &Arc<K::Over<M>>,
    history: &Arc<History>,
    random: &mut fastrand::Rng,
    hurries: bool,
    told: bool,
) -> Result<(), String> {
    // Sometimes many changes beside few reads. Then blocks are reused while a scan is running.
    let writes = if random.u8(..4) == 0 { 4 * STEPS } else { STEPS };
    let threads = (0..4).map(|thread| {
        let (index, history, random) = (index.clone(), history.clone(), random.fork());
        shuttle::thread::spawn(move || {
            let next = (thread + 2) * 1000;
            let mut worker = Worker::<K::Keys> { index: &*index, history: &history, random, next, hurries };
            if thread >= 2 {
                let outcome = (0..STEPS).try_for_each(|_| worker.read());
                // In the frames of a buffer pool a reader cannot tell durable from rolled-back words. So readers may fail, too.
                let refused = |why: &String| told && K::POOLED && why.starts_with(FAILED);
                return if outcome.as_ref().is_err_and(refused) { Ok(()) } else { outcome };
            }
            let outcome = (0..writes).try_for_each(|_| worker.write());
            if told { Ok(()) } else { outcome }
        })
    });
    let mut threads: Vec<_> = threads.collect();
    if told && random.u8(..6) == 0 {
        let index = index.clone();
        // Later operations get an error. No operation blocks forever.
        threads.push(shuttle::thread::spawn(move || {
            (0..50).for_each(|_| shuttle::thread::yield_now());
            let _ = index.close();
            Ok(())
        }));
    }
    // All threads end before the first failure is returned.
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    outcomes.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

/// Checks an index and returns its contents.
fn contents<K: Sampled>(index: &dyn Index<K>) -> Result<Vec<Option<u64>>, String> {
    // The check must not see unsynced writes that may still be rolled back.
    let _ = index.commit();
    let report = index.check();
    if let Some(problem) = report.problems.first() {
        return Err(format!("the index is damaged: {problem}"));
    }
    let mut bytes = K::ValueBuf::default();
    let mut values = Vec::new();
    for n in 1..=KEYS {
        let key = K::KeyBuf::key(n);
        let was = index.get(K::key(&key), Some(&mut bytes)).map_err(|error| error.to_string())?;
        values.push(if was { Some(bytes.number().ok_or("a torn value")?) } else { None });
    }
    let present = values.iter().flatten().count() as u64;
    if report.keys != present {
        return Err(format!("{} keys, of which gets find {present}: {values:?}", report.keys));
    }
    whole("a look at all", |n| values[n as usize - 1])?;
    Ok(values)
}

/// Events on the nodes of an index since `before`.
fn turnover_since(now: Turnover, before: &Turnover) -> Turnover {
    now.into_iter().map(|(what, times)| (what, times - before[what])).collect()
}

/// Judges the contents after the last write, or after a crash.
fn judge(history: &History, values: &[Option<u64>]) -> Verdict {
    for (n, value) in (1..).zip(values) {
        history.found_after(n, *value);
    }
    let weight = history.judge(start)?;
    Ok(Tally { operations: weight.operations, overlapping: weight.overlapping, ..Tally::default() })
}

/// One execution of an index whose fences make writes durable.
pub fn execute<K: Scheduled>(lines: u64, how: How) -> Verdict {
    let mut random = fastrand::Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let (history, points) = (Arc::new(History::default()), Arc::new(Points::default()));
    let capacity = if lines > 16 { 2 << 20 } else { 256 << 10 };
    let (medium, tape) = recorded(capacity, &history);
    let medium = medium::Scheduled { medium, points: points.clone() };
    let index = K::create(medium, lines).map_err(|error| error.to_string())?;
    fill::<K::Keys>(&index).map_err(|error| error.to_string())?;
    let (index, from) = (Arc::new(index), history.now());
    let before = K::turnover(&*index);
    if !how.honest {
        tape.lie();
    }
    points.switch(true);
    let outcome = beside::<K, _>(&index, &history, &mut random, false, false);
    points.switch(false);
    if how.live {
        outcome?;
    }
    let turnover = turnover_since(K::turnover(&*index), &before);
    let values = contents::<K::Keys>(&*index)?;
    let mut tally = Tally { executions: 1, turnover, ..Tally::default() };
    if how.live {
        tally.add(judge(&history.until(history.now(), |_| true), &values)?);
    }
    for (moment, image) in tape.crashes(from, how.cuts, &mut random) {
        tally.cuts += 1;
        let after = || {
            let index = K::open(image, lines).map_err(|error| error.to_string())?;
            judge(&history.until(moment, |_| true), &contents::<K::Keys>(&index)?)
        };
        after().map_err(|why| format!("after a crash at {moment}: {why}"))?;
    }
    Ok(tally)
}

/// True if the operation is durable after its return: all except writes without sync.
fn promises(operation: &Operation) -> bool {
    !matches!(operation.writes, Some(Some(value)) if value >= UNSYNCED)
}

/// Sizes of a journal that is checkpointed now and then.
const SIZES: Sizes = Sizes { capacity_bytes: 64 << 10, max_bytes: 1 << 20 };

/// One execution of an index over a journal. In a quarter of the executions one call to the disk fails.
pub fn execute_journaled<K: Scheduled>(lines: u64, how: How) -> Verdict {
    let mut random = fastrand::Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let (history, points) = (Arc::new(History::default()), Arc::new(Points::default()));
    let machine = Machine::new(random.u64(..));
    let cuts = Cuts::new(&machine, &points, &history, random.u64(..));
    let [data, journal] = [Which::Data, Which::Journal].map(|which| cuts.file(which));
    let journal = Journal::create_on(data, journal, [1, 2], &SIZES).map_err(|error| error.to_string())?;
    let journal = Arc::new(journal);
    let medium = medium::Scheduled { medium: Durable::from(journal.clone()), points: points.clone() };
    let index = K::create(medium, lines).map_err(|error| error.to_string())?;
    // One to seven times. So when the other threads begin, a half of the journal may be nearly full, or the journal has just changed
    // halves.
    for _ in 0..random.u64(1..8) {
        fill::<K::Keys>(&index).map_err(|error| error.to_string())?;
    }
    let index = Arc::new(index);
    let before = K::turnover(&*index);
    points.switch(true);
    cuts.allow(how.cuts);
    machine.lie_about_syncs_of((!how.honest).then_some(Which::Journal));
    if random.u8(..4) == 0 {
        machine.fail_at(machine.calls() + random.u64(1..20), Fault::Eio);
    }
    // With a thread for checkpoints or without it. Without it, a commit that finds no space in the journal makes a checkpoint.
    let checkpoints = random.bool().then(|| {
        shuttle::thread::spawn(move || {
            let mut homes = 0;
            for _ in 0..20 {
                homes += u64::from(matches!(journal.checkpoint(), Ok(Some(_))));
                shuttle::thread::yield_now();
            }
            homes
        })
    });
    let outcome = beside::<K, _>(&index, &history, &mut random, true, true);
    let homes = checkpoints.map_or(0, |checkpoints| checkpoints.join().unwrap());
    points.switch(false);
    if how.live {
        outcome?;
    }
    let turnover = turnover_since(K::turnover(&*index), &before);
    let values = contents::<K::Keys>(&*index);
    let has_failed = machine.faults() > 0;
    let failures = u64::from(has_failed);
    let mut tally = Tally { executions: 1, failures, homes, turnover, ..Tally::default() };
    if how.live && !(has_failed && K::POOLED) {
        // Writes without sync that were rolled back do not count.
        let live = history.until(history.now(), |operation| !has_failed || promises(operation));
        tally.add(judge(&live, &values?)?);
    }
    drop(index);
    let mut ends = cuts.take();
    ends.push((history.now(), machine.after_restart()));
    for (moment, machine) in ends {
        tally.cuts += 1;
        let after = || {
            let [data, journal] = [Which::Data, Which::Journal].map(|which| machine.storage(which));
            let (journal, _) =
                Journal::open_on(data, journal, SIZES.max_bytes).map_err(|error| error.to_string())?;
            let medium = Durable::from(Arc::new(journal));
            let index = K::open(medium, lines).map_err(|error| error.to_string())?;
            judge(&history.until(moment, promises), &contents::<K::Keys>(&index)?)
        };
        after().map_err(|why| format!("after a crash at {moment}: {why}"))?;
    }
    Ok(tally)
}

/// Injects one fault after another and checks that an execution detects it. Each element of `omissions` is a fault, the settings of the
/// executions, and a text that the message of the violation contains. Without a fault (`None`) only the settings are faulty.
///
/// # Panics
/// If no execution detects a fault, or if the message does not contain the text.
pub fn notice(name: &str, execution: Execution, omissions: &[(Option<Omission>, How, &str)]) {
    for &(omission, how, says) in omissions {
        let name = format!("{name} without {}", omission.map_or("fences".into(), |c| format!("{c:?}")));
        omit(omission);
        let outcome = run(Bursts::new(0, OMISSION_EXECUTIONS), how, execution);
        omit(None);
        let why = outcome.expect_err(&name);
        println!("{name}: {why}\n");
        assert!(why.contains(says), "{name}: {why}");
    }
}
