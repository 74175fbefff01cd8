//! Tests of the upkeep.

use bwtree::{Bytes, Change};

use super::*;
use crate::omission::omit;
use crate::settings::Settings;

/// A checkpoint saves a leaf whole, but the leaf changes meanwhile: it has few changes since its image before, which the checkpoint does
/// not name. The leaf is evicted with these changes. Then the checkpoint removes segments, and the leaf is read.
fn change_during_a_save(omission: Option<Omission>) -> Result<bool> {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { is_small: true, ..Settings::default() };
    let store = Store::<Bytes>::create(dir.path(), "store", 1, settings)?;
    let put = |key: u8, value: &[u8]| store.update(&[key], |_| Change::Put(value), false).map(drop);
    // In this order each leaf has two keys.
    [0, 2, 4, 1, 3, 5].into_iter().try_for_each(|key| put(key, &[1; 100]))?;
    store.checkpoint()?;
    // The next image is in another segment.
    store.segments.append(&[0; 4096], bwtree::ImageKind::Whole, 0)?;
    [0, 2, 3, 4].into_iter().try_for_each(|key| put(key, &[2; 100]))?;
    let filled = store.segments.begin_checkpoint();
    let (mut leaves, mut live) = (Vec::new(), Live::default());
    let mut from = None;
    loop {
        let is_first = from.is_none();
        let saved = store.tree.save(from.as_deref(), |image, kind| {
            if is_first {
                put(0, b"3").map_err(Failure)?;
            }
            store.append(image, kind)
        })?;
        let SavedLeaf { image, records, is_counted, bytes, next } = saved;
        leaves.push(RestoredLeaf { low: from, image, records, is_counted, bytes });
        from = next;
        if from.is_none() {
            break;
        }
    }
    leaves.iter().for_each(|leaf| live.add(leaf));
    assert_eq!(leaves[0].image.base, None);
    (0..8).for_each(|page| _ = store.evict(&mut lock(&store.upkeep), page, true));
    assert!(store.tree.unsaved_bytes() > 0);
    omit(omission);
    let removed = store.remove_unused(&live, &filled);
    omit(None);
    removed?;
    store.get(&[0], |value| assert_eq!(value, b"3"))?;
    // This one needs the base.
    store.get(&[1], |value| assert_eq!(value, [1; 100]))
}

/// An update waits while the log is longer than the checkpoint allows; a read does not. The end of the checkpoint ends this.
#[test]
fn updates_wait_for_a_slow_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { is_small: true, ..Settings::default() };
    let store = Store::<Bytes>::create(dir.path(), "store", 1, settings).unwrap();
    let done = AtomicU64::new(0);
    let put = |key: u64| {
        store.set(&key.to_be_bytes(), Some(&[1; 10]), false).unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    };
    store.log_allowed.store(0, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(put));
        while done.load(Ordering::Relaxed) < 63 {
            std::thread::sleep(WAIT);
        }
        (0..200u64).for_each(|_| assert!(store.get(&0u64.to_be_bytes(), |_| {}).unwrap()));
        while store.stats().waits == 0 {
            std::thread::sleep(WAIT);
        }
        std::thread::sleep(100 * WAIT);
        assert_eq!(done.load(Ordering::Relaxed), 63);
        store.checkpoint().unwrap();
    });
    assert_eq!(done.load(Ordering::Relaxed), 200);
    let stats = store.stats();
    assert!(stats.waits == 1 && stats.waited >= 100 * WAIT, "{stats:?}");
    assert_eq!(store.log_allowed.load(Ordering::Relaxed), u64::MAX);
}

/// The thread of the upkeep is woken when leaves are to be evicted. If it does not come, writers evict.
#[test]
fn the_budget_holds_beside_a_thread_of_the_upkeep_that_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { memory_bytes: 2 << 20, ..Settings::default() };
    let store = Store::<Bytes>::create(dir.path(), "store", 1, settings).unwrap();
    assert!(!store.wake_helper());
    let (done, wait) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let idle = scope.spawn(move || wait.recv());
        *lock(&store.helper) = Some(idle.thread().clone());
        assert!(store.wake_helper());
        let mut most = 0;
        for key in 0..40_000u64 {
            store.set(&key.to_be_bytes(), Some(&[1; 100]), false).unwrap();
            most = most.max(store.used_bytes());
        }
        drop(done);
        assert!(most > store.budget(EVICT_FROM), "{most} bytes");
        assert!(most <= store.budget(EVICT_FROM + 2), "{most} bytes");
    });
    let stats = store.stats();
    assert!(stats.evictions > 100 && stats.waits > 0 && !stats.waited.is_zero(), "{stats:?}");
}

#[test]
fn the_base_of_changes_is_not_removed() {
    assert!(change_during_a_save(None).unwrap());
    let error = change_during_a_save(Some(Omission::Bases)).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

/// Without updates, a long log is replaced by a checkpoint. A short one stays.
#[test]
fn an_idle_store_gives_the_space_of_its_log_back() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        Settings { log_bytes: 64 << 10, idle: Duration::ZERO, is_small: true, ..Settings::default() };
    let store = Store::<Bytes>::create(dir.path(), "store", 1, settings).unwrap();
    let put =
        |key: u32| store.update(&key.to_be_bytes(), |_| Change::Put(&[1; 100][..]), true).map(drop).unwrap();
    let upkeep = || {
        store.upkeep().unwrap();
        store.stats().checkpoints
    };
    put(0);
    assert_eq!((upkeep(), upkeep()), (0, 0), "the log has {} bytes", store.log_length());
    (0..100).for_each(put);
    assert_eq!(upkeep(), 0, "there was an update since the last look");
    assert_eq!((upkeep(), store.log_length()), (1, 0));
    // Nothing is left to do.
    assert_eq!((upkeep(), upkeep()), (1, 1));
}
