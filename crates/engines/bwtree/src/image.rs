//! Images: the contents of a leaf as bytes.
//!
//! ```text
//! whole    number of records: u32 | record | record …
//! changes  1 << 31 | marks | number of parts: u32 | address of the base: u64 | part | part … | late changes, if marked
//! part     record, or run: 1 << 31 | first record: u32, number of records: u32
//! record   key bytes: u32 | value bytes: u32 | key … | value …
//! late     number of changes: u32 | change | change …
//! change   key bytes: u32 | value bytes: u32, all bits 1: the key is removed | key … | value …
//! ```
//!
//! A *whole* image has all records of a leaf. An image of *changes* is the difference from a whole image, its *base*: records that the base
//! does not have, and runs of records that are the same. Records, parts and changes are in key order. Marks: 1 << 30, late changes follow
//! the parts; 1 << 29, the parts are all records of the base, and none is listed.
//!
//! A leaf in memory notes for each record its position in the base, its *origin* (`Lineage`). So its changes are found without a read of
//! the base. *Late changes* are changes of an evicted leaf, made without a read of the leaf: each sets or removes a key that the
//! leaf may have or not. They are applied to the parts when the leaf is read. Two reads give the contents of any leaf. Paper: Bw-tree §V-A,
//! incremental flush; there a page may have a chain of them.

mod late;

use std::cmp::Ordering as Order;
use std::mem;
use std::num::NonZeroU64;
use std::sync::Arc;

pub(crate) use late::{
    decode_late, find_late, late_count, late_of, late_replaced, late_spot, late_with, late_with_all,
};
use late::{merge, put_late};

use crate::node::Head;
use crate::pairs::{Changes, Pairs, Spotted};
use crate::sync::{AtomicU64, IS_SMALL, Ordering};

/// The address of an image. The shelf gives it a meaning; the tree only keeps it. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub NonZeroU64);

/// The image of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its address.
    pub address: Address,
    /// If it has changes: the whole image that they belong to.
    pub base: Option<Address>,
}

impl Image {
    /// The whole image, to which new changes can belong.
    pub(crate) fn whole(self) -> Address {
        self.base.unwrap_or(self.address)
    }
}

/// The kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// It has all records of the leaf.
    Whole,
    /// It has the changes since a whole image.
    Changes,
}

/// Marks a run, and an image of changes.
const MARK: u32 = 1 << 31;
/// Marks an image of changes with late changes.
const LATE: u32 = 1 << 30;
/// Marks an image of changes whose parts are all records of the base.
const ALL: u32 = 1 << 29;
/// Bits of a number of parts.
const COUNT: u32 = ALL - 1;
/// Bytes of an image of changes before its parts. A whole image has fewer.
const HEAD: usize = 12;
/// Bytes of a record besides its key and its value.
const NUMBERS: usize = 8;
/// An image of changes first gets space for this many bytes.
const FIRST: usize = 1 << 10;
/// Bytes of a late change besides its key and its value.
pub(crate) const LATE_BYTES: usize = 8;
/// The value bytes of a late change that removes its key.
const REMOVED: u32 = u32::MAX;
/// An image of changes may take this share of the whole one. With larger changes, each save would cost more than the whole images that it
/// saves. With smaller ones, whole images would be written too often.
pub(crate) const SHARE: usize = 4;

/// A key and a value, as an image has them.
pub type Raw<'i> = (&'i [u8], &'i [u8]);

/// A late change: the bytes of a key, and those of its value, or `None` if it is removed.
pub type Late<'i> = (&'i [u8], Option<&'i [u8]>);

/// The position of a record in its base, plus 1. 0: the base does not have the record.
pub(crate) type Origin = u16;

pub(crate) enum Part<'i> {
    Record(Raw<'i>),
    Run { first: usize, count: usize },
}

fn put_number(number: usize, to: &mut Vec<u8>) {
    to.extend((number as u32).to_le_bytes());
}

fn put_record<P: Pairs>(record: P::Record<'_>, to: &mut Vec<u8>) {
    let head = to.len();
    to.extend([0; 8]);
    P::write_key(P::record_key(record), to);
    let key_bytes = to.len() - head - 8;
    if let Some(value) = P::record_value(record) {
        P::write_value(value, to);
    }
    let value_bytes = to.len() - head - 8 - key_bytes;
    to[head..head + 4].copy_from_slice(&(key_bytes as u32).to_le_bytes());
    to[head + 4..head + 8].copy_from_slice(&(value_bytes as u32).to_le_bytes());
}

/// The whole image of these records. `bytes`: its approximate length.
pub(crate) fn whole<P: Pairs>(records: &[P::Record<'_>], bytes: usize) -> Vec<u8> {
    let mut image = Vec::with_capacity(bytes);
    put_number(records.len(), &mut image);
    records.iter().for_each(|record| put_record::<P>(*record, &mut image));
    image
}

/// The whole image of records that were read from images.
pub(crate) fn whole_of(records: &[(Raw<'_>, Origin)]) -> Vec<u8> {
    let bytes = records.iter().map(|((key, value), _)| NUMBERS + key.len() + value.len());
    let mut image = Vec::with_capacity(HEAD + bytes.sum::<usize>());
    put_number(records.len(), &mut image);
    for ((key, value), _) in records {
        put_number(key.len(), &mut image);
        put_number(value.len(), &mut image);
        image.extend(*key);
        image.extend(*value);
    }
    image
}

/// The changes of these records since the base. `None` if they take more than `bytes_max`.
pub(crate) fn changes<P: Pairs>(
    records: &[P::Record<'_>],
    origins: &[Origin],
    base: Address,
    bytes_max: usize,
) -> Option<Vec<u8>> {
    let (mut image, mut parts, mut at) = (Vec::with_capacity(bytes_max.min(FIRST)), 0, 0);
    image.extend([0; 4]);
    image.extend(base.0.get().to_le_bytes());
    while at < records.len() && image.len() <= bytes_max {
        let first = usize::from(origins[at]);
        let mut count = 1;
        if first == 0 {
            put_record::<P>(records[at], &mut image);
        } else {
            while origins.get(at + count).is_some_and(|next| usize::from(*next) == first + count) {
                count += 1;
            }
            put_number(MARK as usize | (first - 1), &mut image);
            put_number(count, &mut image);
        }
        (parts, at) = (parts + 1, at + count);
    }
    image[..4].copy_from_slice(&(MARK | parts).to_le_bytes());
    (image.len() <= bytes_max).then_some(image)
}

fn take<'i>(from: &mut &'i [u8], bytes: usize) -> Option<&'i [u8]> {
    let (taken, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(taken)
}

fn take_number(from: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(from, 4)?.try_into().ok()?))
}

/// The parts of an image.
pub(crate) struct Decoded<'i> {
    pub(crate) base: Option<Address>,
    /// The parts are all records of the base.
    pub(crate) is_all: bool,
    pub(crate) parts: Vec<Part<'i>>,
    pub(crate) late: Vec<Late<'i>>,
    /// Bytes of the late changes.
    late_bytes: usize,
}

/// The first number of an image, its base, and the rest. `None` if the bytes are no image.
fn head(image: &[u8]) -> Option<(u32, Option<Address>, &[u8])> {
    let mut rest = image;
    let first = take_number(&mut rest)?;
    if first & MARK == 0 {
        return Some((first, None, rest));
    }
    let base = u64::from_le_bytes(take(&mut rest, size_of::<u64>())?.try_into().ok()?);
    Some((first, Some(Address(NonZeroU64::new(base)?)), rest))
}

/// The parts of an image. `None` if the bytes are no image.
pub(crate) fn decode(image: &[u8]) -> Option<Decoded<'_>> {
    let (first, base, mut rest) = head(image)?;
    if base.is_none() {
        let parts = decode_parts(first as usize, false, &mut rest)?;
        return Some(Decoded { base, is_all: false, parts, late: Vec::new(), late_bytes: 0 });
    }
    let parts = decode_parts((first & COUNT) as usize, true, &mut rest)?;
    let late_bytes = if first & LATE != 0 { rest.len() } else { 0 };
    let late = if late_bytes > 0 { decode_late(rest)? } else { Vec::new() };
    Some(Decoded { base, is_all: first & ALL != 0, parts, late, late_bytes })
}

fn decode_parts<'i>(count: usize, has_runs: bool, rest: &mut &'i [u8]) -> Option<Vec<Part<'i>>> {
    // A part takes at least its numbers.
    let mut parts = Vec::with_capacity(count.min(rest.len() / 8));
    for _ in 0..count {
        let (a, b) = (take_number(rest)?, take_number(rest)? as usize);
        parts.push(match (a & MARK != 0, has_runs) {
            (true, true) => Part::Run { first: (a & !MARK) as usize, count: b },
            (true, false) => return None,
            (false, _) => Part::Record((take(rest, a as usize)?, take(rest, b)?)),
        });
    }
    Some(parts)
}

/// The bytes of a key.
pub(crate) fn key_bytes<P: Pairs>(key: &P::Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    P::write_key(key, &mut bytes);
    bytes
}

/// An image of changes with these late changes added: to `changes`, or to all records of the base. `None` if bytes are damaged.
pub(crate) fn with_late<P: Pairs>(changes: Option<&[u8]>, base: Address, late: &[u8]) -> Option<Vec<u8>> {
    let newer = decode_late(late)?;
    let mut image = Vec::with_capacity(changes.map_or(HEAD, <[u8]>::len) + late.len());
    let late = match changes {
        None => {
            image.extend((MARK | LATE | ALL).to_le_bytes());
            image.extend(base.0.get().to_le_bytes());
            newer
        }
        Some(changes) => {
            let Decoded { late, late_bytes, .. } = decode(changes)?;
            image.extend(&changes[..changes.len() - late_bytes]);
            image[3] |= (LATE >> 24) as u8;
            merge(late, newer, |old, new| P::order(old.0, new.0), |old| old, Some)?
        }
    };
    put_number(late.len(), &mut image);
    late.into_iter().for_each(|change| put_late(change, &mut image));
    Some(image)
}

/// The records of a whole image: the offset of each, and its key. `None` if the bytes are no whole image. Ends early if they are damaged.
pub(crate) fn records_with_offsets(image: &[u8]) -> Option<impl Iterator<Item = (usize, &[u8])>> {
    let (records, None, mut rest) = head(image)? else { return None };
    Some((0..records).map_while(move |_| {
        let at = image.len() - rest.len();
        take_record(&mut rest).map(|(key, _)| (at, key))
    }))
}

/// The next record of a whole image.
pub(crate) fn take_record<'i>(from: &mut &'i [u8]) -> Option<Raw<'i>> {
    let (key_bytes, value_bytes) = (take_number(from)?, take_number(from)?);
    Some((take(from, key_bytes as usize)?, take(from, value_bytes as usize)?))
}

/// The index and the value of a key's record. `None`: the key is absent.
pub(crate) type Indexed<'i> = Option<(usize, &'i [u8])>;

/// The index and the value of a key's record in a whole image (`None`: the key is absent), and the number of records. `None` if the bytes are
/// no whole image, or if records are outside of the bounds. O(records).
pub(crate) fn look_up<'i, P: Pairs>(
    image: &'i [u8],
    key: &[u8],
    (low, high): (Option<&[u8]>, Option<&[u8]>),
) -> Option<(Indexed<'i>, u32)> {
    let (records, None, mut rest) = head(image)? else { return None };
    let (mut found, mut order) = (None, Order::Less);
    for number in 0..records {
        let (own, value) = take_record(&mut rest)?;
        // The keys ascend.
        if order.is_lt() {
            order = P::order(own, key)?;
            found = order.is_eq().then_some((number as usize, value));
        }
        let is_below = number == 0 && low.is_some_and(|low| P::order(own, low) == Some(Order::Less));
        let is_last = number + 1 == records;
        if is_below || is_last && high.is_some_and(|high| P::order(own, high) != Some(Order::Less)) {
            return None;
        }
    }
    Some((found, records))
}

/// The value of a key by the bytes of an image of changes; `Some(None)`: the key is removed. `None` if the image does not have the key, or is
/// damaged.
pub(crate) fn find_changed<'i, P: Pairs>(changes: &'i [u8], key: &[u8]) -> Option<Option<&'i [u8]>> {
    let Decoded { parts, late, .. } = decode(changes)?;
    let is_own = |own: &[u8]| P::order(own, key).is_some_and(Order::is_eq);
    let late = late.iter().find(|(own, _)| is_own(own)).map(|(_, value)| *value);
    late.or_else(|| {
        parts.iter().find_map(|part| match part {
            Part::Record((own, value)) if is_own(own) => Some(Some(*value)),
            _ => None,
        })
    })
}

/// The bytes of a leaf outside of memory: a whole image, the changes since, and late changes that are not saved.
#[derive(Debug)]
pub(crate) struct ImageBytes {
    whole: Vec<u8>,
    changes: Option<Vec<u8>>,
    /// Empty if there are none.
    late: Vec<u8>,
}

/// The contents of a leaf outside of memory.
#[derive(Debug)]
pub(crate) struct Contents<'i> {
    /// The records in key order, each with its origin (0 behind the first 65,535 records).
    pub(crate) records: Vec<(Raw<'i>, Origin)>,
    /// Number of records of the whole image.
    pub(crate) base_records: usize,
}

impl ImageBytes {
    /// From the newest image of a leaf. `read` reads another one. `None` if the bytes are no image.
    pub(crate) fn of<E>(
        newest: Vec<u8>,
        late: Vec<u8>,
        read: impl FnOnce(Address) -> Result<Vec<u8>, E>,
    ) -> Result<Option<Self>, E> {
        let Some((_, base, _)) = head(&newest) else { return Ok(None) };
        Ok(Some(match base {
            None => Self { whole: newest, changes: None, late },
            Some(base) => Self { whole: read(base)?, changes: Some(newest), late },
        }))
    }

    /// The whole image.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.whole
    }

    /// The image of changes.
    pub(crate) fn changes(&self) -> Option<&[u8]> {
        self.changes.as_deref()
    }

    /// The whole image, if there are no changes.
    pub(crate) fn only(&self) -> Option<&[u8]> {
        (self.changes.is_none() && self.late.is_empty()).then_some(&self.whole)
    }

    /// The contents. `None` if the bytes are damaged.
    pub(crate) fn contents<P: Pairs>(&self) -> Option<Contents<'_>> {
        let Decoded { base: None, parts, .. } = decode(&self.whole)? else { return None };
        let mut base = Vec::with_capacity(parts.len());
        for (i, part) in parts.iter().enumerate() {
            let Part::Record(raw) = part else { return None };
            base.push((*raw, Origin::try_from(i + 1).unwrap_or(0)));
        }
        let base_records = base.len();
        let (records, late) = match &self.changes {
            None => (base, Vec::new()),
            Some(changes) => {
                let Decoded { is_all, parts, late, .. } = decode(changes)?;
                // With all records of the base, no part is listed.
                let mut records = if is_all { mem::take(&mut base) } else { Vec::with_capacity(base.len()) };
                for part in parts {
                    match part {
                        Part::Record(raw) => records.push((raw, 0)),
                        Part::Run { first, count } => {
                            records.extend(base.get(first..first.checked_add(count)?)?);
                        }
                    }
                }
                (records, late)
            }
        };
        let records = apply::<P>(records, late)?;
        let late = if self.late.is_empty() { Vec::new() } else { decode_late(&self.late)? };
        Some(Contents { records: apply::<P>(records, late)?, base_records })
    }
}

/// Applies late changes to records.
fn apply<'i, P: Pairs>(
    records: Vec<(Raw<'i>, Origin)>,
    late: Vec<Late<'i>>,
) -> Option<Vec<(Raw<'i>, Origin)>> {
    if late.is_empty() {
        return Some(records);
    }
    let order = |old: &(Raw<'i>, Origin), new: &Late<'i>| P::order(old.0.0, new.0);
    merge(records, late, order, |old| old, |(key, value)| value.map(|value| ((key, value), 0)))
}

/// A key and its value; `None`: it is removed.
pub type Change<P> = (<P as Pairs>::KeyBuf, Option<<P as Pairs>::ValueBuf>);

/// The pairs of an image that can be read, for salvage, and whether these are all. `read` reads the base.
pub fn salvage<P: Pairs>(
    newest: Vec<u8>,
    read: impl FnOnce(Address) -> Option<Vec<u8>>,
) -> (Vec<Change<P>>, bool) {
    let own = |(key, value): Late<'_>| {
        let value = value.map_or(Some(None), |value| P::read_value(value).map(Some))?;
        Some((P::read_key(key)?, value))
    };
    let mut pairs = Vec::new();
    let mut is_whole = true;
    let mut keep = |raw: Late<'_>| match own(raw) {
        Some(pair) => pairs.push(pair),
        None => is_whole = false,
    };
    let changes = newest.clone();
    let image = ImageBytes::of(newest, Vec::new(), |base| read(base).ok_or(()));
    let contents = image.as_ref().ok().and_then(|image| image.as_ref()?.contents::<P>());
    if let Some(Contents { records, .. }) = contents {
        records.into_iter().for_each(|((key, value), _)| keep((key, Some(value))));
        return (pairs, is_whole);
    }
    // Without the base, the changes alone.
    if let Some(Decoded { parts, late, .. }) = decode(&changes) {
        for part in parts {
            if let Part::Record((key, value)) = part {
                keep((key, Some(value)));
            }
        }
        late.into_iter().for_each(keep);
    }
    (pairs, false)
}

/// The origins of a leaf's records.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origins {
    /// The records are those of the base.
    Same,
    /// One for each record.
    Each(Box<[Origin]>),
    /// There are too many records in the base, or too many changes.
    Unknown,
}

/// The difference of a leaf from its base.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The image of changes.
    pub(crate) image: Vec<u8>,
    origins: Vec<Origin>,
    /// The base.
    pub(crate) base: Address,
    /// The guide of the base.
    guide: Arc<[u8]>,
}

/// The image of a leaf in memory, and the difference of the leaf from the image's base. It does not change, except that the image can be
/// forgotten.
#[derive(Debug)]
pub(crate) struct Lineage {
    image: Image,
    /// The guide of the whole image (G1 of [`guide`](crate::guide)).
    guide: Arc<[u8]>,
    origins: Origins,
    /// The image has the contents of the leaf without its changes in the slab.
    is_current: bool,
    /// 1: the image is to be removed.
    is_forgotten: AtomicU64,
}

impl Lineage {
    fn new(image: Image, guide: Arc<[u8]>, origins: Origins, is_current: bool) -> Box<Self> {
        Box::new(Self { image, guide, origins, is_current, is_forgotten: AtomicU64::new(0) })
    }

    /// That of a leaf with these origins. `count`: the number of records of the base.
    pub(crate) fn of(
        image: Image,
        guide: Arc<[u8]>,
        is_current: bool,
        origins: Vec<Origin>,
        count: usize,
    ) -> Box<Self> {
        let is_same = origins.len() == count
            && origins.iter().enumerate().all(|(i, origin)| usize::from(*origin) == i + 1);
        let origins = match count > usize::from(Origin::MAX) {
            true => Origins::Unknown,
            false if is_same => Origins::Same,
            false => Origins::Each(origins.into()),
        };
        Self::new(image, guide, origins, is_current)
    }

    /// That of a leaf that was just saved whole.
    pub(crate) fn whole(address: Address, guide: Vec<u8>) -> Box<Self> {
        Self::new(Image { address, base: None }, guide.into(), Origins::Same, true)
    }

    /// That of a leaf whose difference was just saved.
    pub(crate) fn changed(address: Address, difference: Difference) -> Box<Self> {
        let image = Image { address, base: Some(difference.base) };
        Self::new(image, difference.guide, Origins::Each(difference.origins.into()), true)
    }

    /// The guide of the whole image.
    pub(crate) fn guide(&self) -> &[u8] {
        &self.guide
    }

    /// The image, unless it is forgotten.
    pub(crate) fn image(&self) -> Option<Image> {
        (self.is_forgotten.load(Ordering::Acquire) == 0).then_some(self.image)
    }

    /// The image, if it has the contents of the leaf without its changes in the slab.
    pub(crate) fn current(&self) -> Option<Image> {
        self.image().filter(|_| self.is_current)
    }

    /// The next save writes a whole image, to which nothing of this one belongs.
    pub(crate) fn forget(&self) {
        self.is_forgotten.store(1, Ordering::Release);
    }

    /// The origins after changes of a leaf of `records` records. `None` if they are not known.
    fn origins_after<P: Pairs>(&self, records: usize, changes: &[Spotted<'_, P>]) -> Option<Vec<Origin>> {
        let before = |i: usize| match &self.origins {
            Origins::Same => Origin::try_from(i + 1).ok(),
            Origins::Each(origins) => origins.get(i).copied(),
            Origins::Unknown => None,
        };
        let (mut after, mut next) = (Vec::with_capacity(records + changes.len()), 0);
        for &(spot, change) in changes {
            let (from, to) = spot.records();
            for i in next..from {
                after.push(before(i)?);
            }
            next = to;
            if P::record_value(change).is_some() {
                after.push(0);
            }
        }
        for i in next..records {
            after.push(before(i)?);
        }
        Some(after)
    }

    /// That of a leaf of `records` records after a consolidation with these changes. `None` if the next image has to be a whole one.
    pub(crate) fn after<P: Pairs>(&self, records: usize, changes: &[Spotted<'_, P>]) -> Option<Box<Self>> {
        let image = self.image()?;
        if changes.is_empty() {
            return Some(Self::new(image, Arc::clone(&self.guide), self.origins.clone(), self.is_current));
        }
        let origins = self.origins_after::<P>(records, changes)?;
        let changed = origins.iter().filter(|origin| **origin == 0).count();
        (changed * 2 <= origins.len())
            .then(|| Self::new(image, Arc::clone(&self.guide), Origins::Each(origins.into()), false))
    }

    /// The difference of a leaf from its base. `live` are its records. `None` if a whole image is better, or is needed.
    pub(crate) fn difference<P: Pairs>(
        &self,
        head: Head<'_, P>,
        live: &[P::Record<'_>],
        may_build_on: impl FnOnce(Address) -> bool,
    ) -> Option<Difference> {
        let base = self.image()?.whole();
        if !may_build_on(base) {
            return None;
        }
        let (sorted, _) = Changes::<P>(head.changes().collect()).sorted();
        let origins = self.origins_after::<P>(head.base_records(), &sorted)?;
        // The leaves of models are smaller than the head of an image.
        let bytes_max = if IS_SMALL { usize::MAX } else { head.bytes() / SHARE };
        let image = changes::<P>(live, &origins, base, bytes_max)?;
        Some(Difference { image, origins, base, guide: Arc::clone(&self.guide) })
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        let origins = if let Origins::Each(origins) = &self.origins { size_of_val(&**origins) } else { 0 };
        size_of::<Self>() + origins + self.guide.len()
    }
}
