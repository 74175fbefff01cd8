//! The removal of elements whose structure has gone (S4 of the parent).
//!
//! A command that removes or replaces a head leaves the elements, so its time does not depend on their number. It gives a hint: the number of
//! the structure. A structure can also go without a hint: by its deadline, by FLUSHDB, or in a crash. So at times a pass reads the owners of
//! all structures. Whatever the reason, a structure is garbage only if no database has a head with its number under its owner's key, at one
//! moment. Once it is garbage it stays garbage, because no other structure gets its number.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bristlecone::Transaction;

use super::{Elements, Head, Kind, Value, decode, head_of, id_of};
use crate::shared::{Shared, lock};

/// Maximum number of hints. Beyond it, a pass finds the garbage.
const HINTS_MAX: usize = 65_536;
/// Age of a hint before its structure is looked at. The transaction that gave it may not have committed yet.
const HINT_AGE: Duration = Duration::from_secs(1);
/// Elements that are removed together.
const GROUP: usize = 256;

/// The hints, and the work that is due.
#[derive(Debug)]
pub struct Garbage {
    hints: Mutex<VecDeque<(Instant, u64)>>,
    /// True if garbage may exist without a hint.
    needs_pass: AtomicBool,
    /// True if structures have deadlines: then each pass may find garbage.
    has_deadlines: AtomicBool,
    /// Time between two passes.
    pass_each: Duration,
    last_pass: Mutex<Instant>,
    is_running: AtomicBool,
}

impl Garbage {
    /// No hints. A store that had structures may have garbage from before a crash.
    pub(super) fn new(needs_pass: bool, pass_each: Duration) -> Self {
        Self {
            hints: Mutex::default(),
            needs_pass: needs_pass.into(),
            // A structure of an earlier process may have a deadline.
            has_deadlines: needs_pass.into(),
            pass_each,
            last_pass: Mutex::new(Instant::now()),
            is_running: false.into(),
        }
    }

    /// The structure with this number may become garbage.
    pub fn hint(&self, id: u64) {
        let mut hints = lock(&self.hints);
        if hints.len() < HINTS_MAX {
            hints.push_back((Instant::now(), id));
        } else {
            self.want_pass();
        }
    }

    /// Garbage may exist without a hint.
    pub fn want_pass(&self) {
        self.needs_pass.store(true, Ordering::Release);
    }

    /// A structure has a deadline.
    pub fn note_deadline(&self) {
        self.has_deadlines.store(true, Ordering::Release);
    }

    fn takes_pass(&self) -> bool {
        let is_wanted = self.needs_pass.load(Ordering::Acquire) || self.has_deadlines.load(Ordering::Acquire);
        is_wanted && lock(&self.last_pass).elapsed() >= self.pass_each
    }

    /// True if there is work that can be done now, and no thread does it. The caller does it with [`collect`].
    #[must_use]
    pub fn is_due(&self) -> bool {
        let has_hint = lock(&self.hints).front().is_some_and(|(given, _)| given.elapsed() >= HINT_AGE);
        (has_hint || self.takes_pass()) && !self.is_running.swap(true, Ordering::AcqRel)
    }

    fn next_hint(&self) -> Option<u64> {
        let mut hints = lock(&self.hints);
        match hints.front() {
            Some((given, _)) if given.elapsed() >= HINT_AGE => hints.pop_front().map(|(_, id)| id),
            _ => None,
        }
    }
}

/// Removes garbage until none is known. Ends early when the server stops; the next start goes on.
///
/// # Errors
/// Those of the store. A later pass looks again.
pub fn collect(shared: &Shared) -> bristlecone::Result<()> {
    let garbage = &shared.structures.garbage;
    let _running = Running(garbage);
    let elements = match shared.structures.known()? {
        Some(elements) if !shared.is_stopping() => elements,
        _ => return Ok(()),
    };
    let mut outcome = Ok(());
    while let Some(id) = garbage.next_hint() {
        let found = examine(shared, elements, id);
        if !matches!(found, Ok(Found::Garbage)) {
            // The transaction that gave the hint may commit later.
            garbage.want_pass();
        }
        outcome = outcome.and(found.map(|_| ()));
    }
    if garbage.takes_pass() {
        garbage.needs_pass.store(false, Ordering::Release);
        *lock(&garbage.last_pass) = Instant::now();
        outcome = outcome.and(pass(shared, elements).inspect_err(|_| garbage.want_pass()));
    }
    outcome
}

/// Sets [`Garbage::is_running`] to false at the end.
struct Running<'g>(&'g Garbage);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

/// Looks at every structure. An error of one structure does not end the pass. Returns the first one.
fn pass(shared: &Shared, elements: &Elements) -> bristlecone::Result<()> {
    let (mut low, mut outcome) = (Bound::Unbounded, Ok(()));
    while !shared.is_stopping() {
        let next = elements.store.scan((low, Bound::Unbounded)).next().transpose()?;
        let Some(id) = next.and_then(|(key, _)| id_of(&key)) else { break };
        outcome = outcome.and(examine(shared, elements, id).map(|_| ()));
        let Some(above) = id.checked_add(1) else { break };
        low = Bound::Included(above.to_be_bytes().to_vec());
    }
    outcome
}

/// What a search for garbage found.
enum Found {
    /// The structure was garbage. Its elements are removed.
    Garbage,
    /// The structure may be in use.
    Used,
    /// There is no structure with this number, or it is not committed yet. Nothing was removed.
    Nothing,
}

/// Removes the elements of a structure if it is garbage.
fn examine(shared: &Shared, elements: &Elements, id: u64) -> bristlecone::Result<Found> {
    let owner = id.to_be_bytes();
    let Some(key) = elements.store.get(&owner)? else { return Ok(Found::Nothing) };
    let databases = shared.databases.all_known()?;
    // Most structures are no garbage, which needs no reads of one moment.
    for store in &databases {
        let stored = store.get(&key)?;
        if stored.and_then(|stored| head_of(&stored)).is_some_and(|found| found.id == id) {
            return Ok(Found::Used);
        }
    }
    let mut transaction = Transaction::new(&shared.store);
    if transaction.table(&elements.store)?.get(&owner)?.as_ref() != Some(&key) {
        // It was renamed meanwhile.
        return Ok(Found::Used);
    }
    for store in &databases {
        let stored = transaction.table(store)?.get(&key)?;
        // A head that is damaged may be the one.
        match stored.as_ref().map(|stored| decode(stored)) {
            Some(Ok(Value::Structure(head))) if head.id == id => return Ok(Found::Used),
            Some(Err(_)) => return Ok(Found::Used),
            _ => {}
        }
    }
    // The reads are of one moment only if this succeeds.
    if !transaction.commit()? {
        return Ok(Found::Used);
    }
    while !shared.is_stopping() && remove(elements, id, GROUP)?.1 {}
    Ok(Found::Garbage)
}

/// Removes at most `most` elements of a structure that is garbage, and the owner with the last one. Returns the bytes of keys and values that
/// were removed, and true if more elements may be left.
///
/// # Errors
/// Those of the store.
pub fn remove(elements: &Elements, id: u64, most: usize) -> bristlecone::Result<(u64, bool)> {
    // Only the number counts here.
    let range = super::access::all_of(&Head { kind: Kind::Hash, id, version: 0, count: 0, extra: 0 });
    let pairs = elements.store.scan(range).take(most).collect::<Result<Vec<_>, _>>()?;
    let keys: Vec<&[u8]> = pairs.iter().map(|(key, _)| key.as_slice()).collect();
    elements.store.delete_many(&keys)?;
    let is_end = pairs.len() < most;
    if is_end {
        elements.store.delete(&id.to_be_bytes())?;
    }
    Ok((pairs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum(), !is_end))
}
