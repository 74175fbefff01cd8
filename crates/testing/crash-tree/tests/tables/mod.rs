//! Crash exploration of tables and deadlines (`index::tables`) over `wbtree` and `cdds`: after a crash in any operation, all of its changes
//! are present or none is, every deadline has its entry, and the counts are exact. Each flush, fence and publish is needed, or has an
//! argument (`mutants`).

#[path = "../../../../engines/cdds/tests/common/argued.rs"]
mod argued_of_cdds;
mod mutants;
mod subject;

use bristlecone::registry;
use crash::{Workload, by_tier, explore};
use index::{About, Family, Visitor};
use pmem::{Geometry, Observed};

use mutants::{Mutate, assert_all_are_killed_or_argued};
use subject::{Op, Sizes, Tabled};

/// The usual sizes, with nodes of this many lines.
fn sizes(lines: u64) -> Sizes {
    Sizes { lines, geometry: Geometry::tiny(), len: 0 }
}

/// Every operation, in states where it has something to do.
fn life() -> Vec<Op> {
    vec![
        Op::Put("", 1, None),
        Op::Put("", 2, Some(5)),
        Op::Put("", 2, Some(8)),
        Op::Make("a"),
        Op::Put("a", 1, Some(5)),
        Op::Put("a", 4, None),
        Op::Persist("a", 1),
        Op::Move("a", "", 4, Some(6)),
        Op::Move("", "a", 2, None),
        Op::Reopen,
        Op::Swap("", "a"),
        Op::Kill,
        Op::Put("", 5, Some(3)),
        Op::Expire(4),
        Op::Clear(""),
        Op::Put("", 2, None),
        Op::Drop("a"),
        Op::Maintain,
        Op::Make("b"),
        Op::Delete("", 2),
        Op::Put("b", 9, Some(2)),
        Op::Reopen,
    ]
}

fn options() -> crash::Options {
    crash::Options {
        cap: by_tier(48, 4096),
        nested_cap: by_tier(4, 64),
        samples: by_tier(16, 256),
        ..crash::Options::default()
    }
}

/// Explores one engine.
struct Explore {
    ops: Vec<Op>,
}

impl Visitor for Explore {
    type Out = crash::Report;
    fn visit<F: Family>(self, about: &'static About) -> crash::Report {
        explore(
            &Workload::<Tabled<F::Bytes<Observed>>>::new(sizes(about.default_lines.min(8)), self.ops),
            &options(),
        )
    }
}

fn explored(engine: &str, ops: Vec<Op>) -> crash::Report {
    registry::visit(engine, Explore { ops }).expect("an engine of the registry")
}

#[test]
fn a_crash_in_any_operation_of_tables_leaves_all_of_it_or_nothing() {
    for (engine, floor) in [("wbtree", 1500), ("cdds", 1000)] {
        let report = explored(engine, life());
        println!("{engine}: {} states and {} in recovery", report.images, report.nested_images);
        assert!(report.violations.is_empty(), "{engine}: {:?}", report.violations);
        assert!(report.images >= floor, "{engine}: {} states", report.images);
    }
}

#[test]
fn a_value_before_the_entry_of_its_deadline_is_found() {
    for engine in ["wbtree", "cdds"] {
        let report = explored(engine, vec![Op::Put("", 1, None), Op::ValueFirst(6, 5)]);
        let found = report.violations.first().expect("the fault is found");
        assert!(format!("{found:?}").contains("has no entry"), "{engine}: {found:?}");
    }
}

#[test]
fn every_mutant_of_a_workload_of_tables_is_killed_or_argued() {
    // The least numbers of mutants killed and found.
    for (engine, killed, found) in [("wbtree", 60, 68), ("cdds", 63, 72)] {
        let report = registry::visit(engine, Mutate).expect("an engine of the registry");
        println!("{engine}: {} mutants; {report}", report.found());
        report.argued.iter().for_each(|(mutant, why)| println!("  argued: {mutant}: {why}"));
        for (trial, killed) in &report.kills {
            println!("  killed by {trial}: {}", killed.len());
        }
        assert!(report.base.violations.is_empty() && report.left_out == 0, "{engine}: {report}");
        assert!(report.killed.len() >= killed && report.found() >= found, "{engine}: {report}");
        assert_all_are_killed_or_argued(engine, &report);
    }
}
