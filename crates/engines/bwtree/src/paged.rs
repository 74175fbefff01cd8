//! Leaves outside of memory: their images, eviction, page-in, and the restore of a tree from images.
//!
//! A tree with a [`Shelf`] can save a leaf as an *image*, a run of bytes, and evict it: a node (`Body::Evicted`) with the leaf's bounds
//! and the image's address replaces the leaf. The inner pages stay in memory. So a descent, a split of an inner page and the walk along the
//! siblings need no image. An operation that needs the records of an evicted leaf pages it in.
//!
//! A leaf with few changes since its base (see [`image`]) can be evicted without a save: the evicted leaf keeps the changes,
//! as the bytes of an image that is not saved yet. So a save has the changes of many rounds in memory.
//!
//! Invariants:
//! * I1: a leaf is *clean* if it is a base page without changes in the slab, and its lineage says that the image is current. Only the
//!   exchange that installs a base page makes a leaf clean: a save installs one with the same records. Any change makes it dirty.
//! * I2: the contents of an evicted leaf are the records of its image, or of the base and the changes that it keeps, that are within the
//!   leaf's bounds. An image may have more, because a restored leaf may have narrower bounds than the leaf that was saved.
//! * I3: no delta is in front of an evicted leaf. A structure change that needs to put one there pages the leaf in first.
//! * I4: one thread at a time saves, moves images and evicts (the caller's duty).
//! * I5: an evicted leaf changes only while a thread has the turn of its page. So a thread with the turn reads the image that belongs to
//!   the state which it replaces.
//!
//! Commit points: the exchanges that evict a leaf and page it in, and that install a saved leaf. Paper: Bw-tree §V.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::image::{self, Address, Difference, Image, ImageBytes, ImageKind, Lineage, Origin};
use crate::node::{Body, Head, Made};
use crate::omission::{Omission, is_omitted};
use crate::options::Options;
use crate::page::{Bounds, New, Outline, Records, Term, term_bytes};
use crate::pairs::{Changes, Pairs, Place};
use crate::stats::Count;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::table::{Pid, ROOT};
use crate::tree::{Tree, Visit};

/// The place where images are.
pub trait Shelf: Debug + Send + Sync {
    /// Reads an image.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if it cannot be read or is damaged.
    fn read(&self, address: Address) -> Result<Vec<u8>>;

    /// True if the image at this address is kept, and can become the base of changes. Called by the thread that saves (I4).
    fn is_kept(&self, address: Address) -> bool;
}

/// The image of a leaf in memory, and how often the leaf was used.
#[derive(Debug)]
pub(crate) struct Saved {
    /// `None`: there is no image.
    lineage: Option<Box<Lineage>>,
    /// Number of uses since the last round of the eviction, at most [`USED_MAX`].
    used: AtomicU64,
}

/// An evicted leaf that was found: the number of its state, and the address of its image. Equal for the same state only.
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
    /// Number of its records.
    pub(crate) records: u32,
    /// Changes that are not saved, as an image.
    pub(crate) unsaved: Option<Box<[u8]>>,
}

impl Evicted {
    fn unsaved(&self) -> Option<Vec<u8>> {
        self.unsaved.as_ref().map(|changes| changes.to_vec())
    }

    /// Bytes of memory outside of the node.
    pub(crate) fn memory(&self) -> usize {
        self.unsaved.as_ref().map_or(0, |changes| changes.len())
    }
}

/// Turns to page in: one thread at a time for each page.
#[derive(Debug)]
pub(crate) struct Paging([Mutex<()>; TURNS]);

/// Number of pages that threads can page in at the same time.
const TURNS: usize = if crate::sync::IS_SMALL { 1 } else { 64 };

impl Paging {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }

    fn turn(&self, pid: Pid) -> MutexGuard<'_, ()> {
        self.0[pid.0 as usize % TURNS].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A leaf that was used more often survives no more rounds of the eviction than this number.
const USED_MAX: u64 = 2;

impl Default for Saved {
    fn default() -> Self {
        Self::new(None, 0)
    }
}

impl Saved {
    fn new(lineage: Option<Box<Lineage>>, used: u64) -> Self {
        Self { lineage, used: AtomicU64::new(used) }
    }

    /// That of the leaf after a consolidation with these changes. `records` is the number of its records before.
    pub(crate) fn after<'g, P: Pairs>(
        &self,
        records: usize,
        changes: impl FnOnce() -> Changes<'g, P>,
    ) -> Self {
        let lineage = self.lineage.as_ref().and_then(|lineage| lineage.after(records, changes()));
        Self::new(lineage, self.used.load(Ordering::Relaxed))
    }

    /// The image of a leaf with this head, if it has all contents (I1).
    fn current<P: Pairs>(&self, head: Head<'_, P>) -> Option<Image> {
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

    /// Takes one use away. False if there was none.
    fn cool(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        self.used.store(used.saturating_sub(1), Ordering::Relaxed);
        used > 0
    }
}

/// The image of a leaf, or of the upper part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedLeaf<K> {
    /// The image.
    pub image: Image,
    /// Number of records from the requested key on.
    pub records: u32,
    /// Bytes of the leaf in memory.
    pub bytes: u64,
    /// The key at which the next leaf begins. `None`: it is the last leaf.
    pub next: Option<K>,
}

/// A leaf of a tree that is restored: the lowest key that may be in it, and its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredLeaf<K> {
    /// The low key. The first leaf has `None`.
    pub low: Option<K>,
    /// The image.
    pub image: Image,
    /// Number of records of the image from the low key on and below the next leaf's low key.
    pub records: u32,
    /// Bytes of the leaf in memory.
    pub bytes: u64,
}

/// A record of an image: key, value, origin.
type Owned<P> = (<P as Pairs>::KeyBuf, <P as Pairs>::ValueBuf, Origin);

/// Reads the records of an image that are within the bounds of a leaf (I2), and the number of records of its base. `None` if the image is
/// damaged.
fn records_of<P: Pairs>(
    image: &ImageBytes,
    low: Option<&P::Fence>,
    high: Option<&P::Fence>,
) -> Option<(Vec<Owned<P>>, usize)> {
    let (raw, count) = image.records()?;
    let mut records: Vec<Owned<P>> = Vec::with_capacity(raw.len());
    let mut last: Option<P::KeyBuf> = None;
    for ((key, value), origin) in raw {
        let key = P::read_key(key)?;
        if last.as_ref().is_some_and(|last| *last >= key) {
            return None;
        }
        last = Some(key.clone());
        let is_inside = low.is_none_or(|low| low.borrow() <= key.borrow())
            && high.is_none_or(|high| key.borrow() < high.borrow());
        if is_inside {
            records.push((key, P::read_value(value)?, origin));
        }
    }
    Some((records, count))
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

    /// A tree of these leaves, which are in key order. None of them is read. O(leaves).
    ///
    /// # Errors
    /// [`Error::Option`] if an option is invalid; [`Error::Unreadable`] if the leaves are not in order, or are too many.
    pub fn restore(
        options: Options,
        shelf: Arc<dyn Shelf>,
        leaves: Vec<RestoredLeaf<P::KeyBuf>>,
    ) -> Result<Self> {
        let tree = Self::with_shelf(options, shelf)?;
        let is_in_order = leaves.first().is_none_or(|first| first.low.is_none())
            && leaves.windows(2).all(|pair| pair[1].low.is_some() && pair[0].low < pair[1].low);
        if !is_in_order {
            return Err(Error::Unreadable { why: "the leaves of the checkpoint are not in order".into() });
        }
        let visit = tree.visit();
        let restored = visit.restore(&leaves);
        drop(visit);
        restored.ok_or_else(|| Error::Unreadable { why: "the checkpoint has too many leaves".into() })?;
        Ok(tree)
    }

    /// Reads the image of an evicted leaf, or the base of the changes that it keeps. The caller has the turn of the page (I5), and no visit.
    fn read_image(&self, address: Address, unsaved: Option<Vec<u8>>) -> Result<ImageBytes> {
        let Some(shelf) = &self.shelf else {
            return Err(Error::Unreadable { why: "there are no images".into() });
        };
        let newest = unsaved.map_or_else(|| shelf.read(address), Ok)?;
        ImageBytes::of(newest, |base| shelf.read(base))?.ok_or_else(|| damaged(address))
    }

    /// Reads the image of an evicted leaf, and replaces the evicted leaf. The caller has no visit.
    #[cold]
    pub(crate) fn page_in(&self, pid: Pid, stub: Stub) -> Result<()> {
        // Threads that want the same page wait for the first one, and find it in memory then.
        let _turn = self.paging.turn(pid);
        let unsaved = match self.visit().stub(pid, stub) {
            Some((_, evicted)) => evicted.unsaved(),
            None => return Ok(()),
        };
        let image = self.read_image(stub.address, unsaved)?;
        let visit = self.visit();
        match visit.stub(pid, stub) {
            Some((head, evicted)) => visit.fill(pid, head, evicted, &image),
            None => Ok(()),
        }
    }

    /// Saves the leaf that contains `from` (`None`: the first leaf), unless its image is current. `keep` stores an image and returns its
    /// address. A leaf that changes meanwhile is saved in a state that it had during the call; then it stays dirty.
    ///
    /// One thread at a time may call this, [`move_image`](Self::move_image) and [`evict`](Self::evict) (I4).
    ///
    /// # Errors
    /// Those of `keep`, and of the shelf.
    pub fn save<E: From<Error>>(
        &self,
        from: Option<&P::Key>,
        mut keep: impl FnMut(&[u8], ImageKind) -> std::result::Result<Address, E>,
    ) -> std::result::Result<SavedLeaf<P::KeyBuf>, E> {
        let place = || from.map_or(Place::First, Place::At);
        loop {
            let visit = self.visit();
            let (pid, mut head) = visit.leaf(place());
            if !head.is_base() {
                visit.maintain(pid);
                head = visit.leaf(place()).1;
            }
            let outline = Outline::of(head);
            let is_whole = match (from, outline.low) {
                (Some(from), Some(low)) => low.borrow() == from,
                (from, low) => from.is_none() && low.is_none(),
            };
            let bytes = head.bytes() as u64;
            let next = outline.high.map(|high| P::own_key(high.borrow()));
            let saved = |image, records| SavedLeaf { image, records, bytes, next };
            if let (Some(stub), Body::Evicted { leaf, .. }) = (head.evicted(), head.body()) {
                if leaf.unsaved.is_none() && is_whole {
                    return Ok(saved(leaf.image, leaf.records));
                }
                let (high, image) = (outline.high.cloned(), leaf.image);
                drop(visit);
                let _turn = self.paging.turn(pid);
                let unsaved = match self.visit().stub(pid, stub) {
                    Some((_, evicted)) => evicted.unsaved(),
                    None => continue,
                };
                if let Some(changes) = unsaved {
                    let base = Some(image.whole());
                    let image = Image { address: keep(&changes, ImageKind::Changes)?, base };
                    let visit = self.visit();
                    if let Some((head, evicted)) = visit.stub(pid, stub) {
                        visit.replace_stub(pid, head, evicted, visit.stub_with(head, evicted.records, image));
                    }
                    continue;
                }
                let bytes = self.read_image(image.address, None)?;
                let (records, _) =
                    records_of::<P>(&bytes, None, high.as_ref()).ok_or_else(|| damaged(image.address))?;
                let inside = records.iter().filter(|(key, ..)| from.is_none_or(|from| key.borrow() >= from));
                return Ok(saved(image, inside.count() as u32));
            }
            let Body::Leaf { saved: known, .. } = head.body() else { continue };
            let Records { live, .. } = Records::of(head);
            let inside = live.iter().filter(|own| from.is_none_or(|from| P::record_key(**own) >= from));
            let records = inside.count() as u32;
            if let Some(image) = known.current(head) {
                return Ok(saved(image, records));
            }
            let difference = known.lineage.as_ref().and_then(|lineage| self.difference(lineage, head, &live));
            let (state, whole) = (head.lsn(), difference.is_none().then(|| image::whole::<P>(&live)));
            // Without a visit, so that retired memory can be freed while the image is written.
            drop(live);
            drop(visit);
            let (image, lineage) = match (difference, whole) {
                (Some(difference), _) => {
                    let address = keep(&difference.image, ImageKind::Changes)?;
                    (Image { address, base: Some(difference.base) }, Lineage::changed(address, difference))
                }
                (None, whole) => {
                    let address = keep(&whole.unwrap_or_default(), ImageKind::Whole)?;
                    (Image { address, base: None }, Lineage::whole(address))
                }
            };
            self.visit().install_saved(place(), state, lineage);
            return Ok(saved(image, records));
        }
    }

    /// The difference of a leaf from its base, if it is to be saved or kept.
    fn difference(&self, lineage: &Lineage, head: Head<'_, P>, live: &[P::Record<'_>]) -> Option<Difference> {
        lineage
            .difference::<P>(head, live, |base| self.shelf.as_ref().is_some_and(|shelf| shelf.is_kept(base)))
    }

    /// Moves the image of the leaf that contains `from` (`None`: the first leaf), if it or its base satisfies `is_unwanted`. The contents of
    /// an evicted leaf become a whole image: `keep` stores it and returns its address. A leaf in memory only forgets its image; the next
    /// [`save`](Self::save) writes a whole one. True if there is a leaf without the unwanted image now. Called as `save` (I4).
    ///
    /// # Errors
    /// Those of `keep`, and of the shelf.
    pub fn move_image<E: From<Error>>(
        &self,
        from: Option<&P::Key>,
        is_unwanted: impl Fn(Address) -> bool,
        keep: impl FnOnce(&[u8], ImageKind) -> std::result::Result<Address, E>,
    ) -> std::result::Result<bool, E> {
        let (pid, stub) = {
            let visit = self.visit();
            let (pid, head) = visit.leaf(from.map_or(Place::First, Place::At));
            let is_unwanted =
                |image: Image| is_unwanted(image.address) || image.base.is_some_and(&is_unwanted);
            match head.body() {
                Body::Evicted { leaf, .. } if is_unwanted(leaf.image) => (pid, head.stub(leaf)),
                Body::Leaf { saved: Saved { lineage: Some(lineage), .. }, .. } => {
                    let is_there = lineage.image().is_some_and(is_unwanted);
                    if is_there {
                        lineage.forget();
                    }
                    return Ok(is_there);
                }
                _ => return Ok(false),
            }
        };
        let _turn = self.paging.turn(pid);
        let unsaved = match self.visit().stub(pid, stub) {
            Some((_, evicted)) => evicted.unsaved(),
            None => return Ok(false),
        };
        let bytes = self.read_image(stub.address, unsaved)?;
        let moved = match bytes.only() {
            Some(whole) => keep(whole, ImageKind::Whole)?,
            None => {
                let (records, _) = bytes.records().ok_or_else(|| damaged(stub.address))?;
                keep(&image::whole_of(&records), ImageKind::Whole)?
            }
        };
        let visit = self.visit();
        let Some((head, evicted)) = visit.stub(pid, stub) else { return Ok(false) };
        let image = Image { address: moved, base: None };
        Ok(visit.replace_stub(pid, head, evicted, visit.stub_with(head, evicted.records, image)))
    }

    /// The value of a key by the changes that an evicted leaf keeps. `None` if they do not have the key.
    #[cold]
    pub(crate) fn unsaved_value(&self, head: Head<'_, P>, key: &P::Key) -> Option<P::ValueBuf> {
        let Body::Evicted { leaf, .. } = head.body() else { return None };
        image::find::<P>(leaf.unsaved.as_ref()?, key)
    }

    /// Leaves that were read from their images.
    pub fn paged_in(&self) -> u64 {
        self.epochs.tally(Count::PagedIn)
    }

    /// Bytes of changes that evicted leaves keep.
    pub fn unsaved_bytes(&self) -> u64 {
        self.unsaved.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The state of the page with this number, for the eviction: see [`Residence`].
    pub fn residence(&self, page: u32) -> Residence {
        let visit = self.visit();
        if u64::from(page) >= self.table.used() {
            return Residence::End;
        }
        match visit.load(Pid(page)) {
            Some(head) if Pid(page) != ROOT && head.level() == 0 => match head.body() {
                Body::Leaf { saved, .. } if saved.cool() => Residence::Used,
                Body::Leaf { saved, .. } if saved.current(head).is_some() => Residence::Clean,
                Body::Leaf { .. } => Residence::Dirty,
                Body::Evicted { leaf, .. } if leaf.unsaved.is_some() => Residence::Unsaved,
                _ => Residence::Elsewhere,
            },
            _ => Residence::Elsewhere,
        }
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

    /// Evicts the leaf with this page number, if it is clean (I1), or if it `may_keep` its changes and these are few. Returns the bytes of
    /// memory that become free; 0 if it was not evicted. `may_evict` decides by the address of an image that will be needed. Called as
    /// [`save`](Self::save) (I4).
    pub fn evict(&self, page: u32, may_keep: bool, may_evict: impl Fn(Address) -> bool) -> u64 {
        if u64::from(page) >= self.table.used() {
            return 0;
        }
        let visit = self.visit();
        let pid = Pid(page);
        let Some(head) = visit.load(pid).filter(|head| pid != ROOT && head.level() == 0) else { return 0 };
        let Body::Leaf { saved, .. } = head.body() else { return 0 };
        let Records { live, mut dead } = Records::of(head);
        let current = match &saved.lineage {
            Some(lineage) if is_omitted(Omission::Clean) => lineage.image(),
            _ => saved.current(head),
        };
        let (image, unsaved) = match (current, &saved.lineage) {
            (Some(image), _) => (image, None),
            (None, Some(lineage)) if may_keep => {
                let Some(difference) = self.difference(lineage, head, &live) else { return 0 };
                (Image { address: difference.base, base: None }, Some(difference.image.into_boxed_slice()))
            }
            _ => return 0,
        };
        if !may_evict(image.address) || image.base.is_some_and(|base| !may_evict(base)) {
            return 0;
        }
        let kept = unsaved.as_ref().map_or(0, |changes| changes.len()) as u64;
        let leaf = Evicted { image, records: live.len() as u32, unsaved };
        // The evicted leaf has no records in memory, so all of them are dead (N6).
        dead.extend(live);
        let freed = (head.chain_memory() as u64).saturating_sub(kept);
        if !visit.replace(pid, head, visit.stub_of(head, leaf), &dead, Omission::Consolidation) {
            return 0;
        }
        self.unsaved.fetch_add(kept, std::sync::atomic::Ordering::Relaxed);
        freed
    }
}

/// The state of a page, for the eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// There are no more pages.
    End,
    /// It is no leaf in memory, or it is being merged.
    Elsewhere,
    /// It was used since the last round.
    Used,
    /// It can be evicted.
    Clean,
    /// It has to be saved first, or to keep its changes.
    Dirty,
    /// It is evicted, and keeps changes that are not saved.
    Unsaved,
}

fn damaged(address: Address) -> Error {
    Error::Unreadable { why: format!("the image at {:#x} is damaged", address.0) }
}

impl<'v, P: Pairs> Visit<'v, P> {
    /// Draws a number that no page gets. An eviction and a page-in keep the number of the page, and the checker knows by the drawn numbers
    /// that the tree has changed.
    fn tell_change(&self, head: Head<'_, P>) {
        self.draw(head.lsn());
    }

    /// The evicted leaf on this page, if it still is in this state.
    fn stub(&self, pid: Pid, stub: Stub) -> Option<(Head<'_, P>, &Evicted)> {
        let head = self.load(pid)?;
        match head.body() {
            Body::Evicted { leaf, .. } if head.stub(leaf) == stub => Some((head, leaf)),
            _ => None,
        }
    }

    /// An evicted leaf in place of the leaf with this head, in the same state.
    fn stub_of(&self, head: Head<'_, P>, leaf: Evicted) -> Made<P> {
        let Outline { low, high, right, .. } = Outline::of(head);
        let bounds = Bounds { low: low.cloned(), high: high.cloned(), right };
        self.tell_change(head);
        self.evicted_page(New { level: 0, lsn: head.lsn(), bytes: head.bytes() }, bounds, leaf)
    }

    /// The evicted leaf with another image of the same contents.
    fn stub_with(&self, head: Head<'_, P>, records: u32, image: Image) -> Made<P> {
        self.stub_of(head, Evicted { image, records, unsaved: None })
    }

    /// Replaces an evicted leaf.
    fn replace_stub(&self, pid: Pid, head: Head<'_, P>, old: &Evicted, page: Made<P>) -> bool {
        let kept = old.unsaved.as_ref().map_or(0, |changes| changes.len()) as u64;
        let done = self.replace(pid, head, page, &[], Omission::Consolidation);
        if done {
            self.tree.unsaved.fetch_sub(kept, std::sync::atomic::Ordering::Relaxed);
        }
        done
    }

    /// Notes the image of a leaf, if the leaf still has the state that was saved (I1).
    fn install_saved(&self, place: Place<'_, P>, state: u64, lineage: Box<Lineage>) {
        let (pid, head) = self.leaf(place);
        let Body::Leaf { saved, .. } = head.body() else { return };
        if head.lsn() != state {
            return;
        }
        let Records { live, dead } = Records::of(head);
        let saved = Saved::new(Some(lineage), saved.used.load(Ordering::Relaxed));
        let Outline { low, high, right, .. } = Outline::of(head);
        let bounds = Bounds { low: low.cloned(), high: high.cloned(), right };
        self.tell_change(head);
        let new = New { level: 0, lsn: state, bytes: head.bytes() };
        let page = self.leaf_page(new, &live, bounds, saved);
        self.replace(pid, head, page, &dead, Omission::Consolidation);
    }

    /// Replaces an evicted leaf with its contents.
    fn fill(&self, pid: Pid, head: Head<'_, P>, evicted: &Evicted, image: &ImageBytes) -> Result<()> {
        let outline = Outline::of(head);
        let damaged = || damaged(evicted.image.address);
        let (pairs, count) = records_of::<P>(image, outline.low, outline.high).ok_or_else(damaged)?;
        if evicted.records as usize != pairs.len() {
            return Err(damaged());
        }
        let fresh: Vec<P::Fresh> = pairs
            .iter()
            .map(|(key, value, _)| {
                let (key, value) = (key.borrow(), Some(value.borrow()));
                let bytes = P::fresh_space(key, value);
                P::fresh(key, value, (bytes > 0).then(|| self.slot.take(bytes)))
            })
            .collect();
        let records: Vec<P::Record<'_>> = fresh.iter().map(P::record).collect();
        let bytes = records.iter().map(|record| self.tree.weight(*record)).sum();
        let memory: usize = records.iter().map(|record| P::record_memory(*record)).sum();
        let bounds = Bounds { low: outline.low.cloned(), high: outline.high.cloned(), right: outline.right };
        self.tell_change(head);
        let origins = pairs.iter().map(|(.., origin)| *origin).collect();
        let lineage = Lineage::of(evicted.image, evicted.unsaved.is_none(), origins, count);
        // The contents are the same, so the new page keeps the number.
        let new = New { level: 0, lsn: head.lsn(), bytes };
        let page = self.leaf_page(new, &records, bounds, Saved::new(Some(lineage), 0));
        drop(records);
        if self.replace_stub(pid, head, evicted, page) {
            self.slot.count(Count::MadeBytes, memory as u64);
            self.count(Count::PagedIn);
        } else {
            fresh.into_iter().for_each(|fresh| self.drop_fresh(fresh));
        }
        Ok(())
    }

    /// Pages a leaf in while a structure change needs it. False if its image cannot be read; then the structure change must stop (the
    /// operation that needs the page reports the error).
    #[cold]
    pub(crate) fn make_resident(&self, pid: Pid, head: Head<'_, P>) -> bool {
        let Some(stub) = head.evicted() else { return true };
        self.tree.page_in(pid, stub).inspect_err(|error| self.fail(error.clone())).is_ok()
    }

    /// Builds the pages of [`Tree::restore`]. `None` if there are not enough page ids.
    fn restore(&self, leaves: &[RestoredLeaf<P::KeyBuf>]) -> Option<()> {
        let root = self.load(ROOT)?;
        let fence = |key: &Option<P::KeyBuf>| key.as_ref().map(|key| P::fence(key.borrow()));
        let stub = |i: usize, right: Option<Pid>| {
            let leaf = &leaves[i];
            let high = leaves.get(i + 1).and_then(|next| fence(&next.low));
            let new = New { level: 0, lsn: self.draw(root.lsn()), bytes: leaf.bytes as usize };
            let bounds = Bounds { low: fence(&leaf.low), high, right };
            self.evicted_page(
                new,
                bounds,
                Evicted { image: leaf.image, records: leaf.records, unsaved: None },
            )
        };
        let records: u64 = leaves.iter().map(|leaf| u64::from(leaf.records)).sum();
        self.slot.count(Count::Records, records);
        if leaves.len() < 2 {
            return match leaves.len() {
                0 => Some(()),
                _ => self.replace(ROOT, root, stub(0, None), &[], Omission::Structure).then_some(()),
            };
        }
        // Page ids of a new tree ascend by one, so a right sibling's is known before it exists.
        let mut terms: Vec<(Option<P::Fence>, Pid)> = Vec::with_capacity(leaves.len());
        for (i, leaf) in leaves.iter().enumerate() {
            let own = self.tree.table.used() as u32;
            let right = (i + 1 < leaves.len()).then_some(Pid(own + 1));
            let pid = self.allocate(stub(i, right))?;
            debug_assert_eq!(pid, Pid(own));
            terms.push((fence(&leaf.low), pid));
        }
        let most = self.tree.options.inner_split_bytes / 4 * 3;
        let mut level = 1;
        loop {
            let borrowed: Vec<Term<'_, P>> =
                terms.iter().map(|(key, pid)| (key.as_ref().map(Borrow::borrow), *pid)).collect();
            // The first term of a page has no key there, and takes at most as many bytes as with it.
            let sizes: Vec<usize> = borrowed.iter().map(term_bytes::<P>).collect();
            let mut ends = Vec::new();
            let (mut at, mut sum) = (0, 0);
            for (i, size) in sizes.iter().enumerate() {
                if i > at + 1 && sum + size > most {
                    ends.push(i);
                    (at, sum) = (i, 0);
                }
                sum += size;
            }
            ends.push(sizes.len());
            let is_root = ends.len() == 1;
            let mut above: Vec<(Option<P::Fence>, Pid)> = Vec::with_capacity(ends.len());
            let mut from = 0;
            for end in ends {
                let own = Pid(self.tree.table.used() as u32);
                let low = if is_root { None } else { terms[from].0.clone() };
                let high = terms.get(end).and_then(|(key, _)| key.clone());
                let right = high.is_some().then_some(Pid(own.0 + 1));
                let mut part = borrowed[from..end].to_vec();
                part[0].0 = None;
                let bytes = part.iter().map(term_bytes::<P>).sum();
                let new = New { level, lsn: self.draw(root.lsn()), bytes };
                let page = self.inner_page(new, &part, Bounds { low: low.clone(), high, right });
                if is_root {
                    return self.replace(ROOT, root, page, &[], Omission::Structure).then_some(());
                }
                above.push((low, self.allocate(page)?));
                from = end;
            }
            terms = above;
            level += 1;
        }
    }
}
