//! Tells the service manager (systemd, `Type=notify`) that the server is ready or is stopping.
//!
//! A notification is one datagram with lines `NAME=VALUE`. The server sends it to the socket that the environment
//! variable NOTIFY_SOCKET names. Without this variable it sends nothing.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The server listens, and the store is open. After a takeover the service has another process, so the state names it.
pub fn ready() -> String {
    format!("READY=1\nMAINPID={}", std::process::id())
}

/// The server has begun to stop.
pub const STOPPING: &str = "STOPPING=1";

/// Sends a state to the service manager, if there is one. An error is logged: the server can work without it.
pub fn notify(state: &str) {
    let socket = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
    if let Some(Err(error)) = socket.map(|name| send(&name, state)) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}

fn send(name: &OsString, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        // An abstract name of Linux: it is in no folder.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(|_| ())
}
