//! The commands: a table of name, arity, flags and handler. Each group of commands has a file.
//!
//! * [`strings`]: GET, SET and related commands. [`gets`]: several GETs at once. [`numbers`]: counters. [`ranges`]: parts and bits of
//!   values. [`bitfields`]: BITOP, BITFIELD. [`lcs`]: LCS.
//! * [`grouped`]: several changes of structures at once. [`hashes`]: HSET, HGET … [`lists`]: LPUSH, LPOP … [`sets`]: SADD …
//!   [`sorted_sets`]: ZADD … [`combinations`]: ZUNION … [`geo`]: GEOADD … [`hyperloglogs`]: PFADD … [`streams`]: XADD … [`stream_groups`]:
//!   XGROUP … [`stream_pending`]: XCLAIM … [`stream_info`]: XINFO. [`blocking`]: BLPOP …
//! * [`keys`]: DEL, EXISTS, SCAN, KEYS, RANGE … [`dumps`]: DUMP, RESTORE. [`sort`]: SORT.
//! * [`expiry`]: EXPIRE, TTL … [`databases`]: SELECT, MOVE, FLUSHDB …
//! * [`acl`]: users and permissions.
//! * [`connection`]: PING, HELLO, AUTH … [`client`], [`tracking`]: CLIENT. [`observe`]: SLOWLOG, MONITOR, MEMORY …
//! * [`config`]: CONFIG. [`server`]: INFO, TIME, SHUTDOWN …
//! * [`save`]: SAVE, BGSAVE, LASTSAVE.
//! * [`introspect`] has COMMAND; [`transactions`] has MULTI, EXEC, WATCH … [`scripts`]: EVAL, SCRIPT. [`functions`]: FUNCTION, FCALL.
//!   [`subscriptions`]: SUBSCRIBE, PUBLISH …
//!
//! Invariants:
//! * I1: a handler writes exactly one reply (SHUTDOWN, and a command that waits: none; SUBSCRIBE and its relatives: one for each name), or
//!   returns an error. If it returns an error, [`run_in`] discards the part of the reply that it has written.
//! * I2: error texts that Redis has are identical to those of Redis, because clients match on them.
//! * I3: a handler that may take long has [`Flags::SLOW`]. While it runs, other connections continue, if the runtime is tokio's
//!   multi-threaded one, even with a single thread.
//!
//! A command that changes several keys does it in one step: after a crash all its writes are present or none is, and readers see all or
//! none. The exception is DEL over an engine without atomic batches: it removes its keys one by one.

pub mod acl;
pub mod bitfields;
pub mod blocking;
pub mod client;
pub mod combinations;
pub mod config;
pub mod connection;
pub mod databases;
pub mod dumps;
pub mod expiry;
pub mod functions;
pub mod geo;
pub mod gets;
pub mod grouped;
pub mod hashes;
pub mod hyperloglogs;
pub mod introspect;
pub mod keys;
pub mod lcs;
pub mod lists;
pub mod numbers;
pub mod observe;
pub mod ranges;
pub mod save;
pub mod scripts;
pub mod server;
pub mod sets;
pub mod sort;
pub mod sorted_sets;
pub mod stream_groups;
pub mod stream_info;
pub mod stream_pending;
pub mod streams;
pub mod strings;
pub mod subscriptions;
pub mod tracking;
pub mod transactions;

use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bristlecone::ErrorKind;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio::runtime::{Handle, RuntimeFlavor};

use client::Replies;

use crate::access::{Access, AccessError};
use crate::eviction::{Admission, cost};
use crate::refusals::Class;
use crate::refused_writes::advice;
use crate::resp::{Reply, reply::ReplyTooLong};
use crate::session::SessionState;
use crate::shared::{Shared, lock};
use crate::tracking::Tracker;
use crate::users::Denied;
use crate::users::denials::Reason;

/// A larger command does not run on a worker of the runtime.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// The properties of a command, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// No properties.
    pub const NONE: Self = Self(0);
    /// Reads keys.
    pub const READ: Self = Self(1);
    /// Changes keys.
    pub const WRITE: Self = Self(2);
    /// Takes constant time, apart from the work in the index.
    pub const FAST: Self = Self(4);
    /// May take long, because it reads many keys.
    pub const SLOW: Self = Self(8);
    /// For administrators.
    pub const ADMIN: Self = Self(16);
    /// Not allowed between MULTI and EXEC.
    pub const ALONE: Self = Self(32);
    /// Runs at once, even between MULTI and EXEC.
    pub const AT_ONCE: Self = Self(64);
    /// Runs before the client has given the password.
    pub const OPEN: Self = Self(128);
    /// May need memory. Refused at the limit of memory ([`crate::eviction`]).
    pub const GROWS: Self = Self(256);
    /// May wait for an element.
    pub const BLOCKS: Self = Self(512);
    /// Not allowed in scripts, in addition to the commands that wait, that are not queued, or that are for administrators.
    pub const NOSCRIPT: Self = Self(1024);

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` is in this set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Positions of the keys among the arguments: first, last (negative: from the end), step. Zeros for no keys. For keys whose number is an
/// argument, see [`numbered`].
pub type KeyPositions = (i64, i64, i64);
/// Positions of keys whose number is the argument `at`; they follow it. `also` is the position of one more key, or 0.
pub const fn numbered(at: i64, also: i64) -> KeyPositions {
    (-at, also, 0)
}
/// No keys.
pub const NO_KEYS: KeyPositions = (0, 0, 0);
/// One key, the first argument.
pub const ONE_KEY: KeyPositions = (1, 1, 1);
/// All arguments are keys.
pub const ALL_KEYS: KeyPositions = (1, -1, 1);

/// A command.
#[derive(Debug)]
pub struct Command {
    /// Name in lower case.
    pub name: &'static str,
    /// Number of arguments, including the name. A negative number `-n` means at least `n`.
    pub arity: i64,
    /// Properties.
    pub flags: Flags,
    /// Positions of the keys.
    pub keys: KeyPositions,
    /// Family, as Redis names it.
    pub group: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Runs the command.
    pub handler: Handler,
}

impl Command {
    /// True if the command waits while CLIENT PAUSE WRITE holds writes. PUBLISH does, as in Redis.
    #[must_use]
    pub fn waits_for_writes(&self) -> bool {
        self.flags.has(Flags::WRITE)
            || matches!(
                self.name,
                "exec" | "publish" | "spublish" | "eval" | "evalsha" | "fcall" | "function"
            )
    }
}

/// A function that runs a command.
pub type Handler = fn(&mut Call<'_>) -> Result<(), CommandError>;

/// A running command.
pub struct Call<'a> {
    /// Name and arguments. Their number fits the command's arity.
    pub arguments: &'a [Bytes],
    /// The reply.
    pub reply: Reply<'a>,
    /// The keys.
    pub keys: Access<'a>,
    /// The connection.
    pub session: &'a mut SessionState,
    /// The server.
    pub shared: &'a Shared,
}

impl<'a> Call<'a> {
    /// An argument that the arity guarantees.
    #[must_use]
    pub fn argument(&self, index: usize) -> &'a [u8] {
        &self.arguments[index]
    }

    /// The arguments from `index` on.
    #[must_use]
    pub fn rest(&self, index: usize) -> &'a [Bytes] {
        self.arguments.get(index..).unwrap_or_default()
    }

    /// Replies with the value of `key`, or with null.
    ///
    /// # Errors
    /// Those of the store; a reply that is too long.
    pub fn reply_value(&mut self, key: &[u8]) -> Result<(), CommandError> {
        let found = self.keys.get_into(key, &mut self.session.value)?;
        self.count_lookup(found);
        if found {
            self.reply.bulk(&self.session.value)?;
        } else {
            self.reply.null();
        }
        Ok(())
    }

    /// Replies with a former value, or with null.
    ///
    /// # Errors
    /// A reply that is too long.
    pub fn reply_option(&mut self, value: Option<&[u8]>) -> Result<(), CommandError> {
        match value {
            Some(value) => self.reply.bulk(value)?,
            None => self.reply.null(),
        }
        Ok(())
    }

    /// Counts a lookup for INFO.
    pub fn count_lookup(&mut self, found: bool) {
        *(if found { &mut self.session.hits } else { &mut self.session.misses }) += 1;
    }
}

/// The error reply of a command. The text starts with the error code.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// An error of the store.
    #[error("ERR {0}")]
    Store(#[from] bristlecone::Error),
    /// An access to a key failed.
    #[error("{0}")]
    Access(#[from] AccessError),
    /// The reply is too long.
    #[error("ERR {0}")]
    Reply(#[from] ReplyTooLong),
    /// Unknown options, or options that exclude each other.
    #[error("ERR syntax error")]
    Syntax,
    /// An argument or value is not an integer.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// An argument or value is not a number.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// Wrong number of arguments. The text is the command's name, with `|` and the name of the subcommand if there is one.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    /// There is no such subcommand.
    #[error("ERR unknown subcommand '{0}'. Try {1} HELP.")]
    Subcommand(String, &'static str),
    /// A feature of Redis that the server does not have.
    #[error("ERR {0} is not supported yet: {1}")]
    Unsupported(String, &'static str),
    /// Any other error, with its code.
    #[error("{0}")]
    Text(String),
}

/// All commands by name.
static COMMANDS: LazyLock<Vec<&'static Command>> = LazyLock::new(|| {
    let families = [
        strings::COMMANDS,
        numbers::COMMANDS,
        ranges::COMMANDS,
        bitfields::COMMANDS,
        lcs::COMMANDS,
        hashes::COMMANDS,
        lists::COMMANDS,
        sets::COMMANDS,
        sorted_sets::COMMANDS,
        combinations::COMMANDS,
        geo::COMMANDS,
        streams::COMMANDS,
        stream_groups::COMMANDS,
        stream_pending::COMMANDS,
        stream_info::COMMANDS,
        hyperloglogs::COMMANDS,
        blocking::COMMANDS,
        keys::COMMANDS,
        dumps::COMMANDS,
        sort::COMMANDS,
        expiry::COMMANDS,
        databases::COMMANDS,
        connection::COMMANDS,
        save::COMMANDS,
        server::COMMANDS,
        introspect::COMMANDS,
        acl::COMMANDS,
        client::COMMANDS,
        observe::COMMANDS,
        config::COMMANDS,
        transactions::COMMANDS,
        scripts::COMMANDS,
        functions::COMMANDS,
        subscriptions::COMMANDS,
    ];
    let mut all: Vec<_> = families.into_iter().flatten().collect();
    all.sort_by_key(|command| command.name);
    all
});

/// All commands, sorted by name.
pub fn all() -> &'static [&'static Command] {
    &COMMANDS
}

/// All commands by the bytes of their names.
static BY_NAME: LazyLock<FxHashMap<&'static [u8], &'static Command>> =
    LazyLock::new(|| all().iter().map(|command| (command.name.as_bytes(), *command)).collect());

/// Maximum length of a command's name.
const NAME_BYTES_MAX: usize = 32;

/// The command of this name, in any case.
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// Runs a command and appends its one reply to `output`, unless CLIENT REPLY has switched replies off.
pub fn run(shared: &Shared, session: &mut SessionState, arguments: &[Bytes], output: &mut Vec<u8>) {
    let bytes_max = shared.reply_bytes_max(&session.client);
    let protocol = session.protocol;
    let (start, replies) = (output.len(), session.replies);
    if replies == Replies::SkipNext {
        session.replies = Replies::On;
    }
    session.is_silent = replies != Replies::On;
    let running = session.tracker.as_ref().map(Tracker::begin);
    // A command that has waited was shown before.
    let is_again = session.waiting.is_some();
    if !is_again {
        shared.show_command(&session.client, arguments);
    }
    let started = session.command_start;
    let mut reply = Reply::new(output, protocol, bytes_max);
    match Access::new(shared, session.db) {
        Ok(mut keys) => {
            if let Some(waiting) = &session.waiting {
                keys.events().ignore_misses();
                keys.turns().into_iter().for_each(|turns| turns.pass_on(waiting));
            }
            run_in(&mut Call { arguments, reply, keys, session, shared });
        }
        Err(error) => reply.error(&CommandError::from(error).to_string()),
    }
    drop(running);
    tracking::note_end(session, shared, arguments);
    let now = Instant::now();
    session.command_start = now;
    shared.note_duration(&session.client, arguments, now.duration_since(started));
    // CLIENT REPLY does not concern the replies of SUBSCRIBE and its relatives, because they are pushes.
    let has_pushed = std::mem::take(&mut session.has_pushed);
    if !has_pushed && (replies == Replies::SkipNext || session.replies != Replies::On) {
        output.truncate(start);
    }
    if session.blocked.is_some() {
        // The command runs again, or ends with its time, in the same mode.
        session.replies = replies;
    }
}

/// Runs a command on the keys of the call, or queues it. Writes its one reply.
pub fn run_in(call: &mut Call<'_>) {
    call.session.refresh_user(call.shared);
    let name = call.argument(0);
    let is_open = call.session.transaction.is_open();
    let result = match call.shared.find(name) {
        None => {
            call.session.transaction.abort();
            Err(unknown(call.arguments))
        }
        Some(command) if !arity_fits(command.arity, call.arguments.len()) => {
            call.session.transaction.abort();
            Err(CommandError::Arity(command.name.to_owned()))
        }
        Some(command) if call.session.user.is_none() && !command.flags.has(Flags::OPEN) => {
            Err(CommandError::Text("NOAUTH Authentication required.".to_owned()))
        }
        Some(command) if let Some(denied) = denied(command, call) => {
            call.session.transaction.abort();
            Err(denied)
        }
        Some(command)
            if subscriptions::is_confined(call.session)
                && !subscriptions::ALLOWED.contains(&command.name) =>
        {
            call.session.transaction.abort();
            Err(subscriptions::confined(command, call.arguments))
        }
        Some(command) if is_open && command.flags.has(Flags::ALONE) => {
            call.session.transaction.abort();
            Err(CommandError::Text("ERR Command not allowed inside a transaction".to_owned()))
        }
        Some(command) if is_open && !command.flags.has(Flags::AT_ONCE) => match admit(command, call) {
            Ok(_) => {
                transactions::queue(call);
                Ok(())
            }
            Err(refused) => {
                call.session.transaction.abort();
                Err(refused)
            }
        },
        Some(command) => {
            if call.session.command != command.name {
                call.session.command = command.name;
                lock(&call.session.client.names).command = command.name;
            }
            run_admitted(command, call)
        }
    };
    call.session.commands += u64::from(call.session.waiting.is_none());
    if let Err(error) = result {
        call.session.errors += 1;
        call.reply.restart();
        call.reply.error(&explained(&error, call));
    }
}

/// The text of an error. A command that was to free space on a full disk gets advice.
fn explained(error: &CommandError, call: &Call<'_>) -> String {
    let (CommandError::Store(of_store) | CommandError::Access(AccessError::Store(of_store))) = error else {
        return error.to_string();
    };
    call.shared.note_refused_write(of_store);
    let frees = |command: &Command| command.flags.has(Flags::WRITE) && !command.flags.has(Flags::GROWS);
    match of_store.kind() {
        ErrorKind::Full if call.shared.find(call.argument(0)).is_some_and(frees) => {
            format!("{error}; {}", advice(call.shared))
        }
        _ => error.to_string(),
    }
}

/// Runs a command that may run now, if there is memory for it.
fn run_admitted(command: &Command, call: &mut Call<'_>) -> Result<(), CommandError> {
    let db = call.keys.db();
    tracking::note_reads(command, call);
    let run = |call: &mut Call<'_>| {
        let _admission = admit(command, call)?;
        (command.handler)(call)
    };
    let result = if is_long(command, call) { off_the_worker(|| run(call)) } else { run(call) };
    call.shared.eviction.note_command(command, db, call.arguments);
    if matches!(call.keys, Access::Store { .. }) && !call.keys.events().is_empty() {
        call.keys.events().send(call.shared);
    }
    if command.flags.has(Flags::WRITE) && !command.flags.has(Flags::GROWS) {
        call.shared.eviction.note_change();
    }
    if command.flags.has(Flags::GROWS) && result.is_ok() && matches!(call.keys, Access::Store { .. }) {
        call.shared.note_stored_write();
    }
    if let Some(turns) = call.keys.turns() {
        call.session.turns = turns.take();
    }
    result
}

/// Makes space for a command that may need memory. EXEC makes space for all queued commands before it runs the first.
fn admit<'a>(command: &Command, call: &mut Call<'a>) -> Result<Option<Admission<'a>>, CommandError> {
    let (eviction, shared) = (&call.shared.eviction, call.shared);
    if eviction.limit_bytes() == 0 || matches!(call.keys, Access::Transaction { .. }) {
        return Ok(None);
    }
    let is_exec = command.name == "exec";
    let cost = if is_exec { call.session.transaction.cost() } else { cost(command, call.arguments) };
    let Some(cost) = cost else { return Ok(None) };
    let refused = match eviction.admit(shared, cost) {
        Ok(admission) => return Ok(Some(admission)),
        Err(refused) => refused.to_string(),
    };
    // As in Redis, the transaction ends.
    Err(CommandError::Text(match is_exec {
        true => {
            call.session.transaction = transactions::State::default();
            format!("EXECABORT Transaction discarded because of: {refused}")
        }
        false => refused,
    }))
}

/// The reason why the user of the connection may not run the command.
fn denied(command: &Command, call: &Call<'_>) -> Option<CommandError> {
    let user = call.session.user.as_ref()?;
    let denied = user.check(command, call.arguments).err()?;
    let peer = &call.session.client.peer;
    let why = format!("the user {} may not run {}, or not with its keys", user.name, command.name);
    call.shared.refuse(Class::Permission, peer, &why);
    let (reason, object) = match &denied {
        Denied::Command(name) => (Reason::Command, name.clone()),
        Denied::Key => {
            let key = user.denied_key(command, call.arguments).unwrap_or_default();
            (Reason::Key, String::from_utf8_lossy(key).into_owned())
        }
        Denied::Channel => {
            let channel = user.denied_channel(command, call.arguments).unwrap_or_default();
            (Reason::Channel, String::from_utf8_lossy(channel).into_owned())
        }
    };
    acl::note_denial(call, reason, object, user.name.clone());
    Some(CommandError::Text(denied.to_string()))
}

/// True if the number of arguments (with the name) fits the arity.
#[must_use]
pub fn arity_fits(arity: i64, arguments: usize) -> bool {
    let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
    if arity < 0 { arguments >= -arity } else { arguments == arity }
}

fn is_long(command: &Command, call: &Call<'_>) -> bool {
    command.flags.has(Flags::SLOW)
        || command.flags.has(Flags::AT_ONCE) && call.session.transaction.is_long()
        || call.arguments.len() > 64
        || call.arguments.iter().map(Bytes::len).sum::<usize>() > INLINE_BYTES_MAX
}

/// Runs `work` while other tasks of the runtime go on, if the runtime is multi-threaded. Tokio then moves them to another thread.
pub(crate) fn off_the_worker<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

fn unknown(arguments: &[Bytes]) -> CommandError {
    let cut =
        |bytes: &[u8], length: usize| String::from_utf8_lossy(&bytes[..bytes.len().min(length)]).into_owned();
    let mut rest = String::new();
    for argument in &arguments[1..] {
        if rest.len() >= 128 {
            break;
        }
        rest += &format!("'{}' ", cut(argument, 128 - rest.len()));
    }
    let name = cut(&arguments[0], 128);
    CommandError::Text(format!("ERR unknown command '{name}', with args beginning with: {rest}"))
}

/// Parses an integer as Redis does: no sign `+`, no leading zeros, no spaces.
///
/// # Errors
/// `NotInteger`.
pub fn integer(text: &[u8]) -> Result<i64, CommandError> {
    let plain = match text {
        [b'0'] => true,
        [b'-', b'1'..=b'9', rest @ ..] | [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let number = std::str::from_utf8(text).ok().filter(|_| plain).and_then(|text| text.parse().ok());
    number.ok_or(CommandError::NotInteger)
}

/// Parses a number of elements to remove.
///
/// # Errors
/// It is no number, or negative.
pub fn count(text: &[u8]) -> Result<u64, CommandError> {
    let count = integer(text).ok().and_then(|count| u64::try_from(count).ok());
    count.ok_or_else(|| CommandError::Text("ERR value is out of range, must be positive".to_owned()))
}

/// True if an argument is this word, in any case.
#[must_use]
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Adds the counts of a session to those of the server.
pub fn flush_counts(shared: &Shared, session: &mut SessionState) {
    let counters = &shared.counters;
    let pairs = [
        (&mut session.commands, &counters.commands),
        (&mut session.errors, &counters.errors),
        (&mut session.hits, &counters.hits),
        (&mut session.misses, &counters.misses),
    ];
    for (count, counter) in pairs {
        if *count > 0 {
            counter.fetch_add(std::mem::take(count), Ordering::Relaxed);
        }
    }
}
