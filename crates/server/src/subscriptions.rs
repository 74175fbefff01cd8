//! Publish and subscribe: which connections receive the messages of a channel.
//!
//! A message goes to the connections that are subscribed when it is published. It is not stored: a client that is away misses it. Each
//! connection has a [`Mailbox`]. PUBLISH puts the message there, and the session of the connection writes it to the client.
//!
//! Invariants:
//! * P1: all connections receive the messages of all channels in the same order, because one lock covers the registry and the delivery to
//!   the mailboxes. Patterns are matched without this lock, because a match may take long.
//! * P2: the messages that wait are bounded, for each connection (32 MiB) and in total (the bound of the clients' memory). A message counts
//!   once for each connection. The server ends the connection of a client that reads too slowly; until then the client gets every message.
//! * P3: a registry entry exists exactly as long as its subscription: dropping a [`Subscriber`] removes all of its entries.
//! * P4: while no client is subscribed, PUBLISH costs one load.
//! * P5: names and messages are copies. A slice of the input would keep the whole buffer alive.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::clients::{Client, Ending};
use crate::command::off_the_worker;
use crate::glob;
use crate::refusals::Class;
use crate::resp::{Protocol, Reply};
use crate::shared::{Shared, lock};

/// Maximum bytes of messages that wait for one connection, as in Redis.
const MAILBOX_BYTES_MAX: usize = 32 << 20;
/// Memory of a waiting message or of a subscription besides its texts, about.
const OVERHEAD_BYTES: usize = 128;
/// Maximum bytes of the name of a channel, and of a pattern. It bounds the time of a match.
pub const NAME_BYTES_MAX: usize = 4096;
/// If the search for the patterns of a channel may take more steps, it does not run on a worker of the runtime.
const STEPS_INLINE_MAX: usize = 1 << 18;
/// Number of times that patterns are matched without the lock although other patterns come and go.
const TRIES: usize = 4;

/// What a client subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel, by its name.
    Channel,
    /// All channels whose names match a pattern ([`glob`]).
    Pattern,
    /// A shard channel. These names are apart from those of channels, and patterns do not apply to them.
    Shard,
}

/// Number of kinds.
const KINDS: usize = 3;

impl Kind {
    /// The word for a subscription, for its end, and for a message.
    #[must_use]
    pub fn words(self) -> [&'static str; 3] {
        match self {
            Self::Channel => ["subscribe", "unsubscribe", "message"],
            Self::Pattern => ["psubscribe", "punsubscribe", "pmessage"],
            Self::Shard => ["ssubscribe", "sunsubscribe", "smessage"],
        }
    }
}

/// A message on its way to a client.
#[derive(Clone, Debug)]
pub struct Message {
    kind: Kind,
    /// The pattern that matched; for the other kinds empty.
    pattern: Bytes,
    channel: Bytes,
    payload: Bytes,
}

impl Message {
    fn bytes(&self) -> usize {
        OVERHEAD_BYTES + self.pattern.len() + self.channel.len() + self.payload.len()
    }

    /// Writes the message.
    pub fn write(&self, output: &mut Vec<u8>, protocol: Protocol) {
        output.reserve_exact(self.bytes());
        let mut reply = Reply::new(output, protocol, usize::MAX);
        let with_pattern = self.kind == Kind::Pattern;
        reply.push(if with_pattern { 4 } else { 3 });
        reply.text(self.kind.words()[2]);
        if with_pattern {
            reply.any_bulk(&self.pattern);
        }
        reply.any_bulk(&self.channel);
        reply.any_bulk(&self.payload);
    }
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Message>,
    bytes: usize,
}

/// The messages that wait for a connection.
#[derive(Debug)]
pub struct Mailbox {
    client: Arc<Client>,
    waiting: Mutex<Waiting>,
    /// Rings when a message arrives.
    bell: Notify,
}

impl Mailbox {
    /// Adds a message. Returns the bytes that wait now.
    fn put(&self, message: Message) -> usize {
        let mut waiting = lock(&self.waiting);
        waiting.bytes += message.bytes();
        waiting.messages.push_back(message);
        let bytes = waiting.bytes;
        drop(waiting);
        self.bell.notify_one();
        bytes
    }

    fn bytes(&self) -> usize {
        lock(&self.waiting).bytes
    }
}

/// The mailboxes of the subscribers of a name, by the number of their client.
type Subscribers = BTreeMap<u64, Arc<Mailbox>>;

/// The names of each kind with their subscribers.
#[derive(Debug, Default)]
struct Registry {
    names: [BTreeMap<Bytes, Subscribers>; KINDS],
    /// The names of the kind `Pattern`. `None` after they have changed.
    patterns: Option<Arc<Vec<Bytes>>>,
}

impl Registry {
    fn patterns(&mut self) -> Arc<Vec<Bytes>> {
        let names = &self.names[Kind::Pattern as usize];
        Arc::clone(self.patterns.get_or_insert_with(|| Arc::new(names.keys().cloned().collect())))
    }

    fn of(&self, kind: Kind, name: &[u8]) -> impl Iterator<Item = &Arc<Mailbox>> {
        let subscribers = self.names[kind as usize].get(name).into_iter().flat_map(BTreeMap::values);
        subscribers.filter(|mailbox| mailbox.client.ending().is_none())
    }
}

/// All subscriptions of the server.
#[derive(Debug, Default)]
pub struct Subscriptions {
    registry: Mutex<Registry>,
    /// Number of registry entries.
    count: AtomicUsize,
    /// Bytes of all messages that wait.
    waiting_bytes: AtomicUsize,
}

impl Subscriptions {
    /// The names of this kind that have subscribers, sorted.
    #[must_use]
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Bytes> {
        let mut names: Vec<_> = lock(&self.registry).names[kind as usize].keys().cloned().collect();
        names.retain(|name| pattern.is_none_or(|pattern| glob::matches(pattern, name)));
        names
    }

    /// Number of names of this kind that have subscribers.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        lock(&self.registry).names[kind as usize].len()
    }

    /// Number of subscribers of a name.
    #[must_use]
    pub fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        lock(&self.registry).of(kind, name).count()
    }

    /// Number of clients that would receive a message of this channel. A client with several matching subscriptions counts for each of them.
    #[must_use]
    fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        let (registry, matching) = self.matching(kind, channel);
        matching.iter().map(|(kind, name)| registry.of(*kind, name).count()).sum()
    }

    /// Runs a search for the patterns of a channel, off the worker of the runtime if it may take long. Without subscriptions it costs one
    /// load.
    fn searching(&self, kind: Kind, channel: &[u8], search: impl FnOnce() -> usize) -> usize {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let patterns = if kind == Kind::Channel { lock(&self.registry).patterns() } else { Arc::default() };
        let steps = patterns.iter().map(Bytes::len).sum::<usize>().saturating_mul(channel.len());
        if steps > STEPS_INLINE_MAX { off_the_worker(search) } else { search() }
    }

    /// The registry, and the names whose subscribers receive a message of this channel.
    fn matching(&self, kind: Kind, channel: &[u8]) -> (MutexGuard<'_, Registry>, Vec<(Kind, Bytes)>) {
        let mut registry = lock(&self.registry);
        let mut tries = 0;
        loop {
            let patterns = if kind == Kind::Channel { registry.patterns() } else { Arc::default() };
            let matched = || patterns.iter().filter(|pattern| glob::matches(pattern, channel)).cloned();
            let is_last = tries == TRIES || patterns.is_empty();
            let mut found: Vec<_> = Vec::new();
            if is_last {
                found.extend(matched());
            } else {
                drop(registry);
                found.extend(matched());
                registry = lock(&self.registry);
                if !Arc::ptr_eq(&patterns, &registry.patterns()) {
                    tries += 1;
                    continue;
                }
            }
            let named = registry.names[kind as usize].get_key_value(channel).map(|(name, _)| name.clone());
            let named = named.map(|name| (kind, name));
            let found = found.into_iter().map(|pattern| (Kind::Pattern, pattern));
            return (registry, named.into_iter().chain(found).collect());
        }
    }

    /// Ends the connections with a subscription for which `may` is false. It gets the client, and what the client has subscribed to.
    pub fn end_forbidden(&self, may: impl Fn(&Client, Kind, &[u8]) -> bool) {
        let registry = lock(&self.registry);
        let mut all = Vec::new();
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for (name, subscribers) in &registry.names[kind as usize] {
                let clients = subscribers.values().map(|mailbox| Arc::clone(&mailbox.client));
                all.extend(clients.map(|client| (client, kind, name.clone())));
            }
        }
        drop(registry);
        all.retain(|(client, kind, name)| !may(client, *kind, name));
        all.iter().for_each(|(client, ..)| client.end(Ending::Killed));
    }
}

impl Shared {
    /// Sends a message to the subscribers of a channel (`kind` is not `Pattern`). Returns the number of receivers.
    pub fn publish(&self, kind: Kind, channel: &[u8], payload: &[u8]) -> usize {
        self.subscriptions.searching(kind, channel, || self.deliver(kind, channel, payload))
    }

    /// Number of clients that would receive a message of this channel. A client with several matching subscriptions counts for each of them.
    #[must_use]
    pub fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.subscriptions.searching(kind, channel, || self.subscriptions.receivers(kind, channel))
    }

    fn deliver(&self, kind: Kind, channel: &[u8], payload: &[u8]) -> usize {
        let all = &self.subscriptions;
        let (registry, matching) = all.matching(kind, channel);
        if matching.is_empty() {
            return 0;
        }
        let (channel, payload) = (Bytes::copy_from_slice(channel), Bytes::copy_from_slice(payload));
        let mut receivers = 0;
        let mut slow = Vec::new();
        for (kind, name) in &matching {
            let pattern = if *kind == Kind::Pattern { name.clone() } else { Bytes::new() };
            let message =
                Message { kind: *kind, pattern, channel: channel.clone(), payload: payload.clone() };
            for mailbox in registry.of(*kind, name) {
                receivers += 1;
                all.waiting_bytes.fetch_add(message.bytes(), Ordering::Relaxed);
                if mailbox.put(message.clone()) > MAILBOX_BYTES_MAX {
                    mailbox.client.end(Ending::Memory);
                    slow.push(Arc::clone(mailbox));
                }
            }
        }
        if all.waiting_bytes.load(Ordering::Relaxed) > self.config.held_bytes_max {
            slow.extend(end_slowest(&registry, self.config.held_bytes_max));
        }
        drop(registry);
        for mailbox in slow {
            self.refuse(Class::Memory, &mailbox.client.peer, "a subscriber reads its messages too slowly");
        }
        receivers
    }

    /// Ends the connections with a subscription that their user may no longer have.
    pub fn end_forbidden_subscribers(&self) {
        self.subscriptions.end_forbidden(|client, kind, name| {
            let user = lock(&client.names).user.clone();
            let user = user.and_then(|user| self.users.find(&user));
            user.is_some_and(|user| user.may_use_channel(name, kind == Kind::Pattern))
        });
    }
}

/// Ends the connection for which the most bytes wait (P2), if more than `bytes_max` bytes wait for all connections that are not ending.
fn end_slowest(registry: &Registry, bytes_max: usize) -> Option<Arc<Mailbox>> {
    let all = registry.names.iter().flat_map(BTreeMap::values).flatten();
    let live = all.filter(|(_, mailbox)| mailbox.client.ending().is_none());
    // A connection has an entry for each of its subscriptions.
    let live: BTreeMap<_, _> = live.map(|(id, mailbox)| (*id, (mailbox.bytes(), mailbox))).collect();
    if live.values().map(|(bytes, _)| bytes).sum::<usize>() <= bytes_max {
        return None;
    }
    let (_, slowest) = live.into_values().max_by_key(|(bytes, _)| *bytes)?;
    slowest.client.end(Ending::Memory);
    Some(Arc::clone(slowest))
}

/// The subscriptions of one connection. Dropping it ends them.
pub struct Subscriber {
    all: Arc<Subscriptions>,
    mailbox: Arc<Mailbox>,
    names: [BTreeSet<Bytes>; KINDS],
    names_bytes: usize,
}

impl Subscriber {
    /// A connection without subscriptions.
    #[must_use]
    pub fn new(all: Arc<Subscriptions>, client: &Arc<Client>) -> Self {
        let mailbox = Mailbox { client: Arc::clone(client), waiting: Mutex::default(), bell: Notify::new() };
        Self { all, mailbox: Arc::new(mailbox), names: Default::default(), names_bytes: 0 }
    }

    /// Subscribes to a name. Nothing happens if the connection already has this subscription.
    pub fn add(&mut self, kind: Kind, name: &[u8]) {
        if self.names[kind as usize].contains(name) {
            return;
        }
        let name = Bytes::copy_from_slice(name);
        self.names[kind as usize].insert(name.clone());
        self.names_bytes += OVERHEAD_BYTES + name.len();
        let all = &self.all;
        let mut registry = lock(&all.registry);
        let subscribers = registry.names[kind as usize].entry(name).or_default();
        let is_new = subscribers.is_empty();
        subscribers.insert(self.mailbox.client.id, Arc::clone(&self.mailbox));
        if is_new && kind == Kind::Pattern {
            registry.patterns = None;
        }
        all.count.fetch_add(1, Ordering::AcqRel);
        drop(registry);
        self.show_counts();
    }

    /// Ends a subscription, if there is one. No message for it arrives after that.
    pub fn remove(&mut self, kind: Kind, name: &[u8]) {
        if self.names[kind as usize].remove(name) {
            self.names_bytes -= OVERHEAD_BYTES + name.len();
            self.unregister(kind, name);
            self.show_counts();
        }
    }

    fn unregister(&self, kind: Kind, name: &[u8]) {
        let all = &self.all;
        let mut registry = lock(&all.registry);
        let names = &mut registry.names[kind as usize];
        if let Some(subscribers) = names.get_mut(name) {
            subscribers.remove(&self.mailbox.client.id);
            if subscribers.is_empty() {
                names.remove(name);
                if kind == Kind::Pattern {
                    registry.patterns = None;
                }
            }
            all.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Bytes of memory that the subscriptions take. The messages that wait have a bound of their own (P2).
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.names_bytes
    }

    fn show_counts(&self) {
        for (names, shown) in self.names.iter().zip(&self.mailbox.client.subscriptions) {
            shown.store(names.len(), Ordering::Relaxed);
        }
    }

    /// The names of this kind, sorted.
    #[must_use]
    pub fn names(&self, kind: Kind) -> Vec<Bytes> {
        self.names[kind as usize].iter().cloned().collect()
    }

    /// Number of subscriptions that a reply to this kind shows: channels and patterns together, shard channels apart.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        let of = |kind: Kind| self.names[kind as usize].len();
        match kind {
            Kind::Shard => of(Kind::Shard),
            Kind::Channel | Kind::Pattern => of(Kind::Channel) + of(Kind::Pattern),
        }
    }

    /// True if there is a subscription of any kind.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    /// Takes the messages that wait, until `output` has `bytes_max` bytes, and writes them there.
    pub fn write_waiting(&self, output: &mut Vec<u8>, protocol: Protocol, bytes_max: usize) {
        let mut taken = 0;
        while output.len() < bytes_max {
            let mut waiting = lock(&self.mailbox.waiting);
            let Some(message) = waiting.messages.pop_front() else {
                waiting.messages.shrink_to(0);
                break;
            };
            waiting.bytes -= message.bytes();
            drop(waiting);
            taken += message.bytes();
            message.write(output, protocol);
        }
        self.all.waiting_bytes.fetch_sub(taken, Ordering::Relaxed);
    }

    /// Waits until a message for the subscriber is there. Waits forever without one.
    pub async fn arrived(subscriber: Option<&Self>) {
        let Some(Self { mailbox, .. }) = subscriber else { return std::future::pending().await };
        while lock(&mailbox.waiting).messages.is_empty() {
            mailbox.bell.notified().await;
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in std::mem::take(&mut self.names[kind as usize]) {
                self.unregister(kind, &name);
            }
        }
        self.show_counts();
        // No publisher has the mailbox any more: they use it under the lock of the registry.
        let bytes = self.mailbox.bytes();
        self.all.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
