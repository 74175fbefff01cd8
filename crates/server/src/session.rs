//! One connection: read what has arrived, run every command in it, write all answers at once.
//!
//! Invariants
//! * I1: answers leave in the order of their commands, and only after what they tell of is durable: the commands of a pipeline
//!   are made so together, with one commit before their answers are written.
//! * I2: a client that does not read its answers is not read from: at most `FLUSH_BYTES` and one answer wait.
//! * I3: buffers shrink back once they are empty: an idle connection holds little.
//! * I4: once the server stops, the running command ends, its answer is written, and the connection closes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::command;
use crate::resp::{Protocol, ProtocolError, Reply, RequestParser};
use crate::shared::{Client, ClientEntry, Shared};

/// Answers beyond this are written before the next command runs.
const FLUSH_BYTES: usize = 1 << 20;
/// Space for one read of small commands.
const READ_BYTES: usize = 16 << 10;
/// Most space made at once for a large argument whose bytes are arriving.
const READ_BYTES_MAX: usize = 4 << 20;
/// Buffers above this are given back when empty.
const KEPT_BYTES: usize = 64 << 10;
/// Commands that are taken together; then a long pipeline lets other connections have the worker.
const COMMANDS_PER_TURN: usize = 256;
/// What is still read, and for how long, from a client that was told why its connection closes: closing with unread
/// bytes would reset the connection, and the client might never see the reason.
const LINGER_BYTES: usize = 64 << 20;
const LINGER: Duration = Duration::from_millis(500);

/// What a connection's commands see of it.
pub struct SessionState {
    /// Its entry in the registry.
    pub client: Arc<Client>,
    /// The version that it speaks.
    pub protocol: Protocol,
    /// A buffer for values, used again and again.
    pub value: Vec<u8>,
    /// Its last command.
    pub command: &'static str,
    /// Close once the answers are written.
    pub close: bool,
    /// A command that may have changed keys ran since the last commit.
    pub wrote: bool,
    /// Commands run, not yet added to the server's count.
    pub commands: u64,
    /// Errors answered, not yet added.
    pub errors: u64,
    /// Keys found, not yet added.
    pub hits: u64,
    /// Keys not found, not yet added.
    pub misses: u64,
}

struct Session {
    stream: TcpStream,
    entry: ClientEntry,
    shared: Arc<Shared>,
    stopping: watch::Receiver<bool>,
    parser: RequestParser,
    input: BytesMut,
    /// Of commands that were taken from the input and have not run.
    taken_bytes: usize,
    output: Vec<u8>,
    state: SessionState,
}

enum Turn {
    Read,
    /// Close; true if the client may still be sending.
    Close {
        linger: bool,
    },
}

/// Why no more commands were taken from the input.
enum End {
    /// Enough for a turn, or all that has arrived.
    More,
    /// What follows is no client's.
    Foreign,
    /// What follows is no command.
    Wrong(ProtocolError),
}

/// Serves a connection until it closes or the server stops.
pub async fn run(stream: TcpStream, entry: ClientEntry) {
    // Answers are written whole: there is nothing to wait for. If the socket refuses, answers are just later.
    let _ = stream.set_nodelay(true);
    let shared = Arc::clone(entry.shared());
    let mut session = Session {
        stopping: shared.stopping(),
        parser: RequestParser::new(shared.config.limits),
        input: BytesMut::new(),
        taken_bytes: 0,
        output: Vec::new(),
        state: SessionState {
            client: Arc::clone(&entry.client),
            protocol: Protocol::default(),
            value: Vec::new(),
            command: "",
            close: false,
            wrote: false,
            commands: 0,
            errors: 0,
            hits: 0,
            misses: 0,
        },
        stream,
        entry,
        shared,
    };
    // An error of the socket means that the client is gone: nobody is left to be told.
    if let Ok(linger) = session.serve().await {
        session.close(linger).await;
    }
    command::flush_counts(&session.shared, &mut session.state);
}

impl Session {
    async fn serve(&mut self) -> io::Result<bool> {
        loop {
            if !self.read().await? {
                return Ok(false);
            }
            if let Turn::Close { linger } = self.answer().await? {
                return Ok(linger);
            }
        }
    }

    /// Waits for bytes; false if the client has gone or the server stops.
    async fn read(&mut self) -> io::Result<bool> {
        let wanted = self.parser.wanted_bytes(self.input.len());
        // No more than what has come already, so that a declared length alone takes no memory.
        let space = wanted.min(self.input.len()).clamp(READ_BYTES, READ_BYTES_MAX);
        if self.input.capacity() - self.input.len() < READ_BYTES / 4 {
            self.input.reserve(space);
        }
        let count = tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stop| *stop) => return Ok(false),
            count = self.stream.read_buf(&mut self.input) => count?,
        };
        self.shared.counters.input_bytes.fetch_add(count as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(count > 0)
    }

    /// Runs every whole command that has arrived.
    async fn answer(&mut self) -> io::Result<Turn> {
        let mut turn = Turn::Read;
        let mut commands: Vec<Vec<Bytes>> = Vec::new();
        loop {
            let end = self.parse(&mut commands);
            command::prefetch(&self.shared, &commands);
            let is_full = commands.len() == COMMANDS_PER_TURN;
            self.taken_bytes = commands.iter().flatten().map(Bytes::len).sum();
            for arguments in commands.drain(..) {
                command::run(&self.shared, &mut self.state, &arguments, &mut self.output);
                // Each gives its bytes back when it is done.
                self.taken_bytes -= arguments.iter().map(Bytes::len).sum::<usize>();
                drop(arguments);
                if self.state.close || *self.stopping.borrow() {
                    turn = Turn::Close { linger: true };
                    break;
                }
                if self.output.len() >= FLUSH_BYTES {
                    self.flush().await?;
                    if self.state.close {
                        break;
                    }
                }
            }
            self.taken_bytes = 0;
            if self.state.close || !matches!(turn, Turn::Read) {
                break;
            }
            match end {
                End::More if is_full => tokio::task::yield_now().await,
                End::More => break,
                End::Foreign => {
                    turn = Turn::Close { linger: false };
                    break;
                }
                End::Wrong(error) => {
                    self.refuse(&format!("ERR Protocol error: {error}"));
                    turn = Turn::Close { linger: true };
                    break;
                }
            }
        }
        if matches!(turn, Turn::Read) && !self.hold() {
            self.refuse("ERR the server holds too many bytes of unfinished commands: try again later");
            turn = Turn::Close { linger: true };
        }
        command::flush_counts(&self.shared, &mut self.state);
        self.flush().await?;
        self.shrink();
        Ok(if self.state.close { Turn::Close { linger: true } } else { turn })
    }

    /// Takes whole commands that have arrived, as many as a turn runs.
    fn parse(&mut self, commands: &mut Vec<Vec<Bytes>>) -> End {
        while commands.len() < COMMANDS_PER_TURN {
            match self.parser.next(&mut self.input) {
                Ok(Some(arguments)) if is_foreign(&arguments[0]) => return End::Foreign,
                Ok(Some(arguments)) => commands.push(arguments),
                Ok(None) => break,
                Err(error) => return End::Wrong(error),
            }
        }
        End::More
    }

    fn refuse(&mut self, text: &str) {
        Reply::new(&mut self.output, self.state.protocol, usize::MAX).error(text);
    }

    /// Accounts for the bytes held; false if this connection holds much and all together hold too much.
    fn hold(&mut self) -> bool {
        let held =
            self.input.capacity() + self.parser.held_bytes() + self.taken_bytes + self.output.capacity();
        let held = if held > KEPT_BYTES { held } else { 0 };
        self.entry.hold(held)
    }

    async fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.state.wrote)
            && let Err(error) = command::commit(&self.shared)
        {
            // None of these answers is true, and a client cannot tell which of them one error would be for.
            self.output.clear();
            self.refuse(&format!("ERR {error}; the last commands of this connection may not be durable"));
            self.state.close = true;
        }
        if self.output.is_empty() {
            return Ok(());
        }
        if self.output.len() > KEPT_BYTES {
            self.hold();
        }
        self.stream.write_all(&self.output).await?;
        let count = self.output.len() as u64;
        self.shared.counters.output_bytes.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        self.output.clear();
        Ok(())
    }

    /// Gives large empty buffers back.
    fn shrink(&mut self) {
        if self.output.capacity() > KEPT_BYTES {
            self.output = Vec::new();
        }
        if self.state.value.capacity() > KEPT_BYTES {
            self.state.value = Vec::new();
        }
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.hold();
    }

    /// Ends the sending side and, if the client may still be sending, reads on a little.
    async fn close(&mut self, linger: bool) {
        if self.stream.shutdown().await.is_err() || !linger {
            return;
        }
        let drain = async {
            let mut scrap = vec![0; READ_BYTES];
            let mut drained = 0;
            while drained < LINGER_BYTES {
                match self.stream.read(&mut scrap).await {
                    Ok(0) | Err(_) => return,
                    Ok(count) => drained += count,
                }
            }
        };
        // Either way the connection closes now.
        let _ = tokio::time::timeout(LINGER, drain).await;
    }
}

/// True for the first words of a browser's request: some page makes it talk to a port that it should not. Commands that
/// it hides in the request's body must not run.
fn is_foreign(name: &[u8]) -> bool {
    command::is(name, "POST") || command::is(name, "Host:")
}
