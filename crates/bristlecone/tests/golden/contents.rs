//! The golden stores and their contents, for the program that writes them and the test that opens them.

use std::collections::BTreeMap;

/// A golden store: engine, kind of keys and values, over a journal or mapped, closed or left as a crash leaves it.
#[derive(Clone, Copy, Debug)]
pub struct Golden {
    pub engine: &'static str,
    pub kind: Kind,
    pub journaled: bool,
    pub closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Byte strings, without tables.
    Bytes,
    /// Byte strings in two tables, with deadlines.
    Tables,
    Words,
    Fixed,
}

impl Golden {
    /// The name of the store's files. Names for two versions of the format differ only in the version.
    pub fn name(&self, version: u64) -> String {
        let kind = match self.kind {
            Kind::Bytes => "bytes",
            Kind::Tables => "tables",
            Kind::Words => "u64",
            Kind::Fixed => "fixed",
        };
        let medium = if self.journaled { "journal" } else { "mapped" };
        let state = if self.closed { "closed" } else { "crashed" };
        format!("v{version}-{}-{kind}-{medium}-{state}", self.engine)
    }
}

const fn golden(engine: &'static str, kind: Kind, journaled: bool, closed: bool) -> Golden {
    Golden { engine, kind, journaled, closed }
}

/// At least one store of each family of engines. For the default engine: byte strings in each state.
pub const ALL: [Golden; 19] = [
    golden("wbtree", Kind::Bytes, false, true),
    golden("wbtree", Kind::Bytes, false, false),
    golden("wbtree", Kind::Bytes, true, true),
    golden("wbtree", Kind::Bytes, true, false),
    golden("wbtree", Kind::Words, true, false),
    golden("wbtree-keyptr", Kind::Bytes, true, false),
    golden("btree-log", Kind::Words, true, false),
    golden("ubmp-shadow", Kind::Bytes, true, true),
    golden("buffer-pool", Kind::Bytes, true, false),
    golden("wb-4k", Kind::Fixed, true, true),
    golden("cdds", Kind::Bytes, true, false),
    golden("cdds-hash", Kind::Words, true, true),
    golden("vlab", Kind::Bytes, true, false),
    golden("vlab", Kind::Fixed, false, true),
    golden("nvtree", Kind::Words, true, false),
    golden("nvtree", Kind::Bytes, false, true),
    golden("wbtree", Kind::Tables, true, true),
    golden("wbtree", Kind::Tables, true, false),
    golden("cdds", Kind::Tables, true, false),
];

/// The stores of a version of the format. Version 4 had no tables.
#[allow(dead_code)] // the program that writes them needs one version
pub fn of_version(version: u64) -> impl Iterator<Item = Golden> {
    ALL.into_iter().filter(move |golden| version > 4 || golden.kind != Kind::Tables)
}

/// The name of the table beside the default one in stores with tables.
pub const TABLE: &str = "golden table";

/// The pairs and deadlines of that table: keys with their values and deadlines, which are in the year 2200.
pub fn in_table() -> impl Iterator<Item = (u64, u64, Option<u64>)> {
    (0..50).map(|n| (n, n + 7, (n % 3 == 0).then_some(7_258_118_400_000 + n)))
}

/// Bytes of a value in a store of fixed values.
pub const VALUE_BYTES: u64 = 24;

/// A key of a store of byte strings.
pub fn key(n: u64) -> Vec<u8> {
    format!("golden key {n:05}").into_bytes()
}

/// A value of a store of byte strings, of 1 to 97 bytes.
pub fn value(n: u64) -> Vec<u8> {
    (0..1 + n % 97).map(|i| (n * 31 + i) as u8).collect()
}

/// A value of a store of fixed values.
pub fn fixed(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(VALUE_BYTES as usize / 8)
}

/// The changes in order: `Some(n)` puts the value of `n` under a key, `None` deletes the key.
pub fn changes() -> Vec<(u64, Option<u64>)> {
    let puts = (0..300).map(|n| (n * 7919 % 300, Some(n)));
    let deletes = (0..300).step_by(3).map(|n| (n, None));
    let updates = (0..300).step_by(5).map(|n| (n, Some(n + 1000)));
    puts.chain(deletes).chain(updates).collect()
}

/// The contents of a store after the changes.
pub fn contents() -> BTreeMap<u64, u64> {
    let mut contents = BTreeMap::new();
    for (key, value) in changes() {
        match value {
            Some(value) => _ = contents.insert(key, value),
            None => _ = contents.remove(&key),
        }
    }
    contents
}
