//! Tests of the line engine: costs, sessions, and the directory of large lists. Contents, crashes, damage, schedules, snapshots and
//! journals are tested for every engine of the registry.

mod cost;
mod loading;
mod model;
mod scans;
mod sessions;

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
    observed_of(64 << 20)
}

/// Observed memory of this many bytes, and its counter.
fn observed_of(bytes: u64) -> (Observed, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    (Observed::new(Memory::new(bytes, 0), Arc::clone(&counter) as Arc<_>), counter)
}

/// An empty index in observed memory, and its counter.
fn counted<S: index::Schema>(lines: u64) -> (Line<Observed, S>, Arc<Counter>) {
    let (medium, counter) = observed();
    (Line::create(medium, &form(lines)).unwrap(), counter)
}
