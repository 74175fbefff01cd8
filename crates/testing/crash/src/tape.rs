//! The tape records the events of a running subject, each with the state that a replay needs.

use std::sync::{Arc, Mutex, PoisonError};

use pmem::{Event, Memory, Observer, Store};

/// An event and the state of the memory before it.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The event.
    pub event: Event,
    /// Value of the stored word before the event; 0 for flushes and fences.
    pub old: u64,
    /// Bytes in use before the event.
    pub len: u64,
    /// Number of lines whose content after the crash was chosen before the event; 0 if the subject does not run on an image.
    pub taken: usize,
}

impl Recorded {
    /// Records `event` before `memory` executes it.
    pub fn new(event: Event, memory: &Memory, taken: usize) -> Self {
        let old = if let Event::Store { at, .. } = event { memory.peek(at) } else { 0 };
        Self { event, old, len: memory.len(), taken }
    }

    /// True for copies and publishes.
    pub fn is_store(&self) -> bool {
        matches!(self.event, Event::Store { .. })
    }

    /// True for publishes.
    pub fn is_publish(&self) -> bool {
        matches!(self.event, Event::Store { kind: Store::Publish, .. })
    }

    /// True for fences.
    pub fn is_fence(&self) -> bool {
        matches!(self.event, Event::Fence { .. })
    }
}

/// Records the events on one memory.
#[derive(Debug)]
pub struct Tape {
    memory: Arc<Memory>,
    events: Mutex<Vec<Recorded>>,
}

impl Tape {
    /// A tape for `memory`.
    pub fn new(memory: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { memory, events: Mutex::default() })
    }

    /// Takes the events recorded so far.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Tape {
    fn follows_discards(&self) -> bool {
        true
    }

    fn event(&self, event: Event) {
        let recorded = Recorded::new(event, &self.memory, 0);
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    }
}
