//! Bytes of a connection: what the sessions of all protocols do with their streams.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bristlecone::Ticket;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::clients::{Client, SMALL_BYTES};
use crate::handover::Stopping;
use crate::shared::Shared;
use crate::stream::Stream;

/// If more bytes of replies wait, they are written before the next command runs.
pub const FLUSH_BYTES: usize = 1 << 20;
/// Buffer space for one read of small commands.
pub const READ_BYTES: usize = 16 << 10;
/// Maximum buffer space for one read of a large argument.
const READ_BYTES_MAX: usize = 4 << 20;
/// Larger buffers are freed when they are empty.
pub const KEPT_BYTES: usize = SMALL_BYTES;
/// Maximum number of commands in one turn. After a turn, other connections get the worker.
pub const COMMANDS_PER_TURN: usize = 256;
/// Maximum bytes and time for reading from a client after the final error message. A close with unread bytes would reset the connection,
/// and the client might not see the message.
const LINGER_BYTES: usize = 64 << 20;
const LINGER: Duration = Duration::from_millis(500);

/// Makes space for the next read. `wanted` is the number of bytes that the parser waits for.
pub fn reserve(input: &mut BytesMut, wanted: usize) {
    // At most as much space as bytes have arrived. So a declared length alone takes no memory.
    let space = wanted.min(input.len()).clamp(READ_BYTES, READ_BYTES_MAX);
    if input.capacity() - input.len() < READ_BYTES / 4 {
        input.reserve(space);
    }
}

/// Lets the other sessions of this thread whose input has arrived run their commands. Then all of them write their replies. A client with
/// several connections often sleeps until a reply arrives, and to wake it costs more than a command. Sessions that wait for a commit need
/// no yield: the end of the commit wakes all of them together.
pub async fn let_others_run(shared: &Shared, ticket: Ticket) {
    if shared.connections() > 1 && shared.store.is_durable(ticket) {
        tokio::task::yield_now().await;
    }
}

/// Writes replies. While the client reads them, it is not idle.
///
/// # Errors
/// Those of the socket; `ConnectionAborted` if the server ends the connection.
pub async fn send(stream: &mut Stream, client: &Client, shared: &Shared, replies: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < replies.len() {
        // A connection that was ended writes as much as the socket takes at once.
        let count = tokio::select! {
            biased;
            count = stream.write(&replies[written..]) => count?,
            _ = client.ended() => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        written += count;
        client.set_active();
    }
    // TLS keeps bytes that the socket did not take.
    tokio::select! {
        biased;
        flushed = stream.flush() => flushed?,
        _ = client.ended() => return Err(io::ErrorKind::ConnectionAborted.into()),
    }
    shared.counters.output_bytes.fetch_add(written as u64, Ordering::Relaxed);
    Ok(())
}

/// Closes the sending side. If the client may still be sending (`linger`), reads for a bounded time.
pub async fn close(stream: &mut Stream, linger: bool) {
    let drain = async {
        // Over TLS this writes a message, so it may have to wait for the client.
        if stream.shutdown().await.is_err() || !linger {
            return;
        }
        let mut scrap = vec![0; READ_BYTES];
        let mut drained = 0;
        while drained < LINGER_BYTES {
            match stream.read(&mut scrap).await {
                Ok(0) | Err(_) => return,
                Ok(count) => drained += count,
            }
        }
    };
    // The connection closes even after a timeout.
    let _ = tokio::time::timeout(LINGER, drain).await;
}

/// Waits until the server stops in another way than `known`.
pub async fn stopped(stopping: &mut watch::Receiver<Stopping>, known: Stopping) -> Stopping {
    match stopping.wait_for(|stop| *stop != Stopping::No && *stop != known).await {
        Ok(stop) => *stop,
        // The server is gone.
        Err(_) => Stopping::Close,
    }
}
