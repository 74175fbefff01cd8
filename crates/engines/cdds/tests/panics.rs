//! A panic in the midst of a write ends all writes, holds no reader up, and loses nothing.

use crate::common::subject::{lives, mixed};
use crate::hash_common::subject as hashed;
use cdds::{Inlined, Recovery, Sorted, Unsorted};
use crash::{Subject, Workload, by_tier, panic_everywhere};
use index::{Keyed, Words};

/// So many operations of a workload panic, each at so many of its events at most.
fn panics<S: Subject>(workload: &Workload<S>) {
    let one_in = workload.steps.len().div_ceil(by_tier(4, 24));
    let tally = panic_everywhere(workload, one_in, 16).unwrap_or_else(|why| panic!("{why}"));
    println!("{} panics in {} operations", tally.panics, tally.operations);
    assert!(tally.panics > tally.operations, "{tally:?}");
}

#[test]
fn a_panic_at_any_event_ends_all_writes_and_is_recovered_from() {
    for recovery in [Recovery::Lazy, Recovery::Scan] {
        panics(&lives::<Words, Sorted>(3, recovery, 20));
        panics(&mixed::<Words, Sorted>(1, 2, recovery, 60, 14, 0));
        panics(&mixed::<Inlined, Sorted>(11, 2, recovery, 60, 14, 0));
        panics(&mixed::<Words, Unsorted>(3, 3, recovery, 60, 20, 0));
    }
}

#[test]
fn the_same_of_the_hash_table() {
    panics(&hashed::lives::<Words>(hashed::sizes(3, hashed::SCAN), 30));
    panics(&hashed::mixed::<Words>(1, hashed::sizes(2, hashed::LAZY), 60, 14, 0));
    panics(&hashed::mixed::<Keyed>(11, hashed::sizes(2, hashed::SCAN), 60, 14, 0));
}
