//! A new server process takes over from an old one, without a failed request (`serve --take-over`). Some connections are closed after their
//! last reply, for example those over TLS (H2 of [`server::handover`]). Their clients have to connect again.
//!
//! | new server | old server |
//! |---|---|
//! | connects, asks to take over | sends its listening sockets |
//! | uses the sockets that its options name, says that it is ready | stops accepting, lets commands end, parks connections, closes the store |
//! | opens the store | waits; if the new server fails or ends, opens the store again and goes on |
//! | receives the connections, serves them and accepts new ones | sends the connections, and ends |
//!
//! Invariants:
//! * O1: one process at a time has the store open: the new server opens it after the old one has closed it, and the old one opens it again
//!   only after the new one has failed.
//! * O2: the listening sockets are open throughout. Connections that arrive while no server accepts wait in the queues of these sockets.
//! * O3: if the new server fails before it has opened the store, the old server continues. Clients see at most a pause.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use bristlecone::{ErrorKind, Options, Store};
use server::Listeners;
use server::handover::Connection;
use server::stream::Stream;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};

use super::channel::{Channel, ControlSocket, Kind, Message};
use crate::failure::{Failure, Result, io};

/// Version of the messages.
const VERSION: u32 = 1;
/// Maximum time for an answer that needs no work.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Maximum time for a new server to check its options and to listen.
const READY_MAX: Duration = Duration::from_secs(60);
/// Maximum wait for a store that is in use. It is in use for a moment after its server has closed it or was killed.
const IN_USE_MAX: Duration = Duration::from_secs(10);
const IN_USE_EACH: Duration = Duration::from_millis(5);
/// Pause after an error of the control socket. Without it, the thread would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs blocking work in a separate thread. The caller may stop waiting for it; the thread does not keep the process alive.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("takeover".into()).spawn(move || _ = sender.send(work()))?;
    receiver.await.map_err(|_| io::Error::other("the thread of the takeover has panicked"))
}

/// Opens a store that another process has just left.
pub async fn open(dir: &Path, options: &Options) -> bristlecone::Result<Store> {
    let until = Instant::now() + IN_USE_MAX;
    loop {
        match Store::open(dir, options.clone()) {
            Err(error) if error.kind() == ErrorKind::InUse && Instant::now() < until => {
                tokio::time::sleep(IN_USE_EACH).await;
            }
            result => return result,
        }
    }
}

/// The requests of new servers.
pub struct Control {
    socket: ControlSocket,
    requests: mpsc::Receiver<Request>,
}

/// A new server that is ready.
#[derive(Debug)]
pub struct Request(Channel);

impl Control {
    /// Waits for new servers, which get these sockets.
    pub fn listen(dir: &Path, listeners: &Listeners) -> io::Result<Self> {
        let socket = ControlSocket::listen(dir)?;
        let (handle, offered) = (socket.handle()?, offered(listeners)?);
        let (sender, requests) = mpsc::channel(1);
        let answer = move || {
            while !sender.is_closed() {
                match Channel::accept(&handle) {
                    Ok(None) => tracing::warn!("a process of another user cannot take over"),
                    Ok(Some(channel)) => match prepare(channel, &offered) {
                        Ok(request) => _ = sender.blocking_send(request),
                        Err(error) => tracing::warn!("a server could not take over: {error}"),
                    },
                    Err(error) => {
                        tracing::warn!("cannot wait for a server that takes over: {error}");
                        std::thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        };
        std::thread::Builder::new().name("control".into()).spawn(answer)?;
        Ok(Self { socket, requests })
    }

    /// Waits for a new server.
    pub async fn next(&mut self) -> Request {
        match self.requests.recv().await {
            Some(request) => request,
            // The thread has ended.
            None => std::future::pending().await,
        }
    }

    /// Ends after a takeover. The file of the socket belongs to the new server.
    pub fn leave(self) {
        self.socket.leave();
    }
}

/// Handles of the listening sockets.
fn offered(listeners: &Listeners) -> io::Result<Vec<(Kind, OwnedFd)>> {
    let tls = listeners.tls.as_ref().map(|(listener, _)| listener.as_fd());
    let all: [(Kind, Option<BorrowedFd<'_>>); 6] = [
        (Kind::Tcp, listeners.tcp.as_ref().map(|listener| listener.as_fd())),
        (Kind::Tls, tls),
        (Kind::Unix, listeners.unix.as_ref().map(|listener| listener.as_fd())),
        (Kind::Metrics, listeners.metrics.as_ref().map(|listener| listener.as_fd())),
        (Kind::Memcached, listeners.memcached.as_ref().map(|listener| listener.as_fd())),
        (Kind::MemcachedUnix, listeners.memcached_unix.as_ref().map(|listener| listener.as_fd())),
    ];
    let some = all.into_iter().filter_map(|(kind, socket)| Some((kind, socket?)));
    some.map(|(kind, socket)| Ok((kind, socket.try_clone_to_owned()?))).collect()
}

/// Gives the listening sockets to a new server, and waits until it is ready.
fn prepare(channel: Channel, offered: &[(Kind, OwnedFd)]) -> io::Result<Request> {
    match channel.receive(Some(ANSWER_MAX))? {
        (Message::TakeOver { version: VERSION }, _) => {}
        (other, _) => {
            let why = format!("this server understands only version {VERSION} of a takeover");
            channel.send(&Message::Refused { why }, &[])?;
            return Err(unexpected(&other));
        }
    }
    let kinds = offered.iter().map(|(kind, _)| *kind).collect();
    let sockets: Vec<_> = offered.iter().map(|(_, socket)| socket.as_fd()).collect();
    channel.send(&Message::Listeners { kinds, pid: std::process::id() }, &sockets)?;
    match channel.receive(Some(READY_MAX))? {
        (Message::Ready, _) => Ok(Request(channel)),
        (other, _) => Err(unexpected(&other)),
    }
}

fn unexpected(message: &Message) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other server sent {message:?}"))
}

impl Request {
    /// Tells the new server that the store is closed, and waits until it has opened it.
    ///
    /// # Errors
    /// The new server failed, or has ended. It does not have the store open, or is about to end.
    pub async fn closed(self) -> io::Result<Successor> {
        let wait = move || {
            self.0.send(&Message::Closed, &[])?;
            match self.0.receive(None)? {
                (Message::Opened, _) => Ok(Successor(self.0)),
                (Message::Failed { why }, _) => Err(io::Error::other(why)),
                (other, _) => Err(unexpected(&other)),
            }
        };
        beside(wait).await?
    }

    /// Tells the new server that this one could not close the store.
    pub fn fail(self, why: String) {
        // The end of this process tells it, too.
        let _ = self.0.send(&Message::Failed { why }, &[]);
    }
}

/// A new server that has the store open.
pub struct Successor(Channel);

impl Successor {
    /// Sends the connections. Returns their number. Those that cannot be sent are closed.
    pub async fn adopt(self, connections: Vec<Connection>) -> io::Result<usize> {
        let mut sockets = Vec::new();
        for Connection { stream, state } in connections {
            let (is_unix, socket) = match stream {
                Stream::Tcp(stream) => (false, stream.into_std().map(OwnedFd::from)),
                Stream::Unix(stream) => (true, stream.into_std().map(OwnedFd::from)),
                Stream::Tls(_) => continue,
            };
            if let Ok(socket) = socket {
                sockets.push((Message::Connection { state, is_unix }, socket));
            }
        }
        let send = move || {
            let mut sent = 0;
            for (message, socket) in &sockets {
                match self.0.send(message, &[socket.as_fd()]) {
                    Ok(()) => sent += 1,
                    // The name of the client is too long.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                    Err(error) => return Err(error),
                }
            }
            self.0.send(&Message::End, &[])?;
            Ok(sent)
        };
        beside(send).await?
    }
}

/// The old server, as the new one sees it.
pub struct Predecessor {
    channel: Channel,
    /// Its process.
    pub pid: u32,
}

impl Predecessor {
    /// Asks the server of this store for its listening sockets. `None` if there is no server.
    pub async fn find(dir: &Path) -> Result<Option<(Self, Vec<(Kind, OwnedFd)>)>> {
        let dir = dir.to_owned();
        let ask = move || {
            let Some(channel) = Channel::connect(&dir)? else { return Ok(None) };
            channel.send(&Message::TakeOver { version: VERSION }, &[])?;
            match channel.receive(Some(ANSWER_MAX))? {
                (Message::Listeners { kinds, pid }, files) if kinds.len() == files.len() => {
                    Ok(Some((Self { channel, pid }, kinds.into_iter().zip(files).collect())))
                }
                (Message::Refused { why }, _) => Err(io::Error::other(why)),
                (other, _) => Err(unexpected(&other)),
            }
        };
        beside(ask).await.flatten().map_err(io("cannot take over from the server of this store"))
    }

    /// Lets the old server stop, and waits until it has closed the store.
    pub async fn stop(self) -> Result<Self> {
        let wait = move || {
            self.channel.send(&Message::Ready, &[])?;
            match self.channel.receive(None)? {
                (Message::Closed, _) => Ok(self),
                (Message::Failed { why }, _) => Err(io::Error::other(why)),
                (other, _) => Err(unexpected(&other)),
            }
        };
        beside(wait).await.flatten().map_err(io("cannot take over: the old server did not close the store"))
    }

    /// Tells the old server that this one cannot open the store.
    pub fn fail(self, why: &Failure) {
        // The end of this process tells it, too.
        let _ = self.channel.send(&Message::Failed { why: why.to_string() }, &[]);
    }

    /// Tells the old server that the store is open. Receives its connections. After an error it returns those that it has received.
    pub async fn opened(self) -> Vec<Connection> {
        let receive = move || {
            let mut received = Vec::new();
            self.channel.send(&Message::Opened, &[])?;
            loop {
                match self.channel.receive(Some(ANSWER_MAX)) {
                    Ok((Message::Connection { state, is_unix }, files)) => {
                        received.extend(files.into_iter().next().map(|socket| (state, is_unix, socket)));
                    }
                    Ok((Message::End, _)) => break,
                    Ok((other, _)) => tracing::warn!("{}", unexpected(&other)),
                    Err(error) => {
                        tracing::warn!("some connections of the old server are lost: {error}");
                        break;
                    }
                }
            }
            Ok::<_, io::Error>(received)
        };
        let received = beside(receive).await.flatten().unwrap_or_else(|error| {
            tracing::warn!("the connections of the old server are lost: {error}");
            Vec::new()
        });
        let mut connections = Vec::new();
        for (state, is_unix, socket) in received {
            let stream = match is_unix {
                true => UnixStream::from_std(socket.into()).map(Stream::Unix),
                false => TcpStream::from_std(socket.into()).map(Stream::Tcp),
            };
            match stream {
                Ok(stream) => connections.push(Connection { stream, state }),
                Err(error) => tracing::warn!("a connection of the old server is lost: {error}"),
            }
        }
        connections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_new_server_that_ends_before_it_has_the_store_leaves_it_to_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Predecessor::find(dir.path()).await.unwrap().is_none());
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let mut control = Control::listen(dir.path(), &Listeners::from(tcp)).unwrap();
        for fails in [false, true] {
            let (predecessor, sockets) = Predecessor::find(dir.path()).await.unwrap().unwrap();
            assert_eq!(predecessor.pid, std::process::id());
            let [(Kind::Tcp, socket)] = <[_; 1]>::try_from(sockets).unwrap() else { panic!("another kind") };
            assert_eq!(std::net::TcpListener::from(socket).local_addr().unwrap(), address);
            let new = tokio::spawn(async move {
                let predecessor = predecessor.stop().await.unwrap();
                if fails {
                    predecessor.fail(&Failure::Text("the store is of another version".to_owned()));
                }
            });
            let error = control.next().await.closed().await.err().unwrap().to_string();
            assert_eq!(error.contains("of another version"), fails, "{error}");
            assert_eq!(error.contains("has ended"), !fails, "{error}");
            new.await.unwrap();
        }
        // The old server cannot close its store.
        let (predecessor, _) = Predecessor::find(dir.path()).await.unwrap().unwrap();
        let new = tokio::spawn(predecessor.stop());
        control.next().await.fail("the disk is full".to_owned());
        let error = new.await.unwrap().err().unwrap().to_string();
        assert!(error.contains("the disk is full"), "{error}");
        // Another version.
        let dir = dir.path().to_owned();
        let refused = beside(move || {
            let channel = Channel::connect(&dir).unwrap().unwrap();
            channel.send(&Message::TakeOver { version: VERSION + 1 }, &[]).unwrap();
            channel.receive(Some(ANSWER_MAX)).unwrap().0
        });
        assert!(matches!(refused.await.unwrap(), Message::Refused { .. }));
    }
}
