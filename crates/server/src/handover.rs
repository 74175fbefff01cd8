//! Handing over: a server ends without closing its sockets, and another process continues with them.
//!
//! The server stops accepting. Each connection runs the commands that have arrived completely, writes their replies, and is parked: its
//! stream stays open, and [`ConnectionState`] has the data that the next server needs to continue the connection. The client of a parked
//! connection notices nothing. Bytes that have not been read stay in the socket, and new connections wait in the queue of the listening
//! sockets.
//!
//! Invariants:
//! * H1: a connection is parked only between two commands: all its replies are written, and everything that its commands wrote or read is
//!   durable.
//! * H2: connections whose state cannot be moved are closed after their last reply. These are connections over TLS, in MULTI, with watched
//!   keys, in MONITOR, with subscriptions, with replies switched off by CLIENT REPLY, with an incomplete command, or waiting for the end of
//!   a pause.
//! * H3: when [`crate::listener::run`] returns, no thread of the server uses the store, with one exception: if a thread still uses the
//!   store after a time limit, the server logs a warning and returns. The server waits for a running backup before it stops.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Config;
use crate::listener::Listeners;
use crate::notifications::Classes;
use crate::shared::{Shared, lock};
use crate::stream::{Peer, Stream};

/// A client that has sent a part of a command gets this time to send the rest.
pub const REST_OF_COMMAND: Duration = Duration::from_millis(200);
/// Time between two checks whether the last thread has left the store.
const LEFT_EACH: Duration = Duration::from_millis(1);
/// Maximum time to wait until the last thread has left the store.
const LEFT_MAX: Duration = Duration::from_secs(10);

/// How a server stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stopping {
    /// It runs.
    #[default]
    No,
    /// It closes all connections.
    Close,
    /// It hands them over.
    HandOver,
}

/// The state of a connection between two commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionState {
    /// Name, from CLIENT SETNAME.
    pub name: String,
    /// Library, from CLIENT SETINFO LIB-NAME.
    pub library: String,
    /// Version of the library, from CLIENT SETINFO LIB-VER.
    pub library_version: String,
    /// Name of the user. `None` before AUTH.
    pub user: Option<String>,
    /// Version of the protocol, 2 or 3.
    pub protocol: u8,
    /// Number of the database.
    pub database: usize,
    /// True after CLIENT NO-EVICT ON.
    pub no_evict: bool,
    /// True for a connection of memcached's protocol, which uses only `user`.
    #[serde(default)]
    pub is_memcached: bool,
}

/// A connection between two commands.
#[derive(Debug)]
pub struct Connection {
    /// TCP or a Unix socket.
    pub stream: Stream,
    /// The state that the next server needs.
    pub state: ConnectionState,
}

impl Connection {
    /// The addresses of the client and of the server. `None` if the client has left, or if the stream cannot be handed over.
    pub(crate) fn addresses(&self, unix_path: &str) -> Option<(Peer, String)> {
        match &self.stream {
            Stream::Tcp(stream) => {
                let local = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
                Some((Peer::Tcp(stream.peer_addr().ok()?), local))
            }
            Stream::Unix(_) => Some((Peer::Unix(unix_path.to_owned()), unix_path.to_owned())),
            Stream::Tls(_) => None,
        }
    }
}

/// What a server leaves to the next one.
#[derive(Debug)]
pub struct HandedOver {
    /// The listening sockets.
    pub listeners: Listeners,
    /// The connections.
    pub connections: Vec<Connection>,
    /// The settings, with the changes of CONFIG SET and ACL.
    pub config: Config,
}

impl Shared {
    /// Keeps a connection for the next server.
    pub(crate) fn park(&self, connection: Connection) {
        lock(&self.parked).push(connection);
    }

    /// Takes the parked connections.
    pub(crate) fn parked(&self) -> Vec<Connection> {
        std::mem::take(&mut *lock(&self.parked))
    }

    /// The settings of this moment.
    pub(crate) fn config_now(&self) -> Config {
        use std::sync::atomic::Ordering::Relaxed;
        let settings = &self.settings;
        let mut config = self.config.clone();
        config.clients_max = settings.clients_max.load(Relaxed);
        config.timeout_seconds = settings.timeout_seconds.load(Relaxed);
        config.slowlog_slower_us = settings.slowlog_slower_us.load(Relaxed);
        config.slowlog_entries_max = settings.slowlog_entries_max.load(Relaxed);
        config.script_ms = settings.script_ms.load(Relaxed);
        config.notified = Classes::selected(self);
        config.memory_bytes_max = self.eviction.limit_bytes();
        config.memory_policy = self.eviction.policy();
        config.memory_samples = self.eviction.samples();
        config.users = self.users.all().iter().map(|user| (**user).clone()).collect();
        if let (Some(log), Some(level)) = (&mut config.log, *lock(&settings.log_level)) {
            log.level = level;
        }
        config
    }
}

/// Waits until no thread uses the server any more, for a bounded time (H3).
pub(crate) async fn left(shared: Arc<Shared>) {
    let last = Arc::downgrade(&shared);
    drop(shared);
    let left = async {
        while last.strong_count() > 0 {
            tokio::time::sleep(LEFT_EACH).await;
        }
    };
    if tokio::time::timeout(LEFT_MAX, left).await.is_err() {
        tracing::warn!("a thread of the server still uses the store");
    }
}
