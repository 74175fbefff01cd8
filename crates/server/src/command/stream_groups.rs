//! Groups of consumers of streams: XGROUP, XREADGROUP, XACK. [`super::stream_pending`]: XPENDING, XCLAIM … [`super::stream_info`]: XINFO.
//!
//! The entries that a consumer has read and not acknowledged are found by their IDs. So a command on those of one consumer takes time in
//! proportion to those of its group.

use bytes::Bytes;

use super::observe::{help, unknown};
use super::streams::{Reads, command, now, parse_ids, plain_id, reply_fields, reply_streams, text, wait};
use super::{Call, Command, CommandError, Flags, ONE_KEY, integer, is};
use crate::access::{Access, Result as Accessed, Together};
use crate::notifications::Event;
use crate::structures::Kind;
use crate::structures::access::{InTransaction, Structure, check_element};
use crate::structures::streams::{
    CONSUMER, ENTRY, GROUP, Group, Id, Limits, Meta, PENDING, Pending, UNKNOWN, decode_fields, entries,
    first_id,
};

const CHANGE: Flags = Flags::WRITE.and(Flags::GROWS);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("xgroup", -2, CHANGE, (2, 2, 1), "Makes, changes and removes groups and consumers.", group),
    command(
        "xreadgroup",
        -7,
        CHANGE.and(Flags::BLOCKS),
        super::streams::STREAMS,
        "Delivers entries to a consumer. Options: COUNT, BLOCK, NOACK.",
        read_group,
    ),
    command("xack", -4, Flags::WRITE.and(Flags::FAST), ONE_KEY, "Acknowledges entries.", ack),
];

fn no_key() -> CommandError {
    text(
        "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
    )
}

pub(super) fn no_group(key: &[u8], group: &[u8]) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    CommandError::Text(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

pub(super) fn no_key_or_group(key: &[u8], group: &[u8], place: &str) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    CommandError::Text(format!("NOGROUP No such key '{key}' or consumer group '{group}'{place}"))
}

fn group(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    match (subcommand.as_str(), call.rest(2)) {
        ("create", [key, name, id, options @ ..]) => create(call, key, name, id, options),
        ("setid", [key, name, id, options @ ..]) => set_group_id(call, key, name, id, options),
        ("destroy", [key, name]) => {
            let gone = with_stream(call, key, Event::stream("xgroup-destroy"), |all, stream| {
                let Some(group) = Group::read(stream, all, name)? else { return Ok(Ok(0)) };
                for tag in [CONSUMER, PENDING] {
                    remove_all(stream, all, &group, tag)?;
                }
                stream.delete(all, GROUP, name)?;
                touch(stream, all)?;
                Ok(Ok(1))
            })?;
            call.reply.count(gone);
            Ok(())
        }
        ("createconsumer", [key, name, consumer]) => {
            let made = with_group(call, (key, name), Event::NEW_CONSUMER, |all, stream, group| {
                if stream.get(all, CONSUMER, &group.consumer(consumer))?.is_some() {
                    return Ok(0);
                }
                group.see(stream, all, consumer, now())?;
                touch(stream, all)?;
                Ok(1)
            })?;
            call.reply.count(made);
            Ok(())
        }
        ("delconsumer", [key, name, consumer]) => {
            let pending =
                with_group(call, (key, name), Event::stream("xgroup-delconsumer"), |all, stream, group| {
                    let mut own = Vec::new();
                    let head = stream.head;
                    group.visit_pending(
                        &mut InTransaction(stream, all),
                        &head,
                        Id::MIN,
                        &mut |id, pending| {
                            if pending.consumer == consumer[..] {
                                own.push(id);
                            }
                            true
                        },
                    )?;
                    if stream.get(all, CONSUMER, &group.consumer(consumer))?.is_none() {
                        return Ok(0);
                    }
                    for id in &own {
                        stream.delete(all, PENDING, &group.pending(*id))?;
                    }
                    stream.delete(all, CONSUMER, &group.consumer(consumer))?;
                    touch(stream, all)?;
                    Ok(own.len() as u64)
                })?;
            call.reply.count(pending);
            Ok(())
        }
        ("help", []) => {
            let lines = [
                "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CREATE <key> <groupname> <id|$> [MKSTREAM] [ENTRIESREAD entries_read]",
                "CREATECONSUMER <key> <groupname> <consumer>",
                "DELCONSUMER <key> <groupname> <consumer>",
                "DESTROY <key> <groupname>",
                "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            ];
            help(call, &lines);
            Ok(())
        }
        ("create" | "setid" | "destroy" | "createconsumer" | "delconsumer" | "help", _) => {
            Err(CommandError::Arity(format!("xgroup|{subcommand}")))
        }
        _ => Err(unknown(call, "XGROUP")),
    }
}

/// Writes the head, so that readers notice the change, and leaves the rest of the meta element as it is.
pub(super) fn touch(stream: &mut Structure<'_>, all: &mut Together<'_>) -> Accessed<()> {
    let meta = Meta::read(stream, all)?;
    meta.write(stream, all)
}

/// Removes all elements of a group with this tag.
fn remove_all(stream: &mut Structure<'_>, all: &mut Together<'_>, group: &Group, tag: u8) -> Accessed<()> {
    let mut keys = Vec::new();
    stream.scan(all, group.range(&stream.head, tag, b""), false, |rest, _| {
        keys.push(rest.to_vec());
        true
    })?;
    keys.iter().try_for_each(|key| stream.delete(all, tag, key))
}

/// Calls `change` with the stream of a key, which has to exist. Notes `event` if the stream has changed.
fn with_stream<R>(
    call: &mut Call<'_>,
    key: &Bytes,
    event: Event,
    mut change: impl FnMut(&mut Together<'_>, &mut Structure<'_>) -> Accessed<Result<R, CommandError>>,
) -> Result<R, CommandError> {
    let db = call.keys.db();
    call.keys.together(|all| {
        let Some(mut stream) = Structure::find(all, db, key, Kind::Stream)? else {
            return Ok(Err(no_key()));
        };
        let result = change(all, &mut stream)?;
        if result.is_ok() {
            stream.finish(all, event)?;
        }
        Ok(result)
    })?
}

/// As [`with_stream`], with a group of the stream, which has to exist.
fn with_group<R>(
    call: &mut Call<'_>,
    (key, name): (&Bytes, &Bytes),
    event: Event,
    mut change: impl FnMut(&mut Together<'_>, &mut Structure<'_>, Group) -> Accessed<R>,
) -> Result<R, CommandError> {
    with_stream(call, key, event, |all, stream| match Group::read(stream, all, name)? {
        Some(group) => Ok(Ok(change(all, stream, group)?)),
        None => Ok(Err(no_group(key, name))),
    })
}

/// The options MKSTREAM and ENTRIESREAD.
fn entries_read(options: &[Bytes]) -> Result<(bool, u64), CommandError> {
    let (mut makes, mut read, mut rest) = (false, UNKNOWN, options);
    loop {
        rest = match rest {
            [option, after @ ..] if is(option, "MKSTREAM") => {
                makes = true;
                after
            }
            [option, value, after @ ..] if is(option, "ENTRIESREAD") => {
                let value = integer(value)?;
                if value < -1 {
                    return Err(text("value for ENTRIESREAD must be positive or -1"));
                }
                read = u64::try_from(value).unwrap_or(UNKNOWN);
                after
            }
            [] => return Ok((makes, read)),
            _ => return Err(CommandError::Syntax),
        };
    }
}

fn create(
    call: &mut Call<'_>,
    key: &Bytes,
    name: &Bytes,
    id: &Bytes,
    options: &[Bytes],
) -> Result<(), CommandError> {
    let (makes, read) = entries_read(options)?;
    let id = if &id[..] == b"$" { None } else { Some(Id::parse(id, 0)?) };
    check_element(name, b"")?;
    let db = call.keys.db();
    let result = call.keys.together(|all| {
        let mut stream = match Structure::find(all, db, key, Kind::Stream)? {
            Some(stream) => stream,
            None if !makes => return Ok(Err(no_key())),
            None => Structure::find_or_new(all, db, key, Kind::Stream)?,
        };
        let mut meta = Meta::read(&stream, all)?;
        if Group::read(&stream, all, name)?.is_some() {
            return Ok(Err(CommandError::Text("BUSYGROUP Consumer Group name already exists".to_owned())));
        }
        let group = Group { number: meta.next_group, last: id.unwrap_or(meta.last), read };
        meta.next_group += 1;
        group.write(&mut stream, all, name)?;
        meta.write(&mut stream, all)?;
        stream.finish(all, Event::stream("xgroup-create"))?;
        Ok(Ok(()))
    })?;
    result?;
    call.reply.ok();
    Ok(())
}

fn set_group_id(
    call: &mut Call<'_>,
    key: &Bytes,
    name: &Bytes,
    id: &Bytes,
    options: &[Bytes],
) -> Result<(), CommandError> {
    let (makes, read) = entries_read(options)?;
    if makes {
        return Err(CommandError::Syntax);
    }
    let id = if &id[..] == b"$" { None } else { Some(Id::parse(id, 0)?) };
    with_group(call, (key, name), Event::stream("xgroup-setid"), |all, stream, group| {
        let meta = Meta::read(stream, all)?;
        let group = Group { last: id.unwrap_or(meta.last), read, ..group };
        group.write(stream, all, name)?;
        meta.write(stream, all)
    })?;
    call.reply.ok();
    Ok(())
}

fn read_group(call: &mut Call<'_>) -> Result<(), CommandError> {
    if !is(call.argument(1), "GROUP") {
        return Err(CommandError::Syntax);
    }
    let (name, consumer) = (call.argument(2), call.argument(3));
    let reads = Reads::parse(call.arguments, 4, true)?;
    check_element(consumer, b"")?;
    let db = call.keys.db();
    let keys: Vec<_> = reads.keys.iter().map(|key| (db, &key[..])).collect();
    let no_ack = reads.no_ack;
    let limits = Limits { count: reads.count, bytes: call.reply.free_bytes() };
    let mut fits = Ok(());
    let (access, reply) = (&mut call.keys, &call.reply);
    let found = access.together(|all| {
        // All is read before anything is written: an error changes nothing.
        let (mut deliveries, mut bytes) = (Vec::new(), 0);
        for ((_, key), id) in keys.iter().zip(reads.ids) {
            let place = " in XREADGROUP with GROUP option";
            let Some(stream) = Structure::find(all, db, key, Kind::Stream)? else {
                all.events.note(Event::MISS, db, key);
                return Ok(Err(no_key_or_group(key, name, place)));
            };
            let Some(group) = Group::read(&stream, all, name)? else {
                return Ok(Err(no_key_or_group(key, name, place)));
            };
            let meta = Meta::read(&stream, all)?;
            // `>`: entries that no consumer has seen.
            let is_history = &id[..] != b">";
            // A stream that is named twice delivers its new entries once.
            let is_again = |(other, was_history, _): &(&[u8], bool, _)| other == key && !was_history;
            let limits = match deliveries.iter().any(is_again) {
                true if !is_history => Limits { count: 0, ..limits },
                _ => limits,
            };
            let delivery = if is_history {
                match plain_id(id) {
                    Ok(behind) => history(stream, all, (meta, group), consumer, behind, limits)?,
                    Err(error) => return Ok(Err(error)),
                }
            } else {
                deliver(stream, all, (meta, group), consumer, limits)?
            };
            bytes += delivery.bytes();
            deliveries.push((*key, is_history, delivery));
        }
        fits = reply.check_space(bytes);
        if fits.is_err() {
            return Ok(Ok(Vec::new()));
        }
        let mut found = Vec::new();
        for (key, is_history, delivery) in deliveries {
            let read = delivery.write(all, name, consumer, no_ack)?;
            if is_history || !read.is_empty() {
                found.push((key, read));
            }
        }
        Ok(Ok(found))
    })??;
    fits?;
    if found.is_empty() && reads.waits.is_some() && matches!(call.keys, Access::Store { .. }) {
        wait(call, &reads, call.arguments.to_vec());
        return Ok(());
    }
    reply_streams(call, &found, |reply, (id, fields)| reply_fields(reply, *id, fields.as_ref()))
}

/// Entries that were delivered. `None` in place of the fields of one that was removed since.
type Delivered = Vec<(Id, Option<Vec<Vec<u8>>>)>;

/// Entries of a stream for a consumer.
struct Delivery<'k> {
    stream: Structure<'k>,
    meta: Meta,
    /// The group as it will be.
    group: Group,
    /// True if they were delivered before.
    is_history: bool,
    entries: Delivered,
    /// The new state of those entries that are pending.
    pending: Vec<(Id, Pending)>,
}

impl Delivery<'_> {
    /// Bytes of the fields.
    fn bytes(&self) -> usize {
        self.entries.iter().filter_map(|(_, fields)| fields.as_ref()).flatten().map(Vec::len).sum()
    }

    /// Stores what the delivery changes. Returns the entries.
    fn write(
        mut self,
        all: &mut Together<'_>,
        name: &[u8],
        consumer: &[u8],
        no_ack: bool,
    ) -> Accessed<Delivered> {
        // A consumer that finds no new entries is not made, as in Redis 7.0.
        let key = self.group.consumer(consumer);
        if self.entries.is_empty() && (!self.is_history || self.stream.has(all, CONSUMER, &key)?) {
            return Ok(self.entries);
        }
        if !self.is_history {
            self.group.write(&mut self.stream, all, name)?;
        }
        if self.is_history || !no_ack {
            for (id, pending) in &self.pending {
                pending.write(&mut self.stream, all, &self.group, *id)?;
            }
        }
        if self.group.see(&mut self.stream, all, consumer, now())? {
            self.stream.note(all, Event::NEW_CONSUMER);
        }
        self.meta.write(&mut self.stream, all)?;
        self.stream.finish(all, None)?;
        Ok(self.entries)
    }
}

/// The next entries for the group, which moves behind them.
fn deliver<'k>(
    stream: Structure<'k>,
    all: &mut Together<'_>,
    (meta, mut group): (Meta, Group),
    consumer: &[u8],
    limits: Limits,
) -> Accessed<Delivery<'k>> {
    let head = stream.head;
    let read = match group.last.next() {
        Some(from) => entries(&mut InTransaction(&stream, all), &head, (from, Id::MAX), false, limits)?,
        None => Vec::new(),
    };
    if !read.is_empty() {
        let first = first_id(&mut InTransaction(&stream, all), &head)?;
        for entry in &read {
            if group.read != UNKNOWN && !meta.has_gap_from(entry.id, first) {
                group.read += 1;
            } else if meta.added > 0 {
                group.read = meta.position(entry.id, first);
            }
            group.last = entry.id;
        }
    }
    let new = Pending { time: now(), deliveries: 1, consumer: consumer.to_vec() };
    let pending = read.iter().map(|entry| (entry.id, new.clone())).collect();
    let entries = read.into_iter().map(|entry| (entry.id, Some(entry.fields))).collect();
    Ok(Delivery { stream, meta, group, is_history: false, entries, pending })
}

/// Entries that this consumer has not acknowledged, behind an ID.
fn history<'k>(
    stream: Structure<'k>,
    all: &mut Together<'_>,
    (meta, group): (Meta, Group),
    consumer: &[u8],
    behind: Id,
    limits: Limits,
) -> Accessed<Delivery<'k>> {
    let (head, time) = (stream.head, now());
    let mut own = Vec::new();
    if let Some(from) = behind.next() {
        group.visit_pending(&mut InTransaction(&stream, all), &head, from, &mut |id, pending| {
            if pending.consumer == consumer {
                own.push((id, pending));
            }
            own.len() < limits.count
        })?;
    }
    let (mut entries, mut pending, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (id, state) in own {
        // A longer reply is refused.
        if bytes > limits.bytes {
            break;
        }
        let value = stream.get(all, ENTRY, &id.bytes())?;
        bytes += value.as_ref().map_or(0, Vec::len);
        let fields = value.map(|value| decode_fields(&value));
        if fields.is_some() {
            pending.push((id, Pending { time, deliveries: state.deliveries + 1, ..state }));
        }
        entries.push((id, fields));
    }
    Ok(Delivery { stream, meta, group, is_history: true, entries, pending })
}

fn ack(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, key, name, ids) = (call.keys.db(), call.argument(1), call.argument(2), call.rest(3));
    let acknowledged = call.keys.together(|all| {
        let Some(mut stream) = Structure::find(all, db, key, Kind::Stream)? else {
            all.events.note(Event::MISS, db, key);
            return Ok(Ok(0));
        };
        let Some(group) = Group::read(&stream, all, name)? else { return Ok(Ok(0)) };
        let ids = match parse_ids(ids) {
            Ok(ids) => ids,
            Err(error) => return Ok(Err(error)),
        };
        let mut acknowledged = 0;
        for id in &ids {
            if stream.get(all, PENDING, &group.pending(*id))?.is_some() {
                stream.delete(all, PENDING, &group.pending(*id))?;
                acknowledged += 1;
            }
        }
        if acknowledged > 0 {
            touch(&mut stream, all)?;
        }
        stream.finish(all, None)?;
        Ok(Ok(acknowledged))
    })??;
    call.reply.count(acknowledged);
    Ok(())
}
