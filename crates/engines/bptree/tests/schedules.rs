//! Schedules of whole operations on trees with the smallest nodes, with power cuts ([`schedules`]). Only under `cfg(shuttle)`.

use std::marker::PhantomData;
use std::path::Path;

use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layouts;
use bptree::shape::FourGroups;
use bptree::{
    Bitmap, Counted, LineOrder, Shadow, SlotOnly, Slotted, Sorted, Stepwise, Tree, TreeOptions, UndoRedo,
    WriteAhead, WriteAtomic,
};
use index::kind::{Bytes, U64};
use index::{Keyed, Prefixed, SchemaOf, Words};
use pmem::omission::Omission;
use pmem::{Durability, Geometry, Medium, Result};
use schedules::campaign::{
    CRASHES, Execution, How, LIES, Tally, WHOLE, campaign, execute, execute_journaled, notice,
};
use schedules::scheduled::{Sampled, Scheduled};

const ENGINE: &str = "schedules";

/// Trees of a layout and a commit protocol.
struct Of<K, S, L, D>(PhantomData<(K, S, L, D)>);

impl<K: Sampled, S: SchemaOf<K>, L: Layouts, D: CommitProtocol> Scheduled for Of<K, S, L, D> {
    type Keys = K;
    type Over<M: Medium> = Tree<M, S, L, D>;
    const POOLED: bool = D::POOLED;

    fn create<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>> {
        let tiny = Geometry::tiny();
        let log_records = match medium.group() {
            Some(_) => tiny.log_records,
            None if lines > 2 || D::LOGS_ALL || D::COPIES_LEAVES => 512,
            None => 128,
        };
        let geometry = Geometry { log_records, ..tiny };
        let options =
            TreeOptions { geometry, stripes: 16, ..TreeOptions::new(ENGINE, lines, Durability::Power) };
        Tree::create(medium, &options)
    }
    fn open<M: Medium>(medium: M, _lines: u64) -> Result<Self::Over<M>> {
        Ok(Tree::open(medium, Path::new("image"), ENGINE, Durability::Power, 2)?.0)
    }
}

type Engine = (&'static str, Execution);

/// The default tree.
const FIRST: Engine =
    ("slot+bitmap, words", |how| execute::<Of<U64, Words, (Slotted, Slotted), WriteAtomic>>(2, how));
const JOURNALED: Engine = ("slot+bitmap over a journal", |how| {
    execute_journaled::<Of<Bytes, Prefixed, (Slotted, Slotted), WriteAtomic>>(2, how)
});

/// Each layout and commit protocol once, some of them over a journal, too.
const ENGINES: &[Engine] = &[
    FIRST,
    ("bitmap leaves in line order", |how| {
        execute::<Of<Bytes, Prefixed, (Bitmap, Slotted), LineOrder>>(2, how)
    }),
    ("slot only", |how| execute::<Of<Bytes, Keyed, (SlotOnly, SlotOnly), WriteAtomic>>(2, how)),
    ("sorted with undo-redo", |how| execute::<Of<Bytes, Keyed, (Sorted, Sorted), UndoRedo>>(2, how)),
    ("counted with shadows", |how| execute::<Of<Bytes, Keyed, (Counted, Sorted), Shadow>>(2, how)),
    ("four groups step by step", |how| {
        execute::<Of<Bytes, Keyed, (Slotted<FourGroups>, Slotted<FourGroups>), Stepwise>>(3, how)
    }),
    ("sorted behind a pool", |how| execute::<Of<Bytes, Prefixed, (Sorted, Sorted), WriteAhead>>(2, how)),
    JOURNALED,
    ("counted with shadows over a journal", |how| {
        execute_journaled::<Of<Bytes, Keyed, (Counted, Sorted), Shadow>>(2, how)
    }),
    ("sorted behind a pool, over a journal", |how| {
        execute_journaled::<Of<Bytes, Prefixed, (Sorted, Sorted), WriteAhead>>(2, how)
    }),
];

#[test]
fn what_everybody_is_told_can_be_explained_and_outlasts_a_crash() {
    let mut total = Tally::default();
    for (name, execution) in ENGINES {
        total.add(campaign(name, crash::by_tier(250, 800), *execution));
    }
    println!("all: {total:?}");
    assert!(
        total.cuts >= total.executions && total.failures > 0 && total.homes > 0,
        "too little was cut short: {total:?}"
    );
}

#[test]
fn a_part_of_the_protocols_that_is_left_out_is_noticed() {
    let over_fences: &[(Option<Omission>, How, &str)] = &[
        (Some(Omission::Validation), WHOLE, ""),
        (Some(Omission::Batches), WHOLE, ""),
        // Only a crash rolls back a value that a reader got too early.
        (Some(Omission::FirstRead), CRASHES, "after a crash"),
        (None, LIES, "after a crash"),
    ];
    let over_a_journal: &[(Option<Omission>, How, &str)] = &[
        (Some(Omission::Validation), WHOLE, ""),
        // Without this check readers do not notice a running batch. Its changes are not durable, and then durable at once.
        (Some(Omission::DirtyMarks), CRASHES, "after a crash"),
        (None, LIES, "after a crash"),
    ];
    notice(FIRST.0, FIRST.1, over_fences);
    notice(JOURNALED.0, JOURNALED.1, over_a_journal);
}
