//! The registry of connections: their addresses, their latest activity, the memory that each holds, and the request to end one.
//!
//! Invariants:
//! * I1: a client is in the registry exactly while its connection exists ([`ClientEntry`] removes it).
//! * I2: all connections together hold at most [`Config::held_bytes_max`](crate::Config). A connection that holds at most [`SMALL_BYTES`]
//!   is not counted. Above the maximum, the server ends connections until the others fit. Each time it considers those that hold at least
//!   half as much as the largest. It ends the one that was idle for the most seconds. If several were idle equally long, it prefers one
//!   whose commands wait until the client reads earlier replies. A connection with CLIENT NO-EVICT is considered only if there is no other.
//!   The replies of connections that are not counted always have space. The maximum can be exceeded for a moment, by one reply for each
//!   thread that runs commands, and by the buffers of ended connections until their tasks drop them.
//! * I3: the limit of a reply ([`Shared::reply_bytes_max`]) is known before its command runs. The server does not end a connection because
//!   of a reply within this limit, unless another connection takes the same space at that moment. So a command that removes the values that
//!   it returns can check the limit first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::command::Command;
use crate::refusals::Class;
use crate::shared::{Shared, lock};
use crate::stream::Peer;
use crate::tracking::{Options, Pushes};

/// A connection that holds at most this many bytes is not counted. A reply of this size is always possible.
pub const SMALL_BYTES: usize = 64 << 10;

/// Free memory is returned to the system when the number of connections, or of the bytes that they hold, has fallen to half of its peak and
/// by at least this much.
const LEFT_CLIENTS: usize = 500;
const LEFT_BYTES: usize = 64 << 20;

/// The largest values since memory was returned to the system.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    clients: usize,
    held_bytes: usize,
}

/// Data that a client has sent about itself.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// Name, from CLIENT SETNAME.
    pub name: String,
    /// Library, from CLIENT SETINFO LIB-NAME.
    pub library: String,
    /// Version of the library, from CLIENT SETINFO LIB-VER.
    pub library_version: String,
    /// Name of the user. `None` before AUTH.
    pub user: Option<String>,
    /// Name of the last command.
    pub command: &'static str,
    /// Version of the protocol, 2 or 3.
    pub protocol: u8,
    /// Number of the database.
    pub database: usize,
    /// How the client tracks keys, if it does.
    pub tracking: Option<Options>,
}

/// Why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ending {
    /// CLIENT KILL, or the user of the connection was removed.
    Killed = 1,
    /// The client was idle for too long.
    Idle,
    /// The connection held the most memory when there was too little.
    Memory,
}

/// A connection in the registry.
#[derive(Debug)]
pub struct Client {
    /// Number, unique in this process.
    pub id: u64,
    /// Address of the client.
    pub peer: Peer,
    /// Address of the server, as the client reached it.
    pub local: String,
    /// Time of connecting.
    pub since: Instant,
    /// Data that the client has sent about itself.
    pub names: Mutex<ClientNames>,
    /// True if the server ends the client for its memory only when it can end no other client (CLIENT NO-EVICT).
    pub no_evict: AtomicBool,
    /// True if the client receives the lines of MONITOR. Such a client is never ended for being idle.
    pub is_monitor: AtomicBool,
    /// Number of subscriptions of each kind ([`crate::subscriptions::Kind`]). A subscribed client is never ended for being idle.
    pub subscriptions: [AtomicUsize; 3],
    /// Milliseconds from `since` to the latest activity.
    active_ms: AtomicU64,
    /// True while commands run.
    is_running: AtomicBool,
    held_bytes: AtomicUsize,
    /// True if commands wait until the client reads the replies before them.
    has_waiting: AtomicBool,
    ending: AtomicU8,
    /// Wakes the session, so that it sees `ending` and `pushes`.
    bell: Notify,
    /// The invalidations that wait for the client.
    pub pushes: Pushes,
    /// [`WAITS`] while a command waits for an element; the number of an [`Unblocked`] from CLIENT UNBLOCK to the end of the wait.
    wait: AtomicU8,
    /// Wakes the session, so that it sees `wait`.
    unblock_bell: Notify,
}

/// A command waits for an element.
const WAITS: u8 = 1;

/// How CLIENT UNBLOCK ends a command that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unblocked {
    /// As if its time were over.
    Timeout = 2,
    /// With an error.
    Error,
}

impl Client {
    fn new(id: u64, peer: Peer, local: String) -> Self {
        Self {
            id,
            peer,
            local,
            since: Instant::now(),
            names: Mutex::new(ClientNames { protocol: 2, ..ClientNames::default() }),
            no_evict: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            subscriptions: Default::default(),
            active_ms: AtomicU64::new(0),
            is_running: AtomicBool::new(false),
            held_bytes: AtomicUsize::new(0),
            has_waiting: AtomicBool::new(false),
            ending: AtomicU8::new(0),
            bell: Notify::new(),
            pushes: Pushes::default(),
            wait: AtomicU8::new(0),
            unblock_bell: Notify::new(),
        }
    }

    /// True if the client is subscribed to anything.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Restarts the idle time.
    pub fn set_active(&self) {
        self.set_active_at(Instant::now());
    }

    /// Restarts the idle time at `now`.
    pub fn set_active_at(&self, now: Instant) {
        let ms = u64::try_from(now.duration_since(self.since).as_millis()).unwrap_or(u64::MAX);
        self.active_ms.store(ms, Ordering::Relaxed);
    }

    /// Sets whether commands are running. While they run, the client is not idle.
    pub fn set_running(&self, is_running: bool) {
        self.is_running.store(is_running, Ordering::Relaxed);
    }

    /// Time since the latest activity.
    #[must_use]
    pub fn idle(&self) -> Duration {
        if self.is_running.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        self.since.elapsed().saturating_sub(Duration::from_millis(self.active_ms.load(Ordering::Relaxed)))
    }

    /// Bytes of unfinished commands and unread replies; 0 if there are at most [`SMALL_BYTES`].
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Ends the connection. The first reason counts.
    pub fn end(&self, why: Ending) {
        let _ = self.ending.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
        self.bell.notify_one();
    }

    /// Wakes the session, so that it sees the invalidations that wait.
    pub fn wake(&self) {
        self.bell.notify_one();
    }

    /// The reason why the connection ends, if it does.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        match self.ending.load(Ordering::Acquire) {
            1 => Some(Ending::Killed),
            2 => Some(Ending::Idle),
            3 => Some(Ending::Memory),
            _ => None,
        }
    }

    /// Waits until the connection is ended. Only its session calls this.
    pub async fn ended(&self) -> Ending {
        loop {
            if let Some(why) = self.ending() {
                return why;
            }
            self.bell.notified().await;
        }
    }

    /// A command begins to wait for an element.
    pub fn begin_wait(&self) {
        self.wait.store(WAITS, Ordering::Release);
    }

    /// Ends the wait. Returns how CLIENT UNBLOCK has ended it, if it has.
    pub fn end_wait(&self) -> Option<Unblocked> {
        match self.wait.swap(0, Ordering::AcqRel) {
            2 => Some(Unblocked::Timeout),
            3 => Some(Unblocked::Error),
            _ => None,
        }
    }

    /// Ends the wait of a command (CLIENT UNBLOCK). False if none waits.
    pub fn unblock(&self, how: Unblocked) -> bool {
        let ended = self.wait.compare_exchange(WAITS, how as u8, Ordering::AcqRel, Ordering::Acquire);
        self.unblock_bell.notify_one();
        ended.is_ok()
    }

    /// Returns when CLIENT UNBLOCK has ended the wait. Only its session calls this.
    pub async fn unblocked(&self) {
        while self.wait.load(Ordering::Acquire) <= WAITS {
            self.unblock_bell.notified().await;
        }
    }
}

/// A pause of the commands of all clients.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// The end of the pause.
    pub until: Instant,
    /// True if all commands wait. False if only commands that change keys wait.
    pub all: bool,
}

/// The registry.
#[derive(Debug)]
pub struct Clients {
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// The number of entries of `all`. It changes only under its lock.
    count: AtomicUsize,
    /// The connections that hold more than [`SMALL_BYTES`].
    holders: Mutex<BTreeMap<u64, Arc<Client>>>,
    next: AtomicU64,
    held_bytes: AtomicUsize,
    /// The latest pause. It stays here when its time is over.
    pause: watch::Sender<Option<Pause>>,
    /// False: there is certainly no pause.
    may_pause: AtomicBool,
    /// The largest number of held bytes since the latest [`Shared::has_memory_to_release`].
    held_recently: AtomicUsize,
    peaks: Mutex<Peaks>,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            count: AtomicUsize::new(0),
            holders: Mutex::default(),
            next: AtomicU64::new(1),
            held_bytes: AtomicUsize::new(0),
            pause: watch::Sender::new(None),
            may_pause: AtomicBool::new(false),
            held_recently: AtomicUsize::new(0),
            peaks: Mutex::default(),
        }
    }
}

impl Shared {
    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.clients.count.load(Ordering::Relaxed)
    }

    /// The connections, oldest first. A connection that was ended is not among them, even if its session has not finished yet: after the
    /// reply to CLIENT KILL, no client may find it.
    #[must_use]
    pub fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.clients.all).values().filter(|client| client.ending().is_none()).cloned().collect()
    }

    /// Finds the command with this name. The name is the new one if the configuration renames the command. Upper and lower case are equal.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        self.config.renames.find(name)
    }

    /// Bytes of unfinished commands and unread replies.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.clients.held_bytes.load(Ordering::Relaxed)
    }

    /// Maximum bytes of the next reply of a client (I3).
    #[must_use]
    pub fn reply_bytes_max(&self, client: &Client) -> usize {
        let wanted = self.config.reply_bytes_max;
        if self.config.held_bytes_max.saturating_sub(self.held_bytes()) >= wanted {
            return wanted;
        }
        let holders = lock(&self.clients.holders);
        let (mut live, mut largest) = (0_usize, 0);
        for holder in holders.values().filter(|holder| holder.ending().is_none()) {
            live += holder.held_bytes();
            if holder.id != client.id {
                largest = largest.max(holder.held_bytes());
            }
        }
        let free = self.config.held_bytes_max.saturating_sub(live);
        // A larger holder is ended in favour of this reply.
        let instead = largest.saturating_sub(client.held_bytes());
        wanted.min(free.max(instead).max(SMALL_BYTES))
    }

    /// Adds a connection to the registry. `None` if there are too many.
    pub fn register(self: &Arc<Self>, peer: Peer, local: String) -> Option<ClientEntry> {
        let mut all = lock(&self.clients.all);
        if all.len() >= self.settings.clients_max.load(Ordering::Relaxed) {
            drop(all);
            self.refuse(Class::TooMany, &peer, "the maximum number of clients is reached");
            return None;
        }
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let id = self.clients.next.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client::new(id, peer, local));
        all.insert(id, Arc::clone(&client));
        self.clients.count.store(all.len(), Ordering::Relaxed);
        Some(ClientEntry { shared: Arc::clone(self), client })
    }

    /// Starts a pause, or ends it.
    pub fn set_pause(&self, pause: Option<Pause>) {
        self.clients.may_pause.store(pause.is_some(), Ordering::Release);
        self.clients.pause.send_replace(pause);
    }

    /// True if a pause may be running. False if there is certainly none.
    #[must_use]
    pub fn may_pause(&self) -> bool {
        self.clients.may_pause.load(Ordering::Acquire)
    }

    /// The pause that a command has to wait for. `changes` returns whether the command changes keys.
    #[must_use]
    pub fn pause(&self, changes: impl FnOnce() -> bool) -> Option<Pause> {
        let pause = (*self.clients.pause.borrow())?;
        (pause.until > Instant::now() && (pause.all || changes())).then_some(pause)
    }

    /// Waits until the pause ends or is replaced.
    pub async fn pause_end(&self, pause: Pause) {
        let mut changes = self.clients.pause.subscribe();
        let is_same = |now: &Option<Pause>| now.is_some_and(|now| now.until == pause.until);
        let other = changes.wait_for(|now| !is_same(now));
        // When its time is over, the pause ends by itself.
        let _ = tokio::time::timeout_at(pause.until.into(), other).await;
    }

    /// True if so much memory was freed that the server should return it to the system. While the load continues, connections that come and
    /// go are no reason to return memory, because the server will use it again.
    pub fn has_memory_to_release(&self) -> bool {
        let held = self.held_bytes();
        let held = self.clients.held_recently.swap(held, Ordering::Relaxed).max(held);
        let clients = self.connections();
        let has_fallen = |now: usize, peak: usize, by: usize| now <= peak / 2 && peak - now >= by;
        let mut peaks = lock(&self.clients.peaks);
        let is_due = has_fallen(clients, peaks.clients, LEFT_CLIENTS)
            || has_fallen(held, peaks.held_bytes, LEFT_BYTES);
        let kept = if is_due { Peaks::default() } else { *peaks };
        *peaks = Peaks { clients: kept.clients.max(clients), held_bytes: kept.held_bytes.max(held) };
        is_due
    }

    /// Ends the connections that have been idle for longer than the setting allows.
    pub fn end_idle_clients(&self) {
        let seconds = self.settings.timeout_seconds.load(Ordering::Relaxed);
        if seconds == 0 {
            return;
        }
        let mut idle = Vec::new();
        for client in lock(&self.clients.all).values() {
            let receives = client.is_monitor.load(Ordering::Relaxed) || client.is_subscribed();
            let is_exempt = receives || client.ending().is_some();
            if client.idle().as_secs() >= seconds && !is_exempt {
                client.end(Ending::Idle);
                idle.push(Arc::clone(client));
            }
        }
        // Without the lock, because a log may be slow.
        for client in idle {
            tracing::debug!(client = client.id, peer = %client.peer, "closing an idle connection");
        }
    }

    /// Ends the largest holders until the others fit (I2).
    fn end_large_holders(&self) {
        let bound = self.config.held_bytes_max;
        if self.held_bytes() <= bound {
            return;
        }
        while let Some(chosen) = self.end_large_holder() {
            let text = "all clients together hold too many bytes, and this one is among the largest";
            self.refuse(Class::Memory, &chosen.peer, text);
        }
    }

    /// Ends one of the largest holders, if they do not fit.
    fn end_large_holder(&self) -> Option<Arc<Client>> {
        let holders = lock(&self.clients.holders);
        let live: Vec<_> = holders.values().filter(|holder| holder.ending().is_none()).collect();
        if live.iter().map(|holder| holder.held_bytes()).sum::<usize>() <= self.config.held_bytes_max {
            return None;
        }
        let protected = |holder: &Arc<Client>| holder.no_evict.load(Ordering::Relaxed);
        let any = live.iter().any(|holder| !protected(holder));
        let candidates = || live.iter().filter(|holder| !any || !protected(holder));
        let largest = candidates().map(|holder| holder.held_bytes()).max().unwrap_or_default();
        // Among clients of similar size, one that reads its replies is spared.
        let large = candidates().filter(|holder| holder.held_bytes() >= largest / 2);
        // Within a second the server cannot tell which client reads its replies: on a busy machine a client may pause. Then it prefers one
        // whose commands wait until the client reads earlier replies.
        let order = |holder: &&Arc<Client>| {
            let (idle, has_waiting) = (holder.idle(), holder.has_waiting.load(Ordering::Relaxed));
            (idle.as_secs(), has_waiting, idle.as_millis(), holder.held_bytes(), holder.id)
        };
        let chosen = large.max_by_key(|holder| order(holder))?;
        chosen.end(Ending::Memory);
        Some(Arc::clone(chosen))
    }
}

/// The entry of a connection in the registry, and its share of the held bytes. Dropping it removes both.
pub struct ClientEntry {
    shared: Arc<Shared>,
    /// The entry.
    pub client: Arc<Client>,
}

impl ClientEntry {
    /// The state of the server.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sets the number of bytes that this connection holds, and whether its commands wait until the client reads earlier replies. If all
    /// connections together exceed the bound, the server ends large ones (I2), possibly this one.
    pub fn hold(&mut self, bytes: usize, has_waiting: bool) {
        self.client.has_waiting.store(has_waiting, Ordering::Relaxed);
        let bytes = if bytes > SMALL_BYTES { bytes } else { 0 };
        let before = self.client.held_bytes();
        if bytes == before {
            return;
        }
        let clients = &self.shared.clients;
        if before == 0 || bytes == 0 {
            let mut holders = lock(&clients.holders);
            self.client.held_bytes.store(bytes, Ordering::Relaxed);
            match bytes {
                0 => holders.remove(&self.client.id),
                _ => holders.insert(self.client.id, Arc::clone(&self.client)),
            };
        } else {
            self.client.held_bytes.store(bytes, Ordering::Relaxed);
        }
        if bytes > before {
            let held = clients.held_bytes.fetch_add(bytes - before, Ordering::Relaxed) + bytes - before;
            clients.held_recently.fetch_max(held, Ordering::Relaxed);
            self.shared.end_large_holders();
        } else {
            clients.held_bytes.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for ClientEntry {
    fn drop(&mut self) {
        self.hold(0, false);
        let clients = &self.shared.clients;
        let mut all = lock(&clients.all);
        all.remove(&self.client.id);
        clients.count.store(all.len(), Ordering::Relaxed);
    }
}
