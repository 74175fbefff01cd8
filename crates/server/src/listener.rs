//! The listener: accepts connections until the server stops, then waits for their end.
//!
//! Invariants:
//! * I1: no error of one connection, or of accepting it, ends the server.
//! * I2: when [`serve`] returns, no connection uses the store.

use std::future::Future;
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
                Ok((stream, peer)) => match shared.register(peer) {
                    Some(entry) => { sessions.spawn(session::run(stream, entry)); }
                    None => { sessions.spawn(refuse(stream)); }
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

async fn refuse(mut stream: TcpStream) {
    let told = stream.write_all(b"-ERR max number of clients reached\r\n");
    // The connection closes even if the message cannot be sent.
    let _ = tokio::time::timeout(REFUSAL, told).await;
}
