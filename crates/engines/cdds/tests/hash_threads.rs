//! Readers beside a writer of the hash table. The table grows and shrinks, and nodes and records are freed and reused. Every read must
//! return one complete version.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::samples::Sample as _;
use crate::common::{Sample, hash_options, memory, options, write_many};
use crate::hash_common::Map;
use cdds::Options;
use cdds::hash::Table;
use index::{Keyed, Words};
use pmem::{Error, Observed};

/// Keys that are always present. The sum of their values never changes.
const ACCOUNTS: u32 = 24;
/// Keys that come and go.
const OTHERS: std::ops::Range<u32> = 100..700;
const EACH: u32 = 1000;

/// Numbers of keys and values.
trait Numbered: Sample {
    fn number(value: &Self::ValueBuf) -> u32;
    fn is_account(key: &Self::KeyBuf) -> bool;
}

impl Numbered for Words {
    fn number(value: &u64) -> u32 {
        (value >> 32) as u32
    }
    fn is_account(key: &u64) -> bool {
        key >> 32 < u64::from(ACCOUNTS)
    }
}

impl Numbered for Keyed {
    fn number(value: &Vec<u8>) -> u32 {
        u32::from_le_bytes(value[value.len() - 4..].try_into().unwrap())
    }
    fn is_account(key: &Vec<u8>) -> bool {
        *key < Self::key(ACCOUNTS)
    }
}

/// The number of reads, and whether the writer is done. The writer ends after enough reads.
#[derive(Debug, Default)]
struct Progress {
    done: AtomicBool,
    versions: AtomicU64,
    taken_back: AtomicU64,
    found: AtomicU64,
}

fn write<S: Numbered>(
    table: &Table<Observed, S>,
    progress: &Progress,
    rounds: u64,
    has_failed: impl Fn() -> bool,
) {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut accounts = [EACH; ACCOUNTS as usize];
    let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let has_seen_all = || seen(&progress.versions) >= 2 * rounds && seen(&progress.found) >= 100 * rounds;
    for round in 0.. {
        if has_failed() || (round >= rounds && has_seen_all()) {
            break;
        }
        let fills = round % 2 == 0;
        for n in OTHERS {
            let key = S::key(n);
            if fills {
                table.put(S::borrow(&key), S::borrow_value(&S::value(n))).unwrap();
            } else {
                table.delete(S::borrow(&key)).unwrap();
            }
            if n % 3 == 0 {
                let [from, to] = [0, 1].map(|_| rng.usize(..accounts.len()));
                let amount = rng.u32(..=accounts[from]);
                accounts[from] -= amount;
                accounts[to] += amount;
                let of = |n: usize| (S::key(n as u32), Some(S::value(accounts[n])));
                write_many(table, &[of(from), of(to)]).unwrap();
            }
            if n % 50 == 0 {
                table.collect_some(7).unwrap();
            }
        }
        // The rollback undoes these writes. Readers of the version in between get an error.
        let mark = table.mark();
        write_many(table, &[(S::key(0), None), (S::key(1), Some(S::value(7)))]).unwrap();
        assert!(table.roll_back(&mark).unwrap());
    }
    progress.done.store(true, Ordering::Release);
}

/// Walks and lookups of one version agree with each other and with its number of keys, unless the version is rolled back.
fn read_versions<S: Numbered>(table: &Table<Observed, S>, progress: &Progress) {
    while !progress.done.load(Ordering::Acquire) {
        match read_version(table) {
            Ok(()) => _ = progress.versions.fetch_add(1, Ordering::Relaxed),
            Err(Error::TakenBack { .. }) => _ = progress.taken_back.fetch_add(1, Ordering::Relaxed),
            Err(error) => panic!("{error}"),
        }
    }
}

fn read_version<S: Numbered>(table: &Table<Observed, S>) -> Result<(), Error> {
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    let snapshot = table.snapshot();
    let (mut walk, mut all) = (snapshot.pairs(), Map::<S>::new());
    while walk.next(&mut key, &mut value)? {
        assert!(all.insert(key.clone(), value.clone()).is_none(), "{key:?} comes twice");
    }
    assert_eq!(Some(all.len() as u64), snapshot.keys());
    let accounts = all.iter().filter(|(key, _)| S::is_account(key));
    let sum: u32 = accounts.map(|(_, value)| S::number(value)).sum();
    assert!(sum == ACCOUNTS * EACH || is_taken_back::<S>(&all), "half of a batch: {sum}");
    for (key, expected) in &all {
        assert!(snapshot.get(S::borrow(key), Some(&mut value))?);
        assert!(value == *expected);
    }
    assert!(!snapshot.get(S::borrow(&S::key(99)), None)?);
    Ok(())
}

/// The one version with a wrong sum: account 0 is absent, account 1 has 7.
fn is_taken_back<S: Numbered>(all: &Map<S>) -> bool {
    !all.contains_key(&S::key(0)) && all.get(&S::key(1)) == Some(&S::value(7))
}

fn look_up<S: Numbered>(table: &Table<Observed, S>, progress: &Progress) {
    let mut value = S::ValueBuf::default();
    while !progress.done.load(Ordering::Acquire) {
        for n in 2..ACCOUNTS {
            assert!(table.get(S::borrow(&S::key(n)), Some(&mut value)).unwrap(), "account {n} is away");
            assert!(S::number(&value) <= ACCOUNTS * EACH);
            progress.found.fetch_add(1, Ordering::Relaxed);
        }
        for n in OTHERS.step_by(17) {
            if table.get(S::borrow(&S::key(n)), Some(&mut value)).unwrap() {
                assert_eq!(S::number(&value), n);
            }
        }
    }
}

fn beside_a_writer<S: Numbered>(stripes: usize, rounds: u64) {
    let (medium, _) = memory(16 << 20);
    let table =
        Table::<Observed, S>::create(medium, &hash_options(Options { stripes, ..options(4) })).unwrap();
    for n in 0..ACCOUNTS {
        table.put(S::borrow(&S::key(n)), S::borrow_value(&S::value(EACH))).unwrap();
    }
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let readers =
            [scope.spawn(|| look_up(&table, &progress)), scope.spawn(|| read_versions(&table, &progress))];
        write(&table, &progress, rounds, || readers.iter().any(|reader| reader.is_finished()));
    });
    println!("{progress:?}");
    table.collect_all().unwrap();
    assert_eq!(table.check().problems, Vec::<String>::new());
    assert_eq!(table.dead_intervals(), 0);
}

#[test]
fn words_are_read_beside_a_writer() {
    beside_a_writer::<Words>(64, 60);
    beside_a_writer::<Words>(2, 10);
}

#[test]
fn byte_strings_are_read_beside_a_writer() {
    beside_a_writer::<Keyed>(64, 40);
    beside_a_writer::<Keyed>(2, 10);
}
