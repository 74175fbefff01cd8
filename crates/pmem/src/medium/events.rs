//! What happens to durable memory, as observers are told: one event for each verb, with the place in the source that called it.

use std::panic::Location;

use crate::medium::traits::Fence;

/// Where in the source a verb was called.
pub type Site = &'static Location<'static>;

/// Which verb stored a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// `copy`: unordered payload.
    Copy,
    /// `publish`: after everything before it.
    Publish,
}

/// One thing that happened to durable memory.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A word was stored at `at`.
    Store {
        /// Byte offset, 8-byte aligned.
        at: u64,
        /// The new word.
        value: u64,
        /// By which verb.
        kind: Store,
        /// Call site.
        site: Site,
    },
    /// A line was flushed.
    Flush {
        /// Byte offset of the line.
        line: u64,
        /// Call site.
        site: Site,
    },
    /// A fence.
    Fence {
        /// What it is for.
        why: Fence,
        /// Call site.
        site: Site,
    },
}

/// Receives the reads, stores, flushes and fences of an [`Observed`](crate::Observed) medium.
pub trait Observer: Send + Sync + 'static {
    /// A line (byte offset) is about to be read. Called before its content is looked at.
    fn read(&self, line: u64) {
        let _ = line;
    }
    /// A line (byte offset) is asked for ahead.
    fn prefetch(&self, line: u64) {
        let _ = line;
    }
    /// True if discarded bytes are to be told as stores of zeros that nothing writes back. Else storage is kept.
    fn follows_discards(&self) -> bool {
        false
    }
    /// A store, flush or fence is about to be carried out.
    fn event(&self, event: Event);
    /// A store is about to be carried out over the word `old`. Told as any other event unless the observer asks for more.
    fn store(&self, event: Event, old: u64) {
        let _ = old;
        self.event(event);
    }
}
