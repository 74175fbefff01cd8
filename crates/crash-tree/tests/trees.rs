//! The durable trees (for the indexes over a list see `lists.rs`) under the crash explorer, the short tier: the smallest nodes, where every operation splits or joins soon.
//! `bristlecone-lab crash` goes on: all node sizes, the mutation run, the canary.

use crash_tree::{Engine, Options, lists, suite};

/// States of each engine that its test may not fall below: what stopped being explored if it does?
const FLOORS: &[(&str, u64)] = &[
    ("wbtree", 44_000),
    ("wbtree-keyptr", 30_000),
    ("wbtree-bmp", 39_000),
    ("wbtree-slot", 39_000),
    ("wbtree-line", 42_000),
    ("btree-log", 158_000),
    ("unsorted-log", 145_000),
    ("ubmp-log", 141_000),
    ("btree-shadow", 99_000),
    ("unsorted-shadow", 97_000),
    ("ubmp-shadow", 97_000),
    ("trad-4k", 122_000),
    ("trad-4k-shadow", 116_000),
    ("cnt-4k", 116_000),
    ("bmp-4k", 102_000),
    ("wb-4k", 47_000),
    ("bmp-all-4k", 42_000),
    ("buffer-pool", 128_000),
];

fn explore(engine: Engine) -> u64 {
    let lines = suite::node_lines(engine)[0];
    let options = Options { ops: 60, node_lines: Some(lines), ..Options::new(engine) };
    let mut states = 0;
    for run in suite::exploration(&options) {
        let bounds = crash::Options { cap: 16, nested_cap: 2, samples: 2, ..run.bounds(1) };
        let report = run.explore(&bounds, None);
        assert!(!report.is_violated(), "{}, {}: {report}", engine.name(), run.name());
        states += report.images + report.nested_images;
    }
    states
}

fn explore_all(wanted: impl Fn(&str) -> bool) {
    for engine in Engine::all().filter(|engine| wanted(engine.name())) {
        let states = explore(engine);
        println!("{}: {states} states", engine.name());
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
fn every_durable_tree_has_a_test_above() {
    for engine in Engine::all().filter(|engine| !lists::has(engine.about())) {
        assert!(FLOORS.iter().any(|(name, _)| *name == engine.name()), "no floor for {}", engine.name());
    }
}
