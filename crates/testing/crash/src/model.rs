//! The durability of all lines: replays events and derives the contents that a crash may leave.
//!
//! Invariant: the memory holds the known-durable content of every line. When a fence makes a new content of a line durable, the model
//! writes this content into the memory and the old content into the undo list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pmem::{Event, LINE, Memory, WORD};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use crate::line::{Choices, LineState, Pending, Words};

/// Old contents of lines (by byte offset), to be restored in reverse order.
pub type Undo = Vec<(u64, Words)>;

/// Lines whose content the crash determines, by ascending byte offset.
pub type OpenLines = Vec<(u64, Arc<Choices>)>;

/// Reads a line without notifying an observer.
pub fn words(memory: &Memory, line: u64) -> Words {
    let line = memory.line(line);
    std::array::from_fn(|word| line.0[word].load(Ordering::Relaxed))
}

/// Writes a line without notifying an observer.
///
/// # Panics
/// If the line is outside the memory.
pub fn put(memory: &Memory, line: u64, words: &Words) {
    assert!(line < memory.len(), "line {line:#x} is outside the memory");
    let target = memory.line(line);
    for (word, value) in words.iter().enumerate() {
        target.0[word].store(*value, Ordering::Relaxed);
    }
}

/// Restores the contents in `undo`.
pub fn rewind(memory: &Memory, undo: &mut Undo) {
    while let Some((line, old)) = undo.pop() {
        put(memory, line, &old);
    }
}

/// A fingerprint of a line's durable content. The fingerprints of all lines are summed, so an update costs only the work for one line.
pub(crate) fn fingerprint(line: u64, words: &Words) -> u128 {
    let mut bytes = [0; 72];
    let fields = std::iter::once(&line).chain(words);
    bytes
        .chunks_exact_mut(8)
        .zip(fields)
        .for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    xxh3_128(&bytes)
}

/// The stores that are not known to be durable.
#[derive(Clone, Debug)]
pub struct Model {
    lines: BTreeMap<u64, LineState>,
    flushed: Vec<u64>,
    line_cap: usize,
    seed: u64,
}

impl Model {
    /// A model in which everything is durable. A line yields at most `line_cap` contents; if it has more, they are a sample by `seed`.
    pub fn new(line_cap: usize, seed: u64) -> Self {
        Self { lines: BTreeMap::new(), flushed: Vec::new(), line_cap, seed }
    }

    /// Replays one event. `memory` holds the known-durable content and is advanced by fences.
    pub fn apply(&mut self, event: &Event, memory: &Memory, undo: &mut Undo) {
        match *event {
            Event::Store { at, value, kind, .. } => {
                let line = at & !(LINE - 1);
                let state =
                    self.lines.entry(line).or_insert_with(|| LineState::new(vec![words(memory, line)]));
                state.store(Pending { word: (at / WORD % 8) as usize, value, kind });
            }
            Event::Flush { line, .. } => {
                if self.lines.get_mut(&line).is_some_and(LineState::flush) {
                    self.flushed.push(line);
                }
            }
            Event::Fence { .. } => {
                for line in std::mem::take(&mut self.flushed) {
                    if self.lines.get_mut(&line).is_some_and(LineState::fence) {
                        self.ground(line, memory, undo);
                    }
                }
            }
        }
    }

    /// If the line's base is known, writes it to memory. Forgets the line if nothing else is pending.
    fn ground(&mut self, line: u64, memory: &Memory, undo: &mut Undo) {
        let Some(state) = self.lines.get(&line) else { return };
        if let Some(base) = state.base() {
            undo.push((line, words(memory, line)));
            put(memory, line, base);
        }
        if state.is_settled() {
            self.lines.remove(&line);
        }
    }

    /// True if the model holds stores to `line`.
    pub fn has(&self, line: u64) -> bool {
        self.lines.contains_key(&line)
    }

    /// Adds `line`, which is not in the model yet. It durably holds one of `bases`.
    pub fn adopt(&mut self, line: u64, bases: &[Words]) {
        self.lines.insert(line, LineState::new(bases.to_vec()));
    }

    /// Records a read of `line`: outside the words of `mask` it durably holds those of `read`.
    pub fn narrow(&mut self, line: u64, mask: u8, read: &Words, memory: &Memory, undo: &mut Undo) {
        if let Some(state) = self.lines.get_mut(&line) {
            state.narrow(mask, read);
            self.ground(line, memory, undo);
        }
    }

    /// Hashes all state that [`Model::open`] depends on, except the durable words.
    pub(crate) fn fingerprint(&self, hash: &mut Xxh3Default) {
        for (line, state) in &self.lines {
            hash.update(&line.to_le_bytes());
            state.fingerprint(hash);
        }
    }

    /// True if every store is known to be durable.
    pub fn is_settled(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns every line that has more than one possible content.
    pub fn open(&mut self) -> OpenLines {
        let (cap, seed) = (self.line_cap, self.seed);
        let choices = self.lines.iter_mut().map(|(line, state)| (*line, state.choices(cap, seed ^ *line)));
        choices.filter(|(_, choices)| choices.contents.len() > 1).collect()
    }

    /// Records the crash: the memory's present contents are durable.
    pub fn settle(&mut self) {
        self.lines.clear();
        self.flushed.clear();
    }
}
