//! Shared parts of the tests of the hash table: small tables in memory.

use std::collections::BTreeMap;

use cdds::Recovery;
use cdds::hash::{Hashed, Options, Pairs, Table};
use index::Schema;
use pmem::{Medium, Observed};

use crate::common::{self, Sample, Tested};

#[allow(dead_code)]
pub type Map<S> = BTreeMap<<S as Schema>::KeyBuf, <S as Schema>::ValueBuf>;

/// Small chunks and segments, few stripes.
#[allow(dead_code)]
pub fn options(lines: u64) -> Options {
    common::hash_options(common::options(lines))
}

/// Opens the table in memory.
#[allow(dead_code)]
pub fn open<S: Sample>(medium: &Observed, lines: u64, recovery: Recovery) -> Table<Observed, S> {
    Hashed::<S>::open_in(medium, lines, recovery)
}

/// All pairs of a walk. Each key must occur once.
#[allow(dead_code)]
pub fn pairs<M: Medium, S: Sample>(walk: &mut Pairs<'_, M, S>) -> Map<S> {
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    let mut map = Map::<S>::new();
    while walk.next(&mut key, &mut value).unwrap() {
        assert!(map.insert(key.clone(), value.clone()).is_none(), "{key:?} comes twice");
    }
    map
}
