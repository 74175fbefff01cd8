//! The payload of DUMP: a value of any type as a string of bytes, and its check for RESTORE.
//!
//! All numbers are big-endian. docs/format.md has the same table.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `MAGIC` |
//! | 1 | version: 1 |
//! | 1 | type: `t` string, or the type in the head of a structure |
//! | … | string: its bytes. List: of each element in turn, length (4) and bytes. Other structures: records |
//! | 4 | CRC-32C of all bytes before |
//!
//! A record is an element as the store has it: length of the key (4), the key from its tag on, length of the value (4), the value. Records
//! are in the order of their keys. A sorted set has only the records of its members: those of the scores follow from them.
//!
//! Invariants:
//! * D1: a value has one payload. RESTORE refuses all other payloads. So DUMP returns the payload again that RESTORE was given.
//! * D2: RESTORE writes nothing before the whole payload has been checked. The check takes memory for the groups and consumers of a stream,
//!   and for nothing else.
//! * D3: an accepted payload keeps the invariants of its type: the elements of a stream fit together, and a score is a number.

use bristlecone::{TABLE_KEY_BYTES_MAX, TABLE_VALUE_BYTES_MAX};
use rustc_hash::FxHashSet;

use super::access::{Structure, View, all_of, check_element};
use super::scores;
use super::streams::{self, Group, Id, Meta, UNKNOWN};
use super::{Head, Kind, Value, decode};
use crate::access::{Result, Together};
use crate::command::lists::MIDDLE;

const MAGIC: &[u8; 8] = b"BRSTDUMP";
const VERSION: u8 = 1;
/// The type of a string.
const STRING: u8 = b't';
/// Bytes of the checksum.
const CHECKSUM: usize = 4;

/// Maximum size of a structure that can be restored: bytes of keys and values, and `ELEMENT_COST` for each element.
pub const COST_MAX: usize = 256 << 20;
/// Approximate bytes of memory for an element in a transaction, besides its key and value.
const ELEMENT_COST: usize = 128;
/// The largest number that a stream keeps: counters may still grow.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// The reason why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has another version, is damaged, or comes from another program.
    #[error("ERR DUMP payload version or checksum are wrong")]
    Foreign,
    /// Its checksum is right, but its content is no value (D3).
    #[error("ERR Bad data format")]
    Wrong,
    /// It has too many elements for one transaction.
    #[error(
        "ERR the payload has too many elements: with {ELEMENT_COST} bytes for each, they may take {COST_MAX} bytes. Copy them in parts"
    )]
    TooMany,
}

/// A payload that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'p> {
    /// The type. `None` for a string.
    pub kind: Option<Kind>,
    body: &'p [u8],
}

/// A part with its length before it.
fn part<'p>(rest: &mut &'p [u8]) -> Option<&'p [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (part, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = after;
    Some(part)
}

/// The next record: key and value. The elements of a list have no keys.
fn record<'p>(kind: Kind, rest: &mut &'p [u8]) -> Option<(&'p [u8], &'p [u8])> {
    let key = if kind == Kind::List { &[] } else { part(rest)? };
    Some((key, part(rest)?))
}

/// Writes a record.
fn put_record(kind: Kind, (key, value): (&[u8], &[u8]), payload: &mut Vec<u8>) {
    for part in [key, value].into_iter().skip(usize::from(kind == Kind::List)) {
        // A key has at most 64 KiB, a value 256 MiB.
        payload.extend_from_slice(&(part.len() as u32).to_be_bytes());
        payload.extend_from_slice(part);
    }
}

/// Checks a payload (D2, D3).
///
/// # Errors
/// It cannot be restored.
pub fn parse(payload: &[u8]) -> std::result::Result<Payload<'_>, Refused> {
    let (content, checksum) = payload.split_last_chunk::<CHECKSUM>().ok_or(Refused::Foreign)?;
    let rest = content.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(&[VERSION]));
    let (kind, body) = rest.and_then(<[u8]>::split_first).ok_or(Refused::Foreign)?;
    if crc32c::crc32c(content).to_be_bytes() != *checksum {
        return Err(Refused::Foreign);
    }
    if *kind == STRING {
        let is_short = super::encode(body).len() <= TABLE_VALUE_BYTES_MAX;
        return if is_short { Ok(Payload { kind: None, body }) } else { Err(Refused::Wrong) };
    }
    let kind = Kind::ALL.into_iter().find(|known| *known as u8 == *kind).ok_or(Refused::Wrong)?;
    check(kind, body)?;
    Ok(Payload { kind: Some(kind), body })
}

/// Checks the elements of a structure.
fn check(kind: Kind, body: &[u8]) -> std::result::Result<(), Refused> {
    let (mut rest, mut cost, mut before) = (body, 0, None);
    let mut stream = StreamCheck::default();
    while !rest.is_empty() {
        let (key, value) = record(kind, &mut rest).ok_or(Refused::Wrong)?;
        cost += ELEMENT_COST + key.len() + value.len();
        if cost > COST_MAX {
            return Err(Refused::TooMany);
        }
        if kind == Kind::List {
            before = Some(key);
            if value.len() > TABLE_VALUE_BYTES_MAX {
                return Err(Refused::Wrong);
            }
            continue;
        }
        let is_behind = before.replace(key).is_none_or(|before| before < key);
        let (tag, name) = key.split_first().ok_or(Refused::Wrong)?;
        let fits = check_element(name, value).is_ok() && key.len() < TABLE_KEY_BYTES_MAX;
        let is_right = match kind {
            Kind::Hash => *tag == b'f',
            Kind::Set => *tag == b'm' && value.is_empty(),
            Kind::SortedSet => *tag == scores::MEMBER && is_score(value),
            Kind::Stream => stream.is_right(*tag, name, value).is_some(),
            Kind::List => false,
        };
        if !(is_behind && fits && is_right) {
            return Err(Refused::Wrong);
        }
    }
    let is_complete = if kind == Kind::Stream { stream.is_complete() } else { before.is_some() };
    if is_complete { Ok(()) } else { Err(Refused::Wrong) }
}

/// True if these bytes are a score as the store has it: a number, and zero without a sign.
fn is_score(value: &[u8]) -> bool {
    let score = scores::decode(value);
    value.len() == 8 && !score.is_nan() && *value == (score + 0.0).to_bits().to_be_bytes()
}

/// The check of a stream. Its tags come in the order consumers, entries, groups, meta, pending entries.
#[derive(Debug, Default)]
struct StreamCheck<'p> {
    /// Number of a group and name of a consumer.
    consumers: FxHashSet<&'p [u8]>,
    /// The numbers of the groups that have consumers.
    used: FxHashSet<u64>,
    groups: FxHashSet<u64>,
    entries: u64,
    last: Id,
    meta: Option<Meta>,
    highest_group: u64,
}

impl<'p> StreamCheck<'p> {
    /// `None` if a record is wrong.
    fn is_right(&mut self, tag: u8, name: &'p [u8], value: &'p [u8]) -> Option<()> {
        let is_true = |holds: bool| holds.then_some(());
        let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        match tag {
            streams::CONSUMER => {
                self.consumers.insert(name);
                self.used.insert(number(name)?);
                is_true(value.len() == 8 && number(value)? <= NUMBER_MAX)
            }
            streams::ENTRY => {
                self.entries += 1;
                self.last = Id::of_bytes(name);
                let (mut rest, mut fields) = (value, 0);
                while !rest.is_empty() {
                    part(&mut rest)?;
                    fields += 1;
                }
                is_true(name.len() == 16 && self.last > Id::MIN && fields > 0 && fields % 2 == 0)
            }
            streams::GROUP => {
                let group = Group::decode(value);
                self.highest_group = self.highest_group.max(group.number);
                let is_known = group.read == UNKNOWN || group.read <= NUMBER_MAX;
                is_true(value.len() == 32 && is_known && self.groups.insert(group.number))
            }
            streams::META => {
                let meta = Meta::decode(value);
                self.meta = Some(meta);
                let (last, deleted) = (meta.last, meta.deleted);
                let has_groups = self.groups.is_empty() || self.highest_group < meta.next_group;
                let counts = meta.length == self.entries && meta.length <= meta.added;
                let numbers = meta.added <= NUMBER_MAX && meta.next_group <= NUMBER_MAX;
                let is_plain = value.len() == 56 && name.is_empty();
                is_true(is_plain && counts && numbers && has_groups && self.last <= last && deleted <= last)
            }
            streams::PENDING => {
                let ([time, deliveries], consumer) =
                    (value.as_chunks::<8>().0.first_chunk().copied()?, value.get(16..)?);
                let [time, deliveries] = [time, deliveries].map(u64::from_be_bytes);
                let owner = [name.get(..8)?, consumer].concat();
                let is_owned = self.consumers.contains(&owner[..]);
                is_true(name.len() == 24 && is_owned && time <= NUMBER_MAX && deliveries <= NUMBER_MAX)
            }
            _ => None,
        }
    }

    fn is_complete(&self) -> bool {
        self.meta.is_some() && self.used.is_subset(&self.groups)
    }
}

/// The payload of a key's value; `None` if the key is absent. If it would be longer than `bytes_max`, it is cut.
///
/// # Errors
/// Those of the store.
pub fn dump(view: &mut View<'_>, key: &[u8], bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let Some(stored) = view.stored(key)? else { return Ok(None) };
    let mut payload = [&MAGIC[..], &[VERSION]].concat();
    match decode(&stored)? {
        Value::String(string) => {
            payload.push(STRING);
            payload.extend_from_slice(string);
        }
        Value::Structure(head) => {
            payload.push(head.kind as u8);
            view.scan_tagged(all_of(&head), &mut |key, value| {
                let is_derived = head.kind == Kind::SortedSet && key.first() == Some(&scores::SCORE);
                if !is_derived {
                    put_record(head.kind, (key, value), &mut payload);
                }
                payload.len() <= bytes_max
            })?;
        }
    }
    let checksum = crc32c::crc32c(&payload);
    payload.extend_from_slice(&checksum.to_be_bytes());
    Ok(Some(payload))
}

impl Payload<'_> {
    /// The stored form of a string. `None` for a structure.
    #[must_use]
    pub fn string(&self) -> Option<Vec<u8>> {
        self.kind.is_none().then(|| super::encode(self.body).into_owned())
    }

    /// Bytes of the value.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Stores the elements of a structure that is new. The caller finishes it.
    ///
    /// # Errors
    /// Those of the store.
    pub fn store(&self, structure: &mut Structure<'_>, all: &mut Together<'_>) -> Result<()> {
        let Some(kind) = self.kind else { return Ok(()) };
        if kind == Kind::List {
            structure.head.extra = MIDDLE;
        }
        let Head { mut count, extra, .. } = structure.head;
        let mut rest = self.body;
        while let Some((key, value)) = record(kind, &mut rest) {
            match (kind, key.split_first()) {
                (Kind::List, _) => structure.put(all, LIST_AT, &(extra + count).to_be_bytes(), value)?,
                (_, None) => {}
                (Kind::SortedSet, Some((_, member))) => {
                    scores::put(structure, all, member, None, scores::decode(value))?;
                }
                (_, Some((tag, name))) => structure.put(all, *tag, name, value)?,
            }
            count += u64::from(kind != Kind::Stream || key.first() == Some(&streams::ENTRY));
        }
        // The meta element of a stream counts, too.
        structure.head.count = count + u64::from(kind == Kind::Stream);
        Ok(())
    }
}

/// The tag of an element of a list.
const LIST_AT: u8 = b'i';

/// A payload with this content and a right checksum, for tests.
#[must_use]
pub fn sealed(content: &[u8]) -> Vec<u8> {
    [content, &crc32c::crc32c(content).to_be_bytes()].concat()
}

/// The parts of a payload that has been checked, written again: equal to the payload (D1). For tests.
#[must_use]
pub fn again(payload: &Payload<'_>) -> Vec<u8> {
    let mut content = [&MAGIC[..], &[VERSION, payload.kind.map_or(STRING, |kind| kind as u8)]].concat();
    let mut rest = payload.body;
    match payload.kind {
        None => content.extend_from_slice(rest),
        Some(kind) => {
            while let Some(found) = record(kind, &mut rest) {
                put_record(kind, found, &mut content);
            }
        }
    }
    sealed(&content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
        let mut content = [&MAGIC[..], &[VERSION, kind]].concat();
        for part in parts {
            content.extend_from_slice(&(part.len() as u32).to_be_bytes());
            content.extend_from_slice(part);
        }
        sealed(&content)
    }

    #[test]
    fn a_changed_or_cut_payload_is_refused() {
        let whole = payload(b'h', &[b"fa", b"1", b"fb", b"2"]);
        assert_eq!(
            parse(&whole).map(|found| (found.kind, again(&found))),
            Ok((Some(Kind::Hash), whole.clone()))
        );
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert_eq!(parse(&other), Err(Refused::Foreign), "byte {at}");
            assert_eq!(parse(&whole[..at]), Err(Refused::Foreign), "{at} bytes");
        }
    }

    #[test]
    fn elements_that_do_not_fit_together_are_refused() {
        let one = 1_f64.to_bits().to_be_bytes();
        let cases: [(u8, &[&[u8]]); 12] = [
            (b'h', &[]),
            (b'l', &[]),
            (b'h', &[b"fb", b"1", b"fa", b"2"]),
            (b'h', &[b"fa", b"1", b"fa", b"2"]),
            (b'h', &[b"ma", b"1"]),
            (b'h', &[b"", b"1"]),
            (b's', &[b"ma", b"1"]),
            (b'z', &[b"ma", &f64::NAN.to_bits().to_be_bytes()]),
            (b'z', &[b"ma", &(-0_f64).to_bits().to_be_bytes()]),
            (b'z', &[b"ma", &one[1..]]),
            (b'x', &[b"i", &[0; 48]]),
            (b'q', &[b"a"]),
        ];
        for (kind, parts) in cases {
            assert_eq!(parse(&payload(kind, parts)), Err(Refused::Wrong), "{} {parts:?}", kind as char);
        }
        assert!(
            parse(&payload(b'z', &[b"ma", &one])).is_ok() && parse(&payload(b'x', &[b"i", &[0; 56]])).is_ok()
        );
        // A length of 4 GiB behind a right checksum.
        let content = [&MAGIC[..], &[VERSION, b'l'], &[0xFF; 4]].concat();
        assert_eq!(parse(&sealed(&content)), Err(Refused::Wrong));
    }

    #[test]
    fn a_stream_is_refused_if_its_parts_contradict_each_other() {
        let numbers =
            |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
        let (consumer, pending) =
            ([&b"c"[..], &numbers(&[0]), b"ann"].concat(), [&b"p"[..], &numbers(&[0, 5, 1])].concat());
        let entry = [&b"e"[..], &numbers(&[5, 1])].concat();
        let (fields, seen) = (streams::encode_fields([&b"a"[..], b"1"]), numbers(&[9]));
        let (group, meta) = (numbers(&[0, 5, 1, 1]), numbers(&[5, 1, 0, 0, 1, 1, 1]));
        let owned = [&numbers(&[9, 1])[..], b"ann"].concat();
        let right: Vec<(&[u8], &[u8])> = vec![
            (&consumer, &seen),
            (&entry, &fields),
            (b"gpackers", &group),
            (b"i", &meta),
            (&pending, &owned),
        ];
        let sent = |records: &[(&[u8], &[u8])]| {
            let parts: Vec<&[u8]> = records.iter().flat_map(|(key, value)| [*key, *value]).collect();
            parse(&payload(b'x', &parts)).is_ok()
        };
        assert!(sent(&right));
        // Without its group, its consumer, its entry or its meta element; only pending entries may be missing.
        for left_out in 0..5 {
            let mut records = right.clone();
            records.remove(left_out);
            assert_eq!(sent(&records), left_out == 4, "without {left_out}");
        }
        let other = [&numbers(&[9, 1])[..], b"bob"].concat();
        let too_low = numbers(&[4, 1, 0, 0, 1, 1, 1]);
        let added_less = numbers(&[5, 1, 0, 0, 0, 1, 1]);
        let no_next = numbers(&[5, 1, 0, 0, 1, 1, 0]);
        let odd = streams::encode_fields([&b"a"[..]]);
        let changes: [(usize, &[u8]); 6] =
            [(4, &other), (3, &too_low), (3, &added_less), (3, &no_next), (1, &odd), (1, b"")];
        for (at, value) in changes {
            let mut records = right.clone();
            records[at].1 = value;
            assert!(!sent(&records), "record {at} with {value:?}");
        }
    }

    #[test]
    fn many_tiny_elements_are_refused_before_they_take_memory() {
        let mut content = [&MAGIC[..], &[VERSION, b'l']].concat();
        content.resize(content.len() + 4 * (COST_MAX / ELEMENT_COST + 1), 0);
        assert_eq!(parse(&sealed(&content)), Err(Refused::TooMany));
        content.truncate(content.len() - 4);
        assert!(parse(&sealed(&content)).is_ok());
    }
}
