//! Accepts connections until it is told to stop, then lets them end.
//!
//! Invariants
//! * I1: no error of one connection, nor of accepting it, ends the server.
//! * I2: when [`serve`] returns, no connection uses the store any more.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bristlecone::Store;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::shared::Shared;
use crate::{Config, Error, Result, session};

/// Pause after an error of accepting (no file descriptors left, say), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client that is one too many may take to be told so.
const REFUSAL: Duration = Duration::from_secs(1);

/// Serves `store` on `listener` until `shutdown` is ready or a client sends SHUTDOWN. Then it accepts no more, lets
/// running commands end, and returns. The store stays open: who opened it closes it.
///
/// # Errors
/// The listening socket has no address.
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
            // Reaps ended sessions, so that the set does not grow.
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
        // Whoever is left does not read its answers: what it was told stays true, what it was not told is unknown to it.
        sessions.shutdown().await;
    }
    Ok(())
}

async fn refuse(mut stream: TcpStream) {
    let told = stream.write_all(b"-ERR max number of clients reached\r\n");
    // It is closed either way.
    let _ = tokio::time::timeout(REFUSAL, told).await;
}
