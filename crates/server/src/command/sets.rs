//! Sets: SADD, SMEMBERS and related commands. A member is an element with the tag `MEMBER` and no value.
//!
//! Members are in the order of their bytes. A union, an intersection or a difference reads its sets into memory, one after the other.

use std::collections::BTreeSet;

use super::lists::Numbered;
use super::{
    ALL_KEYS, Call, Command, CommandError, Flags, Handler, KeyPositions, ONE_KEY, integer, is, numbered,
};
use crate::access::{Result as Accessed, Together};
use crate::notifications::Event;
use crate::structures::Kind;
use crate::structures::access::{InTransaction, Structure, View, check_element, tagged};
use crate::structures::scan::{self, Picks};

/// The tag of a member.
const MEMBER: u8 = b'm';
/// If SPOP takes at least this many members and they are all, they become garbage instead of being removed one by one.
const REMOVED_TOGETHER: u64 = 64;

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    keys: KeyPositions,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys, group: "set", summary, handler }
}

const ADD: Flags = Flags::WRITE.and(Flags::GROWS).and(Flags::FAST);
const TAKE: Flags = Flags::WRITE.and(Flags::FAST);
const LOOK: Flags = Flags::READ.and(Flags::FAST);
const STORE: Flags = Flags::WRITE.and(Flags::GROWS);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("sadd", -3, ADD, ONE_KEY, "Adds members; returns how many are new.", add),
    command("srem", -3, TAKE, ONE_KEY, "Removes members; returns how many were there.", remove),
    command("sismember", 3, LOOK, ONE_KEY, "Returns 1 if a member is there.", is_member),
    command("smismember", -3, LOOK, ONE_KEY, "Returns 1 for each member that is there.", are_members),
    command("scard", 2, LOOK, ONE_KEY, "Returns the number of members.", |call| {
        scan::reply_len(call, Kind::Set)
    }),
    command("smembers", 2, Flags::READ, ONE_KEY, "Returns all members.", |call| {
        combine(call, &call.arguments[1..2], Operation::Union)
    }),
    command("spop", -2, TAKE, ONE_KEY, "Removes and returns any members; not all are equally likely.", pop),
    command(
        "srandmember",
        -2,
        Flags::READ,
        ONE_KEY,
        "Returns any members; not all are equally likely. Option: a count.",
        |call| {
            let picks = match call.rest(2) {
                [] => None,
                [count] => Some(Picks::parse(count)?),
                _ => return Err(CommandError::Syntax),
            };
            scan::reply_any(call, Kind::Set, MEMBER, picks, false)
        },
    ),
    command("smove", 4, TAKE, (1, 2, 1), "Moves a member from one set to another.", move_member),
    command(
        "sscan",
        -3,
        Flags::READ,
        ONE_KEY,
        "Goes through the members in order. Options: MATCH, COUNT.",
        |call| scan::reply(call, Kind::Set, MEMBER, false),
    ),
    command("sunion", -2, Flags::READ, ALL_KEYS, "Returns the members of any of the sets.", |call| {
        combine(call, call.rest(1), Operation::Union)
    }),
    command("sinter", -2, Flags::READ, ALL_KEYS, "Returns the members of all of the sets.", |call| {
        combine(call, call.rest(1), Operation::Intersection)
    }),
    command(
        "sdiff",
        -2,
        Flags::READ,
        ALL_KEYS,
        "Returns the members of the first set that are in no other.",
        |call| combine(call, call.rest(1), Operation::Difference),
    ),
    command("sunionstore", -3, STORE, ALL_KEYS, "Stores the union of sets.", |call| {
        store(call, Operation::Union)
    }),
    command("sinterstore", -3, STORE, ALL_KEYS, "Stores the intersection of sets.", |call| {
        store(call, Operation::Intersection)
    }),
    command("sdiffstore", -3, STORE, ALL_KEYS, "Stores the difference of sets.", |call| {
        store(call, Operation::Difference)
    }),
    command(
        "sintercard",
        -3,
        Flags::READ,
        numbered(1, 0),
        "Returns the number of members of all of the sets. Option: LIMIT.",
        count_common,
    ),
];

const SADD: Event = Event::set("sadd");
const SREM: Event = Event::set("srem");
const SPOP: Event = Event::set("spop");

fn add(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, members) = (call.keys.db(), call.argument(1), call.rest(2));
    members.iter().try_for_each(|member| check_element(member, b""))?;
    let new = call.keys.together(|all| {
        let mut set = Structure::find_or_new(all, db, key, Kind::Set)?;
        let before = set.head.count;
        for member in members {
            insert(&mut set, all, member)?;
        }
        let new = set.head.count - before;
        set.finish(all, SADD)?;
        Ok(new)
    })?;
    call.reply.count(new);
    Ok(())
}

/// Adds a member if it is not there.
fn insert(set: &mut Structure<'_>, all: &mut Together<'_>, member: &[u8]) -> Accessed<()> {
    if !set.has(all, MEMBER, member)? {
        set.put(all, MEMBER, member, b"")?;
        set.head.count += 1;
    }
    Ok(())
}

/// Removes a member. True if it was there.
fn take(set: &mut Structure<'_>, all: &mut Together<'_>, member: &[u8]) -> Accessed<bool> {
    let was_there = set.has(all, MEMBER, member)?;
    if was_there {
        set.delete(all, MEMBER, member)?;
        set.head.count = set.head.count.saturating_sub(1);
    }
    Ok(was_there)
}

fn remove(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, members) = (call.keys.db(), call.argument(1), call.rest(2));
    let removed = call.keys.together(|all| {
        let Some(mut set) = Structure::find(all, db, key, Kind::Set)? else { return Ok(0) };
        let mut removed = 0;
        for member in members {
            removed += u64::from(take(&mut set, all, member)?);
        }
        set.finish(all, SREM)?;
        Ok(removed)
    })?;
    call.reply.count(removed);
    Ok(())
}

fn is_member(call: &mut Call<'_>) -> Result<(), CommandError> {
    let found = call.keys.element(call.argument(1), Kind::Set, MEMBER, call.argument(2))?;
    call.count_lookup(found.is_some());
    call.reply.flag(found.is_some_and(|(_, member)| member.is_some()));
    Ok(())
}

fn are_members(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, members) = (call.argument(1), call.rest(2));
    let (is_there, flags) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::Set)? else { return Ok((false, vec![false; members.len()])) };
        let flags = members.iter().map(|member| Ok(view.get(&head, MEMBER, member)?.is_some()));
        Ok((true, flags.collect::<Accessed<Vec<_>>>()?))
    })?;
    call.count_lookup(is_there);
    call.reply.array(flags.len());
    flags.into_iter().for_each(|flag| call.reply.flag(flag));
    Ok(())
}

fn pop(call: &mut Call<'_>) -> Result<(), CommandError> {
    let count = match call.rest(2) {
        [] => None,
        [count] => Some(super::count(count)?),
        _ => return Err(CommandError::Syntax),
    };
    let (db, key) = (call.keys.db(), call.argument(1));
    let (mut fits, bytes_max) = (Ok(()), call.reply.free_bytes());
    let Call { keys, reply, .. } = call;
    let members = keys.together(|all| {
        let Some(mut set) = Structure::find(all, db, key, Kind::Set)? else { return Ok(None) };
        let members = match count {
            None => scan::any_of(&mut InTransaction(&set, all), &set.head, MEMBER)?.into_iter().collect(),
            Some(count) => {
                scan::different(&mut InTransaction(&set, all), &set.head, MEMBER, count, bytes_max)?
            }
        };
        fits = reply.check_space(members.iter().map(|(member, _)| member.len()).sum());
        if fits.is_err() {
            return Ok(None);
        }
        if members.len() as u64 == set.head.count && set.head.count >= REMOVED_TOGETHER {
            set.remove(all, SPOP)?;
            return Ok(Some(members));
        }
        for (member, _) in &members {
            take(&mut set, all, member)?;
        }
        set.finish(all, SPOP)?;
        Ok(Some(members))
    })?;
    fits?;
    match (count, members) {
        (None, members) => match members.as_ref().and_then(|members| members.first()) {
            Some((member, _)) => reply.any_bulk(member),
            None => reply.null(),
        },
        (Some(_), members) => {
            let members = members.unwrap_or_default();
            reply.set(members.len());
            members.iter().for_each(|(member, _)| reply.any_bulk(member));
        }
    }
    Ok(())
}

fn move_member(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, from, to, member) = (call.keys.db(), call.argument(1), call.argument(2), call.argument(3));
    check_element(member, b"")?;
    let moved = call.keys.together(|all| {
        let Some(mut source) = Structure::find(all, db, from, Kind::Set)? else { return Ok(false) };
        Structure::find(all, db, to, Kind::Set)?;
        if from == to {
            return source.has(all, MEMBER, member);
        }
        if !take(&mut source, all, member)? {
            return Ok(false);
        }
        source.finish(all, SREM)?;
        let mut target = Structure::find_or_new(all, db, to, Kind::Set)?;
        insert(&mut target, all, member)?;
        target.finish(all, SADD)?;
        Ok(true)
    })?;
    call.reply.flag(moved);
    Ok(())
}

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

impl Operation {
    /// The event of a key that holds the result.
    fn stored(self) -> Event {
        Event::set(match self {
            Self::Union => "sunionstore",
            Self::Intersection => "sinterstore",
            Self::Difference => "sdiffstore",
        })
    }
}

/// The members of the combined sets. `members_of` reads the set of a key; it is empty if the key is absent.
fn combined(
    keys: &[bytes::Bytes],
    operation: Operation,
    mut members_of: impl FnMut(&[u8]) -> Accessed<BTreeSet<Vec<u8>>>,
) -> Accessed<BTreeSet<Vec<u8>>> {
    let (first, others) =
        keys.split_first().map_or((&[][..], &[][..]), |(first, others)| (&first[..], others));
    let mut result = members_of(first)?;
    for key in others {
        // Every key is read, because one of them may have the wrong type.
        let other = members_of(key)?;
        match operation {
            Operation::Union => result.extend(other),
            Operation::Intersection => result.retain(|member| other.contains(member)),
            Operation::Difference => result.retain(|member| !other.contains(member)),
        }
    }
    Ok(result)
}

fn members_in(view: &mut View<'_>, key: &[u8]) -> Accessed<BTreeSet<Vec<u8>>> {
    let mut members = BTreeSet::new();
    if let Some(head) = view.find(key, Kind::Set)? {
        view.scan(tagged(&head, MEMBER, b"", false), false, |member, _| members.insert(member.to_vec()))?;
    }
    Ok(members)
}

fn combine(call: &mut Call<'_>, keys: &[bytes::Bytes], operation: Operation) -> Result<(), CommandError> {
    let members = call.keys.view(|view| combined(keys, operation, |key| members_in(view, key)))?;
    call.reply.set(members.len());
    Ok(members.iter().try_for_each(|member| call.reply.bulk(member))?)
}

fn store(call: &mut Call<'_>, operation: Operation) -> Result<(), CommandError> {
    let (db, target, keys) = (call.keys.db(), call.argument(1), call.rest(2));
    let shared = call.shared;
    let count = call.keys.together(|all| {
        let members = combined(keys, operation, |key| {
            let mut members = BTreeSet::new();
            match Structure::find(all, db, key, Kind::Set)? {
                Some(set) => {
                    let range = tagged(&set.head, MEMBER, b"", false);
                    set.scan(all, range, false, |member, _| members.insert(member.to_vec()))?;
                }
                None => all.events.note(Event::MISS, db, key),
            }
            Ok(members)
        })?;
        let mut set = Structure::replacing(all, db, target, Kind::Set)?;
        for member in &members {
            set.put(all, MEMBER, member, b"")?;
            shared.eviction.charge(member.len());
        }
        set.head.count = members.len() as u64;
        set.finish(all, operation.stored())?;
        Ok(members.len())
    })?;
    call.reply.count(count as u64);
    Ok(())
}

/// The keys of SINTERCARD, and its limit; 0 for none.
///
/// # Errors
/// `Syntax`; wrong numbers.
pub fn card_options<'a>(call: &Call<'a>) -> Result<(&'a [bytes::Bytes], u64), CommandError> {
    let text = |text: &str| CommandError::Text(text.to_owned());
    let numbered = Numbered::parse(call, 1).map_err(|error| match error {
        CommandError::Syntax => text("ERR Number of keys can't be greater than number of args"),
        other => other,
    })?;
    let limit = match call.rest(2 + numbered.count) {
        [] => 0,
        [option, limit] if is(option, "LIMIT") => {
            let limit = integer(limit).ok().and_then(|limit| u64::try_from(limit).ok());
            limit.ok_or_else(|| text("ERR LIMIT can't be negative"))?
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok((numbered.of(call), limit))
}

fn count_common(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (keys, limit) = card_options(call)?;
    let members =
        call.keys.view(|view| combined(keys, Operation::Intersection, |key| members_in(view, key)))?;
    let count = members.len() as u64;
    call.reply.count(if limit > 0 { count.min(limit) } else { count });
    Ok(())
}
