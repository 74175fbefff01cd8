//! State that all connections share: the store, the registry of clients, counters, cursors of SCAN, the stop signal.
//!
//! Invariants:
//! * I1: locks are leaf locks. They are held for a few instructions, never across a store call or an await. The exception is
//!   [`crate::watch`], whose lock is held across a store call.
//! * I2: a client is in the registry exactly while its connection exists ([`ClientEntry`] removes it).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bristlecone::{Durability, Store, WriteOptions};
use tokio::sync::watch;

use crate::Config;
use crate::command::save::Saves;
use crate::cursor::CursorTable;
use crate::watch::Watches;

/// Takes a lock. Its data is consistent after every instruction, so a poisoned lock is usable.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counters since the start of the server.
#[derive(Debug, Default)]
pub struct Counters {
    /// Accepted connections.
    pub connections: AtomicU64,
    /// Connections that were refused because there were too many.
    pub rejected: AtomicU64,
    /// Commands that ran.
    pub commands: AtomicU64,
    /// Commands with an error as reply.
    pub errors: AtomicU64,
    /// Lookups that found their key.
    pub hits: AtomicU64,
    /// Lookups that did not find their key.
    pub misses: AtomicU64,
    /// Bytes read from clients.
    pub input_bytes: AtomicU64,
    /// Bytes written to clients.
    pub output_bytes: AtomicU64,
}

impl Counters {
    /// Sets all counters to zero.
    pub fn reset(&self) {
        let all = [&self.connections, &self.rejected, &self.commands, &self.errors];
        let more = [&self.hits, &self.misses, &self.input_bytes, &self.output_bytes];
        for counter in all.into_iter().chain(more) {
            counter.store(0, Ordering::Relaxed);
        }
    }
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
    /// Name of the last command.
    pub command: &'static str,
    /// Version of the protocol, 2 or 3.
    pub protocol: u8,
}

/// A connection in the registry.
#[derive(Debug)]
pub struct Client {
    /// Number, unique in this process.
    pub id: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Time of connecting.
    pub since: Instant,
    /// Data that the client has sent about itself.
    pub names: Mutex<ClientNames>,
}

/// Number of databases of the protocol.
pub const DATABASES: usize = 16;

/// The databases. Number 0 is the store's default table. The others are tables with their numbers as names, made when a client selects them.
pub struct Databases {
    store: Store,
    others: [OnceLock<Store>; DATABASES - 1],
}

impl Databases {
    fn new(store: Store) -> Self {
        Self { store, others: Default::default() }
    }

    /// A database.
    ///
    /// # Errors
    /// `NoTables` for another one than 0 of a store without tables. Those of making a table.
    pub fn get(&self, db: usize) -> bristlecone::Result<&Store> {
        let Some(other) = db.checked_sub(1).map(|other| &self.others[other]) else { return Ok(&self.store) };
        if let Some(table) = other.get() {
            return Ok(table);
        }
        let table = self.store.table(&db.to_string())?;
        Ok(other.get_or_init(|| table))
    }

    /// A database that exists. Makes none.
    #[must_use]
    pub fn known(&self, db: usize) -> Option<Store> {
        if db == 0 {
            return Some(self.store.clone());
        }
        self.store.find_table(&db.to_string()).ok().flatten()
    }

    /// The number of the database that is this table.
    #[must_use]
    pub fn number_of(table: &Store) -> Option<usize> {
        match table.table_name() {
            "" => Some(0),
            name => name.parse().ok().filter(|db| (1..DATABASES).contains(db)),
        }
    }
}

/// State shared by the connections of a server.
pub struct Shared {
    /// The store. As a handle of keys it is database 0. Its writes do not wait for a sync; a session waits for their ticket before it replies.
    pub store: Store,
    /// The databases.
    pub databases: Databases,
    /// Settings.
    pub config: Config,
    /// Address of the listening socket.
    pub address: SocketAddr,
    /// Time of the server's start.
    pub started: Instant,
    /// Counters.
    pub counters: Counters,
    /// Cursors of SCAN.
    pub cursors: Mutex<CursorTable>,
    /// Watched keys.
    pub watches: Arc<Watches>,
    /// State of backups.
    pub saves: Arc<Saves>,
    /// True if prefetching for the writes of a pipeline pays. It slows down writes that wait for a flush or a sync: by 9 % over a journal,
    /// by 12 % where lines are flushed.
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
        Self {
            prefetches_writes: stats.durability == Durability::Process.to_string(),
            databases: Databases::new(store.with(WriteOptions { sync: false })),
            store: store.with(WriteOptions { sync: false }),
            address,
            started: Instant::now(),
            counters: Counters::default(),
            watches: Arc::default(),
            saves: Arc::default(),
            cursors: Mutex::new(CursorTable::new(config.cursors_max)),
            clients: Mutex::default(),
            next_client: AtomicU64::new(1),
            held_bytes: AtomicUsize::new(0),
            stop: watch::Sender::new(false),
            config,
        }
    }

    /// Tells all connections to finish their running command and to close.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// A receiver that becomes true when the server stops.
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

    /// Bytes of unfinished commands and unread replies.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that connections may still take.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.config.held_bytes_max.saturating_sub(self.held_bytes())
    }

    /// Adds a connection to the registry. `None` if there are too many.
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

/// The entry of a connection in the registry, and its share of the held bytes. Dropping it removes both.
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

    /// Sets the number of bytes that this connection holds. False if all connections exceed the bound.
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

/// Time since 1970. Zero if the clock is before 1970.
#[must_use]
pub fn unix_time() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
