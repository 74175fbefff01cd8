//! Transactions on every engine that has atomic batches, in memory and over a journal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{self, options, scratch};
use bristlecone::{Error, Store, StoreU64, Transaction, U64, registry};

fn engines_with_batches() -> impl Iterator<Item = (&'static str, bool)> {
    common::engines(|can| can.atomic_batch)
}

/// A transaction against a map: it sees its own writes; other threads see none of them before the commit and all of them after it.
#[test]
fn a_transaction_reads_its_own_writes_and_changes_nothing_before_its_commit() {
    for (engine, journaled) in engines_with_batches() {
        let dir = scratch();
        let store = Store::open(dir.path(), options(engine, journaled)).unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(5);
        for round in 0..40 {
            let before = model.clone();
            let is_given_up = round % 5 == 4;
            let outcome = store.transaction(|transaction| {
                // An attempt that is repeated leaves nothing.
                model.clone_from(&before);
                for _ in 0..rng.usize(1..30) {
                    let key = vec![rng.u8(..20)];
                    match rng.u8(..4) {
                        0 => {
                            transaction.delete(&key)?;
                            model.remove(&key);
                        }
                        1 => {
                            let value = vec![rng.u8(..); rng.usize(..300)];
                            transaction.put(&key, &value)?;
                            model.insert(key, value);
                        }
                        _ => assert_eq!(transaction.get(&key)?, model.get(&key).cloned(), "{engine}"),
                    }
                    assert_eq!(store.get(&[round % 20])?, before.get(&vec![round % 20]).cloned(), "{engine}");
                }
                let added = model.len() as i64 - before.len() as i64;
                assert_eq!(transaction.keys_added()?, added, "{engine}");
                if is_given_up { Err(Error::Option("given up".into())) } else { Ok(()) }
            });
            if is_given_up {
                assert!(matches!(outcome, Err(Error::Option(_))), "{engine}: {outcome:?}");
                model = before;
            } else {
                outcome.unwrap();
            }
            let found: BTreeMap<_, _> = store.walk().map(Result::unwrap).collect();
            assert_eq!(found, model, "{engine}, journal {journaled}, round {round}");
        }
    }
}

/// Threads that add to counters and move amounts between accounts: no addition is lost, and the sum of the accounts stays the same in every
/// snapshot of a reader.
#[test]
fn transactions_of_many_threads_are_serializable() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 60;
    const ACCOUNTS: u64 = 5;
    let mut conflicts = 0;
    for (engine, journaled) in engines_with_batches() {
        let dir = scratch();
        let store = StoreU64::open(dir.path(), options(engine, journaled)).unwrap();
        (0..ACCOUNTS).for_each(|account| _ = store.put(&account, &1000).unwrap());
        let (attempts, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut sums, mut is_last) = (0_u64, false);
                // The reader may get no processor before the writers end. So it reads once more after them.
                while !is_last {
                    is_last = done.load(Ordering::Acquire);
                    let keys: Vec<u64> = (0..ACCOUNTS).collect();
                    let values = store.get_many(&keys.iter().collect::<Vec<_>>()).unwrap();
                    assert_eq!(
                        values.iter().map(|value| value.unwrap()).sum::<u64>(),
                        1000 * ACCOUNTS,
                        "{engine}"
                    );
                    sums += 1;
                }
                sums
            });
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (store, attempts) = (&store, &attempts);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(thread);
                        for _ in 0..ROUNDS {
                            let (from, to) = (rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS));
                            let moved = |transaction: &mut Transaction<U64>| {
                                attempts.fetch_add(1, Ordering::Relaxed);
                                let balance = transaction.get(&from)?.unwrap();
                                let amount = balance.min(7);
                                // Time for a conflict.
                                std::thread::yield_now();
                                transaction.put(&from, &(balance - amount))?;
                                let balance = transaction.get(&to)?.unwrap();
                                transaction.put(&to, &(balance + amount))?;
                                let count = transaction.get(&100)?.unwrap_or(0);
                                transaction.put(&100, &(count + 1))
                            };
                            store.transaction(moved).unwrap();
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::Release);
            assert!(reader.join().unwrap() > 0);
        });
        assert_eq!(store.get(&100).unwrap(), Some(THREADS * ROUNDS), "{engine}: an addition was lost");
        let (attempts, committed) = (attempts.into_inner(), THREADS * ROUNDS);
        println!("{engine}, journal {journaled}: {committed} transactions in {attempts} attempts");
        conflicts += attempts - committed;
    }
    assert!(conflicts > 0, "no attempt met a conflict");
}

#[test]
fn a_transaction_that_always_meets_conflicts_fails_and_changes_nothing() {
    let dir = scratch();
    let store = StoreU64::open(dir.path(), options(registry::DEFAULT, false)).unwrap();
    let mut runs = 0;
    let outcome = store.transaction(|transaction| {
        runs += 1;
        transaction.get(&1)?;
        store.put(&1, &runs)?;
        transaction.put(&2, &2)
    });
    assert!(matches!(outcome, Err(Error::Conflict { attempts }) if attempts as u64 == runs), "{outcome:?}");
    assert_eq!(store.get(&2).unwrap(), None);
    // The commit also verifies a value that was only read.
    let mut transaction = Transaction::new(&store);
    transaction.get(&1).unwrap();
    store.put(&1, &0).unwrap();
    assert!(!transaction.commit().unwrap());
}
