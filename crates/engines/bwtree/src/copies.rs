//! Copies of records of evicted leaves.
//!
//! A lookup that reads the image of an evicted leaf does not page the leaf in. The evicted leaf gets a *copy* of the one record, or of the
//! fact that the key is absent. So memory has the records that are read often, without the other records of their leaves. A leaf is paged
//! in if its image is read again soon, or if its copies would take half of its bytes.
//!
//! Invariant:
//! * R1: a copy says what the image and the unsaved changes of its leaf have for the key. A late change of the key removes the copy.
//!
//! Commit point: the exchange that replaces the evicted leaf. The paper (§V) has no such copies: it reads whole pages into memory.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use crate::digest;
use crate::error::Result;
use crate::guide;
use crate::image::{self, Address, Image, ImageBytes, Indexed, Late};
use crate::node::Body;
use crate::omission::{Omission, is_omitted};
use crate::paged::{Kept, Shelf, Stub, damaged};
use crate::pairs::Pairs;
use crate::pool::Array;
use crate::stats::Count;
use crate::sync::{AtomicU64, IS_SMALL};
use crate::table::Pid;
use crate::tree::Tree;

/// A leaf has at most this number of copies, one for each bit of `used`.
const COPIES_MAX: usize = u64::BITS as usize - 1;
/// The copies of a leaf take at most this share of its bytes.
const SHARE: usize = 2;

/// The copies of an evicted leaf.
#[derive(Debug)]
pub(crate) struct Copies {
    /// As late changes (see [`image`]), in the block of the leaf's node. Empty if there are none.
    bytes: Array<u8>,
    /// One bit for each copy: it was used since the last round of the eviction.
    used: AtomicU64,
}

/// The copies of a leaf that is to be evicted.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewCopies {
    pub(crate) bytes: Vec<u8>,
    used: u64,
}

/// These bits without one of them; those above move down.
fn without_bit(bits: u64, index: usize) -> u64 {
    let below = (1 << index) - 1;
    (bits & below) | (bits >> 1 & !below)
}

/// These bits with a bit 0 more; those above move up.
fn with_bit(bits: u64, index: usize) -> u64 {
    let below = (1 << index) - 1;
    (bits & below) | (bits & !below) << 1
}

impl NewCopies {
    /// The copies in the block of a node. `copy` copies the bytes there.
    pub(crate) fn placed(&self, copy: impl FnOnce(&[u8]) -> Array<u8>) -> Copies {
        Copies { bytes: copy(&self.bytes), used: AtomicU64::new(self.used) }
    }

    /// Without the copy of this key, if there is one (R1). `None` if the bytes are damaged.
    pub(crate) fn without<P: Pairs>(self, key: &P::Key) -> Option<Self> {
        if self.bytes.is_empty() || is_omitted(Omission::Copy) {
            return Some(self);
        }
        let spot = image::late_spot::<P>(&self.bytes, &image::key_bytes::<P>(key))?;
        if !spot.is_there() {
            return Some(self);
        }
        let bytes = image::late_replaced(&self.bytes, spot, None)?;
        Some(Self { bytes, used: without_bit(self.used, spot.index) })
    }

    /// With the copy of a key that has none. `None` if a leaf of `leaf_bytes` has no space for it, or has enough copies.
    fn with<P: Pairs>(&self, copy: Late<'_>, leaf_bytes: usize) -> Option<Self> {
        let spot = image::late_spot::<P>(&self.bytes, copy.0)?;
        let bytes = image::late_replaced(&self.bytes, spot, Some(copy))?;
        // The leaves of models have fewer bytes than a copy.
        let is_small = bytes.len() <= leaf_bytes / SHARE || IS_SMALL;
        (is_small && image::late_count(&bytes) <= COPIES_MAX)
            .then(|| Self { bytes, used: with_bit(self.used, spot.index) })
    }

    /// The used ones, as not used. `None` if the bytes are damaged.
    fn used(&self) -> Option<Self> {
        if self.bytes.is_empty() {
            return Some(Self::default());
        }
        let copies = image::decode_late(&self.bytes)?.into_iter().enumerate();
        let used = copies.filter(|(index, _)| self.used >> index & 1 == 1).map(|(_, copy)| copy).collect();
        Some(Self { bytes: image::late_of(used), used: 0 })
    }
}

impl Copies {
    /// Bytes of the copies.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A copy of all of them, for the next state of the leaf.
    pub(crate) fn to_new(&self) -> NewCopies {
        NewCopies { bytes: self.bytes.to_vec(), used: self.used.load(Relaxed) }
    }

    /// The value of a key; `Some(None)` if the key is absent. `None` if there is no copy.
    pub(crate) fn find<P: Pairs>(&self, key: &P::Key) -> Option<Option<P::ValueBuf>> {
        let (index, found) = image::find_late::<P>(&self.bytes, key)?;
        // Without a store for a record that is read all the time.
        if self.used.load(Relaxed) >> index & 1 == 0 {
            self.used.fetch_or(1 << index, Relaxed);
        }
        Some(found)
    }
}

/// The index and the value of a key's record. `None`: the key is absent.
type FoundRecord = Option<(usize, Vec<u8>)>;

/// The answer of one of the two images of a leaf about a key.
enum Answer {
    /// The value of the key, or `None` if it is absent. The whole image, if all of it was read.
    Decided { value: Option<Vec<u8>>, whole: Option<Vec<u8>> },
    /// The other image is needed, too. The image that was read, if one was.
    Undecided(Option<(Address, Vec<u8>)>),
}

impl<P: Pairs> Tree<P> {
    /// Reads a key in an evicted leaf and keeps a copy, or pages the leaf in. `Some(None)`: the key is absent. `None`: the leaf has another
    /// state now. The caller has no visit.
    #[cold]
    pub(crate) fn read_record(
        &self,
        pid: Pid,
        stub: Stub,
        key: &P::Key,
    ) -> Result<Option<Option<P::ValueBuf>>> {
        let mut turn = self.paging.turn(pid);
        let own = image::key_bytes::<P>(key);
        let (image, kept, [digest, guide]) = {
            let visit = self.visit();
            let Some((head, evicted)) = visit.stub(pid, stub) else { return Ok(None) };
            // A thread that had the turn before may have made the copy.
            if let Some(value) = self.kept_value(head, key) {
                return Ok(Some(value));
            }
            (evicted.image, evicted.kept.to_vecs(), [&evicted.digest, &evicted.guide].map(|own| own.to_vec()))
        };
        let was_read = self.paging.was_read(&mut turn, pid);
        // A leaf that is paged in needs all its records.
        let answer = match was_read {
            true => Answer::Undecided(None),
            false => self.read_one(image, &kept, &digest, &guide, &own)?,
        };
        let (decided, whole, both) = match answer {
            Answer::Decided { value, whole } => (value, whole, None),
            Answer::Undecided(read) => (None, None, Some(self.read_image_with(image, kept, read)?)),
        };
        let visit = self.visit();
        let Some((head, evicted)) = visit.stub(pid, stub) else { return Ok(None) };
        let found = match &both {
            Some(both) if was_read => return visit.fill(pid, head, evicted, both).map(|()| None),
            Some(both) => visit.find_in(head, evicted, both, &own)?,
            None => decided.as_deref(),
        };
        let value =
            found.map(|value| P::read_value(value).ok_or_else(|| damaged(image.address))).transpose()?;
        let Some(copies) = evicted.copies.to_new().with::<P>((&own, found), head.bytes()) else {
            if let Some(both) = both {
                return visit.fill(pid, head, evicted, &both).map(|()| None);
            }
            drop((visit, turn));
            return self.page_in(pid, stub).map(|()| None);
        };
        let mut leaf = evicted.with_copies(copies);
        if let Some(changes) = both.as_ref().and_then(ImageBytes::changes) {
            leaf.digest = digest::of(changes).into();
        }
        if let Some(whole) = both.as_ref().map(ImageBytes::whole).or(whole.as_deref()) {
            leaf.guide = visit.tree.guide_of(whole, image.whole()).into();
        }
        visit.replace_stub(pid, head, evicted, visit.stub_of(head, leaf));
        visit.count(Count::PagedIn);
        Ok(Some(value))
    }

    /// Reads a key in the one of the two images of an evicted leaf that has it, if the digest says which one that is. The leaf has neither a
    /// late change nor an unsaved record of the key.
    fn read_one(
        &self,
        image: Image,
        kept: &Kept<Vec<u8>>,
        digest: &[u8],
        guide: &[u8],
        key: &[u8],
    ) -> Result<Answer> {
        let Some(shelf) = &self.shelf else { return Ok(Answer::Undecided(None)) };
        let has_changes = image.base.is_some() || !kept.unsaved.is_empty();
        match digest::has_key(digest, key) {
            None if has_changes => return Ok(Answer::Undecided(None)),
            Some(true) if image.base.is_some() => {
                let changes = shelf.read(image.address)?;
                return Ok(match image::find_changed::<P>(&changes, key) {
                    Some(found) => Answer::Decided { value: found.map(<[u8]>::to_vec), whole: None },
                    None => Answer::Undecided(Some((image.address, changes))),
                });
            }
            Some(true) => return Ok(Answer::Undecided(None)),
            None | Some(false) => {}
        }
        let decide = |found: Indexed<'_>| match found {
            // D1.
            Some((index, _)) if has_changes && !digest::is_live(digest, index) => None,
            found => Some(found.map(|(_, value)| value.to_vec())),
        };
        if let Some(found) = self.read_piece(&**shelf, image.whole(), guide, key)? {
            let found = found.as_ref().map(|(index, value)| (*index, &value[..]));
            let decided = |value| Answer::Decided { value, whole: None };
            return Ok(decide(found).map_or(Answer::Undecided(None), decided));
        }
        // The lookup in a leaf without changes checks the whole image.
        if !has_changes {
            return Ok(Answer::Undecided(None));
        }
        let whole = shelf.read(image.whole())?;
        let found = image::look_up::<P>(&whole, key, (None, None)).ok_or_else(|| damaged(image.whole()))?.0;
        Ok(match decide(found) {
            Some(value) => Answer::Decided { value, whole: Some(whole) },
            None => Answer::Undecided(Some((image.whole(), whole))),
        })
    }

    /// Reads the index and the value of a key's record in a whole image, from the piece that the guide names. `Some(None)`: the image does not
    /// have the key. `None`: the guide does not say where it is, or the piece is damaged.
    fn read_piece(
        &self,
        shelf: &dyn Shelf,
        address: Address,
        guide: &[u8],
        key: &[u8],
    ) -> Result<Option<FoundRecord>> {
        let Some(place) = guide::place::<P>(guide, key) else { return Ok(None) };
        let (mut bytes, mut pieces) = (Vec::new(), place.piece..);
        let mut read_next = |bytes: &mut Vec<u8>| -> Result<bool> {
            let Some((piece, range)) = pieces.next().and_then(|i| Some((i, guide::range(guide, i)?))) else {
                return Ok(false);
            };
            let read = shelf.read_part(address, range)?;
            // G1.
            let is_good = guide::is_good(guide, piece, &read);
            bytes.extend(if is_good { &read[..] } else { &[] });
            Ok(is_good)
        };
        if !read_next(&mut bytes)? {
            return Ok(None);
        }
        let end = bytes.len();
        let (mut at, mut index) = (place.offset, place.index);
        while at < end {
            let mut rest = &bytes[at..];
            let Some((own, value)) = image::take_record(&mut rest) else {
                // The record ends in the next piece.
                if !read_next(&mut bytes)? {
                    return Ok(None);
                }
                continue;
            };
            match P::order(own, key) {
                Some(Ordering::Less) => (at, index) = (bytes.len() - rest.len(), index + 1),
                Some(Ordering::Equal) => return Ok(Some(Some((index, value.to_vec())))),
                Some(Ordering::Greater) => break,
                None => return Ok(None),
            }
        }
        Ok(Some(None))
    }

    /// Drops the copies of an evicted leaf, by its page number, that were not used since the last call. False if there are
    /// none to drop, or if another thread has the turn of the page.
    pub fn drop_copies(&self, page: u32) -> bool {
        if u64::from(page) >= self.table.used() {
            return false;
        }
        let pid = Pid(page);
        // I5. Another thread with the turn may read from a disk. The eviction does not wait for that.
        let Some(_turn) = self.paging.free_turn(pid) else { return false };
        let visit = self.visit();
        let Some(head) = visit.load(pid) else { return false };
        let Body::Evicted { leaf, .. } = head.body() else { return false };
        let copies = leaf.copies.to_new();
        if copies.used.count_ones() as usize == image::late_count(&copies.bytes) {
            leaf.copies.used.store(0, Relaxed);
            return false;
        }
        copies.used().is_some_and(|copies| {
            visit.replace_stub(pid, head, leaf, visit.stub_of(head, leaf.with_copies(copies)))
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::words::Words;

    fn find(copies: &NewCopies, key: u64) -> Option<Option<u64>> {
        image::find_late::<Words>(&copies.bytes, &key).map(|(_, found)| found)
    }

    #[test]
    fn copies_come_and_go_with_their_bits() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut copies, mut model) = (NewCopies::default(), std::collections::BTreeMap::new());
        for _ in 0..20_000 {
            let key = random.u64(..90);
            match random.u8(..8) {
                0..4 if !model.contains_key(&key) => {
                    let value = random.bool().then(|| random.u64(..));
                    let bytes = value.map(u64::to_le_bytes);
                    let own = image::key_bytes::<Words>(&key);
                    let copy = (&own[..], bytes.as_ref().map(|bytes| &bytes[..]));
                    let with = copies.with::<Words>(copy, 1 << 20);
                    assert_eq!(with.is_some(), model.len() < COPIES_MAX);
                    if let Some(with) = with {
                        copies = with;
                        model.insert(key, (value, false));
                    }
                }
                4 => {
                    copies = copies.without::<Words>(&key).unwrap();
                    model.remove(&key);
                }
                5 if random.u8(..8) == 0 => {
                    copies = copies.used().unwrap();
                    model.retain(|_, (_, is_used)| std::mem::take(is_used));
                }
                _ => {
                    if let Some((index, _)) = image::find_late::<Words>(&copies.bytes, &key) {
                        copies.used |= 1 << index;
                        model.get_mut(&key).unwrap().1 = true;
                    }
                }
            }
            assert_eq!(find(&copies, key), model.get(&key).map(|(value, _)| *value));
            assert_eq!(image::late_count(&copies.bytes), model.len());
            let used = model.values().filter(|(_, is_used)| *is_used).count();
            assert_eq!(copies.used.count_ones() as usize, used);
        }
    }

    #[test]
    fn a_key_is_found_in_a_whole_image_of_records_within_the_bounds() {
        let mut random = fastrand::Rng::with_seed(1);
        let bytes = image::key_bytes::<Words>;
        for _ in 0..300 {
            let keys: std::collections::BTreeSet<u64> =
                (0..random.u64(..30)).map(|_| random.u64(10..90)).collect();
            let pairs: Vec<_> = keys.iter().map(|key| (bytes(key), bytes(&(key * 2)))).collect();
            let records: Vec<_> = pairs.iter().map(|(key, value)| ((&key[..], &value[..]), 0)).collect();
            let whole = image::whole_of(&records);
            let look_up = |image, key: u64, low: u64, high: u64| {
                image::look_up::<Words>(image, &bytes(&key), (Some(&bytes(&low)), Some(&bytes(&high))))
                    .map(|(value, records)| (value.map(|(index, value)| (index, value.to_vec())), records))
            };
            for key in 0..100 {
                let index = keys.range(..key).count();
                let value = keys.contains(&key).then(|| (index, bytes(&(key * 2))));
                assert_eq!(look_up(&whole, key, 10, 90), Some((value, keys.len() as u32)));
            }
            let (Some(first), Some(last)) = (keys.first(), keys.last()) else { continue };
            assert!(look_up(&whole, 50, *first, last + 1).is_some());
            assert!(look_up(&whole, 50, first + 1, 90).is_none() && look_up(&whole, 50, 10, *last).is_none());
            (0..whole.len()).for_each(|end| assert!(look_up(&whole[..end], 50, 10, 90).is_none()));
        }
    }
}
