//! Mutants of `wbtree` and `cdds` over workloads of tables. A mutant must be killed, or have an argument: in the list of its engine's own
//! mutation run, or in a list of this file.

use crash::{Argued, Kind, MutationReport, Options, Share, Stage, Step, Trial, Workload};
use index::{About, Create, Family, Index, Visitor, kind::Bytes};
use pmem::{Fence, Geometry, Observed};

use super::argued_of_cdds;
use super::subject::{Op, Sizes, Tabled};
use super::{life, sizes};

const INSERT: &str = include_str!("../../../../engines/cdds/src/insert.rs");
const VERSIONED: &str = include_str!("../../../../engines/cdds/src/versioned.rs");
const WRITE_ATOMIC: &str = include_str!("../../../../engines/bptree/src/commit_protocol/write_atomic.rs");
const TRUNCATE: &str = include_str!("../../../../pmem/src/heap/log/truncate.rs");

const SYNC: Argued = Argued::new(
    Kind::DropSync,
    "index/src/group.rs",
    include_str!("../../../../index/src/group.rs"),
    "let outcome = medium.sync(0, medium.len());",
    "over fences, an operation is durable when it returns. A sync adds only word 0 of closed chunks, and recovery frees an empty chunk \
     whatever its word 0 is",
);

const GUARD: &str = "W2: in nodes of 8 lines or fewer, the valid bit and the whole slot array are in line 0, and the stores to one \
     line keep their order";

/// Equivalent mutants of `wbtree` in these workloads, besides those of its own list.
const OF_WBTREE: [Argued; 3] = [
    SYNC,
    Argued::new(
        Kind::DropFlush,
        "commit_protocol/write_atomic.rs",
        WRITE_ATOMIC,
        "medium.flush(at, WORD);",
        GUARD,
    ),
    Argued::new(
        Kind::DropFence(Fence::Guard),
        "commit_protocol/write_atomic.rs",
        WRITE_ATOMIC,
        "medium.fence(Fence::Guard);",
        GUARD,
    ),
];

/// The same of `cdds`.
const OF_CDDS: [Argued; 2] = [
    SYNC,
    Argued::new(
        Kind::EarlyPublish,
        "cdds/src/meta.rs",
        argued_of_cdds::META,
        argued_of_cdds::LAST,
        argued_of_cdds::INTERVAL_IS_DEAD,
    ),
];

/// Mutants that are not equivalent, and that these workloads do not kill. The engine's own mutation run kills them.
fn left_to_the_engine(engine: &str) -> Vec<Argued> {
    let argued = |kind, file, source, text, why| Argued::new(kind, file, source, text, why);
    match engine {
        "wbtree" => vec![argued(
            Kind::DropFence(Fence::Checkpoint),
            "pmem/src/heap/log/truncate.rs",
            TRUNCATE,
            "medium.fence(Fence::Checkpoint);",
            "it matters if the log is written again before another fence: in a wipe, or if a commit fills the log. No operation here \
             does either; the run `log generations` kills it",
        )],
        _ => vec![
            argued(
                Kind::DropFence(Fence::Guard),
                "cdds/src/insert.rs",
                INSERT,
                "self.persist.fence(medium, Fence::Guard);",
                "it matters if one operation moves entries of one node twice, the second time from line to line, and the first move \
                 is lost; the mutation run of `cdds` kills it",
            ),
            argued(
                Kind::DropFence(Fence::Commit),
                "cdds/src/versioned.rs",
                VERSIONED,
                "medium.fence(Fence::Commit);",
                "it matters if the first operation writes intents before it passes a fence; the mutation run of `cdds` kills it with \
                 a split as the first operation",
            ),
        ],
    }
}

/// The arguments of this file for an engine.
fn own(engine: &str) -> Vec<Argued> {
    let equivalent = if engine == "wbtree" { OF_WBTREE.to_vec() } else { OF_CDDS.to_vec() };
    [equivalent, left_to_the_engine(engine)].concat()
}

/// The arguments of the engine's own mutation run.
fn of_engine(about: &About) -> Vec<Argued> {
    match about.name {
        "cdds" => [&argued_of_cdds::ARGUED[..], &argued_of_cdds::ARGUED_OF_TREES].concat(),
        _ => crash_tree::argued::argued(about),
    }
}

/// Bounds for few images: a crash inside recovery is explored only a little.
fn low() -> Options {
    Options { cap: 12, nested_cap: 1, samples: 4, create: false, ..Options::default() }
}

/// Bounds for nearly all images of few steps.
fn deep() -> Options {
    Options { cap: 1024, nested_cap: 4, samples: 8, line_cap: 256, create: false, close: false, ..low() }
}

/// The same with two contents of each line: the durable one, and the one with all stores.
fn lines() -> Options {
    Options { line_cap: 2, cap: 4096, ..deep() }
}

fn all(numbers: impl IntoIterator<Item = u8>, op: impl Fn(u8) -> Op) -> Vec<Op> {
    numbers.into_iter().map(op).collect()
}

fn long(bytes: u16) -> impl Fn(u8) -> Op {
    move |number| Op::Long("", number, bytes)
}

fn remove(number: u8) -> Op {
    Op::Delete("", number)
}

fn steps(ops: Vec<Op>) -> Vec<Step<Op>> {
    ops.into_iter().map(Step::Run).collect()
}

/// Splits and merges of the smallest nodes, with values that expire, and a recovery after steps that were cut.
fn splits() -> Vec<Step<Op>> {
    use Step::{Cut, Run};
    vec![
        Run(Op::Put("", 1, None)),
        Run(Op::Put("", 2, Some(5))),
        Run(Op::Make("a")),
        Run(Op::Put("", 3, Some(4))),
        Run(Op::Put("a", 1, Some(5))),
        Cut(Op::Put("", 4, None)),
        Run(Op::Put("a", 4, Some(7))),
        Run(Op::Move("a", "", 4, Some(6))),
        Run(Op::Kill),
        Run(Op::Expire(5)),
        Run(remove(3)),
        Cut(remove(6)),
        Run(remove(1)),
        Run(Op::Clear("")),
        Run(Op::Maintain),
        Run(Op::Put("", 8, None)),
    ]
}

/// Operations that a crash cuts, each followed by another one and by the removal of their traces.
fn sweeps() -> Vec<Step<Op>> {
    use Step::{Cut, Run};
    let put = |number| Run(Op::Put("", number, None));
    vec![
        put(1),
        put(2),
        Cut(Op::Put("", 3, None)),
        put(4),
        Run(Op::Maintain),
        Cut(Op::Together(vec![("", 5, true), ("", 6, true), ("", 1, false)])),
        put(4),
        Run(Op::Maintain),
        Cut(remove(2)),
        put(8),
        Run(Op::Maintain),
        Cut(Op::Together(vec![("", 1, true), ("", 3, true), ("", 7, true)])),
        put(9),
        Run(Op::Maintain),
        Cut(remove(4)),
        Run(remove(8)),
        Run(Op::Maintain),
    ]
}

type Tried = (&'static str, Options, Sizes, Vec<Op>, Vec<Step<Op>>);

/// Name, bounds, sizes, preparation and steps of each workload. Those that kill many mutants quickly come first.
fn workloads(engine: &str) -> Vec<Tried> {
    let is_cdds = engine == "cdds";
    let least = sizes(if is_cdds { 3 } else { 2 });
    // Chunks of the smallest records have bitmaps that do not fit into the header's line.
    let wide = Sizes {
        geometry: Geometry { chunk_bytes: 16 << 10, ..Geometry::tiny() },
        ..sizes(if is_cdds { 8 } else { 2 })
    };
    let created = Options { create: true, close: true, nested_cap: 1, ..lines() };
    let emptied = [all(1..70, long(500)), all(1..69, remove), vec![Op::Maintain]].concat();
    let smallest = vec![Op::Put("", 0, None), remove(0), Op::Maintain, Op::Kill];
    let mut tried = vec![
        ("creation", created, least, vec![], vec![]),
        ("splits", low(), least, vec![], splits()),
        ("long bitmap", deep(), wide, emptied, steps(vec![Op::Put("", 0, None)])),
        ("narrowed chunk", deep(), wide, smallest, steps(all([1, 2], long(500)))),
        ("life", low(), sizes(8), vec![], steps(life())),
    ];
    if is_cdds {
        // The region need not grow. So no fence of a growth replaces a fence of the structure.
        let roomy = Sizes { len: 96 << 10, ..least };
        let first = vec![Op::Put("", 1, None), Op::Put("", 2, Some(5)), Op::Make("a"), remove(1)];
        let swept = Options { seed: 2, cap: 256, nested_cap: 2, line_cap: 4, ..deep() };
        let closing = Options { cap: 64, close: true, ..lines() };
        let closed = [all(1..10, long(900)), all(1..9, remove)].concat();
        tried.extend([
            (
                "first operations",
                Options { cap: 256, create: true, close: true, ..deep() },
                roomy,
                vec![],
                steps(first),
            ),
            ("sweeps", swept, least, vec![], sweeps()),
            ("closed chunks", closing, sizes(8), closed, steps(vec![Op::Maintain])),
        ]);
    } else {
        // The chunk of the record and that of its pieces become free in one operation, without the log.
        let large = vec![Op::Long("", 1, 2500), Op::Put("", 3, None), Op::Kill];
        tried.push(("pieces", Options { cap: 256, ..lines() }, least, large, steps(vec![remove(1)])));
    }
    tried
}

fn trial<I: Index<Bytes> + Create<Observed>>((name, options, config, prepare, steps): Tried) -> Trial {
    Trial::of(name, options, Workload::<Tabled<I>> { config, prepare, steps })
}

/// Tries all mutants of one engine.
pub struct Mutate;

impl Visitor for Mutate {
    type Out = MutationReport;
    fn visit<F: Family>(self, about: &'static About) -> MutationReport {
        let trials: Vec<_> = workloads(about.name).into_iter().map(trial::<F::Bytes<Observed>>).collect();
        let argued = [of_engine(about), own(about.name)].concat();
        crash::run_some_mutants(&trials, &argued, &Share::All, &[], |_| Stage::quiet())
    }
}

/// Each mutant was killed or has an argument, and each argument is needed. An argument of this file excuses exactly one mutant. An argument
/// of the engine may excuse mutants that these workloads do not have.
pub fn assert_all_are_killed_or_argued(engine: &str, report: &MutationReport) {
    let own = own(engine);
    let is_own =
        |argued: &Argued| own.iter().any(|own| own.why == argued.why && own.spot.kind == argued.spot.kind);
    let is_found = |argued: &Argued| report.base.mutants.iter().any(|mutant| argued.spot.matches(mutant));
    let stale: Vec<_> = report.stale.iter().filter(|argued| is_own(argued) || is_found(argued)).collect();
    assert!(report.survived.is_empty() && stale.is_empty(), "{engine}: {report}; stale: {stale:?}");
    for argued in own {
        let excused = report.argued.iter().filter(|(mutant, _)| argued.spot.matches(mutant)).count();
        assert_eq!(
            excused, 1,
            "{engine}: mutants excused by {:?} `{}`",
            argued.spot.kind, argued.spot.contains
        );
    }
}
