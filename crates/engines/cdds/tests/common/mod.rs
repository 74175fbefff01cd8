//! Shared parts of the tests: trees and tables in memory, keys and values from small numbers.

pub mod argued;
#[allow(dead_code)]
pub mod beside;
#[path = "../../../../index/tests/shared/engine.rs"]
pub mod engine;
#[path = "../../../../index/tests/shared/samples.rs"]
pub mod samples;
#[allow(dead_code)]
pub mod subject;
#[allow(dead_code)]
pub mod trials;

use std::ops::Bound;
use std::path::Path;

use cdds::family::Indexed;
use cdds::hash::Hashed;
use cdds::{
    Cursor, Inlined, Options, Order, Ordered, Recovery, SnapshotOf, Structure, Tree, Versioned, hash,
};
use engine::{Of, Subject};
use index::kind::Bytes;
use index::{Keyed, Schema, Write};
use pmem::{Durability, Error, Found, Geometry, Medium, Observed};
pub use samples::{Pairs, memory};
use subject::Mix;

/// A sample without words after its payload.
pub trait Sample: samples::Sample + Schema<Tail = [u64; 0]> {}
impl<S: samples::Sample + Schema<Tail = [u64; 0]>> Sample for S {}

impl samples::Sample for Inlined {
    type Kind = Bytes;
    /// Short and long keys, keys with common prefixes, keys that end with zeros. Separators have all lengths.
    fn key(n: u32) -> Vec<u8> {
        const TAILS: [&[u8]; 8] = [
            b"",
            b"\0",
            b"\0\0\0",
            b"\0\0\0\0",
            b"\0\0\0\0\x01",
            b"\0\0\x01",
            b"tail of many bytes",
            b"tail of many bytez",
        ];
        if n == 0 {
            return Vec::new();
        }
        let (group, tail) = (n / 8, TAILS[n as usize % 8]);
        [b"k", &group.to_be_bytes()[1..], tail].concat()
    }
    fn value(n: u32) -> Vec<u8> {
        Keyed::value(n)
    }
}

/// Small chunks, few stripes. With nodes of three lines, batches use write groups of a few blocks.
pub fn options(lines: u64) -> Options {
    let production = Options::new(lines, Durability::Power);
    let group_blocks = if lines == 3 { 3 } else { production.group_blocks };
    Options { geometry: Geometry::tiny(), stripes: 2, group_blocks, ..production }
}

/// The same settings with small segments.
#[allow(dead_code)]
pub fn hash_options(common: Options) -> hash::Options {
    hash::Options { common, segment_slots: 2, seed: 7 }
}

/// The common interface of trees and tables for tests.
#[allow(dead_code)]
pub trait Tested:
    Structure<Schema: Sample, Pass: Send>
    + Indexed<<<Self as Structure>::Schema as samples::Sample>::Kind>
    + Send
    + Sync
    + 'static
{
    /// The mix of operations of random workloads.
    const MIX: Mix;

    /// The options of the structure.
    fn options(common: Options) -> Self::Options;

    /// All pairs of a snapshot in key order, each read in every possible way.
    ///
    /// # Errors
    /// A message if two ways differ.
    fn pairs<M: Medium>(of: &SnapshotOf<'_, M, Self>) -> Result<Pairs<Self::Schema>, String>;

    /// All pairs of the newest version.
    fn newest<M: Medium>(of: &Versioned<M, Self>) -> Pairs<Self::Schema> {
        Self::pairs(&of.snapshot()).unwrap()
    }

    /// Opens the structure in memory.
    fn open_in(medium: &Observed, lines: u64, recovery: Recovery) -> Versioned<Observed, Self> {
        let options = Self::options(options(lines));
        Versioned::open(medium.clone(), Path::new("memory"), &options, recovery).unwrap().0
    }
}

impl<S: Sample, O: Order> Tested for Ordered<S, O> {
    const MIX: Mix = Mix { puts: [45, 45], deletes: 75, updates: 75, batches: 82, marks: 86, writes_end: 5 };

    fn options(common: Options) -> Options {
        common
    }

    fn pairs<M: Medium>(of: &SnapshotOf<'_, M, Self>) -> Result<Pairs<S>, String> {
        let up = try_pairs(&mut of.cursor(), Bound::Unbounded, false)?;
        let mut down = try_pairs(&mut of.cursor(), Bound::Unbounded, true)?;
        down.reverse();
        match up == down {
            true => Ok(up),
            false => Err(format!("{} pairs forwards, {} backwards, not the same", up.len(), down.len())),
        }
    }
}

impl<S: Sample> Tested for Hashed<S> {
    const MIX: Mix = Mix { puts: [60, 15], deletes: 72, updates: 76, batches: 83, marks: 87, writes_end: 6 };

    fn options(common: Options) -> hash::Options {
        hash_options(common)
    }

    fn pairs<M: Medium>(of: &SnapshotOf<'_, M, Self>) -> Result<Pairs<S>, String> {
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        let (mut walk, mut pairs) = (of.pairs(), Pairs::<S>::new());
        while walk.next(&mut key, &mut value).map_err(|error| error.to_string())? {
            pairs.push((key.clone(), value.clone()));
        }
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
        match pairs.windows(2).find(|two| two[0].0 == two[1].0) {
            None => Ok(pairs),
            Some(two) => Err(format!("{:?} comes twice", two[0].0)),
        }
    }
}

impl<X: Tested> Subject for Of<X, Options> {
    type Schema = X::Schema;
    type Over<M: Medium> = Versioned<M, X>;
    const ORDERED: bool = X::ORDERED;
    const WRITES_AT_ONCE: bool = true;
    // With nodes of three entries, every second appended key adds a level.
    const APPENDED: u32 = 8;
    const WAYS: u64 = 2;

    fn create<M: Medium>(&self, medium: M) -> Result<Versioned<M, X>, Error> {
        Versioned::create(medium, &X::options(self.options.clone()))
    }
    fn open<M: Medium>(
        &self,
        medium: M,
        durability: Durability,
        way: u64,
    ) -> Result<(Versioned<M, X>, Found), Error> {
        let options = X::options(Options { durability, ..self.options.clone() });
        let recovery = [Recovery::Lazy, Recovery::Scan][way as usize];
        Versioned::open(medium, Path::new("memory"), &options, recovery)
    }
    fn tend<M: Medium>(index: &Versioned<M, X>, all: bool) -> Result<(), Error> {
        if all { index.collect_all() } else { index.collect_some(3).map(drop) }
    }
}

/// Opens the tree in memory.
#[allow(dead_code)]
pub fn open<S: Sample, O: Order>(medium: &Observed, lines: u64, recovery: Recovery) -> Tree<Observed, S, O> {
    Tree::open(medium.clone(), Path::new("memory"), &options(lines), recovery).unwrap().0
}

/// All pairs that a cursor returns.
#[allow(dead_code)]
pub fn pairs<M: Medium, S: Sample, O: Order>(
    cursor: &mut Cursor<'_, M, S, O>,
    from: Bound<S::KeyBuf>,
    down: bool,
) -> Pairs<S> {
    try_pairs(cursor, from, down).unwrap()
}

fn try_pairs<M: Medium, S: Sample, O: Order>(
    cursor: &mut Cursor<'_, M, S, O>,
    from: Bound<S::KeyBuf>,
    down: bool,
) -> Result<Pairs<S>, String> {
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    cursor.seek(from, down);
    let mut pairs = Vec::new();
    while cursor.next(&mut key, &mut value).map_err(|error| error.to_string())? {
        pairs.push((key.clone(), value.clone()));
    }
    Ok(pairs)
}

/// One batch; `None` deletes. True for each write whose key was present.
#[allow(dead_code)]
pub fn write_many<M: Medium, X: Tested>(
    of: &Versioned<M, X>,
    writes: &[PairOf<X>],
) -> Result<Vec<bool>, Error> {
    let writes: Vec<_> = writes
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Write::Put(X::Schema::borrow(key), X::Schema::borrow_value(value)),
            None => Write::Delete(X::Schema::borrow(key)),
        })
        .collect();
    of.write_many(&writes)
}

/// A key, and its value if there is one.
pub type PairOf<X> = index::Pair<<X as Structure>::Schema>;
