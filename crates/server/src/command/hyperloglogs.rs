//! HyperLogLog: PFADD, PFCOUNT, PFMERGE. The value is a string in the format of Redis, so it can be copied between both.
//!
//! 16,384 registers of 6 bits; the estimator is that of Ertl, *New cardinality estimation algorithms for HyperLogLog sketches*, 2017, as in
//! Redis. The string has 16 bytes of head (`HYLL`, the encoding, three unused bytes, the cached estimate), then the registers:
//!
//! * dense: all registers, six bits each, from the lowest bit on
//! * sparse: runs of registers. `00nnnnnn`: n+1 zeros. `01nnnnnn nnnnnnnn`: n+1 zeros. `1vvvvvnn`: n+1 registers of v+1.

use std::borrow::Cow;

use bristlecone::Change;

use super::{ALL_KEYS, Call, Command, CommandError, Flags, Handler, KeyPositions, ONE_KEY};
use crate::access::AccessError;
use crate::notifications::Event;

/// Number of registers.
const REGISTERS: usize = 1 << 14;
/// Bits of a hash that are not the register's number.
const REST_BITS: u32 = 50;
/// Bits of a register.
const BITS: usize = 6;
/// Bytes of the head.
const HEAD: usize = 16;
/// Bytes of a dense value.
const DENSE: usize = HEAD + REGISTERS * BITS / 8;
/// Maximum bytes of a sparse value, as in Redis's default settings.
const SPARSE_MAX: usize = 3000;
/// The largest register of a sparse value.
const SPARSE_VALUE_MAX: u8 = 32;

const MAGIC: &[u8] = b"HYLL";
/// The first bit of the last byte of the cached estimate: it is out of date.
const STALE: u8 = 0x80;

const fn command(
    name: &'static str,
    flags: Flags,
    keys: KeyPositions,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity: -2, flags, keys, group: "hyperloglog", summary, handler }
}

const CHANGE: Flags = Flags::WRITE.and(Flags::GROWS);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("pfadd", CHANGE.and(Flags::FAST), ONE_KEY, "Adds elements to a HyperLogLog.", add),
    command("pfcount", Flags::READ, ALL_KEYS, "Estimates the number of different elements.", count),
    command("pfmerge", CHANGE, ALL_KEYS, "Merges HyperLogLogs into the first one.", merge),
];

/// The registers of a value.
#[derive(Clone)]
struct Sketch {
    registers: Box<[u8; REGISTERS]>,
    is_dense: bool,
}

fn wrong_type() -> CommandError {
    CommandError::Text("WRONGTYPE Key is not a valid HyperLogLog string value.".to_owned())
}

fn corrupt() -> CommandError {
    CommandError::Text("INVALIDOBJ Corrupted HLL object detected".to_owned())
}

impl Default for Sketch {
    fn default() -> Self {
        Self { registers: Box::new([0; REGISTERS]), is_dense: false }
    }
}

impl Sketch {
    /// The sketch in a string.
    fn decode(value: &[u8]) -> Result<Self, CommandError> {
        let Some((head, body)) = value.split_at_checked(HEAD).filter(|(head, _)| head.starts_with(MAGIC))
        else {
            return Err(wrong_type());
        };
        let mut sketch = Self::default();
        match head[4] {
            0 if value.len() == DENSE => {
                sketch.is_dense = true;
                for (at, register) in sketch.registers.iter_mut().enumerate() {
                    let (byte, shift) = (at * BITS / 8, at * BITS % 8);
                    let next = body.get(byte + 1).copied().unwrap_or(0);
                    let two = u16::from_le_bytes([body[byte], next]);
                    *register = (two >> shift) as u8 & 0x3F;
                }
            }
            1 => sketch.decode_sparse(body).ok_or_else(corrupt)?,
            _ => return Err(wrong_type()),
        }
        Ok(sketch)
    }

    /// `None` if the runs are not exactly all registers.
    fn decode_sparse(&mut self, mut body: &[u8]) -> Option<()> {
        let mut rest = &mut self.registers[..];
        while let Some((first, after)) = body.split_first() {
            body = after;
            let (count, value) = match first >> 6 {
                0 => (usize::from(first & 0x3F) + 1, 0),
                1 => {
                    let (second, after) = body.split_first()?;
                    body = after;
                    ((usize::from(first & 0x3F) << 8 | usize::from(*second)) + 1, 0)
                }
                _ => (usize::from(first & 3) + 1, (first >> 2 & 0x1F) + 1),
            };
            let (run, behind) = rest.split_at_mut_checked(count)?;
            run.fill(value);
            rest = behind;
        }
        rest.is_empty().then_some(())
    }

    /// The string: sparse if it was and still can be, and is short.
    fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEAD + 64);
        value.extend_from_slice(MAGIC);
        value.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, STALE]);
        if !self.is_dense && self.encode_sparse(&mut value) {
            return value;
        }
        value.truncate(HEAD);
        value[4] = 0;
        value.resize(DENSE, 0);
        for (at, register) in self.registers.iter().enumerate() {
            let (byte, shift) = (HEAD + at * BITS / 8, at * BITS % 8);
            let [low, high] = (u16::from(*register) << shift).to_le_bytes();
            value[byte] |= low;
            if high != 0 {
                value[byte + 1] |= high;
            }
        }
        value
    }

    /// False if there is no sparse form, or if it is too long.
    fn encode_sparse(&self, value: &mut Vec<u8>) -> bool {
        for run in self.registers.chunk_by(|a, b| a == b) {
            let register = run[0];
            if register > SPARSE_VALUE_MAX {
                return false;
            }
            let mut left = run.len();
            while left > 0 {
                let count = left.min(match register {
                    0 => REGISTERS,
                    _ => 4,
                });
                let more = count - 1;
                match register {
                    0 if more < 64 => value.push(more as u8),
                    0 => value.extend_from_slice(&[0x40 | (more >> 8) as u8, more as u8]),
                    _ => value.push(0x80 | (register - 1) << 2 | more as u8),
                }
                left -= count;
            }
            if value.len() > SPARSE_MAX {
                return false;
            }
        }
        true
    }

    /// Adds an element. True if a register has changed.
    fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur(element);
        let register = &mut self.registers[hash as usize % REGISTERS];
        let rest = hash >> REGISTERS.ilog2() | 1 << REST_BITS;
        let length = rest.trailing_zeros() as u8 + 1;
        let grows = length > *register;
        if grows {
            *register = length;
        }
        grows
    }

    fn merge(&mut self, other: &Self) {
        self.is_dense |= other.is_dense;
        for (own, other) in self.registers.iter_mut().zip(&other.registers[..]) {
            *own = (*own).max(*other);
        }
    }

    /// The estimated number of different elements.
    fn estimate(&self) -> u64 {
        let mut counts = [0_u32; 64];
        self.registers.iter().for_each(|register| counts[usize::from(*register % 64)] += 1);
        let all = REGISTERS as f64;
        let last = REST_BITS as usize;
        let mut sum = all * tau((all - f64::from(counts[last + 1])) / all);
        for count in counts[1..=last].iter().rev() {
            sum = (sum + f64::from(*count)) * 0.5;
        }
        sum += all * sigma(f64::from(counts[0]) / all);
        // 1 / (2 ln 2)
        (0.721_347_520_444_481_7 * all * all / sum).round() as u64
    }
}

/// x + sum of x^(2^k) 2^(k-1) for k from 1 on.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * power;
        power += power;
        if before == sum {
            return sum;
        }
    }
}

/// (1 - x - sum of (1 - x^(2^-k))^2 2^-k for k from 1 on) / 3.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut power, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        power *= 0.5;
        sum -= (1.0 - x).powi(2) * power;
        if before == sum {
            return sum / 3.0;
        }
    }
}

/// The hash of Redis's HyperLogLog: MurmurHash2 in its 64-bit form, with Redis's seed.
fn murmur(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xC6A4_A793_5BD1_E995;
    const SEED: u64 = 0xADC8_3B19;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word ^= word >> 47;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 47
}

fn add(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (key, elements) = (call.argument(1), call.rest(2));
    let mut result = Ok(false);
    call.keys.update(key, |old| {
        let sketch = old.map(Sketch::decode).transpose();
        let mut sketch = match sketch {
            Ok(sketch) => sketch.unwrap_or_default(),
            Err(error) => {
                result = Err(error);
                return Change::Keep;
            }
        };
        let grows = elements.iter().fold(false, |grows, element| sketch.add(element) | grows);
        let changes = grows || old.is_none();
        result = Ok(changes);
        if changes { Change::Put(Cow::Owned(sketch.encode())) } else { Change::Keep }
    })?;
    let changes = result?;
    if changes {
        call.keys.note(Event::PFADD, key);
    }
    call.reply.flag(changes);
    Ok(())
}

fn count(call: &mut Call<'_>) -> Result<(), CommandError> {
    let keys: Vec<&[u8]> = call.rest(1).iter().map(|key| &key[..]).collect();
    let (mut all, mut wrong, mut is_other) = (Sketch::default(), Ok(()), Vec::new());
    call.keys.get_each(&keys, |value| {
        match value.as_deref().map(Sketch::decode) {
            Some(Ok(sketch)) => all.merge(&sketch),
            Some(Err(error)) => wrong = Err(error),
            None => {}
        }
        is_other.push(value.is_none());
        wrong.is_ok()
    })?;
    wrong?;
    // A value of another type is not read as a string.
    for (key, _) in keys.iter().zip(is_other).filter(|(_, is_other)| *is_other) {
        if call.keys.contains(key)? {
            return Err(AccessError::WrongType.into());
        }
    }
    call.reply.count(all.estimate());
    Ok(())
}

fn merge(call: &mut Call<'_>) -> Result<(), CommandError> {
    let (db, keys, shared) = (call.keys.db(), call.rest(1), call.shared);
    let target = &keys[0];
    let merged = call.keys.together(|all| {
        let mut table = all.db(db)?;
        let mut result = Sketch::default();
        for key in keys {
            let value = table.get(key)?;
            table.note_read(key, value.is_some());
            let Some(value) = value else { continue };
            match Sketch::decode(&value) {
                Ok(sketch) => result.merge(&sketch),
                Err(error) => return Ok(Err(error)),
            }
        }
        let value = result.encode();
        shared.eviction.charge(value.len());
        let deadline = table.stored(target)?.and_then(|(_, deadline)| deadline);
        table.note_new(target)?;
        table.put_stored(target, &value, deadline)?;
        table.note(Event::PFADD, target);
        Ok(Ok(()))
    })?;
    merged?;
    call.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sketch_is_the_one_that_was_encoded() {
        let mut sketch = Sketch::default();
        for number in 0..20_000_u32 {
            if number.is_power_of_two() || number == 19_999 {
                let value = sketch.encode();
                let decoded = Sketch::decode(&value).unwrap();
                assert!(decoded.registers == sketch.registers && decoded.encode() == value);
                assert_eq!(value.len() == DENSE, decoded.is_dense);
                assert!(value.len() <= SPARSE_MAX || decoded.is_dense, "{number}");
                let estimate = sketch.estimate() as f64;
                assert!(
                    (estimate - f64::from(number)).abs() <= f64::from(number) * 0.03 + 1.0,
                    "{number}: {estimate}"
                );
            }
            sketch.add(&number.to_le_bytes());
        }
    }

    #[test]
    fn strings_that_are_no_sketches_are_refused() {
        let good = Sketch::default().encode();
        assert!(Sketch::decode(&good).is_ok());
        for length in 0..good.len() {
            assert!(Sketch::decode(&good[..length]).is_err());
        }
        let longer = [&good[..], &[0]].concat();
        assert!(Sketch::decode(&longer).is_err(), "more registers than there are");
        let mut other = good;
        other[4] = 2;
        assert!(Sketch::decode(&other).is_err());
    }
}
