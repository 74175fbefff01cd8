//! Tests of the line engine: costs, and the directory of large lists. Contents, crashes, damage, schedules, snapshots and journals are tested
//! for every engine of the registry.

mod cost;
mod loading;
mod model;
mod scans;

use std::sync::Arc;

use index::{Create, Form};
use line::Line;
use pmem::{Counter, Durability, Memory, Observed};

/// The production settings.
fn form(lines: u64) -> Form {
    Form::new(line::ENGINE, lines, Durability::Power)
}

/// Observed memory and its counter.
fn observed() -> (Observed, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    (Observed::new(Memory::new(64 << 20, 0), Arc::clone(&counter) as Arc<_>), counter)
}

/// An empty index in observed memory, and its counter.
fn counted<S: index::Schema>(lines: u64) -> (Line<Observed, S>, Arc<Counter>) {
    let (medium, counter) = observed();
    (Line::create(medium, &form(lines)).unwrap(), counter)
}
