//! Shared parts of the tests of whole stores.
#![allow(dead_code)] // not every test uses all of it

pub mod history;

use std::path::Path;

use bristlecone::{Capabilities, Durability, Error, Kind, Options, Scan, StoreOf, registry};
use tempfile::TempDir;

/// A directory in memory if possible, because a sync costs nothing there.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// The size of a campaign, or a seed, from an environment variable.
pub fn number_from(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")),
        Err(_) => default,
    }
}

/// Options for a new store of an engine, over a small journal or mapped. An engine with files of its own has those in place of a journal.
pub fn options(engine: &str, journaled: bool) -> Options {
    let entry = registry::find(engine).ok();
    let in_files = journaled && entry.is_some_and(|entry| entry.files.is_some());
    let is_mapped = !journaled && entry.is_some_and(|entry| entry.about.durable);
    Options::default()
        .engine(engine)
        .journal_bytes(journaled.then_some(4 << 20))
        .durability((is_mapped || in_files).then_some(Durability::Process))
        .max_bytes(1 << 32)
}

/// The engines whose stores have these capabilities, each in memory and, if it is durable, over a journal or in files of its own.
pub fn engines(wanted: fn(&Capabilities) -> bool) -> impl Iterator<Item = (&'static str, bool)> {
    let all = registry::names().flat_map(|name| [(name, false), (name, true)]);
    all.filter(move |(name, journaled)| {
        let entry = registry::find(name).unwrap();
        let can = match (journaled, entry.files) {
            (true, Some(in_files)) => in_files,
            _ => entry.capabilities,
        };
        wanted(&can) && (can.durable || !journaled)
    })
}

/// True if this store of an engine has a region: it is no store in files of its own.
pub fn has_region(engine: &str) -> bool {
    registry::find(engine).unwrap().files.is_none()
}

/// Options for an existing store.
pub fn existing() -> Options {
    Options::default().create(false)
}

/// The pairs of a scan: visits that stop, and single steps between them.
pub fn visited<K: Kind>(mut scan: Scan<'_, K>) -> Vec<(K::KeyBuf, K::ValueBuf)> {
    let mut pairs = Vec::new();
    loop {
        let before = pairs.len();
        let stops = before + 1 + before % 50;
        let visit = |key: &K::Key, value: &K::Value| {
            pairs.push((K::own_key(key), K::own_value(value)));
            pairs.len() < stops
        };
        scan.visit(visit).unwrap();
        assert!(pairs.len() <= stops, "a visit goes on after it was stopped");
        let has_ended = pairs.len() < stops;
        let next = scan.next().map(Result::unwrap);
        assert!(!(has_ended && next.is_some()), "a scan goes on after its end");
        match next {
            Some(pair) => pairs.push(pair),
            None => return pairs,
        }
    }
}

/// All pairs of a store in key order. Also checks that an engine without order refuses ordered scans.
pub fn pairs<K: Kind>(store: &StoreOf<K>) -> Vec<(K::KeyBuf, K::ValueBuf)> {
    let mut pairs = store.walk().collect::<Result<Vec<_>, _>>().unwrap();
    let scanned = store.scan(..).collect::<Result<Vec<_>, _>>();
    if store.capabilities().ordered {
        assert!(scanned.unwrap().iter().map(|(key, _)| key).eq(pairs.iter().map(|(key, _)| key)));
    } else {
        assert!(matches!(scanned.err(), Some(Error::Unordered { .. })));
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
    }
    pairs
}
