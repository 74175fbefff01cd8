//! The elements of a stream.
//!
//! | tag | rest of the key | value |
//! |---|---|---|
//! | [`META`] | | [`Meta`]: one in each stream, so that a stream without entries exists |
//! | [`ENTRY`] | ID | fields and values in turn, each with its length before it |
//! | [`GROUP`] | name of the group | [`Group`] |
//! | [`CONSUMER`] | number of the group, name of the consumer | the time when it was last seen |
//! | [`PENDING`] | number of the group, ID | [`Pending`] |
//!
//! The length of the head counts the entries and the meta element. Numbers have 8 bytes, an ID has two numbers.

use super::Head;
use super::access::{Range, Source, Structure, tagged};
use crate::access::{Result, Together};
use crate::command::CommandError;

/// The tag of what a stream has beside its entries.
pub const META: u8 = b'i';
/// The tag of an entry.
pub const ENTRY: u8 = b'e';
/// The tag of a group.
pub const GROUP: u8 = b'g';
/// The tag of a consumer.
pub const CONSUMER: u8 = b'c';
/// The tag of an entry that a consumer has not acknowledged.
pub const PENDING: u8 = b'p';

/// Number of entries that a group has read, if it is not known.
pub const UNKNOWN: u64 = u64::MAX;

/// The ID of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Milliseconds, usually since 1970.
    pub ms: u64,
    /// Number among the entries of the same millisecond.
    pub seq: u64,
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// The error for a text that is no ID.
#[must_use]
pub fn invalid_id() -> CommandError {
    CommandError::Text("ERR Invalid stream ID specified as stream command argument".to_owned())
}

/// A number of an ID: digits only.
///
/// # Errors
/// It is none.
pub fn id_part(text: &[u8]) -> std::result::Result<u64, CommandError> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| is_plain).and_then(|text| text.parse().ok());
    number.ok_or_else(invalid_id)
}

impl Id {
    /// The lowest ID.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The highest ID.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Parses an ID. `seq` is the second number if there is none.
    ///
    /// # Errors
    /// It is no ID.
    pub fn parse(text: &[u8], seq: u64) -> std::result::Result<Self, CommandError> {
        match text.iter().position(|byte| *byte == b'-') {
            Some(at) => Ok(Self { ms: id_part(&text[..at])?, seq: id_part(&text[at + 1..])? }),
            None => Ok(Self { ms: id_part(text)?, seq }),
        }
    }

    /// The next ID. `None` after the highest one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The ID before. `None` before the lowest one.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// As a part of a key: the order of the bytes is that of the IDs.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// The ID in the first bytes of a key.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let [ms, seq] = numbers(bytes);
        Self { ms, seq }
    }
}

/// The numbers at the front of a value; 0 for those that are missing.
fn numbers<const N: usize>(value: &[u8]) -> [u64; N] {
    let (words, _) = value.as_chunks::<8>();
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_be_bytes(*word)))
}

fn joined(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// What a stream has beside its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The highest ID that was ever added.
    pub last: Id,
    /// The highest ID that was removed by XDEL.
    pub deleted: Id,
    /// Number of entries that were ever added.
    pub added: u64,
    /// Number of entries.
    pub length: u64,
    /// The number of the next group.
    pub next_group: u64,
}

impl Meta {
    fn encode(&self) -> Vec<u8> {
        let (last, deleted) = (self.last, self.deleted);
        joined(&[last.ms, last.seq, deleted.ms, deleted.seq, self.added, self.length, self.next_group])
    }

    /// From the stored value.
    #[must_use]
    pub fn decode(value: &[u8]) -> Self {
        let [ms, seq, deleted_ms, deleted_seq, added, length, next_group] = numbers(value);
        let deleted = Id { ms: deleted_ms, seq: deleted_seq };
        Self { last: Id { ms, seq }, deleted, added, length, next_group }
    }

    /// The meta element of a stream.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(stream: &Structure<'_>, all: &mut Together<'_>) -> Result<Self> {
        Ok(stream.get(all, META, b"")?.map(|value| Self::decode(&value)).unwrap_or_default())
    }

    /// Stores it, and the length in the head.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(&self, stream: &mut Structure<'_>, all: &mut Together<'_>) -> Result<()> {
        stream.head.count = self.length + 1;
        stream.put(all, META, b"", &self.encode())
    }

    /// True if XDEL has removed an entry between others, with this ID or a higher one. `first` is the lowest ID of the entries.
    #[must_use]
    pub fn has_gap_from(&self, id: Id, first: Id) -> bool {
        self.length > 0 && self.deleted != Id::MIN && first <= self.deleted && id <= self.deleted
    }

    /// Number of entries up to this ID that were ever added, or [`UNKNOWN`]. `first` is the lowest ID of the entries.
    #[must_use]
    pub fn position(&self, id: Id, first: Id) -> u64 {
        if self.added == 0 {
            return 0;
        }
        if self.length == 0 && id <= self.last || id == self.last {
            return self.added;
        }
        if id > self.last {
            return UNKNOWN;
        }
        let has_no_gap = self.deleted == Id::MIN || self.deleted < first;
        match id.cmp(&first) {
            std::cmp::Ordering::Less if has_no_gap => self.added - self.length,
            std::cmp::Ordering::Equal if has_no_gap => self.added - self.length + 1,
            _ => UNKNOWN,
        }
    }

    /// Number of entries that a group has not read, if it is known. `first` is the lowest ID of the entries. It is negative if ENTRIESREAD
    /// was given a higher number than there are entries.
    #[must_use]
    pub fn lag(&self, group: &Group, first: Id) -> Option<i64> {
        if self.added == 0 {
            return Some(0);
        }
        let read = match group.read != UNKNOWN && !self.has_gap_from(group.last, first) {
            true => group.read,
            false => self.position(group.last, first),
        };
        (read != UNKNOWN).then(|| self.added.wrapping_sub(read).cast_signed())
    }
}

/// A group of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number, which its consumers and pending entries have in their keys.
    pub number: u64,
    /// The highest ID that was delivered.
    pub last: Id,
    /// Number of entries that were read, or [`UNKNOWN`].
    pub read: u64,
}

impl Group {
    /// From the stored value.
    #[must_use]
    pub fn decode(value: &[u8]) -> Self {
        let [number, ms, seq, read] = numbers(value);
        Self { number, last: Id { ms, seq }, read }
    }

    /// A group of a stream.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(stream: &Structure<'_>, all: &mut Together<'_>, name: &[u8]) -> Result<Option<Self>> {
        Ok(stream.get(all, GROUP, name)?.map(|value| Self::decode(&value)))
    }

    /// Stores it.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(&self, stream: &mut Structure<'_>, all: &mut Together<'_>, name: &[u8]) -> Result<()> {
        let value = joined(&[self.number, self.last.ms, self.last.seq, self.read]);
        stream.put(all, GROUP, name, &value)
    }

    /// The key of a consumer after its tag.
    #[must_use]
    pub fn consumer(&self, name: &[u8]) -> Vec<u8> {
        [&self.number.to_be_bytes(), name].concat()
    }

    /// The key of a pending entry after its tag.
    #[must_use]
    pub fn pending(&self, id: Id) -> Vec<u8> {
        [&self.number.to_be_bytes()[..], &id.bytes()].concat()
    }

    /// The elements of a tag that belong to this group, from an ID on.
    #[must_use]
    pub fn range(&self, head: &Head, tag: u8, from: &[u8]) -> Range {
        let low = head.element(tag, &[&self.number.to_be_bytes()[..], from].concat());
        let end = head.element(tag, &self.number.wrapping_add(1).to_be_bytes());
        (std::ops::Bound::Included(low), std::ops::Bound::Excluded(end))
    }

    /// The pending entries from an ID on, at most those for which `visit` returns true.
    ///
    /// # Errors
    /// Those of the store.
    pub fn visit_pending(
        &self,
        source: &mut dyn Source,
        head: &Head,
        from: Id,
        visit: &mut dyn FnMut(Id, Pending) -> bool,
    ) -> Result<()> {
        source.scan(self.range(head, PENDING, &from.bytes()), false, &mut |rest, value| {
            visit(Id::of_bytes(rest.get(8..).unwrap_or_default()), Pending::decode(value))
        })
    }

    /// The names of the consumers, and when they were last seen, in the order of the names.
    ///
    /// # Errors
    /// Those of the store.
    pub fn consumers(&self, source: &mut dyn Source, head: &Head) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut consumers = Vec::new();
        source.scan(self.range(head, CONSUMER, b""), false, &mut |rest, value| {
            let [seen] = numbers(value);
            consumers.push((rest.get(8..).unwrap_or_default().to_vec(), seen));
            true
        })?;
        Ok(consumers)
    }

    /// Notes that a consumer was seen. True if it is new.
    ///
    /// # Errors
    /// Those of the store.
    pub fn see(
        &self,
        stream: &mut Structure<'_>,
        all: &mut Together<'_>,
        consumer: &[u8],
        now: u64,
    ) -> Result<bool> {
        let key = self.consumer(consumer);
        let is_new = !stream.has(all, CONSUMER, &key)?;
        stream.put(all, CONSUMER, &key, &now.to_be_bytes())?;
        Ok(is_new)
    }
}

/// An entry that a consumer has not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The time of its last delivery, in milliseconds since 1970.
    pub time: u64,
    /// Number of deliveries.
    pub deliveries: u64,
    /// The consumer.
    pub consumer: Vec<u8>,
}

impl Pending {
    fn decode(value: &[u8]) -> Self {
        let [time, deliveries] = numbers(value);
        Self { time, deliveries, consumer: value.get(16..).unwrap_or_default().to_vec() }
    }

    /// The pending entry of an ID.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(
        stream: &Structure<'_>,
        all: &mut Together<'_>,
        group: &Group,
        id: Id,
    ) -> Result<Option<Self>> {
        Ok(stream.get(all, PENDING, &group.pending(id))?.map(|value| Self::decode(&value)))
    }

    /// Stores it.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(
        &self,
        stream: &mut Structure<'_>,
        all: &mut Together<'_>,
        group: &Group,
        id: Id,
    ) -> Result<()> {
        let value = [&joined(&[self.time, self.deliveries])[..], &self.consumer].concat();
        stream.put(all, PENDING, &group.pending(id), &value)
    }
}

/// An entry: its ID, and its fields and values in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its ID.
    pub id: Id,
    /// Fields and values in turn.
    pub fields: Vec<Vec<u8>>,
}

/// The stored value of an entry.
#[must_use]
pub fn encode_fields<'f>(fields: impl IntoIterator<Item = &'f [u8]>) -> Vec<u8> {
    let mut value = Vec::new();
    for field in fields {
        // A value has at most 256 MiB.
        value.extend_from_slice(&(field.len() as u32).to_be_bytes());
        value.extend_from_slice(field);
    }
    value
}

/// The fields and values of a stored value.
#[must_use]
pub fn decode_fields(mut value: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = Vec::new();
    while let Some((length, rest)) = value.split_first_chunk::<4>() {
        let length = (u32::from_be_bytes(*length) as usize).min(rest.len());
        let (field, rest) = rest.split_at(length);
        fields.push(field.to_vec());
        value = rest;
    }
    fields
}

/// How many entries are read at most: a number, and bytes of fields. A few bytes more show that the reply would be too long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of entries.
    pub count: usize,
    /// Bytes of fields.
    pub bytes: usize,
}

impl Limits {
    /// One entry.
    pub const ONE: Self = Self { count: 1, bytes: usize::MAX };
}

/// The elements of the entries from one ID to another, both included. `None` if there are none.
fn range_of(head: &Head, (from, to): (Id, Id)) -> Option<Range> {
    let bound = |id: Id| std::ops::Bound::Included(head.element(ENTRY, &id.bytes()));
    (from <= to).then(|| (bound(from), bound(to)))
}

/// The entries from one ID to another, both included.
///
/// # Errors
/// Those of the store.
pub fn entries(
    source: &mut dyn Source,
    head: &Head,
    ids: (Id, Id),
    descending: bool,
    limits: Limits,
) -> Result<Vec<Entry>> {
    let (mut entries, mut bytes) = (Vec::new(), 0_usize);
    let Some(range) = range_of(head, ids).filter(|_| limits.count > 0) else { return Ok(entries) };
    source.scan(range, descending, &mut |rest, value| {
        bytes = bytes.saturating_add(value.len());
        entries.push(Entry { id: Id::of_bytes(rest), fields: decode_fields(value) });
        entries.len() < limits.count && bytes <= limits.bytes
    })?;
    Ok(entries)
}

/// The IDs of the first entries up to an ID, at most `count`.
///
/// # Errors
/// Those of the store.
pub fn first_ids(source: &mut dyn Source, head: &Head, last: Id, count: usize) -> Result<Vec<Id>> {
    let mut ids = Vec::new();
    let Some(range) = range_of(head, (Id::MIN, last)).filter(|_| count > 0) else { return Ok(ids) };
    source.scan(range, false, &mut |rest, _| {
        ids.push(Id::of_bytes(rest));
        ids.len() < count
    })?;
    Ok(ids)
}

/// The lowest ID of the entries; the highest possible one if there are none.
///
/// # Errors
/// Those of the store.
pub fn first_id(source: &mut dyn Source, head: &Head) -> Result<Id> {
    let mut first = Id::MAX;
    source.scan(tagged(head, ENTRY, b"", false), false, &mut |rest, _| {
        first = Id::of_bytes(rest);
        false
    })?;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_as_their_bytes_and_wrap_around() {
        let ids =
            [(0, 0), (0, 1), (0, u64::MAX), (1, 0), (u64::MAX, u64::MAX)].map(|(ms, seq)| Id { ms, seq });
        assert!(ids.is_sorted() && ids.map(Id::bytes).is_sorted());
        assert_eq!(ids.map(|id| Id::of_bytes(&id.bytes())), ids);
        assert_eq!(
            (ids[2].next(), ids[3].previous(), ids[4].next(), ids[0].previous()),
            (Some(ids[3]), Some(ids[2]), None, None)
        );
        assert_eq!(Id::parse(b"7", 3).unwrap(), Id { ms: 7, seq: 3 });
        assert_eq!(Id::parse(b"7-9", 3).unwrap(), Id { ms: 7, seq: 9 });
        for wrong in [&b""[..], b"-", b"1-", b"-1", b"+1", b"1-1-1", b"x", b" 1", b"18446744073709551616"] {
            assert!(Id::parse(wrong, 0).is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn fields_are_what_they_were_and_a_cut_value_gives_fewer() {
        let fields = [&b"a"[..], b"", b"long\0value"];
        let value = encode_fields(fields);
        assert_eq!(decode_fields(&value), fields.map(<[u8]>::to_vec));
        for length in 0..value.len() {
            assert!(decode_fields(&value[..length]).len() <= 3);
        }
    }
}
