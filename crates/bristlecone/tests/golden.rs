//! Golden stores: files that each version of the format wrote, committed in `tests/golden`. This version opens them and finds the stored
//! contents, or refuses them with a message that says how to move the contents.
//!
//! `cargo run -p bristlecone --features all-engines --example golden -- DIR` writes the files of the current version.

#[path = "golden/contents.rs"]
mod contents;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bristlecone::store_dir::{FILE_NAME, JOURNAL_NAME};
use bristlecone::{Error, FORMAT_VERSION, Store, StoreFixed, StoreU64};
use contents::{Golden, Kind, TABLE, fixed, in_table, key, of_version, value};
use tempfile::TempDir;

use crate::common::{existing, pairs, scratch};

fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Unpacks the files of a golden store into a new directory.
fn unpacked(name: &str) -> TempDir {
    let dir = scratch();
    let mut files = 0;
    for file in [FILE_NAME, JOURNAL_NAME] {
        let Ok(packed) = fs::File::open(golden_dir().join(format!("{name}.{file}.gz"))) else { continue };
        let mut content = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut content).unwrap();
        fs::write(dir.path().join(file), content).unwrap();
        files += 1;
    }
    assert!(files > 0, "no golden files {name}.*: see the head of tests/golden.rs");
    dir
}

/// Opens a golden store, compares its contents, changes it, and opens it again.
fn holds_what_was_stored(golden: Golden, dir: &Path) -> Result<(), Error> {
    let expected = contents::contents();
    let bytes = |n: &u64, put: &u64| (key(*n), value(*put));
    match golden.kind {
        Kind::Bytes => {
            let store = Store::open(dir, existing())?;
            let expected: BTreeMap<_, _> = expected.iter().map(|(n, put)| bytes(n, put)).collect();
            assert_eq!(pairs(&store), expected.into_iter().collect::<Vec<_>>(), "{golden:?}");
            store.put(b"new", b"value")?;
            assert_eq!(store.check()?.problems, Vec::<String>::new(), "{golden:?}");
            store.close()?;
            drop(store);
            assert_eq!(Store::open(dir, existing())?.get(b"new")?.as_deref(), Some(b"value".as_slice()));
        }
        Kind::Tables => {
            let store = Store::open(dir, existing())?;
            let expected: BTreeMap<_, _> = expected.iter().map(|(n, put)| bytes(n, put)).collect();
            assert_eq!(pairs(&store), expected.into_iter().collect::<Vec<_>>(), "{golden:?}");
            let table = store.find_table(TABLE)?.expect("the table");
            let expected: Vec<_> = in_table().map(|(n, put, _)| bytes(&n, &put)).collect();
            assert_eq!(pairs(&table), expected, "{golden:?}");
            for (n, _, deadline) in in_table() {
                assert_eq!(table.deadline(&key(n))?, Some(deadline), "{golden:?}");
            }
            assert_eq!((store.count()?, table.count()?), (pairs(&store).len() as u64, 50), "{golden:?}");
            table.put(b"new", b"value")?;
            assert_eq!(store.check()?.problems, Vec::<String>::new(), "{golden:?}");
            store.close()?;
            drop((store, table));
            let again = Store::open(dir, existing())?;
            let table = again.find_table(TABLE)?.expect("the table");
            assert_eq!(table.get(b"new")?.as_deref(), Some(b"value".as_slice()));
        }
        Kind::Words => {
            let store = StoreU64::open(dir, existing())?;
            assert_eq!(pairs(&store), expected.into_iter().collect::<Vec<_>>(), "{golden:?}");
            store.put(&1_000_000, &7)?;
            assert_eq!(store.check()?.problems, Vec::<String>::new(), "{golden:?}");
            store.close()?;
            drop(store);
            assert_eq!(StoreU64::open(dir, existing())?.get(&1_000_000)?, Some(7));
        }
        Kind::Fixed => {
            let store = StoreFixed::open(dir, existing())?;
            let expected: Vec<_> = expected.iter().map(|(n, put)| (*n, fixed(*put))).collect();
            assert_eq!(pairs(&store), expected, "{golden:?}");
            store.put(&1_000_000, &fixed(7))?;
            assert_eq!(store.check()?.problems, Vec::<String>::new(), "{golden:?}");
            store.close()?;
            drop(store);
            assert_eq!(StoreFixed::open(dir, existing())?.get(&1_000_000)?, Some(fixed(7)));
        }
    }
    Ok(())
}

#[test]
fn stores_of_this_version_are_opened_and_hold_what_was_stored() {
    for golden in of_version(FORMAT_VERSION) {
        let dir = unpacked(&golden.name(FORMAT_VERSION));
        let Err(why) = holds_what_was_stored(golden, dir.path()) else { continue };
        // A mapped store that was not closed survives only the end of its process. The machine may have rebooted since.
        let may_be_torn = !golden.journaled && !golden.closed;
        let why = why.to_string();
        assert!(may_be_torn && why.contains("when the machine went down"), "{golden:?}: {why}");
    }
}

/// Version 4 had both copies of the superblock in one block of 4 KiB.
#[test]
fn stores_of_version_4_are_refused_with_what_to_do() {
    for golden in of_version(4) {
        let dir = unpacked(&golden.name(4));
        let opened = match golden.kind {
            Kind::Bytes | Kind::Tables => Store::open(dir.path(), existing()).map(drop),
            Kind::Words => StoreU64::open(dir.path(), existing()).map(drop),
            Kind::Fixed => StoreFixed::open(dir.path(), existing()).map(drop),
        };
        let why = opened.err().unwrap_or_else(|| panic!("{golden:?} opens")).to_string();
        let told =
            ["format version 4, this program reads version 5", "scan --json", "load FILE --format jsonl"];
        assert!(told.iter().all(|words| why.contains(words)), "{golden:?}: {why}");
    }
}

#[test]
fn every_golden_file_is_opened_above() {
    let known = |version| of_version(version).map(move |golden| golden.name(version));
    let known: Vec<_> = known(4).chain(known(FORMAT_VERSION)).collect();
    for entry in fs::read_dir(golden_dir()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".gz") {
            assert!(known.iter().any(|known| name.starts_with(&format!("{known}."))), "{name}");
        }
    }
}
