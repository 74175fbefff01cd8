//! Commands on keys: presence, removal, scans and ranges.
//!
//! Invariants:
//! * I1: if the engine is ordered, SCAN and KEYS read only the range of keys that start with the pattern's literal prefix.
//! * I2: SCAN continues after the last key that it read. So every key that is present during the whole scan is returned exactly once.

use std::ops::Bound;

use super::databases;
use super::observe::help;
use super::{ALL_KEYS, Call, Command, CommandError, Flags, NO_KEYS, ONE_KEY, integer, is};
use crate::glob;
use crate::notifications::Event;
use crate::shared::{Shared, lock};
use crate::structures;

const GROUP: &str = "generic";
const SCAN_COUNT_DEFAULT: u64 = 10;
const SCAN_COUNT_MAX: u64 = 1_000_000;

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    keys: super::KeyPositions,
    summary: &'static str,
    handler: super::Handler,
) -> Command {
    Command { name, arity, flags, keys, group: GROUP, summary, handler }
}

const READ: Flags = Flags::READ.and(Flags::FAST);
const WALK: Flags = Flags::READ.and(Flags::SLOW).and(Flags::ALONE);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("del", -2, Flags::WRITE, ALL_KEYS, "Removes keys; returns how many were there.", del),
    command("unlink", -2, Flags::WRITE, ALL_KEYS, "The same as DEL.", del),
    command("exists", -2, READ, ALL_KEYS, "Returns how many of the keys are there.", exists),
    command("touch", -2, READ, ALL_KEYS, "The same as EXISTS.", exists),
    command("type", 2, READ, ONE_KEY, "Returns the type of a value, or \"none\" for an absent key.", kind),
    command("rename", 3, Flags::WRITE, (1, 2, 1), "Gives a key another name.", rename),
    command(
        "renamenx",
        3,
        Flags::WRITE,
        (1, 2, 1),
        "Gives a key another name if that one is free.",
        renamenx,
    ),
    command(
        "copy",
        -3,
        Flags::WRITE.and(Flags::GROWS),
        (1, 2, 1),
        "Copies a key. Options: DB, REPLACE.",
        copy,
    ),
    command("randomkey", 1, WALK, NO_KEYS, "Returns any key; not all are equally likely.", randomkey),
    command("object", -2, READ, (2, 2, 1), "Tells the encoding that Redis would use for a value.", object),
    command("keys", 2, WALK, NO_KEYS, "Returns the keys that match a pattern, in order.", keys),
    command(
        "scan",
        -2,
        WALK,
        NO_KEYS,
        "Goes through the keys, in order if the engine has one. Options: MATCH, COUNT, TYPE.",
        scan,
    ),
    command(
        "range",
        -3,
        WALK,
        NO_KEYS,
        "Returns keys and values between two bounds. Options: REV, LIMIT.",
        range,
    ),
];

fn del(call: &mut Call<'_>) -> Result<(), CommandError> {
    let removed = match call.rest(1) {
        keys if keys.len() == 1 || !call.shared.store.capabilities().atomic_batch => {
            let mut removed = 0;
            for key in keys {
                let was_there = call.keys.delete(key)?;
                if was_there {
                    call.keys.note(Event::DEL, key);
                }
                removed += u64::from(was_there);
            }
            removed
        }
        keys => {
            let db = call.keys.db();
            call.keys.together(|all| {
                let (mut transaction, mut removed) = (all.db(db)?, 0);
                for key in keys {
                    if transaction.contains(key)? {
                        transaction.delete(key)?;
                        transaction.note(Event::DEL, key);
                        removed += 1;
                    }
                }
                Ok(removed)
            })?
        }
    };
    call.reply.count(removed);
    Ok(())
}

fn no_such_key() -> CommandError {
    CommandError::Text("ERR no such key".to_owned())
}

/// Gives a key another name. `None` if the key is absent, false if `only_free` is set and the other name is in use.
fn moved(call: &mut Call<'_>, only_free: bool) -> Result<Option<bool>, CommandError> {
    let (from, to) = (call.argument(1), call.argument(2));
    let db = call.keys.db();
    let moved = call.keys.together(|all| {
        let mut keys = all.db(db)?;
        let Some((stored, deadline)) = keys.stored(from)? else { return Ok(None) };
        if only_free && keys.contains(to)? {
            return Ok(Some(false));
        }
        if from != to {
            keys.delete_head(from)?;
            keys.put_stored(to, &stored, deadline)?;
            // As in Redis, a key that is replaced counts as new.
            keys.note(Event::NEW, to);
            keys.note(Event::generic("rename_from"), from);
            keys.note(Event::generic("rename_to"), to);
            structures::access::rename(all, &stored, to)?;
        }
        Ok(Some(true))
    })?;
    Ok(moved)
}

fn rename(call: &mut Call<'_>) -> Result<(), CommandError> {
    moved(call, false)?.ok_or_else(no_such_key)?;
    call.reply.ok();
    Ok(())
}

fn renamenx(call: &mut Call<'_>) -> Result<(), CommandError> {
    let moved = moved(call, true)?.ok_or_else(no_such_key)?;
    call.reply.flag(moved);
    Ok(())
}

fn copy(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (from, to) = (call.argument(1), call.argument(2));
    let db = call.keys.db();
    let (mut replace, mut target) = (false, db);
    let mut options = call.rest(3).iter();
    while let Some(option) = options.next() {
        if is(option, "REPLACE") {
            replace = true;
        } else if is(option, "DB") {
            target = databases::number(options.next().ok_or(CommandError::Syntax)?)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if from == to && target == db {
        let text = "ERR source and destination objects are the same";
        return Err(CommandError::Text(text.to_owned()));
    }
    let shared = call.shared;
    let copied = call.keys.together(|all| {
        let Some((stored, deadline)) = all.db(db)?.stored(from)? else {
            all.db(db)?.note_read(from, false);
            return Ok(false);
        };
        if !replace && all.db(target)?.contains(to)? {
            return Ok(false);
        }
        let (stored, bytes) = structures::access::copy(all, stored, to)?;
        all.db(target)?.put_stored(to, &stored, deadline)?;
        all.events.note(Event::NEW, target, to);
        all.events.note(Event::generic("copy_to"), target, to);
        shared.eviction.charge(bytes);
        Ok(true)
    })?;
    call.reply.flag(copied);
    Ok(())
}

/// Returns the first key at or after a random position between the smallest and the largest key.
fn randomkey(call: &mut Call<'_>) -> Result<(), CommandError> {
    let store = call.shared.databases.get(call.keys.db())?;
    if !store.capabilities().ordered {
        let any = store.walk().next().transpose()?;
        return call.reply_option(any.as_ref().map(|(key, _)| &key[..]));
    }
    let (Some((low, _)), Some((high, _))) = (store.first()?, store.last()?) else {
        call.reply.null();
        return Ok(());
    };
    let found =
        store.scan(structures::scan::between(&low, &high)..).next().transpose()?.map_or(high, |(key, _)| key);
    Ok(call.reply.bulk(&found)?)
}

/// Values of at most this length have the encoding `embstr`.
const EMBEDDED_BYTES_MAX: usize = 44;

const OBJECT_HELP: [&str; 6] = [
    "OBJECT <subcommand> [<arg>]. Subcommands:",
    "ENCODING <key>: the encoding that Redis would use for the value.",
    "FREQ <key>: how often the key is used, on a logarithmic scale, under an LFU policy.",
    "IDLETIME <key>: the seconds since the last use of the key.",
    "REFCOUNT <key>: 1.",
    "HELP: this text.",
];

fn object(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    match (subcommand.as_str(), call.rest(2)) {
        ("encoding", [key]) => {
            let found = call.keys.stored_into(key, &mut call.session.value)?;
            let value = &call.session.value;
            if !found {
                call.reply.null();
            } else if let Some(head) = structures::head_of(value) {
                call.reply.text(head.encoding());
            } else if integer(value).is_ok() {
                call.reply.text("int");
            } else if value.len() <= EMBEDDED_BYTES_MAX {
                call.reply.text("embstr");
            } else {
                call.reply.text("raw");
            }
        }
        ("refcount" | "idletime" | "freq", [key]) => {
            if !call.keys.contains(key)? {
                call.reply.null();
                return Ok(());
            }
            let number = match subcommand.as_str() {
                "idletime" => idle_seconds(call, key)?,
                "freq" => frequency(call, key)?,
                _ => 1,
            };
            call.reply.count(number);
        }
        ("help", []) => help(call, &OBJECT_HELP),
        ("encoding" | "help" | "refcount" | "idletime" | "freq", _) => {
            return Err(CommandError::Arity(format!("object|{subcommand}")));
        }
        _ => {
            let name = String::from_utf8_lossy(call.argument(1)).chars().take(128).collect();
            return Err(CommandError::Subcommand(name, "OBJECT"));
        }
    }
    Ok(())
}

const SWITCHING: &str = "Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// Seconds since the latest access to a key that is present. If the table of accesses does not know the key, seconds since the table was
/// made. 0 if there is no such table.
fn idle_seconds(call: &Call<'_>, key: &[u8]) -> Result<u64, CommandError> {
    let eviction = &call.shared.eviction;
    if eviction.policy().is_lfu() {
        let text = format!("ERR An LFU maxmemory policy is selected, idle time not tracked. {SWITCHING}");
        return Err(CommandError::Text(text));
    }
    let Some(accesses) = eviction.accesses() else { return Ok(0) };
    let found = accesses.find(call.keys.db(), key);
    Ok(found.map_or_else(|| accesses.age(), |access| access.idle).as_secs())
}

/// The counter of accesses to a key.
fn frequency(call: &Call<'_>, key: &[u8]) -> Result<u64, CommandError> {
    let eviction = &call.shared.eviction;
    if !eviction.policy().is_lfu() {
        let text =
            format!("ERR An LFU maxmemory policy is not selected, access frequency not tracked. {SWITCHING}");
        return Err(CommandError::Text(text));
    }
    let found = eviction.accesses().and_then(|accesses| accesses.find(call.keys.db(), key));
    Ok(found.map_or(0, |access| access.count.into()))
}

fn exists(call: &mut Call<'_>) -> Result<(), CommandError> {
    let mut there = 0;
    for key in call.rest(1) {
        let found = call.keys.contains(key)?;
        call.keys.note_read(key, found);
        call.count_lookup(found);
        there += u64::from(found);
    }
    call.reply.count(there);
    Ok(())
}

fn kind(call: &mut Call<'_>) -> Result<(), CommandError> {
    let found = call.keys.stored_into(call.argument(1), &mut call.session.value)?;
    call.keys.note_read(call.argument(1), found);
    let name = if found { structures::type_name(&call.session.value) } else { "none" };
    call.reply.simple(name);
    Ok(())
}

fn prefix_bounds(prefix: Vec<u8>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let high = glob::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix) }, high)
}

fn keys(call: &mut Call<'_>) -> Result<(), CommandError> {
    let pattern = call.argument(1);
    let store = call.shared.databases.get(call.keys.db())?;
    let mut scan = match store.capabilities().ordered {
        true => store.scan(prefix_bounds(glob::literal_prefix(pattern))),
        false => store.walk(),
    };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut count = 0;
    while scan.next_into(&mut key, &mut value)? {
        if glob::matches(pattern, &key) {
            call.reply.bulk(&key)?;
            count += 1;
        }
    }
    call.reply.array_since(0, count);
    Ok(())
}

/// Options of SCAN and of related commands.
#[derive(Debug)]
pub struct ScanOptions<'a> {
    /// MATCH.
    pub pattern: &'a [u8],
    /// COUNT.
    pub count: u64,
    /// TYPE: the type of the values.
    kind: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// The options in these arguments.
    ///
    /// # Errors
    /// `Syntax`, `NotInteger`.
    pub fn parse(arguments: &'a [bytes::Bytes], has_type: bool) -> Result<Self, CommandError> {
        let mut options = Self { pattern: b"*", count: SCAN_COUNT_DEFAULT, kind: None };
        let pairs = arguments.chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err(CommandError::Syntax);
        }
        for pair in pairs {
            if is(&pair[0], "MATCH") {
                options.pattern = &pair[1];
            } else if is(&pair[0], "COUNT") {
                let count = u64::try_from(integer(&pair[1])?).ok().filter(|&count| count > 0);
                options.count = count.ok_or(CommandError::Syntax)?.min(SCAN_COUNT_MAX);
            } else if has_type && is(&pair[0], "TYPE") {
                options.kind = Some(&pair[1]);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }
}

/// The number of a cursor in an argument.
///
/// # Errors
/// It is not a number.
pub fn cursor(argument: &[u8]) -> Result<u64, CommandError> {
    let cursor = std::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    cursor.ok_or_else(|| CommandError::Text("ERR invalid cursor".to_owned()))
}

/// The last key that a scan has read.
///
/// # Errors
/// The cursor is not known.
pub fn last_key(shared: &Shared, cursor: u64) -> Result<Vec<u8>, CommandError> {
    let last = lock(&shared.cursors).last_key(cursor).map(<[u8]>::to_vec);
    last.ok_or_else(|| {
        let text = format!("ERR cursor {cursor} is not known any more: start the SCAN again with cursor 0");
        CommandError::Text(text)
    })
}

fn scan(call: &mut Call<'_>) -> Result<(), CommandError> {
    let cursor = cursor(call.argument(1))?;
    let options = ScanOptions::parse(call.rest(2), true)?;
    let (mut low, high) = prefix_bounds(glob::literal_prefix(options.pattern));
    let mut behind = None;
    if cursor != 0 {
        let last = last_key(call.shared, cursor)?;
        if !matches!(&low, Bound::Included(prefix) if *prefix > last) {
            low = Bound::Excluded(last.clone());
        }
        behind = Some(last);
    }
    // A step ends early if its reply gets too long. The next step continues there.
    let answer_bytes_max = (call.shared.config.reply_bytes_max / 2).min(64 << 20);
    let (mut found, mut found_bytes) = (Vec::new(), 0);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut more = true;
    let store = call.shared.databases.get(call.keys.db())?;
    let mut scan = match (store.capabilities().ordered, behind) {
        (true, _) => store.scan((low, high)),
        (false, None) => store.walk(),
        (false, Some(last)) => store.walk_behind(&last),
    };
    for _ in 0..options.count {
        if !more || found_bytes > answer_bytes_max {
            break;
        }
        more = scan.next_into(&mut key, &mut value)?;
        let has_type = || options.kind.is_none_or(|kind| is(kind, structures::type_name(&value)));
        if more && glob::matches(options.pattern, &key) && has_type() {
            found_bytes += key.len();
            found.push(key.clone());
        }
    }
    let next = if more { lock(&call.shared.cursors).insert(key, cursor) } else { 0 };
    call.reply.array(2);
    call.reply.text(&next.to_string());
    call.reply.array(found.len());
    Ok(found.iter().try_for_each(|key| call.reply.bulk(key))?)
}

/// Parses a bound as ZRANGEBYLEX does, except that a key without prefix is included.
fn bound(text: &[u8]) -> Bound<Vec<u8>> {
    match text {
        b"-" | b"+" => Bound::Unbounded,
        [b'[', key @ ..] => Bound::Included(key.to_vec()),
        [b'(', key @ ..] => Bound::Excluded(key.to_vec()),
        key => Bound::Included(key.to_vec()),
    }
}

/// The position of a bound, as class and key. It ignores whether the key is included.
fn place(text: &[u8]) -> (u8, &[u8]) {
    match text {
        b"-" => (0, b""),
        b"+" => (2, b""),
        [b'[' | b'(', key @ ..] | key => (1, key),
    }
}

/// `RANGE start end [REV] [LIMIT n]`: pairs from `start` up to `end`. With REV from the greater bound down to the smaller one.
///
/// `-` is before all keys, `+` is after all keys. `[key` and `key` include the key, `(key` excludes it.
fn range(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (start, end) = (call.argument(1), call.argument(2));
    let (mut descending, mut limit) = (false, u64::MAX);
    let mut options = call.rest(3).iter();
    while let Some(option) = options.next() {
        if is(option, "REV") {
            descending = true;
        } else if is(option, "LIMIT") {
            let count = integer(options.next().ok_or(CommandError::Syntax)?)?;
            limit = u64::try_from(count).map_err(|_| CommandError::NotInteger)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let turned = descending && place(start) > place(end);
    let (low, high) = if turned { (end, start) } else { (start, end) };
    if low == b"+" || high == b"-" {
        call.reply.array(0);
        return Ok(());
    }
    let scan = call.shared.databases.get(call.keys.db())?.scan((bound(low), bound(high)));
    let mut scan = if descending { scan.descending() } else { scan };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut count = 0;
    for _ in 0..limit {
        if !scan.next_into(&mut key, &mut value)? {
            break;
        }
        call.reply.bulk(&key)?;
        match structures::decode(&value) {
            Ok(structures::Value::String(value)) => call.reply.bulk(value)?,
            _ => call.reply.null(),
        }
        count += 2;
    }
    call.reply.array_since(0, count);
    Ok(())
}
