//! Schedules of whole operations, as the trees have them ([`schedules`]): indexes of the smallest leaves,
//! two threads that write and two that read, another perhaps going on before every single load and store, the power cut at any moment.
//! Leaves are split, joined and replaced meanwhile, and what leads to them is built anew.

use std::marker::PhantomData;
use std::path::Path;

use crate::common::{Index, Options, Sample as Numbers, options};
use index::kind::{Bytes, U64};
use index::leaf_list::Turnover as Turned;
use index::{Keyed, Words};
use pmem::canary::Canary;
use pmem::{Medium, Result};
pub use schedules::campaign::{CRASHES, LIES, WHOLE};
use schedules::campaign::{Execution, How, Tally, campaign, execute, execute_journaled, notice};
use schedules::scheduled::{Sampled, Scheduled, Turnover};

/// Indexes of a schema, of the smallest leaves; `FAITHFUL` as [`options`] has it.
struct Of<K, S, const FAITHFUL: bool>(PhantomData<(K, S)>);

impl<K, S: Numbers, const FAITHFUL: bool> Of<K, S, FAITHFUL> {
    /// Stripes enough that leaves hardly ever share one: a second look would fail for another leaf's sake.
    fn options(lines: u64) -> Options {
        Options { stripes: 16, ..options::<S>(lines, FAITHFUL) }
    }
}

impl<K: Sampled, S: Numbers<Kind = K>, const FAITHFUL: bool> Scheduled for Of<K, S, FAITHFUL> {
    type Keys = K;
    type Over<M: Medium> = Index<M, S>;

    fn create<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>> {
        Index::create(medium, &Self::options(lines))
    }
    fn open<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>> {
        Ok(Index::open(medium, Path::new("image"), &Self::options(lines))?.0)
    }
    fn turnover<M: Medium>(index: &Self::Over<M>) -> Turnover {
        let Turned { splits, appends, merges, copies, rebuilds } = index::leaf_list::Core::turnover(index);
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

/// Lines of a leaf: a header, and four entries of words.
const LINES: u64 = 2;

/// An engine's name, how it lives once, and what has to happen to its leaves in many such lives.
pub type Engine = (&'static str, Execution, &'static [&'static str]);

/// What happens to leaves in any thousand lives. (A key behind all others seldom comes to a leaf that is full.)
const ALL: &[&str] = &["splits", "merges", "rebuilds"];

/// Words over memory whose fences make writes durable.
pub const WORDS: Engine = ("words", |how| execute::<Of<U64, Words, false>>(LINES, how), ALL);
/// Byte strings over the same.
pub const KEYED: Engine = ("byte strings", |how| execute::<Of<Bytes, Keyed, false>>(LINES, how), ALL);
/// Words by the paper's ways: two lists, which a combine merges; buckets that are never joined.
#[allow(dead_code)]
pub const FAITHFUL: Engine =
    ("words, faithful", |how| execute::<Of<U64, Words, true>>(LINES, how), &["splits", "rebuilds"]);
/// Words over a journal.
pub const WORDS_JOURNALED: Engine =
    ("words over a journal", |how| execute_journaled::<Of<U64, Words, false>>(LINES, how), ALL);
/// Byte strings over a journal.
pub const KEYED_JOURNALED: Engine =
    ("byte strings over a journal", |how| execute_journaled::<Of<Bytes, Keyed, false>>(LINES, how), ALL);

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
