//! A writer with concurrent readers, and the rule for the readers' answers.
//!
//! There is one writer, so the contents of each version are known when its write has returned. A reader records its answer and the possible
//! versions: the snapshot's version, or any version that was the newest between call and return. At the end each answer is compared with
//! the contents of these versions. After a crash the newest version must be a committed one with complete contents. It must not be older
//! than a version that was acknowledged or read.
//!
//! In runs without a rollback to an older version, reads of single keys are also checked as a concurrent history: some order of all
//! operations must explain their results. This check does not use the tree's version numbers.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use cdds::Inlined;
use cdds::{Cursor, Mark, Order, Tree};
use crash::{Found, History};
use index::{Schema, Words, Write};
use pmem::Medium;

use super::{Pairs, Sample};

/// Keys are the numbers below this one.
pub const KEYS: u32 = 14;

/// Keys and values whose number can be read back.
pub trait Numbered: Sample {
    /// The number of a value.
    fn number(value: &Self::ValueBuf) -> u64;
}

impl Numbered for Words {
    fn number(value: &u64) -> u64 {
        value >> 32
    }
}

impl Numbered for Inlined {
    fn number(value: &Vec<u8>) -> u64 {
        let last = value.last_chunk().copied().unwrap_or_default();
        u32::from_le_bytes(last).into()
    }
}

type Outcome = Result<(), String>;
type Model<S> = BTreeMap<<S as Schema>::KeyBuf, <S as Schema>::ValueBuf>;

/// The answer of a read.
enum What<S: Schema> {
    /// All pairs in order.
    All(Pairs<S>),
    /// The value of one key.
    One(u32, Option<S::ValueBuf>),
    /// Number of keys.
    Count(u64),
}

/// A read: its answer, and the versions that it may have seen.
struct Look<S: Schema> {
    first: u64,
    last: u64,
    /// The moment of its return.
    at: u64,
    what: What<S>,
}

/// The record of all writes and reads.
pub struct Record<'a, S: Sample> {
    /// Moments, and reads of single keys.
    pub history: &'a History,
    /// Complete contents by version.
    contents: Mutex<BTreeMap<u64, Model<S>>>,
    /// The moments at which versions were acknowledged.
    acknowledged: Mutex<Vec<(u64, u64)>>,
    looks: Mutex<Vec<Look<S>>>,
}

/// Takes a lock that is not part of any schedule.
fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, S: Numbered> Record<'a, S> {
    /// The record of a tree that is empty at `version`.
    pub fn new(history: &'a History, version: u64) -> Self {
        Self {
            history,
            contents: Mutex::new(BTreeMap::from([(version, Model::<S>::new())])),
            acknowledged: Mutex::default(),
            looks: Mutex::default(),
        }
    }

    fn wrote(&self, version: u64, model: &Model<S>) {
        lock(&self.contents).insert(version, model.clone());
        lock(&self.acknowledged).push((self.history.now(), version));
    }

    fn saw(&self, (first, last): (u64, u64), what: What<S>) {
        let look = Look { first, last, at: self.history.now(), what };
        lock(&self.looks).push(look);
    }

    /// Number of reads so far.
    pub fn looks(&self) -> usize {
        lock(&self.looks).len()
    }

    /// Number of versions so far.
    pub fn versions(&self) -> usize {
        lock(&self.contents).len()
    }

    /// Checks that every read returned the contents of one of its possible versions.
    ///
    /// # Errors
    /// A message about the first wrong read.
    pub fn judge(&self) -> Outcome {
        let contents = lock(&self.contents);
        for look in lock(&self.looks).iter() {
            let mut versions = contents.range(look.first..=look.last);
            let was = |model: &Model<S>| match &look.what {
                What::All(seen) => model.iter().eq(seen.iter().map(|(key, value)| (key, value))),
                What::One(key, value) => model.get(&S::key(*key)) == value.as_ref(),
                What::Count(count) => model.len() as u64 == *count,
            };
            if !versions.any(|(_, model)| was(model)) {
                let what = match &look.what {
                    What::All(seen) => format!("{} pairs", seen.len()),
                    What::One(key, value) => format!("{:?} under {key}", value.as_ref().map(S::number)),
                    What::Count(count) => format!("a count of {count}"),
                };
                return Err(format!("at no version from {} to {} there was {what}", look.first, look.last));
            }
        }
        Ok(())
    }

    /// Checks a tree that was opened after a crash at a moment. It has the contents of a committed version that is not too old.
    ///
    /// # Errors
    /// A message if it has not.
    pub fn judge_after<M: Medium, O: Order>(&self, moment: u64, tree: &Tree<M, S, O>) -> Outcome {
        let told = lock(&self.acknowledged).iter().filter(|(at, _)| *at < moment).map(|(_, v)| *v).max();
        let seen = lock(&self.looks).iter().filter(|look| look.at < moment).map(|look| look.first).max();
        let (version, least) = (tree.version(), told.max(seen).unwrap_or(0));
        if version < least {
            return Err(format!("version {least} was told or seen, {version} is there"));
        }
        let report = tree.check();
        if let Some(problem) = report.problems.first() {
            return Err(format!("the tree is damaged: {problem}"));
        }
        let there = all(tree.cursor(), false)?;
        match lock(&self.contents).get(&version) {
            Some(model) if model.iter().eq(there.iter().map(|(key, value)| (key, value))) => Ok(()),
            Some(_) => Err(format!("version {version} is there, and holds something else")),
            None => Err(format!("version {version} is there, which nobody committed")),
        }
    }
}

/// All pairs that a cursor returns, in key order.
fn all<M: Medium, S: Sample, O: Order>(
    mut cursor: Cursor<'_, M, S, O>,
    down: bool,
) -> Result<Pairs<S>, String> {
    let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
    cursor.seek(Bound::Unbounded, down);
    let mut pairs = Vec::new();
    while cursor.next(&mut key, &mut value).map_err(text)? {
        pairs.push((key.clone(), value.clone()));
    }
    if down {
        pairs.reverse();
    }
    Ok(pairs)
}

fn text(error: pmem::Error) -> String {
    format!("an operation failed: {error}")
}

/// The settings of an execution.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Versions are kept and rolled back to. Then there are no histories.
    pub rolls_back: bool,
    /// A reader keeps the version that it reads. False injects a fault: the reader reads the newest version under the number of the old
    /// one.
    pub stays: bool,
}

/// The writer.
pub struct Writer<'a, M: Medium, S: Numbered, O: Order> {
    pub tree: &'a Tree<M, S, O>,
    pub record: &'a Record<'a, S>,
    pub random: fastrand::Rng,
    pub kinds: Kinds,
    model: Model<S>,
    kept: Option<(Mark, Model<S>)>,
    /// The next value. No two writes have the same value.
    next: u32,
}

impl<'a, M: Medium, S: Numbered, O: Order> Writer<'a, M, S, O> {
    /// The writer of an empty tree.
    pub fn new(
        tree: &'a Tree<M, S, O>,
        record: &'a Record<'a, S>,
        random: fastrand::Rng,
        kinds: Kinds,
    ) -> Self {
        Self { tree, record, random, kinds, model: Model::<S>::new(), kept: None, next: 0 }
    }

    /// Runs one change.
    ///
    /// # Errors
    /// The change failed, or its answer was wrong.
    pub fn step(&mut self) -> Outcome {
        let n = self.random.u32(..KEYS);
        match self.random.u8(..20) {
            0..10 => self.put(n)?,
            10..14 => self.delete(n)?,
            14..16 => self.batch()?,
            16 => _ = self.tree.collect_some(2).map_err(text)?,
            17 => self.tree.collect_all().map_err(text)?,
            _ if !self.kinds.rolls_back => self.put(n)?,
            18 => self.kept = Some((self.tree.mark(), self.model.clone())),
            _ => self.roll_back()?,
        }
        self.record.wrote(self.tree.version(), &self.model);
        Ok(())
    }

    fn value(&mut self) -> (u32, S::ValueBuf) {
        self.next += 1;
        (self.next, S::value(self.next))
    }

    /// Puts a value under a key.
    ///
    /// # Errors
    /// The put failed, or its answer was wrong.
    pub fn put(&mut self, n: u32) -> Outcome {
        let (number, value) = self.value();
        let called = self.record.history.now();
        let was = self.tree.put(S::borrow(&S::key(n)), S::borrow_value(&value)).map_err(text)?;
        self.note(n, called, was, Some(number));
        right(was, self.model.insert(S::key(n), value).is_some())
    }

    fn delete(&mut self, n: u32) -> Outcome {
        let called = self.record.history.now();
        let was = self.tree.delete(S::borrow(&S::key(n))).map_err(text)?;
        self.note(n, called, was, None);
        right(was, self.model.remove(&S::key(n)).is_some())
    }

    fn note(&self, n: u32, called: u64, was: bool, number: Option<u32>) {
        if !self.kinds.rolls_back {
            let writes = Some(number.map(u64::from));
            self.record.history.note(n.into(), called, Some(Found::There(was)), writes);
        }
    }

    /// A batch of three adjacent keys.
    fn batch(&mut self) -> Outcome {
        let from = self.random.u32(..KEYS - 2);
        let mut writes = Vec::new();
        for n in from..from + 3 {
            let value = (self.random.u8(..3) > 0).then(|| self.value());
            writes.push((n, S::key(n), value));
        }
        let borrowed: Vec<_> = writes
            .iter()
            .map(|(_, key, value)| match value {
                Some((_, value)) => Write::Put(S::borrow(key), S::borrow_value(value)),
                None => Write::Delete(S::borrow(key)),
            })
            .collect();
        let called = self.record.history.now();
        let found = match self.tree.write_many(&borrowed) {
            // As in a rollback: readers keep the list of dead versions full.
            Err(pmem::Error::TooLarge { of: "intervals of dead versions", .. }) if self.kinds.rolls_back => {
                return Ok(());
            }
            found => found.map_err(text)?,
        };
        let found = found.into_iter().filter(|found| *found).count() as u64;
        drop(borrowed);
        let mut were_there = 0;
        for (n, key, value) in writes {
            let number = value.as_ref().map(|(number, _)| *number);
            let old = match value {
                Some((_, value)) => self.model.insert(key, value),
                None => self.model.remove(&key),
            };
            were_there += u64::from(old.is_some());
            self.note(n, called, old.is_some(), number);
        }
        right(found == were_there, true)
    }

    fn roll_back(&mut self) -> Outcome {
        let Some((mark, model)) = &self.kept else { return Ok(()) };
        // Readers of newer versions get an error.
        match self.tree.roll_back(mark) {
            Ok(true) => self.model.clone_from(model),
            // Readers pin many rolled-back versions, and the list of dead versions is full. The rollback is refused, and nothing has
            // changed.
            Ok(false) | Err(pmem::Error::TooLarge { .. }) => {}
            Err(error) => return Err(text(error)),
        }
        Ok(())
    }
}

fn right(told: bool, wanted: bool) -> Outcome {
    if told == wanted { Ok(()) } else { Err(format!("the writer was told {told} of what was there")) }
}

/// A reader.
pub struct Reader<'a, M: Medium, S: Numbered, O: Order> {
    pub tree: &'a Tree<M, S, O>,
    pub record: &'a Record<'a, S>,
    pub random: fastrand::Rng,
    pub kinds: Kinds,
}

impl<M: Medium, S: Numbered, O: Order> Reader<'_, M, S, O> {
    /// One read: of a key, of all keys, or of a kept version several times. `pause` lets other threads run.
    ///
    /// # Errors
    /// The read failed, or two reads of one version differ.
    pub fn step(&mut self, pause: impl Fn()) -> Outcome {
        match self.random.u8(..6) {
            0..3 => self.get(),
            3 => self.scan(),
            _ => self.keep(pause),
        }
    }

    fn get(&mut self) -> Outcome {
        let (n, mut value) = (self.random.u32(..KEYS), S::ValueBuf::default());
        let (first, called) = (self.tree.version(), self.record.history.now());
        let was = self.tree.get(S::borrow(&S::key(n)), Some(&mut value)).map_err(text)?;
        let value = was.then_some(value);
        if !self.kinds.rolls_back {
            let found = Some(Found::Value(value.as_ref().map(S::number)));
            self.record.history.note(n.into(), called, found, None);
        }
        self.record.saw((first, self.tree.version()), What::One(n, value));
        Ok(())
    }

    fn scan(&mut self) -> Outcome {
        let first = self.tree.version();
        let down = self.random.bool();
        if let Some(seen) = self.unless_taken_back(all(self.tree.cursor(), down))? {
            self.record.saw((first, self.tree.version()), What::All(seen));
        }
        Ok(())
    }

    fn keep(&mut self, pause: impl Fn()) -> Outcome {
        let mark = self.tree.mark();
        let version = (mark.version(), mark.version());
        let keys = mark.keys().ok_or("the newest version has a count")?;
        self.record.saw(version, What::Count(keys));
        let snapshot = self.tree.snapshot_of(mark).ok_or("the tree's own mark")?;
        for round in 0..3 {
            let cursor = if self.kinds.stays { snapshot.cursor() } else { self.tree.cursor() };
            let Some(seen) = self.unless_taken_back(all(cursor, round == 1))? else { break };
            self.record.saw(version, What::All(seen));
            let (n, mut value) = (self.random.u32(..KEYS), S::ValueBuf::default());
            let was = snapshot.get(S::borrow(&S::key(n)), Some(&mut value)).map_err(text);
            let Some(was) = self.unless_taken_back(was)? else { break };
            self.record.saw(version, What::One(n, was.then_some(value)));
            pause();
        }
        Ok(())
    }

    /// `None` if a rollback removed the version and the reader got that error.
    fn unless_taken_back<T>(&self, outcome: Result<T, String>) -> Result<Option<T>, String> {
        match outcome {
            Err(told) if self.kinds.rolls_back && told.contains("removed by a rollback") => Ok(None),
            other => other.map(Some),
        }
    }
}
