//! BLPOP and related commands: they wait until there is an element, at most for a time. [`waiting`](crate::waiting) has the rules.
//!
//! A command that finds nothing leaves [`Blocked`] in its session and writes no reply. The session runs it again when one of its keys was
//! written, and replies with null when its time is over. Between MULTI and EXEC a command does not wait.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::lists::{self, End, Numbered};
use super::{Call, Command, CommandError, Flags, Handler, KeyPositions, numbered, sorted_sets};
use crate::access::{Access, AccessError};
use crate::structures::Kind;
use crate::structures::scores::{format, number};

/// A command that waits.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// The arguments with which it runs again. The session sets them if the command does not.
    pub arguments: Vec<Bytes>,
    /// The keys.
    pub keys: Vec<Bytes>,
    /// The type of their values.
    pub kind: Kind,
    /// The end of the time. `None`: it waits for ever.
    pub until: Option<Instant>,
}

impl Blocked {
    /// The arguments of the command, which may have set others for the next run.
    pub fn remember(&mut self, arguments: Vec<Bytes>) {
        if self.arguments.is_empty() {
            self.arguments = arguments;
        }
    }
}

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    (group, keys): (&'static str, KeyPositions),
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags: flags.and(Flags::BLOCKS), keys, group, summary, handler }
}

const LIST: &str = "list";
const SORTED_SET: &str = "sorted-set";
const MOVE: Flags = Flags::WRITE.and(Flags::GROWS);
/// All arguments but the last one are keys.
const KEYS: KeyPositions = (1, -2, 1);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command(
        "blpop",
        -3,
        Flags::WRITE,
        (LIST, KEYS),
        "Waits for an element and removes the first one.",
        |call| pop(call, End::Left),
    ),
    command(
        "brpop",
        -3,
        Flags::WRITE,
        (LIST, KEYS),
        "Waits for an element and removes the last one.",
        |call| pop(call, End::Right),
    ),
    command("blmpop", -5, Flags::WRITE, (LIST, numbered(2, 0)), "Waits for elements, as LMPOP.", |call| {
        let until = until(call, 1)?;
        let keys = Numbered::parse(call, 2)?;
        let (end, count) = lists::pop_options(call.rest(3 + keys.count))?;
        let keys = keys.of(call);
        first_of(call, keys, (until, Kind::List), |call, key| {
            let Some(values) = lists::pop_from(call, key, end, count)? else { return Ok(false) };
            lists::reply_popped(call, Some((key, values)))?;
            Ok(true)
        })
    }),
    command("blmove", 6, MOVE, (LIST, (1, 2, 1)), "Waits for an element and moves it, as LMOVE.", |call| {
        let ends = (End::parse(call.argument(3))?, End::parse(call.argument(4))?);
        let until = until(call, 5)?;
        move_one(call, ends, until)
    }),
    command(
        "brpoplpush",
        4,
        MOVE,
        (LIST, (1, 2, 1)),
        "Waits for an element and moves it, as RPOPLPUSH.",
        |call| {
            let until = until(call, 3)?;
            move_one(call, (End::Right, End::Left), until)
        },
    ),
    command(
        "bzpopmin",
        -3,
        Flags::WRITE.and(Flags::FAST),
        (SORTED_SET, KEYS),
        "Waits for a member and removes the one with the lowest score.",
        |call| pop_scored(call, false),
    ),
    command(
        "bzpopmax",
        -3,
        Flags::WRITE.and(Flags::FAST),
        (SORTED_SET, KEYS),
        "Waits for a member and removes the one with the highest score.",
        |call| pop_scored(call, true),
    ),
    command(
        "bzmpop",
        -5,
        Flags::WRITE,
        (SORTED_SET, numbered(2, 0)),
        "Waits for members, as ZMPOP.",
        |call| {
            let until = until(call, 1)?;
            let keys = Numbered::parse(call, 2)?;
            let (from_highest, count) = sorted_sets::pop_options(call.rest(3 + keys.count))?;
            let keys = keys.of(call);
            first_of(call, keys, (until, Kind::SortedSet), |call, key| {
                let Some(members) = sorted_sets::pop_from(call, key, from_highest, count)? else {
                    return Ok(false);
                };
                sorted_sets::reply_popped(call, Some((key, members)));
                Ok(true)
            })
        },
    ),
];

/// The end of the time in an argument, in seconds.
fn until(call: &Call<'_>, at: usize) -> Result<Option<Instant>, CommandError> {
    let text = |text: &str| CommandError::Text(text.to_owned());
    let seconds =
        number(call.argument(at)).map_err(|_| text("ERR timeout is not a float or out of range"))?;
    if seconds < 0.0 {
        return Err(text("ERR timeout is negative"));
    }
    if seconds == 0.0 {
        return Ok(None);
    }
    let time = Duration::try_from_secs_f64(seconds).ok().and_then(|time| Instant::now().checked_add(time));
    time.map(Some).ok_or_else(|| text("ERR timeout is out of range"))
}

/// Calls `take` with each key for which this client is the first to wait, until `take` has replied. If no key has an element, the client
/// waits.
fn first_of<'a>(
    call: &mut Call<'a>,
    keys: &'a [Bytes],
    (until, kind): (Option<Instant>, Kind),
    mut take: impl FnMut(&mut Call<'a>, &'a [u8]) -> Result<bool, CommandError>,
) -> Result<(), CommandError> {
    let (db, may_wait) = (call.keys.db(), matches!(call.keys, Access::Store { .. }));
    for key in keys {
        let own = call.session.waiting.as_deref();
        let is_again = own.is_some();
        if may_wait && !call.shared.waiters.is_turn(db, key, kind, own) {
            continue;
        }
        match take(call, key) {
            Ok(false) => {}
            Ok(true) => return Ok(()),
            // Since the first run the key was replaced by another type. The command waits for its own. The target of BLMOVE is another case.
            Err(CommandError::Access(AccessError::WrongType))
                if is_again && matches!(call.keys.head(key, kind), Err(AccessError::WrongType)) => {}
            Err(error) => return Err(error),
        }
    }
    if may_wait {
        call.session.blocked =
            Some(Box::new(Blocked { arguments: Vec::new(), keys: keys.to_vec(), kind, until }));
    } else {
        call.reply.null_array();
    }
    Ok(())
}

/// The keys of BLPOP: all arguments but the timeout, which is the last one.
fn keys_before_timeout<'a>(call: &Call<'a>) -> (&'a [Bytes], usize) {
    let last = call.arguments.len() - 1;
    (&call.arguments[1..last], last)
}

fn pop(call: &mut Call<'_>, end: End) -> Result<(), CommandError> {
    let (keys, last) = keys_before_timeout(call);
    let until = until(call, last)?;
    first_of(call, keys, (until, Kind::List), |call, key| {
        let Some(values) = lists::pop_from(call, key, end, 1)? else { return Ok(false) };
        call.reply.array(2);
        call.reply.any_bulk(key);
        values.iter().for_each(|value| call.reply.any_bulk(value));
        Ok(true)
    })
}

fn pop_scored(call: &mut Call<'_>, from_highest: bool) -> Result<(), CommandError> {
    let (keys, last) = keys_before_timeout(call);
    let until = until(call, last)?;
    first_of(call, keys, (until, Kind::SortedSet), |call, key| {
        let Some(members) = sorted_sets::pop_from(call, key, from_highest, 1)? else { return Ok(false) };
        call.reply.array(3);
        call.reply.any_bulk(key);
        for (member, score) in members {
            call.reply.any_bulk(&member);
            call.reply.double_text(&format(score));
        }
        Ok(true)
    })
}

fn move_one(call: &mut Call<'_>, ends: (End, End), until: Option<Instant>) -> Result<(), CommandError> {
    if matches!(call.keys, Access::Transaction { .. }) {
        let value = lists::moved(call, ends)?;
        return call.reply_option(value.as_deref());
    }
    let keys = &call.arguments[1..2];
    first_of(call, keys, (until, Kind::List), |call, _| {
        let Some(value) = lists::moved(call, ends)? else { return Ok(false) };
        call.reply.any_bulk(&value);
        Ok(true)
    })
}
