//! The listening sockets of `serve`.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use server::Listeners;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket, lookup_host};

use super::arguments::{Arguments, NONE, is_path};
use super::channel::Kind;
use crate::failure::{Failure, Result, io};

/// Maximum number of connections that wait until the server accepts them.
const BACKLOG: u32 = 1024;

/// The sockets, and the file of the Unix socket.
pub struct Sockets {
    /// The sockets.
    pub listeners: Listeners,
    /// Remove the files of the Unix sockets when they are dropped.
    pub unix_paths: Vec<SocketFile>,
}

/// The file of a Unix socket. Dropping it removes the file, if it belongs to this server.
pub struct SocketFile {
    path: PathBuf,
    is_own: bool,
}

impl SocketFile {
    /// Sets whether this server owns the file, and so removes it on drop. During a takeover the old server owns the file until it has
    /// stopped. Then the new server owns it.
    pub fn set_own(&mut self, is_own: bool) {
        self.is_own = is_own;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_own {
            // A file that stays is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Sockets {
    /// Listens on all addresses of the options. `taken` has the listening sockets that a running server handed over (`--take-over`). A
    /// socket in `taken` is used if it has the address of its option; otherwise a new socket is opened.
    pub async fn listen(arguments: &Arguments, taken: Vec<(Kind, OwnedFd)>) -> Result<Self> {
        let mut taken = Taken(taken);
        let mut listeners = Listeners::default();
        if arguments.listen != NONE {
            listeners.tcp = Some(taken.tcp(Kind::Tcp, &arguments.listen).await?);
        }
        if let Some(address) = arguments.tls_listen.as_ref().filter(|address| *address != NONE)
            && let (Some(certificate), Some(key)) = (&arguments.tls_cert, &arguments.tls_key)
        {
            let acceptor = server::tls::acceptor(certificate, key, arguments.tls_client_ca.as_deref());
            let acceptor = acceptor.map_err(|error| Failure::Text(error.to_string()))?;
            listeners.tls = Some((taken.tcp(Kind::Tls, address).await?, acceptor));
        }
        if let Some(address) = arguments.metrics_listen.as_ref().filter(|address| *address != NONE) {
            listeners.metrics = Some(taken.tcp(Kind::Metrics, address).await?);
        }
        let mut unix_paths = Vec::new();
        let mut listen_unix = |taken: &mut Taken, kind, path: &Path| {
            let other = taken.unix(kind, path);
            let is_own = other.is_none();
            let listener = other.map_or_else(|| unix(path, arguments.unix_socket_mode), Ok);
            let listener = listener.map_err(io(format!("cannot listen on {}", path.display())))?;
            unix_paths.push(SocketFile { path: path.to_owned(), is_own });
            Ok::<_, Failure>(listener)
        };
        if let Some(path) = &arguments.unix_socket {
            listeners.unix = Some(listen_unix(&mut taken, Kind::Unix, path)?);
        }
        match &arguments.memcached {
            Some(path) if is_path(path) => {
                let listener = listen_unix(&mut taken, Kind::MemcachedUnix, Path::new(path))?;
                listeners.memcached_unix = Some(listener);
            }
            Some(address) if address != NONE => {
                listeners.memcached = Some(taken.tcp(Kind::Memcached, address).await?);
            }
            _ => {}
        }
        let has_memcached = listeners.memcached.is_some() || listeners.memcached_unix.is_some();
        if listeners.tcp.is_none() && listeners.tls.is_none() && listeners.unix.is_none() && !has_memcached {
            let text =
                "there is nothing to listen on: give --listen, --tls-listen, --unix-socket or --memcached";
            return Err(Failure::Usage(text.to_owned()));
        }
        Ok(Self { listeners, unix_paths })
    }

    /// The addresses by their JSON names.
    pub fn addresses(&self) -> Result<Vec<(&'static str, String)>> {
        let address = |listener: &TcpListener| {
            listener.local_addr().map(|address| address.to_string()).map_err(io("cannot tell the address"))
        };
        let mut addresses = Vec::new();
        if let Some(listener) = &self.listeners.tcp {
            addresses.push(("listen", address(listener)?));
        }
        if let Some((listener, _)) = &self.listeners.tls {
            addresses.push(("tls_listen", address(listener)?));
        }
        if let Some(listener) = &self.listeners.metrics {
            addresses.push(("metrics_listen", address(listener)?));
        }
        if let Some(listener) = &self.listeners.memcached {
            addresses.push(("memcached", address(listener)?));
        }
        let paths = [("unix_socket", &self.listeners.unix), ("memcached", &self.listeners.memcached_unix)];
        for (name, listener) in paths {
            let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
            if let Some(path) = address.as_ref().and_then(|address| address.as_pathname()) {
                addresses.push((name, path.display().to_string()));
            }
        }
        Ok(addresses)
    }
}

/// The listening sockets that another server handed over and that are not used yet.
struct Taken(Vec<(Kind, OwnedFd)>);

impl Taken {
    /// Takes the socket of a kind.
    fn take(&mut self, kind: Kind) -> Option<OwnedFd> {
        let index = self.0.iter().position(|(known, _)| *known == kind)?;
        Some(self.0.swap_remove(index).1)
    }

    /// The other server's socket if it has this address. Port 0 stands for any port. Otherwise a new socket.
    async fn tcp(&mut self, kind: Kind, address: &str) -> Result<TcpListener> {
        let other = self.take(kind).and_then(|socket| {
            let listener = std::net::TcpListener::from(socket);
            Some((listener.local_addr().ok()?, listener))
        });
        let Some((bound, listener)) = other else { return tcp(address).await };
        let wanted = lookup_host(address).await.map_err(io(format!("cannot listen on {address}")))?;
        let is_same = |wanted: SocketAddr| {
            wanted.ip() == bound.ip() && (wanted.port() == bound.port() || wanted.port() == 0)
        };
        if { wanted }.any(is_same) {
            return TcpListener::from_std(listener).map_err(io(format!("cannot listen on {address}")));
        }
        tcp(address).await
    }

    /// The other server's Unix socket if it has this path.
    fn unix(&mut self, kind: Kind, path: &Path) -> Option<UnixListener> {
        let listener = std::os::unix::net::UnixListener::from(self.take(kind)?);
        let is_same = listener.local_addr().ok()?.as_pathname() == Some(path);
        is_same.then(|| UnixListener::from_std(listener).ok()).flatten()
    }
}

/// Listens on the first usable address of a name. The default backlog of 128 is too small for a burst of clients: the system
/// ignores a client beyond it, and the client tries again after a second.
async fn tcp(address: &str) -> Result<TcpListener> {
    let listen = async {
        let mut failed = io::Error::new(ErrorKind::AddrNotAvailable, "the name has no address");
        for address in lookup_host(address).await? {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // A restarted server must not wait until old connections are forgotten.
            socket.set_reuseaddr(true)?;
            match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
                Ok(listener) => return Ok(listener),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    };
    listen.await.map_err(io(format!("cannot listen on {address}")))
}

/// Listens on a Unix socket. Replaces the file of a server that was killed.
fn unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::new(ErrorKind::AddrInUse, "another process listens on it")),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => return Err(error),
        }
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    // No client can connect before `listen`. So the permissions hold for every client.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)
}
