//! DUMP and RESTORE: a value of any type as a string of bytes ([`crate::structures::dumps`]).

use super::{Call, Command, CommandError, Flags, ONE_KEY, integer, is};
use crate::notifications::Event;
use crate::structures::access::Structure;
use crate::structures::dumps::{self, Payload};

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "dump",
        arity: 2,
        flags: Flags::READ.and(Flags::SLOW),
        keys: ONE_KEY,
        group: "generic",
        summary: "Returns a value of any type as a payload for RESTORE.",
        handler: dump,
    },
    Command {
        name: "restore",
        arity: -4,
        flags: Flags::WRITE.and(Flags::GROWS).and(Flags::SLOW),
        keys: ONE_KEY,
        group: "generic",
        summary: "Stores the value of a payload of DUMP.",
        handler: restore,
    },
];

fn text(text: &str) -> CommandError {
    CommandError::Text(text.to_owned())
}

fn dump(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, bytes_max) = (call.argument(1), call.reply.free_bytes());
    let payload = call.keys.view(|view| dumps::dump(view, key, bytes_max))?;
    call.count_lookup(payload.is_some());
    call.reply_option(payload.as_deref())
}

/// The options of RESTORE.
#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
}

fn options(call: &Call<'_>) -> Result<Options, CommandError> {
    let (mut found, mut idle, mut frequency) = (Options::default(), None, None);
    let mut rest = call.rest(4).iter();
    while let Some(option) = rest.next() {
        if is(option, "REPLACE") {
            found.replaces = true;
        } else if is(option, "ABSTTL") {
            found.is_absolute = true;
        } else if is(option, "IDLETIME") && frequency.is_none() {
            let seconds = integer(rest.next().ok_or(CommandError::Syntax)?)?;
            idle = Some(seconds);
            if seconds < 0 {
                return Err(text("ERR Invalid IDLETIME value, must be >= 0"));
            }
        } else if is(option, "FREQ") && idle.is_none() {
            let count = integer(rest.next().ok_or(CommandError::Syntax)?)?;
            frequency = Some(count);
            if !(0..=255).contains(&count) {
                return Err(text("ERR Invalid FREQ value, must be >= 0 and <= 255"));
            }
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(found)
}

fn restore(call: &mut Call<'_>) -> Result<(), CommandError> {
    let busy = || text("BUSYKEY Target key name already exists.");
    let options = options(call)?;
    let key = call.argument(1);
    if !options.replaces && call.keys.contains(key)? {
        return Err(busy());
    }
    let wrong_time = || text("ERR Invalid TTL value, must be >= 0");
    let time = u64::try_from(integer(call.argument(2))?).map_err(|_| wrong_time())?;
    // A store without tables has no clock and no deadlines.
    let now = if time > 0 { call.shared.store.now()? } else { 0 };
    let deadline = if options.is_absolute { time } else { time.saturating_add(now) };
    if i64::try_from(deadline).is_err() {
        return Err(wrong_time());
    }
    let deadline = (time > 0).then_some(deadline);
    let payload = dumps::parse(call.argument(3)).map_err(|refused| text(&refused.to_string()))?;
    let is_stored = match deadline {
        // The value has expired already.
        Some(deadline) if deadline <= now => {
            if call.keys.delete(key)? {
                call.keys.note(Event::DEL, key);
            }
            true
        }
        _ => store(call, &payload, deadline, options.replaces)?,
    };
    if !is_stored {
        return Err(busy());
    }
    call.reply.ok();
    Ok(())
}

/// Stores the value in one transaction. False if the key is in use and `replaces` is not set.
fn store(
    call: &mut Call<'_>,
    payload: &Payload<'_>,
    deadline: Option<u64>,
    replaces: bool,
) -> Result<bool, CommandError> {
    let (key, db, shared) = (call.argument(1), call.keys.db(), call.shared);
    let is_stored = call.keys.together(|all| {
        if !replaces && all.db(db)?.contains(key)? {
            return Ok(false);
        }
        match (payload.kind, payload.string()) {
            (Some(kind), _) => {
                let mut structure = Structure::replacing(all, db, key, kind)?;
                structure.set_deadline(deadline);
                payload.store(&mut structure, all)?;
                structure.finish(all, None)?;
            }
            (None, string) => all.db(db)?.put_stored(key, &string.unwrap_or_default(), deadline)?,
        }
        // As in Redis, a key that is replaced counts as new.
        all.events.note(Event::NEW, db, key);
        all.events.note(Event::generic("restore"), db, key);
        Ok(true)
    })?;
    if is_stored {
        shared.eviction.charge(payload.bytes());
        if payload.kind.is_some() && deadline.is_some() {
            shared.structures.garbage.note_deadline();
        }
    }
    Ok(is_stored)
}
