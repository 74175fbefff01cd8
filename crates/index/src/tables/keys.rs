//! Keys and values of [`Tables`](super::Tables) as the index stores them.
//!
//! | key in the index | value in the index |
//! |---|---|
//! | `0`, `1` | the catalog ([`super::catalog`]) |
//! | `0`, `2` | the number of keys of each table, written by a clean close |
//! | `0`, `3`, deadline (8 bytes, big-endian), stored key | empty: the entry of a deadline |
//! | number of a table, key | value, `0`: without a deadline |
//! | number of a table, key | value, deadline (8 bytes, little-endian), `1`: with a deadline |
//!
//! Digits in code font are single bytes. The number of a table is one byte from 1 to 239, or the byte 240 and four
//! bytes, big-endian. A *stored key* consists of the number of a table and a key. So the stored keys of a table are one
//! range, in the order of the table's keys. Deadlines are milliseconds since 1970.

use std::ops::{Bound, Deref};

use pmem::{Error, Result};

use crate::kind::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Maximum bytes that a table adds to a key, with the entry of its deadline.
const KEY_EXTRA: usize = 2 + 8 + 5;
/// Maximum bytes that a table adds to a value.
const VALUE_EXTRA: usize = 9;
/// Longest key in bytes of a store with tables.
pub const TABLE_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - KEY_EXTRA;
/// Longest value in bytes of a store with tables.
pub const TABLE_VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX - VALUE_EXTRA;

/// Key of the catalog.
pub(super) const CATALOG: &[u8] = &[0, 1];
/// Key of the counts.
pub(super) const COUNTS: &[u8] = &[0, 2];
/// Start of the keys of all deadlines.
pub(super) const DEADLINES: &[u8] = &[0, 3];
/// Above the keys of all deadlines.
pub(super) const DEADLINES_END: &[u8] = &[0, 4];
/// Below the keys of all tables.
pub(super) const FIRST_TABLE: &[u8] = &[1];
/// Numbers from here on take five bytes.
const LONG: u8 = 240;

/// Maximum bytes of a stored key that needs no allocation.
const INLINE: usize = 72;

/// A stored key: the number of a table, and a key of it.
pub(super) struct StoredKey {
    inline: [u8; INLINE],
    len: usize,
    /// The key if it is long, otherwise empty.
    long: Vec<u8>,
}

impl StoredKey {
    /// The stored key of `key` in table `id`.
    pub fn new(id: u32, key: &[u8]) -> Self {
        let (prefix, len) = prefix(id);
        let prefix = &prefix[..len];
        let mut stored = Self { inline: [0; INLINE], len: prefix.len() + key.len(), long: Vec::new() };
        if stored.len > INLINE {
            stored.long = [prefix, key].concat();
        } else {
            stored.inline[..prefix.len()].copy_from_slice(prefix);
            stored.inline[prefix.len()..stored.len].copy_from_slice(key);
        }
        stored
    }
}

impl Deref for StoredKey {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.inline[..self.len] } else { &self.long }
    }
}

/// The bytes of a table's number, and how many there are.
fn prefix(id: u32) -> ([u8; 5], usize) {
    let [a, b, c, d] = id.to_be_bytes();
    match u8::try_from(id) {
        Ok(short) if short < LONG => ([short, 0, 0, 0, 0], 1),
        _ => ([LONG, a, b, c, d], 5),
    }
}

/// The range of the keys of a table.
pub(super) fn range(id: u32) -> (Vec<u8>, Vec<u8>) {
    // The next number has as many bytes or a greater first byte.
    let (low, high) = (StoredKey::new(id, &[]), StoredKey::new(id + 1, &[]));
    (low.to_vec(), high.to_vec())
}

/// The table and the key of a stored key. `None` for the keys of the catalog, counts and deadlines, and for others that no table has.
pub(super) fn split_key(stored: &[u8]) -> Option<(u32, &[u8])> {
    let (&first, rest) = stored.split_first()?;
    match first {
        0 => None,
        short if short < LONG => Some((short.into(), rest)),
        LONG => {
            let (number, key) = rest.split_first_chunk()?;
            let id = u32::from_be_bytes(*number);
            (id >= LONG.into()).then_some((id, key))
        }
        _ => None,
    }
}

/// The key of a deadline's entry.
pub(super) fn entry(deadline: u64, stored: &[u8]) -> Vec<u8> {
    [DEADLINES, &deadline.to_be_bytes(), stored].concat()
}

/// The deadline and the stored key of an entry. `None` if this is the key of anything else.
pub(super) fn split_entry(entry: &[u8]) -> Option<(u64, &[u8])> {
    let (deadline, stored) = entry.strip_prefix(DEADLINES)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*deadline), stored))
}

/// The stored form of a value.
pub(super) fn tagged(value: &[u8], deadline: Option<u64>) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len() + VALUE_EXTRA);
    stored.extend_from_slice(value);
    if let Some(deadline) = deadline {
        stored.extend_from_slice(&deadline.to_le_bytes());
    }
    stored.push(deadline.is_some().into());
    stored
}

/// The stored form of a value without a deadline, in the memory of the value.
pub(super) fn tag(mut value: Vec<u8>) -> Vec<u8> {
    value.reserve_exact(1);
    value.push(false.into());
    value
}

/// The value and the deadline of a stored value.
///
/// # Errors
/// `Corrupt` if no table stored this.
pub(super) fn split_value(stored: &[u8]) -> Result<(&[u8], Option<u64>)> {
    let split = match stored.split_last() {
        Some((0, value)) => Some((value, None)),
        Some((1, rest)) => {
            rest.split_last_chunk().map(|(value, bytes)| (value, Some(u64::from_le_bytes(*bytes))))
        }
        _ => None,
    };
    let Some(split) = split else {
        return Err(Error::Corrupt { what: "value of a table", at: 0 });
    };
    Ok(split)
}

/// Turns a stored value into the value. Returns its deadline.
///
/// # Errors
/// As [`split_value`].
pub(super) fn untag(stored: &mut Vec<u8>) -> Result<Option<u64>> {
    let (value, deadline) = split_value(stored)?;
    let len = value.len();
    stored.truncate(len);
    Ok(deadline)
}

/// Returns an error if the stored form of a key or value would be too long.
pub(super) fn check_lengths(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let longest = [
        ("a key", key.len(), TABLE_KEY_BYTES_MAX),
        ("a value", value.map_or(0, <[u8]>::len), TABLE_VALUE_BYTES_MAX),
    ];
    for (of, bytes, limit) in longest {
        if bytes > limit {
            return Err(Error::Length { of, bytes: bytes as u64, limit: limit as u64 });
        }
    }
    Ok(())
}

/// Converts a bound of keys of a table to a bound of stored keys. `Unbounded` is the start of the table, or its end if `descending`.
pub(super) fn bound(id: u32, from: Bound<&[u8]>, descending: bool) -> Bound<Vec<u8>> {
    match from {
        Bound::Included(key) => Bound::Included(StoredKey::new(id, key).to_vec()),
        Bound::Excluded(key) => Bound::Excluded(StoredKey::new(id, key).to_vec()),
        Bound::Unbounded if descending => Bound::Excluded(range(id).1),
        Bound::Unbounded => Bound::Included(range(id).0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_order_by_table_and_key_and_split_again() {
        let ids = [1, 2, 238, 239, 240, 255, 256, 65_536, u32::MAX - 1];
        let keys: [&[u8]; 5] = [b"", b"\0", b"a", &[255; 71], &[255; 300]];
        let all: Vec<_> = ids.iter().flat_map(|id| keys.map(|key| (*id, key))).collect();
        let stored: Vec<_> = all.iter().map(|(id, key)| StoredKey::new(*id, key).to_vec()).collect();
        assert!(stored.is_sorted() && stored[0].as_slice() >= FIRST_TABLE);
        for ((id, key), stored) in all.iter().zip(&stored) {
            assert_eq!(split_key(stored), Some((*id, *key)));
            assert_eq!(split_entry(&entry(77, stored)), Some((77, &stored[..])));
            let (low, high) = range(*id);
            assert!(low <= *stored && *stored < high);
        }
        for foreign in [&b""[..], CATALOG, COUNTS, &entry(1, b"x"), &[241, 0, 0, 0, 1], &[240, 0, 0, 0, 239]]
        {
            assert_eq!(split_key(foreign), None);
        }
    }

    #[test]
    fn values_split_into_what_they_were_made_of_and_damage_is_an_error() {
        for (value, deadline) in [(&b""[..], None), (b"v", None), (b"", Some(0)), (b"v\x01", Some(u64::MAX))]
        {
            let mut stored = tagged(value, deadline);
            assert_eq!(split_value(&stored).unwrap(), (value, deadline));
            assert_eq!(untag(&mut stored).unwrap(), deadline);
            assert_eq!(stored, value);
        }
        for damaged in [&b""[..], b"\x02", b"1234567\x01"] {
            assert!(matches!(split_value(damaged), Err(Error::Corrupt { .. })), "{damaged:?}");
        }
    }
}
