//! Leaves outside of memory: their images and page-in. [`save`](crate::save) writes images, [`restore`](crate::restore) builds a tree from
//! them.
//!
//! A tree with a [`Shelf`] can save a leaf as an *image*, a run of bytes, and evict it: a node (`Body::Evicted`) with the leaf's bounds
//! and the image's address replaces the leaf. The inner pages stay in memory. So a descent, a split of an inner page and the walk along the
//! siblings need no image. An operation that needs the records of an evicted leaf pages it in.
//!
//! A leaf with few changes since its base (see [`image`]) can be evicted without a save: the evicted leaf keeps the changes,
//! as the bytes of an image that is not saved yet. So a save has the changes of many rounds in memory. An evicted leaf also keeps the changes
//! that operations made without reading it ([`late`](crate::late)), and copies of records that were read
//! (`copies`).
//!
//! Invariants:
//! * I1: a leaf is *clean* if it is a base page without changes in the slab, and its lineage says that the image is current. Only the
//!   exchange that installs a base page makes a leaf clean: a save installs one with the same records. Any change makes it dirty.
//! * I2: the contents of an evicted leaf are the records of its image, or of the base and the changes that it keeps, with its late changes
//!   applied, that are within the leaf's bounds. An image may have more, because a restored leaf may have narrower bounds than the leaf
//!   that was saved.
//! * I3: no delta is in front of an evicted leaf. Structure changes leave evicted leaves alone: they are not worth a read.
//! * I4: one thread at a time saves, moves images and evicts (the caller's duty).
//! * I5: an evicted leaf changes only while a thread has the turn of its page. So a thread with the turn reads the image that belongs to
//!   the state which it replaces.
//!
//! Commit points: the exchanges that replace an evicted leaf. Paper: Bw-tree §V.

use std::borrow::Borrow;
use std::borrow::Cow;
use std::cmp::Ordering::Less;
use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::copies::{Copies, NewCopies};
use crate::error::{Error, Result};
use crate::guide;
use crate::image::{self, Address, Contents, Image, ImageBytes, Lineage, Origin, Raw};
use crate::node::{Body, Head, Made};
use crate::omission::Omission;
use crate::options::Options;
use crate::page::{Bounds, New, Outline};
use crate::pairs::{Pairs, RECORD_BYTES, Read, Spotted};
use crate::pool::Array;
use crate::stats::Count;
use crate::sync::{AtomicU64, IS_SMALL, Mutex, MutexGuard, Ordering};
use crate::table::Pid;
use crate::tree::{Tree, Visit};

/// The place where images are.
pub trait Shelf: Debug + Send + Sync {
    /// Reads an image.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if it cannot be read or is damaged.
    fn read(&self, address: Address) -> Result<Vec<u8>>;

    /// Reads a part of the bytes of an image, unchecked. May return fewer bytes.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if it cannot be read.
    fn read_part(&self, address: Address, part: Range<usize>) -> Result<Vec<u8>>;

    /// The bytes of an image before the first boundary of a page of the file system, at least 1 and at most [`PIECE`](crate::guide::PIECE).
    /// `usize::MAX`: the image can only be read as a whole.
    fn first_piece(&self, address: Address) -> usize;

    /// Says that the images at these addresses will be read soon, so that the reads overlap. May change their order.
    fn prefetch(&self, _addresses: &mut [Address]) {}

    /// About the number of bytes of an image. 0: it is not known.
    fn size(&self, _address: Address) -> usize {
        0
    }

    /// True if the image at this address is kept, and can become the base of changes. Called by the thread that saves (I4).
    fn is_kept(&self, address: Address) -> bool;
}

/// The image of a leaf in memory, and how often the leaf was used.
#[derive(Debug)]
pub(crate) struct Saved {
    /// `None`: there is no image.
    pub(crate) lineage: Option<Box<Lineage>>,
    /// Number of uses since the last round of the eviction, at most [`USED_MAX`].
    used: AtomicU64,
}

/// An evicted leaf that was found: the number of its state, and the address of its image. Equal for the same contents only, not for the same
/// copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stub {
    pub(crate) lsn: u64,
    pub(crate) address: Address,
}

/// A leaf whose contents are not in memory.
#[derive(Debug)]
pub(crate) struct Evicted {
    /// Its image. With unsaved changes: their base.
    pub(crate) image: Image,
    /// The number of its records, as the tree counts them.
    pub(crate) records: u32,
    /// False if that number may be wrong, because of late changes.
    pub(crate) is_counted: bool,
    /// The changes that it keeps, in the block of its node. Empty if there are none.
    pub(crate) kept: Kept<Array<u8>>,
    /// The digest of its changes, in the block of its node (D1). Late changes that it keeps do not count. Empty if there is none.
    pub(crate) digest: Array<u8>,
    /// The guide of the whole image, in the block of its node (G1). Empty if there is none.
    pub(crate) guide: Array<u8>,
    /// Copies of records that were read.
    pub(crate) copies: Copies,
}

impl Evicted {
    /// The same leaf, for its next state.
    pub(crate) fn as_new(&self) -> NewEvicted<'_> {
        self.with_copies(self.copies.to_new())
    }

    /// As [`as_new`](Self::as_new), with these copies.
    pub(crate) fn with_copies(&self, copies: NewCopies) -> NewEvicted<'_> {
        let Self { image, records, is_counted, kept: Kept { unsaved, late }, .. } = self;
        let kept = Kept { unsaved: &**unsaved, late: &**late };
        let (digest, guide) = (Cow::Borrowed(&*self.digest), Cow::Borrowed(&*self.guide));
        NewEvicted { image: *image, records: *records, is_counted: *is_counted, kept, digest, guide, copies }
    }
}

/// The changes that an evicted leaf keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept<B> {
    /// Changes that are not saved, as an image.
    pub(crate) unsaved: B,
    /// Late changes that are not saved. They are newer than the image and the unsaved changes.
    pub(crate) late: B,
}

impl<B: Deref<Target = [u8]>> Kept<B> {
    /// Bytes of the changes.
    pub(crate) fn bytes(&self) -> usize {
        self.unsaved.len() + self.late.len()
    }

    pub(crate) fn to_vecs(&self) -> Kept<Vec<u8>> {
        Kept { unsaved: self.unsaved.to_vec(), late: self.late.to_vec() }
    }
}

/// A leaf that is to be evicted.
#[derive(Clone, Debug)]
pub(crate) struct NewEvicted<'a> {
    pub(crate) image: Image,
    pub(crate) records: u32,
    pub(crate) is_counted: bool,
    pub(crate) kept: Kept<&'a [u8]>,
    pub(crate) digest: Cow<'a, [u8]>,
    pub(crate) guide: Cow<'a, [u8]>,
    pub(crate) copies: NewCopies,
}

impl NewEvicted<'_> {
    /// A leaf that keeps no changes and no copies.
    pub(crate) fn of(image: Image, records: u32, is_counted: bool) -> Self {
        Self {
            image,
            records,
            is_counted,
            kept: Kept::default(),
            digest: Cow::default(),
            guide: Cow::default(),
            copies: NewCopies::default(),
        }
    }

    /// Bytes in the block of its node.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.bytes() + self.digest.len() + self.guide.len() + self.copies.bytes.len()
    }
}

/// Turns to page in: one thread at a time for each page.
#[derive(Debug)]
pub(crate) struct Paging {
    turns: Box<[Mutex<Turn>]>,
    /// Number of reads of images by lookups. No protocol reads it.
    lookups: std::sync::atomic::AtomicU64,
}

/// A turn, which knows the last page that a lookup read with it, and the number of that read.
#[derive(Debug, Default)]
pub(crate) struct Turn(Option<(Pid, u64)>);

/// Number of pages that threads can page in at the same time.
const TURNS: usize = if IS_SMALL { 1 } else { 1024 };
/// A lookup that reads an image which another lookup read less than this number of reads before pages the leaf in. Larger than the number of
/// threads that each read a run of keys.
const SOON: u64 = 32;

impl Paging {
    pub(crate) fn new() -> Self {
        Self { turns: (0..TURNS).map(|_| Mutex::default()).collect(), lookups: 0.into() }
    }

    pub(crate) fn turn(&self, pid: Pid) -> MutexGuard<'_, Turn> {
        self.turns[pid.0 as usize % TURNS].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The turn of a page, unless another thread has it.
    pub(crate) fn free_turn(&self, pid: Pid) -> Option<MutexGuard<'_, Turn>> {
        self.turns[pid.0 as usize % TURNS].try_lock().ok()
    }

    /// Notes that a lookup reads the image of this page. True if one did so shortly before.
    pub(crate) fn was_read(&self, turn: &mut Turn, pid: Pid) -> bool {
        let number = self.lookups.fetch_add(1, Relaxed);
        turn.0.replace((pid, number)).is_some_and(|(last, at)| last == pid && number - at < SOON)
    }
}

/// Uses that are counted.
const USED_MAX: u64 = if IS_SMALL { 1 } else { 15 };
/// A leaf with this number of uses survives a round of the eviction, which halves the number. A leaf that is used less often gets copies of
/// its used records instead, which take less memory.
const USED_MIN: u64 = if IS_SMALL { 1 } else { 4 };

impl Default for Saved {
    fn default() -> Self {
        Self::new(None, 0)
    }
}

impl Saved {
    fn new(lineage: Option<Box<Lineage>>, used: u64) -> Self {
        Self { lineage, used: AtomicU64::new(used) }
    }

    /// That of the leaf after a consolidation with these changes, which are in key order. `records` is the number of its records before.
    pub(crate) fn after<P: Pairs>(&self, records: usize, changes: &[Spotted<'_, P>]) -> Self {
        let lineage = self.lineage.as_ref().and_then(|lineage| lineage.after::<P>(records, changes));
        Self::new(lineage, self.used.load(Ordering::Relaxed))
    }

    /// With this lineage, and used as often.
    pub(crate) fn with(&self, lineage: Box<Lineage>) -> Self {
        Self::new(Some(lineage), self.used.load(Ordering::Relaxed))
    }

    /// The image of a leaf with this head, if it has all contents (I1).
    pub(crate) fn current<P: Pairs>(&self, head: Head<'_, P>) -> Option<Image> {
        let lineage = self.lineage.as_ref()?;
        if head.depth() == 0 { lineage.current() } else { None }
    }

    /// Bytes of memory outside of the node.
    pub(crate) fn memory(&self) -> usize {
        self.lineage.as_ref().map_or(0, |lineage| lineage.memory())
    }

    /// Notes a use. Writes nothing if the leaf was used often.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        let used = self.used.load(Ordering::Relaxed);
        if used < USED_MAX {
            self.used.store(used + 1, Ordering::Relaxed);
        }
    }

    /// Halves the number of uses. False if there were few.
    pub(crate) fn cool(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(used / 2, Ordering::Relaxed);
        used >= USED_MIN
    }
}

/// Reads the records of an image that are within the bounds of a leaf (I2), and the number of records of its base. `None` if the image is
/// damaged.
pub(crate) fn records_of<'i, P: Pairs>(
    image: &'i ImageBytes,
    low: Option<&P::Key>,
    high: Option<&P::Key>,
) -> Option<(Vec<(Raw<'i>, Origin)>, usize)> {
    let Contents { mut records, base_records } = image.contents::<P>()?;
    let mut last = None;
    for &(raw, _) in &records {
        if !P::is_pair(raw) || last.is_some_and(|last| P::order(last, raw.0) != Some(Less)) {
            return None;
        }
        last = Some(raw.0);
    }
    // The keys ascend, so those outside of the bounds are at the ends.
    let before = |bound: &P::Key| {
        let mut key = Vec::new();
        P::write_key(bound, &mut key);
        records.partition_point(|((own, _), _)| P::order(own, &key) == Some(Less))
    };
    let (from, to) = (low.map_or(0, before), high.map_or(records.len(), before));
    records.truncate(to);
    records.drain(..from.min(to));
    Some((records, base_records))
}

impl<P: Pairs> Tree<P> {
    /// An empty tree whose leaves can be saved and evicted.
    ///
    /// # Errors
    /// [`Error::Option`] if an option is invalid.
    pub fn with_shelf(options: Options, shelf: Arc<dyn Shelf>) -> Result<Self> {
        let mut tree = Self::new(options)?;
        tree.shelf = Some(shelf);
        Ok(tree)
    }

    /// Reads the contents of an evicted leaf that keeps these changes. The caller has the turn of the page (I5), and no visit.
    pub(crate) fn read_image(&self, image: Image, kept: Kept<Vec<u8>>) -> Result<ImageBytes> {
        self.read_image_with(image, kept, None)
    }

    /// As [`read_image`](Self::read_image). One of the images may have been read already.
    pub(crate) fn read_image_with(
        &self,
        image: Image,
        kept: Kept<Vec<u8>>,
        mut known: Option<(Address, Vec<u8>)>,
    ) -> Result<ImageBytes> {
        let Some(shelf) = &self.shelf else {
            return Err(Error::Unreadable { why: "there are no images".into() });
        };
        let is_first = known.is_none();
        let mut read = |address| match known.take_if(|(known, _)| *known == address) {
            Some((_, image)) => Ok(image),
            None => shelf.read(address),
        };
        let Kept { unsaved, late } = kept;
        let newest = if unsaved.is_empty() {
            if let Some(base) = image.base.filter(|_| is_first) {
                shelf.prefetch(&mut [base]);
            }
            read(image.address)?
        } else {
            unsaved
        };
        ImageBytes::of(newest, late, read)?.ok_or_else(|| damaged(image.address))
    }

    /// Reads the image of an evicted leaf, and replaces the evicted leaf. The caller has no visit.
    #[cold]
    pub(crate) fn page_in(&self, pid: Pid, stub: Stub) -> Result<()> {
        // Threads that want the same page wait for the first one, and find it in memory then.
        let _turn = self.paging.turn(pid);
        let (image, kept) = match self.visit().stub(pid, stub) {
            Some((_, evicted)) => (evicted.image, evicted.kept.to_vecs()),
            None => return Ok(()),
        };
        let image = self.read_image(image, kept)?;
        let visit = self.visit();
        match visit.stub(pid, stub) {
            Some((head, evicted)) => visit.fill(pid, head, evicted, &image),
            None => Ok(()),
        }
    }

    /// The value of a key by the changes and the copies that an evicted leaf keeps; `Some(None)` if the key is absent. `None` if they do not
    /// have the key.
    #[cold]
    pub(crate) fn kept_value(&self, head: Head<'_, P>, key: &P::Key) -> Option<Option<P::ValueBuf>> {
        let Body::Evicted { leaf, .. } = head.body() else { return None };
        let Kept { unsaved, late } = &leaf.kept;
        let late = image::find_late::<P>(late, key).map(|(_, found)| found);
        let find_unsaved = || {
            let value = image::find_changed::<P>(unsaved, &image::key_bytes::<P>(key))?;
            value.map_or(Some(None), |value| P::read_value(value).map(Some))
        };
        late.or_else(find_unsaved).or_else(|| leaf.copies.find::<P>(key))
    }

    /// Number of times that leaves were read from their images.
    pub fn paged_in(&self) -> u64 {
        self.epochs.tally(Count::PagedIn)
    }

    /// Bytes of changes that evicted leaves keep.
    pub fn unsaved_bytes(&self) -> u64 {
        self.unsaved.load(Relaxed)
    }

    /// The image of a leaf, or the base of the changes that it keeps, by its page number. `Some(None)`: the page has none. `None`: there
    /// are no more pages.
    pub fn image(&self, page: u32) -> Option<Option<Image>> {
        if u64::from(page) >= self.table.used() {
            return None;
        }
        let visit = self.visit();
        let head = visit.load(Pid(page)).filter(|head| head.level() == 0);
        Some(head.and_then(|head| match head.body() {
            Body::Evicted { leaf, .. } => Some(leaf.image),
            Body::Leaf { saved, .. } => saved.lineage.as_ref()?.image(),
            _ => None,
        }))
    }

    /// The guide of a whole image, which is at this address.
    pub(crate) fn guide_of(&self, whole: &[u8], address: Address) -> Vec<u8> {
        let shelf = self.shelf.as_ref();
        shelf.map_or_else(Vec::new, |shelf| guide::of::<P>(whole, shelf.first_piece(address)))
    }

    /// The low key of a leaf, by its page number. `None` if the page is no leaf; `Some(None)` for the first leaf.
    pub fn low_key(&self, page: u32) -> Option<Option<P::KeyBuf>> {
        if u64::from(page) >= self.table.used() {
            return None;
        }
        let visit = self.visit();
        let head = visit.load(Pid(page)).filter(|head| head.level() == 0 && !head.is_removed())?;
        Some(Outline::of(head).low.map(|low| P::own_key(low.borrow())))
    }
}

pub(crate) fn damaged(address: Address) -> Error {
    Error::Unreadable { why: format!("the image at {:#x} is damaged", address.0) }
}

impl<'v, P: Pairs> Visit<'v, P> {
    /// Draws a number that no page gets. An eviction and a page-in keep the number of the page, and the checker knows by the drawn numbers
    /// that the tree has changed.
    pub(crate) fn tell_change(&self, head: Head<'_, P>) {
        self.draw(head.lsn());
    }

    /// The evicted leaf on this page, if it still is in this state.
    pub(crate) fn stub(&self, pid: Pid, stub: Stub) -> Option<(Head<'_, P>, &Evicted)> {
        let head = self.load(pid)?;
        match head.body() {
            Body::Evicted { leaf, .. } if head.stub(leaf) == stub => Some((head, leaf)),
            _ => None,
        }
    }

    /// An evicted leaf in place of the leaf with this head, in the same state.
    pub(crate) fn stub_of(&self, head: Head<'_, P>, leaf: NewEvicted<'_>) -> Made<P> {
        self.stub_with(head, head.bytes(), leaf)
    }

    /// As [`stub_of`](Self::stub_of), with these bytes in memory.
    pub(crate) fn stub_with(&self, head: Head<'_, P>, bytes: usize, leaf: NewEvicted<'_>) -> Made<P> {
        let Outline { low, high, right, .. } = Outline::of(head);
        let bounds = Bounds { low: low.cloned(), high: high.cloned(), right };
        self.tell_change(head);
        self.evicted_page(New { level: 0, lsn: head.lsn(), bytes }, bounds, leaf)
    }

    /// Replaces an evicted leaf: with a leaf in memory, or with this evicted leaf.
    pub(crate) fn replace_stub(&self, pid: Pid, head: Head<'_, P>, old: &Evicted, page: Made<P>) -> bool {
        let (kept, copies, is_uncounted) = match page.head().body() {
            Body::Evicted { leaf, .. } => (leaf.kept.bytes(), leaf.copies.bytes(), !leaf.is_counted),
            _ => (0, 0, false),
        };
        let (kept_before, was_uncounted) = (old.kept.bytes(), !old.is_counted);
        let counted = match page.head().body() {
            Body::Evicted { leaf, .. } => leaf.records,
            _ => page.head().base_records() as u32,
        };
        let more = i64::from(counted) - i64::from(old.records);
        let is_in_memory = page.head().evicted().is_none();
        let done = self.replace(pid, head, page, &[], Omission::Consolidation);
        if done {
            self.slot.count(Count::Records, more.cast_unsigned());
            self.tree.unsaved.fetch_add((kept as u64).wrapping_sub(kept_before as u64), Relaxed);
            if kept > 0 || copies > 0 || is_in_memory {
                self.tree.candidates.set(pid.0);
            }
            let more = u64::from(is_uncounted).wrapping_sub(u64::from(was_uncounted));
            if more != 0 {
                self.tree.uncounted.fetch_add(more, Relaxed);
            }
        }
        done
    }

    /// The value of a key, by its bytes, from the image of an evicted leaf. `None`: the key is absent.
    pub(crate) fn find_in<'i>(
        &self,
        head: Head<'_, P>,
        evicted: &Evicted,
        image: &'i ImageBytes,
        key: &[u8],
    ) -> Result<Option<&'i [u8]>> {
        // Without a list of the records, if the image has exactly those of the leaf.
        if let Some(whole) = image.only().filter(|_| evicted.is_counted) {
            let outline = Outline::of(head);
            let bytes = |bound: &P::Fence| image::key_bytes::<P>(bound.borrow());
            let (low, high) = (outline.low.map(bytes), outline.high.map(bytes));
            let found = image::look_up::<P>(whole, key, (low.as_deref(), high.as_deref()));
            if let Some((found, _)) = found.filter(|(_, records)| *records == evicted.records) {
                return Ok(found.map(|(_, value)| value));
            }
        }
        let (records, _) = self.contents_of(head, evicted, image)?;
        let at = records.binary_search_by(|((other, _), _)| P::order(other, key).unwrap_or(Less));
        Ok(at.ok().map(|at| records[at].0.1))
    }

    /// The records of an evicted leaf, and the number of records of its base, from its image.
    pub(crate) fn contents_of<'i>(
        &self,
        head: Head<'_, P>,
        evicted: &Evicted,
        image: &'i ImageBytes,
    ) -> Result<(Vec<(Raw<'i>, Origin)>, usize)> {
        let outline = Outline::of(head);
        let (low, high) = (outline.low.map(Borrow::borrow), outline.high.map(Borrow::borrow));
        let contents = records_of::<P>(image, low, high);
        // A wrong number of records says that it is the image of another leaf.
        let is_right = |records: usize| !evicted.is_counted || evicted.records as usize == records;
        contents.filter(|(records, _)| is_right(records.len())).ok_or_else(|| damaged(evicted.image.address))
    }

    /// Replaces an evicted leaf with its contents.
    pub(crate) fn fill(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        evicted: &Evicted,
        image: &ImageBytes,
    ) -> Result<()> {
        let outline = Outline::of(head);
        let (pairs, count) = self.contents_of(head, evicted, image)?;
        // The page gets copies of the small records (N8). The others need blocks of their own.
        let copies = self.tree.options.weighs_records;
        let (mut copied, mut bytes) = (0, 0);
        let mut made: Vec<Option<P::Fresh>> = Vec::with_capacity(pairs.len());
        for &((key, value), _) in &pairs {
            made.push(match P::sizes_of_copy((key, value)).filter(|_| copies) {
                Some((copy, weight)) => {
                    (copied, bytes) = (copied + copy, bytes + RECORD_BYTES + weight);
                    None
                }
                None => P::with_bytes(key, value, |key, value| {
                    let space = P::fresh_space(key, Some(value));
                    let fresh = P::fresh(key, Some(value), (space > 0).then(|| self.slot.take(space)));
                    bytes += self.tree.weight(P::record(&fresh));
                    fresh
                }),
            });
        }
        let read = pairs.iter().zip(&made).map(|((raw, _), fresh)| match fresh {
            Some(fresh) => Read::Made(P::record(fresh)),
            None => Read::Copied(*raw),
        });
        let read: Vec<Read<'_, P>> = read.collect();
        let bounds = Bounds { low: outline.low.cloned(), high: outline.high.cloned(), right: outline.right };
        self.tell_change(head);
        let origins = pairs.iter().map(|(_, origin)| *origin).collect();
        let guide = match &*evicted.guide {
            [] => self.tree.guide_of(image.whole(), evicted.image.whole()),
            known => known.to_vec(),
        };
        let is_current = evicted.kept.bytes() == 0;
        let lineage = Lineage::of(evicted.image, guide.into(), is_current, origins, count);
        // The contents are the same, so the new page keeps the number.
        let new = New { level: 0, lsn: head.lsn(), bytes };
        let page = self.read_page(new, (&read, copied), bounds, Saved::new(Some(lineage), 0));
        drop(read);
        let own: Vec<P::Fresh> = made.into_iter().flatten().collect();
        let memory: usize = own.iter().map(|fresh| P::record_memory(P::record(fresh))).sum();
        if self.replace_stub(pid, head, evicted, page) {
            self.slot.count(Count::MadeBytes, memory as u64);
            self.count(Count::PagedIn);
        } else {
            own.into_iter().for_each(|fresh| self.drop_fresh(fresh));
        }
        Ok(())
    }
}
