//! Crash exploration of the server's structures (hashes, lists, sets, sorted sets, streams) over `wbtree` and `line`: after a crash in any
//! command, transaction, script or pipeline, all of its changes are present or none is, by the server's own reading commands. The counts in
//! the heads agree with the elements, the indexes of a sorted set agree, and elements without a head have an owner.

mod contents;
mod subject;
mod workloads;

use bptree::{Slotted, TreeFamily, WriteAtomic};
use crash::{Kind, Report, Spot, Step, Workload, by_tier, explore, has_turn, injected_fault, is_soak, seeds};
use index::{Family, Prefixed};
use line::LineFamily;
use pmem::Fence;

use subject::{Op, Served, Sizes};
use workloads::{apart, hashes, large, run, steps, workloads};

fn options() -> crash::Options {
    crash::Options {
        cap: by_tier(8, 64),
        nested_cap: 4,
        samples: by_tier(4, 32),
        // Recovery is that of the engine and of the tables, whose own explorations crash inside it.
        nested: is_soak(),
        seed: seeds(1, 1).start + 1,
        create: false,
        ..crash::Options::default()
    }
}

/// The engine `wbtree`, as the roster of trees has it.
type WbTree = TreeFamily<Prefixed, (Slotted, Slotted), WriteAtomic>;

fn explored<F: Family>(engine: &str, ops: Vec<Op>) -> Report {
    explored_steps::<F>(engine, steps(ops, false))
}

fn explored_steps<F: Family>(engine: &str, steps: Vec<Step<Op>>) -> Report {
    explore(&Workload::<Served<F>> { config: Sizes::of::<F>(engine), prepare: Vec::new(), steps }, &options())
}

/// Explores all workloads on an engine. Each has at least `floor` states.
fn explore_all<F: Family>(engine: &str, floor: u64) {
    for (name, ops) in workloads() {
        let report = explored::<F>(engine, ops);
        println!(
            "{engine}, {name}: {} crash points, {} states and {} in recovery, {:?}",
            report.crash_points, report.images, report.nested_images, report.elapsed
        );
        assert!(report.violations.is_empty(), "{engine}, {name}: {report}");
        assert!(report.images >= floor, "{engine}, {name}: {} states", report.images);
    }
}

#[test]
fn a_crash_in_any_command_on_structures_leaves_all_of_it_or_nothing() {
    explore_all::<WbTree>("wbtree", 700);
}

#[test]
fn a_crash_in_structures_of_the_default_engine_leaves_all_of_it_or_nothing() {
    explore_all::<LineFamily>("line", 600);
}

#[test]
fn commands_on_structures_after_crashes_leave_all_or_nothing() {
    let turn = |number: usize| has_turn(number as u64, 4);
    for (_, (name, ops)) in workloads().into_iter().enumerate().filter(|(number, _)| turn(*number)) {
        let report = explored_steps::<WbTree>("wbtree", steps(ops, true));
        println!("wbtree, {name} with cuts: {} states, {:?}", report.images, report.elapsed);
        assert!(report.violations.is_empty(), "{name}: {report}");
    }
}

#[test]
fn a_crash_while_a_large_structure_is_changed_and_removed_leaves_all_or_nothing() {
    let [prepare, ops] = large();
    let workload = Workload::<Served<WbTree>> {
        config: Sizes::of::<WbTree>("wbtree"),
        prepare,
        steps: steps(ops, false),
    };
    // Each state takes long to read, and the removal has many states of the same kind.
    let options = crash::Options { cap: by_tier(1, 64), samples: by_tier(1, 32), ..options() };
    let report = explore(&workload, &options);
    println!("wbtree, large structures: {} states, {:?}", report.images, report.elapsed);
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.images >= 2000, "{} states", report.images);
}

/// The first violation of these operations.
fn violation(ops: Vec<Op>) -> String {
    let report = explored::<WbTree>("wbtree", ops);
    report.violations.first().expect("the fault is found").to_string()
}

#[test]
fn a_command_that_commits_in_two_steps_is_found() {
    let begin = run("HSET h v 1", &[("h", "hash v=1")]);
    let moved = apart("SADD s a | RPUSH l a", &[("s", "set a"), ("l", "list a")]);
    let found = violation(vec![begin.clone(), moved]);
    assert!(found.contains("wrong contents") && found.contains("missing l"), "{found}");
    let found = violation(vec![begin, Op::HeadFirst]);
    assert!(found.contains("h: 1 elements 'f' for 2"), "{found}");
}

#[test]
fn a_lost_element_is_found() {
    let zset = run("ZADD s 1 a 2 b", &[("s", "zset a:1 b:2")]);
    let list = run("RPUSH s a b", &[("s", "list a b")]);
    let stream = || {
        vec![
            run("XADD s 1-1 f v", &[("s", "stream 1-1[f v] last 1-1")]),
            run("XGROUP CREATE s g 0", &[("s", "stream 1-1[f v] last 1-1 group g at 0-0")]),
            run(
                "XREADGROUP GROUP g ann STREAMS s >",
                &[("s", "stream 1-1[f v] last 1-1 group g at 1-1 1-1:ann:1")],
            ),
        ]
    };
    let faults = [
        (vec![zset.clone()], Some(b's'), "the score index differs from the member index"),
        (vec![zset], Some(b'm'), "1 elements 'm' for 2"),
        (vec![list.clone()], Some(b'i'), "the positions"),
        (vec![list], None, "has elements and no owner"),
        (stream(), Some(b'c'), "a pending entry without a consumer"),
        (stream(), Some(b'g'), "a consumer without a group"),
    ];
    for (mut ops, tag, problem) in faults {
        ops.push(Op::Lose("s", tag));
        let found = violation(ops);
        assert!(found.contains(problem), "{problem}: {found}");
    }
}

#[test]
fn a_fence_that_is_left_out_below_the_commands_is_found() {
    let workload = Workload::<Served<WbTree>>::new(Sizes::of::<WbTree>("wbtree"), hashes());
    let spot = Spot::anywhere(Kind::DropFence(Fence::Commit));
    let found = injected_fault(&[workload], &options(), &spot).unwrap_or_else(|why| panic!("{why}"));
    assert!(!found.is_empty());
}
