//! Entries of streams that consumers have not acknowledged: XPENDING, XCLAIM, XAUTOCLAIM.

use bytes::Bytes;

use super::stream_groups::{no_key_or_group, touch};
use super::streams::{bound, command, now, parse_ids, reply_entries, reply_id, text};
use super::{Call, Command, CommandError, Flags, ONE_KEY, integer, is};
use crate::access::{Result as Accessed, Together};
use crate::notifications::Event;
use crate::structures::access::{InTransaction, Structure, View, check_element};
use crate::structures::streams::{ENTRY, Entry, GROUP, Group, Id, PENDING, Pending, decode_fields};
use crate::structures::{Head, Kind};

const CHANGE: Flags = Flags::WRITE.and(Flags::GROWS).and(Flags::FAST);
/// XAUTOCLAIM looks at this number of pending entries for each one that it may claim.
const LOOKED_AT: usize = 10;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("xpending", -3, Flags::READ, ONE_KEY, "Shows entries that are not acknowledged.", pending),
    command("xclaim", -6, CHANGE, ONE_KEY, "Gives pending entries to a consumer.", claim),
    command(
        "xautoclaim",
        -6,
        CHANGE,
        ONE_KEY,
        "Gives pending entries that have waited long to a consumer.",
        auto_claim,
    ),
];

/// The group of a key in a view.
fn group_in(view: &mut View<'_>, key: &[u8], name: &[u8]) -> Accessed<Option<(Head, Group)>> {
    let Some(head) = view.find(key, Kind::Stream)? else { return Ok(None) };
    Ok(view.get(&head, GROUP, name)?.map(|value| (head, Group::decode(&value))))
}

fn pending(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, name) = (call.argument(1), call.argument(2));
    let (idle_min, rest) = match call.rest(3) {
        [option, idle, rest @ ..] if is(option, "IDLE") => (integer(idle)?.max(0).unsigned_abs(), rest),
        rest => (0, rest),
    };
    let window = match rest {
        [] if idle_min == 0 && call.rest(3).is_empty() => None,
        [start, end, count, consumer @ ..] if consumer.len() <= 1 => {
            let count = usize::try_from(integer(count)?.max(0)).unwrap_or(usize::MAX);
            Some((bound(start, true)?, bound(end, false)?, count, consumer.first()))
        }
        _ => return Err(CommandError::Syntax),
    };
    let time = now();
    let found = call.keys.view(|view| {
        let Some((head, group)) = group_in(view, key, name)? else { return Ok(None) };
        let mut found = Vec::new();
        let Some((from, to, count, consumer)) = &window else {
            group.visit_pending(view, &head, Id::MIN, &mut |id, pending| {
                found.push((id, pending));
                true
            })?;
            return Ok(Some(found));
        };
        if let (Some(from), Some(to), true) = (from, to, *count > 0) {
            group.visit_pending(view, &head, *from, &mut |id, pending| {
                let is_own = consumer.is_none_or(|consumer| pending.consumer == consumer[..]);
                if id <= *to && is_own && time.saturating_sub(pending.time) >= idle_min {
                    found.push((id, pending));
                }
                id < *to && found.len() < *count
            })?;
        }
        Ok(Some(found))
    })?;
    let found = found.ok_or_else(|| no_key_or_group(key, name, ""))?;
    if window.is_some() {
        call.reply.array(found.len());
        for (id, pending) in &found {
            call.reply.array(4);
            reply_id(&mut call.reply, *id);
            call.reply.bulk(&pending.consumer)?;
            call.reply.count(time.saturating_sub(pending.time));
            call.reply.count(pending.deliveries);
        }
        return Ok(());
    }
    call.reply.array(4);
    call.reply.count(found.len() as u64);
    let (Some((first, _)), Some((last, _))) = (found.first(), found.last()) else {
        call.reply.null();
        call.reply.null();
        call.reply.null_array();
        return Ok(());
    };
    reply_id(&mut call.reply, *first);
    reply_id(&mut call.reply, *last);
    let mut counts = std::collections::BTreeMap::<&[u8], u64>::new();
    found.iter().for_each(|(_, pending)| *counts.entry(&pending.consumer).or_default() += 1);
    call.reply.array(counts.len());
    for (consumer, count) in counts {
        call.reply.array(2);
        call.reply.bulk(consumer)?;
        call.reply.text(&count.to_string());
    }
    Ok(())
}

/// How XCLAIM changes pending entries.
#[derive(Default)]
struct Claim {
    /// The new time of the last delivery.
    time: Option<u64>,
    deliveries: Option<u64>,
    /// Also entries that are not pending.
    is_forced: bool,
    /// The reply has IDs alone, and the deliveries are not counted.
    only_ids: bool,
    last: Option<Id>,
}

impl Claim {
    fn parse(mut rest: &[Bytes], time: u64) -> Result<Self, CommandError> {
        let mut claim = Self::default();
        loop {
            rest = match rest {
                [] => return Ok(claim),
                [option, after @ ..] if is(option, "FORCE") => {
                    claim.is_forced = true;
                    after
                }
                [option, after @ ..] if is(option, "JUSTID") => {
                    claim.only_ids = true;
                    after
                }
                [option, value, after @ ..] if is(option, "IDLE") => {
                    let wrong = || text("Invalid IDLE option argument for XCLAIM");
                    let idle = integer(value).map_err(|_| wrong())?.max(0).unsigned_abs();
                    claim.time = Some(time.saturating_sub(idle));
                    after
                }
                [option, value, after @ ..] if is(option, "TIME") => {
                    let wrong = || text("Invalid TIME option argument for XCLAIM");
                    // A time that has not come counts as now.
                    let at = u64::try_from(integer(value).map_err(|_| wrong())?).unwrap_or(time);
                    claim.time = Some(at.min(time));
                    after
                }
                [option, value, after @ ..] if is(option, "RETRYCOUNT") => {
                    let wrong = || text("Invalid RETRYCOUNT option argument for XCLAIM");
                    claim.deliveries = Some(integer(value).map_err(|_| wrong())?.max(0).unsigned_abs());
                    after
                }
                [option, value, after @ ..] if is(option, "LASTID") => {
                    claim.last = Some(Id::parse(value, 0)?);
                    after
                }
                [option, ..] => {
                    let option = String::from_utf8_lossy(option);
                    return Err(text(&format!("Unrecognized XCLAIM option '{option}'")));
                }
            };
        }
    }
}

fn claim(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, name) = (call.argument(1), call.argument(2));
    if call.keys.view(|view| group_in(view, key, name))?.is_none() {
        return Err(no_key_or_group(key, name, ""));
    }
    let wrong = || text("Invalid min-idle-time argument for XCLAIM");
    let idle_min = integer(call.argument(4)).map_err(|_| wrong())?.max(0).unsigned_abs();
    let rest = call.rest(5);
    let count = rest.iter().take_while(|id| Id::parse(id, 0).is_ok()).count();
    let ids = parse_ids(&rest[..count.max(1)])?;
    let time = now();
    let claim = Claim::parse(&rest[count..], time)?;
    let (db, consumer) = (call.keys.db(), call.argument(3));
    check_element(consumer, b"")?;
    let mut fits = Ok(());
    let (access, reply) = (&mut call.keys, &call.reply);
    let claims = access.together(|all| {
        let Some(mut stream) = Structure::find(all, db, key, Kind::Stream)? else {
            return Ok(Err(no_key_or_group(key, name, "")));
        };
        let Some(mut group) = Group::read(&stream, all, name)? else {
            return Ok(Err(no_key_or_group(key, name, "")));
        };
        let mut claims = Claims::default();
        for id in &ids {
            let entry = stream.get(all, ENTRY, &id.bytes())?;
            let found = Pending::read(&stream, all, &group, *id)?;
            let Some(value) = entry else {
                // An entry that has gone is no longer pending.
                if found.is_some() {
                    claims.gone.push(*id);
                }
                continue;
            };
            let new = Pending { time, deliveries: 0, consumer: Vec::new() };
            let mut pending = match found {
                Some(found) if time.saturating_sub(found.time) < idle_min => continue,
                Some(found) => found,
                None if claim.is_forced => new,
                None => continue,
            };
            pending.time = claim.time.unwrap_or(time);
            match claim.deliveries {
                Some(deliveries) => pending.deliveries = deliveries,
                None if !claim.only_ids => pending.deliveries += 1,
                None => {}
            }
            claims.add(*id, pending, &value, claim.only_ids);
        }
        fits = reply.check_space(claims.bytes);
        if fits.is_ok() {
            if let Some(last) = claim.last.filter(|last| *last > group.last) {
                group.last = last;
                group.write(&mut stream, all, name)?;
            }
            claims.write(stream, all, &group, consumer, time)?;
        }
        Ok(Ok(claims))
    })??;
    fits?;
    reply_claimed(call, &claims, claim.only_ids)
}

/// Pending entries that a consumer gets.
#[derive(Default)]
struct Claims {
    entries: Vec<Entry>,
    /// Their new state, but for the consumer.
    pending: Vec<Pending>,
    /// Pending entries that are no longer in the stream.
    gone: Vec<Id>,
    /// Bytes of the fields in the reply.
    bytes: usize,
}

impl Claims {
    fn add(&mut self, id: Id, pending: Pending, value: &[u8], only_ids: bool) {
        let fields = if only_ids { Vec::new() } else { decode_fields(value) };
        self.bytes += if only_ids { 0 } else { value.len() };
        self.entries.push(Entry { id, fields });
        self.pending.push(pending);
    }

    /// Stores the claims, and the head.
    fn write(
        &mut self,
        mut stream: Structure<'_>,
        all: &mut Together<'_>,
        group: &Group,
        consumer: &[u8],
        time: u64,
    ) -> Accessed<()> {
        for id in &self.gone {
            stream.delete(all, PENDING, &group.pending(*id))?;
        }
        for (entry, pending) in self.entries.iter().zip(&mut self.pending) {
            pending.consumer = consumer.to_vec();
            pending.write(&mut stream, all, group, entry.id)?;
        }
        if !self.entries.is_empty() && group.see(&mut stream, all, consumer, time)? {
            stream.note(all, Event::NEW_CONSUMER);
        }
        touch(&mut stream, all)?;
        stream.finish(all, None)
    }
}

fn reply_claimed(call: &mut Call<'_>, claims: &Claims, only_ids: bool) -> Result<(), CommandError> {
    if !only_ids {
        return reply_entries(&mut call.reply, &claims.entries);
    }
    call.reply.array(claims.entries.len());
    claims.entries.iter().for_each(|entry| reply_id(&mut call.reply, entry.id));
    Ok(())
}

fn auto_claim(call: &mut Call<'_>) -> Result<(), CommandError> {
    let wrong = || text("Invalid min-idle-time argument for XAUTOCLAIM");
    let idle_min = integer(call.argument(4)).map_err(|_| wrong())?.max(0).unsigned_abs();
    let start = bound(call.argument(5), true)?.unwrap_or(Id::MAX);
    let (mut count, mut only_ids, mut rest) = (100, false, call.rest(6));
    loop {
        rest = match rest {
            [] => break,
            [option, value, after @ ..] if is(option, "COUNT") => {
                let wanted = usize::try_from(integer(value)?).ok().filter(|wanted| *wanted > 0);
                count = wanted.ok_or_else(|| text("COUNT must be > 0"))?;
                after
            }
            [option, after @ ..] if is(option, "JUSTID") => {
                only_ids = true;
                after
            }
            _ => return Err(CommandError::Syntax),
        };
    }
    let time = now();
    let (db, key, name, consumer) = (call.keys.db(), call.argument(1), call.argument(2), call.argument(3));
    check_element(consumer, b"")?;
    let mut fits = Ok(());
    let (access, reply) = (&mut call.keys, &call.reply);
    let (next, claims) = access.together(|all| {
        let Some(stream) = Structure::find(all, db, key, Kind::Stream)? else {
            all.events.note(Event::MISS, db, key);
            return Ok(Err(no_key_or_group(key, name, "")));
        };
        let Some(group) = Group::read(&stream, all, name)? else {
            return Ok(Err(no_key_or_group(key, name, "")));
        };
        let head = stream.head;
        let looked_at = count.saturating_mul(LOOKED_AT);
        let mut candidates = Vec::new();
        group.visit_pending(&mut InTransaction(&stream, all), &head, start, &mut |id, pending| {
            candidates.push((id, pending));
            // One more shows where the next call goes on.
            candidates.len() <= looked_at
        })?;
        let (mut claims, mut left, mut next) = (Claims::default(), count, Id::MIN);
        for (at, (id, mut pending)) in candidates.into_iter().enumerate() {
            if at == looked_at || left == 0 || claims.bytes > reply.free_bytes() {
                next = id;
                break;
            }
            let Some(value) = stream.get(all, ENTRY, &id.bytes())? else {
                claims.gone.push(id);
                left -= 1;
                continue;
            };
            if time.saturating_sub(pending.time) < idle_min {
                continue;
            }
            pending.time = time;
            pending.deliveries += u64::from(!only_ids);
            claims.add(id, pending, &value, only_ids);
            left -= 1;
        }
        fits = reply.check_space(claims.bytes);
        if fits.is_ok() && !(claims.entries.is_empty() && claims.gone.is_empty()) {
            claims.write(stream, all, &group, consumer, time)?;
        }
        Ok(Ok((next, claims)))
    })??;
    fits?;
    call.reply.array(3);
    reply_id(&mut call.reply, next);
    reply_claimed(call, &claims, only_ids)?;
    call.reply.array(claims.gone.len());
    claims.gone.into_iter().for_each(|id| reply_id(&mut call.reply, id));
    Ok(())
}
