//! The search for an order of operations that explains all of their results, and that respects time: if one operation returned before
//! another was called, it comes first. The search is exact and caches its visited states (Wing and Gong 1993, Lowe 2017).
//!
//! An operation that did not return may come anywhere after its call, or be left out.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

/// An operation on a state.
pub trait Ordered: fmt::Display {
    /// The state.
    type State: Clone + Eq + Hash;
    /// Time stamp of the call.
    fn called(&self) -> u64;
    /// Time stamp of the return; `None` if the operation did not return.
    fn returned(&self) -> Option<u64>;
    /// True if the operation does not change the state.
    fn is_read(&self) -> bool;
    /// The state after the operation. `None` if the operation's results do not fit to the state before it.
    fn apply(&self, state: &Self::State) -> Option<Self::State>;
}

/// The size of a judged history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of operations.
    pub operations: u64,
    /// Number of operations that overlap another operation of the same search.
    pub overlapping: u64,
}

/// Maximum number of operations shown of a history that no order explains. They include those without a place in the order.
const TOLD: usize = 40;

/// Searches an order of the operations from the state `start`.
///
/// # Errors
/// The operations as text, if there is no such order. `*` marks those that the longest order that was found does not contain.
pub fn explain<O: Ordered>(start: O::State, mut operations: Vec<O>) -> Result<Weight, String> {
    // An operation that did not return has no result. If it wrote nothing either, it can be left out.
    operations.retain(|operation| operation.returned().is_some() || !operation.is_read());
    operations.sort_by_key(Ordered::called);
    let count = operations.len();
    let mut search = Search {
        operations: &operations,
        seen: HashSet::new(),
        taken: vec![0; count.div_ceil(64)],
        best: Vec::new(),
    };
    if search.run(start, 0, 0) {
        let end = |operation: &O| operation.returned().unwrap_or(u64::MAX);
        let overlaps = |a: &O, b: &O| a.called() < end(b) && b.called() < end(a);
        let overlapping = operations
            .iter()
            .enumerate()
            .filter(|(i, a)| operations.iter().enumerate().any(|(j, b)| *i != j && overlaps(a, b)));
        return Ok(Weight { operations: count as u64, overlapping: overlapping.count() as u64 });
    }
    let best = search.best;
    let is_placed = |i: usize| best[i / 64] >> (i % 64) & 1 != 0;
    let from = (0..count).position(|i| !is_placed(i)).unwrap_or(0).saturating_sub(TOLD / 2);
    let mut text = String::new();
    for (i, operation) in operations.iter().enumerate().skip(from).take(TOLD) {
        text.push_str(&format!("\n {}{}", if is_placed(i) { ' ' } else { '*' }, Shown(operation)));
    }
    if count > TOLD {
        text.push_str(&format!("\n  (of {count} operations)"));
    }
    Err(text)
}

/// An operation with its time.
struct Shown<'a, O>(&'a O);

impl<O: Ordered> fmt::Display for Shown<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to ", self.0.called())?;
        match self.0.returned() {
            Some(returned) => write!(f, "{returned}: ")?,
            None => write!(f, "never: ")?,
        }
        self.0.fmt(f)
    }
}

struct Search<'a, O: Ordered> {
    /// Sorted by call.
    operations: &'a [O],
    /// Sets of placed operations, with the state after them, from which no order was found.
    seen: HashSet<(Vec<u64>, O::State)>,
    /// A bit for each operation that is placed.
    taken: Vec<u64>,
    /// The largest set that could be placed.
    best: Vec<u64>,
}

impl<O: Ordered> Search<'_, O> {
    /// Returns true if the remaining operations can be placed after the placed ones. `first` operations at the front are placed, `placed`
    /// in all.
    fn run(&mut self, state: O::State, mut first: usize, placed: usize) -> bool {
        let operations = self.operations;
        while first < operations.len() && self.is_taken(first) {
            first += 1;
        }
        let left = (first..operations.len()).filter(|i| !self.is_taken(*i)).collect::<Vec<_>>();
        // The next operation must be called before the earliest return among the remaining ones.
        let Some(until) = left.iter().filter_map(|i| operations[*i].returned()).min() else { return true };
        if self.best.is_empty() || placed > ones(&self.best) {
            self.best.clone_from(&self.taken);
        }
        if !self.seen.insert((self.taken.clone(), state.clone())) {
            return false;
        }
        let may_be_next = left.into_iter().filter(|i| operations[*i].called() < until);
        let mut fits: Vec<_> =
            may_be_next.filter_map(|i| operations[i].apply(&state).map(|after| (i, after))).collect();
        // A read that fits can be placed at once: it does not constrain the others.
        if let Some(read) = fits.iter().position(|(i, _)| operations[*i].is_read()) {
            fits = vec![fits.swap_remove(read)];
        }
        for (i, after) in fits {
            self.taken[i / 64] |= 1 << (i % 64);
            if self.run(after, first, placed + 1) {
                return true;
            }
            self.taken[i / 64] &= !(1 << (i % 64));
        }
        false
    }

    fn is_taken(&self, i: usize) -> bool {
        self.taken[i / 64] >> (i % 64) & 1 != 0
    }
}

fn ones(bits: &[u64]) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}
