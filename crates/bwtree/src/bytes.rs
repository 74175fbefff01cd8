//! Pairs of byte strings.
//!
//! A record lies by itself ([`record`](crate::record)); a leaf is an array of slots in the order of keys: eight bytes of the key, as a
//! number that compares as they do, and the pointer to the record. So a search stays in the array until it has found the one record
//! that it may be looking for, and a consolidation copies slots and no bytes.
//!
//! Which eight bytes: those behind what all keys have in common that may be in the page, which is what its low and its high key have
//! in common. So a key that belongs into the page has it too, and nobody looks.
//!
//! A run of separators (an inner page's): what all have in common stands once (prefix truncation); of each of the others the first
//! eight bytes behind it, as above; what is longer is in a heap.

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::pairs::{Changes, Group, KeyRef, Pairs, RECORD_BYTES};
use crate::record::{ByteRecord, Dead, Fresh, Kept, Shared};
use crate::search::partition;

/// Byte strings to byte strings. Keys compare byte by byte.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// Bytes that a key may have at most.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Bytes that a value may have at most.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Bytes of a key that stand in an array.
const HEAD: usize = 8;

/// A run of separators.
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

/// A leaf.
#[derive(Debug)]
pub struct ByteLeaf {
    /// Bytes at the beginning of each key that all keys of the page have in common.
    skip: usize,
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The bytes of the key behind those that are skipped.
    head: u64,
    record: Shared,
}

const _: () = assert!(size_of::<Slot>() == RECORD_BYTES);

/// Changes in a group at most.
const GROUP: usize = 8;

/// Changes of byte strings.
#[derive(Clone, Debug)]
pub struct ByteGroup {
    /// Of each key a few bytes, those at both ends: nearly all others are told apart by them.
    hints: [u64; GROUP],
    records: [Option<Shared>; GROUP],
    count: usize,
}

/// Up to eight bytes as a number that compares as they do.
#[inline(always)]
fn head_of(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; HEAD];
    head[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(head)
}

/// Equal for equal keys.
#[inline(always)]
fn hint_of(key: &[u8]) -> u64 {
    let last = key.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
    head_of(key).rotate_left(29) ^ last ^ (key.len() as u64) << 48
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl ByteLeaf {
    #[inline(always)]
    fn suffix<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.get(self.skip..).unwrap_or_default()
    }

    /// Where a key is, or would be.
    #[inline(always)]
    fn find(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        let suffix = self.suffix(key);
        let head = head_of(suffix);
        let from = partition(&self.slots, |slot| slot.head < head);
        let compare = |slot: &Slot| self.suffix(slot.record.get().key()).cmp(suffix);
        match self.slots.get(from).filter(|slot| slot.head == head).map(compare) {
            None | Some(Ordering::Greater) => Err(from),
            Some(Ordering::Equal) => Ok(from),
            Some(Ordering::Less) => {
                // Several keys with this head, or another one.
                let rest = &self.slots[from..];
                let same = rest.partition_point(|slot| slot.head == head);
                let at = rest[..same].binary_search_by(compare);
                at.map(|at| from + at).map_err(|at| from + at)
            }
        }
    }

    fn slot(&self, record: ByteRecord<'_>, word: Kept) -> Slot {
        Slot { head: head_of(self.suffix(record.key())), record: record.shared(word) }
    }
}

impl ByteGroup {
    #[inline(always)]
    fn position(&self, key: &[u8]) -> Option<usize> {
        let hint = hint_of(key);
        (0..self.count).find(|i| self.hints[*i] == hint && self.get(*i).is_some_and(|own| own.key() == key))
    }
}

impl Group<Bytes> for ByteGroup {
    #[inline(always)]
    fn with<'a>(
        before: Option<&'a Self>,
        change: ByteRecord<'_>,
        word: Kept,
    ) -> Option<(Self, Option<ByteRecord<'a>>)> {
        let key = change.key();
        let known = before.and_then(|before| before.position(key));
        let i = known.unwrap_or(before.map_or(0, |before| before.count));
        if i == GROUP {
            return None;
        }
        let empty = || Self { hints: [0; GROUP], records: [None; GROUP], count: 0 };
        let mut group = before.cloned().unwrap_or_else(empty);
        group.count = group.count.max(i + 1);
        group.hints[i] = hint_of(key);
        group.records[i] = Some(change.shared(word));
        Some((group, known.and_then(|i| before?.get(i))))
    }
    #[inline(always)]
    fn find(&self, key: &[u8]) -> Option<ByteRecord<'_>> {
        self.position(key).and_then(|i| self.get(i))
    }
    #[inline(always)]
    fn get(&self, i: usize) -> Option<ByteRecord<'_>> {
        self.records.get(i)?.as_ref().map(Shared::get)
    }
    #[inline(always)]
    fn count(&self) -> usize {
        self.count
    }
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
        let from = partition(&self.heads, |own| *own < head);
        // Of those with the same head there are few.
        let same = self.heads[from..].iter().take_while(|own| **own == head).count();
        let (mut at, mut end) = (from, from + same);
        while at < end {
            let middle = at + (end - at) / 2;
            if is_left(self.compare_suffix(middle, head, suffix)) { at = middle + 1 } else { end = middle }
        }
        at
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

impl Pairs for Bytes {
    type Key = [u8];
    type KeyBuf = Box<[u8]>;
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    type Record<'a> = ByteRecord<'a>;
    type Fresh = Fresh;
    type Group = ByteGroup;
    type Leaf = ByteLeaf;
    type Keys = ByteKeys;

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
    fn separator(left: &[u8], right: &[u8]) -> Box<[u8]> {
        // One byte more than they have in common is above the left key, and a prefix of the right one.
        right[..(common(left, right) + 1).min(right.len())].into()
    }

    fn fresh(key: &[u8], value: Option<&[u8]>) -> Fresh {
        Fresh::new(key, value)
    }
    #[inline(always)]
    fn record(fresh: &Fresh) -> ByteRecord<'_> {
        fresh.get()
    }
    #[inline(always)]
    fn record_key<'a>(record: Self::Record<'a>) -> &'a [u8] {
        record.key()
    }
    #[inline(always)]
    fn record_value<'a>(record: Self::Record<'a>) -> Option<&'a [u8]> {
        record.value()
    }
    fn record_memory(record: ByteRecord<'_>) -> usize {
        record.memory()
    }
    fn dead(record: ByteRecord<'_>) -> Option<Dead> {
        Some(record.dead())
    }

    fn leaf(records: &[ByteRecord<'_>], low: Option<&[u8]>, high: Option<&[u8]>, word: Kept) -> ByteLeaf {
        let skip = low.zip(high).map_or(0, |(low, high)| common(low, high));
        let empty = ByteLeaf { skip, slots: Box::default() };
        let slots = records.iter().map(|record| empty.slot(*record, word)).collect();
        ByteLeaf { slots, ..empty }
    }
    /// What is between two changes is copied at once.
    fn merged<'a>(
        leaf: &'a ByteLeaf,
        changes: Changes<'a, Self>,
        word: Kept,
    ) -> (ByteLeaf, Vec<ByteRecord<'a>>) {
        let (changes, mut dead) = changes.sorted();
        let mut count = leaf.slots.len();
        let mut places = Vec::with_capacity(changes.len());
        for change in changes {
            let (place, is_there) = (leaf.find(change.key()), change.value().is_some());
            count = count + usize::from(is_there) - usize::from(place.is_ok());
            places.push((place, is_there, change));
        }
        let mut slots = Vec::with_capacity(count);
        let mut from = 0;
        for (place, is_there, change) in places {
            let (end, behind) = place.map_or_else(|at| (at, at), |at| (at, at + 1));
            slots.extend_from_slice(&leaf.slots[from..end]);
            dead.extend(leaf.slots[end..behind].iter().map(|slot| slot.record.get()));
            if is_there {
                slots.push(leaf.slot(change, word));
            } else {
                dead.push(change);
            }
            from = behind;
        }
        slots.extend_from_slice(&leaf.slots[from..]);
        (ByteLeaf { skip: leaf.skip, slots: slots.into() }, dead)
    }
    #[inline(always)]
    fn len(leaf: &ByteLeaf) -> usize {
        leaf.slots.len()
    }
    #[inline(always)]
    fn at(leaf: &ByteLeaf, i: usize) -> ByteRecord<'_> {
        leaf.slots[i].record.get()
    }
    #[inline(always)]
    fn lookup<'a>(leaf: &'a ByteLeaf, key: &[u8]) -> Option<ByteRecord<'a>> {
        leaf.find(key).ok().map(|at| leaf.slots[at].record.get())
    }
    fn leaf_memory(leaf: &ByteLeaf) -> usize {
        size_of_val(&*leaf.slots)
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

    fn key_bytes(key: &[u8]) -> usize {
        key.len()
    }
    fn key_bytes_at(keys: &ByteKeys, i: usize) -> usize {
        keys.prefix.len() + keys.suffix_length(i)
    }
    fn keys_memory(keys: &ByteKeys) -> usize {
        let counted = keys.heads.len() * (HEAD + 1) + keys.ends.len() * size_of::<u32>();
        counted + keys.prefix.len() + keys.tails.len()
    }
    fn key_memory(key: &Box<[u8]>) -> usize {
        key.len()
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
                let between = Bytes::separator(left, right);
                assert!(*left < between && between <= *right, "{left:?} {between:?} {right:?}");
                assert!(between.len() <= right.len());
            }
        }
    }

    /// Which record it is.
    fn address(record: ByteRecord<'_>) -> usize {
        record.key().as_ptr().addr()
    }

    fn leaf_of(records: &[Fresh], low: Option<&[u8]>, high: Option<&[u8]>) -> ByteLeaf {
        let records: Vec<_> = records.iter().map(Fresh::get).collect();
        Bytes::leaf(&records, low, high, Kept::in_a_test())
    }

    #[test]
    fn a_leaf_finds_its_records_whatever_all_keys_between_its_bounds_have_in_common() {
        let all = keys();
        let fresh = |key: &[u8]| Fresh::new(key, Some(&key[..key.len() / 2]));
        for (from, low) in all.iter().enumerate() {
            for (end, high) in all.iter().enumerate().skip(from + 1) {
                let inside = &all[from..end];
                // Every second key is there.
                let own: Vec<_> = inside.iter().step_by(2).collect();
                let records: Vec<_> = own.iter().map(|key| fresh(key)).collect();
                let leaf = leaf_of(&records, Some(low), Some(high));
                assert_eq!((Bytes::len(&leaf), leaf.skip), (own.len(), common(low, high)));
                for key in inside {
                    assert_eq!(leaf.find(key), own.binary_search(&key), "{key:?} in {own:?}");
                    let found = Bytes::lookup(&leaf, key).map(ByteRecord::key);
                    assert_eq!(found, own.contains(&key).then_some(&**key));
                }
            }
        }
    }

    #[test]
    fn a_group_knows_the_newest_change_of_a_key_and_gives_back_the_one_before() {
        let all = keys();
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..500 {
            let records: Vec<_> = (0..20)
                .map(|n| Fresh::new(&all[random.usize(..all.len())], (n % 3 > 0).then_some(&[n; 9])))
                .collect();
            let mut group: Option<ByteGroup> = None;
            let mut model = std::collections::BTreeMap::new();
            for record in records.iter().map(Fresh::get) {
                let made = ByteGroup::with(group.as_ref(), record, Kept::in_a_test());
                let Some((next, before)) = made else {
                    assert!(model.len() == GROUP && !model.contains_key(record.key()));
                    continue;
                };
                let replaced = model.insert(record.key(), address(record));
                assert_eq!(before.map(address), replaced);
                group = Some(next);
            }
            let group = group.unwrap();
            assert_eq!(group.count(), model.len());
            for key in &all {
                assert_eq!(group.find(key).map(address), model.get(&**key).copied());
            }
        }
    }

    /// What a leaf and its changes have goes on in the merged leaf or is dead, once.
    #[test]
    fn changes_are_merged_as_a_map_does_it_and_no_record_is_lost() {
        let all = keys();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let (low, high) = (random.usize(..all.len() - 1), all.len() - 1);
            let mut model = std::collections::BTreeMap::new();
            for key in &all[low..high] {
                if random.bool() {
                    model.insert(&**key, Fresh::new(key, Some(&[random.u8(..)])));
                }
            }
            let records: Vec<_> = model.values().map(Fresh::get).collect();
            let leaf = Bytes::leaf(&records, Some(&all[low]), Some(&all[high]), Kept::in_a_test());
            // The newest first, some keys several times.
            let changes: Vec<_> = (0..random.usize(..9))
                .map(|_| {
                    Fresh::new(
                        &all[random.usize(low..high)],
                        random.bool().then(|| [random.u8(..)]).as_ref().map(|v| &v[..]),
                    )
                })
                .collect();
            let newest_first = Changes(changes.iter().map(Fresh::get).collect());
            let (merged, dead) = Bytes::merged(&leaf, newest_first, Kept::in_a_test());
            let own = (0..Bytes::len(&merged)).map(|i| Bytes::at(&merged, i));
            let mut seen: Vec<_> = own.clone().chain(dead).map(address).collect();
            let mut made: Vec<_> = records.iter().copied().map(address).collect();
            made.extend(changes.iter().map(|change| address(change.get())));
            seen.sort();
            made.sort();
            assert_eq!(seen, made, "a record is lost, or there twice");
            let mut wanted: std::collections::BTreeMap<_, _> =
                records.iter().map(|record| (record.key(), record.value())).collect();
            for change in changes.iter().rev().map(Fresh::get) {
                match change.value() {
                    Some(value) => _ = wanted.insert(change.key(), Some(value)),
                    None => _ = wanted.remove(change.key()),
                }
            }
            assert!(own.map(|record| (record.key(), record.value())).eq(wanted));
        }
    }
}
