//! A store from beginning to end: open, write, read, scan, change atomically, close, reopen.
//!
//! Run it with `cargo run --release -p bristlecone --example tour`.

use bristlecone::{Options, Store};

/// The tour.
pub fn main() -> Result<(), bristlecone::Error> {
    let dir = std::env::temp_dir().join(format!("bristlecone-tour-{}", std::process::id()));
    let store = Store::open(&dir, Options::default())?;
    let stats = store.stats();
    println!("engine {}, durability {} ({})", stats.engine, stats.durability, stats.durability_reason);

    for (city, people) in
        [("zurich", "443000"), ("bern", "137000"), ("basel", "178000"), ("geneva", "209000")]
    {
        store.put(city.as_bytes(), people.as_bytes())?;
    }
    assert_eq!(store.get(b"bern")?.as_deref(), Some(b"137000".as_slice()));

    println!("cities from b to c, backwards:");
    for pair in store.scan_prefix(b"b").descending() {
        let (city, people) = pair?;
        println!("  {} {}", String::from_utf8_lossy(&city), String::from_utf8_lossy(&people));
    }

    assert!(!store.put_if_absent(b"bern", b"0")?);
    assert!(store.compare_and_swap(b"bern", Some(b"137000"), Some(b"138000"))?);
    store.delete(b"geneva")?;
    store.close()?;
    drop(store);

    let store = Store::open(&dir, Options::default())?;
    println!("reopened: {} keys, found {}", store.len().keys, store.stats().opened);
    assert_eq!((store.len().keys, store.stats().opened.as_str()), (3, "clean"));
    assert!(store.check()?.problems.is_empty());
    drop(store);
    std::fs::remove_dir_all(&dir).expect("the tour's own directory");
    Ok(())
}
