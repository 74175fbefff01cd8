//! Histories of transactions, and a check that they are strictly serializable: one order of all operations explains all of their results,
//! and if one operation returned before another was called, it comes first ([`mod@crate::order`]).
//!
//! The check of single keys ([`crate::history`]) cannot find a transaction that committed although another one had changed what it read.
//! This check judges all keys together. So it is for short histories of few threads.
//!
//! An operation consists of actions in the order of the program ([`Action`]). A read sees the writes of the same operation that came before
//! it. After a crash, an operation that did not return before is there as a whole or not at all, and so is one that promised nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::history::Value;
use crate::order::{Ordered, Weight, explain};

/// The contents of a store. Keys of all tables are numbers.
pub type State = BTreeMap<u64, u64>;

/// A part of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads a key and finds this value.
    Get(u64, Value),
    /// Finds a key present or absent.
    There(u64, bool),
    /// Reads all pairs of a range of keys.
    Scan(Range<u64>, Vec<(u64, u64)>),
    /// Stores a value, or removes the key.
    Put(u64, Value),
    /// Removes a range of keys.
    Clear(Range<u64>),
}

/// Actions that take effect in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Time stamp of the call.
    pub called: u64,
    /// Time stamp of the return; `None` if the operation did not return.
    pub returned: Option<u64>,
    /// True if the operation was durable when it returned.
    pub promises: bool,
    /// The actions.
    pub actions: Vec<Action>,
}

impl Operation {
    /// A read of all keys after every other operation, such as that of a store that was opened after a crash.
    pub fn at_end(now: u64, contents: &State) -> Self {
        let pairs = contents.iter().map(|(key, value)| (*key, *value)).collect();
        let actions = vec![Action::Scan(0..u64::MAX, pairs)];
        Self { called: now, returned: Some(now + 1), promises: true, actions }
    }
}

impl Ordered for Operation {
    type State = State;

    fn called(&self) -> u64 {
        self.called
    }
    fn returned(&self) -> Option<u64> {
        self.returned
    }
    fn is_read(&self) -> bool {
        !self.actions.iter().any(|action| matches!(action, Action::Put(..) | Action::Clear(_)))
    }
    fn apply(&self, state: &State) -> Option<State> {
        let mut state = state.clone();
        for action in &self.actions {
            let fits = match action {
                Action::Get(key, value) => state.get(key) == value.as_ref(),
                Action::There(key, is_there) => state.contains_key(key) == *is_there,
                Action::Scan(range, pairs) => {
                    let found = state.range(range.clone()).map(|(key, value)| (*key, *value));
                    found.eq(pairs.iter().copied())
                }
                Action::Put(key, Some(value)) => {
                    state.insert(*key, *value);
                    true
                }
                Action::Put(key, None) => {
                    state.remove(key);
                    true
                }
                Action::Clear(range) => {
                    state.retain(|key, _| !range.contains(key));
                    true
                }
            };
            if !fits {
                return None;
            }
        }
        Some(state)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.promises {
            write!(f, "promised nothing, ")?;
        }
        f.debug_list().entries(&self.actions).finish()
    }
}

/// The operations that threads have recorded. Their time stamps come from one [`History`](crate::History).
#[derive(Debug, Default)]
pub struct Operations(Mutex<Vec<Operation>>);

impl Operations {
    /// Records an operation.
    pub fn add(&self, operation: Operation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }

    /// All operations.
    pub fn all(&self) -> Vec<Operation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The operations that a crash at this moment can leave. Operations called later are left out. Operations that returned later, or that
    /// promised nothing, count as not returned. If such an operation took effect, then with the results that it returned later.
    pub fn until(&self, moment: u64) -> Vec<Operation> {
        let mut operations = self.all();
        operations.retain(|operation| operation.called < moment);
        for operation in &mut operations {
            let is_read = operation.is_read();
            operation.returned =
                operation.returned.filter(|returned| *returned < moment && (operation.promises || is_read));
        }
        operations
    }
}

/// Judges a history.
///
/// # Errors
/// The history as text, if it is not strictly serializable.
pub fn judge(start: State, operations: Vec<Operation>) -> Result<Weight, String> {
    let shown = format!("{start:?}");
    explain(start, operations)
        .map_err(|text| format!("no order explains the history of {shown}; * cannot be placed:{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation<const N: usize>(time: Range<u64>, actions: [Action; N]) -> Operation {
        let Range { start: called, end } = time;
        Operation { called, returned: Some(end), promises: true, actions: actions.to_vec() }
    }
    fn get(key: u64, value: impl Into<Value>) -> Action {
        Action::Get(key, value.into())
    }
    fn put(key: u64, value: impl Into<Value>) -> Action {
        Action::Put(key, value.into())
    }

    #[track_caller]
    fn is_explained(operations: &[Operation], expected: bool) {
        let outcome = judge(State::from([(1, 10), (2, 20)]), operations.to_vec());
        assert_eq!(outcome.is_ok(), expected, "{outcome:?}");
    }

    #[test]
    fn transactions_one_after_the_other_are_explained_and_see_their_own_writes() {
        let first = operation(0..9, [get(1, 10), put(1, 11), get(1, 11), put(2, None)]);
        let scan = Action::Scan(0..9, vec![(1, 11)]);
        is_explained(&[first.clone(), operation(1..8, [scan.clone(), put(3, 30)])], true);
        is_explained(&[first.clone(), operation(10..11, [Action::There(2, false), scan])], true);
        is_explained(&[first.clone(), operation(10..11, [get(2, 20)])], false);
        is_explained(&[first.clone(), operation(5..6, [get(1, 10), get(2, 20)])], true);
        is_explained(&[first, operation(5..6, [get(1, 10), get(2, None)])], false);
    }

    #[test]
    fn a_write_skew_a_phantom_and_a_lost_update_are_refused() {
        // Each reads the key that the other writes. Each key by itself is linearizable.
        let skew = [operation(0..9, [get(1, 10), put(2, 21)]), operation(1..8, [get(2, 20), put(1, 11)])];
        is_explained(&skew, false);
        let empty = |low| Action::Scan(low..low + 10, Vec::new());
        let phantoms = [operation(0..9, [empty(30), put(40, 1)]), operation(1..8, [empty(40), put(30, 2)])];
        is_explained(&phantoms, false);
        is_explained(&phantoms[..1], true);
        let add = |time, value| operation(time, [get(1, 10), put(1, value)]);
        is_explained(&[add(0..9, 11), add(1..8, 12)], false);
    }

    #[test]
    fn a_read_of_the_state_before_an_operation_that_returned_is_refused() {
        let clear = operation(0..3, [Action::Clear(0..2)]);
        let late = operation(4..5, [get(1, 10), get(2, 20)]);
        is_explained(&[clear.clone(), late.clone()], false);
        is_explained(&[clear, Operation { called: 2, ..late }], true);
    }

    #[test]
    fn a_crash_leaves_whole_operations_and_all_that_promised() {
        let operations = Operations::default();
        operations.add(operation(0..2, [put(1, 11), put(2, 21)]));
        operations.add(operation(3..8, [put(1, 12), put(3, 32)]));
        operations.add(Operation { promises: false, ..operation(1..4, [put(4, 43)]) });
        operations.add(operation(7..9, [put(5, 54)]));
        let leaves = |contents: &[(u64, u64)], expected: bool| {
            let contents = contents.iter().copied().collect();
            let mut left = operations.until(6);
            left.push(Operation::at_end(6, &contents));
            is_explained(&left, expected);
        };
        leaves(&[(1, 11), (2, 21)], true);
        leaves(&[(1, 11), (2, 21), (4, 43)], true);
        leaves(&[(1, 12), (2, 21), (3, 32)], true);
        leaves(&[(1, 12), (2, 21)], false);
        leaves(&[(1, 10), (2, 20), (4, 43)], false);
        leaves(&[(1, 11), (2, 20)], false);
        leaves(&[(1, 11), (2, 21), (5, 54)], false);
        // After a read returned a value, the value stays.
        operations.add(operation(4..5, [get(4, 43)]));
        leaves(&[(1, 11), (2, 21)], false);
        leaves(&[(1, 11), (2, 21), (4, 43)], true);
    }
}
