//! Concurrent histories, and a check that they are linearizable.
//!
//! A history records each operation with the time stamps of its call and its return. The history of one key is *linearizable* if its
//! operations have a sequential order with two properties: every operation finds the value that the previous one left, and if operation A
//! returned before operation B was called, A comes before B. A whole history is linearizable if the history of each key is (Herlihy and
//! Wing 1990). So the check judges each key by itself ([`mod@crate::order`]). Histories of transactions: [`crate::serial`].
//!
//! An operation that did not return, because the power was cut or a call failed, may take effect at any time after its call, or not at all.
//! So the contents after a crash are judged as one more read after all operations ([`History::until`], [`History::found_after`]): writes
//! that returned as durable before the crash must be visible, all others may be visible.
//!
//! Invariants:
//! * H1: if an operation returned before another was called, its return stamp is less than the other's call stamp.
//! * H2: values are unique: no two writes of a history write the same value. So a read identifies the write that it saw.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub use crate::order::Weight;
use crate::order::{Ordered, explain};

/// The value of a key; `None` if the key is absent.
pub type Value = Option<u64>;

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No result.
    Untold,
    /// Whether the key was present.
    There(bool),
    /// The value.
    Value(Value),
}

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub key: u64,
    /// Time stamp of the call.
    pub called: u64,
    /// Time stamp of the return; `None` if the operation did not return.
    pub returned: Option<u64>,
    /// The operation's result.
    pub found: Found,
    /// The value that the operation writes; `None` for a read.
    pub writes: Option<Value>,
}

/// The operations that threads have recorded.
#[derive(Debug, Default)]
pub struct History {
    clock: AtomicU64,
    operations: Mutex<Vec<Operation>>,
}

impl History {
    /// Returns the next time stamp (H1).
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records an operation that returned now. Without `found`, the operation did not return and never will.
    pub fn note(&self, key: u64, called: u64, found: Option<Found>, writes: Option<Value>) {
        let returned = found.map(|_| self.now());
        let found = found.unwrap_or(Found::Untold);
        self.add(Operation { key, called, returned, found, writes });
    }

    /// Records an operation with time stamps of this history.
    pub fn add(&self, operation: Operation) {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }

    /// The operations recorded so far.
    pub fn operations(&self) -> Vec<Operation> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The history at a moment: operations called later are left out, and operations that returned later count as not returned. For a
    /// crash, an operation that promised nothing counts as not returned, too: `promises` returns true for the others.
    pub fn until(&self, moment: u64, promises: impl Fn(&Operation) -> bool) -> Self {
        let mut operations = self.operations();
        operations.retain(|operation| operation.called < moment);
        for operation in &mut operations {
            if operation.returned.is_some_and(|returned| returned >= moment) || !promises(operation) {
                (operation.returned, operation.found) = (None, Found::Untold);
            }
        }
        Self { clock: AtomicU64::new(moment), operations: Mutex::new(operations) }
    }

    /// Records the value that a store opened after a crash holds under a key.
    pub fn found_after(&self, key: u64, value: Value) {
        self.note(key, self.now(), Some(Found::Value(value)), None);
    }

    /// Judges every key. `start` returns a key's initial value.
    ///
    /// # Errors
    /// The first key whose history is not linearizable, with that history.
    pub fn judge(&self, start: impl Fn(u64) -> Value) -> Result<Weight, String> {
        let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
        for operation in self.operations() {
            keys.entry(operation.key).or_default().push(operation);
        }
        let mut weight = Weight::default();
        for (key, operations) in keys {
            let own = judge(start(key), operations)?;
            weight.operations += own.operations;
            weight.overlapping += own.overlapping;
        }
        Ok(weight)
    }
}

/// Judges the operations on one key with the initial value `start`.
///
/// # Errors
/// The history as text, if no order explains it.
pub fn judge(start: Value, operations: Vec<Operation>) -> Result<Weight, String> {
    let key = operations.first().map(|operation| operation.key).unwrap_or_default();
    explain(start, operations).map_err(|text| {
        format!("no order explains key {key}, which held {start:?}; * cannot be placed:{text}")
    })
}

impl Operation {
    fn fits(&self, state: Value) -> bool {
        match self.found {
            Found::Untold => true,
            Found::There(there) => there == state.is_some(),
            Found::Value(value) => value == state,
        }
    }
}

impl Ordered for Operation {
    type State = Value;

    fn called(&self) -> u64 {
        self.called
    }
    fn returned(&self) -> Option<u64> {
        self.returned
    }
    fn is_read(&self) -> bool {
        self.writes.is_none()
    }
    fn apply(&self, state: &Value) -> Option<Value> {
        self.fits(*state).then(|| self.writes.unwrap_or(*state))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.writes {
            None => write!(f, "read")?,
            Some(None) => write!(f, "delete")?,
            Some(Some(value)) => write!(f, "put {value}")?,
        }
        match self.found {
            Found::Untold => Ok(()),
            Found::There(true) => write!(f, ", was there"),
            Found::There(false) => write!(f, ", was not there"),
            Found::Value(None) => write!(f, ", found nothing"),
            Found::Value(Some(value)) => write!(f, ", found {value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(called: u64, returned: u64, found: Found, writes: Option<Value>) -> Operation {
        Operation { key: 1, called, returned: Some(returned), found, writes }
    }
    fn put(called: u64, returned: u64, value: u64, was_there: bool) -> Operation {
        operation(called, returned, Found::There(was_there), Some(Some(value)))
    }
    fn delete(called: u64, returned: u64, was_there: bool) -> Operation {
        operation(called, returned, Found::There(was_there), Some(None))
    }
    fn read(called: u64, returned: u64, value: impl Into<Value>) -> Operation {
        operation(called, returned, Found::Value(value.into()), None)
    }
    fn cut(operation: Operation) -> Operation {
        Operation { returned: None, found: Found::Untold, ..operation }
    }

    #[track_caller]
    fn is_explained(operations: &[Operation]) {
        judge(None, operations.to_vec()).unwrap();
    }
    #[track_caller]
    fn is_refused(operations: &[Operation]) {
        judge(None, operations.to_vec()).unwrap_err();
    }

    #[test]
    fn what_one_after_the_other_would_have_done_is_explained() {
        is_explained(&[]);
        is_explained(&[put(0, 1, 5, false), read(2, 3, 5), delete(4, 5, true), read(6, 7, None)]);
        // A read concurrent with a put may see the old or the new value. The first of two such reads may see the old value and the second
        // the new one.
        is_explained(&[put(0, 9, 5, false), read(1, 2, None), read(3, 4, 5), read(5, 6, 5)]);
        // Only one of two concurrent deletes finds the key.
        is_explained(&[put(0, 1, 5, false), delete(2, 6, false), delete(3, 5, true)]);
    }

    #[test]
    fn a_stale_read_is_refused() {
        is_refused(&[put(0, 1, 5, false), read(2, 3, None)]);
        is_refused(&[put(0, 1, 5, false), put(2, 3, 6, true), read(4, 5, 5)]);
    }

    #[test]
    fn a_read_that_goes_back_is_refused() {
        is_refused(&[put(0, 9, 5, false), read(1, 2, 5), read(3, 4, None)]);
    }

    #[test]
    fn a_value_that_nobody_wrote_and_one_from_the_future_are_refused() {
        is_refused(&[put(0, 1, 5, false), read(2, 3, 6)]);
        is_refused(&[read(0, 1, 5), put(2, 3, 5, false)]);
    }

    #[test]
    fn a_lost_update_is_refused() {
        let add = |called, returned, found: u64| {
            operation(called, returned, Found::Value(Some(found)), Some(Some(found + 1)))
        };
        is_explained(&[put(0, 1, 5, false), add(2, 5, 5), add(3, 6, 6)]);
        is_refused(&[put(0, 1, 5, false), add(2, 5, 5), add(3, 6, 5)]);
    }

    #[test]
    fn wrong_words_about_what_was_there_are_refused() {
        is_refused(&[put(0, 1, 5, true)]);
        is_refused(&[put(0, 1, 5, false), put(2, 3, 6, false)]);
        is_refused(&[put(0, 1, 5, false), delete(2, 6, true), delete(3, 5, true)]);
    }

    #[test]
    fn what_did_not_return_is_there_or_not_and_once_seen_it_stays() {
        let pending = cut(put(2, 9, 6, true));
        let before = put(0, 1, 5, false);
        for value in [5, 6] {
            is_explained(&[before, pending, read(10, 11, value)]);
        }
        is_explained(&[before, pending, read(3, 4, 5), read(5, 6, 6), read(10, 11, 6)]);
        is_refused(&[before, pending, read(3, 4, 6), read(10, 11, 5)]);
        is_refused(&[before, pending, read(10, 11, None)]);
        // It cannot take effect before its call.
        is_refused(&[read(0, 1, 6), pending]);
    }

    #[test]
    fn a_history_at_a_moment_forgets_what_came_later() {
        let history = History::default();
        history.note(1, history.now(), Some(Found::There(false)), Some(Some(5)));
        let called = history.now();
        let moment = history.now();
        history.note(1, called, Some(Found::There(true)), Some(None));
        history.note(1, history.now(), Some(Found::Value(None)), None);
        assert_eq!(history.judge(|_| None).unwrap(), Weight { operations: 3, overlapping: 0 });
        for (found, is_right) in [(Some(5), true), (None, true), (Some(6), false)] {
            let cut = history.until(moment, |_| true);
            assert_eq!(cut.operations().len(), 2);
            cut.found_after(1, found);
            assert_eq!(cut.judge(|_| None).is_ok(), is_right, "{found:?}");
        }
        // A put that promises nothing may be lost, unless a read saw it.
        for (reads, is_right) in [(false, true), (true, false)] {
            let history = History::default();
            history.note(1, history.now(), Some(Found::There(false)), Some(Some(5)));
            if reads {
                history.note(1, history.now(), Some(Found::Value(Some(5))), None);
            }
            let cut = history.until(u64::MAX >> 1, |operation| operation.writes.is_none());
            cut.found_after(1, None);
            assert_eq!(cut.judge(|_| None).is_ok(), is_right);
        }
        let cut = history.until(u64::MAX >> 1, |_| true);
        cut.found_after(1, Some(5));
        assert!(cut.judge(|_| None).unwrap_err().contains("found 5"));
    }

    /// Tries every order, and every subset of the operations that did not return.
    fn by_force(state: Value, left: &[Operation]) -> bool {
        if left.iter().all(|operation| operation.returned.is_none()) {
            return true;
        }
        (0..left.len()).any(|i| {
            let first = left[i];
            let mut others = left.to_vec();
            others.remove(i);
            others.iter().all(|other| first.called < other.returned.unwrap_or(u64::MAX))
                && first.fits(state)
                && by_force(first.writes.unwrap_or(state), &others)
        })
    }

    #[test]
    fn the_search_says_what_trying_every_order_says() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut explained = 0;
        for _ in 0..20_000 {
            let mut operations = Vec::new();
            for value in 0..random.u64(2..7) {
                let called = random.u64(..10);
                let returned = called + random.u64(1..6);
                let seen = Some(random.u64(..7)).filter(|value| *value < 5);
                let made = match random.u8(..5) {
                    0 => delete(called, returned, random.bool()),
                    1 | 2 => put(called, returned, value, random.bool()),
                    _ => read(called, returned, seen),
                };
                // Makes all time stamps distinct.
                let made = Operation { called: 2 * made.called, returned: Some(2 * returned + 1), ..made };
                operations.push(if random.u8(..6) == 0 { cut(made) } else { made });
            }
            let wanted = by_force(None, &operations);
            explained += u32::from(wanted);
            assert_eq!(judge(None, operations.clone()).is_ok(), wanted, "{operations:?}");
        }
        assert!((1000..19_000).contains(&explained), "{explained}");
    }
}
