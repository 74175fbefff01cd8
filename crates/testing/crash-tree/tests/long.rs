//! Long random runs of the durable trees: a few images at every crash point, to test the state after many operations. The tests in
//! `trees.rs` are shorter. `cargo xtask soak` runs `bristlecone-lab crash` with 100,000 operations.

use crash::{by_tier, has_turn};
use crash_tree::{Engine, Options, suite};

const OPS: usize = 1200;

fn explore(engine: &str, node_lines: &[u64]) {
    let engine: Engine = engine.parse().unwrap();
    for &lines in node_lines {
        let options = Options { ops: OPS, node_lines: Some(lines), ..Options::new(engine) };
        let runs = suite::exploration(&options);
        let long: Vec<_> = runs.iter().filter(|run| run.name().ends_with(": random")).collect();
        assert!(!long.is_empty());
        for run in long {
            let report = run.explore(&run.bounds(options.seed), None);
            assert!(!report.is_violated(), "{}: {report}", run.name());
            assert!(report.crash_points as usize > options.ops, "every operation is crashed into: {report}");
            assert!(report.nested_points > 0, "recovery too: {report}");
        }
    }
}

#[test]
fn no_crash_in_a_long_life_of_a_wbtree_loses_or_invents_anything() {
    explore("wbtree", by_tier(&[2, 3][..], &[2, 3, 16]));
}

/// The engines take turns.
#[test]
fn no_crash_in_a_long_life_of_a_tree_with_another_commit_protocol_loses_or_invents_anything() {
    let engines: [(&str, &[u64]); 5] = [
        ("wbtree-keyptr", by_tier(&[2, 3][..], &[2, 3, 16])),
        ("btree-log", &[2]),
        ("ubmp-shadow", &[2]),
        ("wbtree-slot", &[2]),
        ("bmp-4k", &[3]),
    ];
    for (member, (engine, node_lines)) in (0..).zip(engines) {
        if has_turn(member, 5) {
            explore(engine, node_lines);
        }
    }
}
