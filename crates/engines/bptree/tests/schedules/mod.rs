//! Schedules of whole operations: real trees of the smallest nodes, writers and readers beside each other, another thread
//! perhaps going on before every single load and store (`medium`), in random bursts and by priorities (`scheduler`).
//!
//! What everybody was told is written down (`work`) and has to be explained by one operation after the other, key by key, with
//! batches as one; and so has what is there after a power cut at any moment of it: everything that returned before,
//! what readers returned too (`campaign`).
//!
//! The canaries leave out a part of the protocols each, and must be noticed.
//!
//! The indexes over a list of leaves are run and judged by the same means (`subject`).
//!
//! Only under `cfg(shuttle)`: `cargo xtask test` runs it. `BRISTLECONE_ROUNDS` sets how many times as many schedules there are
//! (1), `BRISTLECONE_SEED` moves the seeds.

mod campaign;
mod disk;
mod medium;
mod scheduler;
mod subject;
mod work;

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;

use bptree::discipline::Discipline;
use bptree::layout::Layouts;
use bptree::scan::TreeCursor;
use bptree::shape::FourGroups;
use bptree::{
    Bitmap, Counted, LineOrder, Shadow, SlotOnly, Slotted, Sorted, Stepwise, Tree, TreeOptions, UndoRedo,
    WriteAhead, WriteAtomic,
};
use campaign::{CRASHES, Execution, How, LIES, Tally, WHOLE, campaign, execute, execute_journaled, notice};
use index::{Batching, Decision, Keyed, Life, Pair, Prefixed, Report, Snapshots, Words, Write, WriteOptions};
use pmem::canary::Canary;
use pmem::{Durability, Geometry, Medium, Result};
use subject::{Get, Kind, Sample, Scan, Session, Subject};

const ENGINE: &str = "schedules";

impl<M: Medium, S: Sample, L: Layouts, D: Discipline> Subject for Tree<M, S, L, D> {
    type Schema = S;

    fn put(&self, key: &S::Key, value: &S::Value, how: WriteOptions) -> Result<bool> {
        self.put_as(key, value, how)
    }
    fn delete(&self, key: &S::Key) -> Result<bool> {
        Tree::delete(self, key)
    }
    fn update<W: Borrow<S::Value>>(
        &self,
        key: &S::Key,
        decide: impl FnMut(Option<&S::Value>) -> Decision<W>,
        how: WriteOptions,
    ) -> Result<()> {
        Tree::update(self, key, decide, how)
    }
    fn write_many(&self, writes: &[Write<'_, S::Key, S::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        Tree::write_many(self, writes, how)
    }
    fn batch(&self, writes: Vec<Pair<S>>, expected: &[Pair<S>], how: WriteOptions) -> Result<bool> {
        Batching::batch(self, writes, expected, how)
    }
    fn session(&self) -> Result<impl Session<S>> {
        Tree::session(self)
    }
    fn get(&self, key: &S::Key, value: &mut S::ValueBuf) -> Result<bool> {
        Tree::get(self, key, Some(value))
    }
    fn get_many(&self, keys: &[&S::Key]) -> Result<Vec<Option<S::ValueBuf>>> {
        Tree::get_many(self, keys)
    }
    fn cursor(&self) -> impl Scan<S> {
        Tree::cursor(self)
    }
    fn read_snapshot(&self, read: &mut dyn FnMut(&mut dyn Scan<S>, &mut Get<'_, Self>)) -> Result<bool> {
        let snapshot = self.snapshot()?;
        read(&mut Self::cursor_of(&snapshot), &mut |key, value| snapshot.get(key, Some(value)));
        Ok(true)
    }
    fn commit(&self) -> Result<()> {
        Life::commit(self)
    }
    fn close(&self) -> Result<()> {
        Life::close(self)
    }
    fn check(&self) -> Report {
        Tree::check(self)
    }
}

impl<M: Medium, S: Sample, L: Layouts, D: Discipline> Session<S>
    for bptree::session::Session<'_, M, S, L, D>
{
    fn put(&mut self, key: &S::Key, value: &S::Value) -> Result<bool> {
        Self::put(self, key, value)
    }
    fn delete(&mut self, key: &S::Key) -> Result<bool> {
        Self::delete(self, key)
    }
}

impl<M: Medium, S: Sample, L: Layouts, D: Discipline> Scan<S> for TreeCursor<'_, M, S, L, D> {
    fn seek(&mut self, from: Bound<S::KeyBuf>, descending: bool) {
        Self::seek(self, from, descending);
    }
    fn next(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        Self::next(self, key, value)
    }
}

/// Trees of a layout and a discipline.
struct Of<S, L, D>(PhantomData<(S, L, D)>);

impl<S: Sample, L: Layouts, D: Discipline> Kind for Of<S, L, D> {
    type Schema = S;
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
    fn open<M: Medium>(medium: M) -> Result<Self::Over<M>> {
        Ok(Tree::open(medium, Path::new("image"), ENGINE, Durability::Power, 2)?.0)
    }
}

type Engine = (&'static str, Execution);

/// The tree that everything else is compared with.
const FIRST: Engine =
    ("slot+bitmap, words", |how| execute::<Of<Words, (Slotted, Slotted), WriteAtomic>>(2, how));
const JOURNALED: Engine = ("slot+bitmap over a journal", |how| {
    execute_journaled::<Of<Prefixed, (Slotted, Slotted), WriteAtomic>>(2, how)
});

/// Each layout and discipline once, and some over a journal too.
const ENGINES: &[Engine] = &[
    FIRST,
    ("bitmap leaves in line order", |how| execute::<Of<Prefixed, (Bitmap, Slotted), LineOrder>>(2, how)),
    ("slot only", |how| execute::<Of<Keyed, (SlotOnly, SlotOnly), WriteAtomic>>(2, how)),
    ("sorted with undo-redo", |how| execute::<Of<Keyed, (Sorted, Sorted), UndoRedo>>(2, how)),
    ("counted with shadows", |how| execute::<Of<Keyed, (Counted, Sorted), Shadow>>(2, how)),
    ("four groups step by step", |how| {
        execute::<Of<Keyed, (Slotted<FourGroups>, Slotted<FourGroups>), Stepwise>>(3, how)
    }),
    ("sorted behind a pool", |how| execute::<Of<Prefixed, (Sorted, Sorted), WriteAhead>>(2, how)),
    JOURNALED,
    ("counted with shadows over a journal", |how| {
        execute_journaled::<Of<Keyed, (Counted, Sorted), Shadow>>(2, how)
    }),
    ("sorted behind a pool, over a journal", |how| {
        execute_journaled::<Of<Prefixed, (Sorted, Sorted), WriteAhead>>(2, how)
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
    let over_fences: &[(Option<Canary>, How, &str)] = &[
        (Some(Canary::SecondLook), WHOLE, ""),
        (Some(Canary::Batches), WHOLE, ""),
        // What a reader was told too early only a crash takes back.
        (Some(Canary::FirstLook), CRASHES, "after a crash"),
        (None, LIES, "after a crash"),
    ];
    let over_a_journal: &[(Option<Canary>, How, &str)] = &[
        (Some(Canary::SecondLook), WHOLE, ""),
        // That a batch runs they need not ask here: what it changed is not durable, and durable at once.
        (Some(Canary::Notes), CRASHES, "after a crash"),
        (None, LIES, "after a crash"),
    ];
    notice(FIRST.0, FIRST.1, over_fences);
    notice(JOURNALED.0, JOURNALED.1, over_a_journal);
}
