//! What all connections share: the store, the registry of clients, counters, SCAN's cursors, the signal to stop.
//!
//! Invariants
//! * I1: locks are leaf locks, held for a few instructions, never across a store call or an await.
//! * I2: a client is in the registry exactly while its connection lives ([`ClientEntry`] removes it).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bristlecone::{Durability, Store, WriteOptions};
use tokio::sync::watch;

use crate::Config;
use crate::command::save::Saves;
use crate::cursor::CursorTable;

/// Takes a lock whose data is consistent after every instruction, so that a panic elsewhere does not matter.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counters since the server started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused because there were too many.
    pub rejected: AtomicU64,
    /// Commands run.
    pub commands: AtomicU64,
    /// Commands answered with an error.
    pub errors: AtomicU64,
    /// Keys looked up and found.
    pub hits: AtomicU64,
    /// Keys looked up and not found.
    pub misses: AtomicU64,
    /// Bytes read from clients.
    pub input_bytes: AtomicU64,
    /// Bytes written to clients.
    pub output_bytes: AtomicU64,
}

impl Counters {
    /// Sets all to zero.
    pub fn reset(&self) {
        let all = [&self.connections, &self.rejected, &self.commands, &self.errors];
        let more = [&self.hits, &self.misses, &self.input_bytes, &self.output_bytes];
        for counter in all.into_iter().chain(more) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// What a client told about itself.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub library: String,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: String,
    /// Its last command.
    pub command: &'static str,
    /// 2 or 3.
    pub protocol: u8,
}

/// A connection in the registry.
#[derive(Debug)]
pub struct Client {
    /// Its number, unique in this process.
    pub id: u64,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// When it came.
    pub since: Instant,
    /// What it told.
    pub names: Mutex<ClientNames>,
}

/// State shared by the connections of a server.
pub struct Shared {
    /// The store, written to without sync: sessions commit before they answer.
    pub store: Store,
    /// The settings.
    pub config: Config,
    /// Where the server listens.
    pub address: SocketAddr,
    /// When it started.
    pub started: Instant,
    /// Counters.
    pub counters: Counters,
    /// SCAN's cursors.
    pub cursors: Mutex<CursorTable>,
    /// Backups.
    pub saves: Arc<Saves>,
    /// True if a commit takes milliseconds.
    pub slow_writes: bool,
    /// True if it pays to bring in what writes of a pipeline will touch. Writes that wait for a flush or a sync take longer with it:
    /// 9 % over a journal, 12 % where lines are flushed.
    pub prefetches_writes: bool,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_client: AtomicU64,
    held_bytes: AtomicUsize,
    stop: watch::Sender<bool>,
}

impl Shared {
    /// State of a server that is about to start.
    #[must_use]
    pub fn new(store: Store, config: Config, address: SocketAddr) -> Self {
        let stats = store.stats();
        let slow_writes = config.slow_writes.unwrap_or(stats.journal.is_some());
        Self {
            prefetches_writes: stats.durability == Durability::Process.to_string(),
            store: store.with(WriteOptions { sync: false }),
            address,
            started: Instant::now(),
            counters: Counters::default(),
            saves: Arc::default(),
            cursors: Mutex::new(CursorTable::new(config.cursors_max)),
            slow_writes,
            clients: Mutex::default(),
            next_client: AtomicU64::new(1),
            held_bytes: AtomicUsize::new(0),
            stop: watch::Sender::new(false),
            config,
        }
    }

    /// Tells all connections to end their running command and close.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// A receiver that turns true when the server stops.
    #[must_use]
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        lock(&self.clients).len()
    }

    /// The connections, oldest first.
    #[must_use]
    pub fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.clients).values().cloned().collect()
    }

    /// Bytes held by unfinished commands and unread answers.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that may still be held.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.config.held_bytes_max.saturating_sub(self.held_bytes())
    }

    /// Enters a connection; `None` if there are too many.
    pub fn register(self: &Arc<Self>, peer: SocketAddr) -> Option<ClientEntry> {
        let mut clients = lock(&self.clients);
        if clients.len() >= self.config.connections_max {
            self.counters.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        let names = Mutex::new(ClientNames { protocol: 2, ..ClientNames::default() });
        let client = Arc::new(Client { id, peer, since: Instant::now(), names });
        clients.insert(id, Arc::clone(&client));
        Some(ClientEntry { shared: Arc::clone(self), client, held_bytes: 0 })
    }
}

/// A connection's place in the registry and its share of the held bytes; both end with it.
pub struct ClientEntry {
    shared: Arc<Shared>,
    /// The entry.
    pub client: Arc<Client>,
    held_bytes: usize,
}

impl ClientEntry {
    /// The state of the server.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Tells how many bytes this connection holds now; false if all together are too many.
    pub fn hold(&mut self, bytes: usize) -> bool {
        if bytes == self.held_bytes {
            return true;
        }
        if bytes > self.held_bytes {
            self.shared.held_bytes.fetch_add(bytes - self.held_bytes, Ordering::Relaxed);
        } else {
            self.shared.held_bytes.fetch_sub(self.held_bytes - bytes, Ordering::Relaxed);
        }
        let grown = bytes > self.held_bytes;
        self.held_bytes = bytes;
        !grown || self.shared.held_bytes() <= self.shared.config.held_bytes_max
    }
}

impl Drop for ClientEntry {
    fn drop(&mut self) {
        self.hold(0);
        lock(&self.shared.clients).remove(&self.client.id);
    }
}

/// Time since 1970; zero if the clock stands before it.
#[must_use]
pub fn unix_time() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
