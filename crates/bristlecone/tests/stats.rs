//! Statistics of a store: the use of its bytes, the activity of its journal, the latencies of operations.

use crate::common::{existing, options, scratch};
use bristlecone::journal::{Journal, ORIGIN, Options as Sizes};
use bristlecone::store_dir::{FILE_NAME, JOURNAL_NAME};
use bristlecone::{Options, Percentiles, Space, Store, StoreU64, TIMED_EVERY, WriteOptions};
use crash::{Fault, Machine, Which};

const KEYS: u32 = 3000;
const VALUE_BYTES: usize = 700;

fn key(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9E37_79B1).to_be_bytes()
}

fn fill(store: &Store) {
    let quick = store.with(WriteOptions { sync: false });
    (0..KEYS).for_each(|n| _ = quick.put(&key(n), &[n as u8; VALUE_BYTES]).unwrap());
}

/// The use of the store's bytes. It agrees with the verification and covers the whole region.
fn space(store: &Store) -> Space {
    let (space, report) = (store.space(), store.check().unwrap());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(space.live_bytes, report.live_bytes);
    let Space { live_bytes, free_bytes, overhead_bytes } = space;
    assert_eq!(live_bytes + free_bytes + overhead_bytes, store.stats().region_bytes, "{space:?}");
    space
}

/// Over a journal the file grows ahead of the region. After a reopen the region has the whole file: the additional bytes are free chunks
/// and a rest.
fn is_the_same_or_longer(now: Space, before: Space, journaled: bool) {
    if !journaled {
        return assert_eq!(now, before);
    }
    assert_eq!(now.live_bytes, before.live_bytes);
    let (free, overhead) = (
        now.free_bytes.checked_sub(before.free_bytes),
        now.overhead_bytes.checked_sub(before.overhead_bytes),
    );
    assert!(free.is_some() && overhead.is_some_and(|bytes| bytes < 256 << 10), "{now:?}, before {before:?}");
}

#[test]
fn what_deleted_records_took_is_free_and_used_again_before_the_file_grows() {
    let engines = ["wbtree", "wbtree-slot", "btree-log", "unsorted-shadow", "wb-4k", "buffer-pool", "btree"];
    for (engine, journaled) in engines.iter().flat_map(|engine| [(*engine, false), (*engine, true)]) {
        if engine == "btree" && journaled {
            continue; // it is volatile
        }
        let said = format!("{engine}, journaled: {journaled}");
        let dir = scratch();
        // A clean close of a store with tables adds a record.
        let plain = options(engine, journaled).tables(false);
        let store = Store::open(dir.path(), plain).unwrap();
        let empty = space(&store);
        assert_eq!(empty.live_bytes, store.stats().node_bytes, "{said}: a leaf");
        fill(&store);
        let (full, bytes) = (space(&store), store.stats().region_bytes);
        let records = u64::from(KEYS) * VALUE_BYTES as u64;
        assert!(full.live_bytes >= empty.live_bytes + records, "{said}: {full:?}");
        let quick = store.with(WriteOptions { sync: false });
        (0..KEYS).step_by(2).for_each(|n| assert!(quick.delete(&key(n)).unwrap()));
        let half = space(&store);
        assert_eq!(store.stats().region_bytes, bytes, "{said}");
        // Bytes that are not live any more are free. The header of an empty chunk is free, too.
        let taken = full.live_bytes - half.live_bytes;
        assert!(taken >= records / 2, "{said}: {full:?}, {half:?}");
        let no_overhead = full.overhead_bytes - half.overhead_bytes;
        assert_eq!(half.free_bytes, full.free_bytes + taken + no_overhead, "{said}");
        assert!(no_overhead < taken / 10, "{said}: {full:?}, {half:?}");
        (0..KEYS).step_by(2).for_each(|n| _ = quick.put(&key(n), &[n as u8; VALUE_BYTES]).unwrap());
        space(&store);
        assert_eq!(store.stats().region_bytes, bytes, "{said}: the space was used again");
        if engine == "btree" {
            assert_eq!(store.stats().file_bytes, None, "it has no file");
            continue;
        }
        (0..KEYS).for_each(|n| _ = quick.delete(&key(n)).unwrap());
        let none = space(&store);
        assert!(none.free_bytes >= records, "{said}: {none:?}");
        drop((store, quick));
        // The space of a file of which nothing was read since the open.
        let store = Store::open(dir.path(), existing()).unwrap();
        is_the_same_or_longer(space(&store), none, journaled);
    }
}

#[test]
fn sizes_are_those_of_the_files() {
    for journaled in [false, true] {
        let dir = scratch();
        let store = Store::open(dir.path(), options("wbtree", journaled)).unwrap();
        fill(&store);
        store.close().unwrap();
        let stats = store.stats();
        let size = |name: &str| std::fs::metadata(dir.path().join(name)).ok().map(|about| about.len());
        assert_eq!(stats.file_bytes, size(FILE_NAME));
        match (size(FILE_NAME).unwrap(), journaled) {
            (bytes, false) => assert_eq!(stats.region_bytes, bytes),
            // The file grows ahead of the region.
            (bytes, true) => {
                let least = stats.region_bytes + ORIGIN;
                assert!((least..=2 * least).contains(&bytes), "{bytes} bytes, {least} are needed");
            }
        }
        assert_eq!(stats.journal.map(|journal| journal.file_bytes), size(JOURNAL_NAME));
        assert_eq!(stats.journal.map(|journal| journal.bytes), journaled.then_some(4 << 20));
    }
}

#[test]
fn of_a_store_that_is_only_read_what_its_files_say_is_told_and_nothing_else() {
    for journaled in [false, true] {
        let dir = scratch();
        let store = Store::open(dir.path(), options("wbtree", journaled)).unwrap();
        fill(&store);
        let look = |store: &Store| {
            let read = Store::open(dir.path(), existing().read_only(true)).unwrap();
            (0..2 * TIMED_EVERY).for_each(|n| assert!(read.get(&key(n)).unwrap().is_some()));
            read.commit().unwrap();
            let (seen, stats) = (read.stats(), store.stats());
            assert!(seen.read_only && seen.file_bytes == stats.file_bytes);
            assert!(seen.region_bytes >= stats.region_bytes);
            is_the_same_or_longer(space(&read), store.space(), journaled);
            assert_eq!((seen.latency.write, seen.latency.commit), (None, None));
            assert!(seen.latency.get.is_some(), "its own reads are timed");
            assert_eq!(seen.journal.is_some(), journaled);
            if let (Some(seen), Some(journal)) = (seen.journal, stats.journal) {
                assert_eq!((seen.bytes, seen.file_bytes), (journal.bytes, journal.file_bytes));
                assert!(seen.activity.is_none() && journal.activity.is_some());
            }
        };
        if journaled {
            store.commit().unwrap();
            look(&store); // from a copy, beside the writer
        }
        store.close().unwrap();
        let closed = store.clone();
        drop(store);
        // A closed store still has its statistics. It holds the files until it is dropped.
        let (stats, used) = (closed.stats(), closed.space());
        drop(closed);
        let read = Store::open(dir.path(), existing().read_only(true)).unwrap();
        assert!(read.stats().region_bytes >= stats.region_bytes);
        is_the_same_or_longer(space(&read), used, journaled);
        assert!(read.stats().journal.is_none_or(|journal| journal.activity.is_none()));
    }
}

fn on_files(machine: &Machine) -> StoreU64 {
    let [data, journal] = [Which::Data, Which::Journal].map(|which| machine.storage(which));
    let sizes = Sizes { capacity_bytes: 512 << 10, max_bytes: 64 << 20 };
    let journal = Journal::create_on(data, journal, [1, 2], &sizes).unwrap();
    StoreU64::open_over(journal, None, Options::default()).unwrap()
}

#[test]
fn groups_and_syncs_are_those_that_the_disk_saw() {
    let machine = Machine::new(1);
    let store = on_files(&machine);
    let activity = |store: &StoreU64| store.stats().journal.unwrap().activity.unwrap();
    let made = activity(&store);
    assert!(made.groups == made.groups_since_open && made.waiting_bytes > 0, "{made:?}");
    // Each synced write is a group of its own. Many unsynced writes are one group.
    (0..1000).for_each(|n| _ = store.put(&n, &n).unwrap());
    assert_eq!(activity(&store).groups_since_open, made.groups_since_open + 1000);
    store.close().unwrap();
    let done = activity(&store);
    assert_eq!(done.syncs_since_open, machine.syncs());
    assert!(done.syncs_since_open > done.groups_since_open, "a checkpoint syncs too: {done:?}");
    assert!(done.checkpoints_since_open > 0 && done.waiting_bytes == 0, "{done:?}");
    drop(store);
    // After a reopen the number of groups continues, and the counters since the open restart.
    let before = machine.syncs();
    let [data, journal] = [Which::Data, Which::Journal].map(|which| machine.storage(which));
    let (journal, replay) = Journal::open_on(data, journal, 64 << 20).unwrap();
    let store = StoreU64::open_over(journal, Some(replay), existing()).unwrap();
    let opened = activity(&store);
    assert_eq!(opened.groups, done.groups + opened.groups_since_open);
    assert!(opened.checkpoints_since_open == 0 && opened.syncs_since_open < 20, "{opened:?}");
    let quick = store.with(WriteOptions { sync: false });
    (0..100).for_each(|n| _ = quick.put(&n, &7).unwrap());
    store.commit().unwrap();
    store.put(&1, &8).unwrap();
    let more = activity(&store);
    assert_eq!(more.syncs_since_open, machine.syncs() - before);
    // A failed sync is not counted. The next call writes the group, and the call after it syncs.
    machine.fail_at(machine.calls() + 2, Fault::Eio);
    store.put(&1, &9).unwrap_err();
    assert_eq!((machine.fatal(), store.get(&1).unwrap()), (1, Some(8)));
    let failed = activity(&store);
    assert_eq!(failed.syncs_since_open, machine.syncs() - before);
    assert_eq!((failed.syncs_since_open, failed.groups), (more.syncs_since_open, more.groups));
}

fn assert_ordered(times: Percentiles) {
    let Percentiles { timed: _, p50_ns, p99_ns, p999_ns, max_ns } = times;
    assert!(0 < p50_ns && p50_ns <= p99_ns && p99_ns <= p999_ns && p999_ns <= max_ns, "{times:?}");
}

#[test]
fn all_that_wait_for_a_sync_are_timed_and_some_of_the_others_whatever_handle_they_come_through() {
    let (dir, other) = (scratch(), scratch());
    let store = Store::open(dir.path(), options("wbtree", true)).unwrap();
    assert_eq!(store.stats().latency, Default::default(), "nothing was done");
    for n in 0..10 {
        store.clone().put(&key(n), b"v").unwrap();
        store.compare_and_swap(&key(n), Some(b"v"), Some(b"w")).unwrap();
        store.delete(&key(n + 100)).unwrap();
        store.commit().unwrap();
    }
    let latency = store.stats().latency;
    assert_eq!((latency.write.unwrap().timed, latency.commit.unwrap().timed, latency.get), (30, 10, None));
    // The distance between two samples is at most twice the average.
    let many = 2 * TIMED_EVERY * 10;
    let quick = store.with(WriteOptions { sync: false });
    (0..many).for_each(|n| _ = quick.put(&key(n % 10), b"v").unwrap());
    (0..many).for_each(|n| assert!(store.clone().get(&key(n % 10)).unwrap().is_some()));
    let latency = store.stats().latency;
    let [get, write] = [latency.get, latency.write].map(Option::unwrap);
    assert!((10..many.into()).contains(&get.timed), "{get:?}");
    assert!((40..many.into()).contains(&write.timed), "{write:?}");
    [get, write, latency.commit.unwrap()].into_iter().for_each(assert_ordered);
    // Another store has its own statistics. A commit that has nothing to do is not timed.
    let store = Store::open(other.path(), options("wbtree", false)).unwrap();
    (0..many).for_each(|n| _ = store.put(&key(n % 10), b"v").unwrap());
    store.commit().unwrap();
    let latency = store.stats().latency;
    assert_eq!((latency.get, latency.commit), (None, None));
    assert!((10..many.into()).contains(&latency.write.unwrap().timed), "{latency:?}");
}

#[test]
fn reading_what_was_timed_beside_threads_that_are_loses_no_order_and_stops_nobody() {
    let dir = scratch();
    let store = Store::open(dir.path(), options("wbtree", false)).unwrap();
    store.put(b"k", b"v").unwrap();
    let looks = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| (0..200_000).for_each(|_| assert!(store.contains(b"k").unwrap()))))
            .collect();
        let mut looks = Vec::new();
        while !readers.iter().all(|reader| reader.is_finished()) {
            looks.extend(store.stats().latency.get);
        }
        looks
    });
    assert!(looks.windows(2).all(|pair| pair[0].timed <= pair[1].timed));
    store.stats().latency.get.map(assert_ordered).unwrap();
}
