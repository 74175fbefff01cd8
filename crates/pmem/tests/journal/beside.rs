//! Power cuts and failing calls while a second thread makes checkpoints. The order of the threads decides which call fails; the
//! requirements do not depend on it. After a failed sync of one thread, a successful sync of the other thread must not make dropped writes
//! count as durable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::life::{End, Oracle, program};
use crash::{Fault, Machine, Survivors, by_tier, seeds};

/// Ends the checkpoint thread, also after a failed assertion.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs a program beside a checkpoint thread, then cuts the power. Acknowledged writes are present. Returns whether the run was disturbed,
/// and the number of checkpoints of the thread.
fn run_beside(machine: &Machine, seed: u64, name: &str) -> (bool, u64) {
    let mut oracle = Oracle::new();
    let mut checkpoints = 0;
    let disturbed = match oracle.create(machine) {
        Err(_) => true,
        Ok(journal) => {
            let done = AtomicBool::new(false);
            let outcome = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let mut checkpoints = 0;
                    while !done.load(Ordering::Acquire) {
                        match journal.wait_until_due(Duration::from_millis(1)) {
                            Ok(true) => checkpoints += u64::from(matches!(journal.checkpoint(), Ok(Some(_)))),
                            Ok(false) => {}
                            Err(_) => break,
                        }
                    }
                    checkpoints
                });
                let ends = Ends(&done);
                let outcome = oracle.run(&journal, &program(seed, 60));
                drop(ends);
                checkpoints = thread.join().unwrap();
                outcome
            });
            if let Err(End::Broken(what)) = &outcome {
                panic!("{name}: {what}");
            }
            outcome.is_err() || journal.has_failed()
        }
    };
    for survivors in [Survivors::None, Survivors::All, Survivors::Random(seed), Survivors::Random(seed + 1)] {
        if let Err(end) = oracle.clone().open(&machine.after_power_cut(survivors)) {
            panic!("{name} {survivors:?}: {end:?}");
        }
    }
    (disturbed, checkpoints)
}

#[test]
fn cuts_and_failures_beside_a_checkpoint_thread_lose_nothing_acknowledged() {
    let (mut disturbed, mut checkpoints) = (0, 0);
    for seed in seeds(70, 200) {
        let machine = Machine::new(seed);
        machine.make_slow();
        let at = seed * 7 % 290 + 1;
        match seed % 3 {
            0 => machine.cut_at(at),
            1 => machine.fail_at(at, Fault::Eio),
            _ => machine.fail_at(at, Fault::ShortThenEio),
        }
        let (was, made) = run_beside(&machine, seed, &format!("seed {seed}"));
        (disturbed, checkpoints) = (disturbed + u64::from(was), checkpoints + made);
    }
    println!("beside a checkpoint thread: {disturbed} runs disturbed, {checkpoints} checkpoints");
    assert!(disturbed > by_tier(30, 100) && checkpoints > 0);
}
