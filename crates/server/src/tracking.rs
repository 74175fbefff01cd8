//! Tracking (CLIENT TRACKING): clients keep values in a cache of their own, and the server tells them which keys have changed.
//!
//! In the default mode, a client gets one message when a key changes that it has read since. With BCAST it gets a message for each change
//! of a key with one of its prefixes. [`Watches`](crate::watch::Watches) calls [`Tracking`] after each write, because all writes of commands
//! pass there, with the gate that I2 needs. Notifications choose their events before the commit, and FLUSHALL has none. Keys that expire
//! come from the same place as their notifications ([`crate::notifications::Expiry`]).
//!
//! As in Redis, a key is its name: a change of a key in one database also invalidates the key of this name in the others.
//!
//! Invariants:
//! * I1: while no client tracks, a write costs one relaxed load.
//! * I2: a client gets a message for each change that a read of it has not seen. The session remembers the key before the read. The change
//!   takes the lock of the key's shard after its commit. So if it does not find the key there, its commit is before the read. A client that
//!   begins to track takes the gate of the watches for writing. So a write that found no client to tell has committed before the
//!   client's first read.
//! * I3: the client gets the invalidation behind the reply of the read: only the session writes to the client, and it writes what waits in
//!   [`Pushes`] between commands.
//! * I4: memory is bounded. Beyond [`Tracking::set_keys_max`] keys, or `KEY_BYTES` for each of them, the table forgets keys and
//!   tells their clients so. If more than `PUSH_BYTES_MAX` wait for a client, the server tells it to forget all keys instead.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use bytes::Bytes;
use rustc_hash::FxBuildHasher;

use crate::clients::Client;
use crate::resp::{Protocol, Reply};
use crate::shared::lock;

/// Number of parts of the table, each with a lock of its own.
const SHARDS: usize = 16;
/// Maximum number of remembered keys, unless it is changed.
const KEYS_MAX: usize = 1_000_000;
/// Bytes of memory for each of the keys that are possible: names and clients.
const KEY_BYTES: usize = 256;
/// Memory of a key or of one of its clients besides its name, about.
const ENTRY_BYTES: usize = 64;
const CLIENT_BYTES: usize = 8;
/// Maximum bytes of invalidations that wait for a client.
const PUSH_BYTES_MAX: usize = 1 << 20;
/// The channel of invalidations for a client of RESP2.
const CHANNEL: &str = "__redis__:invalidate";

thread_local! {
    /// The client whose command this thread runs, if the client gets no messages for its own changes; otherwise 0.
    static QUIET: Cell<u64> = const { Cell::new(0) };
}

/// The options of CLIENT TRACKING ON.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The client that gets the invalidations, with its number.
    pub redirect: Option<(u64, Weak<Client>)>,
    /// BCAST.
    pub is_broadcast: bool,
    /// OPTIN.
    pub opts_in: bool,
    /// OPTOUT.
    pub opts_out: bool,
    /// NOLOOP.
    pub is_quiet: bool,
}

/// A client that tracks.
#[derive(Debug)]
struct Tracked {
    id: u64,
    client: Weak<Client>,
    is_on: AtomicBool,
    options: Mutex<Options>,
    /// True if the client that should get the invalidations has gone.
    is_broken: AtomicBool,
}

impl Tracked {
    /// Tells the client to forget a key, or all keys, unless it has changed them itself with NOLOOP.
    fn tell(&self, key: Option<&Bytes>) {
        if !self.is_on.load(Ordering::Acquire) || QUIET.get() == self.id {
            return;
        }
        let redirect = lock(&self.options).redirect.clone();
        let Some((id, target)) = redirect else {
            if let Some(client) = self.client.upgrade() {
                client.pushes.add(&client, |waiting| waiting.own.add(key));
            }
            return;
        };
        match target.upgrade().filter(|target| target.ending().is_none()) {
            Some(target) => target.pushes.add(&target, |waiting| waiting.redirected.add(key)),
            None => {
                self.is_broken.store(true, Ordering::Relaxed);
                if let Some(client) = self.client.upgrade() {
                    client.pushes.add(&client, |waiting| {
                        waiting.broken = Some(id);
                        0
                    });
                }
            }
        }
    }
}

/// Invalidations that wait.
#[derive(Debug, Default)]
struct Batch {
    /// True if all keys are to be forgotten, before `keys`.
    all: bool,
    keys: Vec<Bytes>,
}

impl Batch {
    /// Returns the bytes that it takes.
    fn add(&mut self, key: Option<&Bytes>) -> usize {
        match key {
            Some(key) if self.keys.last() == Some(key) => {}
            Some(key) => {
                self.keys.push(key.clone());
                return key.len() + ENTRY_BYTES;
            }
            None => *self = Self { all: true, keys: Vec::new() },
        }
        0
    }

    fn write(self, output: &mut Vec<u8>, protocol: Protocol) {
        if self.all {
            begin(output, protocol).null_array();
        }
        if !self.keys.is_empty() {
            let mut reply = begin(output, protocol);
            reply.array(self.keys.len());
            self.keys.iter().for_each(|key| reply.any_bulk(key));
        }
    }
}

/// Writes an invalidation up to its keys.
fn begin(output: &mut Vec<u8>, protocol: Protocol) -> Reply<'_> {
    let mut reply = Reply::new(output, protocol, usize::MAX);
    let words: &[&str] = if protocol == Protocol::Resp3 { &["invalidate"] } else { &["message", CHANNEL] };
    reply.push(words.len() + 1);
    words.iter().for_each(|word| reply.text(word));
    reply
}

#[derive(Debug, Default)]
struct Waiting {
    own: Batch,
    redirected: Batch,
    /// The number of a client that should get the invalidations, and has gone.
    broken: Option<u64>,
    bytes: usize,
}

/// The invalidations that wait for a client.
#[derive(Debug, Default)]
pub struct Pushes {
    has_any: AtomicBool,
    waiting: Mutex<Waiting>,
}

impl Pushes {
    fn add(&self, client: &Client, add: impl FnOnce(&mut Waiting) -> usize) {
        let mut waiting = lock(&self.waiting);
        waiting.bytes += add(&mut waiting);
        if waiting.bytes > PUSH_BYTES_MAX {
            waiting.bytes = 0;
            let Waiting { own, redirected, .. } = &mut *waiting;
            for batch in [own, redirected].into_iter().filter(|batch| batch.all || !batch.keys.is_empty()) {
                batch.add(None);
            }
        }
        self.has_any.store(true, Ordering::Release);
        drop(waiting);
        client.wake();
    }

    /// True if invalidations wait.
    #[must_use]
    pub fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Returns when invalidations wait. The task must also wait for [`Client::ended`], whose bell rings for both.
    pub async fn arrived(&self) {
        std::future::poll_fn(|_| match self.has_any() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        })
        .await;
    }

    /// Writes the invalidations that wait. A client of RESP2 gets only those of other clients, and only if it is subscribed to a channel:
    /// it could not tell others from replies.
    pub fn write(&self, output: &mut Vec<u8>, protocol: Protocol, is_subscribed: bool) {
        if !self.has_any() {
            return;
        }
        let mut waiting = lock(&self.waiting);
        let Waiting { own, redirected, broken, .. } = std::mem::take(&mut *waiting);
        self.has_any.store(false, Ordering::Release);
        drop(waiting);
        if protocol == Protocol::Resp3 {
            own.write(output, protocol);
        }
        if protocol == Protocol::Resp3 || is_subscribed {
            redirected.write(output, protocol);
        }
        if let Some(id) = broken.filter(|_| protocol == Protocol::Resp3) {
            let mut reply = Reply::new(output, protocol, usize::MAX);
            reply.push(2);
            reply.text("tracking-redir-broken");
            reply.count(id);
        }
    }
}

/// The keys that clients have read, and these clients.
#[derive(Debug, Default)]
struct Shard(BTreeMap<Bytes, Vec<Arc<Tracked>>>);

/// The clients that track, and the keys that they have read.
#[derive(Debug)]
pub struct Tracking {
    /// Number of clients.
    count: AtomicUsize,
    clients: Mutex<Vec<Arc<Tracked>>>,
    shards: [Mutex<Shard>; SHARDS],
    /// The prefixes of BCAST.
    prefixes: RwLock<BTreeMap<Bytes, Vec<Arc<Tracked>>>>,
    keys: AtomicUsize,
    bytes: AtomicUsize,
    keys_max: AtomicUsize,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            clients: Mutex::default(),
            shards: Default::default(),
            prefixes: RwLock::default(),
            keys: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(KEYS_MAX),
        }
    }
}

impl Tracking {
    /// True if a client tracks. A write calls it after its commit, with the gate of the watches held (I2).
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Numbers of clients that track, of remembered keys, and of prefixes.
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner).len();
        [self.count.load(Ordering::Relaxed), self.keys.load(Ordering::Relaxed), prefixes]
    }

    /// Maximum number of remembered keys; 0 for no limit.
    #[must_use]
    pub fn keys_max(&self) -> usize {
        self.keys_max.load(Ordering::Relaxed)
    }

    /// Sets [`Tracking::keys_max`]. If there are more keys, the next ones that are remembered push them out.
    pub fn set_keys_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Ordering::Relaxed);
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        // The remainder is less than the number of shards.
        &self.shards[(FxBuildHasher.hash_one(key) >> 32) as usize % SHARDS]
    }

    /// Remembers that a client is about to read a key.
    fn remember(&self, tracked: &Arc<Tracked>, key: &[u8]) {
        let mut shard = lock(self.shard(key));
        let clients = match shard.0.get_mut(key) {
            Some(clients) => clients,
            None => {
                self.keys.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(key.len() + ENTRY_BYTES, Ordering::Relaxed);
                shard.0.entry(Bytes::copy_from_slice(key)).or_default()
            }
        };
        if !clients.iter().any(|client| Arc::ptr_eq(client, tracked)) {
            self.bytes.fetch_sub(clients.len() * CLIENT_BYTES, Ordering::Relaxed);
            clients.retain(|client| client.is_on.load(Ordering::Relaxed));
            clients.push(Arc::clone(tracked));
            self.bytes.fetch_add(clients.len() * CLIENT_BYTES, Ordering::Relaxed);
        }
        // Two, so that a lower limit is reached some time.
        for _ in 0..2 {
            let keys_max = self.keys_max();
            let is_full = self.keys.load(Ordering::Relaxed) > keys_max
                || self.bytes.load(Ordering::Relaxed) > keys_max.saturating_mul(KEY_BYTES);
            if keys_max == 0 || !is_full {
                break;
            }
            let behind = shard.0.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
            let other = behind.or_else(|| shard.0.first_key_value()).map(|(other, _)| other.clone());
            // The key itself must stay until it is read (I2).
            let Some(other) = other.filter(|other| other != key) else { break };
            self.forget(&mut shard, &other);
        }
    }

    /// Removes a key, and tells its clients.
    fn forget(&self, shard: &mut Shard, key: &[u8]) {
        let Some((key, clients)) = shard.0.remove_entry(key) else { return };
        self.uncount(&key, &clients);
        clients.iter().for_each(|client| client.tell(Some(&key)));
    }

    fn uncount(&self, key: &Bytes, clients: &[Arc<Tracked>]) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
        let bytes = key.len() + ENTRY_BYTES + clients.len() * CLIENT_BYTES;
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A key has changed.
    pub fn changed(&self, key: &[u8]) {
        self.forget(&mut lock(self.shard(key)), key);
        let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner);
        let matching = prefixes.iter().filter(|(prefix, _)| key.starts_with(prefix));
        let mut name = None;
        for client in matching.flat_map(|(_, clients)| clients) {
            client.tell(Some(name.get_or_insert_with(|| Bytes::copy_from_slice(key))));
        }
    }

    /// All keys of some database have changed.
    pub fn flushed(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            std::mem::take(&mut shard.0).iter().for_each(|(key, clients)| self.uncount(key, clients));
        }
        lock(&self.clients).iter().for_each(|client| client.tell(None));
    }
}

/// The tracking of a connection. Dropping it ends the tracking.
#[derive(Debug)]
pub struct Tracker {
    all: Arc<Tracking>,
    tracked: Arc<Tracked>,
    prefixes: BTreeSet<Bytes>,
    /// CLIENT CACHING was called for the next command.
    pub is_chosen: bool,
}

impl Tracker {
    /// Begins to track. The caller then passes the gate of the watches (I2).
    #[must_use]
    pub fn new(all: &Arc<Tracking>, client: &Arc<Client>) -> Self {
        let tracked = Arc::new(Tracked {
            id: client.id,
            client: Arc::downgrade(client),
            is_on: AtomicBool::new(true),
            options: Mutex::default(),
            is_broken: AtomicBool::new(false),
        });
        all.count.fetch_add(1, Ordering::SeqCst);
        lock(&all.clients).push(Arc::clone(&tracked));
        Self { all: Arc::clone(all), tracked, prefixes: BTreeSet::new(), is_chosen: false }
    }

    /// Sets the options, and adds prefixes.
    pub fn set(&mut self, options: Options, prefixes: &[Bytes]) {
        *lock(&self.tracked.options) = options;
        self.tracked.is_broken.store(false, Ordering::Relaxed);
        let mut all = self.all.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        for prefix in prefixes {
            let prefix = Bytes::copy_from_slice(prefix);
            if self.prefixes.insert(prefix.clone()) {
                all.entry(prefix).or_default().push(Arc::clone(&self.tracked));
            }
        }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> Options {
        lock(&self.tracked.options).clone()
    }

    /// The prefixes, sorted.
    #[must_use]
    pub fn prefixes(&self) -> &BTreeSet<Bytes> {
        &self.prefixes
    }

    /// True if the client that should get the invalidations has gone.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.tracked.is_broken.load(Ordering::Relaxed)
    }

    /// Notes that a command is about to read keys.
    pub fn note<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let Options { is_broadcast, opts_in, opts_out, .. } = *lock(&self.tracked.options);
        let is_wanted = if opts_out { !self.is_chosen } else { !opts_in || self.is_chosen };
        if !is_broadcast && is_wanted {
            keys.for_each(|key| self.all.remember(&self.tracked, key));
        }
    }

    /// The client runs a command on this thread, until the result is dropped.
    #[must_use]
    pub fn begin(&self) -> Running {
        QUIET.set(if lock(&self.tracked.options).is_quiet { self.tracked.id } else { 0 });
        Running
    }
}

/// A command of a client that tracks runs on this thread.
#[derive(Debug)]
pub struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        QUIET.set(0);
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.tracked.is_on.store(false, Ordering::Release);
        lock(&self.all.clients).retain(|other| !Arc::ptr_eq(other, &self.tracked));
        let mut all = self.all.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        for prefix in &self.prefixes {
            if let Some(clients) = all.get_mut(prefix) {
                clients.retain(|other| !Arc::ptr_eq(other, &self.tracked));
                if clients.is_empty() {
                    all.remove(prefix);
                }
            }
        }
        drop(all);
        self.all.count.fetch_sub(1, Ordering::SeqCst);
    }
}
