//! MULTI, EXEC, DISCARD, WATCH, UNWATCH: commands that take effect together.
//!
//! After MULTI the session queues commands ([`queue`]). EXEC runs them in a [`Transaction`]: they see their own writes, and after a crash
//! all of their writes are present or none is. If another client changes a key that they read, they run again, at most [`ATTEMPTS`] times
//! in all. No client sees the effects of an earlier run.
//!
//! After WATCH, EXEC changes nothing and returns null if one of the keys was written or has expired meanwhile ([`crate::watch`]).
//!
//! Invariants:
//! * I1: if a command could not be queued (unknown, a wrong number of arguments, not allowed here), EXEC runs none of the others.
//! * I2: an error of a queued command is its reply. The other commands take effect, as in Redis.

use std::sync::Arc;

use bristlecone::transaction::ATTEMPTS;
use bristlecone::{Bytes, Transaction};

use super::{Call, Command, CommandError, Flags, Handler, INLINE_BYTES_MAX, NO_KEYS, functions, run_in};
use crate::access::Access;
use crate::eviction::cost;
use crate::notifications::Events;
use crate::resp::Reply;
use crate::scripts::functions::Registry;
use crate::session::SessionState;
use crate::shared::Shared;
use crate::users::permissions;
use crate::watch::Watching;

const GROUP: &str = "transactions";

const fn command(name: &'static str, arity: i64, summary: &'static str, handler: Handler) -> Command {
    Command {
        name,
        arity,
        flags: Flags::FAST.and(Flags::AT_ONCE),
        keys: NO_KEYS,
        group: GROUP,
        summary,
        handler,
    }
}

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("multi", 1, "Begins a transaction: later commands are queued.", multi),
    command("exec", 1, "Runs the queued commands in one step.", exec),
    command("discard", 1, "Discards the queued commands.", discard),
    Command {
        keys: super::ALL_KEYS,
        ..command("watch", -2, "Lets the next EXEC fail if one of the keys changes before it.", watch)
    },
    Command {
        flags: Flags::FAST,
        ..command("unwatch", 1, "Forgets the watched keys.", |call| {
            call.session.transaction.watching = None;
            call.reply.ok();
            Ok(())
        })
    },
];

/// The transaction of a connection.
#[derive(Default)]
pub struct State {
    /// The queued commands. `None` outside of MULTI.
    queued: Option<Vec<Vec<bytes::Bytes>>>,
    /// Bytes of the queued commands, including the lists of arguments: many short commands take more memory than their text.
    bytes: usize,
    /// Expected cost of the queued commands that need memory ([`crate::eviction`]).
    cost: Option<u64>,
    /// True if a command could not be queued.
    is_aborted: bool,
    /// True if a queued command changes the libraries of functions.
    changes_functions: bool,
    /// While EXEC runs: true if nothing may take effect.
    is_void: bool,
    /// While EXEC runs: the libraries that its commands have changed.
    functions: Option<Arc<Registry>>,
    watching: Option<Watching>,
}

impl State {
    /// True between MULTI and EXEC.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.queued.is_some()
    }

    /// Expected cost of the queued commands that need memory. `None` if there are none.
    #[must_use]
    pub fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// Lets EXEC fail, because a command could not be queued (I1).
    pub fn abort(&mut self) {
        self.is_aborted |= self.is_open();
    }

    /// While EXEC runs: nothing may take effect, because a script was stopped that has written something.
    pub fn void(&mut self) {
        self.is_void = true;
    }

    /// True if EXEC may take long.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.changes_functions
            || self.bytes > INLINE_BYTES_MAX
            || self.queued.as_ref().is_some_and(|queued| queued.len() > 64)
    }

    /// While EXEC runs: the libraries that its commands have changed.
    #[must_use]
    pub fn functions(&self) -> Option<&Arc<Registry>> {
        self.functions.as_ref()
    }

    /// While EXEC runs: a command has changed the libraries.
    pub fn set_functions(&mut self, functions: Arc<Registry>) {
        self.functions = Some(functions);
    }

    /// True outside of MULTI and without watched keys.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.queued.is_none() && self.watching.is_none()
    }

    /// Bytes of memory that the transaction holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes + self.watching.as_ref().map_or(0, Watching::bytes)
    }
}

fn multi(call: &mut Call<'_>) -> Result<(), CommandError> {
    if call.session.transaction.is_open() {
        return Err(CommandError::Text("ERR MULTI calls can not be nested".to_owned()));
    }
    call.session.transaction.queued = Some(Vec::new());
    call.reply.ok();
    Ok(())
}

/// Queues a command of a transaction.
pub fn queue(call: &mut Call<'_>) {
    let command = call.shared.find(call.argument(0));
    let cost = command.and_then(|command| cost(command, call.arguments));
    let state = &mut call.session.transaction;
    state.changes_functions |= command.is_some_and(|command| functions::changes(command, call.arguments));
    if let Some(cost) = cost {
        state.cost = Some(state.cost.unwrap_or(0).saturating_add(cost));
    }
    let overhead = size_of::<Vec<bytes::Bytes>>() + size_of_val(call.arguments);
    state.bytes += overhead + call.arguments.iter().map(bytes::Bytes::len).sum::<usize>();
    state.queued.get_or_insert_default().push(call.arguments.to_vec());
    call.reply.simple("QUEUED");
}

fn discard(call: &mut Call<'_>) -> Result<(), CommandError> {
    if !call.session.transaction.is_open() {
        return Err(CommandError::Text("ERR DISCARD without MULTI".to_owned()));
    }
    call.session.transaction = State::default();
    call.reply.ok();
    Ok(())
}

fn watch(call: &mut Call<'_>) -> Result<(), CommandError> {
    if call.session.transaction.is_open() {
        return Err(CommandError::Text("ERR WATCH inside MULTI is not allowed".to_owned()));
    }
    let keys = call.rest(1);
    let (shared, access) = (call.shared, &mut call.keys);
    let watching = &mut call.session.transaction.watching;
    let watching = watching.get_or_insert_with(|| Watching::new(&shared.watches));
    watching.add(call.session.db, keys, |key| Ok::<_, CommandError>(access.deadline(key)?.flatten()))?;
    call.reply.ok();
    Ok(())
}

fn exec(call: &mut Call<'_>) -> Result<(), CommandError> {
    if !call.session.transaction.is_open() {
        return Err(CommandError::Text("ERR EXEC without MULTI".to_owned()));
    }
    let state = std::mem::take(&mut call.session.transaction);
    let changing = state.changes_functions.then(|| call.shared.functions.begin_change());
    let result = run_all(call, state);
    drop(changing);
    // Messages and libraries remain if the transaction failed.
    call.session.events = Events::default();
    call.session.transaction.functions = None;
    result
}

/// Runs the queued commands in one step, if possible.
fn run_all(call: &mut Call<'_>, state: State) -> Result<(), CommandError> {
    let State { queued, is_aborted, watching, .. } = state;
    if is_aborted {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return Err(CommandError::Text(text.to_owned()));
    }
    let queued = queued.unwrap_or_default();
    run_together(call, watching.as_ref(), |call, transaction| {
        call.reply.array(queued.len());
        for arguments in &queued {
            run_queued(call, arguments, transaction);
            if std::mem::take(&mut call.session.transaction.is_void) {
                let text = "EXECABORT Transaction discarded because a script of it was stopped.";
                return Err(CommandError::Text(text.to_owned()));
            }
        }
        Ok(())
    })
}

/// Runs `work` in a transaction and commits it, at most [`ATTEMPTS`] times, until there is no conflict. If one of the watched keys has
/// changed, changes nothing and replies with null.
///
/// # Errors
/// Those of `work`, after which nothing is committed; too many conflicts; the errors of a commit.
pub fn run_together(
    call: &mut Call<'_>,
    watching: Option<&Watching>,
    mut work: impl FnMut(&mut Call<'_>, &mut Transaction<Bytes>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let (shared, db) = (call.shared, call.session.db);
    // A store without tables has no deadlines and no clock for them.
    let now = || shared.store.now().unwrap_or(0);
    for _ in 0..ATTEMPTS {
        // An attempt that met a conflict leaves nothing.
        call.reply.restart();
        call.session.db = db;
        call.session.events = Events::new(shared);
        call.session.transaction.functions = None;
        if watching.is_some_and(|watching| watching.is_broken(now())) {
            call.reply.null_array();
            return Ok(());
        }
        let mut transaction = Transaction::new(&call.shared.store);
        work(call, &mut transaction)?;
        let keys = shared.databases.written(&transaction);
        let libraries = call.session.transaction.functions.take();
        let libraries = libraries.map(|libraries| shared.functions.publish(libraries));
        if let Some(committed) = shared.watches.commit(watching, now, &keys, || transaction.commit())
            && committed?
        {
            if let Some(libraries) = libraries {
                libraries.finish(shared);
            }
            if let Some(turns) = call.keys.turns() {
                shared.waiters.wake(keys.iter().map(|(db, key)| (*db, &key[..])), turns);
            }
            call.session.events.send(shared);
            if !keys.is_empty() {
                shared.note_stored_write();
            }
            return Ok(());
        }
    }
    Err(bristlecone::Error::Conflict { attempts: ATTEMPTS }.into())
}

/// Runs a queued command. Its reply, even an error, is an element of EXEC's reply (I2).
fn run_queued(call: &mut Call<'_>, arguments: &[bytes::Bytes], transaction: &mut Transaction<Bytes>) {
    let room = call.reply.free_bytes();
    let reply = Reply::new(call.reply.output(), call.session.protocol, room);
    run_inside(call.session, call.shared, transaction, arguments, reply);
    let protocol = call.session.protocol;
    call.reply.set_protocol(protocol);
}

/// Runs a command in a transaction and writes its reply, which may be an error.
pub fn run_inside(
    session: &mut SessionState,
    shared: &Shared,
    transaction: &mut Transaction<Bytes>,
    arguments: &[bytes::Bytes],
    mut reply: Reply<'_>,
) {
    // Each command checks its arguments before it writes, but for the lengths of its keys: a wrong one would be noticed by the write.
    let command = shared.find(&arguments[0]);
    let mut keys = command.into_iter().flat_map(|command| permissions::keys(command, arguments));
    if let Some((_, key)) = keys.find(|(_, key)| !(1..=bristlecone::TABLE_KEY_BYTES_MAX).contains(&key.len()))
    {
        let error = bristlecone::Error::KeyLength { bytes: key.len() };
        session.errors += 1;
        return reply.error(&CommandError::from(error).to_string());
    }
    drop(keys);
    let mut events = std::mem::take(&mut session.events);
    let keys = Access::Transaction { transaction, shared, db: session.db, events: &mut events };
    run_in(&mut Call { arguments, reply, keys, session, shared });
    session.events = events;
}
