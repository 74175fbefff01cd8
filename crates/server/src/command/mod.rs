//! The commands: a table of name, arity, flags and handler, one file for each family.
//!
//! * [`strings`]: GET, SET and their kin, and the counters. * [`keys`]: DEL, EXISTS, SCAN, KEYS, RANGE …
//! * [`connection`]: PING, HELLO, CLIENT … * [`server`]: INFO, CONFIG, FLUSHDB, SHUTDOWN … * [`save`]: SAVE, BGSAVE, LASTSAVE. * [`introspect`]: COMMAND.
//!
//! Invariants
//! * I1: a handler writes exactly one reply, or returns an error, upon which what it wrote is taken back ([`run`]).
//! * I2: texts of errors that Redis has too are Redis's own: clients match on them.
//! * I3: a handler that may take long is marked [`Flags::SLOW`] and runs where it does not hold up other connections.
//!
//! MSET and MSETNX are one batch: a crash leaves all of it or nothing, and readers see all or nothing. The keys of DEL and UNLINK
//! are removed one after another: after a crash in the middle of it some may be gone and others not. All of them are durable
//! before it is answered.

pub mod connection;
pub mod introspect;
pub mod keys;
pub mod numbers;
pub mod save;
pub mod server;
pub mod strings;

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::resp::{Reply, reply::ReplyTooLong};
use crate::session::SessionState;
use crate::shared::{Shared, lock};

/// A command with more bytes than this is not run on a worker of the runtime.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// What a command is like; a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// Reads keys.
    pub const READ: Self = Self(1);
    /// Changes keys.
    pub const WRITE: Self = Self(2);
    /// Takes constant time, apart from the index.
    pub const FAST: Self = Self(4);
    /// May take long: looks at many keys.
    pub const SLOW: Self = Self(8);
    /// For who runs the server.
    pub const ADMIN: Self = Self(16);

    /// Both sets.
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

/// Where a command's keys are among its arguments: first, last (negative from the end), step; zeros for none.
pub type KeyPositions = (i64, i64, i64);
/// No keys.
pub const NO_KEYS: KeyPositions = (0, 0, 0);
/// One key, the first argument.
pub const ONE_KEY: KeyPositions = (1, 1, 1);
/// All arguments are keys.
pub const ALL_KEYS: KeyPositions = (1, -1, 1);

/// A command.
#[derive(Debug)]
pub struct Command {
    /// Its name in small letters.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i64,
    /// What it is like.
    pub flags: Flags,
    /// Where its keys are.
    pub keys: KeyPositions,
    /// Its family as Redis names it.
    pub group: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Runs it.
    pub handler: Handler,
}

/// What runs a command.
pub type Handler = fn(&mut Call<'_>) -> Result<(), CommandError>;

/// A command being run.
pub struct Call<'a> {
    /// Name and arguments; their number fits the command's arity.
    pub arguments: &'a [Bytes],
    /// Where the answer goes.
    pub reply: Reply<'a>,
    /// The connection.
    pub session: &'a mut SessionState,
    /// The server.
    pub shared: &'a Shared,
}

impl<'a> Call<'a> {
    /// An argument that the arity promises.
    #[must_use]
    pub fn argument(&self, index: usize) -> &'a [u8] {
        &self.arguments[index]
    }

    /// The arguments from `index` on.
    #[must_use]
    pub fn rest(&self, index: usize) -> &'a [Bytes] {
        self.arguments.get(index..).unwrap_or_default()
    }

    /// Replies with the value of `key`, or a null.
    ///
    /// # Errors
    /// The store's; a reply that becomes too long.
    pub fn reply_value(&mut self, key: &[u8]) -> Result<(), CommandError> {
        let found = self.shared.store.get_into(key, &mut self.session.value)?;
        self.count_lookup(found);
        if found {
            self.reply.bulk(&self.session.value)?;
        } else {
            self.reply.null();
        }
        Ok(())
    }

    /// Replies with a value that was, or a null.
    ///
    /// # Errors
    /// A reply that becomes too long.
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

/// Why a command is answered with an error. Its text is the reply, code first.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The store refused.
    #[error("ERR {0}")]
    Store(#[from] bristlecone::Error),
    /// The answer is too long.
    #[error("ERR {0}")]
    Reply(#[from] ReplyTooLong),
    /// Options that do not fit together, or unknown ones.
    #[error("ERR syntax error")]
    Syntax,
    /// Not an integer, as argument or as value.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// Not a number.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// The wrong number of arguments; the command's name, `|`, and the subcommand's if it has one.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    /// No such subcommand.
    #[error("ERR unknown subcommand '{0}'. Try {1} HELP.")]
    Subcommand(String, &'static str),
    /// A part of Redis that is not here.
    #[error("ERR {0} is not supported yet: {1}")]
    Unsupported(String, &'static str),
    /// Anything else, code first.
    #[error("{0}")]
    Text(String),
}

/// All commands by name.
static COMMANDS: LazyLock<Vec<&'static Command>> = LazyLock::new(|| {
    let families = [
        strings::COMMANDS,
        numbers::COMMANDS,
        keys::COMMANDS,
        connection::COMMANDS,
        save::COMMANDS,
        server::COMMANDS,
        introspect::COMMANDS,
    ];
    let mut all: Vec<_> = families.into_iter().flatten().collect();
    all.sort_by_key(|command| command.name);
    all
});

/// All commands, in order of their names.
pub fn all() -> &'static [&'static Command] {
    &COMMANDS
}

/// The command of this name, in whatever case.
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let found =
        all().binary_search_by(|command| command.name.bytes().cmp(name.iter().map(u8::to_ascii_lowercase)));
    found.ok().map(|index| all()[index])
}

/// Runs a command and writes its one reply to the end of `output`.
pub fn run(shared: &Shared, session: &mut SessionState, arguments: &[Bytes], output: &mut Vec<u8>) {
    let bytes_max = shared.config.reply_bytes_max.min(shared.free_bytes());
    let protocol = session.protocol;
    let reply = Reply::new(output, protocol, bytes_max);
    let mut call = Call { arguments, reply, session, shared };
    session_command(&mut call);
}

/// Lets the processor bring in what commands of one key will read, all at once. (The writes among them are not made together:
/// after a crash a connection's keys are what some beginning of its commands left.)
pub fn prefetch(shared: &Shared, commands: &[Vec<Bytes>]) {
    let pays = |command: &Command| {
        command.keys == ONE_KEY && (shared.prefetches_writes || !command.flags.has(Flags::WRITE))
    };
    let one_key = |arguments: &&Vec<Bytes>| arguments.len() > 1 && find(&arguments[0]).is_some_and(pays);
    let keys: Vec<&[u8]> = commands
        .iter()
        .filter(|_| commands.len() > 1)
        .filter(one_key)
        .map(|arguments| &arguments[1][..])
        .collect();
    if keys.len() > 1 {
        shared.store.prefetch(&keys);
    }
}

fn session_command(call: &mut Call<'_>) {
    let name = call.argument(0);
    let result = match find(name) {
        None => Err(unknown(call.arguments)),
        Some(command) if !arity_fits(command.arity, call.arguments.len()) => {
            Err(CommandError::Arity(command.name.to_owned()))
        }
        Some(command) => {
            if call.session.command != command.name {
                call.session.command = command.name;
                lock(&call.session.client.names).command = command.name;
            }
            call.session.wrote |= command.flags.has(Flags::WRITE);
            if is_long(command, call) {
                off_the_worker(|| (command.handler)(call))
            } else {
                (command.handler)(call)
            }
        }
    };
    call.session.commands += 1;
    if let Err(error) = result {
        call.session.errors += 1;
        call.reply.restart();
        call.reply.error(&error.to_string());
    }
}

/// True if a number of arguments (name included) fits an arity.
#[must_use]
pub fn arity_fits(arity: i64, arguments: usize) -> bool {
    let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
    if arity < 0 { arguments >= -arity } else { arguments == arity }
}

fn is_long(command: &Command, call: &Call<'_>) -> bool {
    command.flags.has(Flags::SLOW)
        || (call.shared.slow_writes
            && (command.flags.has(Flags::WRITE)
                || command.flags.has(Flags::READ) && !call.shared.store.is_quiet()))
        || call.arguments.len() > 64
        || call.arguments.iter().map(Bytes::len).sum::<usize>() > INLINE_BYTES_MAX
}

/// Makes durable what commands changed.
///
/// # Errors
/// The store's: none of it is acknowledged then.
pub fn commit(shared: &Shared) -> bristlecone::Result<()> {
    if shared.slow_writes { off_the_worker(|| shared.store.commit()) } else { shared.store.commit() }
}

/// Lets the runtime's other tasks go on meanwhile, if there are several workers.
fn off_the_worker<T>(work: impl FnOnce() -> T) -> T {
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

/// An integer as Redis reads it: no sign `+`, no leading zeros, no blanks.
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

/// True if an argument is this word, in whatever case.
#[must_use]
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Adds a session's counts to the server's.
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
