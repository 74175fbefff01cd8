//! Commands on strings: GET, SET and related ones.

use std::borrow::Cow;

use bristlecone::{Change, Deadline, Next};

use super::expiry::{Expiry, Unit};
use super::{ALL_KEYS, Call, Command, CommandError, Flags, ONE_KEY, is};
use crate::notifications::Event;

const GROUP: &str = "string";

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: 2,
        flags: Flags::READ.and(Flags::FAST),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Returns the value of a key.",
        handler: |call| call.reply_value(call.argument(1)),
    },
    Command {
        name: "set",
        arity: -3,
        flags: Flags::WRITE.and(Flags::GROWS),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Sets the value of a key. Options: NX, XX, GET, EX, PX, EXAT, PXAT, KEEPTTL.",
        handler: set,
    },
    Command {
        name: "setnx",
        arity: 3,
        flags: Flags::WRITE.and(Flags::GROWS).and(Flags::FAST),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Sets the value of a key only if it is absent.",
        handler: setnx,
    },
    Command {
        name: "setex",
        arity: 4,
        flags: Flags::WRITE.and(Flags::GROWS),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Sets the value of a key, and lets it expire after seconds.",
        handler: |call| set_after(call, "setex", Unit::Seconds),
    },
    Command {
        name: "psetex",
        arity: 4,
        flags: Flags::WRITE.and(Flags::GROWS),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Sets the value of a key, and lets it expire after milliseconds.",
        handler: |call| set_after(call, "psetex", Unit::Millis),
    },
    Command {
        name: "mget",
        arity: -2,
        flags: Flags::READ,
        keys: ALL_KEYS,
        group: GROUP,
        summary: "Returns the values of several keys.",
        handler: mget,
    },
    Command {
        name: "mset",
        arity: -3,
        flags: Flags::WRITE.and(Flags::GROWS),
        keys: (1, -1, 2),
        group: GROUP,
        summary: "Sets several keys in one step.",
        handler: mset,
    },
    Command {
        name: "msetnx",
        arity: -3,
        flags: Flags::WRITE.and(Flags::GROWS),
        keys: (1, -1, 2),
        group: GROUP,
        summary: "Sets several keys in one step if all of them are absent.",
        handler: msetnx,
    },
    Command {
        name: "getset",
        arity: 3,
        flags: Flags::WRITE.and(Flags::GROWS),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Sets the value of a key and returns the one before.",
        handler: getset,
    },
    Command {
        name: "getex",
        arity: -2,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Returns the value of a key, and changes its deadline. Options: EX, PX, EXAT, PXAT, PERSIST.",
        handler: getex,
    },
    Command {
        name: "getdel",
        arity: 2,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Removes a key and returns the value that it had.",
        handler: getdel,
    },
    Command {
        name: "strlen",
        arity: 2,
        flags: Flags::READ.and(Flags::FAST),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Returns the length of a value in bytes.",
        handler: strlen,
    },
    Command {
        name: "append",
        arity: 3,
        flags: Flags::WRITE.and(Flags::GROWS),
        keys: ONE_KEY,
        group: GROUP,
        summary: "Appends to a value, or sets it; returns the new length.",
        handler: append,
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

fn set(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, value) = (call.argument(1), call.argument(2));
    let (mut condition, mut get, mut keeps, mut expiry) = (Condition::Always, false, false, None);
    let mut options = call.rest(3).iter();
    while let Some(option) = options.next() {
        if is(option, "NX") && condition != Condition::IfPresent {
            condition = Condition::IfAbsent;
        } else if is(option, "XX") && condition != Condition::IfAbsent {
            condition = Condition::IfPresent;
        } else if is(option, "GET") {
            get = true;
        } else if is(option, "KEEPTTL") && expiry.is_none() {
            keeps = true;
        } else if !keeps
            && expiry.is_none()
            && let Some(found) = Expiry::option(option, options.as_slice().first().map(AsRef::as_ref))
        {
            expiry = Some(found);
            options.next();
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let deadline = expiry.map(|expiry| expiry.deadline(call, "set")).transpose()?;
    if condition == Condition::Always && !get && !keeps && deadline.is_none() {
        call.keys.put(key, value)?;
        call.keys.note(Event::SET, key);
        call.reply.ok();
        return Ok(());
    }
    let mut stored = false;
    let mut decide = |old: Option<Deadline>| {
        stored = match condition {
            Condition::Always => true,
            Condition::IfAbsent => old.is_none(),
            Condition::IfPresent => old.is_some(),
        };
        let kept = old.flatten().filter(|_| keeps);
        if stored { Next::Put(value.to_vec(), deadline.or(kept)) } else { Next::Keep }
    };
    if get {
        let before = exchange(call, |old| decide(old.map(|(_, deadline)| deadline)))?;
        note_set(call, key, stored, deadline);
        call.reply_option(before.as_deref())
    } else {
        call.keys.replace(key, decide)?;
        note_set(call, key, stored, deadline);
        if stored {
            call.reply.ok()
        } else {
            call.reply.null()
        }
        Ok(())
    }
}

/// Notes the events of a key that was stored, if it was.
fn note_set(call: &mut Call<'_>, key: &[u8], is_stored: bool, deadline: Deadline) {
    if is_stored {
        call.keys.note(Event::SET, key);
        if deadline.is_some() {
            call.keys.note(Event::EXPIRE, key);
        }
    }
}

/// SETEX and PSETEX: key, time, value.
fn set_after(call: &mut Call<'_>, name: &str, unit: Unit) -> Result<(), CommandError> {
    let (key, value) = (call.argument(1), call.argument(3));
    let deadline = Expiry::after(unit, call.argument(2)).deadline(call, name)?;
    call.keys.replace(key, |_| Next::Put(value.to_vec(), Some(deadline)))?;
    note_set(call, key, true, Some(deadline));
    call.reply.ok();
    Ok(())
}

fn setnx(call: &mut Call<'_>) -> Result<(), CommandError> {
    let stored = call.keys.put_if_absent(call.argument(1), call.argument(2))?;
    note_set(call, call.argument(1), stored, None);
    call.reply.flag(stored);
    Ok(())
}

fn mget(call: &mut Call<'_>) -> Result<(), CommandError> {
    // One call reads the state of one moment, so it sees all or none of an MSET. It passes one value at a time, so a reply that is too long
    // ends it.
    let keys: Vec<&[u8]> = call.rest(1).iter().map(AsRef::as_ref).collect();
    let Call { keys: access, reply, session, .. } = call;
    reply.array(keys.len());
    let mut outcome = Ok(());
    access.get_each(&keys, |value| {
        *(if value.is_some() { &mut session.hits } else { &mut session.misses }) += 1;
        match value {
            Some(value) => outcome = reply.bulk(&value),
            None => reply.null(),
        }
        outcome.is_ok()
    })?;
    Ok(outcome?)
}

fn mset(call: &mut Call<'_>) -> Result<(), CommandError> {
    set_all(call, "mset", false)?;
    call.reply.ok();
    Ok(())
}

fn msetnx(call: &mut Call<'_>) -> Result<(), CommandError> {
    let stored = set_all(call, "msetnx", true)?;
    call.reply.flag(stored);
    Ok(())
}

/// Sets all pairs of arguments in one step. False if `absent` is set and one of the keys is present.
fn set_all(call: &mut Call<'_>, name: &str, absent: bool) -> Result<bool, CommandError> {
    let pairs = call.rest(1).chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(CommandError::Arity(name.to_owned()));
    }
    let db = call.keys.db();
    let stored = call.keys.together(|all| {
        let mut keys = all.db(db)?;
        for pair in pairs.clone() {
            if absent && keys.contains(&pair[0])? {
                return Ok(false);
            }
        }
        for pair in pairs.clone() {
            keys.put(&pair[0], &pair[1])?;
            keys.note(Event::SET, &pair[0]);
        }
        Ok(true)
    })?;
    Ok(stored)
}

/// Changes a key in one step and returns the value that it had. If the reply has no space for this value, nothing changes.
fn exchange(
    call: &mut Call<'_>,
    mut decide: impl FnMut(Option<(&[u8], Deadline)>) -> Next<Vec<u8>>,
) -> Result<Option<Vec<u8>>, CommandError> {
    let (mut before, mut fits) = (None, Ok(()));
    let Call { keys, reply, arguments, .. } = call;
    keys.read_and_change(&arguments[1], |old| {
        fits = reply.check_space(old.map_or(0, |(value, _)| value.len()));
        if fits.is_err() {
            return Next::Keep;
        }
        before = old.map(|(value, _)| value.to_vec());
        decide(old)
    })?;
    fits?;
    Ok(before)
}

fn getset(call: &mut Call<'_>) -> Result<(), CommandError> {
    let value = call.argument(2);
    let before = exchange(call, |_| Next::Put(value.to_vec(), None))?;
    call.keys.note(Event::SET, call.argument(1));
    call.reply_option(before.as_deref())
}

fn getdel(call: &mut Call<'_>) -> Result<(), CommandError> {
    let before = exchange(call, |old| if old.is_some() { Next::Delete } else { Next::Keep })?;
    call.count_lookup(before.is_some());
    if before.is_some() {
        call.keys.note(Event::DEL, call.argument(1));
    }
    call.reply_option(before.as_deref())
}

fn getex(call: &mut Call<'_>) -> Result<(), CommandError> {
    let expiry = match call.rest(2) {
        [] => return call.reply_value(call.argument(1)),
        [option] if is(option, "PERSIST") => None,
        [option, argument] => Some(Expiry::option(option, Some(argument)).ok_or(CommandError::Syntax)?),
        _ => return Err(CommandError::Syntax),
    };
    let deadline = expiry.map(|expiry| expiry.deadline(call, "getex")).transpose();
    let now = call.shared.store.now()?;
    let mut event = None;
    let before = exchange(call, |old| {
        let (Some((value, old)), Ok(deadline)) = (old, &deadline) else { return Next::Keep };
        event = match deadline {
            // The deadline has passed.
            Some(deadline) if *deadline <= now => Some(Event::DEL),
            Some(_) => Some(Event::EXPIRE),
            None => old.map(|_| Event::PERSIST),
        };
        match event {
            Some(Event::DEL) => Next::Delete,
            _ if *deadline == old => Next::Keep,
            _ => Next::Put(value.to_vec(), *deadline),
        }
    })?;
    if let Some(event) = event {
        call.keys.note(event, call.argument(1));
    }
    call.count_lookup(before.is_some());
    // As in Redis, a wrong time is an error only if the key is present.
    if before.is_some() {
        deadline?;
    }
    call.reply_option(before.as_deref())
}

fn strlen(call: &mut Call<'_>) -> Result<(), CommandError> {
    let found = call.keys.get_into(call.argument(1), &mut call.session.value)?;
    call.count_lookup(found);
    call.reply.count(if found { call.session.value.len() as u64 } else { 0 });
    Ok(())
}

fn append(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, tail) = (call.argument(1), call.argument(2));
    let mut bytes = 0;
    call.keys.update(key, |old| {
        let old = old.unwrap_or_default();
        bytes = (old.len() + tail.len()) as u64;
        Change::Put(Cow::Owned([old, tail].concat()))
    })?;
    call.keys.note(Event::string("append"), key);
    call.reply.count(bytes);
    Ok(())
}
