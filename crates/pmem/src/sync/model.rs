//! Runs models under loom: counts their executions, or injects a fault. Only under `cfg(loom)`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::omission::{Omission, omit};

/// Explores a model with two preemptions, or with `LOOM_MAX_PREEMPTIONS`. Returns the number of executions.
pub fn explored(model: impl Fn() + Send + Sync + 'static) -> u64 {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    let executions = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&executions);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("{executions} executions");
    executions
}

/// Explores a model with an injected fault: some execution must fail.
pub fn is_noticed(omission: Omission, model: fn()) {
    omit(omission);
    let outcome = catch_unwind(AssertUnwindSafe(model));
    omit(None);
    assert!(outcome.is_err(), "without {omission:?} all is well");
    println!("without {omission:?}: noticed");
}
