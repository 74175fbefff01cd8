//! Repeats the batches of the figures on a small tree, and counts the tree's accesses to durable memory.
//!
//! A read counts as a line read if it accesses another line than the previous read. Here a search compares keys one by one, but on a native
//! medium it may compare eight keys at a time. So the number of lines read gives only the order of magnitude.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pmem::{Counter, Durability, Event, Memory, Observed, Observer};

use super::Batch;
use super::figure::{Plan, Sample, Subject};
use crate::measured::Making;
use crate::{Error, wrong};

/// Average counts of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Costs {
    /// Words stored.
    pub words: f64,
    /// Lines flushed.
    pub flushes: f64,
    /// Fences.
    pub fences: f64,
    /// Lines read. See the module's head.
    pub lines_read: f64,
}

/// Counts the accesses to an observed medium.
#[derive(Default)]
pub(super) struct Tally {
    counter: Counter,
    last: AtomicU64,
    lines: AtomicU64,
}

impl Observer for Tally {
    fn read(&self, line: u64) {
        if self.last.swap(line, Ordering::Relaxed) != line {
            self.lines.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn event(&self, event: Event) {
        self.counter.event(event);
    }
}

impl Tally {
    /// Counts since the last call, divided by this number of operations.
    pub(super) fn take(&self, operations: u64, durable: bool) -> Costs {
        let (counts, lines) = (self.counter.take(), self.lines.swap(0, Ordering::Relaxed));
        let each = |number: u64| number as f64 / operations as f64;
        // The medium of a volatile tree does not execute flushes and fences.
        let carried_out = |number| if durable { each(number) } else { 0.0 };
        Costs {
            words: each(counts.words),
            flushes: carried_out(counts.flushes),
            fences: carried_out(counts.fences_total()),
            lines_read: each(lines),
        }
    }
}

/// Counts every batch of one tree.
///
/// # Errors
/// The same errors as a measurement of the tree.
pub fn count<K: Sample>(
    subject: &Subject,
    node_lines: u64,
    plan: &Plan<K>,
) -> Result<Vec<(Batch, Costs)>, Error> {
    let mut seen = Vec::new();
    let capacity = (16 << 20) + plan.keys.len() as u64 * 1024;
    for fill in [0.7, 1.0] {
        let tally = Arc::new(Tally::default());
        let medium = Observed::new(Memory::new(capacity, 0), Arc::clone(&tally) as Arc<dyn Observer>);
        let making = Making {
            name: subject.name.into(),
            medium,
            node_lines,
            durability: Durability::Power,
            payload_words: 1,
        };
        let mut tree = K::make(subject, making)?;
        if tree.load(&plan.keys, fill)? != plan.keys.len() as u64 {
            return Err(wrong(subject.name, "load: not all keys".into()));
        }
        let draw = plan.draw(0);
        let batches = if fill < 1.0 { &draw.at_70()[..] } else { &draw.at_100()[..] };
        for (batch, keys, operation) in batches {
            tally.take(1, true);
            operation.run(tree.as_mut(), keys)?;
            let costs = tally.take(keys.len() as u64, subject.about().durable);
            seen.extend(batch.map(|batch| (batch, costs)));
        }
    }
    Ok(seen)
}
