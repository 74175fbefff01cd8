//! Commands that go through the elements of a structure or choose any of them: HSCAN, HRANDFIELD and related ones.

use std::ops::Bound;

use super::access::{Range, Source, View, tagged};
use super::{Head, Kind, scores};
use crate::access::Result;
use crate::command::keys::{self, ScanOptions};
use crate::command::{Call, CommandError, integer};
use crate::eviction::accesses::random;
use crate::glob;
use crate::resp::reply::Protocol;
use crate::shared::lock;

/// A structure of at most this length is returned by one step, as in Redis.
const SMALL: u64 = 128;

/// An element: its key after the tag, and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Runs HSCAN, SSCAN or a related command: key, cursor, options.
///
/// # Errors
/// A wrong cursor or option; those of the store; a reply that is too long.
pub fn reply(
    call: &mut Call<'_>,
    kind: Kind,
    tag: u8,
    with_values: bool,
) -> std::result::Result<(), CommandError> {
    let (key, cursor) = (call.argument(1), keys::cursor(call.argument(2))?);
    let head = call.keys.head(key, kind)?;
    call.count_lookup(head.is_some());
    let (mut pairs, mut next) = (Vec::new(), 0);
    if head.is_some() {
        let options = ScanOptions::parse(call.rest(3), false)?;
        let last = match cursor {
            0 => None,
            cursor => Some(keys::last_key(call.shared, cursor)?),
        };
        let bytes_max = call.reply.free_bytes() / 2;
        let (found, behind) =
            call.keys.view(|view| step(view, key, (kind, tag), &options, last.as_deref(), bytes_max))?;
        pairs = found;
        next = behind.map_or(0, |last| lock(&call.shared.cursors).insert(last, cursor));
    }
    call.reply.array(2);
    call.reply.text(&next.to_string());
    write(call, kind, &pairs, with_values, false)
}

/// One step of a scan: the elements found, and the last one that was read if there may be more.
fn step(
    view: &mut View<'_>,
    key: &[u8],
    (kind, tag): (Kind, u8),
    options: &ScanOptions<'_>,
    last: Option<&[u8]>,
    bytes_max: usize,
) -> Result<(Vec<Pair>, Option<Vec<u8>>)> {
    let Some(head) = view.find(key, kind)? else { return Ok((Vec::new(), None)) };
    let count = if head.count <= SMALL { SMALL } else { options.count };
    let (mut pairs, mut bytes, mut read, mut behind) = (Vec::new(), 0, 0, None);
    view.scan(tagged(&head, tag, last.unwrap_or_default(), last.is_some()), false, |rest, value| {
        if read == count || bytes > bytes_max {
            // There is one more.
            return false;
        }
        read += 1;
        if glob::matches(options.pattern, rest) {
            bytes += rest.len() + value.len();
            pairs.push((rest.to_vec(), value.to_vec()));
        }
        behind = Some(rest.to_vec());
        true
    })?;
    let is_end = read < count && bytes <= bytes_max;
    Ok((pairs, behind.filter(|_| !is_end)))
}

/// Writes the elements. `is_typed`: in RESP3 each pair is an array, and a score is a number.
fn write(
    call: &mut Call<'_>,
    kind: Kind,
    pairs: &[Pair],
    with_values: bool,
    is_typed: bool,
) -> std::result::Result<(), CommandError> {
    let nested = is_typed && with_values && call.reply.protocol() == Protocol::Resp3;
    call.reply.array(pairs.len() * if with_values && !nested { 2 } else { 1 });
    for (rest, value) in pairs {
        if nested {
            call.reply.array(2);
        }
        call.reply.bulk(rest)?;
        match kind {
            _ if !with_values => {}
            Kind::SortedSet if is_typed => call.reply.double_text(&scores::format(scores::decode(value))),
            Kind::SortedSet => call.reply.text(&scores::format(scores::decode(value))),
            _ => call.reply.bulk(value)?,
        }
    }
    Ok(())
}

/// Replies with the number of elements, for HLEN and related commands.
///
/// # Errors
/// `WrongType`; those of the store.
pub fn reply_len(call: &mut Call<'_>, kind: Kind) -> std::result::Result<(), CommandError> {
    let head = call.keys.head(call.argument(1), kind)?;
    call.count_lookup(head.is_some());
    call.reply.count(head.map_or(0, |head| head.count));
    Ok(())
}

/// How many elements a command chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picks {
    /// At most this many different ones.
    Different(u64),
    /// This many, perhaps some of them more than once.
    Repeated(u64),
}

impl Picks {
    /// The meaning of the argument `count`.
    ///
    /// # Errors
    /// `NotInteger`; a count that is out of range.
    pub fn parse(count: &[u8]) -> std::result::Result<Self, CommandError> {
        let count = integer(count)?;
        if count < -(i64::MAX / 2) {
            return Err(CommandError::Text("ERR value is out of range".to_owned()));
        }
        let number = count.unsigned_abs();
        Ok(if count < 0 { Self::Repeated(number) } else { Self::Different(number) })
    }
}

/// Elements that may repeat are chosen from all elements only if these are not more than this number: they are in memory meanwhile.
const ALL_MAX: u64 = 1 << 18;

/// Runs HRANDFIELD or SRANDMEMBER. Without `picks`, the reply is one element.
///
/// # Errors
/// Those of the store; a reply that is too long.
pub fn reply_any(
    call: &mut Call<'_>,
    kind: Kind,
    tag: u8,
    picks: Option<Picks>,
    with_values: bool,
) -> std::result::Result<(), CommandError> {
    let key = call.argument(1);
    let bytes_max = call.reply.free_bytes();
    let mut is_cut = false;
    let (is_there, pairs) = call.keys.view(|view| {
        is_cut = false;
        let Some(head) = view.find(key, kind)? else { return Ok((false, Vec::new())) };
        let pairs = match picks {
            None => any_of(view, &head, tag)?.into_iter().collect(),
            Some(Picks::Different(count)) => different(view, &head, tag, count, bytes_max)?,
            Some(Picks::Repeated(count)) => {
                // A repeated element takes memory, however short it is.
                is_cut = count > (bytes_max / size_of::<Pair>()) as u64;
                if is_cut {
                    return Ok((true, Vec::new()));
                }
                let (mut pairs, mut bytes) = (Vec::new(), 0);
                // A scan of few elements takes less time than many searches.
                let all = match head.count <= count.saturating_mul(16).min(ALL_MAX) {
                    true => different(view, &head, tag, head.count, bytes_max)?,
                    false => Vec::new(),
                };
                let has_all = !all.is_empty() && all.len() as u64 == head.count;
                while (pairs.len() as u64) < count && !is_cut {
                    let any = match has_all {
                        true => all.get(below(head.count) as usize).cloned(),
                        false => any_of(view, &head, tag)?,
                    };
                    let Some(pair) = any else { break };
                    bytes += pair.0.len() + pair.1.len() + size_of::<Pair>();
                    pairs.push(pair);
                    is_cut = bytes > bytes_max;
                }
                pairs
            }
        };
        Ok((true, pairs))
    })?;
    call.count_lookup(is_there);
    if picks.is_none() {
        return call.reply_option(pairs.first().map(|(rest, _)| rest.as_slice()));
    }
    let bytes: usize = pairs.iter().map(|(rest, value)| rest.len() + value.len()).sum();
    call.reply.check_space(if is_cut { usize::MAX } else { bytes })?;
    write(call, kind, &pairs, with_values, true)
}

/// Chooses different elements. Reads all of them.
///
/// # Errors
/// Those of the store.
pub fn different(
    source: &mut dyn Source,
    head: &Head,
    tag: u8,
    count: u64,
    bytes_max: usize,
) -> Result<Vec<Pair>> {
    let (mut chosen, mut bytes, mut read) = (Vec::<Pair>::new(), 0, 0_u64);
    source.scan(tagged(head, tag, b"", false), false, &mut |rest, value| {
        // Each element so far is chosen with the same probability (reservoir sampling).
        read += 1;
        let at = if (chosen.len() as u64) < count { chosen.len() } else { below(read) as usize };
        let pair = || (rest.to_vec(), value.to_vec());
        if at == chosen.len() && (at as u64) < count {
            bytes += rest.len() + value.len();
            chosen.push(pair());
        } else if let Some(old) = chosen.get_mut(at) {
            bytes = bytes + rest.len() + value.len() - old.0.len() - old.1.len();
            *old = pair();
        }
        bytes <= bytes_max && count > 0
    })?;
    Ok(chosen)
}

/// Any element: the next one, up or down, from a random position between the smallest and the largest. Not all are equally likely.
///
/// # Errors
/// Those of the store.
pub fn any_of(source: &mut dyn Source, head: &Head, tag: u8) -> Result<Option<Pair>> {
    let first = one(source, tagged(head, tag, b"", false), false)?;
    let last = one(source, tagged(head, tag, b"", false), true)?;
    let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
    let start = between(&first.0, &last.0);
    // The first element in one direction or in the other. Otherwise the smallest one would never be chosen.
    let (range, descending) = match below(2) {
        0 => (tagged(head, tag, &start, false), false),
        _ => ((tagged(head, tag, b"", false).0, Bound::Excluded(head.element(tag, &start))), true),
    };
    let other = if descending { first } else { last };
    Ok(Some(one(source, range, descending)?.unwrap_or(other)))
}

fn one(source: &mut dyn Source, range: Range, descending: bool) -> Result<Option<Pair>> {
    let mut found = None;
    source.scan(range, descending, &mut |rest, value| {
        found = Some((rest.to_vec(), value.to_vec()));
        false
    })?;
    Ok(found)
}

/// A random key between two keys.
#[must_use]
pub fn between(low: &[u8], high: &[u8]) -> Vec<u8> {
    // Both keys share the first `same` bytes. Their next eight bytes, as a number, are between those of the smaller and the larger one.
    let same = low.iter().zip(high).take_while(|(low, high)| low == high).count();
    let number = |key: &[u8]| {
        let rest = &key[same.min(key.len())..];
        let mut bytes = [0; 8];
        let length = rest.len().min(8);
        bytes[..length].copy_from_slice(&rest[..length]);
        u64::from_be_bytes(bytes)
    };
    // Writes between the two reads may have made the smallest key larger than the largest one was.
    let (first, span) = (number(low), number(high).saturating_sub(number(low)));
    let offset = (u128::from(random()) * (u128::from(span) + 1)) >> 64;
    [&low[..same], &(first + offset as u64).to_be_bytes()].concat()
}

/// A random number below `end`.
fn below(end: u64) -> u64 {
    ((u128::from(random()) * u128::from(end)) >> 64) as u64
}
