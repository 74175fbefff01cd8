//! Nodes: base pages and deltas, and the chains that they are linked to [Bw-tree §III].
//!
//! ```text
//! mapping table           newest                       oldest
//!   word of P  ────────►  delta ──next──► delta ──next──► base page
//!                                           │
//!                          a merge delta has a second arm: the contents of the page that was merged
//!
//! base page of a leaf:  node | space for changes, the newest last | arrays of records
//! ```
//!
//! A node is one block of memory, its arrays behind it. Changes of a leaf's records stand in the block of its base page [OpenBw-Tree §3.1]:
//! whoever makes one *claims* the place behind those that he sees, writes there, and exchanges the word for one that sees one change
//! more. So a word of the mapping table, and a link, is a node's address with the number of its changes that are seen; that is what
//! a [`Head`] is. If the place is claimed already, or there is none left, a new base page takes the old one's place, with the change.
//!
//! Invariants:
//! * N1: a node is not changed after its address went into the mapping table, but for the changes beside a leaf that nobody sees yet.
//! * N2: what a node links to is retired with it or later, never before.
//! * N3: a node has one owner: the page whose chain it is in. The contents of a removed page are owned by the merge delta from the
//!   moment it is in the table; the remove delta in front of them is not.
//! * N4: the place of a change is written by who claimed it, once, and read by those who found a word or a link that sees it. Places
//!   are claimed in their order, each by who sees all before it; one that was claimed and is never seen ends the row.
//!
//! So who found a node in the table while seated may follow links from it as long as he is seated.
//!
//! Records that do not lie in pages (those of byte strings) outlive nodes: changes and leaves have pointers to them.
//! * N5: a record has one owner: the page whose chain has it. No other page's chain does that a newcomer can find, and in the chain one
//!   node does, in one place that is seen. Nodes that nobody knows yet may point to it, too; so does, for a moment, the chain of the
//!   only child whose contents became the root's, which is found by those alone who were there before.
//! * N6: ownership moves by the exchange that moves the pointers. Whoever replaces nodes of a page by others owns what was in those:
//!   each record that the new ones have is theirs from then on, and is not touched; all others are dead, and he retires them with
//!   what he replaced. Whose exchange fails drops what he made, and nothing that it points to but the record that he brought.
//! * N7: so a record is retired no earlier than the last node that points to it is taken out of the table, and who may read a node may
//!   read what it points to. A retired node is freed without a look at its records: they may be another's by then, or gone. A node that is
//!   still in the table when the tree is dropped is freed with all its records: they are its own (N5).
//!
//! That is why a split leaves no chain behind that still has the other half: both halves are new base pages, and the exchange for the
//! left one, from which the right one is reached, gives each half its records at once.

use std::borrow::Borrow;
use std::ptr::{self, NonNull};

use crate::page::Term;
use crate::pairs::{Changes, Pairs, Spot};
use crate::pool::{ALIGN, Array, Block, Space, array_bytes};
use crate::record::{Dead, Kept};
use crate::slab::{Noted, Place, Slab};
use crate::sync::Watch;
use crate::table::Pid;

/// Changes of a leaf that a word can see, at most.
pub(crate) const SEEN_MAX: u32 = 63;
/// Their number in a word: nodes begin at multiples of [`ALIGN`].
const SEEN: usize = (SEEN_MAX as usize) << 1;
const _: () = assert!(SEEN < ALIGN);

/// Bytes of a line.
const LINE: usize = 64;
/// Lines at the beginning of a node that are fetched at once: what a lookup needs of a page to know where in it to look.
const FETCHED: usize = 11;

/// An address and what is seen of it, as it stands in the mapping table; see N2.
#[derive(Debug)]
pub(crate) struct Link<P: Pairs>(*mut Node<P>);

/// A base page or a delta.
#[derive(Debug)]
pub(crate) struct Node<P: Pairs> {
    /// What the page contains, or how it differs from what `next` is.
    body: Body<P>,
    next: Link<P>,
    /// The number of this state of the page: no two nodes or changes have the same.
    lsn: u64,
    /// Deltas in front of the base page, this one too, and changes beside that.
    depth: u32,
    /// 0: a leaf.
    level: u32,
    /// Bytes that the page would take in a base page without changes.
    bytes: usize,
    /// Bytes of the block.
    block: usize,
    watch: Watch,
}

/// A page's newest state that somebody found: a node, and how many of its changes are seen.
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

/// What bounds a page, and where it goes on: a page has the keys at or above `low` and below `high`.
#[derive(Debug)]
pub(crate) struct Bounds<P: Pairs> {
    /// `None`: it is the first of its level.
    pub(crate) low: Option<P::Fence>,
    /// `None`: it is the last of its level.
    pub(crate) high: Option<P::Fence>,
    /// The page from `high` on.
    pub(crate) right: Option<Pid>,
}

/// Kinds of nodes.
#[derive(Debug)]
pub(crate) enum Body<P: Pairs> {
    /// A base page of records, with space for changes.
    Leaf { run: P::Leaf, bounds: Bounds<P>, changes: Slab<P> },
    /// A base page of index terms: `children[0]` from the low key on, `children[i]` from `keys[i - 1]` on.
    Inner { keys: P::Keys, children: Array<Pid>, bounds: Bounds<P> },
    /// Keys from `key` on, below `high`, are below `child`.
    IndexInsert { key: P::Fence, high: Option<P::Fence>, child: Pid },
    /// The child at `key` is going to be merged into the one to its left. Who changes the structure of this page completes that first.
    IndexMerging { key: P::Fence },
    /// The child at `key` is gone: keys from `low` on, below `high`, are below `child`.
    IndexDelete { key: P::Fence, low: Option<P::Fence>, high: Option<P::Fence>, child: Pid },
    /// The page is being removed: what it had goes to its left sibling, or, if there is no `low`, becomes the root.
    Remove { low: Option<P::Fence> },
    /// Keys from `key` on are in `contents`, which was another page's, with that page's high key and right sibling.
    Merge { key: P::Fence, contents: Link<P>, high: Option<P::Fence>, right: Option<Pid> },
}

// SAFETY: a node is not changed after others can see it but as N4 says, and what it owns may be used and dropped by any thread.
unsafe impl<P: Pairs> Sync for Node<P> {}
// SAFETY: as above.
unsafe impl<P: Pairs> Send for Node<P> {}

impl<P: Pairs> Link<P> {
    const NONE: Self = Self(ptr::null_mut());

    /// A link to a state that its new owner will keep (N2, N3).
    pub(crate) fn to(head: Head<'_, P>) -> Self {
        Self(head.word())
    }

    /// The state.
    #[inline(always)]
    fn get(&self) -> Option<Head<'_, P>> {
        // SAFETY: a link leads nowhere, or to a node that is there as long as the one with the link (N2).
        unsafe { Head::from_word(self.0) }
    }
}

impl<P: Pairs> Body<P> {
    /// The second arm of a merge delta.
    pub(crate) fn contents(&self) -> Option<Head<'_, P>> {
        if let Self::Merge { contents, .. } = self { contents.get() } else { None }
    }

    /// Bytes of memory behind it that are in no block.
    fn memory(&self) -> usize {
        let own = |key: &P::Fence| P::fence_memory(key);
        let may = |key: &Option<P::Fence>| key.as_ref().map_or(0, P::fence_memory);
        match self {
            Self::Leaf { bounds, .. } | Self::Inner { bounds, .. } => may(&bounds.low) + may(&bounds.high),
            Self::IndexMerging { key } => own(key),
            Self::IndexInsert { key, high, .. } | Self::Merge { key, high, .. } => own(key) + may(high),
            Self::IndexDelete { key, low, high, .. } => own(key) + may(low) + may(high),
            Self::Remove { low } => may(low),
        }
    }
}

/// A node that nobody else knows.
#[derive(Debug)]
pub(crate) struct Made<P: Pairs>(NonNull<Node<P>>);

// SAFETY: it is owned, and may be used by any thread.
unsafe impl<P: Pairs> Send for Made<P> {}

/// Bytes of a block for a node with so many bytes behind it: a multiple of [`ALIGN`].
fn node_bytes<P: Pairs>(behind: usize) -> usize {
    (size_of::<Node<P>>() + behind).next_multiple_of(ALIGN)
}

/// Bytes of a block for a leaf of so many records and changes.
pub(crate) fn leaf_bytes<P: Pairs>(records: usize, changes: u32) -> usize {
    let slab = array_bytes::<Place<P>>(changes as usize, align_of::<Place<P>>());
    node_bytes::<P>(P::leaf_space(records) + slab)
}

/// Bytes of a block for an inner page of these terms.
pub(crate) fn inner_bytes<P: Pairs>(terms: &[Term<'_, P>]) -> usize {
    let keys = terms.iter().skip(1).filter_map(|(key, _)| *key);
    node_bytes::<P>(P::keys_space(keys) + array_bytes::<Pid>(terms.len(), align_of::<Pid>()))
}

/// Bytes of a block for a delta.
pub(crate) fn delta_bytes<P: Pairs>() -> usize {
    node_bytes::<P>(0)
}

/// What is put together to a new node.
pub(crate) struct New {
    pub(crate) level: u32,
    pub(crate) lsn: u64,
    pub(crate) bytes: usize,
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
        // SAFETY: the block is ours, begins where a node may begin, and is long enough: `Space::behind` has seen that.
        unsafe { at.write(node) };
        Self(at)
    }

    /// A leaf of these records, in a block of [`leaf_bytes`].
    pub(crate) fn leaf(
        block: Block,
        new: New,
        records: &[P::Record<'_>],
        bounds: Bounds<P>,
        places: u32,
    ) -> Self {
        Self::new(block, new, 0, Link::NONE, |space| {
            let (low, high) = (bounds.low.as_ref(), bounds.high.as_ref());
            // SAFETY: the records are owned by what this page will take the place of, or by nobody; by N6 it owns them then, and by N7
            // they are there as long as anybody has found it.
            let word = unsafe { Kept::word() };
            let changes = Slab::new(space, places);
            let run = P::leaf(records, low.map(Borrow::borrow), high.map(Borrow::borrow), space, word);
            Body::Leaf { run, bounds, changes }
        })
    }

    /// An inner page of these terms, of which the first's key is the page's low key, in a block of [`inner_bytes`].
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

    /// The leaf with this head, which is a base page, with its changes in their places, in a block of [`leaf_bytes`]; and what is not in
    /// it any more.
    pub(crate) fn merged<'g>(
        block: Block,
        head: Head<'g, P>,
        lsn: u64,
        places: u32,
    ) -> Option<(Self, Vec<P::Record<'g>>)> {
        let Body::Leaf { run, bounds: Bounds { low, high, right }, .. } = head.body() else { return None };
        let changes = Changes(head.changes().collect());
        let mut dead = Vec::new();
        let new = New { level: head.level(), lsn, bytes: head.bytes() };
        let made = Self::new(block, new, 0, Link::NONE, |space| {
            // SAFETY: as in `leaf`.
            let word = unsafe { Kept::word() };
            let slab = Slab::new(space, places);
            let (run, not_in_it) = P::merged(run, changes, space, word);
            dead = not_in_it;
            let bounds = Bounds { low: low.clone(), high: high.clone(), right: *right };
            Body::Leaf { run, bounds, changes: slab }
        });
        Some((made, dead))
    }

    /// A delta in front of `head`, in a block of [`delta_bytes`], which makes it a page of so many bytes.
    pub(crate) fn delta(block: Block, head: Head<'_, P>, lsn: u64, bytes: usize, body: Body<P>) -> Self {
        let new = New { level: head.level(), lsn, bytes };
        Self::new(block, new, head.depth() + 1, Link::to(head), |_| body)
    }

    /// What will be found when it is in the mapping table.
    pub(crate) fn head(&self) -> Head<'_, P> {
        // SAFETY: it is a node, and is there as long as nobody gave it up.
        Head { node: unsafe { self.0.as_ref() }, seen: 0 }
    }

    /// Writes a change into a leaf's first place: the word that sees it.
    pub(crate) fn with_change(&self, change: P::Record<'_>, lsn: u64, bytes: usize) -> *mut Node<P> {
        let head = self.head();
        let Body::Leaf { run, .. } = head.body() else { return head.word() };
        let spot = P::spot(run, P::record_key(change));
        head.claim(change, spot, lsn, bytes).map_or(head.word(), |claimed| claimed.0)
    }

    /// Gives it up, to be found through the mapping table.
    pub(crate) fn word(&self) -> *mut Node<P> {
        self.0.as_ptr()
    }

    /// Takes it apart: it did not get into the mapping table, or is being freed. In models and schedules its block is not to be used
    /// again as long as somebody could look at the node.
    ///
    /// # Safety
    /// Nobody has it or will have it.
    unsafe fn free(self) -> Block {
        // SAFETY: the caller's word.
        let bytes = unsafe { self.0.as_ref() }.block;
        // SAFETY: as above.
        unsafe { self.0.drop_in_place() };
        // SAFETY: the node stood at the beginning of a block of so many bytes; the caller's word.
        unsafe { Block::from_parts(self.0.cast(), bytes) }
    }
}

/// A place that is claimed and written: the word that sees it (N4).
pub(crate) struct Claimed<P: Pairs>(pub(crate) *mut Node<P>);

impl<'g, P: Pairs> Head<'g, P> {
    /// Follows a word of the mapping table, or a link.
    ///
    /// # Safety
    /// It is null, or a node's that is not freed during `'g`, with no more changes than were published with the word.
    #[inline(always)]
    pub(crate) unsafe fn from_word(word: *mut Node<P>) -> Option<Self> {
        let seen = ((word.addr() & SEEN) >> 1) as u32;
        // SAFETY: the caller's word.
        let node = unsafe { word.map_addr(|addr| addr & !SEEN).as_ref() }?;
        node.watch.look();
        Some(Self { node, seen })
    }

    /// As it stands in the mapping table.
    #[inline(always)]
    pub(crate) fn word(self) -> *mut Node<P> {
        ptr::from_ref(self.node).cast_mut().map_addr(|addr| addr | (self.seen as usize) << 1)
    }

    /// True if both are one state of a page.
    pub(crate) fn is(self, other: Self) -> bool {
        ptr::eq(self.node, other.node) && self.seen == other.seen
    }

    #[inline(always)]
    pub(crate) fn body(self) -> &'g Body<P> {
        &self.node.body
    }

    /// What this delta is in front of; nothing for a base page.
    #[inline(always)]
    pub(crate) fn next(self) -> Option<Self> {
        self.node.next.get()
    }

    /// 0: a leaf.
    #[inline(always)]
    pub(crate) fn level(self) -> u32 {
        self.node.level
    }

    /// The newest change that is seen.
    #[inline(always)]
    fn newest(self) -> Option<&'g Noted<P>> {
        match self.body() {
            Body::Leaf { changes, .. } if self.seen > 0 => Some(changes.get(self.seen - 1)),
            _ => None,
        }
    }

    /// The number of this state of the page: no two have the same. Of an update, the LSN.
    #[inline(always)]
    pub(crate) fn lsn(self) -> u64 {
        self.newest().map_or(self.node.lsn, |newest| newest.lsn)
    }

    /// Bytes that the page would take in a base page.
    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        self.newest().map_or(self.node.bytes, Noted::bytes)
    }

    /// Deltas in front of the base page, and changes beside it.
    #[inline(always)]
    pub(crate) fn depth(self) -> u32 {
        self.node.depth + self.seen
    }

    /// True if nothing is in front of the base page.
    #[inline(always)]
    pub(crate) fn is_base(self) -> bool {
        matches!(self.body(), Body::Leaf { .. } | Body::Inner { .. })
    }

    /// True if this is no delta that takes what was before it out of the tree.
    pub(crate) fn is_removed(self) -> bool {
        matches!(self.body(), Body::Remove { .. })
    }

    /// The changes beside a leaf that are seen, the newest first.
    pub(crate) fn changes(self) -> impl Iterator<Item = (Spot, P::Record<'g>)> {
        let slab = if let Body::Leaf { changes, .. } = self.body() { Some(changes) } else { None };
        let noted = slab.into_iter().flat_map(move |slab| (0..self.seen).rev().map(|i| slab.get(i)));
        noted.map(|noted| (noted.spot, noted.record()))
    }

    /// The record of a key that may be in this leaf, if it is there, and where it is in the run; `None` if it is no base page.
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

    /// What became of a key beside a leaf, if something did.
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

    /// Claims a place beside a leaf and writes a change there, if this is one and there is a place.
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
        // SAFETY: whoever changes the page owns the record; by N6 the page does then, and by N7 it is there as long as anybody sees it.
        let word = unsafe { Kept::word() };
        let bytes = (bytes as u32) << 1 | u32::from(is_there);
        place.write(Noted { change: P::change(record, word), lsn, spot, bytes });
        Some(Claimed(Self { seen: self.seen + 1, ..self }.word()))
    }

    /// True if the changes that are seen have numbers in order, and are where they say, for the checker.
    pub(crate) fn is_in_order(self) -> bool {
        let Body::Leaf { changes, run, .. } = self.body() else { return self.seen == 0 };
        let lsns: Vec<_> =
            std::iter::once(self.node.lsn).chain((0..self.seen).map(|i| changes.get(i).lsn)).collect();
        let is_spot = |(spot, record)| P::spot(run, P::record_key(record)) == spot;
        lsns.is_sorted_by(|a, b| a < b) && self.changes().all(is_spot)
    }

    /// Calls `with` with each record that the node has.
    fn for_records(self, mut with: impl FnMut(P::Record<'g>)) {
        if let Body::Leaf { run, .. } = self.body() {
            (0..P::len(run)).for_each(|i| with(P::at(run, i)));
            self.changes().for_each(|(_, record)| with(record));
        }
    }

    /// Bytes of memory that it takes, without what it links to.
    pub(crate) fn memory(self) -> usize {
        self.node.block + self.body().memory()
    }

    /// Bytes of memory that a chain takes, with its records.
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

/// Has the first lines of a node fetched, which will be read soon; of no node, nothing happens.
#[inline(always)]
pub(crate) fn fetch<P: Pairs>(word: *mut Node<P>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..FETCHED {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = word.map_addr(|addr| addr & !SEEN).cast::<i8>().wrapping_add(line * LINE);
        // SAFETY: whatever is there, or is not: nothing but a cache changes.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (word, LINE, FETCHED);
}

/// What was taken out of the tree, to be freed.
#[derive(Debug)]
pub(crate) enum Retired<P: Pairs> {
    /// A node and all that it links to; and records that were in it.
    Chain(Link<P>, Vec<Dead>),
    /// A node alone: what it links to is another's.
    Node(Link<P>),
    /// A PID.
    Pid(Pid),
}

/// What was retired, with its objects and bytes.
pub(crate) type Weighed<P> = (Retired<P>, (u64, u64));

// SAFETY: a retired node is owned by who has this, and may be dropped by any thread.
unsafe impl<P: Pairs> Send for Retired<P> {}

/// Calls `with` with each node of a chain, once (N3); it may be gone when that returns.
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
    /// A chain, and what of its records is not in what took its place.
    pub(crate) fn chain(head: Head<'_, P>, dead: &[P::Record<'_>]) -> Weighed<P> {
        let chain = Link::to(head);
        let (mut count, mut bytes) = (0, weight::<P>(dead));
        for_nodes(&chain, |node| {
            count += 1;
            // SAFETY: nodes of a chain are there as long as its head.
            bytes += unsafe { Head::from_word(node) }.map_or(0, Head::memory) as u64;
        });
        let objects = count + dead.len() as u64;
        (Self::Chain(chain, dead.iter().filter_map(|record| P::dead(*record)).collect()), (objects, bytes))
    }

    /// A node alone.
    pub(crate) fn node(node: Head<'_, P>) -> Weighed<P> {
        (Self::Node(Link::to(node)), (1, node.memory() as u64))
    }

    /// Frees the nodes and records: calls `give` with the block of each; gives back a PID. What it had in models and schedules is kept
    /// until the tree goes, in `graves`, so that who still has one is found out.
    ///
    /// # Safety
    /// Nobody has any of them.
    pub(crate) unsafe fn free(self, graves: &Graves<P>, mut give: impl FnMut(Block)) -> Option<Pid> {
        let (link, dead) = match self {
            Self::Pid(pid) => return Some(pid),
            Self::Node(link) => {
                // SAFETY: nobody else has it, as the caller says.
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

/// What becomes of freed nodes and records: their blocks are used again; in models and schedules only when the tree goes.
#[derive(Debug)]
pub(crate) struct Graves<P: Pairs> {
    #[cfg(any(all(test, loom), shuttle))]
    nodes: std::sync::Mutex<Vec<Made<P>>>,
    #[cfg(any(all(test, loom), shuttle))]
    records: std::sync::Mutex<Vec<Dead>>,
    pairs: std::marker::PhantomData<fn() -> P>,
}

impl<P: Pairs> Graves<P> {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(any(all(test, loom), shuttle))]
            nodes: std::sync::Mutex::default(),
            #[cfg(any(all(test, loom), shuttle))]
            records: std::sync::Mutex::default(),
            pairs: std::marker::PhantomData,
        }
    }

    /// Frees the node of a word.
    ///
    /// # Safety
    /// It is a node's. Nobody has it or will have it.
    pub(crate) unsafe fn bury(&self, word: *mut Node<P>, give: &mut impl FnMut(Block)) {
        let Some(at) = NonNull::new(word.map_addr(|addr| addr & !SEEN)) else { return };
        // SAFETY: the caller's word.
        unsafe { at.as_ref() }.watch.free();
        let made = Made(at);
        #[cfg(any(all(test, loom), shuttle))]
        {
            let _ = give;
            self.nodes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(made);
        }
        #[cfg(not(any(all(test, loom), shuttle)))]
        // SAFETY: the caller's word.
        give(unsafe { made.free() });
    }

    /// Frees a record.
    ///
    /// # Safety
    /// Nobody has it or will have it.
    pub(crate) unsafe fn bury_record(&self, dead: Dead, give: &mut impl FnMut(Block)) {
        dead.bury();
        #[cfg(any(all(test, loom), shuttle))]
        {
            let _ = give;
            self.records.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(dead);
        }
        #[cfg(not(any(all(test, loom), shuttle)))]
        // SAFETY: the caller's word.
        give(unsafe { dead.free() });
    }

    /// Takes apart what is kept; nobody has any of it.
    pub(crate) fn empty(&mut self, mut give: impl FnMut(Block)) {
        #[cfg(any(all(test, loom), shuttle))]
        {
            for made in self.nodes.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).drain(..) {
                // SAFETY: nobody had it when it was buried, and it is here once.
                give(unsafe { made.free() });
            }
            for dead in self.records.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).drain(..) {
                // SAFETY: as above.
                give(unsafe { dead.free() });
            }
        }
        let _ = &mut give;
    }
}

/// Frees everything that can be reached from these pages' words, each node once: contents of a merge that was not completed are
/// reachable from two. Says how many bytes it was.
///
/// # Safety
/// Nobody has any of the nodes, and none of them is retired.
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
        // SAFETY: the caller's word; each is in the set once.
        if let Some(node) = unsafe { Head::from_word(word) } {
            bytes += node.memory();
            node.for_records(|record| {
                bytes += P::record_memory(record);
                dead.extend(P::dead(record));
            });
        }
        for dead in dead {
            // SAFETY: a record of a node in the table is in no other one (N5), and not retired (N7).
            unsafe { graves.bury_record(dead, &mut give) };
        }
        // SAFETY: the caller's word.
        unsafe { graves.bury(word, &mut give) };
    }
    bytes
}
