//! The contents of a log record: the updates of one operation.
//!
//! ```text
//! update   kind: u8, 1: put, 2: delete | 0: 3 bytes | key bytes: u32 | value bytes: u32 | key … | value …
//! ```
//!
//! A batch is one record, so a crash keeps all of it or nothing.

use bwtree::Pairs;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const HEAD: usize = 12;

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

/// An update of a record.
pub(crate) type Update<P> = (<P as Pairs>::KeyBuf, Option<<P as Pairs>::ValueBuf>);

/// The updates of a record. `None` if the contents are damaged.
pub(crate) fn decode<P: Pairs>(mut from: &[u8]) -> Option<Vec<Update<P>>> {
    let mut updates = Vec::new();
    while !from.is_empty() {
        let (head, rest) = from.split_at_checked(HEAD)?;
        let number = |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?) as usize);
        let (key, rest) = rest.split_at_checked(number(4)?)?;
        let (value, rest) = rest.split_at_checked(number(8)?)?;
        let value = match head[0] {
            PUT => Some(P::read_value(value)?),
            DELETE if value.is_empty() => None,
            _ => return None,
        };
        updates.push((P::read_key(key)?, value));
        from = rest;
    }
    Some(updates)
}
