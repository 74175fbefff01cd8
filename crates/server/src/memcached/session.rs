//! A session serves one connection of memcached's protocol: it reads all bytes that have arrived, runs every complete request in them, and
//! writes the replies together.
//!
//! Invariants: I1 to I6 of [`crate::session`] hold here, too: order and durability of replies, bounded memory, idle time, stopping and
//! handing over. In place of its I7:
//! * M1: a client runs commands only as a user that may run every command on every key. If the user `default` needs no password and has
//!   these permissions, that is every client. Otherwise a client first logs in with a `set` whose data is a user and a password.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bristlecone::Ticket;
use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;

use super::commands::{self, Call};
use super::parse::{Parser, ProtocolError, Request};
use super::stats::Counts;
use crate::clients::{ClientEntry, Ending, Pause};
use crate::command::off_the_worker;
use crate::handover::{Connection, ConnectionState, REST_OF_COMMAND, Stopping};
use crate::refusals::Class;
use crate::session::until;
use crate::session::wire::{self, COMMANDS_PER_TURN, FLUSH_BYTES, KEPT_BYTES, READ_BYTES, stopped};
use crate::shared::{MEMCACHED, Shared, lock};
use crate::stream::Stream;
use crate::users::User;

/// Requests with more data do not run on a worker of the runtime.
const INLINE_BYTES_MAX: usize = 256 << 10;

struct Session {
    stream: Stream,
    entry: ClientEntry,
    shared: Arc<Shared>,
    stopping: watch::Receiver<Stopping>,
    /// The end of the time for the rest of a request, if the server hands over.
    rest_until: Option<Instant>,
    parser: Parser,
    input: BytesMut,
    /// Bytes read since the idle time was restarted.
    dripped_bytes: usize,
    output: Vec<u8>,
    /// A buffer for values.
    value: Vec<u8>,
    /// The newest ticket of the requests whose replies are not written yet.
    ticket: Ticket,
    /// The user. `None` before the login.
    user: Option<Arc<User>>,
    /// The version of the users that `user` is from.
    users_version: u64,
    counts: Counts,
    /// The rest of a request whose reply is long.
    rest: Option<Request>,
}

/// The result of a read.
enum Input {
    Bytes,
    /// The client has disconnected, or the server stops.
    End,
    /// The server hands over.
    HandOver,
    /// The server ends the connection.
    Ended(Ending),
}

/// How a turn or a session ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// All requests that have arrived have run.
    No,
    /// The connection closes. The client may still be sending.
    Close,
    /// The connection goes to the next server.
    HandOver,
}

/// Serves a connection until it closes or the server stops.
pub async fn run(stream: Stream, entry: ClientEntry) {
    let mut session = Session::new(stream, entry);
    session.log_in(session.shared.users.initial());
    session.live().await;
}

/// Serves a connection that another server has handed over. Closes it if its user does not exist here.
pub async fn resume(connection: Connection, entry: ClientEntry) {
    let mut session = Session::new(connection.stream, entry);
    let name = connection.state.user;
    session.log_in(name.as_ref().and_then(|name| session.shared.users.find(name)));
    if name.is_none() || session.user.is_some() {
        session.live().await;
    }
}

impl Session {
    /// In a box: the future of a session is small, so an idle connection needs little memory.
    fn new(stream: Stream, entry: ClientEntry) -> Box<Self> {
        let shared = Arc::clone(entry.shared());
        lock(&entry.client.names).command = "memcached";
        Box::new(Self {
            stopping: shared.stopping(),
            rest_until: None,
            parser: Parser::new(shared.config.memcached.item_bytes_max),
            input: BytesMut::new(),
            dripped_bytes: 0,
            output: Vec::new(),
            value: Vec::new(),
            ticket: Ticket::default(),
            user: None,
            users_version: shared.users.version(),
            counts: Counts::default(),
            rest: None,
            stream,
            entry,
            shared,
        })
    }

    /// Sets the user, if it has all permissions (M1).
    fn log_in(&mut self, user: Option<Arc<User>>) {
        self.user = user.filter(|user| user.has_all_keys() && user.commands.has_all());
        lock(&self.entry.client.names).user = self.user.as_ref().map(|user| user.name.clone());
        self.parser.set_admitted(self.user.is_some());
    }

    /// Reads the user again if the users have changed.
    fn refresh_user(&mut self) {
        let version = self.shared.users.version();
        if version != self.users_version {
            self.users_version = version;
            if let Some(user) = &self.user {
                let user = self.shared.users.find(&user.name);
                self.log_in(user);
            }
        }
    }

    /// Checks a user and a password.
    fn check_login(&mut self, login: &[u8]) {
        let mut parts = login.splitn(2, |byte| *byte == b' ');
        let (name, password) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let user = std::str::from_utf8(name).ok().and_then(|name| self.shared.users.find(name));
        self.log_in(user.filter(|user| user.admits(password)));
        if self.user.is_some() {
            self.line("STORED");
            return;
        }
        let why = "wrong user or password, or a user that may not run every command on every key";
        self.shared.refuse(Class::Password, &self.entry.client.peer, why);
        self.line("CLIENT_ERROR authentication failure");
    }

    /// Serves until the end, and ends.
    async fn live(mut self: Box<Self>) {
        // After an error of the socket the client is gone and gets no message.
        let done = self.serve().await;
        self.flush_counts();
        match done {
            Ok(Done::HandOver) => {
                let state = ConnectionState {
                    name: String::new(),
                    library: String::new(),
                    library_version: String::new(),
                    user: self.user.as_ref().map(|user| user.name.clone()),
                    protocol: 2,
                    database: 0,
                    no_evict: false,
                    is_memcached: true,
                };
                self.shared.park(Connection { stream: self.stream, state });
            }
            Ok(_) => wire::close(&mut self.stream, true).await,
            Err(_) => {}
        }
    }

    /// True if a part of a request has arrived.
    fn has_part(&self) -> bool {
        !self.input.is_empty() || !self.parser.is_between_requests()
    }

    async fn serve(&mut self) -> io::Result<Done> {
        loop {
            match self.read().await? {
                Input::Bytes => {}
                Input::End => return Ok(Done::Close),
                Input::HandOver if self.has_part() => {
                    self.rest_until = Some(Instant::now() + REST_OF_COMMAND);
                    continue;
                }
                Input::HandOver => return Ok(Done::HandOver),
                Input::Ended(why) => {
                    self.explain(why);
                    self.flush().await?;
                    return Ok(Done::Close);
                }
            }
            if self.answer().await? == Done::Close {
                return Ok(Done::Close);
            }
        }
    }

    async fn read(&mut self) -> io::Result<Input> {
        let wanted = self.parser.wanted_bytes(self.input.len());
        wire::reserve(&mut self.input, wanted);
        let rest_until = self.rest_until.filter(|_| self.has_part());
        let known = rest_until.map_or(Stopping::No, |_| Stopping::HandOver);
        let count = tokio::select! {
            biased;
            stop = stopped(&mut self.stopping, known) => {
                return Ok(if stop == Stopping::HandOver { Input::HandOver } else { Input::End });
            }
            () = until(rest_until) => return Ok(Input::End),
            why = self.entry.client.ended() => return Ok(Input::Ended(why)),
            count = self.stream.read_buf(&mut self.input) => count?,
        };
        self.shared.counters.input_bytes.fetch_add(count as u64, Ordering::Relaxed);
        self.dripped_bytes += count;
        if self.dripped_bytes >= READ_BYTES {
            self.dripped_bytes = 0;
            self.entry.client.set_active();
        }
        Ok(if count > 0 { Input::Bytes } else { Input::End })
    }

    /// Runs all complete requests that have arrived.
    async fn answer(&mut self) -> io::Result<Done> {
        let mut done;
        loop {
            if let Some(pause) = self.pause()
                && !self.wait(pause).await
            {
                done = Done::Close;
                break;
            }
            let (turn, is_full) = self.run_some();
            if self.output.len() >= FLUSH_BYTES {
                self.flush().await?;
            }
            done = turn;
            if done == Done::Close || self.entry.client.ending().is_some() {
                break;
            }
            if !is_full {
                break;
            }
            self.hold();
            tokio::task::yield_now().await;
        }
        self.hold();
        if let Some(why) = self.entry.client.ending() {
            self.explain(why);
            done = Done::Close;
        }
        self.flush_counts();
        wire::let_others_run(&self.shared, self.ticket).await;
        if !self.flush().await? {
            done = Done::Close;
        }
        self.shrink();
        Ok(done)
    }

    /// Runs requests until the output is full. True if more requests may have arrived.
    fn run_some(&mut self) -> (Done, bool) {
        let shared = Arc::clone(&self.shared);
        self.refresh_user();
        self.entry.client.set_running(true);
        let start = Instant::now();
        let ((done, is_full), ticket) = shared.store.apply(|_| {
            for _ in 0..COMMANDS_PER_TURN {
                let request = match self.next() {
                    Ok(Some(request)) => request,
                    Ok(None) => return (Done::No, false),
                    Err(error) => {
                        shared.refuse(Class::Protocol, &self.entry.client.peer, &error.to_string());
                        self.line(&error.to_string());
                        return (Done::Close, false);
                    }
                };
                self.dripped_bytes = 0;
                if !self.run(&shared, request) || *self.stopping.borrow() == Stopping::Close {
                    return (Done::Close, false);
                }
                if self.output.len() >= FLUSH_BYTES || shared.may_pause() {
                    break;
                }
            }
            (Done::No, true)
        });
        self.ticket = self.ticket.max(ticket);
        self.entry.client.set_active_at(start);
        self.entry.client.set_running(false);
        (done, is_full)
    }

    fn next(&mut self) -> Result<Option<Request>, ProtocolError> {
        match self.rest.take() {
            Some(rest) => Ok(Some(rest)),
            None => self.parser.next(&mut self.input),
        }
    }

    /// Runs a request. False at its `quit`.
    fn run(&mut self, shared: &Shared, request: Request) -> bool {
        let (Some(memcached), Ok(store)) = (&shared.memcached, shared.databases.get(MEMCACHED)) else {
            self.line("SERVER_ERROR the table of memcached cannot be opened");
            return false;
        };
        let bytes = match &request {
            Request::Quit => return false,
            Request::Login(login) => {
                self.check_login(login);
                return true;
            }
            Request::Store(_, data) => data.len(),
            Request::Get { keys, .. } => keys.len(),
            _ => 0,
        };
        let mut call = Call {
            shared,
            memcached,
            store,
            output: &mut self.output,
            counts: &mut self.counts,
            value: &mut self.value,
        };
        let run = || commands::run(&mut call, request, FLUSH_BYTES);
        self.rest = if bytes > INLINE_BYTES_MAX { off_the_worker(run) } else { run() };
        true
    }

    /// The pause that the next request has to wait for. A request may change items, so every pause counts.
    fn pause(&self) -> Option<Pause> {
        if self.shared.may_pause() { self.shared.pause(|| true) } else { None }
    }

    /// Waits until a pause ends. False if the connection closes meanwhile.
    async fn wait(&mut self, pause: Pause) -> bool {
        let shared = Arc::clone(&self.shared);
        tokio::select! {
            () = shared.pause_end(pause) => true,
            stop = stopped(&mut self.stopping, Stopping::No) => stop == Stopping::No,
            _ = self.entry.client.ended() => false,
        }
    }

    fn line(&mut self, text: &str) {
        self.output.extend_from_slice(text.as_bytes());
        self.output.extend_from_slice(b"\r\n");
    }

    /// Tells the client if the server ends the connection for its memory. Frees the memory that the connection holds.
    fn explain(&mut self, why: Ending) {
        self.input = BytesMut::new();
        self.rest = None;
        if why == Ending::Memory {
            self.line(
                "SERVER_ERROR this connection holds too many bytes of unfinished requests or unread replies",
            );
        }
        self.hold();
    }

    /// Accounts for held bytes.
    fn hold(&mut self) {
        let rest = match &self.rest {
            Some(Request::Get { keys, .. }) => keys.len(),
            _ => 0,
        };
        let held = self.input.capacity() + self.output.capacity() + self.value.capacity() + rest;
        self.entry.hold(held, self.rest.is_some());
    }

    fn flush_counts(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        let counters = &self.shared.counters;
        for (counter, count) in [
            (&counters.commands, counts.commands),
            (&counters.errors, counts.errors),
            (&counters.hits, counts.get(super::stats::Count::GetHits)),
            (&counters.misses, counts.get(super::stats::Count::GetMisses)),
        ] {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
        if let Some(memcached) = &self.shared.memcached {
            memcached.totals.add(&counts);
        }
    }

    /// Writes the replies when their commands are durable. False if the commit has failed.
    async fn flush(&mut self) -> io::Result<bool> {
        if self.output.len() > KEPT_BYTES {
            // The client may read slowly.
            self.hold();
        }
        let ticket = std::mem::take(&mut self.ticket);
        let mut is_durable = true;
        if !self.shared.store.is_durable(ticket)
            && let Err(error) = self.shared.store.durable(ticket).await
        {
            self.shared.note_refused_write(&error);
            // No reply in the buffer is true, and a client cannot match one error to its command.
            self.output.clear();
            self.line(&format!(
                "SERVER_ERROR {error}; the last commands of this connection may not be durable"
            ));
            is_durable = false;
        }
        if !self.output.is_empty() {
            wire::send(&mut self.stream, &self.entry.client, &self.shared, &self.output).await?;
            self.output.clear();
        }
        Ok(is_durable)
    }

    /// Frees large empty buffers.
    fn shrink(&mut self) {
        if self.output.capacity() > KEPT_BYTES {
            self.output = Vec::new();
        }
        if self.value.capacity() > KEPT_BYTES {
            self.value = Vec::new();
        }
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.hold();
    }
}
