//! The server: RESP, the protocol of Redis clients, in front of a [`Store`]. It can also speak the protocol of memcached
//! ([`memcached`]). Monitoring uses HTTP ([`metrics`]).
//!
//! A request takes this path: [`listener`] accepts the connection and starts a [`session`]. The session reads all bytes that have arrived.
//! [`resp::RequestParser`] splits them into commands. [`command`] runs each command, and [`resp::Reply`] encodes its reply. The session
//! writes all replies of a pipeline together.
//!
//! Invariants:
//! * I1: a reply is written only after everything that its command wrote or read is durable. The store's
//!   [`Durability`](bristlecone::Durability) defines what durable means. The session waits for this, not the command: no thread is blocked
//!   while a connection waits for a sync.
//! * I2: the commands of a connection run one after another, in their order of arrival.
//! * I3: memory is bounded: by [`resp::RequestLimits`] for a command, by [`Config::reply_bytes_max`] for a reply, and by
//!   [`Config::held_bytes_max`] for all connections together. Beyond `held_bytes_max`, the server disconnects connections that hold much
//!   memory ([`clients`]). The server does not read from a client that does not read its replies.
//! * I4: no input from the network causes a panic.
//! * I5: a server whose user `default` needs no password answers only clients on its own machine, unless [`Config::unprotected`] is set.
//! * I6: a command runs only if the user of its connection may run it ([`users`]), also in a transaction.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let store = bristlecone::Store::open("data", bristlecone::Options::default())?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7379").await?;
//! let ctrl_c = async { /* wait for a signal */ };
//! server::serve(store.clone(), listener, server::Config::default(), ctrl_c).await?;
//! store.close()?;
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

pub mod access;
pub mod clients;
pub mod command;
pub mod cursor;
pub mod eviction;
pub mod geohash;
pub mod glob;
pub mod handover;
pub mod listener;
pub mod memcached;
pub mod metrics;
pub mod notifications;
pub mod observe;
pub mod refusals;
pub mod refused_writes;
pub mod resp;
pub mod scripts;
pub mod session;
pub mod settings;
pub mod shared;
pub mod stream;
pub mod structures;
pub mod subscriptions;
pub mod tls;
pub mod tracking;
pub mod users;
pub mod waiting;
pub mod watch;

use std::path::PathBuf;
use std::time::Duration;

#[doc(no_inline)]
pub use bristlecone::Store;
pub use listener::{Listeners, run, serve};

/// Settings of a server. `Config::default()` is suitable for production.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bounds on one command.
    pub limits: resp::RequestLimits,
    /// Maximum number of connections. One more gets an error and is closed.
    pub clients_max: usize,
    /// The largest value that CONFIG SET may give to `clients_max`.
    pub clients_limit: usize,
    /// Idle connections are closed after this time in seconds. 0: never.
    pub timeout_seconds: u64,
    /// Maximum bytes of the reply to one command.
    pub reply_bytes_max: usize,
    /// Maximum bytes of unfinished commands and unread replies of all connections. Beyond it, large holders are disconnected.
    pub held_bytes_max: usize,
    /// Maximum bytes of memory that the store uses ([`eviction`]). 0: no limit.
    pub memory_bytes_max: u64,
    /// Selects the keys that the server evicts at this limit.
    pub memory_policy: eviction::Policy,
    /// Number of keys that are compared for each one that is evicted, 1 to 64.
    pub memory_samples: usize,
    /// The protocol of memcached, if [`Listeners`] has a socket for it.
    pub memcached: memcached::Settings,
    /// Time between two searches for elements of structures that have gone without a hint ([`structures::garbage`]).
    pub garbage_pass: Duration,
    /// Maximum number of cursors of SCAN.
    pub cursors_max: usize,
    /// The password of the user `default`. `None`: it needs none.
    pub password: Option<Password>,
    /// The users of the ACL file. One of them may replace `default`.
    pub users: Vec<users::User>,
    /// The ACL file, for ACL LOAD and ACL SAVE.
    pub acl_file: Option<PathBuf>,
    /// True to answer clients on other machines although the user `default` needs no password (I5).
    pub unprotected: bool,
    /// Directory for the backups of SAVE and BGSAVE. `None` refuses these commands.
    pub backup_dir: Option<PathBuf>,
    /// Commands that take at least this time in microseconds are in the slow log. Negative: none are.
    pub slowlog_slower_us: i64,
    /// Maximum number of entries of the slow log.
    pub slowlog_entries_max: usize,
    /// A script that runs longer, in milliseconds, is stopped. 0: never.
    pub script_ms: u64,
    /// The classes of keyspace notifications.
    pub notified: notifications::Classes,
    /// Other names of commands.
    pub renames: settings::Renames,
    /// Options of the program and their values, for CONFIG GET.
    pub options: Vec<(String, String)>,
    /// Changes the level of log lines. `None`: CONFIG SET cannot change it.
    pub log: Option<settings::LogControl>,
    /// Returns free memory of the program's allocator to the system. By default it does nothing, because the server does not know the
    /// allocator.
    pub release_memory: fn(),
    /// Maximum time of a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time that a stopping server gives connections to finish their running command.
    pub stop_grace: Duration,
}

/// A password. It is not printed.
#[derive(Clone)]
pub struct Password(Vec<u8>);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

impl Password {
    /// A password of these bytes. `None` if there are none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(bytes.to_vec()))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: resp::RequestLimits::default(),
            clients_max: 10_000,
            clients_limit: usize::MAX,
            timeout_seconds: 0,
            reply_bytes_max: 512 << 20,
            held_bytes_max: 2 << 30,
            memory_bytes_max: 0,
            memory_policy: eviction::Policy::default(),
            memory_samples: eviction::SAMPLES,
            memcached: memcached::Settings::default(),
            garbage_pass: Duration::from_mins(1),
            cursors_max: 4096,
            password: None,
            users: Vec::new(),
            acl_file: None,
            unprotected: false,
            backup_dir: None,
            slowlog_slower_us: 10_000,
            slowlog_entries_max: 128,
            script_ms: 5000,
            notified: notifications::Classes::NONE,
            renames: settings::Renames::default(),
            options: Vec::new(),
            log: None,
            release_memory: || {},
            handshake_timeout: Duration::from_secs(10),
            stop_grace: Duration::from_secs(10),
        }
    }
}

/// The reason why a server could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listening socket cannot be used.
    #[error("the listening socket cannot be used: {0}")]
    Listener(#[source] std::io::Error),
    /// The protocol of memcached cannot be served.
    #[error(transparent)]
    Memcached(#[from] memcached::Error),
}

/// Result of [`serve`].
pub type Result<T> = std::result::Result<T, Error>;
