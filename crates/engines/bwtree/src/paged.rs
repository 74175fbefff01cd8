//! Leaves outside of memory: their images, eviction, page-in, and the restore of a tree from images.
//!
//! A tree with a [`Shelf`] can save a leaf as an *image*, a run of bytes, and evict it: a node (`Body::Evicted`) with the leaf's bounds
//! and the image's address replaces the leaf. The inner pages stay in memory. So a descent, a split of an inner page and the walk along the
//! siblings need no image. An operation that needs the records of an evicted leaf pages it in.
//!
//! ```text
//! image   number of records: u32 | for each record, in key order: key bytes: u32 | value bytes: u32 | key … | value …
//! ```
//!
//! Invariants:
//! * I1: a leaf is *clean* if its state has the number that `Saved` notes. Then the image at the noted address has exactly the leaf's
//!   records. Only a clean leaf without deltas is evicted, by one exchange of the state that was found clean.
//! * I2: the contents of an evicted leaf are the records of its image that are within the leaf's bounds. An image may have more, because a
//!   restored leaf may have narrower bounds than the leaf that was saved.
//! * I3: no delta is in front of an evicted leaf. A structure change that needs to put one there pages the leaf in first.
//! * I4: one thread at a time saves and evicts (the caller's duty), so only one thread writes the fields of `Saved` together.
//!
//! Commit points: the exchanges that evict a leaf and page it in. Paper: Bw-tree §V.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::node::{Body, Head};
use crate::omission::{Omission, is_omitted};
use crate::options::Options;
use crate::page::{Bounds, New, Outline, Records, Term, term_bytes};
use crate::pairs::{Pairs, Place};
use crate::stats::Count;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::table::{Pid, ROOT};
use crate::tree::{Tree, Visit};

/// The address of an image. The shelf gives it a meaning; the tree only keeps it. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub std::num::NonZeroU64);

/// The place where images are.
pub trait Shelf: Debug + Send + Sync {
    /// Reads an image.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if it cannot be read or is damaged.
    fn read(&self, address: Address) -> Result<Vec<u8>>;
}

/// Where the image of a leaf is, and whether the leaf was used (I1).
#[derive(Debug)]
pub(crate) struct Saved {
    /// 0: there is no image.
    address: AtomicU64,
    /// The number of the state that was saved.
    state: AtomicU64,
    /// Number of records of that state.
    records: AtomicU64,
    /// Number of uses since the last round of the eviction, at most [`USED_MAX`].
    used: AtomicU64,
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
        let zero = || AtomicU64::new(0);
        Self { address: zero(), state: zero(), records: zero(), used: zero() }
    }
}

impl Saved {
    /// The image, if it is that of the state with this number.
    fn image_of(&self, state: u64) -> Option<Address> {
        let address = std::num::NonZeroU64::new(self.address.load(Ordering::Acquire))?;
        (self.state.load(Ordering::Acquire) == state).then_some(Address(address))
    }

    fn note(&self, address: Address, state: u64, records: u32) {
        self.address.store(0, Ordering::Release);
        self.state.store(state, Ordering::Release);
        self.records.store(records.into(), Ordering::Release);
        self.address.store(address.0.get(), Ordering::Release);
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
    /// Where the image is.
    pub address: Address,
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
    pub address: Address,
    /// Number of records of the image from the low key on and below the next leaf's low key.
    pub records: u32,
    /// Bytes of the leaf in memory.
    pub bytes: u64,
}

/// Appends the records of a leaf to an image.
fn encode<P: Pairs>(records: &[P::Record<'_>], to: &mut Vec<u8>) {
    to.extend((records.len() as u32).to_le_bytes());
    for record in records {
        let header = to.len();
        to.extend([0; 8]);
        P::write_key(P::record_key(*record), to);
        let key_bytes = to.len() - header - 8;
        if let Some(value) = P::record_value(*record) {
            P::write_value(value, to);
        }
        let value_bytes = to.len() - header - 8 - key_bytes;
        to[header..header + 4].copy_from_slice(&(key_bytes as u32).to_le_bytes());
        to[header + 4..header + 8].copy_from_slice(&(value_bytes as u32).to_le_bytes());
    }
}

/// A key and a value, as an image has them.
type Raw<'i> = (&'i [u8], &'i [u8]);

/// The records of an image, in key order. `None` if the image is not one.
fn decode(image: &[u8]) -> Option<Vec<Raw<'_>>> {
    fn take<'i>(from: &mut &'i [u8], bytes: usize) -> Option<&'i [u8]> {
        let (taken, rest) = from.split_at_checked(bytes)?;
        *from = rest;
        Some(taken)
    }
    fn number(from: &mut &[u8]) -> Option<usize> {
        Some(u32::from_le_bytes(take(from, 4)?.try_into().ok()?) as usize)
    }
    let mut rest = image;
    let count = number(&mut rest)?;
    // A record takes at least its header.
    let mut records = Vec::with_capacity(count.min(rest.len() / 8));
    for _ in 0..count {
        let (key_bytes, value_bytes) = (number(&mut rest)?, number(&mut rest)?);
        records.push((take(&mut rest, key_bytes)?, take(&mut rest, value_bytes)?));
    }
    Some(records)
}

/// The pairs of an image that are within the bounds of a leaf.
type Owned<P> = Vec<(<P as Pairs>::KeyBuf, <P as Pairs>::ValueBuf)>;

/// Reads the pairs of an image that are within these bounds (I2). `None` if the image is damaged.
fn pairs_of<P: Pairs>(image: &[u8], low: Option<&P::Fence>, high: Option<&P::Fence>) -> Option<Owned<P>> {
    let mut pairs: Owned<P> = Vec::new();
    let mut last: Option<P::KeyBuf> = None;
    for (key, value) in decode(image)? {
        let key = P::read_key(key)?;
        if last.as_ref().is_some_and(|last| *last >= key) {
            return None;
        }
        last = Some(key.clone());
        let is_inside = low.is_none_or(|low| low.borrow() <= key.borrow())
            && high.is_none_or(|high| key.borrow() < high.borrow());
        if is_inside {
            pairs.push((key, P::read_value(value)?));
        }
    }
    Some(pairs)
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

    /// Reads the image of an evicted leaf, and replaces the evicted leaf. The caller has no visit.
    #[cold]
    pub(crate) fn page_in(&self, pid: Pid, address: Address) -> Result<()> {
        let Some(shelf) = &self.shelf else {
            return Err(Error::Unreadable { why: "there are no images".into() });
        };
        // Threads that want the same page wait for the first one, and find it in memory then.
        let _turn = self.paging.turn(pid);
        let is_evicted = || self.visit().load(pid).is_some_and(|head| head.evicted() == Some(address));
        if !is_evicted() {
            return Ok(());
        }
        let image = shelf.read(address)?;
        let visit = self.visit();
        match visit.load(pid).filter(|head| head.evicted() == Some(address)) {
            Some(head) => visit.fill(pid, head, address, &image),
            None => Ok(()),
        }
    }

    /// Saves the leaf that contains `from` (`None`: the first leaf), unless its image is current. `keep` stores an image and returns its
    /// address. A leaf that changes meanwhile is saved in a state that it had during the call; then it stays dirty.
    ///
    /// One thread at a time may call this and [`evict`](Self::evict) (I4).
    ///
    /// # Errors
    /// Those of `keep`, and of the shelf.
    pub fn save<E: From<Error>>(
        &self,
        from: Option<&P::Key>,
        keep: impl FnOnce(&[u8]) -> std::result::Result<Address, E>,
    ) -> std::result::Result<SavedLeaf<P::KeyBuf>, E> {
        let place = || from.map_or(Place::First, Place::At);
        let visit = self.visit();
        let (pid, mut head) = visit.leaf(place());
        if !head.is_base() {
            visit.maintain(pid);
            head = visit.leaf(place()).1;
        }
        let outline = Outline::of(head);
        let next = outline.high.map(|high| P::own_key(high.borrow()));
        let is_whole = match (from, outline.low) {
            (Some(from), Some(low)) => low.borrow() == from,
            (from, low) => from.is_none() && low.is_none(),
        };
        if let Body::Evicted { bounds, address, records } = head.body() {
            let (address, mut records, bytes) = (*address, *records, head.bytes() as u64);
            if !is_whole {
                let shelf = self.shelf.as_ref().ok_or(Error::Unreadable { why: String::new() })?;
                let pairs = pairs_of::<P>(&shelf.read(address)?, None, bounds.high.as_ref())
                    .ok_or_else(|| damaged(address))?;
                let inside = pairs.iter().filter(|(key, _)| from.is_none_or(|from| key.borrow() >= from));
                records = inside.count() as u32;
            }
            return Ok(SavedLeaf { address, records, bytes, next });
        }
        let saved = if let Body::Leaf { saved, .. } = head.body() { Some(saved) } else { None };
        let image = saved.and_then(|saved| saved.image_of(head.lsn()));
        let bytes = head.bytes() as u64;
        if let (Some(saved), Some(address), true) = (saved, image, is_whole) {
            let records = saved.records.load(Ordering::Acquire) as u32;
            return Ok(SavedLeaf { address, records, bytes, next });
        }
        let live = Records::of(head).live;
        let inside = live.iter().filter(|own| from.is_none_or(|from| P::record_key(**own) >= from));
        let records = inside.count() as u32;
        if let Some(address) = image {
            return Ok(SavedLeaf { address, records, bytes, next });
        }
        let (all, state) = (live.len() as u32, head.lsn());
        let mut encoded = Vec::with_capacity(head.bytes());
        encode::<P>(&live, &mut encoded);
        // Without a visit, so that retired memory can be freed while the image is written.
        drop(live);
        drop(visit);
        let address = keep(&encoded)?;
        let visit = self.visit();
        let (_, head) = visit.leaf(place());
        if let Body::Leaf { saved, .. } = head.body()
            && head.lsn() == state
        {
            saved.note(address, state, all);
        }
        Ok(SavedLeaf { address, records, bytes, next })
    }

    /// Moves the image of the leaf that contains `from` (`None`: the first leaf), if its address satisfies `is_unwanted`. The image of an
    /// evicted leaf is copied: `keep` stores it and returns the new address. A leaf in memory only forgets its image; the next
    /// [`save`](Self::save) writes a new one. True if there is a leaf without the unwanted image now. Called as `save` (I4).
    ///
    /// # Errors
    /// Those of `keep`, and of the shelf.
    pub fn move_image<E: From<Error>>(
        &self,
        from: Option<&P::Key>,
        is_unwanted: impl Fn(Address) -> bool,
        keep: impl FnOnce(&[u8]) -> std::result::Result<Address, E>,
    ) -> std::result::Result<bool, E> {
        let place = || from.map_or(Place::First, Place::At);
        let (pid, address) = {
            let visit = self.visit();
            let (pid, head) = visit.leaf(place());
            match (visit.image(head).filter(|address| is_unwanted(*address)), head.body()) {
                (Some(address), Body::Evicted { .. }) => (pid, address),
                (Some(_), Body::Leaf { saved, .. }) => {
                    saved.address.store(0, Ordering::Release);
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        };
        // While this thread has the turn, no other one pages the leaf in.
        let _turn = self.paging.turn(pid);
        let is_evicted = |head: &Head<'_, P>| head.evicted() == Some(address);
        if !self.visit().load(pid).is_some_and(|head| is_evicted(&head)) {
            return Ok(false);
        }
        let shelf = self.shelf.as_ref().ok_or(Error::Unreadable { why: String::new() })?;
        let moved = keep(&shelf.read(address)?)?;
        let visit = self.visit();
        let Some(head) = visit.load(pid).filter(is_evicted) else { return Ok(false) };
        let Body::Evicted { bounds, records, .. } = head.body() else { return Ok(false) };
        let bounds = Bounds { low: bounds.low.clone(), high: bounds.high.clone(), right: bounds.right };
        let new = New { level: 0, lsn: head.lsn(), bytes: head.bytes() };
        let stub = visit.evicted_page(new, bounds, moved, *records);
        visit.tell_change(head);
        Ok(visit.replace(pid, head, stub, &[], Omission::Consolidation))
    }

    /// The state of the page with this number, for the eviction: see [`Residence`].
    pub fn residence(&self, page: u32) -> Residence {
        let visit = self.visit();
        if u64::from(page) >= self.table.used() {
            return Residence::End;
        }
        match visit.load(Pid(page)) {
            Some(head) if Pid(page) != ROOT && head.level() == 0 && head.is_base() => match head.body() {
                Body::Leaf { saved, .. } if saved.cool() => Residence::Used,
                Body::Leaf { saved, .. } if saved.image_of(head.lsn()).is_some() => Residence::Clean,
                Body::Leaf { .. } => Residence::Dirty,
                _ => Residence::Elsewhere,
            },
            _ => Residence::Elsewhere,
        }
    }

    /// The low key of a leaf in memory, by its page number. `None` if the page is no leaf in memory; `Some(None)` for the first leaf.
    pub fn low_key(&self, page: u32) -> Option<Option<P::KeyBuf>> {
        if u64::from(page) >= self.table.used() {
            return None;
        }
        let visit = self.visit();
        let head = visit.load(Pid(page)).filter(|head| head.level() == 0 && !head.is_removed())?;
        Some(Outline::of(head).low.map(|low| P::own_key(low.borrow())))
    }

    /// Evicts the leaf with this page number, if it is clean (I1). Returns the bytes of memory that become free; 0 if it was not evicted.
    /// `may_evict` decides by the address of its image.
    pub fn evict(&self, page: u32, may_evict: impl FnOnce(Address) -> bool) -> u64 {
        if u64::from(page) >= self.table.used() {
            return 0;
        }
        let visit = self.visit();
        let pid = Pid(page);
        let Some(head) = visit.load(pid).filter(|head| pid != ROOT && head.level() == 0) else { return 0 };
        let Body::Leaf { saved, bounds, .. } = head.body() else { return 0 };
        let state =
            if is_omitted(Omission::Clean) { saved.state.load(Ordering::Acquire) } else { head.lsn() };
        let Some(address) = saved.image_of(state) else { return 0 };
        if !may_evict(address) {
            return 0;
        }
        let Records { live, mut dead } = Records::of(head);
        let records = live.len() as u32;
        // The evicted leaf has no records in memory, so all of them are dead (N6).
        dead.extend(live);
        let bounds = Bounds { low: bounds.low.clone(), high: bounds.high.clone(), right: bounds.right };
        let new = New { level: 0, lsn: head.lsn(), bytes: head.bytes() };
        let stub = visit.evicted_page(new, bounds, address, records);
        let freed = head.chain_memory() as u64;
        visit.tell_change(head);
        if visit.replace(pid, head, stub, &dead, Omission::Consolidation) { freed } else { 0 }
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
    /// It has to be saved first.
    Dirty,
}

fn damaged(address: Address) -> Error {
    Error::Unreadable { why: format!("the image at {:#x} is damaged", address.0) }
}

impl<P: Pairs> Visit<'_, P> {
    /// Draws a number that no page gets. An eviction and a page-in keep the number of the page, and the checker knows by the drawn numbers
    /// that the tree has changed.
    fn tell_change(&self, head: Head<'_, P>) {
        self.draw(head.lsn());
    }

    /// The address of the current image of a leaf.
    fn image(&self, head: Head<'_, P>) -> Option<Address> {
        match head.body() {
            Body::Evicted { address, .. } => Some(*address),
            Body::Leaf { saved, .. } => saved.image_of(head.lsn()),
            _ => None,
        }
    }

    /// Replaces an evicted leaf with its contents.
    fn fill(&self, pid: Pid, head: Head<'_, P>, address: Address, image: &[u8]) -> Result<()> {
        let outline = Outline::of(head);
        let pairs = pairs_of::<P>(image, outline.low, outline.high).ok_or_else(|| damaged(address))?;
        if let Body::Evicted { records, .. } = head.body()
            && *records as usize != pairs.len()
        {
            return Err(damaged(address));
        }
        let fresh: Vec<P::Fresh> = pairs
            .iter()
            .map(|(key, value)| {
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
        // The contents are the same, so the new page keeps the number.
        let page = self.leaf_page(New { level: 0, lsn: head.lsn(), bytes }, &records, bounds);
        if let Body::Leaf { saved, .. } = page.head().body() {
            saved.note(address, head.lsn(), pairs.len() as u32);
        }
        drop(records);
        if self.replace(pid, head, page, &[], Omission::Consolidation) {
            self.slot.count(Count::MadeBytes, memory as u64);
        } else {
            fresh.into_iter().for_each(|fresh| self.drop_fresh(fresh));
        }
        Ok(())
    }

    /// Pages a leaf in while a structure change needs it. False if its image cannot be read; then the structure change must stop (the
    /// operation that needs the page reports the error).
    #[cold]
    pub(crate) fn make_resident(&self, pid: Pid, head: Head<'_, P>) -> bool {
        let Some(address) = head.evicted() else { return true };
        self.tree.page_in(pid, address).inspect_err(|error| self.fail(error.clone())).is_ok()
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
            self.evicted_page(new, bounds, leaf.address, leaf.records)
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
