//! Hashes: HSET, HGET and related commands. A field is an element with the tag [`FIELD`]; its value is the element's value.
//!
//! Fields are in the order of their bytes. Redis has no such promise.

use super::{Call, Command, CommandError, Flags, Handler, ONE_KEY, integer, is, numbers};
use crate::notifications::Event;
use crate::structures::Kind;
use crate::structures::access::{Structure, check_element, tagged};
use crate::structures::scan::{self, Picks};

/// The tag of a field.
pub const FIELD: u8 = b'f';

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys: ONE_KEY, group: "hash", summary, handler }
}

const READ: Flags = Flags::READ.and(Flags::FAST);
const READ_ALL: Flags = Flags::READ;
const PUT: Flags = Flags::WRITE.and(Flags::GROWS).and(Flags::FAST);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("hset", -4, PUT, "Sets fields of a hash; returns how many are new.", |call| {
        let new = set(call, "hset")?;
        call.reply.count(new);
        Ok(())
    }),
    command("hmset", -4, PUT, "Sets fields of a hash.", |call| {
        set(call, "hmset")?;
        call.reply.ok();
        Ok(())
    }),
    command("hsetnx", 4, PUT, "Sets a field of a hash only if it is absent.", setnx),
    command("hget", 3, READ, "Returns the value of a field.", get),
    command("hmget", -3, READ, "Returns the values of several fields.", mget),
    command("hgetall", 2, READ_ALL, "Returns all fields and values.", |call| all(call, Parts::Both)),
    command("hkeys", 2, READ_ALL, "Returns all fields.", |call| all(call, Parts::Fields)),
    command("hvals", 2, READ_ALL, "Returns the values of all fields.", |call| all(call, Parts::Values)),
    command("hdel", -3, Flags::WRITE.and(Flags::FAST), "Removes fields; returns how many were there.", del),
    command("hexists", 3, READ, "Returns 1 if a field is there.", exists),
    command("hlen", 2, READ, "Returns the number of fields.", |call| scan::reply_len(call, Kind::Hash)),
    command("hstrlen", 3, READ, "Returns the length of a field's value in bytes.", strlen),
    command("hincrby", 4, PUT, "Adds to a number in a field.", add),
    command("hincrbyfloat", 4, PUT, "Adds to a floating-point number in a field.", add_float),
    command("hscan", -3, READ_ALL, "Goes through the fields in order. Options: MATCH, COUNT.", |call| {
        scan::reply(call, Kind::Hash, FIELD, true)
    }),
    command(
        "hrandfield",
        -2,
        READ_ALL,
        "Returns any fields; not all are equally likely. Options: a count, WITHVALUES.",
        any,
    ),
];

/// Sets pairs of a field and a value. Returns the number of new fields.
fn set(call: &mut Call<'_>, name: &str) -> Result<u64, CommandError> {
    let pairs = call.rest(2).chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(CommandError::Arity(name.to_owned()));
    }
    pairs.clone().try_for_each(|pair| check_element(&pair[0], &pair[1]))?;
    let (db, key) = (call.keys.db(), call.argument(1));
    Ok(call.keys.together(|all| {
        let mut hash = Structure::find_or_new(all, db, key, Kind::Hash)?;
        let before = hash.head.count;
        for pair in pairs.clone() {
            let is_new = !hash.has(all, FIELD, &pair[0])?;
            hash.put(all, FIELD, &pair[0], &pair[1])?;
            hash.head.count += u64::from(is_new);
        }
        let new = hash.head.count - before;
        hash.finish(all, Event::HSET)?;
        Ok(new)
    })?)
}

fn setnx(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (field, value) = (call.argument(2), call.argument(3));
    check_element(field, value)?;
    let (db, key) = (call.keys.db(), call.argument(1));
    let is_new = call.keys.together(|all| {
        let mut hash = Structure::find_or_new(all, db, key, Kind::Hash)?;
        let is_new = !hash.has(all, FIELD, field)?;
        if is_new {
            hash.put(all, FIELD, field, value)?;
            hash.head.count += 1;
        }
        hash.finish(all, Event::HSET)?;
        Ok(is_new)
    })?;
    call.reply.flag(is_new);
    Ok(())
}

/// The value of the field that is the second argument.
fn value(call: &mut Call<'_>) -> Result<Option<Vec<u8>>, CommandError> {
    let found = call.keys.element(call.argument(1), Kind::Hash, FIELD, call.argument(2))?;
    call.count_lookup(found.is_some());
    Ok(found.and_then(|(_, value)| value))
}

fn get(call: &mut Call<'_>) -> Result<(), CommandError> {
    let value = value(call)?;
    call.reply_option(value.as_deref())
}

fn exists(call: &mut Call<'_>) -> Result<(), CommandError> {
    let value = value(call)?;
    call.reply.flag(value.is_some());
    Ok(())
}

fn strlen(call: &mut Call<'_>) -> Result<(), CommandError> {
    let value = value(call)?;
    call.reply.count(value.map_or(0, |value| value.len() as u64));
    Ok(())
}

fn mget(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, fields) = (call.argument(1), call.rest(2));
    let free_bytes = call.reply.free_bytes();
    let (is_there, values) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::Hash)? else { return Ok((false, vec![None; fields.len()])) };
        let (mut values, mut bytes) = (Vec::with_capacity(fields.len()), 0);
        for field in fields {
            let value = view.get(&head, FIELD, field)?;
            bytes += value.as_ref().map_or(0, Vec::len);
            values.push(value);
            if bytes > free_bytes {
                break;
            }
        }
        Ok((true, values))
    })?;
    call.count_lookup(is_there);
    call.reply.array(fields.len());
    values.iter().try_for_each(|value| call.reply_option(value.as_deref()))
}

/// The parts of a hash that a command returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    Both,
    Fields,
    Values,
}

fn all(call: &mut Call<'_>, parts: Parts) -> Result<(), CommandError> {
    let key = call.argument(1);
    let free_bytes = call.reply.free_bytes();
    let (is_there, pairs) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::Hash)? else { return Ok((false, Vec::new())) };
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        view.scan(tagged(&head, FIELD, b"", false), false, |field, value| {
            let field = if parts == Parts::Values { Vec::new() } else { field.to_vec() };
            let value = if parts == Parts::Fields { Vec::new() } else { value.to_vec() };
            bytes += field.len() + value.len();
            pairs.push((field, value));
            bytes <= free_bytes
        })?;
        Ok((true, pairs))
    })?;
    call.count_lookup(is_there);
    match parts {
        Parts::Both => call.reply.map(pairs.len()),
        Parts::Fields | Parts::Values => call.reply.array(pairs.len()),
    }
    for (field, value) in &pairs {
        if parts != Parts::Values {
            call.reply.bulk(field)?;
        }
        if parts != Parts::Fields {
            call.reply.bulk(value)?;
        }
    }
    Ok(())
}

fn del(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, fields) = (call.keys.db(), call.argument(1), call.rest(2));
    let removed = call.keys.together(|all| {
        let Some(mut hash) = Structure::find(all, db, key, Kind::Hash)? else { return Ok(0) };
        let before = hash.head.count;
        for field in fields {
            if hash.has(all, FIELD, field)? {
                hash.delete(all, FIELD, field)?;
                hash.head.count = hash.head.count.saturating_sub(1);
            }
        }
        let removed = before.saturating_sub(hash.head.count);
        hash.finish(all, Event::hash("hdel"))?;
        Ok(removed)
    })?;
    call.reply.count(removed);
    Ok(())
}

/// Replaces the value of a field in one step. `next` computes the new text from the old one.
fn change(
    call: &mut Call<'_>,
    event: Event,
    mut next: impl FnMut(Option<&[u8]>) -> Result<String, CommandError>,
) -> Result<String, CommandError> {
    let (db, key, field) = (call.keys.db(), call.argument(1), call.argument(2));
    check_element(field, b"")?;
    call.keys.together(|all| {
        let mut hash = Structure::find_or_new(all, db, key, Kind::Hash)?;
        let old = hash.get(all, FIELD, field)?;
        let new = match next(old.as_deref()) {
            Ok(new) => new,
            Err(error) => return Ok(Err(error)),
        };
        hash.put(all, FIELD, field, new.as_bytes())?;
        hash.head.count += u64::from(old.is_none());
        hash.finish(all, event)?;
        Ok(Ok(new))
    })?
}

fn add(call: &mut Call<'_>) -> Result<(), CommandError> {
    let amount = integer(call.argument(3))?;
    let mut sum = 0;
    change(call, Event::hash("hincrby"), |old| {
        let text = |text: &str| CommandError::Text(text.to_owned());
        let old = old.map_or(Ok(0), integer).map_err(|_| text("ERR hash value is not an integer"))?;
        let overflow = || text("ERR increment or decrement would overflow");
        sum = old.checked_add(amount).ok_or_else(overflow)?;
        Ok(sum.to_string())
    })?;
    call.reply.integer(sum);
    Ok(())
}

fn add_float(call: &mut Call<'_>) -> Result<(), CommandError> {
    let amount = numbers::float(call.argument(3))?;
    let sum = change(call, Event::hash("hincrbyfloat"), |old| {
        let text = |text: &str| CommandError::Text(text.to_owned());
        let old = old.map_or(Ok(0.0), numbers::float).map_err(|_| text("ERR hash value is not a float"))?;
        let sum = old + amount;
        if !sum.is_finite() {
            return Err(text("ERR increment would produce NaN or Infinity"));
        }
        Ok(sum.to_string())
    })?;
    Ok(call.reply.bulk(sum.as_bytes())?)
}

fn any(call: &mut Call<'_>) -> Result<(), CommandError> {
    let with_values = match call.rest(3) {
        [] => false,
        [option] if is(option, "WITHVALUES") => true,
        _ => return Err(CommandError::Syntax),
    };
    let picks = call.rest(2).first().map(|count| Picks::parse(count)).transpose()?;
    scan::reply_any(call, Kind::Hash, FIELD, picks, with_values)
}
