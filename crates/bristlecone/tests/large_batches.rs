//! Batches of 64 MiB and of 100,000 keys with default settings. Every engine accepts them over every medium, and they are complete after a
//! restart.

use std::path::Path;

use crate::common::{existing, scratch};
use bristlecone::{Durability, Options, Store, WriteOptions};
use tempfile::TempDir;

const MIB: usize = 1 << 20;
const VALUES: u32 = 64;
const KEYS: u32 = 100_000;

/// One durable engine of each family.
const ENGINES: [&str; 8] =
    ["wbtree", "wbtree-slot", "btree-log", "unsorted-shadow", "buffer-pool", "cdds", "vlab", "nvtree"];

/// The defaults if only the durability is set: with a journal or without.
fn defaults(engine: &str, journaled: bool) -> Options {
    Options::default()
        .engine(engine)
        .durability(if journaled { Durability::Power } else { Durability::Process })
        .journal_bytes(journaled.then_some(bristlecone::journal::CAPACITY))
}

fn small_key(n: u32) -> [u8; 8] {
    (u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes()
}

fn large_value(n: u32) -> Vec<u8> {
    vec![n as u8 + 1; MIB]
}

/// A copy of the files as the death of their process leaves them.
fn killed(dir: &Path) -> TempDir {
    let found = scratch();
    for file in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), found.path().join(file.file_name())).unwrap();
    }
    found
}

#[test]
fn batches_of_64_mib_and_of_100_000_keys_are_taken_by_every_engine_over_every_medium() {
    for (engine, journaled) in ENGINES.iter().flat_map(|engine| [(*engine, true), (*engine, false)]) {
        let said = format!("{engine}, journaled: {journaled}");
        let dir = scratch();
        let store = Store::open(dir.path(), defaults(engine, journaled)).unwrap();
        if !store.capabilities().atomic_batch {
            continue;
        }
        // Existing keys, so that the batch changes many nodes, and a running group.
        let quick = store.with(WriteOptions { sync: false });
        (0..KEYS).step_by(5).for_each(|n| _ = quick.put(&small_key(n), b"before").unwrap());
        let mut keys = store.batch();
        (0..KEYS).for_each(|n| _ = keys.put(&small_key(n), &n.to_le_bytes()));
        assert!(keys.commit().unwrap_or_else(|error| panic!("{said}: {error}")));
        let mut values = store.batch();
        (0..VALUES).for_each(|n| _ = values.put(&n.to_be_bytes(), &large_value(n)));
        assert!(values.commit().unwrap_or_else(|error| panic!("{said}: {error}")));
        assert!(!store.put(b"after", b"them").unwrap());
        let found = killed(dir.path());
        drop((quick, store, dir));
        let store = Store::open(found.path(), existing()).unwrap_or_else(|error| panic!("{said}: {error}"));
        assert_eq!(store.stats().opened, "recovered");
        assert_eq!(store.count().unwrap(), u64::from(KEYS + VALUES + 1), "{said}");
        for n in (0..KEYS).step_by(97) {
            assert_eq!(store.get(&small_key(n)).unwrap().as_deref(), Some(&n.to_le_bytes()[..]), "{said}");
        }
        for n in 0..VALUES {
            assert!(
                store.get(&n.to_be_bytes()).unwrap().is_some_and(|value| value == large_value(n)),
                "{said}"
            );
        }
    }
}
