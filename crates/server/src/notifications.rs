//! Keyspace notifications: messages about changes of keys, on the channels of Redis.
//!
//! `__keyspace@0__:key` gets the names of the events of a key of database 0, `__keyevent@0__:set` the keys with the event `set`. The setting
//! `notify-keyspace-events` selects which of the two exist, and the classes of events.
//!
//! Invariants:
//! * N1: while no class is selected, a command loads one word.
//! * N2: an event is published after its change was committed. The events of a transaction are published after its commit, in the order of
//!   its commands, together with its messages of PUBLISH.
//! * N3: an attempt that met a conflict publishes nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bristlecone::Store;
use bytes::Bytes;

use crate::shared::{MEMCACHED, Shared};
use crate::subscriptions::Kind;

/// Classes of events, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(u16);

impl Classes {
    /// No class.
    pub const NONE: Self = Self(0);
    /// Channels with the names of keys.
    pub const KEYSPACE: Self = Self(1);
    /// Channels with the names of events.
    pub const KEYEVENT: Self = Self(1 << 1);
    /// Commands on keys of any type.
    pub const GENERIC: Self = Self(1 << 2);
    /// Commands on strings.
    pub const STRING: Self = Self(1 << 3);
    /// Commands on lists.
    pub const LIST: Self = Self(1 << 4);
    /// Commands on sets.
    pub const SET: Self = Self(1 << 5);
    /// Commands on hashes.
    pub const HASH: Self = Self(1 << 6);
    /// Commands on sorted sets.
    pub const SORTED_SET: Self = Self(1 << 7);
    /// A key was removed because its deadline has passed.
    pub const EXPIRED: Self = Self(1 << 8);
    /// A key was evicted.
    pub const EVICTED: Self = Self(1 << 9);
    /// Commands on streams.
    pub const STREAM: Self = Self(1 << 10);
    /// A command has read a key that is absent.
    pub const MISS: Self = Self(1 << 11);
    /// Events of modules. There are none.
    pub const MODULE: Self = Self(1 << 12);
    /// A key was made.
    pub const NEW: Self = Self(1 << 13);

    /// The letters that `A` stands for, in the order in which Redis shows them.
    const IN_ALL: [(char, Self); 10] = [
        ('g', Self::GENERIC),
        ('$', Self::STRING),
        ('l', Self::LIST),
        ('s', Self::SET),
        ('h', Self::HASH),
        ('z', Self::SORTED_SET),
        ('x', Self::EXPIRED),
        ('e', Self::EVICTED),
        ('t', Self::STREAM),
        ('d', Self::MODULE),
    ];
    const OTHERS: [(char, Self); 4] =
        [('n', Self::NEW), ('K', Self::KEYSPACE), ('E', Self::KEYEVENT), ('m', Self::MISS)];

    fn all() -> Self {
        Self::IN_ALL.iter().fold(Self::NONE, |all, (_, class)| all.and(*class))
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The classes of these letters. `None` if a letter is none.
    #[must_use]
    pub fn parse(letters: &str) -> Option<Self> {
        letters.chars().try_fold(Self::NONE, |classes, letter| {
            let mut known = Self::IN_ALL.iter().chain(&Self::OTHERS);
            let found = known.find(|(known, _)| *known == letter).map(|(_, class)| *class);
            Some(classes.and(if letter == 'A' { Self::all() } else { found? }))
        })
    }

    /// The classes that are selected.
    #[must_use]
    pub fn selected(shared: &Shared) -> Self {
        Self(shared.settings.notified.load(Ordering::Relaxed))
    }

    /// As a number, for an atomic.
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }
}

/// The letters, as Redis shows them.
impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_all = self.has(Self::all());
        if has_all {
            f.write_str("A")?;
        }
        let in_all = Self::IN_ALL.iter().filter(|_| !has_all);
        // As in Redis 7.0, `A` hides the letter `n`.
        let others = Self::OTHERS.iter().filter(|(letter, _)| !(has_all && *letter == 'n'));
        let mut shown = in_all.chain(others).filter(|(_, class)| self.has(*class));
        shown.try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

/// An event: its class and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(Classes, &'static str);

impl Event {
    /// A key was removed by a command.
    pub const DEL: Self = Self::generic("del");
    /// A string was stored.
    pub const SET: Self = Self::string("set");
    /// A key got a deadline.
    pub const EXPIRE: Self = Self::generic("expire");
    /// A key lost its deadline.
    pub const PERSIST: Self = Self::generic("persist");
    /// A bit of a string was set.
    pub const SETBIT: Self = Self::string("setbit");
    /// A HyperLogLog has changed.
    pub const PFADD: Self = Self::string("pfadd");
    /// A hash has changed.
    pub const HSET: Self = Self::hash("hset");
    /// A key was removed because its deadline has passed.
    pub const EXPIRED: Self = Self(Classes::EXPIRED, "expired");
    /// A key was evicted.
    pub const EVICTED: Self = Self(Classes::EVICTED, "evicted");
    /// A consumer of a group was made.
    pub const NEW_CONSUMER: Self = Self::stream("xgroup-createconsumer");
    /// A key was made.
    pub const NEW: Self = Self(Classes::NEW, "new");
    /// A command has read a key that is absent.
    pub const MISS: Self = Self(Classes::MISS, "keymiss");

    /// An event of a command on keys of any type.
    #[must_use]
    pub const fn generic(name: &'static str) -> Self {
        Self(Classes::GENERIC, name)
    }

    /// An event of a command on strings.
    #[must_use]
    pub const fn string(name: &'static str) -> Self {
        Self(Classes::STRING, name)
    }

    /// An event of a command on lists.
    #[must_use]
    pub const fn list(name: &'static str) -> Self {
        Self(Classes::LIST, name)
    }

    /// An event of a command on sets.
    #[must_use]
    pub const fn set(name: &'static str) -> Self {
        Self(Classes::SET, name)
    }

    /// An event of a command on hashes.
    #[must_use]
    pub const fn hash(name: &'static str) -> Self {
        Self(Classes::HASH, name)
    }

    /// An event of a command on sorted sets.
    #[must_use]
    pub const fn sorted_set(name: &'static str) -> Self {
        Self(Classes::SORTED_SET, name)
    }

    /// An event of a command on streams.
    #[must_use]
    pub const fn stream(name: &'static str) -> Self {
        Self(Classes::STREAM, name)
    }
}

/// The messages of a command or of a transaction that wait for its commit.
#[derive(Debug, Default)]
pub struct Events {
    classes: Classes,
    messages: Vec<(Kind, Bytes, Bytes)>,
}

impl Events {
    /// No messages yet. Events of the classes that are selected now will be noted.
    #[must_use]
    pub fn new(shared: &Shared) -> Self {
        Self { classes: Classes::selected(shared), messages: Vec::new() }
    }

    /// True if events of keys that were made are noted. They cost a lookup.
    #[must_use]
    pub fn has_new(&self) -> bool {
        self.classes.has(Classes::NEW)
    }

    /// True if reads of absent keys are noted.
    #[must_use]
    pub fn has_misses(&self) -> bool {
        self.classes.has(Classes::MISS)
    }

    /// From now on, reads of absent keys are not noted: a command that waits reads its keys again and again.
    pub fn ignore_misses(&mut self) {
        self.classes.0 &= !Classes::MISS.0;
    }

    /// Notes an event of a key.
    pub fn note(&mut self, event: Event, db: usize, key: &[u8]) {
        let Event(class, name) = event;
        if !self.classes.has(class) || db == MEMCACHED {
            return;
        }
        let name = Bytes::from_static(name.as_bytes());
        if self.classes.has(Classes::KEYSPACE) {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            self.messages.push((Kind::Channel, channel.into(), name.clone()));
        }
        if self.classes.has(Classes::KEYEVENT) {
            let channel = [format!("__keyevent@{db}__:").as_bytes(), &name].concat();
            self.messages.push((Kind::Channel, channel.into(), Bytes::copy_from_slice(key)));
        }
    }

    /// Notes a message of PUBLISH.
    pub fn note_message(&mut self, kind: Kind, channel: Bytes, payload: Bytes) {
        self.messages.push((kind, channel, payload));
    }

    /// Number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// True if there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Forgets the messages behind the first `len`: their attempt has changed nothing (N3).
    pub fn truncate(&mut self, len: usize) {
        self.messages.truncate(len);
    }

    /// Publishes the messages (N2).
    pub fn send(&mut self, shared: &Shared) {
        for (kind, channel, payload) in self.messages.drain(..) {
            shared.publish(kind, &channel, &payload);
        }
    }
}

impl Shared {
    /// Publishes an event that belongs to no command.
    pub fn notify(&self, event: Event, db: usize, key: &[u8]) {
        let mut events = Events::new(self);
        events.note(event, db, key);
        events.send(self);
    }
}

/// Publishes the events of keys that expire, until it is dropped. Tells the clients that track these keys, or wait for their groups.
#[derive(Debug)]
pub struct Expiry {
    store: Store,
}

impl Expiry {
    /// Starts to publish. A store without tables has no deadlines.
    #[must_use]
    pub fn new(shared: &Arc<Shared>) -> Self {
        let weak = Arc::downgrade(shared);
        let tell = move |table: &str, key: &[u8]| {
            let Some(shared) = weak.upgrade() else { return };
            if let Some(db) = shared.databases.number_named(table) {
                if shared.watches.tracking.is_used() {
                    shared.watches.tracking.changed(key);
                }
                shared.waiters.wake_readers(db, key);
                shared.notify(Event::EXPIRED, db, key);
            }
        };
        if shared.store.has_tables() {
            // The store has tables, so this does not fail.
            let _ = shared.store.tell_expired(tell);
        }
        Self { store: shared.store.clone() }
    }
}

impl Drop for Expiry {
    /// Waits for the events that are being published. So the thread of the store that removes keys never drops the last handle of the store.
    fn drop(&mut self) {
        let _ = self.store.tell_expired(|_, _| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_shown_as_redis_shows_them() {
        let shown = |letters: &str| Classes::parse(letters).map(|classes| classes.to_string());
        let cases = [
            ("", ""),
            ("KEA", "AKE"),
            ("AKEnm", "AKEm"),
            ("Kg$lshzxetd", "AK"),
            ("Ex", "xE"),
            ("nKg", "gnK"),
        ];
        for (letters, expected) in cases {
            assert_eq!(shown(letters).as_deref(), Some(expected), "{letters}");
        }
        assert_eq!([shown("KEq"), shown("k"), shown("é")], [const { None }; 3]);
    }
}
