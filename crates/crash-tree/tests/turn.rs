//! The mutation run and the canary: of the default engine always, and of one other engine by turns.
//!
//! `BRISTLECONE_TURN` is a number that chooses the other engine; `cargo xtask test` takes it from the commit, so that all engines take
//! turns. `bristlecone-lab crash` does the same for any engine, after an exploration without caps for the short tier.

use crash::{Share, Stage};
use crash_tree::{Engine, Options, suite};

/// Mutants that survive, are not argued, and have to be looked into: how many of which engine. No other number passes.
const OPEN: &[(&str, usize)] = &[("buffer-pool", 10)];

/// Each flush, each of its lines, each fence and each sync is left out, each publish is stored before the fence in front of it, or in two
/// halves. Every time some image must break, or a sentence says why none can. The canary must be caught. Of the engine whose turn it is
/// whole flushes and fences, and the first publish after each: `bristlecone-lab crash` does the rest of it.
fn nothing_can_be_left_out(engine: Engine, share: Share) {
    let options = Options { share, threads: 1, ..Options::new(engine) };
    let report = suite::mutation(&options, |_| Stage::quiet());
    println!("{}: {} mutants; {report}", engine.name(), report.found());
    for (run, killed) in &report.kills {
        println!("  killed by {run}: {}", killed.len());
    }
    let open = OPEN.iter().find(|(name, _)| *name == engine.name()).map_or(0, |(_, open)| *open);
    let is_as_known = !report.base.is_violated() && report.stale.is_empty() && report.survived.len() == open;
    assert!(is_as_known, "{}, of which {open} mutants are known to survive: {report}", engine.name());
    let canary = suite::canary(engine, &report).unwrap();
    println!("canary of {}: {canary}", engine.name());
}

fn default_engine() -> Engine {
    Engine::all().next().expect("there are engines")
}

/// The engine whose turn it is, never the default one.
fn of_turn(turn: u64) -> Engine {
    let others: Vec<_> = Engine::all().skip(1).collect();
    others[(turn % others.len() as u64) as usize]
}

#[test]
fn nothing_of_the_default_engine_can_be_left_out() {
    nothing_can_be_left_out(default_engine(), Share::All);
}

#[test]
fn nothing_of_the_engine_whose_turn_it_is_can_be_left_out() {
    nothing_can_be_left_out(of_turn(crash::turn()), Share::Basic);
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
