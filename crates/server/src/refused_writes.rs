//! Log lines about writes that the store refuses, because the disk is full or because it failed.
//!
//! Every client may write many times while the disk is full. The log has one line when the first write is refused, and one when writes have
//! succeeded again. Near the limit, small writes succeed between large ones that fail. So the second line waits until no write was refused
//! for `QUIET`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bristlecone::{Error, ErrorKind};

use crate::shared::{Shared, lock};

/// Time without a refusal after which a write that succeeds ends the state.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Refusing {
    latest: Instant,
    count: u64,
}

/// Whether the store refuses writes.
#[derive(Debug, Default)]
pub struct RefusedWrites {
    /// True if `state` is not `None`. A write that succeeds reads only this.
    is_refusing: AtomicBool,
    state: Mutex<Option<Refusing>>,
    /// True if the store failed. It takes no more writes until the server starts again.
    has_failed: AtomicBool,
}

impl RefusedWrites {
    /// Notes a refused write. True if it is the first one.
    fn refused(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        self.is_refusing.store(true, Ordering::Relaxed);
        let count = state.map_or(0, |state| state.count);
        *state = Some(Refusing { latest: now, count: count + 1 });
        count == 0
    }

    /// Notes a write that succeeded. Returns the number of refused ones if it is the first after them.
    fn stored(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.state);
        let ended = state.take_if(|state| now.duration_since(state.latest) >= QUIET)?;
        self.is_refusing.store(false, Ordering::Relaxed);
        Some(ended.count)
    }
}

/// Advice for a store without space: the deletes that work then.
pub fn advice(shared: &Shared) -> &'static str {
    let engine = shared.store.capabilities();
    // A delete is a record of the log (`bwtree`), or the end of a version that stays.
    match engine.several_writers || engine.versions {
        true => "deletes need space too, so free space on the disk",
        false => "DEL of one key at a time works without space, and writes use the space of the deleted keys",
    }
}

impl Shared {
    /// Notes an error of a write. Logs it if writes begin to be refused.
    pub fn note_refused_write(&self, error: &Error) {
        let kind = error.kind();
        if kind == ErrorKind::Full && self.refused_writes.refused(Instant::now()) {
            tracing::error!("writes are refused: {error}; {}", advice(self));
        }
        if kind == ErrorKind::Failed && !self.refused_writes.has_failed.swap(true, Ordering::Relaxed) {
            tracing::error!("all writes are refused: {error}");
        }
    }

    /// Notes that the store has taken a write. Logs it if writes were refused before.
    pub fn note_stored_write(&self) {
        if self.refused_writes.is_refusing.load(Ordering::Relaxed)
            && let Some(refused) = self.refused_writes.stored(Instant::now())
        {
            tracing::warn!(refused, "writes succeed again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_refused_write_and_the_first_success_after_a_quiet_time_are_reported() {
        let (writes, start) = (RefusedWrites::default(), Instant::now());
        assert_eq!(writes.stored(start), None);
        assert!(writes.refused(start));
        assert!(!writes.refused(start + QUIET / 2));
        assert_eq!(writes.stored(start + QUIET), None, "a small write between refused ones");
        assert_eq!(writes.stored(start + QUIET / 2 + QUIET), Some(2));
        assert_eq!(writes.stored(start + 3 * QUIET), None);
        assert!(writes.refused(start + 4 * QUIET));
    }
}
