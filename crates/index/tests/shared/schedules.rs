//! Schedules of whole operations, as the trees have them and by their means (`crates/engines/bptree/tests/schedules`): indexes of the smallest leaves,
//! two threads that write and two that read, another perhaps going on before every single load and store, the power cut at any moment.
//! Leaves are split, joined and replaced meanwhile, and what leads to them is built anew.

#[path = "../../../engines/bptree/tests/schedules/campaign.rs"]
mod campaign;
#[path = "../../../engines/bptree/tests/schedules/disk.rs"]
mod disk;
#[path = "../../../engines/bptree/tests/schedules/medium.rs"]
mod medium;
#[path = "../../../engines/bptree/tests/schedules/scheduler.rs"]
mod scheduler;
#[path = "../../../engines/bptree/tests/schedules/subject.rs"]
mod subject;
#[path = "../../../engines/bptree/tests/schedules/work.rs"]
mod work;

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;

use crate::common::{Index, Options, Sample as Numbers, options};
pub use campaign::{CRASHES, LIES, WHOLE};
use campaign::{Execution, How, Tally, campaign, execute, execute_journaled, notice};
use index::Decision;
use index::Report;
use index::chain::prelude::*;
use index::chain::{Cursor, Turnover as Turned};
use index::{Keyed, Pair, Words, Write, WriteOptions};
use pmem::canary::Canary;
use pmem::{Medium, Result};
use subject::{Get, Kind, Sample, Scan, Subject, Turnover};

impl<M: Medium, S: Sample> Subject for Index<M, S> {
    type Schema = S;

    fn put(&self, key: &S::Key, value: &S::Value, how: WriteOptions) -> Result<bool> {
        self.put_as(key, value, how)
    }
    fn delete(&self, key: &S::Key) -> Result<bool> {
        Writes::delete(self, key)
    }
    fn update<W: Borrow<S::Value>>(
        &self,
        key: &S::Key,
        decide: impl FnMut(Option<&S::Value>) -> Decision<W>,
        how: WriteOptions,
    ) -> Result<()> {
        Writes::update(self, key, decide, how)
    }
    fn write_many(&self, writes: &[Write<'_, S::Key, S::Value>], how: WriteOptions) -> Result<Vec<bool>> {
        self.write_many_as(writes, how)
    }
    fn batch(&self, writes: Vec<Pair<S>>, expected: &[Pair<S>], how: WriteOptions) -> Result<bool> {
        Batching::batch(self, writes, expected, how)
    }
    fn get(&self, key: &S::Key, value: &mut S::ValueBuf) -> Result<bool> {
        Reads::get(self, key, Some(value))
    }
    fn get_many(&self, keys: &[&S::Key]) -> Result<Vec<Option<S::ValueBuf>>> {
        let mut values = Vec::with_capacity(keys.len());
        self.get_each(keys, &mut |value| {
            values.push(value);
            true
        })?;
        Ok(values)
    }
    fn cursor(&self) -> impl Scan<S> {
        Chain::cursor(self)
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
        Chain::check(self)
    }
    fn turnover(&self) -> Turnover {
        let Turned { splits, appends, merges, copies, rebuilds } = index::chain::Core::turnover(self);
        [
            ("splits", splits),
            ("appends", appends),
            ("merges", merges),
            ("copies", copies),
            ("rebuilds", rebuilds),
        ]
        .into()
    }
}

impl<T: Chain> Scan<T::Schema> for Cursor<'_, T> {
    fn seek(&mut self, from: Bound<<T::Schema as index::Schema>::KeyBuf>, descending: bool) {
        Self::seek(self, from, descending);
    }
    fn next(
        &mut self,
        key: &mut <T::Schema as index::Schema>::KeyBuf,
        value: &mut <T::Schema as index::Schema>::ValueBuf,
    ) -> Result<bool> {
        Self::next(self, key, value)
    }
}

/// Indexes of a schema, of the smallest leaves; `FAITHFUL` as [`options`] has it.
struct Of<S, const FAITHFUL: bool>(PhantomData<S>);

impl<S: Sample + Numbers, const FAITHFUL: bool> Of<S, FAITHFUL> {
    /// Stripes enough that leaves hardly ever share one: a second look would fail for another leaf's sake.
    fn options(lines: u64) -> Options {
        Options { stripes: 16, ..options::<S>(lines, FAITHFUL) }
    }
}

impl<S: Sample + Numbers, const FAITHFUL: bool> Kind for Of<S, FAITHFUL> {
    type Schema = S;
    type Over<M: Medium> = Index<M, S>;

    fn create<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>> {
        Index::create(medium, &Self::options(lines))
    }
    fn open<M: Medium>(medium: M) -> Result<Self::Over<M>> {
        Ok(Index::open(medium, Path::new("image"), &Self::options(LINES))?.0)
    }
}

/// Lines of a leaf: a header, and four entries of words.
const LINES: u64 = 2;

/// An engine's name, how it lives once, and what has to happen to its leaves in many such lives.
pub type Engine = (&'static str, Execution, &'static [&'static str]);

/// What happens to leaves in any thousand lives. (A key behind all others seldom comes to a leaf that is full.)
const ALL: &[&str] = &["splits", "merges", "rebuilds"];

/// Words over memory whose fences make writes durable.
pub const WORDS: Engine = ("words", |how| execute::<Of<Words, false>>(LINES, how), ALL);
/// Byte strings over the same.
pub const KEYED: Engine = ("byte strings", |how| execute::<Of<Keyed, false>>(LINES, how), ALL);
/// Words by the paper's ways: two lists, which a combine merges; buckets that are never joined.
#[allow(dead_code)]
pub const FAITHFUL: Engine =
    ("words, faithful", |how| execute::<Of<Words, true>>(LINES, how), &["splits", "rebuilds"]);
/// Words over a journal.
pub const WORDS_JOURNALED: Engine =
    ("words over a journal", |how| execute_journaled::<Of<Words, false>>(LINES, how), ALL);
/// Byte strings over a journal.
pub const KEYED_JOURNALED: Engine =
    ("byte strings over a journal", |how| execute_journaled::<Of<Keyed, false>>(LINES, how), ALL);

/// Each of these is noticed in each of these engines.
pub fn notice_in(engines: &[Engine], canaries: &[(Option<Canary>, How, &str)]) {
    engines.iter().for_each(|(name, execution, _)| notice(name, *execution, canaries));
}

/// So many executions of each engine, and a quarter of that by priorities. In all of them these things have to happen, too.
pub fn live(engines: &[Engine], executions: u64, rarer: &[&str]) {
    let mut total = Tally::default();
    for (name, execution, happens) in engines {
        let tally = campaign(name, executions, *execution);
        for what in *happens {
            assert!(tally.turnover[what] > 0, "{name}: no {what}: {tally:?}");
        }
        total.add(tally);
    }
    println!("all: {total:?}");
    for what in rarer {
        assert!(total.turnover[what] > 0, "no {what}: {total:?}");
    }
    assert!(
        total.cuts >= total.executions && total.failures > 0 && total.homes > 0,
        "too little was cut short: {total:?}"
    );
}
