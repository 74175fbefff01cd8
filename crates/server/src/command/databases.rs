//! Commands on databases: SELECT, MOVE, SWAPDB, FLUSHDB, FLUSHALL, DBSIZE.
//!
//! Database 0 is the store's default table. Each other database is a table. The first command that needs this table makes it; usually this
//! command is a SELECT. A store that was made without tables ([`Options::tables`](bristlecone::Options::tables)) has only database 0.

use super::{Call, Command, CommandError, Flags, Handler, NO_KEYS, ONE_KEY, integer, is};
use crate::notifications::Event;
use crate::scripts::functions::TABLE;
use crate::shared::{DATABASES, lock};

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    group: &'static str,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys: NO_KEYS, group, summary, handler }
}

const FLUSH: Flags = Flags::WRITE.and(Flags::SLOW).and(Flags::ALONE);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("select", 2, Flags::FAST, "connection", "Chooses a database: 0 to 15.", select),
    Command {
        keys: ONE_KEY,
        ..command(
            "move",
            3,
            Flags::WRITE.and(Flags::FAST),
            "generic",
            "Moves a key to another database.",
            move_key,
        )
    },
    command("swapdb", 3, FLUSH, "server", "Exchanges two databases in one step.", swapdb),
    command(
        "dbsize",
        1,
        Flags::READ.and(Flags::FAST),
        "server",
        "Returns the number of keys of the database.",
        dbsize,
    ),
    command("flushdb", -1, FLUSH, "server", "Removes every key of the database.", |call| flush(call, false)),
    command("flushall", -1, FLUSH, "server", "Removes every key of every database.", |call| {
        flush(call, true)
    }),
];

/// The number of a database in an argument.
///
/// # Errors
/// `NotInteger`; there is no such database.
pub fn number(argument: &[u8]) -> Result<usize, CommandError> {
    let number = usize::try_from(integer(argument)?).ok().filter(|db| *db < DATABASES);
    number.ok_or_else(|| CommandError::Text("ERR DB index is out of range".to_owned()))
}

fn select(call: &mut Call<'_>) -> Result<(), CommandError> {
    let db = number(call.argument(1))?;
    // This makes the table.
    call.shared.databases.get(db)?;
    call.session.db = db;
    lock(&call.session.client.names).database = db;
    call.reply.ok();
    Ok(())
}

fn move_key(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, from, to) = (call.argument(1), call.keys.db(), number(call.argument(2))?);
    if from == to {
        return Err(CommandError::Text("ERR source and destination objects are the same".to_owned()));
    }
    let moved = call.keys.together(|all| {
        let Some((stored, deadline)) = all.db(from)?.stored(key)? else { return Ok(false) };
        if all.db(to)?.contains(key)? {
            return Ok(false);
        }
        all.db(from)?.delete_head(key)?;
        all.db(to)?.put_stored(key, &stored, deadline)?;
        all.events.note(Event::NEW, to, key);
        all.events.note(Event::generic("move_from"), from, key);
        all.events.note(Event::generic("move_to"), to, key);
        Ok(true)
    })?;
    call.reply.flag(moved);
    Ok(())
}

fn swapdb(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (one, other) = (number(call.argument(1))?, number(call.argument(2))?);
    let (first, second) = (call.shared.databases.get(one)?, call.shared.databases.get(other)?);
    if one != other {
        let swap = || call.shared.store.swap_tables(first.table_name(), second.table_name());
        call.shared.watches.clear(&[one, other], swap)?;
        if let Some(turns) = call.keys.turns() {
            call.shared.waiters.wake_all(turns);
        }
    }
    call.reply.ok();
    Ok(())
}

fn dbsize(call: &mut Call<'_>) -> Result<(), CommandError> {
    let added = call.keys.keys_added()?;
    let keys = call.shared.databases.get(call.keys.db())?.len().keys;
    call.reply.count(keys.saturating_add_signed(added));
    Ok(())
}

fn flush(call: &mut Call<'_>, all: bool) -> Result<(), CommandError> {
    match call.rest(1) {
        [] => {}
        [how] if is(how, "SYNC") || is(how, "ASYNC") => {}
        _ => return Err(CommandError::Syntax),
    }
    let db = call.keys.db();
    if all {
        let databases: Vec<_> = (0..DATABASES).collect();
        call.shared.watches.clear(&databases, || call.shared.store.clear_all_but(&[TABLE]))?;
    } else {
        let store = call.shared.databases.get(db)?;
        call.shared.watches.clear(&[db], || store.clear())?;
        call.shared.structures.garbage.want_pass();
    }
    if call.shared.waiters.count() > 0
        && let Some(turns) = call.keys.turns()
    {
        call.shared.waiters.wake_all(turns);
    }
    call.reply.ok();
    Ok(())
}
