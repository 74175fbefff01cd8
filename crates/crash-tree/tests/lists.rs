//! VLAB and NV-Tree under the crash explorer: all of what `bristlecone-lab crash` does, as tests.

use crash::{Share, Stage};
use crash_tree::{Engine, Options, explore, suite};

/// One mutant in so many is tried when nothing else is said; `lab crash` tries all.
const ONE_IN: usize = 3;

fn of(name: &str) -> Options {
    Options { threads: 1, ..Options::new(name.parse::<Engine>().unwrap()) }
}

/// Every crash point of the runs, and no fewer states than the engine's floor.
fn no_crash_breaks(name: &str) {
    let options = of(name);
    let stage = Stage { name: "runs", threads: options.threads, say: &|_| {} };
    let explored = explore(&options, stage, |run| run.bounds(options.seed));
    assert!(explored.violations.is_empty(), "{:?}", explored.violations);
    let states = explored.report.images + explored.report.nested_images;
    println!("{name}: {states} states at {} crash points", explored.report.crash_points);
    let floor = options.floor();
    assert!(floor > 0 && states >= floor, "{name}: {states} states, floor {floor}");
}

/// The reverse: each flush and each fence is left out, each publish is stored before the fence in front of it, or in two halves; every
/// time some image must break, or a sentence says why none can.
///
/// One mutant in [`ONE_IN`] is tried, and the canary; `found` mutants there are.
fn nothing_can_be_left_out(name: &str, found: usize) {
    let share = Share::of_environment(ONE_IN);
    let options = Options { share: share.clone(), ..of(name) };
    let report = suite::mutation(&options, |_| Stage::quiet());
    println!("{name}, {share}: {} mutants; {report}", report.found());
    assert!(report.is_good(), "{report}");
    assert!(report.found() >= found, "{} mutants, {found} before", report.found());
    suite::canary(options.engine, &report).unwrap();
}

#[test]
fn no_crash_of_vlab_loses_or_invents_anything() {
    no_crash_breaks("vlab");
}

#[test]
fn no_crash_of_an_nv_tree_loses_or_invents_anything() {
    no_crash_breaks("nvtree");
}

#[test]
fn nothing_of_vlab_can_be_left_out() {
    nothing_can_be_left_out("vlab", 77);
}

#[test]
fn nothing_of_an_nv_tree_can_be_left_out() {
    nothing_can_be_left_out("nvtree", 67);
}
