//! Log lines about refused clients, at most one per class and second. A client can cause many refusals; they must not fill the log.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::shared::{Shared, lock};

/// Minimum time between two lines of a class.
const PAUSE: Duration = Duration::from_secs(1);

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// There are too many clients.
    TooMany,
    /// The client is on another machine, and the server has no password.
    Protected,
    /// The connection held too much memory, or a MONITOR did not read its lines fast enough.
    Memory,
    /// Bytes that are not a command.
    Protocol,
    /// A wrong password, or a wrong user.
    Password,
    /// The user may not run the command.
    Permission,
    /// The TLS handshake failed.
    Tls,
    /// The system could not accept a connection.
    Accept,
}

impl Class {
    const COUNT: usize = 8;

    fn name(self) -> &'static str {
        match self {
            Self::TooMany => "too-many-clients",
            Self::Protected => "protected",
            Self::Memory => "memory",
            Self::Protocol => "protocol",
            Self::Password => "password",
            Self::Permission => "permission",
            Self::Tls => "tls",
            Self::Accept => "accept",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    logged: Option<Instant>,
    /// Refusals since the latest line.
    unlogged: u64,
    total: u64,
}

/// The time of the latest line of each class, and the number of refusals.
#[derive(Debug, Default)]
pub struct Refusals([Mutex<Entry>; Class::COUNT]);

impl Refusals {
    /// Counts a refusal. If a line is due, returns the number of refusals since the latest line, without this one.
    fn count(&self, class: Class, now: Instant) -> Option<u64> {
        let mut entry = lock(&self.0[class as usize]);
        entry.total += 1;
        if entry.logged.is_some_and(|logged| now.duration_since(logged) < PAUSE) {
            entry.unlogged += 1;
            return None;
        }
        entry.logged = Some(now);
        Some(std::mem::take(&mut entry.unlogged))
    }

    /// The number of refusals of each class since the start, by its name.
    #[must_use]
    pub fn totals(&self) -> Vec<(&'static str, u64)> {
        use Class::{Accept, Memory, Password, Permission, Protected, Protocol, Tls, TooMany};
        let classes = [TooMany, Protected, Memory, Protocol, Password, Permission, Tls, Accept];
        classes.map(|class| (class.name(), lock(&self.0[class as usize]).total)).to_vec()
    }
}

impl Shared {
    /// Counts a refusal and logs it, unless the class had a line less than a second ago.
    pub fn refuse(&self, class: Class, peer: &dyn Display, why: &str) {
        if matches!(class, Class::TooMany | Class::Protected | Class::Tls) {
            self.counters.rejected.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(unlogged) = self.refusals.count(class, Instant::now()) {
            tracing::warn!(class = class.name(), %peer, unlogged, "refused: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_one_line_a_second_and_counts_the_others() {
        let refusals = Refusals::default();
        let start = Instant::now();
        assert_eq!(refusals.count(Class::Memory, start), Some(0));
        for _ in 0..5 {
            assert_eq!(refusals.count(Class::Memory, start + PAUSE / 2), None);
        }
        assert_eq!(refusals.count(Class::Tls, start), Some(0), "another class has its own line");
        assert_eq!(refusals.count(Class::Memory, start + PAUSE), Some(5));
        assert!(refusals.totals().contains(&("memory", 7)) && refusals.totals().contains(&("tls", 1)));
    }
}
