//! VLAB and NV-Tree under the crash explorer, the short tier: shorter random runs than those of `bristlecone lab crash`, all else as there;
//! and the mutation run.

use crash::Stage;
use crash_tree::{Engine, Options, explore, suite};

/// Operations of a random run.
const OPS: usize = 100;

fn of(name: &str) -> Options {
    Options { ops: OPS, threads: 1, ..Options::new(name.parse::<Engine>().unwrap()) }
}

/// Every crash point of the runs, and no fewer states than were explored before: may only be raised.
fn no_crash_breaks(name: &str, floor: u64) {
    let options = of(name);
    let stage = Stage { name: "runs", threads: options.threads, say: &|_| {} };
    let explored = explore(&options, stage, |run| run.bounds(options.seed));
    assert!(explored.violations.is_empty(), "{:?}", explored.violations);
    let states = explored.report.images + explored.report.nested_images;
    println!("{name}: {states} states at {} crash points", explored.report.crash_points);
    assert!(states >= floor, "{name}: {states} states, {floor} were explored before");
}

/// The reverse: each flush and each fence is left out, each publish is stored before the fence in front of it, or in two halves; every
/// time some image must break, or a sentence says why none can.
fn nothing_can_be_left_out(name: &str, killed: usize) {
    let options = of(name);
    let report = suite::mutation(&options, |_| Stage::quiet());
    println!("{name}: {report}");
    assert!(report.is_good(), "{report}");
    assert!(report.killed.len() >= killed, "{} mutants were killed, {killed} before", report.killed.len());
    suite::canary(options.engine, &report).unwrap();
}

#[test]
fn no_crash_of_vlab_loses_or_invents_anything() {
    no_crash_breaks("vlab", 1);
}

#[test]
fn no_crash_of_an_nv_tree_loses_or_invents_anything() {
    no_crash_breaks("nvtree", 1);
}

#[test]
fn nothing_of_vlab_can_be_left_out() {
    nothing_can_be_left_out("vlab", 46);
}

#[test]
fn nothing_of_an_nv_tree_can_be_left_out() {
    nothing_can_be_left_out("nvtree", 47);
}
