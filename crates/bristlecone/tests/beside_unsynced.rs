//! Reads beside writes that are not durable yet, over a journal. A read waits only for its own key, a scan only for its own leaves.

use crate::common::{options, scratch};
use bristlecone::{Store, WriteOptions, registry};

const KEYS: u32 = 4000;

fn key(range: char, n: u32) -> Vec<u8> {
    format!("{range}{n:06}").into_bytes()
}

/// Number of groups committed since the open.
fn groups(store: &Store) -> u64 {
    store.stats().journal.unwrap().activity.unwrap().groups_since_open
}

/// A former defect: a read waited for a sync if its key shared an entry of a table of 4,096 with two keys that were not durable.
#[test]
fn a_read_does_not_wait_for_keys_that_it_does_not_read() {
    for engine in registry::names().filter(|name| registry::find(name).unwrap().about.durable) {
        let dir = scratch();
        let store = Store::open(dir.path(), options(engine, true)).unwrap();
        let quick = store.with(WriteOptions { sync: false });
        for n in 0..KEYS {
            quick.put(&key('a', 2 * n), b"durable").unwrap();
            quick.put(&key('b', n), b"durable").unwrap();
        }
        store.sync().unwrap();
        for n in 0..KEYS {
            quick.put(&key('a', 2 * n + 1), b"not yet").unwrap();
        }
        let before = groups(&store);
        // Keys in the same leaves as keys that are not durable.
        for n in 0..KEYS {
            assert_eq!(store.get(&key('a', 2 * n)).unwrap().unwrap(), b"durable");
        }
        // Leaves without keys that are not durable, except perhaps the first leaf.
        if store.capabilities().ordered {
            assert_eq!(store.scan(key('b', 200)..key('c', 0)).count() as u32, KEYS - 200);
        }
        // A read that waits commits a group if there are new writes. The store also commits by itself twice a second.
        let committed = groups(&store) - before;
        assert!(committed <= 3, "{engine}: {committed} groups were committed for reads");
        // A value is durable once it was read.
        quick.put(b"c", b"new").unwrap();
        let before = groups(&store);
        assert_eq!(store.get(b"c").unwrap().unwrap(), b"new");
        assert!(groups(&store) > before || store.capabilities().several_writers, "{engine}");
    }
}
