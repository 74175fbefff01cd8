//! The durable trees and lists of leaves under the crash explorer, the short tier: the smallest nodes, where every operation splits or
//! joins soon.
//! `bristlecone-lab crash` goes on: all node sizes, the mutation run, the canary.

use crash_tree::{Engine, Options, suite};

const DEFAULT: &str = "wbtree";

/// States of each engine that its test may not fall below: what stopped being explored if it does?
const FLOORS: &[(&str, u64)] = &[
    ("wbtree", 36_600),
    ("wbtree-keyptr", 17_700),
    ("wbtree-bmp", 21_600),
    ("wbtree-slot", 21_700),
    ("wbtree-line", 23_000),
    ("btree-log", 160_000),
    ("unsorted-log", 99_500),
    ("ubmp-log", 83_000),
    ("btree-shadow", 48_400),
    ("unsorted-shadow", 48_300),
    ("ubmp-shadow", 47_900),
    ("trad-4k", 91_100),
    ("trad-4k-shadow", 77_700),
    ("cnt-4k", 91_000),
    ("bmp-4k", 91_900),
    ("wb-4k", 45_900),
    ("bmp-all-4k", 38_400),
    ("buffer-pool", 57_500),
    ("vlab", 9_000),
    ("nvtree", 4_500),
    ("toy", 4_500),
];

/// States, and crash points at which not all of them were tried.
fn explore(engine: Engine) -> (u64, u64) {
    let lines = suite::node_lines(engine)[0];
    // The default engine is explored most.
    let (ops, cap) = if engine.name() == DEFAULT { (40, 6) } else { (20, 3) };
    let options = Options { ops, node_lines: Some(lines), ..Options::new(engine) };
    let (mut states, mut sampled) = (0, 0);
    for run in suite::exploration(&options) {
        let bounds = crash::Options { cap, nested_cap: 1, samples: 1, ..run.bounds(1) };
        let report = run.explore(&bounds, None);
        assert!(!report.is_violated(), "{}, {}: {report}", engine.name(), run.name());
        states += report.images + report.nested_images;
        sampled += report.sampled_points + report.nested_sampled_points;
    }
    (states, sampled)
}

fn explore_all(wanted: impl Fn(&str) -> bool) {
    for engine in Engine::all().filter(|engine| wanted(engine.name())) {
        let (states, sampled) = explore(engine);
        println!("{}: {states} states; {sampled} crash points only sampled", engine.name());
        let floor = FLOORS.iter().find(|(name, _)| *name == engine.name()).map(|(_, floor)| *floor);
        assert!(
            Some(states) >= floor.or(Some(u64::MAX)),
            "{}: {states} states, floor {floor:?}",
            engine.name()
        );
    }
}

#[test]
fn no_crash_of_a_write_atomic_tree_loses_or_invents_anything() {
    explore_all(|name| name.starts_with("wbtree"));
}

#[test]
fn no_crash_of_a_logging_tree_loses_or_invents_anything() {
    explore_all(|name| name.ends_with("-log") || name == "buffer-pool");
}

#[test]
fn no_crash_of_a_shadowing_tree_loses_or_invents_anything() {
    explore_all(|name| name.ends_with("-shadow") && !name.contains("4k"));
}

#[test]
fn no_crash_of_a_tree_of_pages_loses_or_invents_anything() {
    explore_all(|name| name.contains("4k"));
}

#[test]
fn no_crash_of_a_list_of_leaves_loses_or_invents_anything() {
    explore_all(|name| matches!(name, "vlab" | "nvtree" | "toy"));
}

#[test]
fn every_durable_tree_has_a_test_above() {
    for engine in Engine::all() {
        assert!(FLOORS.iter().any(|(name, _)| *name == engine.name()), "no floor for {}", engine.name());
    }
}
