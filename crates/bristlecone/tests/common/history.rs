//! Threads that use a store concurrently and record the results of their operations. [`crash::history`] judges them.
//!
//! There are few keys, some of them hot. Three keys are written only by batches, which give all three the same value or delete all three. A
//! reader of all three must find one value in all of them, or none.
#![allow(dead_code)] // not every test uses all of it

use std::borrow::Cow;
use std::sync::Barrier;

use bristlecone::registry::Open;
use bristlecone::{Bytes, Change, Error, StoreOf, U64, Write, WriteOptions};
use crash::history::{Value, Weight};
use crash::{Found, History, Operation};

/// Keys are the numbers from 1 to this one.
pub const KEYS: u64 = 40;
/// The keys of batches.
pub const TOGETHER: [u64; 3] = [3, 18, 33];
/// Values with this bit were stored by writes without sync.
const UNSYNCED: u64 = 1 << 62;

/// Kinds with keys and values by number.
pub trait Numbered: Open<Value: ToOwned> {
    /// Key number `n`.
    fn numbered_key(n: u64) -> Self::KeyBuf;
    /// Value number `n`.
    fn numbered_value(n: u64) -> Self::ValueBuf;
    /// The number of a value. Panics if the value is torn.
    fn number(value: &Self::Value) -> u64;
    /// The number of a key.
    fn key_number(key: &Self::KeyBuf) -> u64;
    /// A value for a [`Change`].
    fn owned(value: Self::ValueBuf) -> Cow<'static, Self::Value>;
}

impl Numbered for U64 {
    fn numbered_key(n: u64) -> u64 {
        n
    }
    fn numbered_value(n: u64) -> u64 {
        n
    }
    fn number(value: &u64) -> u64 {
        *value
    }
    fn key_number(key: &u64) -> u64 {
        *key
    }
    fn owned(value: u64) -> Cow<'static, u64> {
        Cow::Owned(value)
    }
}

const MIXED: u64 = 0x9E37_79B9_7F4A_7C15;
/// The inverse of `MIXED`.
const UNMIXED: u64 = 0xF1DE_83E1_9937_733D;

impl Numbered for Bytes {
    fn numbered_key(n: u64) -> Vec<u8> {
        format!("a long beginning {n:03}").into_bytes()
    }
    /// Repetitions of the number, of different lengths. The number is multiplied, so that a journal has to write all of its bytes.
    fn numbered_value(n: u64) -> Vec<u8> {
        n.wrapping_mul(MIXED).to_be_bytes().repeat(1 + n as usize % 50)
    }
    fn number(value: &[u8]) -> u64 {
        let (words, rest) = value.as_chunks::<8>();
        assert!(rest.is_empty() && words.iter().all(|word| *word == words[0]), "a torn value: {value:?}");
        u64::from_be_bytes(words[0]).wrapping_mul(UNMIXED)
    }
    fn key_number(key: &Vec<u8>) -> u64 {
        std::str::from_utf8(&key[key.len() - 3..]).unwrap().parse().unwrap()
    }
    fn owned(value: Vec<u8>) -> Cow<'static, [u8]> {
        Cow::Owned(value)
    }
}

/// True if the operation was durable when it returned: every operation except a write without sync.
pub fn promises(operation: &Operation) -> bool {
    !matches!(operation.writes, Some(Some(value)) if value & UNSYNCED != 0)
}

/// The value of each key in a store.
pub fn values<K: Numbered>(store: &StoreOf<K>) -> Vec<Value> {
    let of = |n| store.get(K::key(&K::numbered_key(n))).unwrap().map(|value| K::number(K::value(&value)));
    let values: Vec<_> = (1..=KEYS).map(of).collect();
    whole("a look at all", |n| values[n as usize - 1]);
    values
}

/// Judges a history after which the store held `end`.
pub fn judge(history: &History, start: &[Value], end: &[Value]) -> Result<Weight, String> {
    for (n, value) in (1..).zip(end) {
        history.found_after(n, *value);
    }
    history.judge(|n| start[n as usize - 1])
}

/// Checks that the keys of batches all have the same value, or all have none.
fn whole(who: &str, value_of: impl Fn(u64) -> Value) {
    let values = TOGETHER.map(&value_of);
    assert!(values.iter().all(|value| *value == values[0]), "{who} found half of a batch: {values:?}");
}

/// A thread that uses a store.
struct Worker<'a, K: Numbered> {
    store: &'a StoreOf<K>,
    history: &'a History,
    random: fastrand::Rng,
    /// The next value to write.
    next: u64,
    /// Some writes do not wait for their sync.
    hurries: bool,
}

/// How threads use a store.
#[derive(Clone, Copy)]
pub struct Use {
    /// Number of writers, and of readers.
    pub writers: u64,
    /// Number of operations of each thread. A thread ends earlier if a call fails.
    pub steps: u64,
    /// After this many operations all threads meet at a barrier, so that their operations overlap. 0: never.
    pub meets: u64,
    /// Some writes do not wait for their sync.
    pub hurries: bool,
}

/// Runs threads that use a store. They write values from `first` on.
pub fn beside<K: Numbered>(store: &StoreOf<K>, history: &History, seed: u64, first: u64, how: Use) {
    let Use { writers, steps, meets, hurries } = how;
    let barrier = Barrier::new(2 * writers as usize);
    std::thread::scope(|scope| {
        for thread in 0..2 * writers {
            let (store, barrier) = (store.clone(), &barrier);
            scope.spawn(move || {
                let random = fastrand::Rng::with_seed(seed << 8 | thread);
                let next = first + thread * 3 * steps;
                let mut worker = Worker { store: &store, history, random, next, hurries };
                barrier.wait();
                for step in 0..steps {
                    if meets > 0 && step % meets == 0 {
                        barrier.wait();
                    }
                    let outcome = if thread < writers { worker.write() } else { worker.read() };
                    if outcome.is_err() {
                        break;
                    }
                }
            });
        }
    });
}

impl<K: Numbered> Worker<'_, K> {
    fn any_key(&mut self) -> u64 {
        loop {
            let n = if self.random.bool() { self.random.u64(5..8) } else { self.random.u64(1..=KEYS) };
            if !TOGETHER.contains(&n) {
                return n;
            }
        }
    }

    fn write(&mut self) -> Result<(), Error> {
        let (history, n) = (self.history, self.any_key());
        self.next += 1;
        let sync = !self.hurries || self.random.bool();
        let value = self.next | if sync { 0 } else { UNSYNCED };
        let (key, bytes) = (K::numbered_key(n), K::numbered_value(value));
        let (key, store) = (K::key(&key), self.store.with(WriteOptions { sync }));
        let called = history.now();
        // The last two are batches.
        match self.random.u8(..if store.capabilities().atomic_batch { 10 } else { 8 }) {
            0..4 => {
                let done = store.put(key, K::value(&bytes));
                history.note(n, called, done.as_ref().ok().map(|was| Found::There(*was)), Some(Some(value)));
                done.map(drop)
            }
            4..6 => {
                let done = self.store.delete(key);
                history.note(n, called, done.as_ref().ok().map(|was| Found::There(*was)), Some(None));
                done.map(drop)
            }
            6 => {
                let mut found = Found::Untold;
                let done = store.update(key, |old| {
                    found = Found::Value(old.map(K::number));
                    Change::Put(K::owned(bytes.clone()))
                });
                history.note(n, called, done.as_ref().ok().map(|()| found), Some(Some(value)));
                done
            }
            7 => self.write_many(n),
            _ => {
                // A deletion waits for its sync, because no value can mark it as unsynced.
                let together = (self.random.u8(..4) > 0).then_some(value);
                let how = WriteOptions { sync: sync || together.is_none() };
                let store = self.store.with(how);
                let mut batch = store.batch();
                let (bytes, keys) = (K::value(&bytes), TOGETHER.map(K::numbered_key));
                for key in &keys {
                    match together {
                        Some(_) => batch.put(K::key(key), bytes),
                        None => batch.delete(K::key(key)),
                    };
                }
                let done = batch.commit();
                for n in TOGETHER {
                    history.note(n, called, done.as_ref().ok().map(|_| Found::Untold), Some(together));
                }
                done.map(drop)
            }
        }
    }

    /// A put and a delete of different keys in one call, with sync.
    fn write_many(&mut self, n: u64) -> Result<(), Error> {
        let other = std::iter::repeat_with(|| self.any_key()).find(|other| *other != n).unwrap_or(n);
        let (keys, value) = ([n, other].map(K::numbered_key), K::numbered_value(self.next));
        let writes = [Write::Put(K::key(&keys[0]), K::value(&value)), Write::Delete(K::key(&keys[1]))];
        let called = self.history.now();
        let done = self.store.write_many(&writes);
        for (i, (n, writes)) in [(n, Some(self.next)), (other, None)].into_iter().enumerate() {
            let found = done.as_ref().ok().map(|was| Found::There(was[i]));
            self.history.note(n, called, found, Some(writes));
        }
        done.map(drop)
    }

    fn read(&mut self) -> Result<(), Error> {
        let called = self.history.now();
        let numbers: Vec<u64> = match self.random.u8(..5) {
            0..2 => {
                let n = if self.random.u8(..4) == 0 {
                    TOGETHER[self.random.usize(..TOGETHER.len())]
                } else {
                    self.any_key()
                };
                let value = self.store.get(K::key(&K::numbered_key(n)))?;
                self.note(n, called, value.as_ref());
                return Ok(());
            }
            2 => (1..=KEYS).filter(|n| TOGETHER.contains(n) || self.random.bool()).collect(),
            direction => return self.scan(direction == 3),
        };
        let keys: Vec<_> = numbers.iter().map(|n| K::numbered_key(*n)).collect();
        let values = self.store.get_many(&keys.iter().map(K::key).collect::<Vec<_>>())?;
        let seen: Vec<_> =
            numbers.iter().zip(&values).map(|(n, value)| self.note(*n, called, value.as_ref())).collect();
        whole("get_many", |n| numbers.iter().position(|of| *of == n).and_then(|at| seen[at]));
        Ok(())
    }

    fn scan(&self, descending: bool) -> Result<(), Error> {
        let called = self.history.now();
        let is_ordered = self.store.capabilities().ordered;
        let scan = if is_ordered { self.store.scan(..) } else { self.store.walk() };
        let mut seen = vec![None; KEYS as usize];
        let mut last = None;
        for pair in if descending && is_ordered { scan.descending() } else { scan } {
            let (key, value) = pair?;
            let n = K::key_number(&key);
            assert!(seen[n as usize - 1].is_none(), "{n} twice");
            assert!(
                !is_ordered || last.is_none_or(|last| last != n && (last < n) != descending),
                "{n} behind {last:?}"
            );
            last = Some(n);
            seen[n as usize - 1] = self.note(n, called, Some(&value));
        }
        for n in (1..=KEYS).filter(|n| seen[*n as usize - 1].is_none()) {
            self.note(n, called, None);
        }
        whole("a scan", |n| seen[n as usize - 1]);
        Ok(())
    }

    fn note(&self, n: u64, called: u64, value: Option<&K::ValueBuf>) -> Value {
        let value = value.map(|value| K::number(K::value(value)));
        self.history.note(n, called, Some(Found::Value(value)), None);
        value
    }
}
