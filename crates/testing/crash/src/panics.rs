//! Panics at the N-th store, flush or fence of an operation, for every N or for a sample of them.
//!
//! A panic during a write is a defect by itself. This test judges its consequences: the subject refuses later writes, readers do not wait
//! for the unfinished write, and recovery of the memory yields the contents before the operation or after it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pmem::{Counter, Event, Memory, Observed, Observer};

use crate::erased::{AnyOp, AnyWorkload};
use crate::subject::{Contents, Step, Subject, Workload};

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of operations that were tried with panics at their events.
    pub operations: u64,
    /// Number of panics.
    pub panics: u64,
}

/// Panics at the events of one operation in `one_in`, counted from the last one. An operation with more than `panics` events panics at
/// about `panics` of them.
///
/// # Errors
/// The panic after which a write was accepted or recovery found wrong contents; a panic that the subject swallowed; an error of the
/// subject.
pub fn panic_everywhere<S: Subject>(
    workload: &Workload<S>,
    one_in: usize,
    panics: u64,
) -> Result<Tally, String> {
    everywhere(&AnyWorkload::of(workload), one_in, panics)
}

fn everywhere(work: &AnyWorkload, one_in: usize, panics: u64) -> Result<Tally, String> {
    let steps: Vec<&AnyOp> = work.steps.iter().map(Step::op).collect();
    let mut tally = Tally::default();
    for number in (0..steps.len()).rev().step_by(one_in) {
        let attempt = |nth| {
            let told =
                |why| format!("{}: panic {nth} of {}: {why}", work.config.name(), steps[number].name());
            attempt(work, &steps[..number], steps[number], nth).map_err(told)
        };
        tally.operations += 1;
        let Outcome::Passed(events) = attempt(u64::MAX)? else { continue };
        for nth in (1..=events).step_by(events.div_ceil(panics).max(1) as usize) {
            tally.panics += u64::from(attempt(nth)? == Outcome::Panicked);
        }
    }
    Ok(tally)
}

/// The outcome of an operation.
#[derive(PartialEq, Eq)]
enum Outcome {
    /// No panic. Holds the number of the operation's events.
    Passed(u64),
    Panicked,
}

fn attempt(work: &AnyWorkload, done: &[&AnyOp], op: &AnyOp, nth: u64) -> Result<Outcome, String> {
    let (len, capacity) = work.config.size();
    let memory = Memory::new(capacity, len);
    let bomb = Arc::new(Bomb::default());
    let mut subject = work.config.create(Observed::new(Arc::clone(&memory), bomb.clone()))?;
    let mut before = Contents::new();
    for op in work.prepare.iter().chain(done.iter().copied()) {
        subject.apply(&**op)?;
        op.apply_model(&mut before);
    }
    bomb.left.store(nth, Ordering::Relaxed);
    let outcome = catch_unwind(AssertUnwindSafe(|| subject.apply(&**op)));
    let events = nth - bomb.left.swap(0, Ordering::Relaxed);
    match outcome {
        Ok(outcome) if !bomb.went_off.load(Ordering::Relaxed) => {
            return outcome.map(|()| Outcome::Passed(events));
        }
        Ok(_) => return Err("the panic was swallowed".into()),
        Err(_) => {}
    }
    let mut after = before.clone();
    op.apply_model(&mut after);
    // An operation that changes nothing may return success.
    let changes = |next: &AnyOp| {
        [&before, &after].into_iter().all(|contents| {
            let mut then = contents.clone();
            next.apply_model(&mut then);
            then != *contents
        })
    };
    for next in op.continuation().iter().filter(|next| changes(next)) {
        if let Ok(Ok(())) = catch_unwind(AssertUnwindSafe(|| subject.apply(&**next))) {
            return Err(format!("{} was taken after it", next.name()));
        }
    }
    // Readers may get an error, but they must return.
    let _ = catch_unwind(AssertUnwindSafe(|| subject.verify()));
    drop(subject);
    let found = work.config.recover(Observed::new(memory, Arc::new(Counter::default())))?.verify()?;
    if found == before || found == after || op.is_divisible() {
        Ok(Outcome::Panicked)
    } else {
        Err(format!("found {found:?}, neither the state before nor the state after it"))
    }
}

/// Panics when `left` events have passed.
#[derive(Default)]
struct Bomb {
    /// 0: never.
    left: AtomicU64,
    went_off: AtomicBool,
}

impl Observer for Bomb {
    fn event(&self, _: Event) {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        self.left.store(left - 1, Ordering::Relaxed);
        if left == 1 {
            self.went_off.store(true, Ordering::Relaxed);
            // This panic prints nothing.
            resume_unwind(Box::new("planned"));
        }
    }
}
