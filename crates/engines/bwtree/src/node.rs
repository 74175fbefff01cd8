//! Nodes (base pages and deltas), and the delta chains that they form.
//!
//! ```text
//! mapping table           newest                       oldest
//!   word of P  ────────►  delta ──next──► delta ──next──► base page
//!                                           │
//!                          a merge delta has a second arm: the contents of the page that was merged
//!
//! base page of a leaf:  node | slab of changes, the newest last | arrays of records
//! ```
//!
//! A node is one block of memory: the struct [`Node`], then its arrays. The changes of a leaf's records are in a slab in the block of the
//! base page [OpenBw-Tree §3.1]. A writer *claims* the place after the changes that it sees, writes its change there, and exchanges the
//! word of the mapping table for one that makes one more change visible. So a word of the mapping table, like a link, is a node's address
//! with the number of the node's visible changes. [`Head`] is such a word in decoded form. If the place is already claimed, or no place is
//! left, the writer replaces the base page with a new one that includes its change.
//!
//! Invariants:
//! * N1: a node does not change after its address went into the mapping table. Exception: a writer may claim a place of a leaf, and
//!   write it while its change is not visible.
//! * N2: if node A links to node B, B is retired together with A or later, never earlier.
//! * N3: a node has one owner: the page that has the node in its chain. As soon as a merge delta is in the table, its page owns the
//!   contents of the removed page, but not the remove delta in front of these contents.
//! * N4: only the writer that claimed a place writes it, once. A thread reads a place only if it found a word or a link that makes the
//!   place visible. Places are claimed in order: a writer claims a place only if all earlier places are visible to it. If a claimed place
//!   never becomes visible, no place after it is claimed.
//!
//! A retired node is freed only when every thread that may have found it has released its thread slot (E2 of [`crate::epoch`]). Together
//! with N2: while a thread holds its thread slot, it may follow the links of each node that it found in the table.
//!
//! Records outside of pages (those of byte strings) outlive nodes. Changes and leaves have pointers to them.
//! * N5: a record has one owner: the page whose chain has it. Only an exchange gives a record a new owner (N6). A thread that takes its
//!   thread slot after that exchange finds the record only in the chain of the new owner, and there in only one node. Other pointers to the
//!   record may exist, but no such thread reaches them. They are in nodes that are not published yet, and, after an exchange has given the
//!   root the contents of its only child, in the old chain of that child.
//! * N6: an exchange that moves the pointers moves the ownership. The thread that replaces the nodes of a page owns the records of the
//!   replaced nodes. The records that are also in the new nodes belong to the page of the new nodes from then on and stay untouched. All
//!   other records are dead, and the thread retires them with the replaced nodes. If the exchange fails, the thread frees the nodes that it
//!   made. It frees only one of their records: the record that it made itself.
//! * N7: so a record is retired only after an exchange took the last node through which a later thread could find it out of the table. A
//!   thread that may read a node may read the node's records. A retired node is freed without access to its records: by then they may
//!   belong to another page, or be freed. A node that is still in the table when the tree is dropped is freed with all its records, because
//!   they are its own (N5).
//!
//! A leaf of a tree with a memory budget has copies of its small records in its own block.
//! * N8: such a copy exists as long as its node, and has no other owner. Only its node has a pointer to it. A new page gets new copies, so
//!   the small records that an exchange replaces are dead even if they are live in the new page.
//!
//! A split does not keep the old chain, because that chain has the records of both halves. Both halves are new base pages. One exchange
//! installs the left one, which leads to the right one, and gives each half its records.
//!
//! Commit point: the exchange of the mapping-table word. Paper: Bw-tree §III.

mod graves;

use std::borrow::Borrow;
use std::ptr::{self, NonNull};

pub(crate) use graves::Graves;

use crate::page::{Bounds, New, Term};
use crate::paged::{Evicted, Kept as KeptChanges, NewEvicted, Saved, Stub};
use crate::pairs::{Pairs, Spot, Spotted};
use crate::pool::{ALIGN, Array, Block, Space, array_bytes};
use crate::record::{COPY_ALIGN, Dead, Kept};
use crate::slab::{Noted, Place, Slab};
use crate::sync::Watch;
use crate::table::Pid;

/// Maximum number of visible changes of a leaf.
pub(crate) const SEEN_MAX: u32 = 63;
/// Bits of a word for that number. They are free because nodes begin at multiples of [`ALIGN`].
const SEEN: usize = (SEEN_MAX as usize) << 1;
const _: () = assert!(SEEN < ALIGN);

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines at the beginning of a node that are prefetched together: those that a lookup needs to find its position in the page.
const FETCHED: usize = 11;

/// A node's address and the number of the node's visible changes, as in the mapping table (N2).
#[derive(Debug)]
pub(crate) struct Link<P: Pairs>(*mut Node<P>);

/// A base page or a delta.
#[derive(Debug)]
pub(crate) struct Node<P: Pairs> {
    /// The contents of the page, or the difference from `next`.
    body: Body<P>,
    next: Link<P>,
    /// Number of this state of the page. No two states that a thread can find have the same number.
    lsn: u64,
    /// Number of deltas in front of the base page, including this one, and of changes of the base page.
    depth: u32,
    /// 0 for a leaf.
    level: u32,
    /// Bytes that the page would take as a base page without changes.
    bytes: usize,
    /// Bytes of the block.
    block: usize,
    watch: Watch,
}

/// A state of a page that a thread found: a node, and the number of its visible changes.
#[derive(Debug)]
pub(crate) struct Head<'g, P: Pairs> {
    node: &'g Node<P>,
    seen: u32,
}

impl<P: Pairs> Clone for Head<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Pairs> Copy for Head<'_, P> {}

/// Kinds of nodes.
#[derive(Debug)]
pub(crate) enum Body<P: Pairs> {
    /// A base page of records, with a slab for changes.
    Leaf { run: P::Leaf, bounds: Bounds<P>, changes: Slab<P>, saved: Saved },
    /// A leaf whose contents are not in memory. It has no deltas.
    Evicted { bounds: Bounds<P>, leaf: Evicted },
    /// A base page of index terms: `children[0]` from the low key on, `children[i]` from `keys[i - 1]` on.
    Inner { keys: P::Keys, children: Array<Pid>, bounds: Bounds<P> },
    /// Keys from `key` on and below `high` are in the subtree of `child`.
    IndexInsert { key: P::Fence, high: Option<P::Fence>, child: Pid },
    /// The child at `key` will be merged into its left sibling. A thread that changes the structure of this page completes the merge first.
    IndexMerging { key: P::Fence },
    /// The child at `key` is removed. Keys from `low` on and below `high` are in the subtree of `child`.
    IndexDelete { key: P::Fence, low: Option<P::Fence>, high: Option<P::Fence>, child: Pid },
    /// The page is being removed. Its contents go to its left sibling, or become the root's if `low` is `None`.
    Remove { low: Option<P::Fence> },
    /// Keys from `key` on are in `contents`, which belonged to another page, with that page's high key and right sibling.
    Merge { key: P::Fence, contents: Link<P>, high: Option<P::Fence>, right: Option<Pid> },
}

// SAFETY: after publication only the writer of a place changes a node (N4). Any thread may use and drop the contents of a node.
unsafe impl<P: Pairs> Sync for Node<P> {}
// SAFETY: as above.
unsafe impl<P: Pairs> Send for Node<P> {}

impl<P: Pairs> Link<P> {
    const NONE: Self = Self(ptr::null_mut());

    /// A link to a state that the owner of the link will keep (N2, N3).
    pub(crate) fn to(head: Head<'_, P>) -> Self {
        Self(head.word())
    }

    /// The state that the link leads to.
    #[inline(always)]
    fn get(&self) -> Option<Head<'_, P>> {
        // SAFETY: a link is null, or leads to a node that exists as long as the node with the link (N2).
        unsafe { Head::from_word(self.0) }
    }
}

impl<P: Pairs> Body<P> {
    /// The second arm of a merge delta.
    pub(crate) fn contents(&self) -> Option<Head<'_, P>> {
        if let Self::Merge { contents, .. } = self { contents.get() } else { None }
    }

    /// Bytes of memory outside of blocks.
    fn memory(&self) -> usize {
        let own = |key: &P::Fence| P::fence_memory(key);
        let may = |key: &Option<P::Fence>| key.as_ref().map_or(0, P::fence_memory);
        match self {
            Self::Leaf { bounds, saved, .. } => may(&bounds.low) + may(&bounds.high) + saved.memory(),

            Self::Inner { bounds, .. } | Self::Evicted { bounds, .. } => may(&bounds.low) + may(&bounds.high),
            Self::IndexMerging { key } => own(key),
            Self::IndexInsert { key, high, .. } | Self::Merge { key, high, .. } => own(key) + may(high),
            Self::IndexDelete { key, low, high, .. } => own(key) + may(low) + may(high),
            Self::Remove { low } => may(low),
        }
    }
}

/// A node that no other thread knows.
#[derive(Debug)]
pub(crate) struct Made<P: Pairs>(NonNull<Node<P>>);

// SAFETY: the node is owned, and any thread may use it.
unsafe impl<P: Pairs> Send for Made<P> {}

/// Bytes of a block for a node with `behind` bytes after it: a multiple of [`ALIGN`].
fn node_bytes<P: Pairs>(behind: usize) -> usize {
    (size_of::<Node<P>>() + behind).next_multiple_of(ALIGN)
}

/// Bytes of a block for a leaf of `records` records and `changes` changes, with `copied` bytes of copies.
pub(crate) fn leaf_bytes<P: Pairs>(records: usize, changes: u32, copied: usize) -> usize {
    let slab = array_bytes::<Place<P>>(changes as usize, align_of::<Place<P>>());
    node_bytes::<P>(P::leaf_space(records) + slab + array_bytes::<u8>(copied, COPY_ALIGN))
}

/// Bytes of a block for an inner page of these terms.
pub(crate) fn inner_bytes<P: Pairs>(terms: &[Term<'_, P>]) -> usize {
    let keys = terms.iter().skip(1).filter_map(|(key, _)| *key);
    node_bytes::<P>(P::keys_space(keys) + array_bytes::<Pid>(terms.len(), align_of::<Pid>()))
}

/// Bytes of a block for an evicted leaf that keeps `kept` bytes of changes and copies.
pub(crate) fn evicted_bytes<P: Pairs>(kept: usize) -> usize {
    node_bytes::<P>(kept)
}

/// Bytes of a block for a delta.
pub(crate) fn delta_bytes<P: Pairs>() -> usize {
    node_bytes::<P>(0)
}

impl<P: Pairs> Made<P> {
    fn new(
        block: Block,
        New { level, lsn, bytes }: New,
        depth: u32,
        next: Link<P>,
        body: impl FnOnce(&mut Space) -> Body<P>,
    ) -> Self {
        let mut space = Space::behind(&block, size_of::<Node<P>>());
        let at = block.at().cast::<Node<P>>();
        assert!(at.addr().get().is_multiple_of(ALIGN), "a node's block begins anywhere");
        let body = body(&mut space);
        let node = Node { body, next, lsn, depth, level, bytes, block: block.bytes(), watch: Watch::new() };
        // SAFETY: the block is owned. It has the alignment of a node, and is long enough: `Space::behind` checked that.
        unsafe { at.write(node) };
        Self(at)
    }

    /// A leaf, in a block of [`leaf_bytes`], with `places` places for changes. `run` makes the run of its records, for a page with these
    /// bounds.
    pub(crate) fn leaf(
        block: Block,
        new: New,
        bounds: Bounds<P>,
        places: u32,
        saved: Saved,
        run: impl FnOnce(Option<&P::Key>, Option<&P::Key>, &mut Space, Kept) -> P::Leaf,
    ) -> Self {
        Self::new(block, new, 0, Link::NONE, |space| {
            let (low, high) = (bounds.low.as_ref(), bounds.high.as_ref());
            // SAFETY: the page that this one will replace owns the records, or no page owns them yet. By N6 this page owns them then, and
            // by N7 they exist as long as any thread can have found it.
            let word = unsafe { Kept::word() };
            let changes = Slab::new(space, places);
            let run = run(low.map(Borrow::borrow), high.map(Borrow::borrow), space, word);
            Body::Leaf { run, bounds, changes, saved }
        })
    }

    /// An inner page of these terms, in a block of [`inner_bytes`]. The key of the first term is the page's low key.
    pub(crate) fn inner(block: Block, new: New, terms: &[Term<'_, P>], bounds: Bounds<P>) -> Self {
        Self::new(block, new, 0, Link::NONE, |space| {
            let keys: Vec<_> = terms.iter().skip(1).filter_map(|(key, _)| *key).collect();
            let (low, high) = (bounds.low.as_ref(), bounds.high.as_ref());
            let keys = P::separators(&keys, low.map(Borrow::borrow), high.map(Borrow::borrow), space);
            let children = terms.iter().map(|(_, child)| *child);
            let children = space.collect(terms.len(), align_of::<Pid>(), children);
            Body::Inner { keys, children, bounds }
        })
    }

    /// Makes a new base page from the base page `head` of a leaf, with these changes of `head` applied ([`Pairs::merged`]), in a block of
    /// [`leaf_bytes`]. Also returns the records that the new page does not have. `None` if the node is not a leaf's base page.
    pub(crate) fn merged<'g>(
        block: Block,
        head: Head<'g, P>,
        lsn: u64,
        places: u32,
        (changes, copied): (&[Spotted<'g, P>], usize),
        saved: Saved,
    ) -> Option<(Self, Vec<P::Record<'g>>)> {
        let Body::Leaf { run, bounds: Bounds { low, high, right }, .. } = head.body() else { return None };
        let mut dead = Vec::new();
        let new = New { level: head.level(), lsn, bytes: head.bytes() };
        let made = Self::new(block, new, 0, Link::NONE, |space| {
            // SAFETY: as in `leaf`.
            let word = unsafe { Kept::word() };
            let slab = Slab::new(space, places);
            let (run, not_in_it) = P::merged(run, changes, copied, space, word);
            dead = not_in_it;
            let bounds = Bounds { low: low.clone(), high: high.clone(), right: *right };
            Body::Leaf { run, bounds, changes: slab, saved }
        });
        Some((made, dead))
    }

    /// A leaf whose contents are not in memory, in a block of [`evicted_bytes`].
    pub(crate) fn evicted(block: Block, new: New, bounds: Bounds<P>, leaf: NewEvicted<'_>) -> Self {
        Self::new(block, new, 0, Link::NONE, |space| {
            let NewEvicted { image, records, is_counted, kept, digest, guide, copies } = leaf;
            let mut copy = |bytes: &[u8]| {
                let mut draft = space.array(bytes.len(), 1);
                draft.extend(bytes);
                draft.done()
            };
            let kept = KeptChanges { unsaved: copy(kept.unsaved), late: copy(kept.late) };
            let (digest, guide) = (copy(&digest), copy(&guide));
            let copies = copies.placed(copy);
            Body::Evicted {
                bounds,
                leaf: Evicted { image, records, is_counted, kept, digest, guide, copies },
            }
        })
    }

    /// A delta in front of `head`, in a block of [`delta_bytes`]. With the delta, the page has `bytes` bytes.
    pub(crate) fn delta(block: Block, head: Head<'_, P>, lsn: u64, bytes: usize, body: Body<P>) -> Self {
        let new = New { level: head.level(), lsn, bytes };
        Self::new(block, new, head.depth() + 1, Link::to(head), |_| body)
    }

    /// The state of the page after the node's word goes into the mapping table.
    pub(crate) fn head(&self) -> Head<'_, P> {
        // SAFETY: it is a node, and exists until its owner gives it up.
        Head { node: unsafe { self.0.as_ref() }, seen: 0 }
    }

    /// Writes a change into the first place of a leaf. Returns the word that makes it visible.
    pub(crate) fn with_change(&self, change: P::Record<'_>, lsn: u64, bytes: usize) -> *mut Node<P> {
        let head = self.head();
        let Body::Leaf { run, .. } = head.body() else { return head.word() };
        let spot = P::spot(run, P::record_key(change));
        head.claim(change, spot, lsn, bytes).map_or(head.word(), |claimed| claimed.0)
    }

    /// The word of the node for the mapping table.
    pub(crate) fn word(&self) -> *mut Node<P> {
        self.0.as_ptr()
    }

    /// Destroys the node: it did not get into the mapping table, or is being freed. Models and schedules must not reuse its block as long
    /// as a thread could access the node.
    ///
    /// # Safety
    /// No other thread has the node or can get it.
    unsafe fn free(self) -> Block {
        // SAFETY: by the caller's contract.
        let bytes = unsafe { self.0.as_ref() }.block;
        // SAFETY: as above.
        unsafe { self.0.drop_in_place() };
        // SAFETY: the node was at the beginning of a block of `bytes` bytes, and the caller's contract holds.
        unsafe { Block::from_parts(self.0.cast(), bytes) }
    }
}

/// A claimed and written place: the word that makes it visible (N4).
pub(crate) struct Claimed<P: Pairs>(pub(crate) *mut Node<P>);

impl<'g, P: Pairs> Head<'g, P> {
    /// Follows a word of the mapping table, or a link.
    ///
    /// # Safety
    /// The word is null, or that of a node that is not freed during `'g`. It has no more visible changes than were published with it.
    #[inline(always)]
    pub(crate) unsafe fn from_word(word: *mut Node<P>) -> Option<Self> {
        let seen = ((word.addr() & SEEN) >> 1) as u32;
        // SAFETY: by the caller's contract.
        let node = unsafe { word.map_addr(|addr| addr & !SEEN).as_ref() }?;
        node.watch.look();
        Some(Self { node, seen })
    }

    /// The word of this state for the mapping table.
    #[inline(always)]
    pub(crate) fn word(self) -> *mut Node<P> {
        ptr::from_ref(self.node).cast_mut().map_addr(|addr| addr | (self.seen as usize) << 1)
    }

    /// True if both are the same state of a page.
    pub(crate) fn is(self, other: Self) -> bool {
        ptr::eq(self.node, other.node) && self.seen == other.seen
    }

    #[inline(always)]
    pub(crate) fn body(self) -> &'g Body<P> {
        &self.node.body
    }

    /// The state in front of which this delta was put. `None` for a base page.
    #[inline(always)]
    pub(crate) fn next(self) -> Option<Self> {
        self.node.next.get()
    }

    /// 0 for a leaf.
    #[inline(always)]
    pub(crate) fn level(self) -> u32 {
        self.node.level
    }

    /// The newest visible change.
    #[inline(always)]
    fn newest(self) -> Option<&'g Noted<P>> {
        match self.body() {
            Body::Leaf { changes, .. } if self.seen > 0 => Some(changes.get(self.seen - 1)),
            _ => None,
        }
    }

    /// Number of this state of the page, unique in the tree. For an update it is the LSN.
    #[inline(always)]
    pub(crate) fn lsn(self) -> u64 {
        self.newest().map_or(self.node.lsn, |newest| newest.lsn)
    }

    /// Bytes that the page would take as a base page.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        self.newest().map_or(self.node.bytes, Noted::bytes)
    }

    /// Number of deltas in front of the base page and of changes of the base page.
    #[inline(always)]
    pub(crate) fn depth(self) -> u32 {
        self.node.depth + self.seen
    }

    /// True if the node is a base page.
    #[inline(always)]
    pub(crate) fn is_base(self) -> bool {
        matches!(self.body(), Body::Leaf { .. } | Body::Inner { .. })
    }

    /// The evicted leaf, if the page is one.
    #[inline(always)]
    pub(crate) fn evicted(self) -> Option<Stub> {
        if let Body::Evicted { leaf, .. } = self.body() { Some(self.stub(leaf)) } else { None }
    }

    /// The state of an evicted leaf.
    #[inline(always)]
    pub(crate) fn stub(self, leaf: &Evicted) -> Stub {
        Stub { lsn: self.node.lsn, address: leaf.image.address }
    }

    /// Number of records of a leaf's base page, without the changes.
    pub(crate) fn base_records(self) -> usize {
        if let Body::Leaf { run, .. } = self.body() { P::len(run) } else { 0 }
    }

    /// True if this is a remove delta.
    pub(crate) fn is_removed(self) -> bool {
        matches!(self.body(), Body::Remove { .. })
    }

    /// Number of visible changes of the node.
    #[inline(always)]
    pub(crate) fn seen(self) -> u32 {
        self.seen
    }

    /// The visible change of a leaf in this place of its slab.
    #[inline(always)]
    pub(crate) fn change(self, place: u32) -> Option<(Spot, P::Record<'g>)> {
        let Body::Leaf { changes, .. } = self.body() else { return None };
        let noted = (place < self.seen).then(|| changes.get(place))?;
        Some((noted.spot, noted.record()))
    }

    /// The visible changes of a leaf, newest first.
    pub(crate) fn changes(self) -> impl Iterator<Item = (Spot, P::Record<'g>)> {
        (0..self.seen).rev().filter_map(move |place| self.change(place))
    }

    /// The record of a key that belongs in this leaf, if there is one, and the key's position in the run. `None` if the node is not a
    /// leaf's base page.
    #[inline(always)]
    pub(crate) fn locate(self, key: &P::Key) -> Option<(Option<P::Record<'g>>, Spot)> {
        let Body::Leaf { run, changes, .. } = self.body() else { return None };
        if let Some(noted) = self.find_noted(changes, key) {
            let found = noted.record();
            return Some((P::record_value(found).map(|_| found), noted.spot));
        }
        let spot = P::spot(run, key);
        Some((spot.is_there().then(|| P::at(run, spot.records().0)), spot))
    }

    /// The newest visible change of a key, if there is one.
    #[inline(always)]
    pub(crate) fn find(self, slab: &'g Slab<P>, key: &P::Key) -> Option<P::Record<'g>> {
        self.find_noted(slab, key).map(Noted::record)
    }

    #[inline(always)]
    fn find_noted(self, slab: &'g Slab<P>, key: &P::Key) -> Option<&'g Noted<P>> {
        if self.seen == 0 {
            return None;
        }
        let hint = P::hint(key);
        (0..self.seen).rev().map(|i| slab.get(i)).find(|noted| P::is_of(&noted.change, hint, key))
    }

    /// Claims a place of a leaf and writes a change there. `None` if the node is not a leaf's base page, or no place is free.
    #[inline(always)]
    pub(crate) fn claim(
        self,
        record: P::Record<'_>,
        spot: Spot,
        lsn: u64,
        bytes: usize,
    ) -> Option<Claimed<P>> {
        let Body::Leaf { changes, .. } = self.body() else { return None };
        let place = changes.claim(self.seen)?;
        let is_there = P::record_value(record).is_some();
        // SAFETY: the thread that changes the page owns the record. After the exchange the page owns it (N6), and it exists as long as any
        // thread can see it (N7).
        let word = unsafe { Kept::word() };
        let bytes = (bytes as u32) << 1 | u32::from(is_there);
        place.write(Noted { change: P::change(record, word), lsn, spot, bytes });
        Some(Claimed(Self { seen: self.seen + 1, ..self }.word()))
    }

    /// For the checker: true if the LSNs of the visible changes ascend and their positions in the run are right.
    pub(crate) fn is_in_order(self) -> bool {
        let Body::Leaf { changes, run, .. } = self.body() else { return self.seen == 0 };
        let lsns: Vec<_> =
            std::iter::once(self.node.lsn).chain((0..self.seen).map(|i| changes.get(i).lsn)).collect();
        let is_spot = |(spot, record)| P::spot(run, P::record_key(record)) == spot;
        lsns.is_sorted_by(|a, b| a < b) && self.changes().all(is_spot)
    }

    /// Calls `with` for each record of the node that is not in the node's block.
    pub(crate) fn for_records(self, mut with: impl FnMut(P::Record<'g>)) {
        if let Body::Leaf { run, .. } = self.body() {
            P::for_outside(run, &mut with);
            self.changes().for_each(|(_, record)| with(record));
        }
    }

    /// Bytes of memory of the node, without the nodes that it links to.
    pub(crate) fn memory(self) -> usize {
        self.node.block + self.body().memory()
    }

    /// Bytes of memory of a chain, with its records.
    pub(crate) fn chain_memory(self) -> usize {
        let mut bytes = 0;
        let mut next = Some(self);
        while let Some(node) = next {
            node.for_records(|record| bytes += P::record_memory(record));
            bytes += node.memory() + node.body().contents().map_or(0, Self::chain_memory);
            next = node.next();
        }
        bytes
    }
}

/// Prefetches a line that will be read soon. The address need not be one of an object.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address changes only caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Prefetches the first lines of a node that will be read soon. Does nothing for a null word.
#[inline(always)]
pub(crate) fn fetch<P: Pairs>(word: *mut Node<P>) {
    let node = word.map_addr(|addr| addr & !SEEN).cast::<u8>();
    (0..FETCHED).for_each(|line| prefetch(node.wrapping_add(line * LINE).cast_const()));
}

/// A retired object, to be freed later.
#[derive(Debug)]
pub(crate) enum Retired<P: Pairs> {
    /// A node, all nodes that it links to, and records of these nodes.
    Chain(Link<P>, Vec<Dead>),
    /// A node alone. Another page owns the nodes that it links to.
    Node(Link<P>),
    /// A page id.
    Pid(Pid),
}

/// A retired object, with its number of objects and bytes.
pub(crate) type Weighed<P> = (Retired<P>, (u64, u64));

// SAFETY: the owner of this value owns the retired node, and any thread may drop it.
unsafe impl<P: Pairs> Send for Retired<P> {}

/// Calls `with` for each node of a chain, once (N3). `with` may free the node.
fn for_nodes<P: Pairs>(link: &Link<P>, mut with: impl FnMut(*mut Node<P>)) {
    let mut arms = Vec::new();
    let mut next = link.get();
    while let Some(node) = next {
        arms.extend(node.body().contents());
        next = node.next().or_else(|| arms.pop());
        with(node.word());
    }
}

impl<P: Pairs> Retired<P> {
    /// A chain, and the records of it that its replacement does not have.
    pub(crate) fn chain(head: Head<'_, P>, dead: &[P::Record<'_>]) -> Weighed<P> {
        let chain = Link::to(head);
        let (mut count, mut bytes) = (0, weight::<P>(dead));
        for_nodes(&chain, |node| {
            count += 1;
            // SAFETY: the nodes of a chain exist as long as its head.
            bytes += unsafe { Head::from_word(node) }.map_or(0, Head::memory) as u64;
        });
        let objects = count + dead.len() as u64;
        (Self::Chain(chain, dead.iter().filter_map(|record| P::dead(*record)).collect()), (objects, bytes))
    }

    /// A node alone.
    pub(crate) fn node(node: Head<'_, P>) -> Weighed<P> {
        (Self::Node(Link::to(node)), (1, node.memory() as u64))
    }

    /// Frees the nodes and records and calls `give` with the block of each. Returns the page id if the object is one. Models and schedules
    /// keep the nodes and records in `graves` until the tree is dropped, to detect a thread that still uses one.
    ///
    /// # Safety
    /// No thread has any of them.
    pub(crate) unsafe fn free(self, graves: &Graves<P>, mut give: impl FnMut(Block)) -> Option<Pid> {
        let (link, dead) = match self {
            Self::Pid(pid) => return Some(pid),
            Self::Node(link) => {
                // SAFETY: no thread has it, by the caller's contract.
                unsafe { graves.bury(link.0, &mut give) };
                return None;
            }
            Self::Chain(link, dead) => (link, dead),
        };
        for_nodes(&link, |node| {
            // SAFETY: as above; a chain has each node once.
            unsafe { graves.bury(node, &mut give) };
        });
        for dead in dead {
            // SAFETY: as above.
            unsafe { graves.bury_record(dead, &mut give) };
        }
        None
    }
}

fn weight<P: Pairs>(dead: &[P::Record<'_>]) -> u64 {
    dead.iter().map(|record| P::record_memory(*record) as u64).sum()
}

/// Frees everything that is reachable from these words, each node once: contents of an incomplete merge are reachable from two words.
/// Returns the number of bytes.
///
/// # Safety
/// No other thread has any of the nodes, and none of them is retired.
pub(crate) unsafe fn free_all<P: Pairs>(
    words: impl Iterator<Item = *mut Node<P>>,
    graves: &Graves<P>,
    mut give: impl FnMut(Block),
) -> usize {
    let mut seen = std::collections::HashSet::new();
    for word in words {
        for_nodes(&Link(word), |node| _ = seen.insert(node));
    }
    let mut bytes = 0;
    for word in seen {
        let mut dead = Vec::new();
        // SAFETY: by the caller's contract; the set has each node once.
        if let Some(node) = unsafe { Head::from_word(word) } {
            bytes += node.memory();
            node.for_records(|record| {
                bytes += P::record_memory(record);
                dead.extend(P::dead(record));
            });
        }
        for dead in dead {
            // SAFETY: no other node has the record of a node in the table (N5), and it is not retired (N7).
            unsafe { graves.bury_record(dead, &mut give) };
        }
        // SAFETY: by the caller's contract.
        unsafe { graves.bury(word, &mut give) };
    }
    bytes
}
