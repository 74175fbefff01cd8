//! The log of ACL LOG: the newest commands, accesses to keys and channels, and logins that the server refused.
//!
//! Invariant:
//! * G1: the log is bounded in entries and in bytes of an entry. It never contains a password.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use crate::shared::lock;

/// Maximum number of entries, as in Redis.
const ENTRIES_MAX: usize = 128;
/// Refusals that differ in time and client only are one entry if they come within this number of seconds of each other, as in Redis.
const SAME_SECONDS: u64 = 60;
/// Maximum number of characters of a name of a user, a command, a key or a channel.
const NAME_MAX: usize = 128;

/// The kind of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// A user with a password.
    Login,
}

impl Reason {
    /// The word of Redis.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Login => "auth",
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub struct Denial {
    /// Number of refusals.
    pub count: u64,
    /// The kind of the request.
    pub reason: Reason,
    /// True between MULTI and the end of EXEC.
    pub in_transaction: bool,
    /// Name of the command, the key or the channel. For [`Reason::Login`], the command.
    pub object: String,
    /// Name of the user.
    pub user: String,
    /// The client of the newest refusal, as CLIENT LIST shows it.
    pub client: String,
    /// Time of the newest refusal.
    pub at: Instant,
}

/// The log. See the module's head.
#[derive(Debug, Default)]
pub struct Denials(Mutex<VecDeque<Denial>>);

impl Denials {
    /// Adds a refusal.
    pub fn add(&self, mut denial: Denial) {
        for name in [&mut denial.object, &mut denial.user] {
            if let Some((end, _)) = name.char_indices().nth(NAME_MAX) {
                name.truncate(end);
            }
        }
        let mut entries = lock(&self.0);
        let is_same = |old: &Denial| {
            (old.reason, old.in_transaction, &old.object, &old.user)
                == (denial.reason, denial.in_transaction, &denial.object, &denial.user)
                && old.at.elapsed().as_secs() < SAME_SECONDS
        };
        let same = entries.iter().position(is_same);
        if let Some(old) = same.and_then(|at| entries.remove(at)) {
            denial.count += old.count;
        }
        entries.push_front(denial);
        entries.truncate(ENTRIES_MAX);
    }

    /// The newest entries, the newest first.
    #[must_use]
    pub fn newest(&self, count: usize) -> Vec<Denial> {
        lock(&self.0).iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }
}
