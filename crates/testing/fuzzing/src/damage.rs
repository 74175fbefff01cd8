//! Fuzz targets for stores with damaged files.
//!
//! The input is one byte that selects the store, then a list of changes. The first byte of a change selects the file (bit 0: region or
//! journal) and the kind (bits 1 and 2). The next three bytes are the place, in units of the kind, modulo the length of the file. In a
//! change of kind 0 or 1, eight bytes with the new word follow.
//!
//! | kind | unit | effect |
//! |---|---|---|
//! | 0, 1 | 8 bytes | overwrites a word with the new word |
//! | 2 | 512 bytes | overwrites a sector with zeros |
//! | 3 | 512 bytes | truncates the file at the place |

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use bristlecone::store_dir::{FILE_NAME, JOURNAL_NAME};
use bristlecone::{Durability, Options, Store};
use tempfile::TempDir;

const KEYS: u64 = 400;
/// Bounds the memory that a damaged store can request.
const BYTES_MAX: u64 = 64 << 20;
const SECTOR: usize = 512;

fn key(n: u64) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 1 + n as usize % 90]
}

/// The files of a store: region, and journal if it has one.
struct Files {
    region: Vec<u8>,
    journal: Option<Vec<u8>>,
}

/// Engines, and whether the store has a journal. Each key is written once, so an old record found in damaged files never has another value
/// of the key.
const STORES: [(&str, bool); 6] =
    [("wbtree", false), ("wbtree", true), ("cdds", false), ("cdds", true), ("vlab", false), ("vlab", true)];

/// A directory in memory, if there is one.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory for the store")
}

/// The stores as a crash of their process leaves them. They are created once.
fn stores() -> &'static [Files] {
    static STORES_MADE: OnceLock<Vec<Files>> = OnceLock::new();
    STORES_MADE.get_or_init(|| STORES.iter().map(|(engine, journaled)| made(engine, *journaled)).collect())
}

fn made(engine: &str, journaled: bool) -> Files {
    let dir = scratch();
    let options = Options::default()
        .engine(engine)
        .durability((!journaled).then_some(Durability::Process))
        .journal_bytes(journaled.then_some(4 << 20))
        .max_bytes(BYTES_MAX);
    let store = Store::open(dir.path(), options).expect("a new store");
    for n in (0..KEYS).map(|n| n * 7919 % KEYS) {
        store.put(&key(n), &value(n)).expect("a put");
    }
    for n in (0..KEYS).step_by(5) {
        store.delete(&key(n)).expect("a delete");
    }
    let region = fs::read(dir.path().join(FILE_NAME)).expect("the region");
    Files { region, journal: fs::read(dir.path().join(JOURNAL_NAME)).ok() }
}

/// Reads numbers from the input; zeros after its end.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    /// The next bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let count = N.min(self.0.len());
        bytes[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        bytes
    }
}

fn hurt(file: &mut Vec<u8>, kind: u8, input: &mut Input<'_>) {
    let [low, middle, high] = input.take();
    let place = u32::from_le_bytes([low, middle, high, 0]) as usize;
    let at = |unit: usize| place % (file.len() / unit).max(1) * unit;
    match kind {
        0 | 1 => {
            let (at, word) = (at(8), input.take::<8>());
            if let Some(bytes) = file.get_mut(at..at + 8) {
                bytes.copy_from_slice(&word);
            }
        }
        2 => {
            let at = at(SECTOR);
            if let Some(bytes) = file.get_mut(at..at + SECTOR) {
                bytes.fill(0);
            }
        }
        _ => file.truncate(at(SECTOR)),
    }
}

/// Creates a damaged store from the input, starting from one of the stores that satisfy `wanted`. If the store has no journal, damage of
/// the journal goes to the region.
fn damaged(input: &[u8], wanted: impl Fn(&Files) -> bool, journal_only: bool) -> TempDir {
    let mut input = Input(input);
    let candidates: Vec<&Files> = stores().iter().filter(|files| wanted(files)).collect();
    let files = candidates[usize::from(input.take::<1>()[0]) % candidates.len()];
    let (mut region, mut journal) = (files.region.clone(), files.journal.clone());
    while !input.0.is_empty() {
        let [what] = input.take();
        let file = match &mut journal {
            Some(journal) if journal_only || what & 1 != 0 => journal,
            _ => &mut region,
        };
        hurt(file, what >> 1 & 3, &mut input);
    }
    let dir = scratch();
    fs::write(dir.path().join(FILE_NAME), region).expect("the region");
    if let Some(journal) = journal {
        fs::write(dir.path().join(JOURNAL_NAME), journal).expect("the journal");
    }
    dir
}

/// Runs all kinds of operations on a store. The result for a stored key must be correct, absent or an error.
fn used(dir: &Path) {
    let options = Options::default().create(false).max_bytes(BYTES_MAX);
    let Ok(store) = Store::open(dir, options) else { return };
    for n in 0..KEYS {
        if let Ok(Some(found)) = store.get(&key(n)) {
            assert_eq!(found, value(n), "key {n}");
        }
    }
    // A scan must end, with or without an error: the file has no space for more pairs.
    let scanned = store.scan(..).take_while(Result::is_ok).count() as u64;
    assert!(scanned <= BYTES_MAX / 16, "{scanned} pairs");
    let _ = store.check();
    for n in (0..KEYS).step_by(7) {
        let _ = store.put(&key(KEYS + n), &value(n));
        let _ = store.delete(&key(n));
    }
    let _ = store.close();
}

/// Damages the region, opens the store and runs operations on it.
///
/// # Panics
/// If a value is wrong, or if a scan returns more pairs than the store has space for.
pub fn region(input: &[u8]) {
    used(damaged(input, |files| files.journal.is_none(), false).path());
}

/// Damages the journal, opens the store so that recovery replays the journal, and runs operations on the store.
///
/// # Panics
/// As [`region`].
pub fn journal(input: &[u8]) {
    used(damaged(input, |files| files.journal.is_some(), true).path());
}

/// Damages region and journal, and salvages the store. The contents of the new store must be correct.
///
/// # Panics
/// If a value of the new store is wrong, if a read of it fails, or if its check finds a problem.
pub fn salvage(input: &[u8]) {
    let (dir, new) = (damaged(input, |_| true, false), scratch());
    let new = new.path().join("new");
    if bristlecone::salvage(dir.path(), &new, &|_| {}).is_err() {
        return;
    }
    let store = Store::open(&new, Options::default().create(false));
    // Damage may have changed the recorded kind of the store. Then the new store has that kind, too.
    let Ok(store) = store else { return };
    let report = store.check().expect("a check of a new store");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    for n in 0..KEYS {
        if let Some(found) = store.get(&key(n)).expect("a get of a new store") {
            assert_eq!(found, value(n), "key {n}");
        }
    }
}
