//! What the tests of the hash table share: small tables in plain memory.

use std::collections::BTreeMap;
use std::path::Path;

use cdds::Recovery;
use cdds::hash::{Options, Pairs, Table};
use pmem::{Durability, Geometry, Medium, Observed};
use tree::{Schema, Write};

use super::common::Sample;

#[allow(dead_code)]
pub type Map<S> = BTreeMap<<S as Schema>::KeyBuf, <S as Schema>::ValueBuf>;

/// Small chunks and segments, few stripes.
pub fn options(lines: u64) -> Options {
    Options {
        geometry: Geometry::tiny(),
        stripes: 2,
        segment_slots: 2,
        seed: 7,
        ..Options::new(lines, Durability::Power)
    }
}

/// Opens what is in memory.
#[allow(dead_code)]
pub fn open<S: Sample>(medium: &Observed, lines: u64, recovery: Recovery) -> Table<Observed, S> {
    Table::open(medium.clone(), Path::new("memory"), &options(lines), recovery).unwrap().0
}

/// All pairs of a walk, each once.
pub fn pairs<M: Medium, S: Sample>(walk: &mut Pairs<'_, M, S>) -> Map<S> {
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    let mut map = Map::<S>::new();
    while walk.next(&mut key, &mut value).unwrap() {
        assert!(map.insert(key.clone(), value.clone()).is_none(), "{key:?} comes twice");
    }
    map
}

/// One batch: `None` deletes.
#[allow(dead_code)]
pub fn write_many<S: Sample>(
    table: &Table<Observed, S>,
    writes: &[(S::KeyBuf, Option<S::ValueBuf>)],
) -> Result<u64, pmem::Error> {
    let writes: Vec<_> = writes
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Write::Put(S::borrow(key), S::borrow_value(value)),
            None => Write::Delete(S::borrow(key)),
        })
        .collect();
    table.write_many(&writes)
}
