//! Mutation testing of a toy: every mutant is killed or has a reason.

use crate::toys::{Flaw, Pair, Set};
use crash::{
    Argued, Kind, Options, Spot, Stage, Trial, Workload, explore, explore_mutant, injected_fault,
    interrupted, random, run_mutants,
};
use pmem::Fence;

const SOURCE: &str = include_str!("toys/mod.rs");

const fn spot(kind: Kind, contains: &'static str) -> Spot {
    Spot { kind, file_suffix: "toys/mod.rs", source: SOURCE, contains }
}

const ARGUED: [Argued; 1] = [Argued {
    spot: spot(Kind::SplitPublish, "[magic]"),
    why: "a half magic word is not the magic word: recovery says never created, as it would without it",
}];

fn workloads() -> Vec<Workload<Pair>> {
    let mut cut = Workload::new(Flaw::None, []);
    cut.steps = interrupted(5, 3, random(5, 40, |rng| Set(rng.u64(1..100), rng.u64(1..100))));
    vec![Workload::new(Flaw::None, [Set(1, 2), Set(3, 4), Set(5, 6)]), cut]
}

fn trials() -> Vec<Trial> {
    workloads().into_iter().map(|workload| Trial::of("toy", Options::default(), workload)).collect()
}

#[test]
fn every_mutant_of_the_toy_is_killed_or_argued() {
    let report = run_mutants(&trials(), &ARGUED, |_| Stage::quiet());
    println!("{report}");
    assert!(report.is_good(), "{report}");
    let killed =
        |wanted: fn(&Kind) -> bool| report.killed.iter().filter(|(mutant, _)| wanted(&mutant.kind)).count();
    // Create 1; apply: payload 2 and commit 1; home 2 and empty 1 are shared with recovery.
    assert_eq!(killed(|kind| *kind == Kind::DropFlush), 7);
    // Create 1, apply 4, recovery 2.
    assert_eq!(killed(|kind| matches!(kind, Kind::DropFence(_))), 7);
    // The commit word, and the emptied log (one site for apply and recovery). The same two are split.
    assert_eq!(killed(|kind| *kind == Kind::SwapPublish), 2);
    assert_eq!(killed(|kind| *kind == Kind::SplitPublish), 2);
    assert_eq!(report.argued.len(), 1);
}

#[test]
fn a_mutant_that_nothing_catches_is_a_survivor_and_a_needless_argument_is_stale() {
    let needless =
        Argued { spot: spot(Kind::DropFence(Fence::Payload), "[payload before commit]"), why: "none" };
    let report = run_mutants(&trials(), &[needless], |_| Stage::quiet());
    assert!(!report.is_good());
    assert_eq!(report.survived.len(), 1);
    assert_eq!(report.survived[0].kind, Kind::SplitPublish);
    assert_eq!(report.stale.len(), 1);
}

#[test]
fn mutants_inside_recovery_live_on_without_nested_crashes_and_cut_steps() {
    let whole = &workloads()[..1];
    let base = explore(&whole[0], &Options::default());
    let fence = spot(Kind::DropFence(Fence::Checkpoint), "[recovery: home before empty]").find(&base);
    assert_eq!(fence.len(), 1);
    assert!(explore_mutant(&whole[0], &Options::default(), Some(fence[0])).is_violated());
    let flat = Options { nested: false, ..Options::default() };
    assert!(!explore_mutant(&whole[0], &flat, Some(fence[0])).is_violated());
}

#[test]
fn an_injected_fault_is_detected() {
    let commit = spot(Kind::DropFence(Fence::Commit), "[commit before home]");
    let caught = injected_fault(&workloads(), &Options::default(), &commit).expect("caught");
    assert_eq!(caught.len(), 1);
    assert!(caught[0].mutant.is_some_and(|mutant| commit.matches(&mutant)));
    assert!(caught[0].reproduction().contains("DropFence(Commit)"), "{}", caught[0]);
}

#[test]
fn a_fault_that_survives_is_an_error_and_so_is_one_that_names_nothing() {
    let lives = injected_fault(&workloads(), &Options::default(), &ARGUED[0].spot);
    assert!(lives.expect_err("it lives").contains("not caught"));
    let nothing = spot(Kind::DropFence(Fence::Guard), "[commit before home]");
    assert!(
        injected_fault(&workloads(), &Options::default(), &nothing)
            .expect_err("no guard fence")
            .contains("Guard")
    );
}
