//! The mutation run (every flush and fence is left out in turn, and the explorer must find an error) and the injected fault. Each test run
//! covers the default engine and one other engine.
//!
//! `BRISTLECONE_TURN` is a number that selects the other engine. `cargo xtask test` derives it from the git commit, so that all engines
//! take turns. `bristlecone-lab crash` does both for any engine, after an exploration with higher limits of images than the suite `trees`.

use crash::{Share, Stage};
use crash_tree::{Engine, Options, suite};

/// Tries the mutants of `share`. A mutant leaves out a flush, a line of a flush, a fence or a sync, or it stores a publish before the
/// preceding fence or in two halves. Some image must have a violation, or the mutant must have a reason. The injected fault must be killed.
fn nothing_can_be_left_out(engine: Engine, share: Share) {
    let options = Options { share, threads: 1, ..Options::new(engine) };
    let report = suite::mutation(&options, |_| Stage::quiet());
    println!("{}: {} mutants; {report}", engine.name(), report.found());
    for (run, killed) in &report.kills {
        println!("  killed by {run}: {}", killed.len());
    }
    assert!(report.is_good(), "{}: {report}", engine.name());
    let injected_fault = suite::injected_fault(engine, &report).unwrap();
    println!("injected fault of {}: {injected_fault}", engine.name());
}

fn default_engine() -> Engine {
    bristlecone::registry::DEFAULT.parse().expect("the default engine is explored")
}

fn others() -> impl Iterator<Item = Engine> {
    Engine::all().filter(|engine| engine.name() != default_engine().name())
}

/// The engine of this turn, never the default one.
fn of_turn(turn: u64) -> Engine {
    let others: Vec<_> = others().collect();
    others[(turn % others.len() as u64) as usize]
}

#[test]
fn nothing_of_the_default_engine_can_be_left_out() {
    // For the other engines, only a soak tries these other kinds. For the default engine, half of them at each change.
    let share = Share::Turns { basic: 1, others: 2, turn: crash::turn() };
    nothing_can_be_left_out(default_engine(), share);
}

#[test]
fn nothing_of_the_engine_whose_turn_it_is_can_be_left_out() {
    // Half of the mutants at one turn of the engine, the other half at its next turn.
    let turn = crash::turn();
    let share = Share::Turns { basic: 2, others: 0, turn: turn / others().count() as u64 };
    nothing_can_be_left_out(of_turn(turn), share);
}

#[test]
fn every_other_engine_has_its_turn() {
    let engines = Engine::all().count() as u64;
    let mut chosen: Vec<_> = (0..engines - 1).map(|turn| of_turn(turn).name()).collect();
    chosen.push(default_engine().name());
    chosen.sort_unstable();
    let mut all: Vec<_> = Engine::all().map(Engine::name).collect();
    all.sort_unstable();
    assert_eq!(chosen, all);
}
