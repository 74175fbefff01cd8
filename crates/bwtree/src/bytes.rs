//! Pairs of byte strings.
//!
//! A run of keys: what all have in common stands once (prefix truncation); of each of the others the first eight bytes behind it, as
//! a number that compares as they do, so that most comparisons stay in one array; what is longer is in a heap. Values lie behind
//! each other; one with more bytes than the option says is shared with the deltas and pages that it goes through, and the run has
//! a pointer to it.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::pairs::{KeyRef, Pairs, ValueRef};

/// Byte strings to byte strings. Keys compare byte by byte.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// Bytes that a key may have at most.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Bytes that a value may have at most.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Bytes of a key that stand in the array.
const HEAD: usize = 8;

/// A run of keys.
#[derive(Debug)]
pub struct ByteKeys {
    /// What all have in common.
    prefix: Box<[u8]>,
    /// The first bytes behind it.
    heads: Box<[u64]>,
    /// How many bytes these are; [`LONGER`] if there are more behind them.
    lengths: Box<[u8]>,
    /// Where a key's further bytes end. Those of the first begin at 0. Empty if no key has any.
    ends: Box<[u32]>,
    tails: Box<[u8]>,
}

/// A key has further bytes in the heap.
const LONGER: u8 = HEAD as u8 + 1;

/// A run of values.
#[derive(Debug)]
pub struct ByteValues {
    /// Where each ends, with [`LARGE`] for one whose four bytes are a number in `large`.
    ends: Box<[u32]>,
    bytes: Box<[u8]>,
    large: Box<[Arc<[u8]>]>,
}

const LARGE: u32 = 1 << 31;
/// Bytes of a number in `large`.
const NUMBER: usize = size_of::<u32>();

/// A value in a delta.
#[derive(Debug)]
pub enum HeldBytes {
    /// It will be copied into the page.
    Small(Box<[u8]>),
    /// It will be shared by the page.
    Large(Arc<[u8]>),
}

/// Up to eight bytes as a number that compares as they do.
fn head_of(bytes: &[u8]) -> u64 {
    let mut head = [0; HEAD];
    let count = bytes.len().min(HEAD);
    head[..count].copy_from_slice(&bytes[..count]);
    u64::from_be_bytes(head)
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl ByteKeys {
    fn tail(&self, i: usize) -> &[u8] {
        if self.lengths[i] != LONGER {
            return &[];
        }
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.tails[start as usize..self.ends[i] as usize]
    }

    fn suffix_length(&self, i: usize) -> usize {
        if self.lengths[i] == LONGER { HEAD + self.tail(i).len() } else { usize::from(self.lengths[i]) }
    }

    /// A key without the prefix; or how all keys of the run compare with it.
    fn suffix_of<'k>(&self, key: &'k [u8]) -> std::result::Result<&'k [u8], Ordering> {
        match key.strip_prefix(&*self.prefix) {
            Some(suffix) => Ok(suffix),
            None => Err((*self.prefix).cmp(key)),
        }
    }

    fn compare_suffix(&self, i: usize, head: u64, suffix: &[u8]) -> Ordering {
        self.heads[i].cmp(&head).then_with(|| {
            if self.lengths[i] == LONGER && suffix.len() > HEAD {
                self.tail(i).cmp(&suffix[HEAD..])
            } else {
                self.suffix_length(i).cmp(&suffix.len())
            }
        })
    }

    /// How many keys compare as `is_left` wants it; these are the first.
    fn partition(&self, key: &[u8], is_left: impl Fn(Ordering) -> bool) -> usize {
        let suffix = match self.suffix_of(key) {
            Ok(suffix) => suffix,
            Err(all) => return if is_left(all) { self.heads.len() } else { 0 },
        };
        let head = head_of(suffix);
        let (mut from, mut end) = (0, self.heads.len());
        while from < end {
            let middle = from + (end - from) / 2;
            if is_left(self.compare_suffix(middle, head, suffix)) { from = middle + 1 } else { end = middle }
        }
        from
    }

    fn copy_to(&self, i: usize, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.prefix);
        let head = self.heads[i].to_be_bytes();
        to.extend_from_slice(&head[..usize::from(self.lengths[i]).min(HEAD)]);
        to.extend_from_slice(self.tail(i));
    }
}

/// Calls `with` with a key's bytes. `scratch` is for those that are in pieces.
fn with_key<R>(key: KeyRef<'_, Bytes>, scratch: &mut Vec<u8>, with: impl FnOnce(&[u8]) -> R) -> R {
    match key {
        KeyRef::Whole(key) => with(key),
        KeyRef::In(keys, i) => {
            scratch.clear();
            keys.copy_to(i, scratch);
            with(scratch)
        }
    }
}

impl ByteValues {
    fn slot(&self, i: usize) -> (&[u8], bool) {
        let start = if i == 0 { 0 } else { self.ends[i - 1] & !LARGE };
        let end = self.ends[i];
        (&self.bytes[start as usize..(end & !LARGE) as usize], end & LARGE != 0)
    }

    fn large(&self, i: usize) -> Option<&Arc<[u8]>> {
        let (bytes, is_large) = self.slot(i);
        let number = u32::from_le_bytes(bytes.first_chunk().filter(|_| is_large).copied()?);
        Some(&self.large[number as usize])
    }
}

impl Pairs for Bytes {
    type Key = [u8];
    type KeyBuf = Box<[u8]>;
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    type Held = HeldBytes;
    /// A group would copy the bytes of all that it takes over.
    type Group = std::convert::Infallible;
    type Keys = ByteKeys;
    type Values = ByteValues;

    fn check_key(key: &[u8]) -> Result<()> {
        let bytes = key.len();
        if bytes <= KEY_BYTES_MAX { Ok(()) } else { Err(Error::KeyTooLong { bytes, max: KEY_BYTES_MAX }) }
    }
    fn check_value(value: &[u8]) -> Result<()> {
        let bytes = value.len();
        if bytes <= VALUE_BYTES_MAX {
            Ok(())
        } else {
            Err(Error::ValueTooLong { bytes, max: VALUE_BYTES_MAX })
        }
    }

    fn own_key(key: &[u8]) -> Box<[u8]> {
        key.into()
    }
    fn own_value(value: &[u8]) -> Vec<u8> {
        value.into()
    }
    fn separator(left: KeyRef<'_, Self>, right: KeyRef<'_, Self>) -> Box<[u8]> {
        let left = left.to_buf();
        with_key(right, &mut Vec::new(), |right| {
            // One byte more than they have in common is above the left key, and a prefix of the right one.
            right[..(common(&left, right) + 1).min(right.len())].into()
        })
    }

    fn hold(value: &[u8], large: usize) -> HeldBytes {
        // In a page with values of more than that, ends would not fit.
        if value.len() > large.min(1 << 20) {
            HeldBytes::Large(value.into())
        } else {
            HeldBytes::Small(value.into())
        }
    }
    fn held(held: &HeldBytes) -> &[u8] {
        match held {
            HeldBytes::Small(value) => value,
            HeldBytes::Large(value) => value,
        }
    }

    fn keys_of(keys: &[KeyRef<'_, Self>]) -> ByteKeys {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        // What the first and the last have in common, those between have too.
        let shared = match keys {
            [] => 0,
            [one] => one.bytes(),
            [first, .., last] => {
                with_key(*first, &mut a, |first| with_key(*last, &mut b, |last| common(first, last)))
            }
        };
        let prefix: Box<[u8]> = keys.first().map_or_else(Box::default, |first| {
            with_key(*first, &mut a, |first| Box::from(&first[..shared.min(first.len())]))
        });
        let (mut heads, mut lengths) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        let (mut ends, mut tails) = (Vec::with_capacity(keys.len()), Vec::new());
        for key in keys {
            with_key(*key, &mut a, |key| {
                let suffix = &key[prefix.len()..];
                heads.push(head_of(suffix));
                lengths.push(if suffix.len() > HEAD { LONGER } else { suffix.len() as u8 });
                tails.extend_from_slice(suffix.get(HEAD..).unwrap_or_default());
                ends.push(tails.len() as u32);
            });
        }
        if tails.is_empty() {
            ends = Vec::new();
        }
        ByteKeys {
            prefix,
            heads: heads.into(),
            lengths: lengths.into(),
            ends: ends.into(),
            tails: tails.into(),
        }
    }
    fn count(keys: &ByteKeys) -> usize {
        keys.heads.len()
    }
    fn find(keys: &ByteKeys, key: &[u8]) -> std::result::Result<usize, usize> {
        let at = keys.partition(key, Ordering::is_lt);
        let is_there = at < keys.heads.len() && Self::compare(keys, at, key).is_eq();
        if is_there { Ok(at) } else { Err(at) }
    }
    fn not_above(keys: &ByteKeys, key: &[u8]) -> usize {
        keys.partition(key, Ordering::is_le)
    }
    fn key_at(keys: &ByteKeys, i: usize) -> Box<[u8]> {
        let mut key = Vec::with_capacity(keys.prefix.len() + keys.suffix_length(i));
        keys.copy_to(i, &mut key);
        key.into()
    }
    fn compare(keys: &ByteKeys, i: usize, key: &[u8]) -> Ordering {
        match keys.suffix_of(key) {
            Ok(suffix) => keys.compare_suffix(i, head_of(suffix), suffix),
            Err(all) => all,
        }
    }

    fn values_of(values: &[ValueRef<'_, Self>]) -> ByteValues {
        let (mut ends, mut bytes, mut large) = (Vec::with_capacity(values.len()), Vec::new(), Vec::new());
        for value in values {
            let shared = match value {
                ValueRef::In(values, i) => values.large(*i),
                ValueRef::Held(HeldBytes::Large(value)) => Some(value),
                ValueRef::Held(HeldBytes::Small(_)) => None,
            };
            match shared {
                Some(value) => {
                    bytes.extend_from_slice(&(large.len() as u32).to_le_bytes());
                    large.push(value.clone());
                }
                None => bytes.extend_from_slice(value.get()),
            }
            ends.push(bytes.len() as u32 | if shared.is_some() { LARGE } else { 0 });
        }
        ByteValues { ends: ends.into(), bytes: bytes.into(), large: large.into() }
    }
    fn value_at(values: &ByteValues, i: usize) -> &[u8] {
        match values.large(i) {
            Some(value) => value,
            None => values.slot(i).0,
        }
    }

    fn key_bytes(key: &[u8]) -> usize {
        key.len()
    }
    fn key_bytes_at(keys: &ByteKeys, i: usize) -> usize {
        keys.prefix.len() + keys.suffix_length(i)
    }
    fn value_bytes_at(values: &ByteValues, i: usize) -> usize {
        NUMBER + values.slot(i).0.len()
    }
    fn held_bytes(held: &HeldBytes) -> usize {
        match held {
            HeldBytes::Small(value) => NUMBER + value.len(),
            HeldBytes::Large(_) => NUMBER + NUMBER,
        }
    }
    fn keys_memory(keys: &ByteKeys) -> usize {
        let counted = keys.heads.len() * (HEAD + 1) + keys.ends.len() * NUMBER;
        counted + keys.prefix.len() + keys.tails.len()
    }
    fn values_memory(values: &ByteValues) -> usize {
        let shared = values.large.iter().map(|value| value.len() + size_of::<Arc<[u8]>>());
        values.ends.len() * NUMBER + values.bytes.len() + shared.sum::<usize>()
    }
    fn key_memory(key: &Box<[u8]>) -> usize {
        key.len()
    }
    fn held_memory(held: &HeldBytes) -> usize {
        Self::held(held).len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keys whose ends are hard to tell apart.
    fn keys() -> Vec<Box<[u8]>> {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        for start in ["", "a", "ab", "abcdefg", "abcdefgh", "abcdefghi", "abcdefgh\0\0\0\0\0\0\0\0\0", "b"] {
            for end in ["", "\0", "\0\0", "\u{1}", "zzzzzzzzzzzzzzzz"] {
                keys.push(format!("{start}{end}").into_bytes().into());
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn a_run_holds_its_keys_and_finds_them_as_a_sorted_list_does() {
        let all = keys();
        for from in 0..all.len() {
            for end in from..=all.len() {
                let own = &all[from..end];
                let run = Bytes::keys_of(&own.iter().map(KeyRef::Whole).collect::<Vec<_>>());
                assert_eq!(Bytes::count(&run), own.len());
                for (i, key) in own.iter().enumerate() {
                    assert_eq!(Bytes::key_at(&run, i), *key);
                    assert_eq!(Bytes::key_bytes_at(&run, i), key.len());
                }
                for key in &all {
                    assert_eq!(Bytes::find(&run, key), own.binary_search(key), "{key:?} in {own:?}");
                    assert_eq!(Bytes::not_above(&run, key), own.partition_point(|own| own <= key));
                }
                let again: Vec<_> = (0..own.len()).map(|i| KeyRef::<Bytes>::In(&run, i)).collect();
                let again = Bytes::keys_of(&again);
                assert!((0..own.len()).all(|i| Bytes::key_at(&again, i) == own[i]));
            }
        }
    }

    #[test]
    fn a_separator_is_above_the_left_key_and_not_above_the_right_one() {
        let all = keys();
        for (i, left) in all.iter().enumerate() {
            for right in &all[i + 1..] {
                let between = Bytes::separator(KeyRef::Whole(left), KeyRef::Whole(right));
                assert!(*left < between && between <= *right, "{left:?} {between:?} {right:?}");
                assert!(between.len() <= right.len());
            }
        }
    }

    #[test]
    fn values_small_and_large_come_out_as_they_went_in() {
        let values: Vec<Vec<u8>> = (0..20).map(|n| vec![n as u8; n * 3]).collect();
        let held: Vec<_> = values.iter().map(|value| Bytes::hold(value, 20)).collect();
        let run = Bytes::values_of(&held.iter().map(ValueRef::Held).collect::<Vec<_>>());
        let again: Vec<_> = (0..20).map(|i| ValueRef::<Bytes>::In(&run, i)).collect();
        let again = Bytes::values_of(&again);
        for (i, value) in values.iter().enumerate() {
            assert_eq!(Bytes::value_at(&run, i), value);
            assert_eq!(Bytes::value_at(&again, i), value);
            assert_eq!(again.large(i).is_some(), value.len() > 20, "{i}");
        }
        assert!(Arc::ptr_eq(run.large(19).unwrap(), again.large(19).unwrap()), "a large value was copied");
    }
}
