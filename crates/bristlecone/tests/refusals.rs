//! A failed creation or open of a store leaves nothing behind, and the error for a user's mistake says what
//! helps.

use bristlecone::{Durability, Options, Store, StoreU64, TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX};

use crate::common::{options, scratch};

fn refused<T>(result: bristlecone::Result<T>) -> String {
    result.err().expect("refused").to_string()
}

#[test]
fn a_store_that_is_not_made_leaves_no_directory() {
    let dir = scratch();
    let inner = dir.path().join("of/a/new/store");
    // A path that ends in a file: no directory can be made below it.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    refused(Store::open(file.join("store"), Options::default()));
    // The file system is judged after the directory was made, the journal's size after the file was.
    let tiny = Options::default().journal_bytes(4096);
    let impossible = Options::default().durability(Durability::Process).journal_bytes(64 << 20);
    for options in [impossible, tiny.clone()] {
        let error = refused(Store::open(&inner, options));
        assert!(error.contains("journal"), "{error}");
        assert!(!dir.path().join("of").exists(), "{error}");
    }
    // A directory that the user made stays, and so do the user's files.
    std::fs::create_dir_all(inner.parent().unwrap()).unwrap();
    refused(Store::open(&inner, tiny));
    assert!(inner.parent().unwrap().is_dir() && !inner.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn another_engine_and_another_kind_are_refused_with_the_remedy() {
    let dir = scratch();
    Store::open(dir.path(), options("wbtree", false)).unwrap().close().unwrap();
    assert_eq!(
        refused(Store::open(dir.path(), options("cdds", false))),
        "the store was made with engine wbtree, not with engine cdds: a store keeps its engine; omit the engine (`--engine`) to open it"
    );
    assert_eq!(
        refused(StoreU64::open(dir.path(), Options::default())),
        "the store was made with keys and values of the kind \"bytes, tables\", not with \"u64\": open it with the store type of its kind"
    );
    Store::open(dir.path(), Options::default()).unwrap();
}

#[test]
fn the_length_of_a_key_or_a_value_is_refused_with_its_limit() {
    let dir = scratch();
    let store = Store::open(dir.path(), options("wbtree", false)).unwrap();
    let put = |key: usize, value: usize| refused(store.put(&vec![b'k'; key], &vec![0; value]));
    assert_eq!((TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX), (65_520, 268_435_447));
    assert_eq!(put(65_521, 0), "a key of 65521 bytes: at most 65520");
    assert_eq!(put(65_536, 0), "a key of 65536 bytes: at most 65520 (65535 in a store without tables)");
    assert_eq!(put(0, 0), "a key of 0 bytes: a key has 1 to 65520 bytes");
    assert_eq!(put(1, TABLE_VALUE_BYTES_MAX + 1), "a value of 268435448 bytes: at most 268435447");
}

#[test]
fn an_engine_that_keeps_nothing_says_so() {
    let dir = scratch();
    let promised = options("btree", false).durability(Durability::Process);
    assert_eq!(
        refused(Store::open(dir.path(), promised)),
        "btree keeps nothing after the end of the process: leave the durability out (`--durability`), or choose another engine"
    );
    let store = Store::open(dir.path(), options("bwtree", false)).unwrap();
    let stats = store.stats();
    assert_eq!(
        (stats.durability.as_str(), stats.durability_reason.contains("keeps nothing")),
        ("none", true)
    );
    assert_eq!(store.len().to_string(), "0");
    let pending = bristlecone::Count { pending: true, ..store.len() };
    assert_eq!(pending.to_string(), "at least 0");
}
