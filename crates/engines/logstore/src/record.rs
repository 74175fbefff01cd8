//! The contents of a log record: the updates of one operation.
//!
//! ```text
//! update   kind: u8, 1: put, 2: delete | 0: 3 bytes | key bytes: u32 | value bytes: u32 | key … | value …
//! ```
//!
//! A batch is one record, so a crash keeps all of it or nothing.

use std::borrow::Borrow;

use bwtree::{Late, Pairs};

const PUT: u8 = 1;
const DELETE: u8 = 2;
/// Bytes of an update besides its key and its value.
pub(crate) const HEAD: usize = 12;

/// Appends an update. `None` as the value: the key is removed.
pub(crate) fn encode<P: Pairs>(key: &P::Key, value: Option<&P::Value>, to: &mut Vec<u8>) {
    let from = to.len();
    to.extend([0; HEAD]);
    P::write_key(key, to);
    let key_bytes = to.len() - from - HEAD;
    if let Some(value) = value {
        P::write_value(value, to);
    }
    let value_bytes = to.len() - from - HEAD - key_bytes;
    to[from] = if value.is_some() { PUT } else { DELETE };
    to[from + 4..from + 8].copy_from_slice(&(key_bytes as u32).to_le_bytes());
    to[from + 8..from + HEAD].copy_from_slice(&(value_bytes as u32).to_le_bytes());
}

/// Bytes of the keys and values of a record with this number of updates.
pub(crate) fn pair_bytes(contents: usize, updates: usize) -> u64 {
    contents.saturating_sub(updates * HEAD) as u64
}

/// The updates of a record: bytes of keys and values. `None` if the contents are damaged.
pub(crate) fn decode<P: Pairs>(mut from: &[u8]) -> Option<Vec<Late<'_>>> {
    let mut updates = Vec::new();
    while !from.is_empty() {
        let (head, rest) = from.split_at_checked(HEAD)?;
        let number = |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?) as usize);
        let (key, rest) = rest.split_at_checked(number(4)?)?;
        let (value, rest) = rest.split_at_checked(number(8)?)?;
        let value = match head[0] {
            PUT if P::is_pair((key, value)) => Some(value),
            DELETE if value.is_empty() && P::read_key(key).is_some() => None,
            _ => return None,
        };
        updates.push((key, value));
        from = rest;
    }
    Some(updates)
}

/// Calls `apply` with the key and the value of an update. `None` if the bytes are damaged.
pub(crate) fn with<P: Pairs, R>(
    (key, value): Late<'_>,
    apply: impl FnOnce(&P::Key, Option<&P::Value>) -> R,
) -> Option<R> {
    let key = P::read_key(key)?;
    let value = value.map_or(Some(None), |value| P::read_value(value).map(Some))?;
    Some(apply(key.borrow(), value.as_ref().map(Borrow::borrow)))
}
