//! The listener: accepts connections until the server stops, then waits for their end.
//!
//! Invariants:
//! * I1: no error of one connection, or of accepting it, ends the server.
//! * I2: when [`serve`] returns, no connection uses the store.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bristlecone::Store;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::shared::Shared;
use crate::{Config, Error, Result, session};

/// Pause after an error of accept, for example if no file descriptors are left. Without it the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Timeout for the error message to a refused client.
const REFUSAL: Duration = Duration::from_secs(1);

/// Serves `store` on `listener` until `shutdown` is ready or a client sends SHUTDOWN. Then it accepts no more connections, waits for
/// running commands, and returns. The caller closes the store.
///
/// # Errors
/// `Listener`: the listening socket has no address.
pub async fn serve(
    store: Store,
    listener: TcpListener,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let address = listener.local_addr().map_err(Error::Listener)?;
    let grace = config.stop_grace;
    let shared = Arc::new(Shared::new(store, config, address));
    let mut stopping = shared.stopping();
    let mut sessions = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            _ = stopping.wait_for(|stop| *stop) => break,
            // Removes ended sessions, so that the set stays small.
            Some(_) = sessions.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) if !is_answered(&shared.config, peer.ip()) => {
                    shared.counters.rejected.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    sessions.spawn(refuse(stream, PROTECTED));
                }
                Ok((stream, peer)) => match shared.register(peer) {
                    Some(entry) => { sessions.spawn(session::run(stream, entry)); }
                    None => { sessions.spawn(refuse(stream, "-ERR max number of clients reached\r\n")); }
                },
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    shared.stop();
    let ended = async { while sessions.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, ended).await.is_err() {
        // The remaining clients do not read their replies. Replies that they have read are true; the outcome of other commands is unknown
        // to them.
        sessions.shutdown().await;
    }
    Ok(())
}

/// The answer to a client on another machine, if there is no password.
const PROTECTED: &str = "-DENIED this server has no password, so it answers only clients on its own machine. Start it with \
     --password-file FILE. Or start it with --unprotected, if everybody who can reach it may read and write everything.\r\n";

/// True if a client at this address is answered (I5 of the crate).
fn is_answered(config: &Config, peer: IpAddr) -> bool {
    config.unprotected || config.password.is_some() || peer.to_canonical().is_loopback()
}

async fn refuse(mut stream: TcpStream, text: &str) {
    let told = stream.write_all(text.as_bytes());
    // The connection closes even if the message cannot be sent.
    let _ = tokio::time::timeout(REFUSAL, told).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Password;

    #[test]
    fn without_a_password_only_this_machine_is_answered() {
        let [local, far] = [
            ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"],
            ["10.0.0.1", "::2", "8.8.8.8", "fe80::1"],
        ];
        let bare = Config::default();
        let guarded = Config { password: Password::new(b"secret"), ..Config::default() };
        let open = Config { unprotected: true, ..Config::default() };
        for peer in local.into_iter().chain(far).map(|text| text.parse::<IpAddr>().unwrap()) {
            assert_eq!(is_answered(&bare, peer), local.contains(&peer.to_string().as_str()), "{peer}");
            assert!(is_answered(&guarded, peer) && is_answered(&open, peer), "{peer}");
        }
    }

    #[test]
    fn a_password_is_compared_as_a_whole() {
        let password = Password::new(b"secret").unwrap();
        assert!(password.is(b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"Secret", b"\0ecret"] {
            assert!(!password.is(wrong));
        }
        assert!(Password::new(b"").is_none());
        assert_eq!(format!("{password:?}"), "Password");
    }
}
