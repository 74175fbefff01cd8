//! State that all connections share: the store, the registry of clients, counters, cursors of SCAN, the stop signal.
//!
//! Invariant: all locks of the server are leaf locks, except those of [`crate::watch`], [`crate::eviction`] and
//! [`crate::scripts::functions`]. A leaf lock is held for a few instructions, never across a store call or an await. The locks of the
//! exceptions are held across store calls.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bristlecone::{Store, Transaction, WriteOptions};
use tokio::sync::watch;

use crate::Config;
use crate::clients::Clients;
use crate::command::save::Saves;
use crate::cursor::CursorTable;
use crate::eviction::Eviction;
use crate::handover::{Connection, Stopping};
use crate::memcached::{self, Memcached};
use crate::observe::Observers;
use crate::refusals::Refusals;
use crate::refused_writes::RefusedWrites;
use crate::scripts::Scripts;
use crate::scripts::functions::Functions;
use crate::settings::Settings;
use crate::structures::Structures;
use crate::subscriptions::Subscriptions;
use crate::users::Users;
use crate::waiting::Waiters;
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
    /// Connections that were refused: there were too many, the server has no password, or the TLS handshake failed.
    pub rejected: AtomicU64,
    /// Commands that ran.
    pub commands: AtomicU64,
    /// Commands with an error as reply.
    pub errors: AtomicU64,
    /// Lookups that found their key.
    pub hits: AtomicU64,
    /// Lookups that did not find their key.
    pub misses: AtomicU64,
    /// Keys that were evicted.
    pub evicted_keys: AtomicU64,
    /// Bytes read from clients.
    pub input_bytes: AtomicU64,
    /// Bytes written to clients.
    pub output_bytes: AtomicU64,
}

impl Counters {
    /// Sets all counters to zero.
    pub fn reset(&self) {
        let all = [&self.connections, &self.rejected, &self.commands, &self.errors];
        let more = [&self.hits, &self.misses, &self.evicted_keys, &self.input_bytes, &self.output_bytes];
        for counter in all.into_iter().chain(more) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Number of databases of the protocol.
pub const DATABASES: usize = 16;
/// The number of the table of [`crate::memcached`] among the databases. No client of Redis can select it.
pub const MEMCACHED: usize = DATABASES;
/// Number of databases, with that of memcached.
pub const TABLES: usize = DATABASES + 1;

/// The keys that a transaction writes, each with the number of its database.
pub type Written = Vec<(usize, Vec<u8>)>;

/// The databases. Number 0 is the store's default table. The others are tables with their numbers as names, made when a client first needs
/// them. Number [`MEMCACHED`] is the table of memcached, with the name in the settings.
pub struct Databases {
    store: Store,
    others: [OnceLock<Store>; TABLES - 1],
    /// The name of the table of memcached.
    memcached: String,
}

impl Databases {
    fn new(store: Store, memcached: String) -> Self {
        Self { store, others: Default::default(), memcached }
    }

    /// The name of the table of a database other than 0.
    fn name(&self, db: usize) -> std::borrow::Cow<'_, str> {
        if db == MEMCACHED { self.memcached.as_str().into() } else { db.to_string().into() }
    }

    /// A database.
    ///
    /// # Errors
    /// `NoTables` for a database other than 0 if the store has no tables; the errors of making a table.
    pub fn get(&self, db: usize) -> bristlecone::Result<&Store> {
        let Some(other) = db.checked_sub(1).map(|other| &self.others[other]) else { return Ok(&self.store) };
        if let Some(table) = other.get() {
            return Ok(table);
        }
        let table = self.store.table(&self.name(db))?;
        Ok(other.get_or_init(|| table))
    }

    /// The database, if it exists. Does not make it.
    #[must_use]
    pub fn known(&self, db: usize) -> Option<Store> {
        match db {
            0 => return Some(self.store.clone()),
            // A table of this name belongs to the program that embeds the server, unless memcached is served.
            MEMCACHED => return self.others[MEMCACHED - 1].get().cloned(),
            _ => {}
        }
        self.store.find_table(&self.name(db)).ok().flatten()
    }

    /// All databases that exist.
    ///
    /// # Errors
    /// Those of finding a table.
    pub fn all_known(&self) -> bristlecone::Result<Vec<Store>> {
        let mut all = vec![self.store.clone()];
        for db in 1..DATABASES {
            all.extend(self.store.find_table(&db.to_string())?);
        }
        Ok(all)
    }

    /// The number of the database that is this table.
    #[must_use]
    pub fn number_of(&self, table: &Store) -> Option<usize> {
        self.number_named(table.table_name())
    }

    /// The keys of databases that a transaction writes. Elements of structures are not among them; their keys are.
    #[must_use]
    pub fn written(&self, transaction: &Transaction<bristlecone::Bytes>) -> Written {
        let written = transaction.written();
        written.filter_map(|(table, key)| Some((self.number_of(table)?, key.clone()))).collect()
    }

    /// The number of the database whose table has this name.
    #[must_use]
    pub fn number_named(&self, table: &str) -> Option<usize> {
        match table {
            "" => Some(0),
            name if name == self.memcached && self.others[MEMCACHED - 1].get().is_some() => Some(MEMCACHED),
            name => name.parse().ok().filter(|db| (1..DATABASES).contains(db)),
        }
    }
}

/// State shared by the connections of a server.
pub struct Shared {
    /// The store. Its own keys are database 0. Its writes do not wait for a sync; a session waits for their ticket before it replies.
    pub store: Store,
    /// The databases.
    pub databases: Databases,
    /// Settings.
    pub config: Config,
    /// Address of the listening TCP socket, if there is one.
    pub address: Option<SocketAddr>,
    /// Time of the server's start.
    pub started: Instant,
    /// Counters.
    pub counters: Counters,
    /// Cursors of SCAN.
    pub cursors: Mutex<CursorTable>,
    /// Watched keys.
    pub watches: Arc<Watches>,
    /// Clients that wait for elements.
    pub waiters: Arc<Waiters>,
    /// State of backups.
    pub saves: Arc<Saves>,
    /// Settings that can change.
    pub settings: Settings,
    /// The limit of memory.
    pub eviction: Eviction,
    /// Values that have elements.
    pub structures: Structures,
    /// Scripts.
    pub scripts: Scripts,
    /// Libraries of functions.
    pub functions: Functions,
    /// Users and their permissions.
    pub users: Users,
    /// Log lines about refused clients.
    pub refusals: Refusals,
    /// Log lines about writes that the store refuses.
    pub refused_writes: RefusedWrites,
    /// The slow log and the lines of MONITOR.
    pub observers: Observers,
    /// The subscriptions to channels.
    pub subscriptions: Arc<Subscriptions>,
    /// The protocol of memcached. `None`: it is not served.
    pub memcached: Option<Memcached>,
    /// The registry of connections.
    pub(crate) clients: Clients,
    /// The connections that are handed over.
    pub(crate) parked: Mutex<Vec<Connection>>,
    stop: watch::Sender<Stopping>,
}

impl Shared {
    /// State of a server that is about to start.
    #[must_use]
    pub fn new(store: Store, config: Config, address: Option<SocketAddr>) -> Self {
        let users = Users::new(config.password.as_ref());
        users.replace(config.users.clone());
        let store = store.with(WriteOptions { sync: false });
        Self {
            databases: Databases::new(store.clone(), config.memcached.table.clone()),
            structures: Structures::new(&store, config.garbage_pass),
            store,
            address,
            started: Instant::now(),
            counters: Counters::default(),
            watches: Arc::default(),
            waiters: Arc::default(),
            saves: Arc::default(),
            cursors: Mutex::new(CursorTable::new(config.cursors_max)),
            settings: Settings::new(&config),
            eviction: Eviction::new(&config),
            scripts: Scripts::default(),
            functions: Functions::default(),
            users,
            observers: Observers::default(),
            subscriptions: Arc::default(),
            refusals: Refusals::default(),
            refused_writes: RefusedWrites::default(),
            memcached: None,
            clients: Clients::default(),
            parked: Mutex::default(),
            stop: watch::Sender::new(Stopping::No),
            config,
        }
    }

    /// Prepares to serve memcached.
    ///
    /// # Errors
    /// Those of [`Memcached::open`].
    pub fn open_memcached(&mut self) -> Result<(), memcached::Error> {
        let settings = self.config.memcached.clone();
        self.memcached = Some(Memcached::open(&self.databases, &self.store, settings)?);
        Ok(())
    }

    /// Tells all connections to finish their running command and to close.
    pub fn stop(&self) {
        self.stop.send_replace(Stopping::Close);
    }

    /// Tells all connections to finish the commands that have arrived, and to park. Has no effect if the server is closing already.
    pub fn hand_over(&self) {
        self.stop.send_if_modified(|stopping| {
            let is_running = *stopping == Stopping::No;
            if is_running {
                *stopping = Stopping::HandOver;
            }
            is_running
        });
    }

    /// True if the server stops or hands over.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow() != Stopping::No
    }

    /// A receiver that changes when the server stops.
    #[must_use]
    pub fn stopping(&self) -> watch::Receiver<Stopping> {
        self.stop.subscribe()
    }
}

/// Time since 1970. Zero if the clock is before 1970.
#[must_use]
pub fn unix_time() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
