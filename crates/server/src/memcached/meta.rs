//! The meta commands `mg`, `ms`, `md`, `ma` and `me`.
//!
//! A reply has the flags of the command that return something, in the order of the command. Then come `Z` (another client has the task
//! to renew the item), `X` (the item is stale) and `W` (this client gets the task).

use std::borrow::Cow;
use std::io::Write as _;

use bristlecone::{Deadline, Next};
use bytes::Bytes;

use super::Life;
use super::commands::{Call, Counted, Outcome, Result, Step, seconds};
use super::item::{self, Header, Item};
use super::options::Options;
use super::parse::{Meta, Storage};
use super::stats::Count;
use super::words::{encode_base64, is_key};
use crate::shared::MEMCACHED;

/// The reply to a counter command if the data is not a number.
pub const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// Runs a command without data.
///
/// # Errors
/// Those of the store.
pub fn run(call: &mut Call<'_>, name: Meta, key: &Bytes, options: &Options) -> Result<()> {
    match name {
        Meta::Get => get(call, key, options),
        Meta::Delete => delete(call, key, options),
        Meta::Arithmetic => arithmetic(call, key, options),
    }
}

/// Seconds until a deadline, rounded up.
fn left(deadline: u64, now: u64) -> u64 {
    deadline.saturating_sub(now).div_ceil(1000)
}

/// What `mg` found and did.
struct Found<'a> {
    /// The item as it was, or as `N` made it.
    item: Item<'a>,
    /// Its deadline as it was.
    deadline: Deadline,
    /// True if this client gets the task to renew the item.
    is_won: bool,
    /// True if `N` made the item.
    is_new: bool,
}

/// The effect of `mg` on an item.
struct Effect {
    is_won: bool,
    life: Life,
}

impl Effect {
    fn new(options: &Options, header: &Header, deadline: Deadline, is_new: bool, now: u64) -> Self {
        // `N` gives a new item its expiry at its place among the flags.
        let mut life = Life::Until(deadline.filter(|_| !is_new));
        let mut is_won = is_new;
        let may_win = !is_new && !header.is_token_sent;
        for (letter, _) in &options.list {
            match (letter, options.exptime, options.recache, life) {
                (b'T', Some(exptime), ..) => life = Life::new(exptime, now),
                (b'N', ..) if is_new => life = Life::Until(deadline),
                (b'R', _, Some(recache), Life::Until(Some(deadline))) => {
                    let left = i64::try_from(left(deadline, now)).unwrap_or(i64::MAX);
                    is_won |= may_win && left < recache;
                }
                _ => {}
            }
        }
        Self { is_won: is_won || may_win && header.is_stale, life }
    }
}

fn get(call: &mut Call<'_>, key: &Bytes, options: &Options) -> Result<()> {
    let now = call.shared.store.now()?;
    call.counts.add(Count::CmdGet);
    let mut value = std::mem::take(call.value);
    let found = call.store.get_until(key, &mut value)?;
    let changed;
    let found = match found {
        None if options.vivify.is_none() => None,
        Some(deadline) if options.exptime.is_none() => {
            let item = Item::decode(&value)?;
            let effect = Effect::new(options, &item.header, deadline, false, now);
            match effect.is_won {
                false => Some(Found { item, deadline, is_won: false, is_new: false }),
                true => {
                    changed = get_and_change(call, key, options, now)?;
                    changed
                }
            }
        }
        _ => {
            changed = get_and_change(call, key, options, now)?;
            changed
        }
    };
    match found {
        None => {
            call.counts.add(Count::GetMisses);
            if !options.is_quiet() {
                call.output.extend_from_slice(b"EN");
                echo(call, options, |_, _| {});
                call.output.extend_from_slice(b"\r\n");
            }
        }
        Some(found) => {
            call.counts.add(Count::GetHits);
            show(call, key, options, &found, now);
            if !options.has(b'u') {
                call.memcached.recent.note(key, seconds(now));
            }
        }
    }
    call.shared.eviction.note(MEMCACHED, [&key[..]]);
    *call.value = value;
    Ok(())
}

/// Runs an `mg` that may change its item, in one step.
fn get_and_change(
    call: &mut Call<'_>,
    key: &[u8],
    options: &Options,
    now: u64,
) -> Result<Option<Found<'static>>> {
    let vivify = options.vivify.map(|exptime| Life::new(exptime, now));
    let new = match vivify {
        Some(_) => Header {
            cas: call.memcached.new_cas()?,
            written: seconds(now),
            is_token_sent: true,
            ..Header::default()
        },
        None => Header::default(),
    };
    let admission = vivify.map(|_| call.admit(key, 0)).transpose()?;
    let mut found = None;
    call.change(key, |old| {
        let is_new = old.is_none();
        let (item, deadline) = match (old, vivify) {
            (Some(old), _) => old,
            (None, Some(life)) => {
                let deadline = match life {
                    Life::Until(deadline) => deadline,
                    // It expires before another client sees it.
                    Life::Over => Some(now),
                };
                (Item { header: new, data: Cow::Borrowed(&b""[..]) }, deadline)
            }
            (None, None) => {
                found = None;
                return Next::Keep;
            }
        };
        let effect = Effect::new(options, &item.header, deadline, is_new, now);
        let header = Header { is_token_sent: item.header.is_token_sent || effect.is_won, ..item.header };
        let item = Item { header: item.header, data: Cow::Owned(item.data.into_owned()) };
        let is_same = !is_new && !effect.is_won && effect.life == Life::Until(deadline);
        let next = match effect.life {
            _ if is_same => Next::Keep,
            Life::Until(Some(until)) if until <= now => Next::Delete,
            Life::Until(until) => Next::Put(Item { header, data: item.data.clone() }.encode(), until),
            Life::Over => Next::Delete,
        };
        found = Some(Found { item, deadline, is_won: effect.is_won, is_new });
        next
    })?;
    drop(admission);
    if found.as_ref().is_some_and(|found| found.is_new) {
        call.memcached.recent.forget(key);
    }
    Ok(found)
}

/// Appends the flags `k` and `O`, and those that `other` appends.
fn echo(call: &mut Call<'_>, options: &Options, mut other: impl FnMut(&mut Call<'_>, u8)) {
    for (letter, token) in &options.list {
        match letter {
            b'O' => {
                call.output.extend_from_slice(b" O");
                call.output.extend_from_slice(token);
            }
            b'k' => {
                call.output.extend_from_slice(b" k");
                call.output.extend_from_slice(&options.written_key);
                if options.has(b'b') {
                    call.output.extend_from_slice(b" b");
                }
            }
            letter => other(call, *letter),
        }
    }
}

/// Appends the flag `t`.
fn show_left(output: &mut Vec<u8>, life: Life, now: u64) {
    // Writing to memory does not fail.
    let _ = match life {
        Life::Until(None) => write!(output, " t-1"),
        Life::Until(Some(deadline)) => write!(output, " t{}", left(deadline, now)),
        Life::Over => write!(output, " t0"),
    };
}

/// Appends the reply to an `mg` that found its item.
fn show(call: &mut Call<'_>, key: &[u8], options: &Options, found: &Found<'_>, now: u64) {
    let Found { item: Item { header, data }, deadline, .. } = found;
    let read = call.memcached.recent.find(key);
    let output = &mut *call.output;
    output.reserve(data.len() + key.len() + 128);
    // Writing to memory does not fail.
    let _ = if options.has(b'v') { write!(output, "VA {}", data.len()) } else { write!(output, "HD") };
    let mut life = Life::Until(deadline.filter(|_| !found.is_new));
    for (letter, token) in &options.list {
        let _ = match letter {
            b'N' if found.is_new => {
                life = Life::Until(*deadline);
                Ok(())
            }
            b'T' => {
                life = options.exptime.map_or(life, |exptime| Life::new(exptime, now));
                Ok(())
            }
            b'O' => {
                output.extend_from_slice(b" O");
                output.write_all(token)
            }
            b'k' => {
                output.extend_from_slice(b" k");
                match header.is_binary_key || !is_key(key) {
                    true => {
                        encode_base64(key, output);
                        output.write_all(b" b")
                    }
                    false => output.write_all(key),
                }
            }
            b't' => {
                show_left(output, life, now);
                Ok(())
            }
            b'f' => write!(output, " f{}", header.flags),
            b'c' => write!(output, " c{}", header.cas),
            b's' => write!(output, " s{}", data.len()),
            b'h' => write!(output, " h{}", u8::from(read.is_some())),
            b'l' => write!(output, " l{}", seconds(now).saturating_sub(read.unwrap_or(header.written))),
            _ => Ok(()),
        };
    }
    let marks =
        [(b'Z', header.is_token_sent && !found.is_new), (b'X', header.is_stale), (b'W', found.is_won)];
    for (mark, _) in marks.into_iter().filter(|(_, is_set)| *is_set) {
        output.extend_from_slice(&[b' ', mark]);
    }
    output.extend_from_slice(b"\r\n");
    if options.has(b'v') {
        output.extend_from_slice(data);
        output.extend_from_slice(b"\r\n");
    }
}

/// The reply code of an outcome.
fn code(outcome: Outcome) -> &'static [u8] {
    match outcome {
        Outcome::Done => b"HD",
        Outcome::NotStored => b"NS",
        Outcome::Exists => b"EX",
        Outcome::NotFound => b"NF",
    }
}

/// Runs `ms`.
///
/// # Errors
/// Those of [`Call::write`].
pub fn set(call: &mut Call<'_>, storage: &Storage, options: &Options, data: &Bytes) -> Result<()> {
    let (outcome, cas) = call.write(storage, data)?;
    if outcome == Outcome::Done && options.is_quiet() {
        return Ok(());
    }
    let cas = if outcome == Outcome::Done { cas } else { 0 };
    call.output.extend_from_slice(code(outcome));
    echo(call, options, |call, letter| {
        if letter == b'c' {
            let _ = write!(call.output, " c{cas}");
        }
    });
    call.output.extend_from_slice(b"\r\n");
    Ok(())
}

fn delete(call: &mut Call<'_>, key: &Bytes, options: &Options) -> Result<()> {
    let outcome = match options.has(b'I') {
        true => invalidate(call, key, options)?,
        false => call.remove(key, options.compare)?,
    };
    match outcome {
        Outcome::Done => call.counts.add(Count::DeleteHits),
        _ => call.counts.add(Count::DeleteMisses),
    }
    if outcome == Outcome::Done && options.is_quiet() {
        return Ok(());
    }
    call.output.extend_from_slice(code(outcome));
    echo(call, options, |_, _| {});
    call.output.extend_from_slice(b"\r\n");
    Ok(())
}

/// Marks an item as stale.
fn invalidate(call: &mut Call<'_>, key: &[u8], options: &Options) -> Result<Outcome> {
    let now = call.shared.store.now()?;
    let cas = call.memcached.new_cas()?;
    let life = options.exptime.map(|exptime| Life::new(exptime, now));
    let mut outcome = Outcome::NotFound;
    call.change(key, |old| {
        let Some((item, deadline)) = old else {
            outcome = Outcome::NotFound;
            return Next::Keep;
        };
        if options.compare.is_some_and(|compare| compare != item.header.cas) {
            outcome = Outcome::Exists;
            return Next::Keep;
        }
        outcome = Outcome::Done;
        let header = Header { cas, is_stale: true, is_token_sent: false, ..item.header };
        match life.unwrap_or(Life::Until(deadline)) {
            Life::Until(deadline) => Next::Put(Item { header, ..item }.encode(), deadline),
            Life::Over => Next::Delete,
        }
    })?;
    Ok(outcome)
}

fn arithmetic(call: &mut Call<'_>, key: &Bytes, options: &Options) -> Result<()> {
    let adds = match options.mode {
        None | Some(b'I' | b'+') => true,
        Some(b'D' | b'-') => false,
        Some(_) => {
            call.line("CLIENT_ERROR invalid mode for ma M token");
            return Ok(());
        }
    };
    let now = call.shared.store.now()?;
    let life = options.exptime.map(|exptime| Life::new(exptime, now));
    let first_life = options.vivify.map(|exptime| Life::new(exptime, now));
    // As in memcached, the later of `N` and `T` is the one for a new counter.
    let place = |letter| options.list.iter().position(|(other, _)| *other == letter);
    let new_life = if place(b'T') > place(b'N') { life } else { first_life };
    let step = Step {
        adds,
        delta: options.delta.unwrap_or(1),
        compare: options.compare,
        vivify: first_life.map(|first_life| (options.initial, new_life.unwrap_or(first_life))),
        life,
    };
    let counted = call.count(key, step)?;
    let outcome = match counted {
        Counted::NotNumeric => {
            call.line(NOT_NUMERIC);
            return Ok(());
        }
        Counted::Number(..) if options.is_quiet() => return Ok(()),
        Counted::Number(number, header, life) | Counted::New(number, header, life) => {
            let text = number.to_string();
            let _ = match options.has(b'v') {
                true => write!(call.output, "VA {}", text.len()),
                false => write!(call.output, "HD"),
            };
            // `N` gives a new counter its expiry at its place among the flags.
            let is_new = matches!(counted, Counted::New(..));
            let mut life = if is_new { Life::Until(None) } else { life };
            echo(call, options, |call, letter| match letter {
                b'N' if is_new => life = first_life.unwrap_or(life),
                b'T' => life = step.life.unwrap_or(life),
                b't' => show_left(call.output, life, now),
                b'c' => {
                    let _ = write!(call.output, " c{}", header.cas);
                }
                _ => {}
            });
            call.output.extend_from_slice(b"\r\n");
            if options.has(b'v') {
                call.line(&text);
            }
            return Ok(());
        }
        Counted::Exists => Outcome::Exists,
        Counted::NotFound => Outcome::NotFound,
    };
    call.output.extend_from_slice(code(outcome));
    echo(call, options, |_, _| {});
    call.output.extend_from_slice(b"\r\n");
    Ok(())
}

/// Runs `me`, which shows an item to people.
///
/// # Errors
/// Those of the store.
pub fn debug(call: &mut Call<'_>, written: &[u8], key: &[u8]) -> Result<()> {
    let now = call.shared.store.now()?;
    let mut value = Vec::new();
    let Some(deadline) = call.store.get_until(key, &mut value)? else {
        call.line("EN");
        return Ok(());
    };
    let Item { header, data } = Item::decode(&value)?;
    let read = call.memcached.recent.find(key);
    call.output.extend_from_slice(b"ME ");
    match header.is_binary_key || !is_key(key) {
        true => encode_base64(key, call.output),
        false if written.len() == key.len() => call.output.extend_from_slice(written),
        false => call.output.extend_from_slice(key),
    }
    let left = deadline.map_or(1, |deadline| left(deadline, now));
    let access = seconds(now).saturating_sub(read.unwrap_or(header.written));
    let fetched = if read.is_some() { "yes" } else { "no" };
    let size = item::size(key.len(), header.flags, data.len());
    call.line(&format!(" exp=-{left} la={access} cas={} fetch={fetched} cls=1 size={size}", header.cas));
    Ok(())
}
