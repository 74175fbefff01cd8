//! A panic during a write ends all writes, blocks no reader and loses nothing.

use crate::common::subject::{LAZY, SCAN, lives, mixed, sizes};
use cdds::hash::Hashed;
use cdds::{Inlined, Ordered, Unsorted};
use crash::{Subject, Workload, by_tier, panic_everywhere};
use index::{Keyed, Words};

/// Injects panics into a sample of the operations of a workload, each at a bounded number of its events.
fn panics<S: Subject>(workload: &Workload<S>) {
    let one_in = workload.steps.len().div_ceil(by_tier(4, 24));
    let tally = panic_everywhere(workload, one_in, 16).unwrap_or_else(|why| panic!("{why}"));
    println!("{} panics in {} operations", tally.panics, tally.operations);
    assert!(tally.panics > tally.operations, "{tally:?}");
}

#[test]
fn a_panic_at_any_event_ends_all_writes_and_is_recovered_from() {
    for recovery in [LAZY, SCAN] {
        panics(&lives::<Ordered<Words>>(sizes(3, recovery), 20));
        panics(&mixed::<Ordered<Words>>(1, sizes(2, recovery), 60, 14, 0));
        panics(&mixed::<Ordered<Inlined>>(11, sizes(2, recovery), 60, 14, 0));
        panics(&mixed::<Ordered<Words, Unsorted>>(3, sizes(3, recovery), 60, 20, 0));
    }
}

#[test]
fn the_same_of_the_hash_table() {
    panics(&lives::<Hashed<Words>>(sizes(3, SCAN), 30));
    panics(&mixed::<Hashed<Words>>(1, sizes(2, LAZY), 60, 14, 0));
    panics(&mixed::<Hashed<Keyed>>(11, sizes(2, SCAN), 60, 14, 0));
}
