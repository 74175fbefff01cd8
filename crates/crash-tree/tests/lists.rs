//! Mutants of VLAB and NV-Tree. Their crashes are explored in `trees.rs`; `bristlecone-lab crash` tries all mutants and goes deeper.

use crash::{Share, Stage};
use crash_tree::{Engine, Options, suite};

/// One mutant in so many is tried when nothing else is said; `bristlecone-lab crash` tries all.
const ONE_IN: usize = 3;

fn of(name: &str) -> Options {
    Options { threads: 1, ..Options::new(name.parse::<Engine>().unwrap()) }
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
fn nothing_of_vlab_can_be_left_out() {
    nothing_can_be_left_out("vlab", 77);
}

#[test]
fn nothing_of_an_nv_tree_can_be_left_out() {
    nothing_can_be_left_out("nvtree", 67);
}
