//! Commands on parts of a value: ranges of bytes, and single bits. Bit 0 is the most significant bit of the first byte.

use std::borrow::Cow;
use std::ops::Range;

use bristlecone::Change;

use super::{Call, Command, CommandError, Flags, Handler, ONE_KEY, integer, is};

use crate::notifications::Event;
/// Maximum length of a value that SETRANGE and SETBIT make, in bytes: the limit of a store's values.
const VALUE_BYTES_MAX: u64 = bristlecone::VALUE_BYTES_MAX as u64;

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    group: &'static str,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys: ONE_KEY, group, summary, handler }
}

const READ: Flags = Flags::READ;
const FAST: Flags = Flags::READ.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE.and(Flags::GROWS);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("getrange", 4, READ, "string", "Returns a part of a value.", getrange),
    command("substr", 4, READ, "string", "The same as GETRANGE.", getrange),
    command(
        "setrange",
        4,
        WRITE,
        "string",
        "Overwrites a part of a value; returns the new length.",
        setrange,
    ),
    command("getbit", 3, FAST, "bitmap", "Returns a bit of a value.", getbit),
    command("setbit", 4, WRITE, "bitmap", "Sets a bit of a value; returns the one before.", setbit),
    command("bitcount", -2, READ, "bitmap", "Counts the bits that are 1.", bitcount),
    command("bitpos", -3, READ, "bitmap", "Returns the position of the first bit that is 0 or 1.", bitpos),
];

/// The units `start` to `end`, inclusive, of `total`. Negative numbers count from the end. Empty if there are none.
fn clamped(start: i64, end: i64, total: u64) -> Range<u64> {
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    let absolute = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
    let (start, end) = (absolute(start), absolute(end).min(total - 1));
    if start > end { 0..0 } else { start as u64..end as u64 + 1 }
}

/// True if both numbers count from the end, and the second one is before the first.
fn is_reversed(start: i64, end: i64) -> bool {
    start < 0 && end < 0 && start > end
}

/// Reads the value of the first argument into the session's buffer. False if the key is absent.
fn read(call: &mut Call<'_>) -> Result<bool, CommandError> {
    let found = call.keys.get_into(call.argument(1), &mut call.session.value)?;
    call.count_lookup(found);
    Ok(found)
}

fn getrange(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (start, end) = (integer(call.argument(2))?, integer(call.argument(3))?);
    let found = read(call)?;
    let value: &[u8] = if found { &call.session.value } else { b"" };
    let range = if is_reversed(start, end) { 0..0 } else { clamped(start, end, value.len() as u64) };
    Ok(call.reply.bulk(&value[range.start as usize..range.end as usize])?)
}

fn too_long() -> CommandError {
    CommandError::Text("ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned())
}

fn setrange(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (offset, part) = (integer(call.argument(2))?, call.argument(3));
    let offset =
        u64::try_from(offset).map_err(|_| CommandError::Text("ERR offset is out of range".to_owned()))?;
    let end = offset.saturating_add(part.len() as u64);
    let (mut bytes, mut fits) = (0, true);
    call.keys.update(call.argument(1), |old| {
        let old = old.unwrap_or_default();
        bytes = old.len() as u64;
        fits = part.is_empty() || end <= VALUE_BYTES_MAX;
        if part.is_empty() || !fits {
            return Change::Keep;
        }
        bytes = bytes.max(end);
        let mut new = old.to_vec();
        new.resize(bytes as usize, 0);
        new[offset as usize..end as usize].copy_from_slice(part);
        Change::Put(Cow::Owned(new))
    })?;
    if !fits {
        return Err(too_long());
    }
    if !part.is_empty() {
        call.keys.note(Event::string("setrange"), call.argument(1));
    }
    call.reply.count(bytes);
    Ok(())
}

/// The position of a bit: the byte, and the mask in it.
fn position(text: &[u8]) -> Result<(u64, u8), CommandError> {
    let wrong = || CommandError::Text("ERR bit offset is not an integer or out of range".to_owned());
    let bit = integer(text).ok().and_then(|bit| u64::try_from(bit).ok()).ok_or_else(wrong)?;
    if bit / 8 >= VALUE_BYTES_MAX {
        return Err(wrong());
    }
    Ok((bit / 8, mask(bit)))
}

/// The mask of a bit in its byte.
fn mask(bit: u64) -> u8 {
    0x80 >> (bit % 8)
}

fn getbit(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (byte, mask) = position(call.argument(2))?;
    let found = read(call)?;
    let byte = call.session.value.get(byte as usize).filter(|_| found);
    call.reply.flag(byte.is_some_and(|byte| byte & mask != 0));
    Ok(())
}

fn setbit(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (byte, mask) = position(call.argument(2))?;
    let on = match call.argument(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(CommandError::Text("ERR bit is not an integer or out of range".to_owned())),
    };
    let (mut before, mut is_longer) = (false, false);
    call.keys.update(call.argument(1), |old| {
        let mut new = old.unwrap_or_default().to_vec();
        is_longer = old.is_none_or(|old| old.len() <= byte as usize);
        new.resize(new.len().max(byte as usize + 1), 0);
        let byte = &mut new[byte as usize];
        before = *byte & mask != 0;
        *byte = if on { *byte | mask } else { *byte & !mask };
        Change::Put(Cow::Owned(new))
    })?;
    if is_longer || before != on {
        call.keys.note(Event::SETBIT, call.argument(1));
    }
    call.reply.flag(before);
    Ok(())
}

/// Number of bits in a unit, BYTE or BIT. BYTE is the default.
fn unit(text: Option<&bytes::Bytes>) -> Result<u64, CommandError> {
    match text {
        None => Ok(8),
        Some(text) if is(text, "BYTE") => Ok(8),
        Some(text) if is(text, "BIT") => Ok(1),
        Some(_) => Err(CommandError::Syntax),
    }
}

fn bitcount(call: &mut Call<'_>) -> Result<(), CommandError> {
    if !read(call)? {
        call.reply.count(0);
        return Ok(());
    }
    let value = &call.session.value;
    let bits = value.len() as u64 * 8;
    let range = match call.rest(2) {
        [] => 0..bits,
        [start, end, rest @ ..] if rest.len() <= 1 => {
            let (start, end) = (integer(start)?, integer(end)?);
            if is_reversed(start, end) {
                0..0
            } else {
                let unit = unit(rest.first())?;
                let range = clamped(start, end, bits / unit);
                range.start * unit..range.end * unit
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    call.reply.count(ones(value, range));
    Ok(())
}

/// Number of bits in the range that are 1. O(bytes).
fn ones(value: &[u8], range: Range<u64>) -> u64 {
    let (first, last) = (range.start.div_ceil(8), range.end / 8);
    let single = |bit: &u64| value[(bit / 8) as usize] & mask(*bit) != 0;
    if first >= last {
        return range.filter(single).count() as u64;
    }
    let edges = (range.start..first * 8).chain(last * 8..range.end).filter(single).count() as u64;
    let whole = &value[first as usize..last as usize];
    edges + whole.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// The first bit in the range that is `on`. O(bytes).
fn first(value: &[u8], range: Range<u64>, on: bool) -> Option<u64> {
    let skipped = if on { 0 } else { 0xFF };
    let mut bit = range.start;
    while bit < range.end {
        let byte = value[(bit / 8) as usize];
        if bit.is_multiple_of(8) && byte == skipped {
            bit += 8;
        } else if (byte & mask(bit) != 0) == on {
            return Some(bit);
        } else {
            bit += 1;
        }
    }
    None
}

fn bitpos(call: &mut Call<'_>) -> Result<(), CommandError> {
    let on = match integer(call.argument(2))? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::Text("ERR The bit argument must be 1 or 0.".to_owned())),
    };
    if !read(call)? {
        call.reply.integer(if on { -1 } else { 0 });
        return Ok(());
    }
    let value = &call.session.value;
    let bits = value.len() as u64 * 8;
    let (range, has_end) = match call.rest(3) {
        [] => (0..bits, false),
        [start, rest @ ..] if rest.len() <= 2 => {
            let start = integer(start)?;
            let unit = unit(rest.get(1))?;
            let end = rest.first().map_or(Ok(-1), |end| integer(end))?;
            let range = clamped(start, end, bits / unit);
            (range.start * unit..range.end * unit, !rest.is_empty())
        }
        _ => return Err(CommandError::Syntax),
    };
    let found = first(value, range.clone(), on);
    // Without an end, zeros follow the value.
    let behind = (!on && !has_end && !range.is_empty()).then_some(bits);
    call.reply.integer(found.or(behind).map_or(-1, |bit| bit as i64));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_and_searching_bits_agree_with_looking_at_each() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let value: Vec<u8> = (0..rng.u8(..5)).map(|_| [0, 0xFF, rng.u8(..)][rng.usize(..3)]).collect();
            let bits = value.len() as u64 * 8;
            let start = rng.u64(..=bits);
            let range = start..rng.u64(start..=bits);
            let is_one = |bit: &u64| value[(bit / 8) as usize] & mask(*bit) != 0;
            assert_eq!(ones(&value, range.clone()), range.clone().filter(is_one).count() as u64);
            for on in [false, true] {
                let expected = range.clone().find(|bit| is_one(bit) == on);
                assert_eq!(first(&value, range.clone(), on), expected, "{value:?} {range:?} {on}");
            }
        }
    }

    #[test]
    fn ranges_count_from_both_ends() {
        assert_eq!(clamped(0, -1, 5), 0..5);
        assert_eq!(clamped(-3, -2, 5), 2..4);
        assert_eq!(clamped(-9, 9, 5), 0..5);
        assert_eq!(clamped(5, 9, 5), 0..0);
        assert_eq!(clamped(0, 0, 0), 0..0);
        assert_eq!(clamped(i64::MIN, i64::MAX, 5), 0..5);
    }
}
