//! Schedules of whole operations on lists (crate [`schedules`]). The indexes have the smallest possible leaves, two
//! writers and two readers.
//!
//! The scheduler may switch threads before every load and store, and the power may be cut at any moment. During the
//! operations, leaves are split, joined and replaced, and the directory of the leaves is rebuilt.

use std::marker::PhantomData;
use std::path::Path;

use crate::common::{Index, Options, Sample as Numbers, options};
use index::kind::{Bytes, U64};
use index::leaf_list::Turnover as Turned;
use index::{Keyed, Words};
use pmem::omission::Omission;
use pmem::{Medium, Result};
pub use schedules::campaign::{CRASHES, LIES, WHOLE};
use schedules::campaign::{Execution, How, Tally, campaign, execute, execute_journaled, notice};
use schedules::scheduled::{Sampled, Scheduled, Turnover};

/// Indexes of a schema with the smallest leaves. `FAITHFUL`: see [`options`].
struct Of<K, S, const FAITHFUL: bool>(PhantomData<(K, S)>);

impl<K, S: Numbers, const FAITHFUL: bool> Of<K, S, FAITHFUL> {
    /// With this number of stripes two leaves rarely share one. Otherwise a validation could fail because of another leaf.
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

/// Lines of a leaf: a header, and space for four entries of words.
const LINES: u64 = 2;

/// The name of an engine, its execution, and the events on leaves that must occur.
pub type Engine = (&'static str, Execution, &'static [&'static str]);

/// Events that must occur in 1,000 executions. A key above all others rarely goes to a full leaf.
const ALL: &[&str] = &["splits", "merges", "rebuilds"];

/// Words over memory whose fences make writes durable.
pub const WORDS: Engine = ("words", |how| execute::<Of<U64, Words, false>>(LINES, how), ALL);
/// Byte strings over the same.
pub const KEYED: Engine = ("byte strings", |how| execute::<Of<Bytes, Keyed, false>>(LINES, how), ALL);
/// Words as in the paper: two lists, which a combine merges. Buckets are never joined.
#[allow(dead_code)]
pub const FAITHFUL: Engine =
    ("words, faithful", |how| execute::<Of<U64, Words, true>>(LINES, how), &["splits", "rebuilds"]);
/// Words over a journal.
pub const WORDS_JOURNALED: Engine =
    ("words over a journal", |how| execute_journaled::<Of<U64, Words, false>>(LINES, how), ALL);
/// Byte strings over a journal.
pub const KEYED_JOURNALED: Engine =
    ("byte strings over a journal", |how| execute_journaled::<Of<Bytes, Keyed, false>>(LINES, how), ALL);

/// Checks that each of these injected faults is detected in each of these engines.
pub fn notice_in(engines: &[Engine], omissions: &[(Option<Omission>, How, &str)]) {
    engines.iter().for_each(|(name, execution, _)| notice(name, *execution, omissions));
}

/// Runs this many executions of each engine, and a quarter of that by priorities. The events `rarer` must occur in their total.
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
