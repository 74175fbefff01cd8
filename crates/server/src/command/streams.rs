//! Streams: XADD, XRANGE, XREAD and related commands. [`crate::structures::streams`] has their elements; [`super::stream_groups`] has groups
//! of consumers.
//!
//! XREAD with BLOCK waits as the commands of [`blocking`](super::blocking) do, but takes nothing away: a new entry wakes all clients that
//! wait.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::blocking::Blocked;
use super::{Call, Command, CommandError, Flags, Handler, KeyPositions, NO_KEYS, ONE_KEY, integer, is};
use crate::access::{Access, Result as Accessed, Together};
use crate::notifications::Event;
use crate::resp::{Protocol, Reply};
use crate::shared::unix_time;
use crate::structures::Kind;
use crate::structures::access::{InTransaction, Structure, check_element};
use crate::structures::streams::{
    ENTRY, Entry, Id, Limits, META, Meta, encode_fields, entries, first_ids, id_part, invalid_id,
};

pub(super) const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    keys: KeyPositions,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys, group: "stream", summary, handler }
}

const ADD: Flags = Flags::WRITE.and(Flags::GROWS).and(Flags::FAST);
/// The keys follow the word STREAMS ([`crate::users::permissions::keys`]).
pub(super) const STREAMS: KeyPositions = NO_KEYS;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("xadd", -5, ADD, ONE_KEY, "Adds an entry. Options: NOMKSTREAM, MAXLEN, MINID, LIMIT.", add),
    command("xlen", 2, Flags::READ.and(Flags::FAST), ONE_KEY, "Returns the number of entries.", length),
    command("xrange", -4, Flags::READ, ONE_KEY, "Returns entries by ID. Option: COUNT.", |call| {
        range(call, false)
    }),
    command(
        "xrevrange",
        -4,
        Flags::READ,
        ONE_KEY,
        "Returns entries in descending order. Option: COUNT.",
        |call| range(call, true),
    ),
    command("xdel", -3, Flags::WRITE.and(Flags::FAST), ONE_KEY, "Removes entries.", delete),
    command("xtrim", -4, Flags::WRITE, ONE_KEY, "Removes old entries: MAXLEN or MINID.", trim),
    command("xsetid", -3, ADD, ONE_KEY, "Sets the last ID. Options: ENTRIESADDED, MAXDELETEDID.", set_id),
    command(
        "xread",
        -4,
        Flags::READ.and(Flags::BLOCKS),
        STREAMS,
        "Returns entries behind IDs. Options: COUNT, BLOCK.",
        read,
    ),
];

pub(super) fn text(text: &str) -> CommandError {
    CommandError::Text(format!("ERR {text}"))
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}

/// Which entries are removed when a stream is trimmed.
#[derive(Clone, Copy, Debug)]
enum Keep {
    /// At most this number of entries stay.
    Newest(u64),
    /// Entries from this ID on stay.
    From(Id),
}

/// A trim, and how many entries it removes at most.
#[derive(Clone, Copy, Debug)]
struct Trim {
    keep: Keep,
    limit: u64,
}

/// Parses MAXLEN and MINID with their options. Returns the arguments behind them. With `~` Redis may keep more entries. Here the number is
/// exact.
const XTRIM: Event = Event::stream("xtrim");

fn parse_trim(arguments: &[Bytes]) -> Result<(Trim, &[Bytes]), CommandError> {
    let (name, mut rest) = arguments.split_first().ok_or(CommandError::Syntax)?;
    let mut is_about = false;
    if let [sign, after @ ..] = rest
        && !after.is_empty()
        && matches!(&sign[..], b"=" | b"~")
    {
        (is_about, rest) = (&sign[..] == b"~", after);
    }
    let (threshold, mut rest) = rest.split_first().ok_or(CommandError::Syntax)?;
    let keep = match is(name, "MAXLEN") {
        true => {
            let count = integer(threshold)?;
            let count = u64::try_from(count).map_err(|_| text("The MAXLEN argument must be >= 0."))?;
            Keep::Newest(count)
        }
        false => Keep::From(Id::parse(threshold, 0)?),
    };
    let mut limit = 0;
    if let [option, count, after @ ..] = rest
        && is(option, "LIMIT")
    {
        let count = integer(count)?;
        limit = u64::try_from(count).map_err(|_| text("The LIMIT argument must be >= 0."))?;
        if !is_about {
            return Err(text("syntax error, LIMIT cannot be used without the special ~ option"));
        }
        rest = after;
    }
    let limit = if limit == 0 { u64::MAX } else { limit };
    Ok((Trim { keep, limit }, rest))
}

/// Removes the entries that a trim does not keep. Returns their number.
fn apply_trim(
    stream: &mut Structure<'_>,
    all: &mut Together<'_>,
    meta: &mut Meta,
    trim: Trim,
) -> Accessed<u64> {
    let excess = match trim.keep {
        Keep::Newest(count) => meta.length.saturating_sub(count),
        Keep::From(_) => meta.length,
    };
    let last = match trim.keep {
        Keep::Newest(_) => Some(Id::MAX),
        Keep::From(id) => id.previous(),
    };
    let count = usize::try_from(excess.min(trim.limit)).unwrap_or(usize::MAX);
    let Some(last) = last else { return Ok(0) };
    let head = stream.head;
    let gone = first_ids(&mut InTransaction(stream, all), &head, last, count)?;
    for id in &gone {
        stream.delete(all, ENTRY, &id.bytes())?;
    }
    let removed = gone.len() as u64;
    meta.length = meta.length.saturating_sub(removed);
    Ok(removed)
}

/// The ID of a new entry, as XADD has it.
enum NewId {
    /// `*`
    Any,
    /// `ms-*`
    Of(u64),
    Exactly(Id),
}

impl NewId {
    fn parse(argument: &[u8]) -> Result<Self, CommandError> {
        match argument {
            b"*" => Ok(Self::Any),
            [ms @ .., b'-', b'*'] => Ok(Self::Of(id_part(ms)?)),
            exact => Ok(Self::Exactly(Id::parse(exact, 0)?)),
        }
    }

    /// The ID after those that the stream has had.
    fn after(&self, meta: &Meta) -> Result<Id, CommandError> {
        let last = meta.last;
        let small = || text("The ID specified in XADD is equal or smaller than the target stream top item");
        let full = || text("The stream has exhausted the last possible ID, unable to add more items");
        if last == Id::MAX {
            return Err(full());
        }
        match *self {
            Self::Any => {
                let id = Id { ms: now(), seq: 0 };
                if id.ms > last.ms { Ok(id) } else { last.next().ok_or_else(full) }
            }
            Self::Of(ms) if ms > last.ms => Ok(Id { ms, seq: 0 }),
            Self::Of(ms) if ms == last.ms => {
                last.seq.checked_add(1).map(|seq| Id { ms, seq }).ok_or_else(small)
            }
            Self::Of(_) => Err(small()),
            Self::Exactly(Id::MIN) => Err(text("The ID specified in XADD must be greater than 0-0")),
            Self::Exactly(id) if id > last => Ok(id),
            Self::Exactly(_) => Err(small()),
        }
    }
}

fn add(call: &mut Call<'_>) -> Result<(), CommandError> {
    let mut rest = call.rest(2);
    let (mut trim, mut makes) = (None, true);
    loop {
        rest = match rest {
            [option, after @ ..] if is(option, "NOMKSTREAM") => {
                makes = false;
                after
            }
            [option, ..] if is(option, "MAXLEN") || is(option, "MINID") => {
                if trim.is_some() {
                    return Err(CommandError::Syntax);
                }
                let (parsed, after) = parse_trim(rest)?;
                trim = Some(parsed);
                after
            }
            _ => break,
        };
    }
    let (id, fields) = rest.split_first().ok_or_else(|| CommandError::Arity("xadd".to_owned()))?;
    let id = NewId::parse(id)?;
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(CommandError::Arity("xadd".to_owned()));
    }
    let value = encode_fields(fields.iter().map(|field| &field[..]));
    check_element(b"", &value)?;
    let (db, key) = (call.keys.db(), call.argument(1));
    let added = call.keys.together(|all| {
        let mut stream = match Structure::find(all, db, key, Kind::Stream)? {
            Some(stream) => stream,
            None if !makes => return Ok(Ok(None)),
            None => Structure::find_or_new(all, db, key, Kind::Stream)?,
        };
        let mut meta = Meta::read(&stream, all)?;
        let id = match id.after(&meta) {
            Ok(id) => id,
            Err(error) => return Ok(Err(error)),
        };
        stream.put(all, ENTRY, &id.bytes(), &value)?;
        (meta.last, meta.added, meta.length) = (id, meta.added + 1, meta.length + 1);
        let trimmed = trim.map_or(Ok(0), |trim| apply_trim(&mut stream, all, &mut meta, trim))?;
        meta.write(&mut stream, all)?;
        stream.finish(all, Event::stream("xadd"))?;
        if trimmed > 0 {
            all.events.note(XTRIM, db, key);
        }
        Ok(Ok(Some(id)))
    })?;
    match added? {
        Some(id) => call.reply.text(&id.to_string()),
        None => call.reply.null(),
    }
    Ok(())
}

fn length(call: &mut Call<'_>) -> Result<(), CommandError> {
    let head = call.keys.head(call.argument(1), Kind::Stream)?;
    call.count_lookup(head.is_some());
    // The meta element is counted, too.
    call.reply.count(head.map_or(0, |head| head.count.saturating_sub(1)));
    Ok(())
}

/// A bound of a range: `-`, `+`, an ID, or an ID behind `(`. `None`: no ID is inside.
pub(super) fn bound(argument: &[u8], is_low: bool) -> Result<Option<Id>, CommandError> {
    let seq = if is_low { 0 } else { u64::MAX };
    match argument {
        b"-" => Ok(Some(Id::MIN)),
        b"+" => Ok(Some(Id::MAX)),
        [b'(', id @ ..] => {
            let id = Id::parse(id, seq)?;
            let inside = if is_low { id.next() } else { id.previous() };
            let place = if is_low { "start" } else { "end" };
            match inside {
                Some(inside) => Ok(Some(inside)),
                None => Err(text(&format!("invalid {place} ID for the interval"))),
            }
        }
        id => Id::parse(id, seq).map(Some),
    }
}

pub(super) fn reply_id(reply: &mut Reply<'_>, id: Id) {
    reply.text(&id.to_string());
}

/// An entry as an array of its ID and its fields.
pub(super) fn reply_entry(reply: &mut Reply<'_>, entry: &Entry) -> Result<(), CommandError> {
    reply_fields(reply, entry.id, Some(&entry.fields))
}

/// As [`reply_entry`]. Without fields, null takes their place.
pub(super) fn reply_fields(
    reply: &mut Reply<'_>,
    id: Id,
    fields: Option<&Vec<Vec<u8>>>,
) -> Result<(), CommandError> {
    reply.array(2);
    reply_id(reply, id);
    let Some(fields) = fields else {
        reply.null_array();
        return Ok(());
    };
    reply.array(fields.len());
    fields.iter().try_for_each(|field| Ok(reply.bulk(field)?))
}

pub(super) fn reply_entries(reply: &mut Reply<'_>, entries: &[Entry]) -> Result<(), CommandError> {
    reply.array(entries.len());
    entries.iter().try_for_each(|entry| reply_entry(reply, entry))
}

fn range(call: &mut Call<'_>, descending: bool) -> Result<(), CommandError> {
    let first = bound(call.argument(2), !descending)?;
    let second = bound(call.argument(3), descending)?;
    let (from, to) = if descending { (second, first) } else { (first, second) };
    let count = match call.rest(4) {
        [] => usize::MAX,
        [option, count] if is(option, "COUNT") => {
            let count = integer(count)?;
            usize::try_from(count.max(0)).unwrap_or(usize::MAX)
        }
        _ => return Err(CommandError::Syntax),
    };
    let (key, limits) = (call.argument(1), Limits { count, bytes: call.reply.free_bytes() });
    let (is_there, found) = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::Stream)? else { return Ok((false, Vec::new())) };
        let (Some(from), Some(to)) = (from, to) else { return Ok((true, Vec::new())) };
        Ok((true, entries(view, &head, (from, to), descending, limits)?))
    })?;
    call.count_lookup(is_there);
    if is_there && count == 0 {
        call.reply.null_array();
        return Ok(());
    }
    reply_entries(&mut call.reply, &found)
}

fn delete(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, ids) = (call.keys.db(), call.argument(1), call.rest(2));
    let removed = call.keys.together(|all| {
        let Some(mut stream) = Structure::find(all, db, key, Kind::Stream)? else { return Ok(Ok(0)) };
        let ids = match parse_ids(ids) {
            Ok(ids) => ids,
            Err(error) => return Ok(Err(error)),
        };
        let mut meta = Meta::read(&stream, all)?;
        let mut removed = 0;
        for id in &ids {
            if stream.get(all, ENTRY, &id.bytes())?.is_some() {
                stream.delete(all, ENTRY, &id.bytes())?;
                meta.deleted = meta.deleted.max(*id);
                removed += 1;
            }
        }
        if removed > 0 {
            meta.length = meta.length.saturating_sub(removed);
            meta.write(&mut stream, all)?;
        }
        stream.finish(all, Event::stream("xdel"))?;
        Ok(Ok(removed))
    })??;
    call.reply.count(removed);
    Ok(())
}

pub(super) fn parse_ids(arguments: &[Bytes]) -> Result<Vec<Id>, CommandError> {
    arguments.iter().map(|id| Id::parse(id, 0)).collect()
}

fn trim(call: &mut Call<'_>) -> Result<(), CommandError> {
    let name = call.argument(2);
    if !is(name, "MAXLEN") && !is(name, "MINID") {
        return Err(CommandError::Syntax);
    }
    let (trim, rest) = parse_trim(call.rest(2))?;
    if !rest.is_empty() {
        return Err(CommandError::Syntax);
    }
    let (db, key) = (call.keys.db(), call.argument(1));
    let removed = call.keys.together(|all| {
        let Some(mut stream) = Structure::find(all, db, key, Kind::Stream)? else { return Ok(0) };
        let mut meta = Meta::read(&stream, all)?;
        let removed = apply_trim(&mut stream, all, &mut meta, trim)?;
        if removed > 0 {
            meta.write(&mut stream, all)?;
        }
        stream.finish(all, XTRIM)?;
        Ok(removed)
    })?;
    call.reply.count(removed);
    Ok(())
}

fn set_id(call: &mut Call<'_>) -> Result<(), CommandError> {
    let id = Id::parse(call.argument(2), 0)?;
    let (mut added, mut deleted, mut rest) = (None, None, call.rest(3));
    while let [option, value, after @ ..] = rest {
        if is(option, "ENTRIESADDED") {
            let count = integer(value)?;
            let count = u64::try_from(count).map_err(|_| text("entries_added must be positive"))?;
            added = Some(count);
        } else if is(option, "MAXDELETEDID") {
            let highest = Id::parse(value, 0)?;
            if id < highest {
                return Err(text(
                    "The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            deleted = Some(highest);
        } else {
            return Err(CommandError::Syntax);
        }
        rest = after;
    }
    if !rest.is_empty() {
        return Err(CommandError::Syntax);
    }
    let (db, key) = (call.keys.db(), call.argument(1));
    let result = call.keys.together(|all| {
        let Some(mut stream) = Structure::find(all, db, key, Kind::Stream)? else {
            return Ok(Err(text("no such key")));
        };
        let mut meta = Meta::read(&stream, all)?;
        let head = stream.head;
        let all_ids = (Id::MIN, Id::MAX);
        let top = entries(&mut InTransaction(&stream, all), &head, all_ids, true, Limits::ONE)?;
        if top.first().is_some_and(|top| id < top.id) {
            return Ok(Err(text("The ID specified in XSETID is smaller than the target stream top item")));
        }
        if added.is_some_and(|added| added < meta.length) {
            let why = "The entries_added specified in XSETID is smaller than the target stream length";
            return Ok(Err(text(why)));
        }
        meta.last = id;
        meta.added = added.unwrap_or(meta.added);
        meta.deleted = deleted.filter(|deleted| *deleted != Id::MIN).unwrap_or(meta.deleted);
        meta.write(&mut stream, all)?;
        stream.finish(all, Event::stream("xsetid"))?;
        Ok(Ok(()))
    })?;
    result?;
    call.reply.ok();
    Ok(())
}

/// The options of XREAD and XREADGROUP that both have, and the keys with their IDs.
pub(super) struct Reads<'a> {
    pub count: usize,
    /// The end of the time to wait. `None`: the command does not wait.
    pub waits: Option<Option<Instant>>,
    pub no_ack: bool,
    pub keys: &'a [Bytes],
    pub ids: &'a [Bytes],
    /// Position of the first ID among the arguments.
    pub ids_at: usize,
}

impl<'a> Reads<'a> {
    /// Parses the arguments from `at` on.
    pub fn parse(arguments: &'a [Bytes], mut at: usize, is_group: bool) -> Result<Self, CommandError> {
        let (mut count, mut waits, mut no_ack) = (usize::MAX, None, false);
        loop {
            match arguments.get(at..).unwrap_or_default() {
                [option, value, ..] if is(option, "COUNT") => {
                    let wanted = integer(value)?;
                    count = usize::try_from(wanted).ok().filter(|count| *count > 0).unwrap_or(usize::MAX);
                    at += 2;
                }
                [option, value, ..] if is(option, "BLOCK") => {
                    let wrong = || text("timeout is not an integer or out of range");
                    let milliseconds = integer(value).map_err(|_| wrong())?;
                    let milliseconds =
                        u64::try_from(milliseconds).map_err(|_| text("timeout is negative"))?;
                    let end = Instant::now().checked_add(Duration::from_millis(milliseconds));
                    waits = Some(end.filter(|_| milliseconds > 0));
                    at += 2;
                }
                [option, ..] if is_group && is(option, "NOACK") => {
                    no_ack = true;
                    at += 1;
                }
                [option, rest @ ..] if is(option, "STREAMS") => {
                    if rest.is_empty() || !rest.len().is_multiple_of(2) {
                        let name = if is_group { "xreadgroup" } else { "xread" };
                        let what = if is_group { "ID or '>'" } else { "ID or '$'" };
                        return Err(text(&format!(
                            "Unbalanced '{name}' list of streams: for each stream key an {what} must be specified."
                        )));
                    }
                    let (keys, ids) = rest.split_at(rest.len() / 2);
                    return Ok(Self { count, waits, no_ack, keys, ids, ids_at: at + 1 + keys.len() });
                }
                _ => return Err(CommandError::Syntax),
            }
        }
    }
}

/// Replies with the entries of streams, each written by `write`; with null if there are no streams.
pub(super) fn reply_streams<E>(
    call: &mut Call<'_>,
    found: &[(&[u8], Vec<E>)],
    write: impl Fn(&mut Reply<'_>, &E) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let reply = &mut call.reply;
    if found.is_empty() {
        reply.null_array();
        return Ok(());
    }
    let is_map = reply.protocol() == Protocol::Resp3;
    if is_map {
        reply.map(found.len());
    } else {
        reply.array(found.len());
    }
    for (key, entries) in found {
        if !is_map {
            reply.array(2);
        }
        reply.bulk(key)?;
        reply.array(entries.len());
        entries.iter().try_for_each(|entry| write(reply, entry))?;
    }
    Ok(())
}

/// Lets the session wait and run the command again with these arguments.
pub(super) fn wait(call: &mut Call<'_>, reads: &Reads<'_>, arguments: Vec<Bytes>) {
    let until = reads.waits.flatten();
    call.session.blocked =
        Some(Box::new(Blocked { arguments, keys: reads.keys.to_vec(), kind: Kind::Stream, until }));
}

fn read(call: &mut Call<'_>) -> Result<(), CommandError> {
    let reads = Reads::parse(call.arguments, 1, false)?;
    // The IDs behind which to read; `None` for `$`, the last one of now.
    let behind = reads.ids.iter().map(|id| match &id[..] {
        b"$" => Ok(None),
        b">" => Err(text("The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.")),
        id => Id::parse(id, 0).map(Some),
    });
    let behind = behind.collect::<Result<Vec<_>, _>>()?;
    let keys = reads.keys;
    let limits = Limits { count: reads.count, bytes: call.reply.free_bytes() };
    let has_misses = call.keys.events().has_misses();
    let (found, last) = call.keys.view(|view| {
        let (mut found, mut last) = (Vec::new(), Vec::new());
        // Redis reads the keys once more, so an absent one has two events.
        for key in keys.iter().filter(|_| has_misses) {
            view.find(key, Kind::Stream)?;
        }
        for (key, behind) in keys.iter().zip(&behind) {
            let Some(head) = view.find(key, Kind::Stream)? else {
                last.push(behind.unwrap_or(Id::MIN));
                continue;
            };
            let Some(behind) = behind else {
                let meta = view.get(&head, META, b"")?.map(|value| Meta::decode(&value)).unwrap_or_default();
                last.push(meta.last);
                continue;
            };
            last.push(*behind);
            if let Some(from) = behind.next() {
                let read = entries(view, &head, (from, Id::MAX), false, limits)?;
                if !read.is_empty() {
                    found.push((&key[..], read));
                }
            }
        }
        Ok((found, last))
    })?;
    if found.is_empty() && reads.waits.is_some() && matches!(call.keys, Access::Store { .. }) {
        // What the last ID is now must not change while the client waits.
        let mut arguments = call.arguments.to_vec();
        for (argument, last) in arguments[reads.ids_at..].iter_mut().zip(last) {
            *argument = Bytes::from(last.to_string());
        }
        wait(call, &reads, arguments);
        return Ok(());
    }
    reply_streams(call, &found, reply_entry)
}

/// The error for an ID that only XREADGROUP knows, or none.
pub(super) fn plain_id(argument: &[u8]) -> Result<Id, CommandError> {
    if argument == b"$" {
        let why = "The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.";
        return Err(text(why));
    }
    Id::parse(argument, 0).map_err(|_| invalid_id())
}
