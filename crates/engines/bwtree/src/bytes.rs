//! Pairs of byte strings.
//!
//! A record is a block of its own (`record`). A leaf is an array of slots in key order. A slot has eight bytes of the key, as a number with
//! the same order, and the pointer to the record. So a search reads records only for slots with the same eight bytes as its key,
//! usually one. A consolidation copies slots but no bytes of keys or values. In a tree with a memory budget, a leaf has its small records in
//! its own block: then a consolidation copies them, and the blocks of the tree have few sizes.
//!
//! The eight bytes are those after the common prefix of the page's low and high key. Every key between the two has this prefix, so a search
//! does not compare it.
//!
//! A run of separators (of an inner page) has an array of the same eight bytes of each separator, and the separators in a heap.
//! A *fence* (`fence`) is a page's low or high key.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::fence::ByteFence;
use crate::image::Raw;
use crate::pairs::{Pairs, RECORD_BYTES, Read, Spot, Spotted, merged_count};
use crate::pool::{Array, Block, Draft, Space, array_bytes};
use crate::record::{ByteRecord, COPY_ALIGN, Dead, Fresh, Kept, Moved, Pair, Shared, record_bytes};
use crate::search::{LINE, Samples, count_left};

/// Byte strings to byte strings. Keys compare byte by byte.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// Maximum bytes of a key.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Maximum bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Bytes of a key in an array.
const HEAD: usize = 8;

/// A run of separators.
#[derive(Debug)]
pub struct ByteKeys {
    /// Length of the common prefix of all keys of the page, in bytes.
    skip: usize,
    samples: Samples,
    /// The eight bytes after the common prefix.
    heads: Array<u64>,
    /// The end of each separator in the heap. The first begins at 0.
    ends: Array<u32>,
    heap: Array<u8>,
}

/// A leaf.
#[derive(Debug)]
pub struct ByteLeaf {
    /// Length of the common prefix of all keys of the page, in bytes.
    skip: usize,
    samples: Samples,
    slots: Array<Slot>,
    /// Copies of records, for the slots: in key order, without gaps.
    heap: Array<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The eight bytes of the key after the common prefix.
    head: u64,
    record: Shared,
}

const _: () = assert!(size_of::<Slot>() == RECORD_BYTES);

/// A change of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct ByteChange {
    record: Shared,
    /// A hash of the length and of bytes at both ends of the key. It rules out nearly all other keys without a read of the record.
    hint: u16,
}

/// The first eight bytes, or fewer, as a number with the same order.
#[inline(always)]
fn head_of(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; HEAD];
    head[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(head)
}

/// The part of a key of the page after the common prefix.
#[inline(always)]
fn behind(key: &[u8], skip: usize) -> &[u8] {
    key.get(skip..).unwrap_or_default()
}

/// The hint of a key. Equal for equal keys.
#[inline(always)]
pub(crate) fn hint_of(key: &[u8]) -> u16 {
    let last = key.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
    let both = head_of(key).rotate_left(29) ^ last ^ (key.len() as u64) << 48;
    // The factor has many ones and zeros, so each byte affects the upper bits.
    (both.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as u16
}

/// The length of the common prefix.
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl ByteLeaf {
    /// A leaf of at most `count` records, which `fill` adds.
    /// `fill` also copies records into a heap of `copied_bytes` bytes.
    fn new(
        skip: usize,
        space: &mut Space,
        count: usize,
        copied_bytes: usize,
        fill: impl FnOnce(&mut Draft<Slot>, &mut Draft<u8>),
    ) -> Self {
        let samples = Samples::draft(space, count);
        let mut slots = space.array(count, LINE);
        let mut heap = space.array(copied_bytes, COPY_ALIGN);
        fill(&mut slots, &mut heap);
        let slots = slots.done();
        let samples = Samples::done(samples, &slots, |slot: &Slot| slot.head);
        Self { skip, samples, slots, heap: heap.done() }
    }

    /// Copies a range of slots to another leaf, and their records that are in the heap to the heap of that leaf.
    fn copy_slots(&self, range: Range<usize>, slots: &mut Draft<Slot>, heap: &mut Draft<u8>, word: Kept) {
        let offset = |slot: &Slot| slot.record.offset_in(&self.heap);
        let own = &self.slots[range.clone()];
        let Some(start) = own.iter().find_map(offset) else { return slots.extend(own) };
        // The copies are in key order, so those of the range are together.
        let end = self.slots[range.end..].iter().find_map(offset).unwrap_or(self.heap.len());
        let moved = Moved::copy(&self.heap, start..end, heap);
        for slot in own {
            slots.push(Slot { record: moved.pointer(slot.record, &self.heap, word), ..*slot });
        }
    }

    #[inline(always)]
    fn suffix<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        behind(key, self.skip)
    }

    /// Binary search for a key. `Err`: the position at which it would be inserted.
    #[inline(always)]
    fn find(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        let suffix = self.suffix(key);
        let head = head_of(suffix);
        let from = self.samples.share(|own| *own < head);
        let from = from + count_left(&self.slots, from, |slot| slot.head < head);
        let compare = |slot: &Slot| self.suffix(slot.record.get().key()).cmp(suffix);
        match self.slots.get(from).filter(|slot| slot.head == head).map(compare) {
            None | Some(Ordering::Greater) => Err(from),
            Some(Ordering::Equal) => Ok(from),
            Some(Ordering::Less) => {
                // The first slot with this head has a smaller key: the wanted key is behind that slot, if it exists.
                let rest = &self.slots[from..];
                let same = rest.partition_point(|slot| slot.head == head);
                let at = rest[..same].binary_search_by(compare);
                at.map(|at| from + at).map_err(|at| from + at)
            }
        }
    }
}

impl ByteKeys {
    fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.heap[start as usize..self.ends[i] as usize]
    }

    /// The number of separators for which `is_left` is true; these come first. `about` gets an early estimate, for a prefetch.
    #[inline(always)]
    fn partition(&self, key: &[u8], about: impl FnOnce(usize), is_left: impl Fn(Ordering) -> bool) -> usize {
        let head = head_of(behind(key, self.skip));
        let from = self.samples.share(|own| *own < head);
        about(from);
        let from = from + count_left(&self.heads, from, |own| *own < head);
        if self.heads.get(from) != Some(&head) {
            return from;
        }
        let (mut at, mut end) = (from, from + self.heads[from..].partition_point(|own| *own == head));
        while at < end {
            let middle = at + (end - at) / 2;
            if is_left(self.get(middle).cmp(key)) { at = middle + 1 } else { end = middle }
        }
        at
    }
}

impl Pairs for Bytes {
    type Key = [u8];
    type KeyBuf = Box<[u8]>;
    type Fence = ByteFence;
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    type Record<'a> = ByteRecord<'a>;
    type Fresh = Fresh;
    type Change = ByteChange;
    type Hint = u16;
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

    fn write_key(key: &[u8], to: &mut Vec<u8>) {
        to.extend(key);
    }
    fn write_value(value: &[u8], to: &mut Vec<u8>) {
        to.extend(value);
    }
    fn read_key(bytes: &[u8]) -> Option<Box<[u8]>> {
        (bytes.len() <= KEY_BYTES_MAX).then(|| bytes.into())
    }
    fn read_value(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.into())
    }
    fn with_bytes<R>(key: &[u8], value: &[u8], with: impl FnOnce(&[u8], &[u8]) -> R) -> Option<R> {
        Some(with(key, value))
    }
    fn order(a: &[u8], b: &[u8]) -> Option<Ordering> {
        Some(a.cmp(b))
    }
    fn rank(key: &[u8]) -> u64 {
        let mut first = [0; 8];
        first.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        u64::from_be_bytes(first)
    }

    fn own_key(key: &[u8]) -> Box<[u8]> {
        key.into()
    }
    fn own_key_in(key: &[u8], copy: &mut Option<Box<[u8]>>) {
        match copy {
            Some(copy) if copy.len() == key.len() => copy.copy_from_slice(key),
            _ => *copy = Some(key.into()),
        }
    }
    fn own_value(value: &[u8]) -> Vec<u8> {
        value.into()
    }
    fn separator(left: &[u8], right: &[u8]) -> ByteFence {
        // The common prefix and one more byte: above the left key, and a prefix of the right one.
        right[..(common(left, right) + 1).min(right.len())].into()
    }

    #[inline(always)]
    fn fresh_space(key: &[u8], value: Option<&[u8]>) -> usize {
        record_bytes(key, value)
    }
    fn fresh(key: &[u8], value: Option<&[u8]>, block: Option<Block>) -> Fresh {
        Fresh::new(key, value, block.expect("a record needs a block"))
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
    #[inline(always)]
    fn fetch(record: ByteRecord<'_>) {
        record.fetch();
    }
    fn record_memory(record: ByteRecord<'_>) -> usize {
        record.memory()
    }
    fn record_weight(record: ByteRecord<'_>) -> usize {
        record.weight()
    }
    fn is_copied(record: ByteRecord<'_>) -> bool {
        record.is_small()
    }
    fn copied_bytes(records: &[ByteRecord<'_>]) -> usize {
        records.iter().filter(|record| record.is_small()).map(|record| record.pair().copy_bytes()).sum()
    }
    fn sizes_of_copy((key, value): Raw<'_>) -> Option<(usize, usize)> {
        let pair = Pair { key, value };
        pair.is_small().then(|| (pair.copy_bytes(), pair.weight()))
    }
    fn is_pair((key, _): Raw<'_>) -> bool {
        key.len() <= KEY_BYTES_MAX
    }
    fn dead(record: ByteRecord<'_>) -> Option<Dead> {
        record.dead()
    }

    #[inline(always)]
    fn change(record: ByteRecord<'_>, word: Kept) -> ByteChange {
        ByteChange { record: record.shared(word), hint: hint_of(record.key()) }
    }
    #[inline(always)]
    fn changed(change: &ByteChange, _is_there: bool) -> ByteRecord<'_> {
        change.record.get()
    }
    #[inline(always)]
    fn hint(key: &[u8]) -> u16 {
        hint_of(key)
    }
    #[inline(always)]
    fn is_of(change: &ByteChange, hint: u16, key: &[u8]) -> bool {
        change.hint == hint && change.record.get().key() == key
    }

    fn leaf_space(records: usize) -> usize {
        Samples::bytes(records) + array_bytes::<Slot>(records, LINE)
    }
    fn leaf(
        records: &[ByteRecord<'_>],
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        copied_bytes: usize,
        space: &mut Space,
        word: Kept,
    ) -> ByteLeaf {
        let skip = low.zip(high).map_or(0, |(low, high)| common(low, high));
        ByteLeaf::new(skip, space, records.len(), copied_bytes, |slots, heap| {
            for record in records {
                let copied = copied_bytes > 0 && record.is_small();
                let shared = if copied { record.pair().copy(heap, word) } else { record.shared(word) };
                slots.push(Slot { head: head_of(behind(record.key(), skip)), record: shared });
            }
        })
    }
    fn leaf_of_read(
        read: &[Read<'_, Self>],
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        copied_bytes: usize,
        space: &mut Space,
        word: Kept,
    ) -> ByteLeaf {
        let skip = low.zip(high).map_or(0, |(low, high)| common(low, high));
        ByteLeaf::new(skip, space, read.len(), copied_bytes, |slots, heap| {
            for one in read {
                let (key, record) = match one {
                    Read::Copied((key, value)) => (*key, Pair { key, value }.copy(heap, word)),
                    Read::Made(record) => (record.key(), record.shared(word)),
                };
                slots.push(Slot { head: head_of(behind(key, skip)), record });
            }
        })
    }
    fn merged_copies(leaf: &ByteLeaf, changes: &[Spotted<'_, Self>]) -> usize {
        let mut bytes = leaf.heap.len();
        for (spot, change) in changes {
            let (from, to) = spot.records();
            let replaced =
                leaf.slots[from..to].iter().filter(|slot| slot.record.offset_in(&leaf.heap).is_some());
            bytes -= replaced.map(|slot| slot.record.get().pair().copy_bytes()).sum::<usize>();
            if change.value().is_some() && change.is_small() {
                bytes += change.pair().copy_bytes();
            }
        }
        bytes
    }
    /// Copies the slots between two changes together, and the records that the leaf has in its own block.
    fn merged<'a>(
        leaf: &'a ByteLeaf,
        changes: &[Spotted<'a, Self>],
        copied_bytes: usize,
        space: &mut Space,
        word: Kept,
    ) -> (ByteLeaf, Vec<ByteRecord<'a>>) {
        let mut dead = Vec::with_capacity(2 * changes.len());
        let count = merged_count::<Self>(leaf, changes);
        let merged = ByteLeaf::new(leaf.skip, space, count, copied_bytes, |slots, heap| {
            let mut from = 0;
            for &(spot, change) in changes {
                let (end, behind) = spot.records();
                leaf.copy_slots(from..end, slots, heap, word);
                dead.extend(leaf.slots[end..behind].iter().map(|slot| slot.record.get()));
                let head = head_of(leaf.suffix(change.key()));
                if change.value().is_none() {
                    dead.push(change);
                } else if copied_bytes > 0 && change.is_small() {
                    slots.push(Slot { head, record: change.pair().copy(heap, word) });
                    dead.push(change);
                } else {
                    slots.push(Slot { head, record: change.shared(word) });
                }
                from = behind;
            }
            leaf.copy_slots(from..leaf.slots.len(), slots, heap, word);
        });
        (merged, dead)
    }
    #[inline(always)]
    fn len(leaf: &ByteLeaf) -> usize {
        leaf.slots.len()
    }
    #[inline(always)]
    fn at(leaf: &ByteLeaf, i: usize) -> ByteRecord<'_> {
        leaf.slots[i].record.get()
    }
    fn for_outside<'a>(leaf: &'a ByteLeaf, with: &mut dyn FnMut(ByteRecord<'a>)) {
        let slots = leaf.slots.iter().filter(|slot| slot.record.offset_in(&leaf.heap).is_none());
        slots.for_each(|slot| with(slot.record.get()));
    }
    #[inline(always)]
    fn spot(leaf: &ByteLeaf, key: &[u8]) -> Spot {
        Spot::new(leaf.find(key))
    }
    #[inline(always)]
    fn lookup<'a>(leaf: &'a ByteLeaf, key: &[u8]) -> Option<ByteRecord<'a>> {
        leaf.find(key).ok().map(|at| leaf.slots[at].record.get())
    }

    fn keys_space<'a>(keys: impl Iterator<Item = &'a [u8]>) -> usize {
        let (count, bytes) = keys.fold((0, 0), |(count, bytes), key| (count + 1, bytes + key.len()));
        let arrays = array_bytes::<u64>(count, LINE) + array_bytes::<u32>(count, align_of::<u32>());
        Samples::bytes(count) + arrays + bytes
    }
    fn separators(keys: &[&[u8]], low: Option<&[u8]>, high: Option<&[u8]>, space: &mut Space) -> ByteKeys {
        let skip = low.zip(high).map_or(0, |(low, high)| common(low, high));
        let samples = Samples::draft(space, keys.len());
        let heads = space.collect(keys.len(), LINE, keys.iter().map(|key| head_of(behind(key, skip))));
        let ends = keys.iter().scan(0, |end, key| {
            *end += key.len() as u32;
            Some(*end)
        });
        let ends = space.collect(keys.len(), align_of::<u32>(), ends);
        let mut heap = space.array(keys.iter().map(|key| key.len()).sum(), 1);
        keys.iter().for_each(|key| heap.extend(key));
        ByteKeys {
            skip,
            samples: Samples::done(samples, &heads, |head| *head),
            heads,
            ends,
            heap: heap.done(),
        }
    }
    fn count(keys: &ByteKeys) -> usize {
        keys.heads.len()
    }
    fn separator_at(keys: &ByteKeys, i: usize) -> &[u8] {
        keys.get(i)
    }
    #[inline(always)]
    fn not_above(keys: &ByteKeys, key: &[u8], about: impl FnOnce(usize)) -> usize {
        keys.partition(key, about, Ordering::is_le)
    }
    fn below(keys: &ByteKeys, key: &[u8]) -> usize {
        keys.partition(key, |_| (), Ordering::is_lt)
    }

    fn fence(key: &[u8]) -> ByteFence {
        key.into()
    }
    #[inline(always)]
    fn compare(fence: &ByteFence, key: &[u8]) -> Ordering {
        let own: &[u8] = fence.borrow();
        head_of(own).cmp(&head_of(key)).then_with(|| own.cmp(key))
    }
    fn key_bytes(key: &[u8]) -> usize {
        key.len()
    }
    fn fence_memory(fence: &ByteFence) -> usize {
        if let ByteFence::Long(bytes) = fence { bytes.len() } else { 0 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::pairs::Changes;
    use crate::pool::{BATCH, Depot, Pool};

    /// Keys that are hard to distinguish at their ends.
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
    fn separators_are_found_whatever_all_keys_between_the_bounds_have_in_common() {
        let (all, mut pool, depot) = (keys(), Pool::new(), Depot::new(BATCH));
        for (from, low) in all.iter().enumerate() {
            for (end, high) in all.iter().enumerate().skip(from + 1) {
                // A separator is above the low key. Every second one is in the run.
                let own: Vec<&[u8]> = all[from + 1..end].iter().step_by(2).map(|key| &**key).collect();
                let (block, _) = pool.take(Bytes::keys_space(own.iter().copied()), &depot);
                let mut space = Space::behind(&block, 0);
                let run = Bytes::separators(&own, Some(low), Some(high), &mut space);
                assert_eq!((Bytes::count(&run), run.skip), (own.len(), common(low, high)));
                assert!((0..own.len()).all(|i| Bytes::separator_at(&run, i) == own[i]));
                for key in &all[from..=end] {
                    assert_eq!(
                        Bytes::not_above(&run, key, |_| ()),
                        own.partition_point(|own| *own <= &**key)
                    );
                    assert_eq!(Bytes::below(&run, key), own.partition_point(|own| *own < &**key));
                }
            }
        }
    }

    #[test]
    fn a_separator_is_above_the_left_key_and_not_above_the_right_one() {
        let all = keys();
        for (i, left) in all.iter().enumerate() {
            for right in &all[i + 1..] {
                let between = Bytes::separator(left, right);
                let own: &[u8] = between.borrow();
                assert!(**left < *own && *own <= **right, "{left:?} {between:?} {right:?}");
                assert!(own.len() <= right.len());
                let (left, right) = (Bytes::fence(left), Bytes::fence(right));
                assert!(left < between && between <= right && left != right);
            }
        }
    }

    /// Identifies a record.
    fn address(record: ByteRecord<'_>) -> usize {
        record.key().as_ptr().addr()
    }

    /// Memory of records and leaves.
    struct Memory(RefCell<Vec<Block>>, RefCell<Pool>, Depot);

    impl Memory {
        fn new() -> Self {
            Self(RefCell::default(), RefCell::new(Pool::new()), Depot::new(BATCH))
        }

        fn take(&self, bytes: usize) -> Block {
            self.1.borrow_mut().take(bytes, &self.2).0
        }

        fn fresh(&self, key: &[u8], value: Option<&[u8]>) -> Fresh {
            Fresh::new(key, value, self.take(record_bytes(key, value)))
        }

        fn leaf(&self, records: &[Fresh], low: &[u8], high: &[u8]) -> ByteLeaf {
            let records: Vec<_> = records.iter().map(Fresh::get).collect();
            let block = self.take(Bytes::leaf_space(records.len()));
            let mut space = Space::behind(&block, 0);
            self.0.borrow_mut().push(block);
            Bytes::leaf(&records, Some(low), Some(high), 0, &mut space, Kept::in_a_test())
        }
    }

    #[test]
    fn a_leaf_finds_its_records_whatever_all_keys_between_its_bounds_have_in_common() {
        let all = keys();
        let memory = Memory::new();
        let fresh = |key: &[u8]| memory.fresh(key, Some(&key[..key.len() / 2]));
        for (from, low) in all.iter().enumerate() {
            for (end, high) in all.iter().enumerate().skip(from + 1) {
                let inside = &all[from..end];
                // Every second key is in the leaf.
                let own: Vec<_> = inside.iter().step_by(2).collect();
                let records: Vec<_> = own.iter().map(|key| fresh(key)).collect();
                let leaf = memory.leaf(&records, low, high);
                assert_eq!((Bytes::len(&leaf), leaf.skip), (own.len(), common(low, high)));
                for key in inside {
                    assert_eq!(leaf.find(key), own.binary_search(&key), "{key:?} in {own:?}");
                    let found = Bytes::lookup(&leaf, key).map(ByteRecord::key);
                    assert_eq!(found, own.contains(&key).then_some(&**key));
                }
            }
        }
    }

    /// Each record of a leaf and of its changes is exactly once in the merged leaf or dead. In a leaf with copies, each record that has a
    /// block is dead or, if it is large, in the merged leaf; and the copies fill the heap.
    #[test]
    fn changes_are_merged_as_a_map_does_it_and_no_record_is_lost() {
        let all = keys();
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..2000 {
            let copies = round % 2 == 1;
            let memory = Memory::new();
            let (low, high) = (random.usize(..all.len() - 1), all.len() - 1);
            let mut value = || vec![random.u8(..); if random.u8(..4) == 0 { 1025 } else { 1 }];
            let mut model = std::collections::BTreeMap::new();
            for key in &all[low..high] {
                let value = value();
                if value[0].is_multiple_of(2) {
                    model.insert(&**key, memory.fresh(key, Some(&value)));
                }
            }
            let fresh: Vec<_> = model.into_values().collect();
            let records: Vec<_> = fresh.iter().map(Fresh::get).collect();
            let copied = if copies { Bytes::copied_bytes(&records) } else { 0 };
            let block = memory.take(Bytes::leaf_space(records.len()) + copied + COPY_ALIGN);
            let mut space = Space::behind(&block, 0);
            let (from, to) = (Some(&*all[low]), Some(&*all[high]));
            let leaf = Bytes::leaf(&records, from, to, copied, &mut space, Kept::in_a_test());
            // The newest first, and some keys several times.
            let changes: Vec<_> = (0..random.usize(..9))
                .map(|_| {
                    let large = if random.u8(..4) == 0 { 1025 } else { 1 };
                    let value = random.bool().then(|| vec![random.u8(..); large]);
                    memory.fresh(&all[random.usize(low..high)], value.as_deref())
                })
                .collect();
            let newest_first = changes.iter().map(Fresh::get);
            let newest_first: Changes<'_, Bytes> =
                Changes(newest_first.map(|change| (Bytes::spot(&leaf, change.key()), change)).collect());
            let (sorted, replaced) = newest_first.sorted();
            let copied = if copies { Bytes::merged_copies(&leaf, &sorted) } else { 0 };
            let count = merged_count::<Bytes>(&leaf, &sorted);
            let block = memory.take(Bytes::leaf_space(count) + copied + COPY_ALIGN);
            let mut space = Space::behind(&block, 0);
            let (merged, mut dead) = Bytes::merged(&leaf, &sorted, copied, &mut space, Kept::in_a_test());
            dead.extend(replaced);
            assert_eq!((Bytes::len(&merged), merged.heap.len()), (count, copied));
            let own = (0..count).map(|i| Bytes::at(&merged, i));
            let with_block = |record: &ByteRecord<'_>| record.dead().is_some();
            let mut seen: Vec<_> = own.clone().chain(dead).filter(with_block).map(address).collect();
            let made = changes.iter().map(Fresh::get);
            let made = made.chain(records.iter().copied().filter(|record| !(copies && record.is_small())));
            let mut made: Vec<_> = made.map(address).collect();
            seen.sort();
            made.sort();
            assert_eq!(seen, made, "a record is lost, or there twice");
            let in_heap = own
                .clone()
                .filter(|record| record.shared(Kept::in_a_test()).offset_in(&merged.heap).is_some());
            let small = own.clone().filter(|record| copies && record.is_small());
            assert!(in_heap.map(address).eq(small.map(address)), "a small record has no copy");
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
