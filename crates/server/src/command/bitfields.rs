//! BITOP, and BITFIELD: integers of any width at any bit of a value. Bit 0 is the most significant bit of the first byte.

use std::borrow::Cow;

use bristlecone::Change;
use bytes::Bytes;

use super::{Call, Command, CommandError, Flags, Handler, KeyPositions, ONE_KEY, integer, is};

use crate::notifications::Event;
/// Maximum length of a value, in bytes.
const VALUE_BYTES_MAX: u64 = bristlecone::VALUE_BYTES_MAX as u64;

const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    keys: KeyPositions,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys, group: "bitmap", summary, handler }
}

const WRITE: Flags = Flags::WRITE.and(Flags::GROWS);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("bitop", -4, WRITE, (2, -1, 1), "Combines the bits of values: AND, OR, XOR, NOT.", bitop),
    command("bitfield", -2, WRITE, ONE_KEY, "Reads and changes integers inside a value.", |call| {
        bitfield(call, false)
    }),
    command(
        "bitfield_ro",
        -2,
        Flags::READ.and(Flags::FAST),
        ONE_KEY,
        "Reads integers inside a value.",
        |call| bitfield(call, true),
    ),
];

fn text(text: &str) -> CommandError {
    CommandError::Text(text.to_owned())
}

fn bitop(call: &mut Call<'_>) -> Result<(), CommandError> {
    type Combine = fn(u8, u8) -> u8;
    let operations: [(&str, Combine); 4] =
        [("AND", |a, b| a & b), ("OR", |a, b| a | b), ("XOR", |a, b| a ^ b), ("NOT", |a, _| !a)];
    let operation = operations.into_iter().find(|(word, _)| is(call.argument(1), word));
    let (word, combine) = operation.ok_or(CommandError::Syntax)?;
    let (target, sources) = (call.argument(2), call.rest(3));
    if word == "NOT" && sources.len() != 1 {
        return Err(text("ERR BITOP NOT must be called with a single source key."));
    }
    let (db, shared) = (call.keys.db(), call.shared);
    let bytes = call.keys.together(|all| {
        let mut table = all.db(db)?;
        let first = table.get(&sources[0])?;
        table.note_read(&sources[0], first.is_some());
        let mut result = first.unwrap_or_default();
        if word == "NOT" {
            result.iter_mut().for_each(|byte| *byte = combine(*byte, 0));
        }
        for source in &sources[1..] {
            let value = table.get(source)?;
            table.note_read(source, value.is_some());
            let value = value.unwrap_or_default();
            // The shorter one is continued with zeros.
            result.resize(result.len().max(value.len()), 0);
            let other = value.into_iter().chain(std::iter::repeat(0));
            result.iter_mut().zip(other).for_each(|(byte, other)| *byte = combine(*byte, other));
        }
        let bytes = result.len();
        if bytes == 0 {
            if table.contains(target)? {
                table.delete(target)?;
                table.note(Event::DEL, target);
            }
        } else {
            table.put(target, &result)?;
            table.note(Event::SET, target);
            shared.eviction.charge(bytes);
        }
        Ok(bytes)
    })?;
    call.reply.count(bytes as u64);
    Ok(())
}

/// What happens with a number that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// Its lowest bits are stored.
    Wrap,
    /// The nearest number that fits is stored.
    Saturate,
    /// Nothing is stored, and the reply is null.
    Fail,
}

/// The type of an integer: at most 64 bits with a sign, or at most 63 without.
#[derive(Clone, Copy, Debug)]
struct Type {
    is_signed: bool,
    bits: u32,
}

impl Type {
    fn parse(word: &[u8]) -> Result<Self, CommandError> {
        let wrong = || {
            text(
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
            )
        };
        let (is_signed, digits) = match word {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(wrong()),
        };
        let most = if is_signed { 64 } else { 63 };
        let bits = integer(digits).ok().filter(|bits| (1..=most).contains(bits)).ok_or_else(wrong)?;
        Ok(Self { is_signed, bits: bits as u32 })
    }

    /// The smallest and the largest number.
    fn range(self) -> (i128, i128) {
        match self.is_signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    /// The number with these lowest bits.
    fn wrapped(self, number: i128) -> i128 {
        let unused = i128::BITS - self.bits;
        match self.is_signed {
            true => number << unused >> unused,
            false => (number.cast_unsigned() << unused >> unused).cast_signed(),
        }
    }

    /// The number to store. `None` if it does not fit and nothing is stored.
    fn fitted(self, number: i128, overflow: Overflow) -> Option<i128> {
        let (least, most) = self.range();
        match overflow {
            _ if (least..=most).contains(&number) => Some(number),
            Overflow::Wrap => Some(self.wrapped(number)),
            Overflow::Saturate => Some(number.clamp(least, most)),
            Overflow::Fail => None,
        }
    }
}

/// Bytes that contain any integer, wherever it begins in the first of them.
const WINDOW: usize = 9;

/// The bits of the bytes from that of bit `at` on. Bits after the value are zeros.
fn window(value: &[u8], at: u64) -> u128 {
    let first = (at / 8) as usize;
    (first..first + WINDOW).fold(0, |bits, i| bits << 8 | u128::from(value.get(i).copied().unwrap_or(0)))
}

/// Bits of the window behind the integer.
fn behind(at: u64, bits: u32) -> u32 {
    8 * WINDOW as u32 - (at % 8) as u32 - bits
}

/// The integer of this type at bit `at`.
fn load(value: &[u8], at: u64, of: Type) -> i128 {
    of.wrapped((window(value, at) >> behind(at, of.bits)).cast_signed())
}

/// Stores an integer of this type. The value must contain its bits.
fn store(value: &mut [u8], at: u64, of: Type, number: i128) {
    let (shift, mask) = (behind(at, of.bits), (1u128 << of.bits) - 1);
    let bits = window(value, at) & !(mask << shift) | (number.cast_unsigned() & mask) << shift;
    let bytes = &bits.to_be_bytes()[size_of::<u128>() - WINDOW..];
    value[(at / 8) as usize..].iter_mut().zip(bytes).for_each(|(byte, new)| *byte = *new);
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// A step of BITFIELD.
#[derive(Clone, Copy, Debug)]
struct Step {
    of: Type,
    /// Position of the first bit.
    at: u64,
    action: Action,
    overflow: Overflow,
}

impl Step {
    /// Runs the step on a value. Returns its reply. Sets `changes` if it stores another number; `is_longer` is true if the value was made
    /// longer for the steps, which counts as a change with the first number that is stored.
    fn run(self, value: &mut [u8], is_longer: bool, changes: &mut bool) -> Option<i64> {
        let Self { of, at, action, overflow } = self;
        let old = load(value, at, of);
        let (new, replies_old) = match action {
            Action::Get => return i64::try_from(old).ok(),
            // As in Redis, a negative number is far too large for a type without a sign.
            Action::Set(number) if of.is_signed => (i128::from(number), true),
            Action::Set(number) => (i128::from(number.cast_unsigned()), true),
            Action::Add(number) => (old + i128::from(number), false),
        };
        let new = of.fitted(new, overflow)?;
        store(value, at, of, new);
        *changes |= is_longer || new != old;
        i64::try_from(if replies_old { old } else { new }).ok()
    }
}

/// Position of a bit: a number, or `#` and a number of integers.
fn offset(word: &[u8], bits: u32) -> Result<u64, CommandError> {
    let wrong = || text("ERR bit offset is not an integer or out of range");
    let (digits, unit) = match word {
        [b'#', digits @ ..] if !digits.is_empty() => (digits, u64::from(bits)),
        digits => (digits, 1),
    };
    let number = integer(digits).ok().and_then(|number| u64::try_from(number).ok());
    let at = number.and_then(|number| number.checked_mul(unit)).filter(|at| at / 8 < VALUE_BYTES_MAX);
    at.filter(|at| (at + u64::from(bits)).div_ceil(8) <= VALUE_BYTES_MAX).ok_or_else(wrong)
}

fn steps(words: &[Bytes]) -> Result<Vec<Step>, CommandError> {
    let (mut steps, mut overflow) = (Vec::new(), Overflow::Wrap);
    let mut rest = words;
    loop {
        rest = match rest {
            [] => return Ok(steps),
            [word, how, rest @ ..] if is(word, "OVERFLOW") => {
                let known = [("WRAP", Overflow::Wrap), ("SAT", Overflow::Saturate), ("FAIL", Overflow::Fail)];
                let found = known.into_iter().find(|(word, _)| is(how, word));
                overflow = found.ok_or_else(|| text("ERR Invalid OVERFLOW type specified"))?.1;
                rest
            }
            [word, of, at, rest @ ..] if is(word, "GET") => {
                let of = Type::parse(of)?;
                steps.push(Step { of, at: offset(at, of.bits)?, action: Action::Get, overflow });
                rest
            }
            [word, of, at, number, rest @ ..] if is(word, "SET") || is(word, "INCRBY") => {
                let of = Type::parse(of)?;
                let at = offset(at, of.bits)?;
                let number = integer(number)?;
                let action = if is(word, "SET") { Action::Set(number) } else { Action::Add(number) };
                steps.push(Step { of, at, action, overflow });
                rest
            }
            _ => return Err(CommandError::Syntax),
        };
    }
}

fn bitfield(call: &mut Call<'_>, reads_only: bool) -> Result<(), CommandError> {
    let steps = steps(call.rest(2))?;
    let is_write = |step: &&Step| !matches!(step.action, Action::Get);
    let end = steps.iter().filter(is_write).map(|step| step.at + u64::from(step.of.bits)).max();
    let mut replies = Vec::with_capacity(steps.len());
    match end {
        Some(_) if reads_only => return Err(text("ERR BITFIELD_RO only supports the GET subcommand")),
        None => {
            let found = call.keys.get_into(call.argument(1), &mut call.session.value)?;
            call.count_lookup(found);
            let value: &mut [u8] = if found { &mut call.session.value } else { &mut [] };
            replies.extend(steps.iter().map(|step| step.run(value, false, &mut false)));
        }
        Some(end) => {
            let mut changes = false;
            call.keys.update(call.argument(1), |old| {
                let mut value = old.unwrap_or_default().to_vec();
                value.resize(value.len().max(end.div_ceil(8) as usize), 0);
                let is_longer = old.is_none_or(|old| old.len() < value.len());
                replies.clear();
                changes = false;
                replies.extend(steps.iter().map(|step| step.run(&mut value, is_longer, &mut changes)));
                Change::Put(Cow::Owned(value))
            })?;
            if changes {
                call.keys.note(Event::SETBIT, call.argument(1));
            }
        }
    }
    call.reply.array(replies.len());
    for reply in replies {
        match reply {
            Some(number) => call.reply.integer(number),
            None => call.reply.null(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_of_any_type_is_loaded_as_it_was_stored_and_changes_no_other_bit() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..5000 {
            let is_signed = rng.bool();
            let of = Type { is_signed, bits: rng.u32(1..=if is_signed { 64 } else { 63 }) };
            let (least, most) = of.range();
            let number = rng.i128(least..=most);
            let mut value: Vec<u8> = (0..20).map(|_| rng.u8(..)).collect();
            let at = rng.u64(..=160 - u64::from(of.bits));
            let before = value.clone();
            store(&mut value, at, of, number);
            assert_eq!(load(&value, at, of), number, "{of:?} at {at}");
            for bit in (0..160).filter(|bit| !(at..at + u64::from(of.bits)).contains(bit)) {
                let of = |value: &[u8]| value[bit as usize / 8] >> (7 - bit % 8) & 1;
                assert_eq!(of(&value), of(&before), "bit {bit}");
            }
        }
    }
}
