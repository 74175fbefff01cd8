//! The runs of an exploration are spread over several threads. The result depends only on the seed, not on the number of threads.

use crash::Stage;
use crash_tree::{Options, explore, suite};

#[test]
fn the_number_of_threads_changes_nothing_but_the_time() {
    let found = |threads| {
        let options =
            Options { ops: 15, node_lines: Some(2), threads, ..Options::new("wbtree".parse().unwrap()) };
        let stage = Stage { name: "runs", threads, say: &|_| {} };
        let bounds = |run: &suite::Run| crash::Options {
            cap: 2,
            nested_cap: 1,
            samples: 1,
            ..run.bounds(options.seed)
        };
        let mut explored = explore(&options, stage, bounds);
        explored.report.elapsed = std::time::Duration::ZERO;
        explored
    };
    let alone = found(1);
    assert!(alone.report.images > 0 && alone.violations.is_empty());
    assert_eq!(alone, found(3));
}
