//! These tests count the journal bytes of a put. They do not measure speed.

use crate::common::{existing, options, scratch};
use bristlecone::{Store, WriteOptions};

const VALUE_BYTES: usize = 100;
const PAIR_BYTES: u64 = 20 + VALUE_BYTES as u64;
/// Number of keys before puts are counted.
const KEYS: u64 = 50_000;

fn key(n: u64) -> [u8; 20] {
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = *b"user0000000000000000";
    format!("user{mixed:016x}").bytes().zip(&mut key).for_each(|(byte, place)| *place = byte);
    key
}

fn value(rng: &mut fastrand::Rng) -> [u8; VALUE_BYTES] {
    std::array::from_fn(|_| rng.u8(..))
}

/// Journal bytes for each of `puts` new keys in a store of [`KEYS`] keys. `write` writes them in runs of `run` puts.
fn bytes_per_put(puts: u64, run: usize, write: impl Fn(&Store, &[[u8; 20]], &[[u8; VALUE_BYTES]])) -> u64 {
    let (dir, mut rng) = (scratch(), fastrand::Rng::with_seed(8));
    let sizes = options("wbtree", true).journal_bytes(64 << 20);
    let store = Store::open(dir.path(), sizes).unwrap();
    let quick = store.with(WriteOptions { sync: false });
    (0..KEYS).for_each(|n| _ = quick.put(&key(n), &value(&mut rng)).unwrap());
    store.close().unwrap();
    drop((store, quick));
    let store = Store::open(dir.path(), existing()).unwrap();
    let keys: Vec<_> = (KEYS..KEYS + puts).map(key).collect();
    keys.chunks(run).for_each(|keys| {
        let values: Vec<_> = keys.iter().map(|_| value(&mut rng)).collect();
        write(&store, keys, &values);
    });
    store.commit().unwrap();
    let activity = store.stats().journal.unwrap().activity.unwrap();
    assert_eq!(activity.checkpoints_since_open, 0, "all that was written waits");
    activity.waiting_bytes / puts
}

/// The previous format of the journal stored changed words whole. A put then took 266 bytes in groups of 50, 203 in a load, and 251 in
/// batches.
#[test]
fn a_put_takes_its_pair_and_three_quarters_of_it_of_the_journal_or_less() {
    let single = bytes_per_put(4000, 1, |store, keys, values| _ = store.put(&keys[0], &values[0]).unwrap());
    let unsynced = |store: &Store, keys: &[[u8; 20]], values: &[[u8; VALUE_BYTES]]| {
        let quick = store.with(WriteOptions { sync: false });
        keys.iter().zip(values).for_each(|(key, value)| _ = quick.put(key, value).unwrap());
        store.commit().unwrap();
    };
    let groups = bytes_per_put(20_000, 50, unsynced);
    let load = bytes_per_put(20_000, 20_000, unsynced);
    let batches = bytes_per_put(20_000, 1000, |store, keys, values| {
        let mut batch = store.batch();
        keys.iter().zip(values).for_each(|(key, value)| _ = batch.put(key, value));
        assert!(batch.commit().unwrap());
    });
    println!(
        "bytes of the journal for a put of {PAIR_BYTES}: alone {single}, in groups of 50 {groups}, in a load {load}, in batches of \
         1,000 {batches}"
    );
    assert!([groups, load, batches].iter().all(|bytes| *bytes <= PAIR_BYTES * 7 / 4));
    // One sector, and two if a leaf is split.
    assert!((512..512 + 16).contains(&single));
}
