//! Schedules of whole operations: trees with the smallest pages, and threads that write, read and scan concurrently. The scheduler may
//! switch threads before every load, store and exchange, in random bursts or by priorities.
//!
//! Each execution records the results of all operations. For each key, the results must be those of some sequential order. At the end the
//! checker must find no violation, every page and PID must be accounted for, and no retired memory may be left. A read of a freed node and
//! a double free fail at once.
//!
//! Injected faults leave out one part of a protocol each, and must be detected.
//!
//! The tests run only with `cfg(shuttle)`, by `cargo xtask test`. `BRISTLECONE_ROUNDS` multiplies the number of schedules (default 1).
//! `BRISTLECONE_SEED` changes the seeds.

use std::borrow::Borrow;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Numbered, key_of, number_from, value_of};
use bwtree::omission::{Omission, omit};
use bwtree::{Bytes, Change, Options, Stats, Tree, Words};
use crash::{Found, History};
use schedules::scheduler::{Bursts, Until};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// Keys are the numbers below this one.
const KEYS: u64 = 24;
/// Number of threads of an execution.
const THREADS: u64 = 3;
/// Minimum number of executions of all campaigns together.
fn executions() -> u64 {
    crash::by_tier(30_000, 100_000)
}

/// Counts of executions and events.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    executions: u64,
    operations: u64,
    overlapping: u64,
    splits: u64,
    merges: u64,
    root_changes: u64,
    helped: u64,
    failures: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.executions += other.executions;
        self.operations += other.operations;
        self.overlapping += other.overlapping;
        self.splits += other.splits;
        self.merges += other.merges;
        self.root_changes += other.root_changes;
        self.helped += other.helped;
        self.failures += other.failures;
    }
}

type Verdict = Result<Tally, String>;

/// The operations of the threads of an execution.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// Among 16 operations, the number of puts and inserts, of deletes, of updates, and of gets. The others are scans.
    of_16: [u8; 4],
    /// Number of operations of each thread.
    steps: u64,
    /// At the start, one key in `filled` exists.
    filled: u64,
    /// First key and number of the hot keys. At least half of all operations use one of them.
    hot: (u64, u64),
}

const MIXED: Use = Use { of_16: [5, 5, 2, 2], steps: 5, filled: 2, hot: (6, 4) };
const GROWS: Use = Use { of_16: [12, 1, 1, 1], steps: 6, filled: 6, hot: (8, 8) };
const SHRINKS: Use = Use { of_16: [1, 13, 0, 1], steps: 8, filled: 1, hot: (4, 8) };
const SCANS: Use = Use { of_16: [4, 4, 0, 0], steps: 4, filled: 2, hot: (2, 20) };

/// Pages of three small records, and inner pages of three terms.
fn options(random: &mut fastrand::Rng) -> Options {
    Options {
        leaf_chain: random.u32(1..=3),
        leaf_chain_read: random.u32(0..=2),
        inner_chain: random.u32(1..=3),
        leaf_split_bytes: 48,
        leaf_merge_bytes: 32,
        inner_split_bytes: 48,
        inner_merge_bytes: 33,
        ..Options::tiny()
    }
}

struct Worker<'a, P: Numbered> {
    tree: &'a Tree<P>,
    history: &'a History,
    random: fastrand::Rng,
    next: u64,
    how: Use,
}

impl<P: Numbered> Worker<'_, P> {
    fn any_key(&mut self) -> u64 {
        let (from, count) = self.how.hot;
        if self.random.bool() { from + self.random.u64(..count) } else { self.random.u64(..KEYS) }
    }

    fn step(&mut self) -> Result<(), String> {
        let (tree, history, n) = (self.tree, self.history, self.any_key());
        self.next += 1;
        let (value, key, bytes) = (self.next, P::key(n), P::value(self.next));
        let (key, bytes): (&P::Key, &P::Value) = (key.borrow(), bytes.borrow());
        let [puts, deletes, updates, gets] = self.how.of_16;
        let choice = self.random.u8(..16);
        let called = history.now();
        let text = |error: bwtree::Error| error.to_string();
        if choice < puts {
            if choice % 3 == 0 {
                let inserted = tree.insert(key, bytes).map_err(text)?;
                history.note(n, called, Some(Found::There(!inserted)), inserted.then_some(Some(value)));
            } else {
                let was_there = tree.put(key, bytes).map_err(text)?;
                history.note(n, called, Some(Found::There(was_there)), Some(Some(value)));
            }
        } else if choice < puts + deletes {
            let was_there = tree.delete(key).map_err(text)?;
            history.note(n, called, Some(Found::There(was_there)), Some(None));
        } else if choice < puts + deletes + updates {
            let (mut found, deletes) = (None, self.random.u8(..4) == 0);
            let decide = |old: Option<&P::Value>| {
                found = old.map(P::number);
                if deletes { Change::Delete } else { Change::Put(P::value(value)) }
            };
            tree.update(key, decide).map_err(text)?;
            history.note(n, called, Some(Found::Value(found)), Some((!deletes).then_some(value)));
        } else if choice < puts + deletes + updates + gets {
            let found = tree.get(key).map(|value| value_of::<P>(&value));
            history.note(n, called, Some(Found::Value(found)), None);
        } else {
            self.scan(called, choice % 2 == 0)?;
        }
        Ok(())
    }

    /// A scan is one read of each key in its range.
    fn scan(&mut self, called: u64, descends: bool) -> Result<(), String> {
        let from = self.random.u64(..KEYS);
        let to = self.random.u64(from..KEYS);
        let (first, last) = (P::key(from), P::key(to));
        let (first, last) = (Bound::Included(first.borrow()), Bound::Included(last.borrow()));
        let cursor =
            if descends { self.tree.range_descending(first, last) } else { self.tree.range(first, last) };
        let mut seen = vec![None; KEYS as usize];
        let mut before = None;
        for (key, value) in cursor {
            let n = key_of::<P>(&key);
            if before.is_some_and(|before| before == n || (before < n) == descends) || n < from || n > to {
                return Err(format!("a scan from {from} to {to} found {n} behind {before:?}"));
            }
            before = Some(n);
            seen[n as usize] = Some(value_of::<P>(&value));
            // Other threads may run between two records.
            shuttle::thread::yield_now();
        }
        for n in from..=to {
            self.history.note(n, called, Some(Found::Value(seen[n as usize])), None);
        }
        Ok(())
    }
}

const CHURNS: Use = Use { of_16: [7, 9, 0, 0], steps: 8, filled: 2, hot: (4, 6) };

/// The value of a key at the start.
fn start(how: Use, n: u64) -> Option<u64> {
    n.is_multiple_of(how.filled).then_some(1000 + n)
}

fn execute<P: Numbered>(how: Use) -> Verdict {
    let mut random = fastrand::Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let tree = Arc::new(Tree::<P>::new(options(&mut random)).map_err(|error| error.to_string())?);
    let history = Arc::new(History::default());
    for n in 0..KEYS {
        if let Some(value) = start(how, n) {
            tree.put(P::key(n).borrow(), P::value(value).borrow()).map_err(|error| error.to_string())?;
        }
    }
    let threads = (0..THREADS).map(|thread| {
        let (tree, history, random) = (tree.clone(), history.clone(), random.fork());
        shuttle::thread::spawn(move || {
            let next = (thread + 2) * 1000;
            let mut worker = Worker { tree: &tree, history: &history, random, next, how };
            (0..how.steps).try_for_each(|_| worker.step())
        })
    });
    let mut threads: Vec<_> = threads.collect();
    if random.u8(..8) == 0 {
        // While operations run, the checker reports only problems that are never correct.
        let tree = tree.clone();
        threads.push(shuttle::thread::spawn(move || problems(&tree)));
    }
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    outcomes.into_iter().collect::<Result<(), String>>()?;
    end(&tree, &history, how)
}

fn problems<P: Numbered>(tree: &Tree<P>) -> Result<(), String> {
    let check = tree.check();
    if check.problems.is_empty() { Ok(()) } else { Err(format!("the tree is damaged: {:?}", check.problems)) }
}

/// The final checks. No thread uses the tree any more.
fn end<P: Numbered>(tree: &Tree<P>, history: &History, how: Use) -> Verdict {
    let check = tree.check();
    if !check.problems.is_empty() || !check.is_quiet {
        return Err(format!("in the end: {check:?}"));
    }
    for n in 0..KEYS {
        let found = tree.get(P::key(n).borrow()).map(|value| value_of::<P>(&value));
        history.found_after(n, found);
    }
    let weight = history.judge(|n| start(how, n))?;
    tree.reclaim();
    let stats = tree.stats();
    if stats.limbo_objects() != 0 || stats.limbo_bytes() != 0 || stats.retired_pids != stats.freed_pids {
        return Err(format!("something waits for nobody: {stats:?}"));
    }
    Ok(tally(weight.operations, weight.overlapping, &stats))
}

fn tally(operations: u64, overlapping: u64, stats: &Stats) -> Tally {
    Tally {
        executions: 1,
        operations,
        overlapping,
        splits: stats.splits,
        merges: stats.merges,
        root_changes: stats.root_splits + stats.root_shrinks,
        helped: stats.helped,
        failures: stats.update_failures
            + stats.consolidation_failures
            + stats.split_failures
            + stats.merge_failures
            + stats.structure_failures,
    }
}

/// Threads put to the same few keys. The last put of a key must be the one with the largest LSN.
fn execute_lsns(_how: Use) -> Verdict {
    let mut random = fastrand::Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let tree = Arc::new(Tree::<Words>::new(options(&mut random)).map_err(|error| error.to_string())?);
    let threads = (1..=THREADS).map(|thread| {
        let (tree, mut random) = (tree.clone(), random.fork());
        shuttle::thread::spawn(move || {
            let put = |step| {
                let (key, value) = (random.u64(..4), thread * 100 + step);
                (key, tree.put_with_lsn(&key, &value).unwrap(), value)
            };
            (0..6).map(put).collect::<Vec<_>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    let puts: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    for key in 0..4 {
        let last = puts.iter().filter(|put| put.0 == key).max_by_key(|put| put.1).map(|put| put.2);
        if tree.get(&key) != last {
            return Err(format!(
                "key {key} holds {:?}, the last LSN wrote {last:?}: {puts:?}",
                tree.get(&key)
            ));
        }
    }
    problems(&tree)?;
    let count = puts.len() as u64;
    Ok(tally(count, count, &tree.stats()))
}

/// Runs executions until the scheduler has no more, or one fails.
fn run(scheduler: impl Scheduler + 'static, how: Use, execution: fn(Use) -> Verdict) -> Verdict {
    let found = Arc::new(AtomicBool::new(false));
    let verdict = Arc::new(Mutex::new(Ok(Tally::default())));
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    // The seed is enough to repeat a failure.
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
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(format!("a thread panicked: {}", text.unwrap_or_default()))
        }
    }
}

/// Runs four fifths of the executions in bursts and one fifth by priorities.
fn campaign(name: &str, executions: u64, how: Use, execution: fn(Use) -> Verdict) -> Tally {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let mut total = Tally::default();
    let by_priorities = PctScheduler::new_from_seed(seed, 3, (executions / 5 * rounds) as usize);
    for verdict in [
        run(Bursts::new(seed, executions / 5 * 4 * rounds), how, execution),
        run(by_priorities, how, execution),
    ] {
        total.add(verdict.unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}")));
    }
    println!("{name}: {total:?}");
    assert!(total.executions >= executions, "{name}: {total:?}");
    assert!(total.overlapping > 2 * total.executions, "{name}: too few operations overlap: {total:?}");
    assert!(total.failures > 0, "{name}: no exchange failed: {total:?}");
    total
}

#[test]
fn what_everybody_is_told_of_words_can_be_explained() {
    let mut total = campaign("mixed", executions() / 5, MIXED, execute::<Words>);
    total.add(campaign("shrinking", executions() / 5, SHRINKS, execute::<Words>));
    println!("words: {total:?}");
    let every = [total.splits, total.merges, total.root_changes, total.helped];
    assert!(every.iter().all(|count| *count > total.executions / 50), "too little met: {total:?}");
}

#[test]
fn what_everybody_is_told_while_it_grows_can_be_explained() {
    let mut total = campaign("growing", executions() / 5, GROWS, execute::<Words>);
    total.add(campaign("growing, bytes", executions() / 10, GROWS, execute::<Bytes>));
    println!("growing: {total:?}");
    assert!(total.splits > total.executions, "too little was split: {total:?}");
}

/// Records of byte strings move between pages. Each must be freed once, and only when no thread can read it.
#[test]
fn what_everybody_is_told_of_bytes_can_be_explained() {
    let mut total = campaign("bytes", executions() / 5, MIXED, execute::<Bytes>);
    total.add(campaign("bytes, shrinking", executions() / 10, SHRINKS, execute::<Bytes>));
    total.add(campaign("bytes, churning", executions() / 10, CHURNS, execute::<Bytes>));
    println!("bytes: {total:?}");
    let every = [total.splits, total.merges, total.root_changes, total.helped];
    assert!(every.iter().all(|count| *count > total.executions / 50), "too little met: {total:?}");
}

#[test]
fn scans_and_lsns_can_be_explained() {
    campaign("scans", executions() / 20, SCANS, execute::<Words>);
    campaign("scans, bytes", executions() / 20, SCANS, execute::<Bytes>);
    campaign("LSNs", executions() / 10, MIXED, execute_lsns);
}

/// Maximum number of executions within which a fault must be detected.
const OMISSION_EXECUTIONS: u64 = 30_000;

#[test]
fn a_part_of_the_protocols_that_is_left_out_is_noticed() {
    let omissions: [(Omission, Use); 7] = [
        (Omission::Claim, MIXED),
        (Omission::Update, MIXED),
        (Omission::Consolidation, MIXED),
        (Omission::Structure, GROWS),
        (Omission::Validation, CHURNS),
        (Omission::Pins, SHRINKS),
        (Omission::Pids, CHURNS),
    ];
    let mut unnoticed = Vec::new();
    for (omission, how) in omissions {
        for (pairs, execution) in
            [("words", execute::<Words> as fn(Use) -> Verdict), ("bytes", execute::<Bytes>)]
        {
            omit(omission);
            let outcome = run(Bursts::new(0, OMISSION_EXECUTIONS), how, execution);
            omit(None);
            match outcome {
                Ok(tally) => unnoticed.push(format!("{omission:?}, {pairs}: {tally:?}")),
                Err(why) => {
                    println!("without {omission:?}, {pairs}: {}", why.lines().next().unwrap_or_default());
                }
            }
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
