//! Tickets, their futures and transactions under power cuts.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::number_from;
use crate::power::Life;
use bristlecone::{Error, StoreU64, U64, registry};
use crash::Machine;
use faults::{Images, mix};

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Threads that wait for futures share syncs, and what their futures told is present after a cut. After it every future fails.
#[test]
fn futures_share_syncs_and_tell_only_what_is_durable() {
    let campaign = number_from("BRISTLECONE_SEED", 0);
    let mut writes = 0;
    let mut groups = 0;
    for seed in 0..12 {
        let machine = Machine::new(1000 + seed);
        machine.make_slow();
        let store: StoreU64 = Life::<U64>::new(registry::DEFAULT).make(&machine).unwrap();
        machine.cut_at(machine.changes() + 60 + seed * 9);
        let newest: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (key, newest) in (0..).zip(&newest) {
                let store = store.clone();
                scope.spawn(move || {
                    for value in 1.. {
                        let (written, ticket) = store.apply(|store| store.put(&key, &value));
                        if written.is_err() {
                            break;
                        }
                        if block_on(store.durable(ticket)).is_err() {
                            assert!(!store.is_durable(ticket), "the future told another thing");
                            break;
                        }
                        newest.store(value, Ordering::Relaxed);
                    }
                });
            }
        });
        let ticket = store.apply(|store| store.put(&0, &0)).1;
        assert!(store.is_durable(ticket), "nothing was written, so there is nothing to wait for");
        groups += store.stats().journal.unwrap().activity.unwrap().groups;
        writes += newest.iter().map(|newest| newest.load(Ordering::Relaxed)).sum::<u64>();
        drop(store);
        let judge = |image: &Machine| {
            let store = Life::<U64>::open(image).map_err(|error| error.to_string())?;
            for (key, newest) in (0..).zip(&newest) {
                let (found, newest) = (store.get(&key).unwrap().unwrap_or(0), newest.load(Ordering::Relaxed));
                if found < newest {
                    return Err(format!("key {key} holds {found}, {newest} was acknowledged"));
                }
            }
            Ok(())
        };
        let mut images = Images::default();
        images.each(&machine, mix(campaign, seed), judge).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    println!("{writes} writes in {groups} groups");
    assert!(writes > groups, "threads that wait share groups: {writes} writes, {groups} groups");
}

/// Once, a batch waited for the sync of the batch before it if both wrote the same key. So a list of the server took one element per sync.
#[test]
fn a_batch_does_not_wait_for_the_batch_before_it_and_a_reader_waits_for_both() {
    for engine in [registry::DEFAULT, "wbtree"] {
        let store: StoreU64 = Life::<U64>::new(engine).make(&Machine::new(1)).unwrap();
        let write = |value: u64| {
            store.apply(|store| {
                let mut batch = store.batch();
                batch.put(&1, &value);
                batch.put(&2, &value);
                assert!(batch.commit().unwrap());
                assert_eq!(store.get(&2).unwrap(), Some(value));
            })
        };
        let groups = || store.stats().journal.unwrap().activity.unwrap().groups;
        let before = groups();
        let newest = (1..=5).map(|value| write(value).1).max().unwrap();
        assert_eq!((groups(), store.is_durable(newest)), (before, false), "{engine}");
        assert_eq!((store.get(&1).unwrap(), store.is_durable(newest)), (Some(5), true), "{engine}");
    }
}

/// Threads move amounts between accounts in transactions, with and without waiting, until a cut. The sum is the same after it, and every
/// transaction that was acknowledged is present.
#[test]
fn transactions_are_whole_after_a_cut() {
    const ACCOUNTS: u64 = 4;
    let campaign = number_from("BRISTLECONE_SEED", 0);
    let mut images = Images::default();
    let mut committed = 0;
    for (seed, engine) in (0..).zip([registry::DEFAULT, "cdds", "vlab", "wb-4k"].repeat(3)) {
        let machine = Machine::new(2000 + seed);
        machine.make_slow();
        let store: StoreU64 = Life::<U64>::new(engine).make(&machine).unwrap();
        (0..ACCOUNTS).for_each(|account| _ = store.put(&account, &1000).unwrap());
        machine.cut_at(machine.changes() + 30 + seed * 7);
        let newest: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (thread, newest) in (0..).zip(&newest) {
                let store = store.clone();
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed * 4 + thread);
                    for number in 1.. {
                        let (from, to) = (rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS));
                        let moves = |store: &StoreU64| {
                            store.transaction(|transaction| {
                                let balance = transaction.get(&from)?.unwrap_or(0);
                                transaction.put(&from, &(balance - balance.min(7)))?;
                                let other = transaction.get(&to)?.unwrap_or(0);
                                transaction.put(&to, &(other + balance.min(7)))?;
                                transaction.put(&(100 + thread), &number)
                            })
                        };
                        let outcome = if number % 2 == 0 {
                            moves(&store)
                        } else {
                            let (moved, ticket) = store.apply(moves);
                            moved.and_then(|()| block_on(store.durable(ticket)))
                        };
                        match outcome {
                            Ok(()) => newest.store(number, Ordering::Relaxed),
                            Err(Error::Conflict { .. }) => {}
                            Err(_) => break,
                        }
                    }
                });
            }
        });
        committed += newest.iter().map(|newest| newest.load(Ordering::Relaxed)).sum::<u64>();
        drop(store);
        let judge = |image: &Machine| {
            let store = Life::<U64>::open(image).map_err(|error| error.to_string())?;
            let sum: u64 = store.scan(..ACCOUNTS).map(|pair| pair.unwrap().1).sum();
            if sum != 1000 * ACCOUNTS {
                return Err(format!("{engine}: the accounts hold {sum}"));
            }
            for (thread, newest) in (0..).zip(&newest) {
                let (found, newest) = (store.get(&(100 + thread)).unwrap(), newest.load(Ordering::Relaxed));
                if found.unwrap_or(0) < newest {
                    return Err(format!("{engine}: {found:?}, {newest} was acknowledged"));
                }
            }
            Ok(())
        };
        images.each(&machine, mix(campaign, seed), judge).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    println!("{committed} transactions, {images:?}");
    assert!(committed > 0);
}

/// A future that is dropped before it is ready holds nothing: the store closes, and another one opens.
#[test]
fn a_future_that_is_given_up_does_not_keep_the_store() {
    let machine = Machine::new(7);
    machine.make_slow();
    let store: StoreU64 = Life::<U64>::new(registry::DEFAULT).make(&machine).unwrap();
    for key in 0..100 {
        let ticket = store.apply(|store| store.put(&key, &1)).1;
        let mut future = pin!(store.durable(ticket));
        let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    drop(store);
    let store = Life::<U64>::open(&machine).unwrap();
    assert_eq!(store.count().unwrap(), 100);
}
