//! The durable trees under the crash explorer, the short tier: nodes of two lines, where every operation splits or joins soon.
//! `bristlecone lab crash` goes on: all node sizes, the mutation run, the canary.

use lab::crash_tree::{Engine, Options, suite};

fn explore(engine: Engine, floor: u64) {
    let options = Options { ops: 100, node_lines: Some(2), ..Options::new(engine) };
    let mut states = 0;
    for run in suite::exploration(&options) {
        let bounds = crash::Options { cap: 32, nested_cap: 4, samples: 4, ..run.bounds(1) };
        let report = run.explore(&bounds, None);
        assert!(!report.is_violated(), "{}: {report}", run.name());
        states += report.images + report.nested_images;
    }
    println!("{}: {states} states", engine.name());
    assert!(
        states >= floor,
        "{states} states, fewer than the {floor} of before: what stopped being explored?"
    );
}

#[test]
fn no_crash_of_a_wbtree_loses_or_invents_anything() {
    explore(Engine::Wbtree, 74_000);
}

#[test]
fn no_crash_of_a_wbtree_of_key_pointers_loses_or_invents_anything() {
    explore(Engine::WbtreeKeyptr, 54_000);
}
