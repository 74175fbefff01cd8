//! The work of the threads in one column of `bench store` (an operation and a number of threads), and the checks of the store's answers.
//!
//! A value is computed from its key ([`competitors::pairs`]), so answers are checked without a second copy of the data. The check is part
//! of the measured time. It takes a few nanoseconds per pair, the same for every store.

use std::sync::Barrier;
use std::time::Instant;

use competitors::pairs::{Random as _, Text, VALUE_BYTES, first_word, value_of};
use competitors::{Competitor, Session};

use crate::{Error, wrong};

/// Number of pairs of a short range.
pub const RANGE_PAIRS: u64 = 100;

/// The expected contents of every store.
#[derive(Debug)]
pub struct Held {
    /// The keys, in insertion order.
    pub keys: Vec<Text>,
    seed: u64,
    greatest: Text,
    /// Sum of the first words of all keys. A scan with the same number of keys in order and the same sum has found the right keys.
    sum: u64,
}

impl Held {
    /// Empty contents.
    pub fn new(seed: u64) -> Self {
        Self { keys: Vec::new(), seed, greatest: [0; 20], sum: 0 }
    }

    /// Returns this many keys that are not in the stores. The result is deterministic.
    pub fn fresh(&self, count: u64) -> Vec<Text> {
        Text::range(self.seed, self.keys.len() as u64, count)
    }

    /// Adds keys that every store now contains.
    pub fn add(&mut self, keys: Vec<Text>) {
        for key in &keys {
            self.greatest = self.greatest.max(*key);
            self.sum = self.sum.wrapping_add(first_word(key));
        }
        self.keys.extend(keys);
    }

    /// Returns this many random keys that are in the stores.
    pub fn some(&self, random: &mut fastrand::Rng, count: u64) -> Vec<Text> {
        (0..count).map(|_| self.keys[random.usize(..self.keys.len())]).collect()
    }
}

/// Work to do on a store.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// Insert new keys, each in its own commit.
    Put(&'a [Text]),
    /// Insert new keys, this many per commit.
    Batch(&'a [Text], usize),
    /// Look these keys up.
    Get(&'a [Text]),
    /// Each thread scans all pairs in order.
    Scan(&'a Held),
    /// Scan a short range from each of these keys.
    Range(&'a [Text], &'a Held),
}

impl<'a> Work<'a> {
    /// The part of one thread.
    fn part(self, thread: usize, threads: usize) -> Self {
        let of = |keys: &'a [Text], unit: usize| {
            let each = (keys.len() / unit).div_ceil(threads) * unit;
            &keys[(thread * each).min(keys.len())..((thread + 1) * each).min(keys.len())]
        };
        match self {
            Work::Put(keys) => Work::Put(of(keys, 1)),
            Work::Batch(keys, size) => Work::Batch(of(keys, size), size),
            Work::Get(keys) => Work::Get(of(keys, 1)),
            Work::Range(keys, held) => Work::Range(of(keys, 1), held),
            Work::Scan(_) => self,
        }
    }

    /// Total number of pairs, or ranges, for this many threads.
    fn amount(self, threads: usize) -> usize {
        match self {
            Work::Put(keys) | Work::Batch(keys, _) | Work::Get(keys) | Work::Range(keys, _) => keys.len(),
            Work::Scan(held) => held.keys.len() * threads,
        }
    }

    /// Number of commits; 0 for reads.
    pub fn commits(self) -> usize {
        match self {
            Work::Put(keys) => keys.len(),
            Work::Batch(keys, size) => keys.len().div_ceil(size),
            Work::Get(_) | Work::Scan(_) | Work::Range(..) => 0,
        }
    }

    fn run(self, session: &mut dyn Session, who: &str) -> Result<(), Error> {
        match self {
            Work::Put(keys) => keys.iter().try_for_each(|key| Ok(session.put(key, &value_of(key, 0))?)),
            Work::Batch(keys, size) => keys.chunks(size).try_for_each(|keys| batch(session, keys)),
            Work::Get(keys) => {
                let mut value = Vec::new();
                keys.iter().try_for_each(|key| match session.get(key, &mut value)? {
                    true if value == value_of(key, 0) => Ok(()),
                    true => Err(wrong(who, format!("the value of {} is another", text(key)))),
                    false => Err(wrong(who, format!("{} is missing", text(key)))),
                })
            }
            Work::Scan(held) => scan(session, who, held),
            Work::Range(keys, held) => keys.iter().try_for_each(|key| range(session, who, key, held)),
        }
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn batch(session: &mut dyn Session, keys: &[Text]) -> Result<(), Error> {
    let values: Vec<_> = keys.iter().map(|key| value_of(key, 0)).collect();
    let pairs: Vec<_> =
        keys.iter().zip(&values).map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    Ok(session.batch(&pairs)?)
}

/// Summary of the pairs that a scan returned, cheap to update.
struct Met {
    first: Option<u64>,
    last: [u8; 20],
    sum: u64,
    /// Number of pairs that were out of order or had a wrong value.
    faults: u64,
}

impl Met {
    fn new() -> Self {
        Self { first: None, last: [0; 20], sum: 0, faults: 0 }
    }

    fn pair(&mut self, key: &[u8], value: &[u8]) {
        let word = first_word(key);
        let Ok(key) = <[u8; 20]>::try_from(key) else {
            self.faults += 1;
            return;
        };
        let in_order = self.first.is_none() || self.last < key;
        self.faults += u64::from(!in_order || value.len() != VALUE_BYTES || first_word(value) != word);
        self.first.get_or_insert(word);
        self.last = key;
        self.sum = self.sum.wrapping_add(word);
    }
}

fn scan(session: &mut dyn Session, who: &str, held: &Held) -> Result<(), Error> {
    let mut met = Met::new();
    let count = session.scan(&[], u64::MAX, &mut |key, value| met.pair(key, value))?;
    if (count, met.sum, met.faults) == (held.keys.len() as u64, held.sum, 0) {
        return Ok(());
    }
    let (expected, faults) = (held.keys.len(), met.faults);
    Err(wrong(
        who,
        format!("a scan returned {count} pairs of {expected}, {faults} of them wrong or out of order"),
    ))
}

fn range(session: &mut dyn Session, who: &str, from: &Text, held: &Held) -> Result<(), Error> {
    let mut met = Met::new();
    let count = session.scan(from, RANGE_PAIRS, &mut |key, value| met.pair(key, value))?;
    let whole = count == RANGE_PAIRS || count < RANGE_PAIRS && met.last == held.greatest;
    if whole && met.first == Some(first_word(from)) && met.faults == 0 {
        return Ok(());
    }
    let faults = met.faults;
    Err(wrong(who, format!("a range from {} returned {count} pairs, {faults} of them wrong", text(from))))
}

/// Does the work with this many threads. Returns pairs, or ranges, per second, from the first thread's first call to the last thread's last
/// call.
///
/// # Errors
/// Errors of the store; `Wrong` for a wrong answer.
pub fn measure(store: &dyn Competitor, who: &str, work: Work<'_>, threads: usize) -> Result<f64, Error> {
    let barrier = Barrier::new(threads);
    let one = |thread: usize| {
        let session = store.session();
        // All threads reach the barrier, also those that fail later: the others wait for them.
        barrier.wait();
        let start = Instant::now();
        work.part(thread, threads).run(session?.as_mut(), who)?;
        Ok::<_, Error>((start, Instant::now()))
    };
    let times = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|times| times.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect::<Vec<_>>()
    });
    let times = times.into_iter().collect::<Result<Vec<_>, _>>()?;
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    let elapsed = start.zip(end).map_or(f64::NAN, |(start, end)| (end - start).as_secs_f64());
    Ok(work.amount(threads) as f64 / elapsed.max(1e-9))
}

/// Compares all bytes of all pairs of a store with the expected contents.
///
/// # Errors
/// Errors of the store; `Wrong` if the contents differ.
pub fn verify(store: &dyn Competitor, who: &str, held: &Held) -> Result<(), Error> {
    let mut session = store.session()?;
    let mut other = 0;
    session.scan(&[], u64::MAX, &mut |key, value| {
        other += u64::from(!key.try_into().is_ok_and(|key: Text| value_of(&key, 0) == value));
    })?;
    if other > 0 {
        return Err(wrong(who, format!("{other} values are others at the end")));
    }
    scan(session.as_mut(), who, held)
}
