//! The events that observers of durable memory receive: one event for each operation, with the call site in the source.

use std::panic::Location;

use crate::medium::traits::Fence;

/// The call site of an operation in the source.
pub type Site = &'static Location<'static>;

/// The operation that stored a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// `copy`: unordered payload.
    Copy,
    /// `publish`: after all earlier stores.
    Publish,
}

/// One operation on durable memory.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A word was stored at `at`.
    Store {
        /// Byte offset, 8-byte aligned.
        at: u64,
        /// The new word.
        value: u64,
        /// The operation.
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
        /// Its purpose.
        why: Fence,
        /// Call site.
        site: Site,
    },
}

/// Receives the reads, stores, flushes and fences of an [`Observed`](crate::Observed) medium.
pub trait Observer: Send + Sync + 'static {
    /// A line (byte offset) is about to be read. Called before its content is loaded.
    fn read(&self, line: u64) {
        let _ = line;
    }
    /// A line (byte offset) is prefetched.
    fn prefetch(&self, line: u64) {
        let _ = line;
    }
    /// True if discarded bytes are reported as stores of zeros that are never flushed. Otherwise the storage is kept.
    fn follows_discards(&self) -> bool {
        false
    }
    /// A store, flush or fence is about to be executed.
    fn event(&self, event: Event);
    /// A store is about to replace the word `old`. By default it is reported like every other event.
    fn store(&self, event: Event, old: u64) {
        let _ = old;
        self.event(event);
    }
}
