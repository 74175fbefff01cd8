//! The socket between the server of a store and the server that replaces it: messages in JSON, with open files (file descriptors).
//!
//! It is a Unix socket of the type SEQPACKET, `takeover.sock` in the directory of the store. Only the server's own user and root can use
//! it: the file has mode 0600, and the server checks the user of its peer. The servers reach it by a path below `/proc/self/fd`, because
//! the path of a Unix socket is at most 107 bytes long.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use server::handover::ConnectionState;

/// Name of the socket in the directory of the store.
const NAME: &str = "takeover.sock";
/// Maximum bytes of a message.
const MESSAGE_BYTES: usize = 64 << 10;
/// Maximum number of files of a message.
const FILES_MAX: usize = 8;
/// A peer that does not read its messages for this time has failed.
const SEND_MAX: Duration = Duration::from_secs(10);

/// The listening sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Tcp,
    Tls,
    Unix,
    Metrics,
    Memcached,
    MemcachedUnix,
}

/// A message. The variants are in the order of a takeover.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The new server asks to take over. `version` is that of these messages.
    TakeOver { version: u32 },
    /// The old server refuses.
    Refused { why: String },
    /// The listening sockets of the old server, which are the files of this message, and its process.
    Listeners { kinds: Vec<Kind>, pid: u32 },
    /// The new server can listen, and its options are right.
    Ready,
    /// The old server has stopped, and has closed the store.
    Closed,
    /// The new server cannot open the store. The old server goes on.
    Failed { why: String },
    /// The new server has opened the store. The old server does not go on any more.
    Opened,
    /// A connection, which is the file of this message.
    Connection { state: ConnectionState, is_unix: bool },
    /// There are no more connections.
    End,
}

/// The listening end of the socket. Dropping it removes its file, unless [`ControlSocket::leave`] was called.
pub struct ControlSocket {
    socket: OwnedFd,
    path: Option<PathBuf>,
}

/// The address of the socket, as long as the directory is open.
fn address(dir: &File) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd()))?)
}

fn packet_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

impl ControlSocket {
    /// Listens in the directory of a store that this process has open. A socket file in the directory is from a server that no longer has
    /// the store, so it is replaced.
    pub fn listen(store: &Path) -> io::Result<Self> {
        let (dir, path) = (File::open(store)?, store.join(NAME));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = packet_socket()?;
        bind(&socket, &address(&dir)?)?;
        // No client can connect before `listen`.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        listen(&socket, 1)?;
        Ok(Self { socket, path: Some(path) })
    }

    /// Another handle of the socket.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Leaves the file to the next server.
    pub fn leave(mut self) {
        self.path = None;
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A file that stays is replaced at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

/// A connection between two servers.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Waits for the next connection. `None` if the peer is neither the user of this process nor root.
    pub fn accept(control: &OwnedFd) -> io::Result<Option<Self>> {
        let socket = retry_on_intr(|| accept_with(control, SocketFlags::CLOEXEC))?;
        let peer = socket_peercred(&socket)?.uid;
        if peer != geteuid() && !peer.is_root() {
            return Ok(None);
        }
        set_socket_timeout(&socket, Timeout::Send, Some(SEND_MAX))?;
        Ok(Some(Self(socket)))
    }

    /// Connects to the server that has the store open. `None` if no server listens.
    pub fn connect(store: &Path) -> io::Result<Option<Self>> {
        let dir = match File::open(store) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            dir => dir?,
        };
        let socket = packet_socket()?;
        match retry_on_intr(|| connect(&socket, &address(&dir).map_err(|_| Errno::NAMETOOLONG)?)) {
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(()) => {
                set_socket_timeout(&socket, Timeout::Send, Some(SEND_MAX))?;
                Ok(Some(Self(socket)))
            }
        }
    }

    /// Sends a message with open files.
    pub fn send(&self, message: &Message, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MESSAGE_BYTES || files.len() > FILES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        // A packet is sent as a whole or not at all.
        retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Waits for the next message and its files, at most for `time_max`. If `time_max` is `None`, there is no limit.
    pub fn receive(&self, time_max: Option<Duration>) -> io::Result<(Message, Vec<OwnedFd>)> {
        set_socket_timeout(&self.0, Timeout::Recv, time_max)?;
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            recvmsg(self.0.as_fd(), into, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let mut files = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = part {
                files.extend(some);
            }
        }
        if received.bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other server has ended"));
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut"));
        }
        Ok((serde_json::from_slice(&bytes[..received.bytes])?, files))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn messages_arrive_with_their_files_and_a_long_path_does_not_matter() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("long".repeat(40));
        assert!(Channel::connect(&dir).unwrap().is_none(), "there is no directory");
        fs::create_dir(&dir).unwrap();
        assert!(Channel::connect(&dir).unwrap().is_none(), "there is no socket");
        let control = ControlSocket::listen(&dir).unwrap();
        assert_eq!(fs::metadata(dir.join(NAME)).unwrap().permissions().mode() & 0o777, 0o600);
        let old = std::thread::spawn(move || {
            let channel = Channel::accept(&control.handle().unwrap()).unwrap().unwrap();
            let (message, files) = channel.receive(Some(Duration::from_secs(60))).unwrap();
            assert_eq!((message, files.len()), (Message::Ready, 1));
            File::from(files.into_iter().next().unwrap()).write_all(b"through the file").unwrap();
            // The file of the socket disappears with this end.
            drop(channel);
        });
        let new = Channel::connect(&dir).unwrap().unwrap();
        let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        new.send(&Message::Ready, &[there.as_fd()]).unwrap();
        drop(there);
        let mut text = String::new();
        here.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through the file");
        let end = new.receive(Some(Duration::from_secs(60))).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        old.join().unwrap();
        assert!(!dir.join(NAME).exists());
        // A message is refused, not cut.
        let long = Message::Failed { why: "x".repeat(MESSAGE_BYTES) };
        assert_eq!(new.send(&long, &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // A server that was killed leaves its file.
        ControlSocket::listen(&dir).unwrap().leave();
        assert!(Channel::connect(&dir).unwrap().is_none());
        drop(ControlSocket::listen(&dir).unwrap());
    }
}
