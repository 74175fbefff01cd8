//! The operations of the threads in a schedule, and their recording.
//!
//! There are few keys, so operations often have the same key. A node holds few entries, so nodes often split and merge. Three keys are
//! written only by batches, which give all three the same value or delete all three. A reader of all three must find one value in all of
//! them, or none.

use std::borrow::Cow;
use std::ops::Bound;

use crash::{Found, History};
use index::engine::{Change, Cursor, View};
use index::{Index, Write, WriteOptions};
use pmem::Error;

use crate::scheduled::{Numbered, Sampled};

/// Keys are the numbers from 1 to this one.
pub const KEYS: u64 = 16;
/// The keys that only batches write.
pub const TOGETHER: [u64; 3] = [3, 8, 13];
/// Values from here on are of writes without sync.
pub const UNSYNCED: u64 = 1 << 20;

/// A thread that uses an index.
pub struct Worker<'a, K: Sampled> {
    /// The index.
    pub index: &'a dyn Index<K>,
    /// The record of all operations.
    pub history: &'a History,
    /// The source of random choices.
    pub random: fastrand::Rng,
    /// The next value to write. No two threads have the same values.
    pub next: u64,
    /// True if some writes are without sync.
    pub hurries: bool,
}

type Outcome = Result<(), String>;

/// The prefix of the error of a refused operation.
pub const FAILED: &str = "an operation failed";

fn key<K: Sampled>(n: u64) -> K::KeyBuf {
    K::KeyBuf::key(n)
}

fn text(error: &Error) -> String {
    format!("{FAILED}: {error}")
}

impl<K: Sampled> Worker<'_, K> {
    /// A random key: in half of the cases one of three frequent keys.
    fn any_key(&mut self) -> u64 {
        loop {
            let n = if self.random.bool() { self.random.u64(5..8) } else { self.random.u64(1..=KEYS) };
            if !TOGETHER.contains(&n) {
                return n;
            }
        }
    }

    /// A new value, and the options of its write.
    fn any_value(&mut self) -> (u64, WriteOptions) {
        self.next += 1;
        let sync = !self.hurries || self.random.bool();
        (self.next + if sync { 0 } else { UNSYNCED }, WriteOptions { sync })
    }

    /// Runs one write.
    ///
    /// # Errors
    /// The write failed. It may be present all the same.
    pub fn write(&mut self) -> Outcome {
        let (index, history) = (self.index, self.history);
        let n = self.any_key();
        let (value, how) = self.any_value();
        let bytes = K::ValueBuf::value(value);
        match self.random.u8(..10) {
            0..4 => {
                let called = history.now();
                let done = index.put(K::key(&key::<K>(n)), K::value(&bytes), how);
                history.note(n, called, done.as_ref().ok().map(|was| Found::There(*was)), Some(Some(value)));
                done.map(drop)
            }
            4..6 => {
                let called = history.now();
                let done = index.delete(K::key(&key::<K>(n)), WriteOptions::default());
                history.note(n, called, done.as_ref().ok().map(|was| Found::There(*was)), Some(None));
                done.map(drop)
            }
            6 => {
                let (mut found, called) = (Found::Untold, history.now());
                let decide = &mut |old: Option<&K::Value>| {
                    let old = old.map(|old| K::own_value(old).number());
                    found = Found::Value(old.map(|old| old.unwrap_or(u64::MAX)));
                    Change::Put(Cow::Owned(K::value(&bytes).to_owned()))
                };
                let done = index.update(K::key(&key::<K>(n)), decide, how);
                history.note(n, called, done.as_ref().ok().map(|()| found), Some(Some(value)));
                done
            }
            7 if self.random.bool() => self.session(n, value),
            7 => self.write_many(n, value),
            _ => self.batch(value, how),
        }
        .map_err(|error| text(&error))
    }

    /// A put and a delete of one key in one session. The writer's lock is held throughout, if the engine has one.
    fn session(&mut self, n: u64, value: u64) -> Result<(), Error> {
        let history = self.history;
        let (key, bytes) = (key::<K>(n), K::ValueBuf::value(value));
        let mut session = self.index.session()?;
        let (index, how) = (self.index, WriteOptions::default());
        let called = history.now();
        let done = match &mut session {
            Some(session) => session.put(K::key(&key), K::value(&bytes)),
            None => index.put(K::key(&key), K::value(&bytes), how),
        };
        history.note(n, called, done.as_ref().ok().map(|was| Found::There(*was)), Some(Some(value)));
        done?;
        let called = history.now();
        let done = match &mut session {
            Some(session) => session.delete(K::key(&key)),
            None => index.delete(K::key(&key), how),
        };
        history.note(n, called, done.as_ref().ok().map(|was| Found::There(*was)), Some(None));
        done.map(drop)
    }

    /// A put, a delete and a put of different keys in one call.
    fn write_many(&mut self, n: u64, value: u64) -> Result<(), Error> {
        let history = self.history;
        let mut numbers = vec![n];
        while numbers.len() < 3 {
            let n = self.any_key();
            if !numbers.contains(&n) {
                numbers.push(n);
            }
        }
        self.next += 1;
        // This call is always with sync.
        let values = [Some(value % UNSYNCED), None, Some(self.next)];
        let keys: Vec<_> = numbers.iter().map(|n| key::<K>(*n)).collect();
        let bytes = values.map(|value| value.map(K::ValueBuf::value));
        let writes: Vec<_> = keys
            .iter()
            .zip(&bytes)
            .map(|(key, bytes)| match bytes {
                Some(bytes) => Write::Put(K::key(key), K::value(bytes)),
                None => Write::Delete(K::key(key)),
            })
            .collect();
        let called = history.now();
        let done = self.index.write_many(&writes, WriteOptions::default());
        for (i, n) in numbers.into_iter().enumerate() {
            let found = done.as_ref().ok().map(|was| Found::There(was[i]));
            history.note(n, called, found, Some(values[i]));
        }
        done.map(drop)
    }

    /// A batch of the batch keys. Half of the batches also write another key, on the condition that it still has the value that was just
    /// read.
    fn batch(&mut self, value: u64, how: WriteOptions) -> Result<(), Error> {
        let (index, history) = (self.index, self.history);
        let n = self.any_key();
        let together = (self.random.u8(..4) > 0).then_some(value);
        // A removal is always with sync, because no value can mark it as unsynced.
        let how = if together.is_some() { how } else { WriteOptions::default() };
        let (mut writes, mut expected, mut old) = (Vec::new(), Vec::new(), None);
        for n in TOGETHER {
            writes.push((key::<K>(n), together.map(K::ValueBuf::value)));
        }
        if self.random.bool() {
            let mut bytes = K::ValueBuf::default();
            let called = history.now();
            let was = index.get(K::key(&key::<K>(n)), Some(&mut bytes))?;
            old = Some(was.then(|| bytes.number().unwrap_or(u64::MAX)));
            history.note(n, called, old.map(Found::Value), None);
            expected.push((key::<K>(n), was.then_some(bytes)));
            writes.push((key::<K>(n), Some(K::ValueBuf::value(value))));
        }
        let called = history.now();
        let done = index.batch(writes, &expected, how);
        if matches!(done, Ok(false)) {
            return Ok(());
        }
        for n in TOGETHER {
            history.note(n, called, done.as_ref().ok().map(|_| Found::Untold), Some(together));
        }
        if let Some(old) = old {
            history.note(n, called, done.as_ref().ok().map(|_| Found::Value(old)), Some(Some(value)));
        }
        done.map(drop)
    }

    /// Runs one read: of one key, of several keys, or of all keys in either direction.
    ///
    /// # Errors
    /// The read failed, or found half of a batch.
    pub fn read(&mut self) -> Outcome {
        match self.random.u8(..7) {
            0..2 => self.get(),
            2 => self.get_many(),
            3..5 => self.snapshot(),
            direction => self.scan(direction == 5),
        }
    }

    fn get(&mut self) -> Outcome {
        let n = if self.random.u8(..4) == 0 { self.random.choice(TOGETHER).unwrap() } else { self.any_key() };
        let mut bytes = K::ValueBuf::default();
        let called = self.history.now();
        let was = self.index.get(K::key(&key::<K>(n)), Some(&mut bytes)).map_err(|error| text(&error))?;
        self.note(n, called, was.then_some(&bytes)).map(drop)
    }

    fn get_many(&mut self) -> Outcome {
        let mut numbers: Vec<u64> = (1..=KEYS).collect();
        self.random.shuffle(&mut numbers);
        let keys: Vec<_> = numbers.iter().map(|n| key::<K>(*n)).collect();
        let keys: Vec<_> = keys.iter().map(K::key).collect();
        let called = self.history.now();
        let mut values = Vec::new();
        let give = &mut |value| {
            values.push(value);
            true
        };
        self.index.get_each(&keys, give).map_err(|error| text(&error))?;
        let mut seen = Vec::new();
        for (n, value) in numbers.into_iter().zip(&values) {
            seen.push((n, self.note(n, called, value.as_ref())?));
        }
        whole("get_many", |n| seen.iter().find(|(of, _)| *of == n).and_then(|(_, value)| *value))
    }

    /// A snapshot, scanned in both directions beside writers. Both scans and all gets must agree.
    fn snapshot(&mut self) -> Outcome {
        let (called, history) = (self.history.now(), self.history);
        let view = match self.index.snapshot() {
            Err(Error::Unsupported { .. }) => return Ok(()),
            other => other.map_err(|error| text(&error))?,
        };
        let seen = read_snapshot(&*view)?;
        for n in 1..=KEYS {
            history.note(n, called, Some(Found::Value(seen[n as usize])), None);
        }
        whole("a snapshot", |n| seen[n as usize])
    }

    fn scan(&mut self, descending: bool) -> Outcome {
        let called = self.history.now();
        let mut cursor = self.index.cursor();
        cursor.seek(Bound::Unbounded, descending).map_err(|error| text(&error))?;
        let mut seen: Vec<(u64, Option<u64>)> = Vec::new();
        let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
        while cursor.next(&mut key, &mut value).map_err(|error| text(&error))? {
            let n = key.number().unwrap_or(u64::MAX);
            if let Some((last, _)) = seen.last()
                && (n < *last) != descending | (n == *last)
            {
                return Err(format!("a scan returned {n} after {last}"));
            }
            seen.push((n, self.note(n, called, Some(&value))?));
        }
        for n in (1..=KEYS).filter(|n| seen.iter().all(|(of, _)| of != n)) {
            self.note(n, called, None)?;
        }
        whole("a scan", |n| seen.iter().find(|(of, _)| *of == n).and_then(|(_, value)| *value))
    }

    /// Records the answer of a read.
    fn note(&self, n: u64, called: u64, value: Option<&K::ValueBuf>) -> Result<Option<u64>, String> {
        let torn = || format!("a torn value under {n}: {value:?}");
        let value = value.map(|value| value.number().ok_or_else(torn)).transpose()?;
        self.history.note(n, called, Some(Found::Value(value)), None);
        Ok(value)
    }
}

/// The value of each key in a snapshot, by every way of reading.
fn read_snapshot<K: Sampled>(view: &dyn View<K>) -> Result<Vec<Option<u64>>, String> {
    let mut scan: Box<dyn Cursor<K> + '_> = view.cursor();
    let (mut key, mut value) = (K::KeyBuf::default(), K::ValueBuf::default());
    let mut ways = [false, true].map(|_| vec![None; KEYS as usize + 1]);
    for (descending, seen) in [false, true].into_iter().zip(&mut ways) {
        scan.seek(Bound::Unbounded, descending).map_err(|error| text(&error))?;
        while scan.next(&mut key, &mut value).map_err(|error| text(&error))? {
            let n = key.number().filter(|n| (1..=KEYS).contains(n)).ok_or("a torn key in a snapshot")?;
            seen[n as usize] =
                Some(value.number().ok_or_else(|| format!("a torn value under {n}: {value:?}"))?);
        }
    }
    let mut got = vec![None; KEYS as usize + 1];
    for n in 1..=KEYS {
        if view.get(K::key(&self::key::<K>(n)), &mut value).map_err(|error| text(&error))? {
            got[n as usize] =
                Some(value.number().ok_or_else(|| format!("a torn value under {n}: {value:?}"))?);
        }
    }
    if ways[0] != ways[1] || ways[0] != got {
        return Err(format!(
            "a snapshot has {:?} upwards, {:?} downwards, and {got:?} by gets",
            ways[0], ways[1]
        ));
    }
    Ok(got)
}

/// Checks that the keys of batches all have one value, or all have none.
pub fn whole(who: &str, value_of: impl Fn(u64) -> Option<u64>) -> Outcome {
    let values = TOGETHER.map(&value_of);
    if values.iter().any(|value| *value != values[0]) {
        return Err(format!("{who} found half of a batch: {values:?} under {TOGETHER:?}"));
    }
    Ok(())
}
