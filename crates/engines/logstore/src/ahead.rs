//! Reads ahead: a thread asks the system for images that the upkeep will read soon. Such a request costs about as much as a read from the page
//! cache. The upkeep is one thread, and with data beyond memory all updates wait for it: a fifth of its time went into these requests.
//!
//! Requests are advice. If too many wait, the caller makes its own, and an error has no consequence.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use crate::segments::Segment;

/// Number of groups of requests that wait.
const WAITING: usize = 8;

/// Bytes of a segment: their offset and their number.
pub(crate) type Wanted = (Arc<Segment>, u64, u64);

/// The thread. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// `None` while it is dropped.
    groups: Option<SyncSender<Vec<Wanted>>>,
    thread: Option<JoinHandle<()>>,
}

/// Asks the system to begin these reads.
pub(crate) fn ask(group: &[Wanted]) {
    group.iter().for_each(|(segment, from, bytes)| segment.will_read(*from, *bytes));
}

impl Ahead {
    /// Starts the thread. `None` if the system has none to give.
    pub(crate) fn start() -> Option<Self> {
        let (groups, wanted) = sync_channel::<Vec<Wanted>>(WAITING);
        let work = move || wanted.iter().for_each(|group| ask(&group));
        let thread = std::thread::Builder::new().name("read-ahead".to_owned()).spawn(work).ok()?;
        Some(Self { groups: Some(groups), thread: Some(thread) })
    }

    /// Lets the thread ask the system.
    pub(crate) fn ask(&self, group: Vec<Wanted>) {
        let Some(groups) = &self.groups else { return };
        if let Err(TrySendError::Full(group) | TrySendError::Disconnected(group)) = groups.try_send(group) {
            ask(&group);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.groups = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has made no promise.
            let _ = thread.join();
        }
    }
}
