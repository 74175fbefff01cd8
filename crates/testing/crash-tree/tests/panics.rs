//! After a panic during a write, the index refuses all later writes. The panic blocks no reader and loses no data.

use crash::by_tier;
use crash_tree::{Engine, suite};

/// Once, the next write was accepted. It could free a record that was still referenced, and readers of a node under change waited forever.
#[test]
fn a_panic_at_any_event_ends_all_writes_and_is_recovered_from() {
    let operations = by_tier(2, 12);
    for engine in Engine::all() {
        let tally =
            suite::panics(engine, operations).unwrap_or_else(|why| panic!("{}: {why}", engine.name()));
        println!("{}: {} panics in {} operations", engine.name(), tally.panics, tally.operations);
        assert!(tally.panics > 2 * tally.operations, "{tally:?}");
    }
}
