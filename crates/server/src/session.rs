//! A session serves one connection: it reads all bytes that have arrived, runs every complete command in them, and writes the replies
//! together.
//!
//! Invariants:
//! * I1: the session writes replies in the order of their commands. It first waits for the ticket of these commands
//!   ([`bristlecone::StoreOf::apply`]): so everything that they changed or read is durable. If the commit fails, the session discards these
//!   replies, sends one error and closes the connection.
//! * I2: while a client does not read its replies, the session does not read from that client. At most `FLUSH_BYTES` and one reply wait in
//!   memory.
//! * I3: the session frees large buffers when they are empty, so an idle connection needs little memory.
//! * I4: the idle time restarts when a complete command or `READ_BYTES` bytes have arrived, or when bytes of a reply have left. So a client
//!   that sends a command a few bytes at a time counts as idle.
//! * I5: when the server stops, the running command finishes, the session writes its reply and closes the connection. Later commands do not
//!   run.
//! * I6: if the server hands over its connections, a session runs all commands that have arrived completely, writes their replies, and
//!   gives its stream to the next server ([`crate::handover`]).
//! * I7: a client that has not logged in can send only short commands. So it cannot take much memory.

mod waits;
pub mod wire;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bristlecone::Ticket;
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;

use crate::clients::{Client, ClientEntry, Ending};
use crate::command;
use crate::handover::{Connection, ConnectionState, REST_OF_COMMAND, Stopping};
use crate::notifications::Events;
use crate::observe::Monitor;
use crate::refusals::Class;
use crate::resp::{Protocol, ProtocolError, Reply, RequestParser};
use crate::shared::{DATABASES, Shared, lock};
use crate::stream::Stream;
use crate::subscriptions::Subscriber;
use crate::tracking::Tracker;
use crate::users::User;
use crate::waiting::{Turns, Waiting};
use wire::{COMMANDS_PER_TURN, FLUSH_BYTES, KEPT_BYTES, READ_BYTES, stopped};

/// Initial capacity of the list of a turn's commands: a usual pipeline fits.
const COMMANDS_RESERVED: usize = 16;

/// The state of a connection that its commands use.
pub struct SessionState {
    /// The entry in the registry of clients.
    pub client: Arc<Client>,
    /// The version of the protocol.
    pub protocol: Protocol,
    /// A reusable buffer for values.
    pub value: Vec<u8>,
    /// Number of the selected database.
    pub db: usize,
    /// The user. `None` before AUTH.
    pub user: Option<Arc<User>>,
    /// The version of the users that `user` is from.
    pub users_version: u64,
    /// The name of the last command.
    pub command: &'static str,
    /// True if the connection closes after its replies are written.
    pub close: bool,
    /// The newest ticket of the commands whose replies are not written yet.
    pub ticket: Ticket,
    /// The transaction between MULTI and EXEC, and watched keys.
    pub transaction: command::transactions::State,
    /// Which replies the client gets.
    pub replies: command::client::Replies,
    /// The start of the next command: the end of the previous one, or the time at which the session began to run commands.
    pub command_start: Instant,
    /// True after MONITOR, until the session has started it.
    pub starts_monitor: bool,
    /// The lines of MONITOR.
    pub monitor: Option<Monitor>,
    /// The subscriptions to channels.
    pub subscriber: Option<Subscriber>,
    /// The keys that the client tracks.
    pub tracker: Option<Tracker>,
    /// True if the reply of the running command is not sent (CLIENT REPLY).
    pub is_silent: bool,
    /// True if the running command has written pushes instead of a reply.
    pub has_pushed: bool,
    /// Set by a command that has to wait.
    pub blocked: Option<Box<command::blocking::Blocked>>,
    /// The place of the waiting command in its queues.
    pub waiting: Option<Box<Waiting>>,
    /// The turns of the clients that the last command has woken.
    pub turns: Turns,
    /// The events and messages of the running transaction.
    pub events: Events,
    /// Commands that are not yet added to the server's counter.
    pub commands: u64,
    /// Error replies that are not yet added.
    pub errors: u64,
    /// Keys found that are not yet added.
    pub hits: u64,
    /// Keys not found that are not yet added.
    pub misses: u64,
}

impl SessionState {
    /// The state of a new connection. No user is logged in.
    #[must_use]
    pub fn new(client: Arc<Client>, shared: &Shared) -> Self {
        Self {
            client,
            protocol: Protocol::default(),
            value: Vec::new(),
            db: 0,
            user: None,
            users_version: shared.users.version(),
            command: "",
            close: false,
            ticket: Ticket::default(),
            transaction: command::transactions::State::default(),
            replies: command::client::Replies::default(),
            command_start: Instant::now(),
            starts_monitor: false,
            monitor: None,
            subscriber: None,
            tracker: None,
            is_silent: false,
            has_pushed: false,
            blocked: None,
            waiting: None,
            turns: Turns::default(),
            events: Events::default(),
            commands: 0,
            errors: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Sets the user of the connection.
    pub fn log_in(&mut self, user: Option<Arc<User>>) {
        lock(&self.client.names).user = user.as_ref().map(|user| user.name.clone());
        self.user = user;
    }

    /// Reads the user again if the users have changed. A connection whose user was removed is no longer logged in.
    pub fn refresh_user(&mut self, shared: &Shared) {
        let version = shared.users.version();
        if version != self.users_version {
            self.users_version = version;
            if let Some(user) = &self.user {
                let user = shared.users.find(&user.name);
                self.log_in(user);
            }
        }
    }
}

struct Session {
    stream: Stream,
    entry: ClientEntry,
    shared: Arc<Shared>,
    stopping: watch::Receiver<Stopping>,
    /// The end of the time for the rest of a command, if the server hands over.
    rest_until: Option<Instant>,
    parser: RequestParser,
    input: BytesMut,
    /// Bytes read since the idle time was restarted.
    dripped_bytes: usize,
    /// Bytes of parsed commands that have not run.
    taken_bytes: usize,
    output: Vec<u8>,
    state: SessionState,
}

/// The result of a read.
enum Input {
    Bytes,
    /// Lines of MONITOR or messages of channels are in the output.
    Lines,
    /// The client has disconnected, or the server stops.
    End,
    /// The server hands over.
    HandOver,
    /// The server ends the connection.
    Ended(Ending),
}

enum Turn {
    Read,
    /// Close the connection. `linger` is true if the client may still be sending.
    Close {
        linger: bool,
    },
}

/// The reason why parsing ended.
enum End {
    /// The turn is full, or all bytes are parsed.
    More,
    /// The next command is from a foreign protocol.
    Foreign,
    /// The next bytes are not a command.
    Wrong(ProtocolError),
}

/// The end of a session.
enum Done {
    /// The connection closes. `linger` is true if the client may still be sending.
    Close { linger: bool },
    /// The connection goes to the next server.
    HandOver,
}

/// Serves a connection until it closes or the server stops.
pub async fn run(stream: Stream, entry: ClientEntry) {
    let mut session = Session::new(stream, entry);
    session.state.log_in(session.shared.users.initial());
    session.live().await;
}

/// Serves a connection that another server has handed over. Closes it if its user or its database does not exist here.
pub async fn resume(connection: Connection, entry: ClientEntry) {
    let Connection { stream, state } = connection;
    let mut session = Session::new(stream, entry);
    if session.restore(&state) {
        session.live().await;
    }
}

impl Session {
    /// In a box: each future that owns a session by value has space for it, and these futures live as long as the connection.
    fn new(stream: Stream, entry: ClientEntry) -> Box<Self> {
        let shared = Arc::clone(entry.shared());
        Box::new(Self {
            stopping: shared.stopping(),
            rest_until: None,
            parser: RequestParser::new(shared.config.limits),
            input: BytesMut::new(),
            dripped_bytes: 0,
            taken_bytes: 0,
            output: Vec::new(),
            state: SessionState::new(Arc::clone(&entry.client), &shared),
            stream,
            entry,
            shared,
        })
    }

    /// Takes over the state of a connection. False if this server cannot go on with it.
    fn restore(&mut self, from: &ConnectionState) -> bool {
        let user = from.user.as_ref().map(|name| self.shared.users.find(name));
        let has_database = from.database < DATABASES && self.shared.databases.get(from.database).is_ok();
        let (Some(protocol), true, None | Some(Some(_))) =
            (Protocol::numbered(from.protocol), has_database, &user)
        else {
            return false;
        };
        self.state.protocol = protocol;
        self.state.db = from.database;
        self.state.log_in(user.flatten());
        self.entry.client.no_evict.store(from.no_evict, Ordering::Relaxed);
        let mut names = lock(&self.entry.client.names);
        names.name.clone_from(&from.name);
        names.library.clone_from(&from.library);
        names.library_version.clone_from(&from.library_version);
        (names.protocol, names.database) = (from.protocol, from.database);
        true
    }

    /// Serves until the end, and ends.
    async fn live(mut self: Box<Self>) {
        // After an error of the socket the client is gone and gets no message.
        let done = self.serve().await;
        command::flush_counts(&self.shared, &mut self.state);
        match done {
            Ok(Done::HandOver) => {
                let state = self.handed_state();
                self.shared.park(Connection { stream: self.stream, state });
            }
            Ok(Done::Close { linger }) => wire::close(&mut self.stream, linger).await,
            Err(_) => {}
        }
    }

    fn handed_state(&self) -> ConnectionState {
        let client = &self.entry.client;
        let names = lock(&client.names);
        ConnectionState {
            name: names.name.clone(),
            library: names.library.clone(),
            library_version: names.library_version.clone(),
            user: self.state.user.as_ref().map(|user| user.name.clone()),
            protocol: self.state.protocol.number(),
            database: self.state.db,
            no_evict: client.no_evict.load(Ordering::Relaxed),
            is_memcached: false,
        }
    }

    /// True if the state of the connection can be moved to another server.
    fn can_be_handed_over(&self) -> bool {
        let is_plain = matches!(self.stream, Stream::Tcp(_) | Stream::Unix(_));
        let state = &self.state;
        is_plain
            && state.transaction.is_none()
            && state.monitor.is_none()
            && state.subscriber.is_none()
            && state.tracker.is_none()
            && state.replies == command::client::Replies::On
            && !self.is_closing()
    }

    /// True if a part of a command has arrived.
    fn has_part(&self) -> bool {
        !self.input.is_empty() || !self.parser.is_between_commands()
    }

    /// Serves until the connection closes or is handed over.
    async fn serve(&mut self) -> io::Result<Done> {
        loop {
            match self.read().await? {
                Input::Bytes => {}
                Input::End => return Ok(Done::Close { linger: false }),
                Input::HandOver if !self.can_be_handed_over() => return Ok(Done::Close { linger: true }),
                Input::HandOver if self.has_part() => {
                    self.rest_until = Some(Instant::now() + REST_OF_COMMAND);
                    continue;
                }
                Input::HandOver => return Ok(Done::HandOver),
                Input::Lines => {
                    self.flush().await?;
                    self.shrink();
                    continue;
                }
                Input::Ended(why) => {
                    self.explain(why);
                    self.flush().await?;
                    return Ok(Done::Close { linger: true });
                }
            }
            if let Turn::Close { linger } = self.answer().await? {
                return Ok(Done::Close { linger });
            }
        }
    }

    async fn read(&mut self) -> io::Result<Input> {
        let wanted = self.parser.wanted_bytes(self.input.len());
        wire::reserve(&mut self.input, wanted);
        // When the rest of a command has arrived and run, the session hands over.
        let rest_until = self.rest_until.filter(|_| self.has_part());
        let known = rest_until.map_or(Stopping::No, |_| Stopping::HandOver);
        let event = tokio::select! {
            biased;
            stop = stopped(&mut self.stopping, known) => {
                return Ok(if stop == Stopping::HandOver { Input::HandOver } else { Input::End });
            }
            () = until(rest_until) => return Ok(Input::End),
            why = self.entry.client.ended() => return Ok(Input::Ended(why)),
            count = self.stream.read_buf(&mut self.input) => Ok(count?),
            line = Monitor::next(self.state.monitor.as_mut()) => Err(line),
            () = Subscriber::arrived(self.state.subscriber.as_ref()) => {
                self.write_messages();
                return Ok(Input::Lines);
            }
            () = self.entry.client.pushes.arrived() => {
                self.write_messages();
                return Ok(Input::Lines);
            }
        };
        let count = match event {
            Ok(count) => count,
            Err(line) => return Ok(self.show(line)),
        };
        self.shared.counters.input_bytes.fetch_add(count as u64, Ordering::Relaxed);
        self.dripped_bytes += count;
        if self.dripped_bytes >= READ_BYTES {
            self.set_active();
        }
        Ok(if count > 0 { Input::Bytes } else { Input::End })
    }

    /// Writes a line of MONITOR, and those that are there already, to the output. A client that is too late is disconnected.
    fn show(&mut self, line: Option<Arc<str>>) -> Input {
        let mut next = line;
        if next.is_none() {
            let peer = &self.entry.client.peer;
            self.shared.refuse(Class::Memory, peer, "a MONITOR does not read its lines fast enough");
            return Input::End;
        }
        while let Some(line) = next {
            Reply::new(&mut self.output, self.state.protocol, usize::MAX).simple(&line);
            let has_space = self.output.len() < KEPT_BYTES;
            next = self.state.monitor.as_mut().filter(|_| has_space).and_then(Monitor::ready);
        }
        Input::Lines
    }

    /// Writes the invalidations and the messages that wait to the output, as many as fit.
    fn write_messages(&mut self) {
        let is_subscribed = self.state.subscriber.as_ref().is_some_and(Subscriber::has_any);
        self.entry.client.pushes.write(&mut self.output, self.state.protocol, is_subscribed);
        if let Some(subscriber) = &self.state.subscriber {
            subscriber.write_waiting(&mut self.output, self.state.protocol, FLUSH_BYTES);
        }
    }

    fn set_active(&mut self) {
        self.dripped_bytes = 0;
        self.entry.client.set_active();
    }

    /// Runs all complete commands that have arrived.
    async fn answer(&mut self) -> io::Result<Turn> {
        let mut turn = Turn::Read;
        let mut has_waited = false;
        let mut commands: Vec<Vec<Bytes>> = Vec::with_capacity(COMMANDS_RESERVED);
        loop {
            let end = self.parse(&mut commands);
            let is_full = commands.len() == self.turn_commands_max();
            self.taken_bytes = commands.iter().flatten().map(Bytes::len).sum();
            let mut rest = commands.drain(..);
            if rest.len() > 0 {
                self.dripped_bytes = 0;
            }
            while rest.len() > 0 {
                if self.run_some(&mut rest) {
                    turn = Turn::Close { linger: true };
                    break;
                }
                if !self.state.turns.is_empty() {
                    Box::pin(self.let_the_woken_run()).await;
                }
                if self.output.len() >= FLUSH_BYTES {
                    self.flush().await?;
                }
                if self.state.blocked.is_some() {
                    // More commands may have arrived meanwhile.
                    has_waited = true;
                    // In a box: the state of each connection has space for every future that it may await.
                    if !Box::pin(self.wait_for_element()).await? {
                        turn = Turn::Close { linger: true };
                        break;
                    }
                }
                if self.is_closing() {
                    break;
                }
                if let Some(pause) = self.pause(&rest) {
                    self.flush().await?;
                    self.hold();
                    if !self.wait(pause).await {
                        turn = Turn::Close { linger: true };
                        break;
                    }
                }
            }
            drop(rest);
            self.taken_bytes = 0;
            if self.is_closing() || !matches!(turn, Turn::Read) {
                break;
            }
            match end {
                End::More if is_full || std::mem::take(&mut has_waited) => tokio::task::yield_now().await,
                End::More => break,
                End::Foreign => {
                    turn = Turn::Close { linger: false };
                    break;
                }
                End::Wrong(error) => {
                    self.shared.refuse(Class::Protocol, &self.entry.client.peer, &error.to_string());
                    self.refuse(&format!("ERR Protocol error: {error}"));
                    turn = Turn::Close { linger: true };
                    break;
                }
            }
        }
        self.hold();
        if let Some(why) = self.entry.client.ending() {
            self.explain(why);
            turn = Turn::Close { linger: true };
        }
        command::flush_counts(&self.shared, &mut self.state);
        wire::let_others_run(&self.shared, self.state.ticket).await;
        self.flush().await?;
        self.shrink();
        Ok(if self.state.close { Turn::Close { linger: true } } else { turn })
    }

    /// Runs commands until their replies have to be written. True if the connection closes.
    fn run_some(&mut self, commands: &mut std::vec::Drain<'_, Vec<Bytes>>) -> bool {
        let shared = Arc::clone(&self.shared);
        self.entry.client.set_running(true);
        // Messages that arrived before the commands come before their replies.
        self.write_messages();
        self.state.command_start = Instant::now();
        let (closes, ticket) = shared.store.apply(|_| {
            while self.pause(commands).is_none() && commands.len() > 0 {
                let (state, output) = (&mut self.state, &mut self.output);
                let mut done = command::gets::run(&shared, state, commands.as_slice(), output, FLUSH_BYTES);
                if done == 0 {
                    done = command::grouped::run(&shared, state, commands.as_slice(), output);
                }
                for arguments in commands.by_ref().take(done) {
                    self.taken_bytes -= arguments.iter().map(Bytes::len).sum::<usize>();
                }
                if self.output.len() >= FLUSH_BYTES || !self.state.turns.is_empty() {
                    break;
                }
                if done > 0 && *self.stopping.borrow() != Stopping::Close {
                    continue;
                }
                if done > 0 {
                    return true;
                }
                let Some(arguments) = commands.next() else { break };
                command::run(&shared, &mut self.state, &arguments, &mut self.output);
                // Each command frees its bytes after it has run.
                self.taken_bytes -= arguments.iter().map(Bytes::len).sum::<usize>();
                if let Some(blocked) = &mut self.state.blocked {
                    blocked.remember(arguments);
                    break;
                }
                if self.state.close || *self.stopping.borrow() == Stopping::Close {
                    return true;
                }
                if self.output.len() >= FLUSH_BYTES || !self.state.turns.is_empty() {
                    break;
                }
            }
            false
        });
        self.state.ticket = self.state.ticket.max(ticket);
        self.entry.client.set_active_at(self.state.command_start);
        self.entry.client.set_running(false);
        if std::mem::take(&mut self.state.starts_monitor) {
            self.state.monitor = Some(Monitor::new(shared));
        }
        closes
    }

    fn is_closing(&self) -> bool {
        self.state.close || self.entry.client.ending().is_some()
    }

    /// Tells the client if the server ends the connection for its memory; the other endings have no message. Frees the memory that the
    /// connection holds.
    fn explain(&mut self, why: Ending) {
        self.input = BytesMut::new();
        self.parser = RequestParser::new(self.shared.config.limits);
        self.state.transaction = command::transactions::State::default();
        if why == Ending::Memory {
            self.refuse("ERR this connection holds too many bytes of unfinished commands or unread replies: try again later");
        }
        self.hold();
    }

    /// Maximum number of commands of the next turn. Before AUTH the limits of commands are narrow (I7). So commands after AUTH must be
    /// parsed after it has run.
    fn turn_commands_max(&self) -> usize {
        if self.state.user.is_some() { COMMANDS_PER_TURN } else { 1 }
    }

    /// Parses complete commands, at most those of one turn.
    fn parse(&mut self, commands: &mut Vec<Vec<Bytes>>) -> End {
        self.parser.set_admitted(self.state.user.is_some());
        while commands.len() < self.turn_commands_max() {
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

    /// Accounts for held bytes.
    fn hold(&mut self) {
        let held = self.input.capacity()
            + self.parser.held_bytes()
            + self.taken_bytes
            + self.output.capacity()
            + self.state.value.capacity()
            + self.state.transaction.held_bytes()
            + self.state.subscriber.as_ref().map_or(0, Subscriber::held_bytes);
        self.entry.hold(held, self.taken_bytes > 0);
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.output.len() > KEPT_BYTES {
            // The client may read slowly.
            self.state.value = Vec::new();
            self.hold();
        }
        let ticket = std::mem::take(&mut self.state.ticket);
        if !self.shared.store.is_durable(ticket)
            && let Err(error) = self.shared.store.durable(ticket).await
        {
            self.shared.note_refused_write(&error);
            // No reply in the buffer is true, and a client cannot match one error to its command.
            self.output.clear();
            self.refuse(&format!("ERR {error}; the last commands of this connection may not be durable"));
            self.state.close = true;
        }
        if self.output.is_empty() {
            return Ok(());
        }
        wire::send(&mut self.stream, &self.entry.client, &self.shared, &self.output).await?;
        self.output.clear();
        Ok(())
    }

    /// Frees large empty buffers.
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
}

/// Waits until this time. Without a time, waits forever.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// True for the first words of an HTTP request. A web page can make a browser send one to this port. The commands in the body of such a
/// request must not run.
fn is_foreign(name: &[u8]) -> bool {
    command::is(name, "POST") || command::is(name, "Host:")
}
