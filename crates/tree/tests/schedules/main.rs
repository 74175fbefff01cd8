//! Schedules of whole operations: real trees of the smallest nodes, writers and readers beside each other, another thread
//! perhaps going on before every single load and store (`medium`), in random bursts and by priorities (`scheduler`).
//!
//! What everybody was told is written down (`work`) and has to be explained by one operation after the other, key by key, with
//! batches as one; and so has what is there after a power cut at any moment of it: everything that returned before,
//! what readers returned too.
//!
//! The canaries leave out a part of the protocols each, and must be noticed.
//!
//! Only under `cfg(shuttle)`: `cargo xtask test` runs it. `BRISTLECONE_ROUNDS` sets how many times as many schedules there are
//! (1), `BRISTLECONE_SEED` moves the seeds.
#![cfg(shuttle)]

mod disk;
mod medium;
mod scheduler;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crash::{Fault, History, Machine, Operation, Which};
use disk::Cuts;
use medium::{Points, Scheduled, recorded};
use pmem::canary::{Canary, sing};
use pmem::journal::{Journal, Options as Sizes};
use pmem::{Durability, Durable, Geometry, Medium};
use scheduler::{Bursts, Until};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};
use tree::discipline::Discipline;
use tree::layout::Layouts;
use tree::shape::FourGroups;
use tree::{
    Bitmap, Counted, Keyed, LineOrder, Prefixed, Shadow, SlotOnly, Slotted, Sorted, Stepwise, Tree,
    TreeOptions, UndoRedo, Words, WriteAhead, WriteAtomic,
};
use work::{FAILED, KEYS, Numbered, Sample, TOGETHER, UNSYNCED, Worker, whole};

const ENGINE: &str = "schedules";
/// Operations of a thread.
const STEPS: usize = 5;
/// Executions in which a canary has to be noticed.
const CANARY_EXECUTIONS: u64 = 2000;
/// Power cuts of an execution.
const CUTS: usize = 3;

/// What schedules came to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    executions: u64,
    operations: u64,
    overlapping: u64,
    cuts: u64,
    failures: u64,
    /// Halves of a journal that were taken home beside the others.
    homes: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.executions += other.executions;
        self.operations += other.operations;
        self.overlapping += other.overlapping;
        self.cuts += other.cuts;
        self.failures += other.failures;
        self.homes += other.homes;
    }
}

type Verdict = Result<Tally, String>;
type Execution = fn(How) -> Verdict;

/// How an execution is judged.
#[derive(Clone, Copy)]
struct How {
    /// What everybody was told, too, and not only what is there after a crash.
    live: bool,
    /// Fences and syncs do what they say.
    honest: bool,
}

const WHOLE: How = How { live: true, honest: true };
const CRASHES: How = How { live: false, honest: true };
const LIES: How = How { live: false, honest: false };

/// Makes executions until the scheduler has no more, or one goes wrong.
fn run(scheduler: impl Scheduler + 'static, how: How, execution: Execution) -> Verdict {
    let found = Arc::new(AtomicBool::new(false));
    let verdict = Arc::new(Mutex::new(Ok(Tally::default())));
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    // The seed repeats it.
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

/// So many executions in bursts and a quarter of that by priorities.
fn campaign(name: &str, executions: u64, execution: Execution) -> Tally {
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

/// What a key holds in the beginning.
fn start(n: u64) -> Option<u64> {
    (n.is_multiple_of(2) && !TOGETHER.contains(&n)).then_some(1000 + n)
}

fn fill<M: Medium, S: Sample, L: Layouts, D: Discipline>(tree: &Tree<M, S, L, D>) -> Result<(), pmem::Error> {
    for n in 1..=KEYS {
        if let Some(value) = start(n) {
            tree.put(S::borrow(&S::KeyBuf::key(n)), S::borrow_value(&S::ValueBuf::value(value)))?;
        }
    }
    Ok(())
}

/// Two threads that write and two that read. Who writes may be `told` that a call failed, or that the tree was closed: sometimes a
/// fifth thread does that.
fn beside<M: Medium, S: Sample, L: Layouts, D: Discipline>(
    tree: &Arc<Tree<M, S, L, D>>,
    history: &Arc<History>,
    random: &mut fastrand::Rng,
    hurries: bool,
    told: bool,
) -> Result<(), String> {
    // Many changes beside few reads, now and then: blocks are used again while one scan is on its way.
    let writes = if random.u8(..4) == 0 { 4 * STEPS } else { STEPS };
    let threads = (0..4).map(|thread| {
        let (tree, history, random) = (tree.clone(), history.clone(), random.fork());
        shuttle::thread::spawn(move || {
            let next = (thread + 2) * 1000;
            let mut worker = Worker { tree: &tree, history: &history, random, next, hurries };
            if thread >= 2 {
                let outcome = (0..STEPS).try_for_each(|_| worker.read());
                // In a pool's frames what is durable cannot be told from what was taken back: readers are told, too.
                let refused = |why: &String| told && D::POOLED && why.starts_with(FAILED);
                return if outcome.as_ref().is_err_and(refused) { Ok(()) } else { outcome };
            }
            let outcome = (0..writes).try_for_each(|_| worker.write());
            if told { Ok(()) } else { outcome }
        })
    });
    let mut threads: Vec<_> = threads.collect();
    if told && random.u8(..6) == 0 {
        let tree = tree.clone();
        // Whoever comes too late is told; nobody waits for good.
        threads.push(shuttle::thread::spawn(move || {
            (0..50).for_each(|_| shuttle::thread::yield_now());
            let _ = tree.close();
            Ok(())
        }));
    }
    // All of them end before the first that went wrong is looked at.
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    outcomes.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

/// All that a tree holds, and that it holds together.
fn contents<M: Medium, S: Sample, L: Layouts, D: Discipline>(
    tree: &Tree<M, S, L, D>,
) -> Result<Vec<Option<u64>>, String> {
    // Where writes did not wait, the check would see what may yet be taken back.
    let _ = tree.commit();
    let report = tree.check();
    if let Some(problem) = report.problems.first() {
        return Err(format!("the tree is damaged: {problem}"));
    }
    let mut bytes = S::ValueBuf::default();
    let mut values = Vec::new();
    for n in 1..=KEYS {
        let was = tree.get(S::borrow(&S::KeyBuf::key(n)), Some(&mut bytes)).map_err(|e| e.to_string())?;
        values.push(if was { Some(bytes.number().ok_or("a torn value")?) } else { None });
    }
    let present = values.iter().flatten().count() as u64;
    if report.keys != present {
        return Err(format!("{} keys, of which gets find {present}: {values:?}", report.keys));
    }
    whole("a look at all", |n| values[n as usize - 1])?;
    Ok(values)
}

/// Judges what was found when nobody wrote any more, or after a crash.
fn judge(history: &History, values: &[Option<u64>]) -> Verdict {
    for (n, value) in (1..).zip(values) {
        history.found_after(n, *value);
    }
    let weight = history.judge(start)?;
    Ok(Tally { operations: weight.operations, overlapping: weight.overlapping, ..Tally::default() })
}

/// One execution of a tree whose fences make writes durable.
fn execute<S: Sample, L: Layouts, D: Discipline>(lines: u64, how: How) -> Verdict {
    let mut random = fastrand::Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let (history, points) = (Arc::new(History::default()), Arc::new(Points::default()));
    let capacity = if lines > 16 { 2 << 20 } else { 256 << 10 };
    let (medium, tape) = recorded(capacity, &history);
    let log_records = if lines > 2 || D::LOGS_ALL || D::COPIES_LEAVES { 512 } else { 128 };
    let geometry = Geometry { log_records, ..Geometry::tiny() };
    let options = TreeOptions { geometry, stripes: 16, ..TreeOptions::new(ENGINE, lines, Durability::Power) };
    let medium = Scheduled { medium, points: points.clone() };
    let tree = Tree::<_, S, L, D>::create(medium, &options).map_err(|error| error.to_string())?;
    fill(&tree).map_err(|error| error.to_string())?;
    let (tree, from) = (Arc::new(tree), history.now());
    if !how.honest {
        tape.lie();
    }
    points.switch(true);
    let outcome = beside(&tree, &history, &mut random, false, false);
    points.switch(false);
    if how.live {
        outcome?;
    }
    let values = contents(&tree)?;
    let mut tally = Tally { executions: 1, ..Tally::default() };
    if how.live {
        tally.add(judge(&history.until(history.now(), |_| true), &values)?);
    }
    for (moment, image) in tape.crashes(from, CUTS, &mut random) {
        tally.cuts += 1;
        let after = || {
            let (tree, _) = Tree::<_, S, L, D>::open(image, Path::new("image"), ENGINE, Durability::Power, 2)
                .map_err(|error| error.to_string())?;
            judge(&history.until(moment, |_| true), &contents(&tree)?)
        };
        after().map_err(|why| format!("after a crash at {moment}: {why}"))?;
    }
    Ok(tally)
}

/// What returned is durable, unless it was a write that did not wait for it.
fn promises(operation: &Operation) -> bool {
    !matches!(operation.writes, Some(Some(value)) if value >= UNSYNCED)
}

/// Sizes of a journal that goes home once in a while.
const SIZES: Sizes = Sizes { capacity_bytes: 64 << 10, max_bytes: 1 << 20 };

/// One execution of a tree over a journal. In one of four a call to the disk fails.
fn execute_journaled<S: Sample, L: Layouts, D: Discipline>(lines: u64, how: How) -> Verdict {
    let mut random = fastrand::Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let (history, points) = (Arc::new(History::default()), Arc::new(Points::default()));
    let machine = Machine::new(random.u64(..));
    let cuts = Cuts::new(&machine, &points, &history, random.u64(..));
    let [data, journal] = [Which::Data, Which::Journal].map(|which| cuts.file(which));
    let journal = Journal::create_on(data, journal, [1, 2], &SIZES).map_err(|error| error.to_string())?;
    let journal = Arc::new(journal);
    let medium = Scheduled { medium: Durable::from(journal.clone()), points: points.clone() };
    let options = TreeOptions {
        geometry: Geometry::tiny(),
        stripes: 16,
        ..TreeOptions::new(ENGINE, lines, Durability::Power)
    };
    let tree = Tree::<_, S, L, D>::create(medium, &options).map_err(|error| error.to_string())?;
    // Once or several times, so that a half of the journal is nearly full when the others begin, or has just been left.
    for _ in 0..random.u64(1..8) {
        fill(&tree).map_err(|error| error.to_string())?;
    }
    let tree = Arc::new(tree);
    points.switch(true);
    cuts.allow(CUTS);
    machine.lie_about_syncs_of((!how.honest).then_some(Which::Journal));
    if random.u8(..4) == 0 {
        machine.fail_at(machine.calls() + random.u64(1..20), Fault::Eio);
    }
    // Beside the others, or else whoever finds no room does it.
    let keeper = random.bool().then(|| {
        shuttle::thread::spawn(move || {
            let mut homes = 0;
            for _ in 0..20 {
                homes += u64::from(matches!(journal.checkpoint(), Ok(Some(_))));
                shuttle::thread::yield_now();
            }
            homes
        })
    });
    let outcome = beside(&tree, &history, &mut random, true, true);
    let homes = keeper.map_or(0, |keeper| keeper.join().unwrap());
    points.switch(false);
    if how.live {
        outcome?;
    }
    let values = contents(&tree);
    let has_failed = machine.faults() > 0;
    let mut tally = Tally { executions: 1, failures: u64::from(has_failed), homes, ..Tally::default() };
    if how.live && !(has_failed && D::POOLED) {
        // What did not wait and was taken back never happened.
        let live = history.until(history.now(), |operation| !has_failed || promises(operation));
        tally.add(judge(&live, &values?)?);
    }
    drop(tree);
    let mut ends = cuts.take();
    ends.push((history.now(), machine.after_restart()));
    for (moment, machine) in ends {
        tally.cuts += 1;
        let after = || {
            let [data, journal] = [Which::Data, Which::Journal].map(|which| machine.storage(which));
            let (journal, _) =
                Journal::open_on(data, journal, SIZES.max_bytes).map_err(|error| error.to_string())?;
            let medium = Durable::from(Arc::new(journal));
            let (tree, _) =
                Tree::<_, S, L, D>::open(medium, Path::new("image"), ENGINE, Durability::Power, 2)
                    .map_err(|error| error.to_string())?;
            judge(&history.until(moment, promises), &contents(&tree)?)
        };
        after().map_err(|why| format!("after a crash at {moment}: {why}"))?;
    }
    Ok(tally)
}

type Engine = (&'static str, Execution);

/// The tree that everything else is compared with.
const FIRST: Engine = ("slot+bitmap, words", |how| execute::<Words, (Slotted, Slotted), WriteAtomic>(2, how));
const JOURNALED: Engine = ("slot+bitmap over a journal", |how| {
    execute_journaled::<Prefixed, (Slotted, Slotted), WriteAtomic>(2, how)
});

/// Each layout and discipline once, and some over a journal too.
const ENGINES: &[Engine] = &[
    FIRST,
    ("bitmap leaves in line order", |how| execute::<Prefixed, (Bitmap, Slotted), LineOrder>(2, how)),
    ("slot only", |how| execute::<Keyed, (SlotOnly, SlotOnly), WriteAtomic>(2, how)),
    ("sorted with undo-redo", |how| execute::<Keyed, (Sorted, Sorted), UndoRedo>(2, how)),
    ("counted with shadows", |how| execute::<Keyed, (Counted, Sorted), Shadow>(2, how)),
    ("four groups step by step", |how| {
        execute::<Keyed, (Slotted<FourGroups>, Slotted<FourGroups>), Stepwise>(3, how)
    }),
    ("sorted behind a pool", |how| execute::<Prefixed, (Sorted, Sorted), WriteAhead>(2, how)),
    JOURNALED,
    ("counted with shadows over a journal", |how| {
        execute_journaled::<Keyed, (Counted, Sorted), Shadow>(2, how)
    }),
    ("sorted behind a pool, over a journal", |how| {
        execute_journaled::<Prefixed, (Sorted, Sorted), WriteAhead>(2, how)
    }),
];

#[test]
fn what_everybody_is_told_can_be_explained_and_outlasts_a_crash() {
    let mut total = Tally::default();
    for (name, execution) in ENGINES {
        total.add(campaign(name, 800, *execution));
    }
    println!("all: {total:?}");
    assert!(
        total.cuts >= total.executions && total.failures > 0 && total.homes > 0,
        "too little was cut short: {total:?}"
    );
}

#[test]
fn a_part_of_the_protocols_that_is_left_out_is_noticed() {
    let over_fences: &[(Option<Canary>, How, &str)] = &[
        (Some(Canary::SecondLook), WHOLE, ""),
        (Some(Canary::Batches), WHOLE, ""),
        // What a reader was told too early only a crash takes back.
        (Some(Canary::FirstLook), CRASHES, "after a crash"),
        (None, LIES, "after a crash"),
    ];
    let over_a_journal: &[(Option<Canary>, How, &str)] = &[
        (Some(Canary::SecondLook), WHOLE, ""),
        // That a batch runs they need not ask here: what it changed is not durable, and durable at once.
        (Some(Canary::Notes), CRASHES, "after a crash"),
        (None, LIES, "after a crash"),
    ];
    for (engine, canaries) in [(FIRST, over_fences), (JOURNALED, over_a_journal)] {
        for &(canary, how, says) in canaries {
            let name =
                format!("{} without {}", engine.0, canary.map_or("fences".into(), |c| format!("{c:?}")));
            sing(canary);
            let outcome = run(Bursts::new(0, CANARY_EXECUTIONS), how, engine.1);
            sing(None);
            let why = outcome.expect_err(&name);
            println!("{name}: {why}\n");
            assert!(why.contains(says), "{name}: {why}");
        }
    }
}
