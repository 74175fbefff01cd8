//! Consecutive commands of a pipeline that change structures, run in one transaction of the store.
//!
//! Such a command writes an element and a head, so it is an atomic batch of the store. A batch has a cost of its own: its record or its
//! images, and its lookups. Commands of one transaction share it, and their lookups overlap in the processor.
//!
//! Invariants:
//! * G1: the commands have the results that they have one after the other. The transaction is committed as a whole, so no other client sees a
//!   state that it could not see otherwise.
//! * G2: a crash keeps all commands of a group or none. So it keeps a prefix of a connection's commands, as without groups.
//! * G3: nothing is left of a group that was not committed: neither replies nor events nor counts. Its first command then runs alone, so a
//!   command that cannot be committed does not stop the others.
//! * G4: while clients wait for elements, there are no groups: a command that wakes a client is over only when that client has run
//!   ([`crate::waiting`], B3). A client that begins to wait while a group runs looks for its element after it has joined its queue, so it
//!   finds what the group has committed.

use std::time::Instant;

use bristlecone::Transaction;
use bytes::Bytes;

use super::client::Replies;
use super::subscriptions::is_confined;
use super::transactions::run_inside;
use super::{Command, Flags, arity_fits};
use crate::notifications::Events;
use crate::resp::Reply;
use crate::session::SessionState;
use crate::shared::Shared;
use crate::tracking::Tracker;

/// Maximum number of commands of a group, and of their bytes. The memory of a transaction grows with them.
const COMMANDS_MAX: usize = 64;
const BYTES_MAX: usize = 64 << 10;
/// Maximum number of arguments of a command. One with more is long, and runs alone.
const ARGUMENTS_MAX: usize = 16;
/// The groups of commands on structures.
const STRUCTURES: [&str; 5] = ["hash", "list", "set", "sorted-set", "stream"];

/// True if the command changes one structure in constant time.
fn is_change(shared: &Shared, arguments: &[Bytes]) -> bool {
    let changes = |command: &Command| {
        let (flags, others) = (command.flags, [Flags::ALONE, Flags::AT_ONCE, Flags::BLOCKS, Flags::SLOW]);
        flags.has(Flags::WRITE.and(Flags::FAST))
            && !others.into_iter().any(|other| flags.has(other))
            && STRUCTURES.contains(&command.group)
            && arity_fits(command.arity, arguments.len())
    };
    arguments.len() <= ARGUMENTS_MAX && shared.find(&arguments[0]).is_some_and(changes)
}

/// Runs the commands at the front of `commands` that change structures, if there are several, and writes their replies to `output`. Returns
/// their number; 0 if the first command has to run alone.
pub fn run(
    shared: &Shared,
    session: &mut SessionState,
    commands: &[Vec<Bytes>],
    output: &mut Vec<u8>,
) -> usize {
    let is_usual = session.replies == Replies::On
        && session.user.is_some()
        && session.transaction.is_none()
        && shared.waiters.count() == 0
        && shared.eviction.limit_bytes() == 0
        && !shared.has_monitors()
        && !shared.may_pause()
        && !is_confined(session);
    if !is_usual || commands.len() < 2 {
        return 0;
    }
    let mut bytes = 0;
    let is_next = |arguments: &&Vec<Bytes>| {
        bytes += arguments.iter().map(Bytes::len).sum::<usize>();
        bytes <= BYTES_MAX && is_change(shared, arguments)
    };
    let count = commands.iter().take(COMMANDS_MAX).take_while(is_next).count();
    if count < 2 {
        return 0;
    }
    let (start, started) = (output.len(), session.command_start);
    let counts = counts(session).map(|count| *count);
    let running = session.tracker.as_ref().map(Tracker::begin);
    let done = run_group(shared, session, &commands[..count], output);
    drop(running);
    session.events = Events::default();
    if done {
        let now = Instant::now();
        let duration = now.duration_since(started) / u32::try_from(count).unwrap_or(u32::MAX);
        shared.note_duration(&session.client, &commands[0], duration);
        session.command_start = now;
        return count;
    }
    output.truncate(start);
    self::counts(session).into_iter().zip(counts).for_each(|(count, before)| *count = before);
    0
}

/// The counts of errors, hits, misses and commands of a session.
fn counts(session: &mut SessionState) -> [&mut u64; 4] {
    [&mut session.errors, &mut session.hits, &mut session.misses, &mut session.commands]
}

/// Runs commands in a transaction and commits it. False if it was not committed.
fn run_group(
    shared: &Shared,
    session: &mut SessionState,
    commands: &[Vec<Bytes>],
    output: &mut Vec<u8>,
) -> bool {
    session.events = Events::new(shared);
    let reply_bytes_max = shared.reply_bytes_max(&session.client);
    let mut transaction = Transaction::new(&shared.store);
    for arguments in commands {
        let reply = Reply::new(output, session.protocol, reply_bytes_max);
        run_inside(session, shared, &mut transaction, arguments, reply);
    }
    let keys = shared.databases.written(&transaction);
    let committed = shared.watches.commit(None, || 0, &keys, || transaction.commit());
    if !matches!(committed, Some(Ok(true))) {
        return false;
    }
    shared.waiters.wake(keys.iter().map(|(db, key)| (*db, &key[..])), &mut session.turns);
    session.events.send(shared);
    shared.note_stored_write();
    true
}
