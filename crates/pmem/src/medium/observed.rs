//! A medium for tests: it executes every operation on plain memory and reports it to an [`Observer`].
//!
//! [`Counter`] counts words, flushes and fences for the cost model. [`Recorder`] keeps the list of events. From this list the
//! crash explorer derives every image that a crash could leave.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
pub use crate::medium::counter::{Category, Counter, Counts, Part};
pub use crate::medium::events::{Event, Observer, Site, Store};
use crate::medium::traits::{Fence, LINE, Line, Medium, WORD, lines_of};

/// Plain memory of fixed capacity, shared between an [`Observed`] medium and a test that composes images in it.
#[derive(Debug)]
pub struct Memory {
    lines: Box<[Line]>,
    len: AtomicU64,
}

static ZERO: Line = Line::zero();

impl Memory {
    /// Zeroed memory with space for `capacity` bytes, of which `len` are in use.
    pub fn new(capacity: u64, len: u64) -> Arc<Self> {
        let lines = (0..capacity.div_ceil(LINE)).map(|_| Line::zero()).collect();
        Arc::new(Self { lines, len: AtomicU64::new(len.min(capacity)) })
    }

    /// The line that contains byte `at`; zeros outside.
    #[inline]
    pub fn line(&self, at: u64) -> &Line {
        if at < self.len() { &self.lines[(at / LINE) as usize] } else { &ZERO }
    }

    /// Reads a word without an event.
    pub fn peek(&self, at: u64) -> u64 {
        self.line(at).0[(at / WORD % 8) as usize].load(Ordering::Relaxed)
    }

    /// Stores a word without an event.
    ///
    /// # Panics
    /// If the offset is outside the memory or not aligned to 8 bytes.
    pub fn poke(&self, at: u64, value: u64) {
        assert!(at < self.len() && at.is_multiple_of(WORD), "store outside the medium: {at:#x}");
        self.lines[(at / LINE) as usize].0[(at / WORD % 8) as usize].store(value, Ordering::Relaxed);
    }

    /// Bytes in use.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// True if no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> u64 {
        self.lines.len() as u64 * LINE
    }

    /// Sets the number of bytes in use, to compose an image. Bytes that were never in use are zero.
    pub fn set_len(&self, len: u64) {
        self.len.store(len.min(self.capacity()), Ordering::Relaxed);
    }
}

/// A medium that reports every operation to an observer.
#[derive(Clone)]
pub struct Observed {
    memory: Arc<Memory>,
    observer: Arc<dyn Observer>,
}

impl Observed {
    /// A medium over `memory` that reports to `observer`.
    pub fn new(memory: Arc<Memory>, observer: Arc<dyn Observer>) -> Self {
        Self { memory, observer }
    }

    /// The memory below.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn store(&self, at: u64, value: u64, kind: Store, site: Site) {
        self.observer.store(Event::Store { at, value, kind, site }, self.memory.peek(at));
        self.memory.poke(at, value);
    }
}

impl Medium for Observed {
    const SHOWS_LINES: bool = false;

    #[inline]
    fn line(&self, at: u64) -> &Line {
        self.observer.read(at & !(LINE - 1));
        self.memory.line(at)
    }

    fn copy(&self, at: u64, value: u64) {
        self.store(at, value, Store::Copy, Location::caller());
    }

    fn publish(&self, at: u64, value: u64) {
        self.store(at, value, Store::Publish, Location::caller());
    }

    fn flush(&self, at: u64, bytes: u64) {
        let site = Location::caller();
        for line in lines_of(at, bytes) {
            self.observer.event(Event::Flush { line, site });
        }
    }

    fn fence(&self, why: Fence) {
        self.observer.event(Event::Fence { why, site: Location::caller() });
    }

    fn prefetch(&self, at: u64, bytes: u64) {
        lines_of(at, bytes).for_each(|line| self.observer.prefetch(line));
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes > self.memory.capacity() {
            return Err(Error::Full { max_bytes: self.memory.capacity() });
        }
        self.memory.set_len(bytes.max(self.memory.len()));
        Ok(())
    }

    #[track_caller]
    fn discard(&self, at: u64, bytes: u64) -> bool {
        let site = Location::caller();
        if self.observer.follows_discards() {
            (at..at + bytes).step_by(WORD as usize).for_each(|word| self.store(word, 0, Store::Copy, site));
        }
        self.observer.follows_discards()
    }

    #[track_caller]
    fn sync(&self, at: u64, bytes: u64) -> Result<()> {
        // The file system writes back every line and waits for it. All events have the caller's site, so that the mutation run can
        // leave out the call.
        self.flush(at, bytes);
        self.fence(Fence::Superblock);
        Ok(())
    }

    fn lines(&self, _at: u64, _count: usize) -> Option<&[Line]> {
        None
    }
}

/// Keeps the list of events.
#[derive(Debug, Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// Returns the events recorded so far and empties the list.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Recorder {
    fn event(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}
