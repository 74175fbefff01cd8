//! The listener: accepts connections until the server stops, then waits for their end.
//!
//! Invariants:
//! * I1: an error of one connection, or an error while the server accepts a connection, does not end the server.
//! * I2: when [`serve`] or [`run`] returns, no connection uses the store.
//! * I3: a TLS handshake runs in the task of its connection, counts as a client, and is bounded in time. So a slow handshake does not delay
//!   other connections.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bristlecone::Store;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::clients::ClientEntry;
use crate::handover::{Connection, HandedOver, Stopping, left};
use crate::notifications::Expiry;
use crate::refusals::Class;
use crate::shared::Shared;
use crate::stream::{Peer, Stream};
use crate::{Config, Error, Result, memcached, session, structures};

/// Pause after an error of accept, for example if no file descriptors are left. Without it the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Timeout for the error message to a refused client.
const REFUSAL: Duration = Duration::from_secs(1);
/// Time between two checks whether a backup has ended.
const BACKUP_EACH: Duration = Duration::from_millis(100);
/// Time between two calls of [`each_second`].
const SECOND: Duration = Duration::from_secs(1);

/// The listening sockets of a server. At least one should be set.
#[derive(Default)]
pub struct Listeners {
    /// TCP without encryption.
    pub tcp: Option<TcpListener>,
    /// TCP with TLS.
    pub tls: Option<(TcpListener, TlsAcceptor)>,
    /// A Unix socket.
    pub unix: Option<UnixListener>,
    /// TCP for clients of memcached.
    pub memcached: Option<TcpListener>,
    /// A Unix socket for clients of memcached.
    pub memcached_unix: Option<UnixListener>,
    /// HTTP for monitoring.
    pub metrics: Option<TcpListener>,
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tls, unix) = (self.tls.as_ref().map(|(listener, _)| listener), self.unix.is_some());
        f.debug_struct("Listeners")
            .field("tcp", &self.tcp)
            .field("tls", &tls)
            .field("unix", &unix)
            .finish_non_exhaustive()
    }
}

impl From<TcpListener> for Listeners {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp: Some(tcp), ..Self::default() }
    }
}

enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Tls(TcpStream, SocketAddr),
    Unix(UnixStream),
    Memcached(TcpStream, SocketAddr),
    MemcachedUnix(UnixStream),
}

/// How the server talks to the clients of a socket.
#[derive(Clone)]
enum Speech {
    /// The protocol of Redis.
    Redis,
    /// The protocol of Redis over TLS.
    Tls(TlsAcceptor),
    /// The protocol of memcached.
    Memcached,
}

impl Speech {
    /// The message for a client that is refused. A client over TLS could not read one before the handshake.
    fn refusal<'t>(&self, redis: &'t str, memcached: &'t str) -> Option<&'t str> {
        match self {
            Self::Redis => Some(redis),
            Self::Tls(_) => None,
            Self::Memcached => Some(memcached),
        }
    }
}

impl Listeners {
    /// The next connection of any socket.
    async fn accept(&self) -> io::Result<Accepted> {
        async fn from_tcp(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
            match listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        }
        async fn from_unix(listener: Option<&UnixListener>) -> io::Result<UnixStream> {
            match listener {
                Some(listener) => listener.accept().await.map(|(stream, _)| stream),
                None => std::future::pending().await,
            }
        }
        tokio::select! {
            accepted = from_tcp(self.tcp.as_ref()) => accepted.map(|(stream, peer)| Accepted::Tcp(stream, peer)),
            accepted = from_tcp(self.tls.as_ref().map(|(listener, _)| listener)) =>
                accepted.map(|(stream, peer)| Accepted::Tls(stream, peer)),
            accepted = from_unix(self.unix.as_ref()) => accepted.map(Accepted::Unix),
            accepted = from_tcp(self.memcached.as_ref()) =>
                accepted.map(|(stream, peer)| Accepted::Memcached(stream, peer)),
            accepted = from_unix(self.memcached_unix.as_ref()) => accepted.map(Accepted::MemcachedUnix),
        }
    }

    /// True if there is a socket for clients of memcached.
    fn has_memcached(&self) -> bool {
        self.memcached.is_some() || self.memcached_unix.is_some()
    }

    /// The path of the Unix socket.
    fn unix_path(&self) -> String {
        let address = self.unix.as_ref().and_then(|listener| listener.local_addr().ok());
        let path = address.and_then(|address| address.as_pathname().map(|path| path.display().to_string()));
        path.unwrap_or_default()
    }
}

/// Serves `store` on `listeners` until `shutdown` is ready or a client sends SHUTDOWN. Then it accepts no more connections, waits for
/// running commands, and returns. The caller closes the store.
///
/// # Errors
/// `Listener`: a listening socket has no address.
pub async fn serve(
    store: Store,
    listeners: impl Into<Listeners>,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let stop = async {
        shutdown.await;
        Stopping::Close
    };
    run(store, listeners.into(), config, Vec::new(), stop).await.map(|_| ())
}

/// Does the same as [`serve`], but begins with `connections` of another server. If `stop` returns `HandOver`, this function returns the
/// sockets, connections and settings of the server ([`crate::handover`]). The caller then closes the store. It passes the result to the
/// next server, or opens the store again and calls this function with the result. `None` if the server has closed its connections.
///
/// # Errors
/// `Listener`: a listening socket has no address.
pub async fn run(
    store: Store,
    mut listeners: Listeners,
    config: Config,
    connections: Vec<Connection>,
    stop: impl Future<Output = Stopping>,
) -> Result<Option<HandedOver>> {
    let tcp = listeners.tcp.as_ref().or(listeners.tls.as_ref().map(|(listener, _)| listener));
    let address = tcp.map(TcpListener::local_addr).transpose().map_err(Error::Listener)?;
    let grace = config.stop_grace;
    let mut shared = Shared::new(store, config, address);
    if listeners.has_memcached() {
        shared.open_memcached()?;
    }
    let shared = Arc::new(shared);
    if let Err(error) = shared.functions.open(&shared) {
        tracing::error!(
            "the libraries of functions cannot be read: {error}. Check the store with: bristlecone check"
        );
    }
    let expiry = Expiry::new(&shared);
    let mut sessions = JoinSet::new();
    let unix_path = listeners.unix_path();
    for connection in connections {
        adopt(&shared, &mut sessions, connection, &unix_path);
    }
    let monitoring = listeners.metrics.take();
    let is_handed_over = {
        let metrics = async {
            if let Some(listener) = &monitoring {
                crate::metrics::serve(Arc::clone(&shared), listener).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::pin!(metrics);
        let is_handed_over = tokio::select! {
            is_handed_over = accept_all(&shared, &mut sessions, &listeners, &unix_path, stop) => is_handed_over,
            () = &mut metrics => false,
        };
        if is_handed_over {
            shared.hand_over();
        } else {
            listeners = Listeners::default();
            shared.stop();
        }
        // Monitoring goes on until the last connection has ended.
        let ended = async {
            loop {
                tokio::select! {
                    ended = sessions.join_next() => if ended.is_none() { break },
                    () = &mut metrics => {}
                }
            }
        };
        if tokio::time::timeout(grace, ended).await.is_err() {
            // The remaining clients do not read their replies. Replies that they have read are true; the outcome of other commands is
            // unknown to them. A command in C code of Lua cannot be stopped: the server ends without it.
            if tokio::time::timeout(SECOND, sessions.shutdown()).await.is_err() {
                tracing::warn!(
                    sessions = sessions.len(),
                    "a command does not end, and the server stops without it: it has no reply, and nothing of it is stored"
                );
                sessions.detach_all();
            }
        }
        is_handed_over
    };
    // A client may have sent SHUTDOWN meanwhile.
    if !is_handed_over || *shared.stopping().borrow() == Stopping::Close {
        return Ok(None);
    }
    listeners.metrics = monitoring;
    drop(expiry);
    let handed = HandedOver { listeners, connections: shared.parked(), config: shared.config_now() };
    left(shared).await;
    Ok(Some(handed))
}

/// Accepts connections until the server stops. True if it hands over.
async fn accept_all(
    shared: &Arc<Shared>,
    sessions: &mut JoinSet<()>,
    listeners: &Listeners,
    unix_path: &str,
    stop: impl Future<Output = Stopping>,
) -> bool {
    let mut stopping = shared.stopping();
    let mut tick = tokio::time::interval(SECOND);
    // After a pause of the process, one tick is enough.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // A backup uses the store, so handing over waits for it. Then no other backup can begin.
    let stop = async {
        let stop = stop.await;
        while stop == Stopping::HandOver && !shared.saves.end() {
            tokio::time::sleep(BACKUP_EACH).await;
        }
        stop
    };
    tokio::pin!(stop);
    loop {
        tokio::select! {
            stop = &mut stop => return stop == Stopping::HandOver,
            _ = stopping.wait_for(|stop| *stop == Stopping::Close) => return false,
            // Removes ended sessions, so that the set stays small.
            Some(_) = sessions.join_next() => {}
            _ = tick.tick() => each_second(shared),
            accepted = listeners.accept() => match accepted {
                Ok(Accepted::Tcp(stream, peer)) => start(shared, sessions, stream, peer, Speech::Redis),
                Ok(Accepted::Tls(stream, peer)) => if let Some((_, acceptor)) = &listeners.tls {
                    start(shared, sessions, stream, peer, Speech::Tls(acceptor.clone()));
                },
                Ok(Accepted::Unix(stream)) => start_unix(shared, sessions, stream, unix_path, Speech::Redis),
                Ok(Accepted::Memcached(stream, peer)) => start(shared, sessions, stream, peer, Speech::Memcached),
                Ok(Accepted::MemcachedUnix(stream)) => start_unix(shared, sessions, stream, "", Speech::Memcached),
                Err(error) => {
                    shared.refuse(Class::Accept, &"?", &format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Starts the task of a connection that another server has handed over.
fn adopt(shared: &Arc<Shared>, sessions: &mut JoinSet<()>, connection: Connection, unix_path: &str) {
    let Some((peer, local)) = connection.addresses(unix_path) else { return };
    if let Some(entry) = shared.register(peer, local) {
        match connection.state.is_memcached && shared.memcached.is_some() {
            true => sessions.spawn(memcached::session::resume(connection, entry)),
            false if connection.state.is_memcached => return,
            false => sessions.spawn(session::resume(connection, entry)),
        };
    }
}

/// Closes idle connections, evicts keys after the limit of memory was lowered, removes elements of structures that have gone, and returns
/// free memory to the system.
fn each_second(shared: &Arc<Shared>) {
    shared.end_idle_clients();
    if shared.eviction.is_exceeded() {
        let shared = Arc::clone(shared);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = shared.eviction.evict_some(&shared) {
                tracing::warn!("cannot evict keys: {error}");
            }
        });
    }
    if shared.structures.garbage.is_due() {
        let shared = Arc::clone(shared);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = structures::garbage::collect(&shared) {
                tracing::warn!("cannot remove elements of structures that have gone: {error}");
            }
        });
    }
    if shared.has_memory_to_release() {
        // The call may block its thread for longer than a task should.
        tokio::task::spawn_blocking(shared.config.release_memory);
    }
}

/// Starts the task of a connection over TCP.
fn start(
    shared: &Arc<Shared>,
    sessions: &mut JoinSet<()>,
    stream: TcpStream,
    peer: SocketAddr,
    speech: Speech,
) {
    // Replies are written as a whole, so a delay has no use. If the call fails, replies only arrive later.
    let _ = stream.set_nodelay(true);
    let is_open = shared.users.initial().is_some();
    if !is_answered(&shared.config, is_open, peer.ip()) {
        shared.refuse(Class::Protected, &peer, "there is no password, and the client is on another machine");
        if let Some(text) = speech.refusal(PROTECTED, PROTECTED_MEMCACHED) {
            sessions.spawn(refuse(stream, text));
        }
        return;
    }
    let local = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
    let entry = shared.register(Peer::Tcp(peer), local);
    match (entry, speech) {
        (None, speech) => {
            if let Some(text) = speech.refusal(TOO_MANY, TOO_MANY_MEMCACHED) {
                sessions.spawn(refuse(stream, text));
            }
        }
        (Some(entry), Speech::Redis) => {
            sessions.spawn(session::run(Stream::Tcp(stream), entry));
        }
        (Some(entry), Speech::Tls(acceptor)) => {
            sessions.spawn(run_tls(stream, acceptor, entry));
        }
        (Some(entry), Speech::Memcached) => {
            sessions.spawn(memcached::session::run(Stream::Tcp(stream), entry));
        }
    }
}

/// Starts the task of a connection over a Unix socket.
fn start_unix(
    shared: &Arc<Shared>,
    sessions: &mut JoinSet<()>,
    stream: UnixStream,
    path: &str,
    speech: Speech,
) {
    let entry = shared.register(Peer::Unix(path.to_owned()), path.to_owned());
    match (entry, speech) {
        (None, speech) => {
            if let Some(text) = speech.refusal(TOO_MANY, TOO_MANY_MEMCACHED) {
                sessions.spawn(refuse(stream, text));
            }
        }
        (Some(entry), Speech::Memcached) => {
            sessions.spawn(memcached::session::run(Stream::Unix(stream), entry));
        }
        (Some(entry), Speech::Redis | Speech::Tls(_)) => {
            sessions.spawn(session::run(Stream::Unix(stream), entry));
        }
    }
}

/// Makes the TLS handshake and serves the connection.
async fn run_tls(stream: TcpStream, acceptor: TlsAcceptor, entry: ClientEntry) {
    let shared = Arc::clone(entry.shared());
    let mut stopping = shared.stopping();
    // The stream outlives the refusal: a client that sees the connection closed finds it counted.
    let mut accept = std::pin::pin!(acceptor.accept(stream).into_fallible());
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(shared.config.handshake_timeout, &mut accept) => handshake,
        _ = stopping.wait_for(|stop| *stop != Stopping::No) => return,
        _ = entry.client.ended() => return,
    };
    let peer = &entry.client.peer;
    match handshake {
        Ok(Ok(stream)) => session::run(Stream::Tls(Box::new(stream)), entry).await,
        Ok(Err((error, _stream))) => {
            shared.refuse(Class::Tls, peer, &format!("the TLS handshake failed: {error}"));
        }
        Err(_) => shared.refuse(Class::Tls, peer, "the TLS handshake takes too long"),
    }
}

/// The answer to a client on another machine, if there is no password.
const PROTECTED: &str = "-DENIED this server has no password, so it answers only clients on its own machine. Start it with \
     --password-file FILE. Or start it with --unprotected, if everybody who can reach it may read and write everything.\r\n";
/// The answer to a client beyond the maximum number, with the text of Redis.
const TOO_MANY: &str = "-ERR max number of clients reached\r\n";
/// The same answers to clients of memcached.
const PROTECTED_MEMCACHED: &str = "SERVER_ERROR this server has no password, so it answers only clients on its own machine. \
     Start it with --password-file FILE, or with --unprotected\r\n";
const TOO_MANY_MEMCACHED: &str = "ERROR Too many open connections\r\n";

/// True if a client at this address is answered (I5 of the crate). `is_open`: the user `default` needs no password.
fn is_answered(config: &Config, is_open: bool, peer: IpAddr) -> bool {
    config.unprotected || !is_open || peer.to_canonical().is_loopback()
}

async fn refuse(mut stream: impl AsyncWrite + Unpin, text: &str) {
    let told = stream.write_all(text.as_bytes());
    // The connection closes even if the message cannot be sent.
    let _ = tokio::time::timeout(REFUSAL, told).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_password_only_this_machine_is_answered() {
        let [local, far] = [
            ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"],
            ["10.0.0.1", "::2", "8.8.8.8", "fe80::1"],
        ];
        let bare = Config::default();
        let open = Config { unprotected: true, ..Config::default() };
        for peer in local.into_iter().chain(far).map(|text| text.parse::<IpAddr>().unwrap()) {
            assert_eq!(is_answered(&bare, true, peer), local.contains(&peer.to_string().as_str()), "{peer}");
            assert!(is_answered(&bare, false, peer) && is_answered(&open, true, peer), "{peer}");
        }
    }
}
