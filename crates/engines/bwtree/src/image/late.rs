//! The bytes of late changes (see the head of [`image`](super)).

use std::cmp::Ordering as Order;

use super::{LATE_BYTES, Late, REMOVED, key_bytes, put_number, take, take_number};
use crate::pairs::Pairs;

/// The next late change.
pub(super) fn take_late<'i>(from: &mut &'i [u8]) -> Option<Late<'i>> {
    let (key, value) = (take_number(from)?, take_number(from)?);
    let key = take(from, key as usize)?;
    Some((key, if value == REMOVED { None } else { Some(take(from, value as usize)?) }))
}

/// Late changes. `None` if the bytes are damaged.
pub(crate) fn decode_late(mut bytes: &[u8]) -> Option<Vec<Late<'_>>> {
    let count = take_number(&mut bytes)? as usize;
    let mut changes = Vec::with_capacity(count.min(bytes.len() / LATE_BYTES));
    for _ in 0..count {
        changes.push(take_late(&mut bytes)?);
    }
    Some(changes)
}

pub(super) fn put_late((key, value): Late<'_>, to: &mut Vec<u8>) {
    put_number(key.len(), to);
    put_number(value.map_or(REMOVED as usize, <[u8]>::len), to);
    to.extend(key);
    to.extend(value.unwrap_or_default());
}

/// The place of a key among late changes: its change, or the place where that would be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateSpot {
    /// Number of changes of lower keys.
    pub(crate) index: usize,
    /// First byte and end of the key's change.
    from: usize,
    end: usize,
}

impl LateSpot {
    /// True if the key has a change.
    pub(crate) fn is_there(self) -> bool {
        self.from < self.end
    }
}

/// The number of late changes. No bytes: none.
pub(crate) fn late_count(mut late: &[u8]) -> usize {
    take_number(&mut late).map_or(0, |count| count as usize)
}

/// The place of a key. No bytes: there are no late changes. `None` if the bytes are damaged. O(bytes).
pub(crate) fn late_spot<P: Pairs>(late: &[u8], key: &[u8]) -> Option<LateSpot> {
    let mut rest = late.get(size_of::<u32>()..).unwrap_or_default();
    let count = late_count(late);
    let mut from = size_of::<u32>();
    for index in 0..count {
        let (other, _) = take_late(&mut rest)?;
        let end = late.len() - rest.len();
        match P::order(other, key)? {
            Order::Less => from = end,
            Order::Equal => return Some(LateSpot { index, from, end }),
            Order::Greater => return Some(LateSpot { index, from, end: from }),
        }
    }
    Some(LateSpot { index: count, from, end: from })
}

/// Late changes with this one at a place, or with none there. `None` if the bytes are damaged. O(bytes).
pub(crate) fn late_replaced(late: &[u8], spot: LateSpot, change: Option<Late<'_>>) -> Option<Vec<u8>> {
    let before = if late.is_empty() { &[0; 4] } else { late };
    let own = change.map_or(0, |(key, value)| LATE_BYTES + key.len() + value.map_or(0, <[u8]>::len));
    let mut after = Vec::with_capacity(before.len() + own);
    after.extend(before.get(..spot.from)?);
    if let Some(change) = change {
        put_late(change, &mut after);
    }
    after.extend(before.get(spot.end..)?);
    let count = late_count(before) + usize::from(change.is_some()) - usize::from(spot.is_there());
    after[..4].copy_from_slice(&(count as u32).to_le_bytes());
    Some(after)
}

/// Late changes, or none if there are no bytes, with one more. `None` if `late` is damaged. O(bytes).
pub(crate) fn late_with<P: Pairs>(late: &[u8], key: &P::Key, value: Option<&P::Value>) -> Option<Vec<u8>> {
    let mut own = Vec::with_capacity(P::fresh_space(key, value));
    P::write_key(key, &mut own);
    let key_end = own.len();
    if let Some(value) = value {
        P::write_value(value, &mut own);
    }
    let (own_key, own_value) = own.split_at(key_end);
    late_replaced(late, late_spot::<P>(late, own_key)?, Some((own_key, value.map(|_| own_value))))
}

/// Late changes, or none if there are no bytes, with newer ones in key order. `None` if bytes are damaged. O(bytes).
pub(crate) fn late_with_all<P: Pairs>(late: &[u8], newer: &[Late<'_>]) -> Option<Vec<u8>> {
    let older = if late.is_empty() { Vec::new() } else { decode_late(late)? };
    let all = merge(older, newer.to_vec(), |old, new| P::order(old.0, new.0), |old| old, Some)?;
    Some(late_of(all))
}

/// The bytes of late changes, which are in key order. Empty for none.
pub(crate) fn late_of(changes: Vec<Late<'_>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if !changes.is_empty() {
        put_number(changes.len(), &mut bytes);
        changes.into_iter().for_each(|change| put_late(change, &mut bytes));
    }
    bytes
}

/// Merges two sorted lists. `newer` wins where both have a key. `None` if a key is damaged.
pub(super) fn merge<T, N, M>(
    older: Vec<T>,
    newer: Vec<N>,
    order: impl Fn(&T, &N) -> Option<Order>,
    keep: impl Fn(T) -> M,
    add: impl Fn(N) -> Option<M>,
) -> Option<Vec<M>> {
    let mut merged = Vec::with_capacity(older.len() + newer.len());
    let mut older = older.into_iter().peekable();
    for new in newer {
        while let Some(old) = older.peek() {
            match order(old, &new)? {
                Order::Less => merged.extend(older.next().map(&keep)),
                Order::Equal => _ = older.next(),
                Order::Greater => break,
            }
        }
        merged.extend(add(new));
    }
    merged.extend(older.map(keep));
    Some(merged)
}

/// The number of a key's late change, and its value; `None`: it is removed. `None` if they do not have the key.
pub(crate) fn find_late<P: Pairs>(late: &[u8], key: &P::Key) -> Option<(usize, Option<P::ValueBuf>)> {
    if late.is_empty() {
        return None;
    }
    let spot = late_spot::<P>(late, &key_bytes::<P>(key))?;
    let (_, value) = take_late(&mut late.get(spot.from..spot.end)?)?;
    Some((spot.index, value.map_or(Some(None), |value| P::read_value(value).map(Some))?))
}
