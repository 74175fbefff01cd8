//! A writer, a collector and readers on real threads: a reader sees only the contents of its version.
//!
//! Former defects:
//! * A rollback checked which versions are kept, and then committed. A cursor that began in between kept a version that was then dead.
//! * On the way down, a reader validated the root before it had read a child. When the root and then that child had been freed, it read the
//!   child's reused block.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::beside::{Kinds, Numbered, Reader, Record, Writer};
use crate::common::options;
use cdds::Inlined;
use cdds::{Options, Order, Sorted, Tree, Unsorted};
use crash::History;
use index::Words;
use pmem::{Durability, Native};

const READERS: u64 = 3;
/// Number of reads per reader.
const LOOKS: usize = 150;
/// Maximum number of changes that the writer may be ahead of the reads.
const AHEAD: usize = 10;

/// Returns the first error, if there is one.
fn beside<S: Numbered, O: Order>(seed: u64, lines: u64, kinds: Kinds) -> Result<(), String> {
    let medium = Native::anonymous(64 << 20, Durability::Power).map_err(|error| error.to_string())?;
    let options = Options { stripes: 16, ..options(lines) };
    let tree = Tree::<_, S, O>::create(medium, &options).map_err(|error| error.to_string())?;
    let history = History::default();
    let record = Record::new(&history, tree.version());
    let (done, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let all = READERS as usize * LOOKS;
    let goes_on = || done.load(Ordering::Relaxed) < all && !failed.load(Ordering::Relaxed);
    let fails = |outcome: Result<(), String>| {
        failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
        outcome
    };
    let outcomes = thread::scope(|scope| {
        let mut threads = Vec::new();
        for reader in 0..READERS {
            let (tree, record, done) = (&tree, &record, &done);
            let random = fastrand::Rng::with_seed(seed << 8 | reader);
            threads.push(scope.spawn(move || {
                let mut reader = Reader { tree, record, random, kinds };
                let outcome = (0..LOOKS).try_for_each(|_| {
                    let outcome = reader.step(thread::yield_now);
                    done.fetch_add(1, Ordering::Relaxed);
                    outcome
                });
                fails(outcome)
            }));
        }
        threads.push(scope.spawn(|| {
            while goes_on() {
                fails(tree.collect_some(3).map(drop).map_err(|error| error.to_string()))?;
                thread::sleep(Duration::from_micros(50));
            }
            Ok(())
        }));
        let mut writer = Writer::new(&tree, &record, fastrand::Rng::with_seed(seed), kinds);
        let mut changes = 0;
        let mut outcome = Ok(());
        while goes_on() && outcome.is_ok() {
            if changes > AHEAD * (1 + done.load(Ordering::Relaxed)) {
                thread::sleep(Duration::from_micros(50));
                continue;
            }
            outcome = fails(writer.step());
            changes += 1;
        }
        let mut outcomes = vec![outcome];
        outcomes.extend(threads.into_iter().map(|thread| thread.join().expect("a thread panicked")));
        outcomes
    });
    outcomes.into_iter().find(Result::is_err).unwrap_or(Ok(()))?;
    record.judge()?;
    let weight = history.judge(|_| None)?;
    println!(
        "{} looks, {} versions, {} of {} operations on keys overlap",
        record.looks(),
        record.versions(),
        weight.overlapping,
        weight.operations
    );
    let problems = tree.check().problems;
    problems.first().map_or(Ok(()), |problem| Err(format!("the tree is damaged: {problem}")))
}

fn all<S: Numbered, O: Order>() {
    for (seed, lines) in [(1, 2), (2, 2), (3, 3), (4, 4)] {
        for rolls_back in [false, true] {
            let kinds = Kinds { rolls_back, stays: true };
            beside::<S, O>(seed, lines, kinds)
                .unwrap_or_else(|why| panic!("{}, seed {seed}, {lines} lines, {kinds:?}: {why}", O::ENGINE));
        }
    }
}

#[test]
fn readers_of_words_see_their_version_beside_a_writer() {
    all::<Words, Sorted>();
    all::<Words, Unsorted>();
}

#[test]
fn readers_of_byte_strings_see_their_version_beside_a_writer() {
    all::<Inlined, Sorted>();
    all::<Inlined, Unsorted>();
}

/// An injected fault must be detected.
#[test]
fn a_reader_that_does_not_stay_at_its_version_is_noticed() {
    let why = beside::<Words, Sorted>(1, 2, Kinds { rolls_back: false, stays: false }).unwrap_err();
    assert!(why.contains("at no version"), "{why}");
}
