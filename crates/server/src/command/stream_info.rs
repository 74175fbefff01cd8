//! XINFO: streams, their groups and consumers.

use super::observe::{help, unknown};
use super::stream_groups::no_group;
use super::streams::{command, now, reply_entries, reply_entry, reply_id, text};
use super::{Call, Command, CommandError, Flags, integer, is};
use crate::structures::Kind;
use crate::structures::access::tagged;
use crate::structures::streams::{Entry, GROUP, Group, Id, Limits, META, Meta, Pending, UNKNOWN, entries};

/// The commands of this module.
pub const COMMANDS: &[Command] =
    &[command("xinfo", -2, Flags::READ, (2, 2, 1), "Shows a stream, its groups and its consumers.", info)];

/// A group with its pending entries and consumers.
struct Shown {
    name: Vec<u8>,
    group: Group,
    pending: Vec<(Id, Pending)>,
    consumers: Vec<(Vec<u8>, u64)>,
}

/// A stream with its groups.
struct Whole {
    meta: Meta,
    first: Option<Entry>,
    last: Option<Entry>,
    entries: Vec<Entry>,
    groups: Vec<Shown>,
}

fn whole(call: &mut Call<'_>, key: &[u8], count: usize) -> Result<Whole, CommandError> {
    let bytes_max = call.reply.free_bytes();
    let found = call.keys.view(|view| {
        let Some(head) = view.find(key, Kind::Stream)? else { return Ok(None) };
        let meta = view.get(&head, META, b"")?.map(|value| Meta::decode(&value)).unwrap_or_default();
        let all = (Id::MIN, Id::MAX);
        let first = entries(view, &head, all, false, Limits::ONE)?.pop();
        let last = entries(view, &head, all, true, Limits::ONE)?.pop();
        let shown = entries(view, &head, all, false, Limits { count, bytes: bytes_max })?;
        let mut named = Vec::new();
        view.scan(tagged(&head, GROUP, b"", false), false, |name, value| {
            named.push((name.to_vec(), Group::decode(value)));
            true
        })?;
        let mut groups = Vec::new();
        for (name, group) in named {
            let mut pending = Vec::new();
            group.visit_pending(view, &head, Id::MIN, &mut |id, entry| {
                pending.push((id, entry));
                true
            })?;
            let consumers = group.consumers(view, &head)?;
            groups.push(Shown { name, group, pending, consumers });
        }
        Ok(Some(Whole { meta, first, last, entries: shown, groups }))
    })?;
    found.ok_or_else(|| text("no such key"))
}

/// Writes the fields that XINFO STREAM has in both forms.
fn reply_meta(call: &mut Call<'_>, whole: &Whole) {
    let reply = &mut call.reply;
    let first = whole.first.as_ref().map_or(Id::MIN, |entry| entry.id);
    for (name, value) in [
        ("length", whole.meta.length),
        // There is no radix tree.
        ("radix-tree-keys", 0),
        ("radix-tree-nodes", 0),
    ] {
        reply.text(name);
        reply.count(value);
    }
    for (name, id) in [("last-generated-id", whole.meta.last), ("max-deleted-entry-id", whole.meta.deleted)] {
        reply.text(name);
        reply_id(reply, id);
    }
    reply.text("entries-added");
    reply.count(whole.meta.added);
    reply.text("recorded-first-entry-id");
    reply_id(reply, first);
}

fn reply_lag(call: &mut Call<'_>, whole: &Whole, group: &Group) {
    call.reply.text("entries-read");
    match group.read {
        UNKNOWN => call.reply.null(),
        read => call.reply.count(read),
    }
    call.reply.text("lag");
    let first = whole.first.as_ref().map_or(Id::MAX, |entry| entry.id);
    match whole.meta.lag(group, first) {
        Some(lag) => call.reply.integer(lag),
        None => call.reply.null(),
    }
}

fn info(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    match (subcommand.as_str(), call.rest(2)) {
        ("stream", [key]) => {
            let whole = whole(call, key, 0)?;
            call.reply.map(10);
            reply_meta(call, &whole);
            call.reply.text("groups");
            call.reply.count(whole.groups.len() as u64);
            for (name, entry) in [("first-entry", &whole.first), ("last-entry", &whole.last)] {
                call.reply.text(name);
                match entry {
                    Some(entry) => reply_entry(&mut call.reply, entry)?,
                    None => call.reply.null(),
                }
            }
            Ok(())
        }
        ("stream", [key, full, options @ ..]) if is(full, "FULL") => {
            let count = match options {
                [] => 10,
                [option, count] if is(option, "COUNT") => integer(count)?.max(0).unsigned_abs(),
                _ => return Err(CommandError::Syntax),
            };
            // 0 means all.
            let count = usize::try_from(count).ok().filter(|count| *count > 0).unwrap_or(usize::MAX);
            let whole = whole(call, key, count)?;
            reply_full(call, &whole, count)
        }
        ("groups", [key]) => {
            let whole = whole(call, key, 0)?;
            call.reply.array(whole.groups.len());
            for shown in &whole.groups {
                call.reply.map(6);
                call.reply.text("name");
                call.reply.bulk(&shown.name)?;
                call.reply.text("consumers");
                call.reply.count(shown.consumers.len() as u64);
                call.reply.text("pending");
                call.reply.count(shown.pending.len() as u64);
                call.reply.text("last-delivered-id");
                reply_id(&mut call.reply, shown.group.last);
                reply_lag(call, &whole, &shown.group);
            }
            Ok(())
        }
        ("consumers", [key, name]) => {
            let whole = whole(call, key, 0)?;
            let shown = whole.groups.iter().find(|shown| shown.name == name[..]);
            let shown = shown.ok_or_else(|| no_group(key, name))?;
            let time = now();
            call.reply.array(shown.consumers.len());
            for (consumer, seen) in &shown.consumers {
                let pending =
                    shown.pending.iter().filter(|(_, pending)| pending.consumer == *consumer).count();
                call.reply.map(3);
                call.reply.text("name");
                call.reply.bulk(consumer)?;
                call.reply.text("pending");
                call.reply.count(pending as u64);
                call.reply.text("idle");
                call.reply.count(time.saturating_sub(*seen));
            }
            Ok(())
        }
        ("help", []) => {
            let lines = [
                "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CONSUMERS <key> <groupname>",
                "GROUPS <key>",
                "STREAM <key> [FULL [COUNT <count>]]",
            ];
            help(call, &lines);
            Ok(())
        }
        ("stream", [_, ..]) => Err(CommandError::Syntax),
        ("stream" | "groups" | "consumers" | "help", _) => {
            Err(CommandError::Arity(format!("xinfo|{subcommand}")))
        }
        _ => Err(unknown(call, "XINFO")),
    }
}

fn reply_full(call: &mut Call<'_>, whole: &Whole, count: usize) -> Result<(), CommandError> {
    call.reply.map(9);
    reply_meta(call, whole);
    call.reply.text("entries");
    reply_entries(&mut call.reply, &whole.entries)?;
    call.reply.text("groups");
    call.reply.array(whole.groups.len());
    for shown in &whole.groups {
        call.reply.map(7);
        call.reply.text("name");
        call.reply.bulk(&shown.name)?;
        call.reply.text("last-delivered-id");
        reply_id(&mut call.reply, shown.group.last);
        reply_lag(call, whole, &shown.group);
        call.reply.text("pel-count");
        call.reply.count(shown.pending.len() as u64);
        call.reply.text("pending");
        let some = shown.pending.get(..count.min(shown.pending.len())).unwrap_or_default();
        call.reply.array(some.len());
        for (id, pending) in some {
            call.reply.array(4);
            reply_id(&mut call.reply, *id);
            call.reply.bulk(&pending.consumer)?;
            call.reply.count(pending.time);
            call.reply.count(pending.deliveries);
        }
        call.reply.text("consumers");
        call.reply.array(shown.consumers.len());
        for (consumer, seen) in &shown.consumers {
            let own = || shown.pending.iter().filter(|(_, pending)| pending.consumer == *consumer);
            call.reply.map(4);
            call.reply.text("name");
            call.reply.bulk(consumer)?;
            call.reply.text("seen-time");
            call.reply.count(*seen);
            call.reply.text("pel-count");
            call.reply.count(own().count() as u64);
            call.reply.text("pending");
            let some: Vec<_> = own().take(count).collect();
            call.reply.array(some.len());
            for (id, pending) in some {
                call.reply.array(3);
                reply_id(&mut call.reply, *id);
                call.reply.count(pending.time);
                call.reply.count(pending.deliveries);
            }
        }
    }
    Ok(())
}
