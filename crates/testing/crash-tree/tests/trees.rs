//! Crash exploration of the durable trees and lists of leaves, in its short form: only the smallest nodes, which split and merge after few
//! operations. `bristlecone-lab crash` is the complete form: all node sizes, the mutation run, the injected fault.

use crash_tree::{Engine, Options, suite};

/// The engines that are explored most.
const MOST: [&str; 2] = ["line", "wbtree"];

/// Minimum number of states in the test of each engine. A lower count means that a part is no longer explored.
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
    ("line", 10_600),
];

/// Minimum number of states for engines that [`FLOORS`] does not list: those of the general suite.
const FLOOR_OF_OTHERS: u64 = 3_000;

/// Returns the number of states, and of crash points whose images were only sampled.
fn explore(engine: Engine) -> (u64, u64) {
    let lines = suite::node_lines(engine)[0];
    let (ops, cap) = if MOST.contains(&engine.name()) { (40, 6) } else { (20, 3) };
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
        let recorded = FLOORS.iter().find(|(name, _)| *name == engine.name());
        let floor = recorded.map_or(FLOOR_OF_OTHERS, |(_, floor)| *floor);
        assert!(states >= floor, "{}: {states} states, floor {floor}", engine.name());
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

/// Lists of leaves, and all other registered engines.
#[test]
fn no_crash_of_another_engine_loses_or_invents_anything() {
    explore_all(is_no_tree);
}

fn is_no_tree(name: &str) -> bool {
    !bptree::roster::TREES.iter().any(|tree| tree.name == name)
}

#[test]
fn every_durable_engine_has_a_test_above_and_every_tree_a_floor() {
    for engine in Engine::all().filter(|engine| !is_no_tree(engine.name())) {
        assert!(FLOORS.iter().any(|(name, _)| *name == engine.name()), "no floor for {}", engine.name());
    }
    assert!(Engine::all().any(|engine| engine.name() == "toy"), "what is registered is explored");
}
