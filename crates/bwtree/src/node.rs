//! Nodes: base pages and deltas, and the chains that they are linked to [Bw-tree §III].
//!
//! ```text
//! mapping table           newest                       oldest
//!   word of P  ────────►  delta ──next──► delta ──next──► base page
//!                                           │
//!                          a merge delta has a second arm: the contents of the page that was merged
//! ```
//!
//! Invariants:
//! * N1: a node is not changed after its address went into the mapping table.
//! * N2: what a node links to is retired with it or later, never before.
//! * N3: a node has one owner: the page whose chain it is in. The contents of a removed page are owned by the merge delta from the
//!   moment it is in the table; the remove delta in front of them is not.
//! * N4: a group takes the place of one with a change less, and what that links to. The earlier one is retired alone.
//!
//! So who found a node in the table while seated may follow links from it as long as he is seated.
//!
//! Records that do not lie in pages (those of byte strings) outlive nodes: groups and leaves have pointers to them.
//! * N5: a record has one owner: the page whose chain has it. No other page's chain does that a newcomer can find, and in the chain one
//!   node does. Nodes that nobody knows yet may point to it, too; so does, for a moment, the chain of the only child whose contents
//!   became the root's, which is found by those alone who were there before.
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
#[cfg(not(any(all(test, loom), shuttle)))]
use std::mem;
use std::ptr;

use crate::page::Term;
use crate::pairs::{Changes, Group, Pairs};
use crate::record::{Dead, Kept};
use crate::sync::Watch;
use crate::table::Pid;

/// A link to a node; see N2.
#[derive(Debug)]
pub(crate) struct Link<P: Pairs>(*mut Node<P>);

/// A base page or a delta.
#[derive(Debug)]
pub(crate) struct Node<P: Pairs> {
    /// What the page contains, or how it differs from what `next` is.
    pub(crate) body: Body<P>,
    next: Link<P>,
    /// The number of this state of the page: no two nodes have the same. Of an update, the LSN.
    pub(crate) lsn: u64,
    /// Deltas in front of the base page, this one too, a group for as many as it has changes.
    pub(crate) depth: u32,
    /// 0: a leaf.
    pub(crate) level: u32,
    /// Bytes that the page would take in a base page.
    pub(crate) bytes: usize,
    watch: Watch,
}

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
    /// A base page of records.
    Leaf { run: P::Leaf, bounds: Bounds<P> },
    /// A base page of index terms: `children[0]` from the low key on, `children[i]` from `keys[i - 1]` on.
    Inner { keys: P::Keys, children: Box<[Pid]>, bounds: Bounds<P> },
    /// Records are there, or not: several changes, which took each other's place in the mapping table (N4).
    Group { changes: P::Group },
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

// SAFETY: a node is not changed after others can see it (N1), and what it owns may be used and dropped by any thread.
unsafe impl<P: Pairs> Sync for Node<P> {}
// SAFETY: as above.
unsafe impl<P: Pairs> Send for Node<P> {}

impl<P: Pairs> Link<P> {
    /// A link to a node that its new owner will keep (N2, N3).
    pub(crate) fn to(node: &Node<P>) -> Self {
        Self(ptr::from_ref(node).cast_mut())
    }

    /// The node.
    #[inline(always)]
    fn get(&self) -> Option<&Node<P>> {
        // SAFETY: a link leads nowhere, or to a node that is there as long as the one with the link (N2).
        let node = unsafe { self.0.as_ref() };
        if let Some(node) = node {
            node.watch.look();
        }
        node
    }
}

impl<P: Pairs> Body<P> {
    /// How many deltas it stands for.
    pub(crate) fn changes(&self) -> u32 {
        match self {
            Self::Leaf { .. } | Self::Inner { .. } => 0,
            Self::Group { changes } => changes.count() as u32,
            _ => 1,
        }
    }

    /// The second arm of a merge delta.
    pub(crate) fn contents(&self) -> Option<&Node<P>> {
        if let Self::Merge { contents, .. } = self { contents.get() } else { None }
    }

    /// A base page of these records.
    pub(crate) fn leaf(records: &[P::Record<'_>], bounds: Bounds<P>) -> Self {
        let (low, high) = (bounds.low.as_ref(), bounds.high.as_ref());
        // SAFETY: the records are owned by what this page will take the place of, or by nobody; by N6 it owns them then, and by N7 they
        // are there as long as anybody has found it.
        let word = unsafe { Kept::word() };
        let run = P::leaf(records, low.map(Borrow::borrow), high.map(Borrow::borrow), word);
        Self::Leaf { run, bounds }
    }

    /// A base page of these terms, of which the first's key is the page's low key.
    pub(crate) fn inner(terms: &[Term<'_, P>], bounds: Bounds<P>) -> Self {
        let keys: Vec<_> = terms.iter().skip(1).filter_map(|(key, _)| *key).collect();
        let (low, high) = (bounds.low.as_ref(), bounds.high.as_ref());
        let keys = P::separators(&keys, low.map(Borrow::borrow), high.map(Borrow::borrow));
        Self::Inner { keys, children: terms.iter().map(|(_, child)| *child).collect(), bounds }
    }

    /// The leaf with this head as a base page, if there are but changes of records in front of one; and what is not in it any more.
    pub(crate) fn merged(head: &Node<P>) -> Option<(Self, Vec<P::Record<'_>>)> {
        let mut changes = Vec::with_capacity(head.depth as usize);
        let mut node = head;
        loop {
            match &node.body {
                Self::Group { changes: group } => {
                    changes.extend((0..group.count()).filter_map(|i| group.get(i)))
                }
                Self::Leaf { run, bounds: Bounds { low, high, right } } => {
                    // SAFETY: as in `leaf`.
                    let word = unsafe { Kept::word() };
                    let (run, dead) = P::merged(run, Changes(changes), word);
                    let bounds = Bounds { low: low.clone(), high: high.clone(), right: *right };
                    return Some((Self::Leaf { run, bounds }, dead));
                }
                _ => return None,
            }
            node = node.next()?;
        }
    }

    /// Calls `with` with each record that it has.
    fn for_records<'b>(&'b self, mut with: impl FnMut(P::Record<'b>)) {
        match self {
            Self::Leaf { run, .. } => (0..P::len(run)).for_each(|i| with(P::at(run, i))),
            Self::Group { changes } => (0..changes.count()).filter_map(|i| changes.get(i)).for_each(with),
            _ => {}
        }
    }

    /// Bytes of memory behind it, without its records.
    fn memory(&self) -> usize {
        let own = |key: &P::Fence| P::fence_memory(key);
        let may = |key: &Option<P::Fence>| key.as_ref().map_or(0, P::fence_memory);
        match self {
            Self::Leaf { run, bounds } => P::leaf_memory(run) + may(&bounds.low) + may(&bounds.high),
            Self::Inner { keys, children, bounds } => {
                P::keys_memory(keys) + size_of_val(&**children) + may(&bounds.low) + may(&bounds.high)
            }
            Self::Group { .. } => 0,
            Self::IndexMerging { key } => own(key),
            Self::IndexInsert { key, high, .. } | Self::Merge { key, high, .. } => own(key) + may(high),
            Self::IndexDelete { key, low, high, .. } => own(key) + may(low) + may(high),
            Self::Remove { low } => may(low),
        }
    }
}

/// A node with one more change of a leaf.
pub(crate) struct Changed<'h, P: Pairs> {
    pub(crate) node: Box<Node<P>>,
    /// It is to take the head's place, not to stand in front of it.
    pub(crate) takes_place: bool,
    /// The earlier change of the key, which is not in it any more.
    pub(crate) dead: Option<P::Record<'h>>,
}

impl<P: Pairs> Node<P> {
    /// A base page.
    pub(crate) fn base(level: u32, lsn: u64, bytes: usize, body: Body<P>) -> Box<Self> {
        Box::new(Self { body, next: Link(ptr::null_mut()), lsn, depth: 0, level, bytes, watch: Watch::new() })
    }

    /// A delta in front of `head`, which makes it a page of so many bytes.
    #[inline(always)]
    pub(crate) fn delta(head: &Self, lsn: u64, bytes: usize, body: Body<P>) -> Box<Self> {
        let (depth, level) = (head.depth + 1, head.level);
        Box::new(Self { body, next: Link::to(head), lsn, depth, level, bytes, watch: Watch::new() })
    }

    /// A change of a leaf: in a group with those that the head has, if that is one and `grows`, otherwise in a group in front of it.
    #[inline(always)]
    pub(crate) fn changed<'h>(
        head: &'h Self,
        grows: bool,
        lsn: u64,
        bytes: usize,
        change: P::Record<'_>,
    ) -> Option<Changed<'h, P>> {
        // SAFETY: the records of the head's group are owned by its page, the new one by who changes it: N6 and N7, as in `Body::leaf`.
        let word = unsafe { Kept::word() };
        let before =
            if let Body::Group { changes } = &head.body { Some(changes).filter(|_| grows) } else { None };
        let (level, behind, takes_place, (changes, dead)) = match before {
            Some(before) if let Some(group) = P::Group::with(Some(before), change, word) => {
                (head.level, head.next()?, true, group)
            }
            _ => (head.level, head, false, P::Group::with(None, change, word)?),
        };
        let (depth, next) = (behind.depth + changes.count() as u32, Link::to(behind));
        let body = Body::Group { changes };
        let node = Box::new(Self { body, next, lsn, depth, level, bytes, watch: Watch::new() });
        Some(Changed { node, takes_place, dead })
    }

    /// What this delta is in front of; nothing for a base page.
    #[inline(always)]
    pub(crate) fn next(&self) -> Option<&Self> {
        self.next.get()
    }

    /// Bytes of memory that it takes, without what it links to.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.body.memory()
    }

    /// Bytes of memory that a chain takes, with its records.
    pub(crate) fn chain_memory(head: &Self) -> usize {
        let mut bytes = 0;
        let mut next = Some(head);
        while let Some(node) = next {
            node.body.for_records(|record| bytes += P::record_memory(record));
            bytes += node.memory() + node.body.contents().map_or(0, Self::chain_memory);
            next = node.next();
        }
        bytes
    }

    /// Gives it up, to be found through the mapping table.
    pub(crate) fn into_raw(self: Box<Self>) -> *mut Self {
        Box::into_raw(self)
    }

    /// Follows a pointer out of the mapping table.
    ///
    /// # Safety
    /// It is null, or a node's that [`Node::into_raw`] gave up and that is not freed during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn from_table<'a>(pointer: *mut Self) -> Option<&'a Self> {
        // SAFETY: the caller's word.
        let node = unsafe { pointer.as_ref() };
        if let Some(node) = node {
            node.watch.look();
        }
        node
    }

    /// Takes back one that did not get into the mapping table, or is being freed.
    ///
    /// # Safety
    /// [`Node::into_raw`] gave it up, and nobody has it or will have it.
    pub(crate) unsafe fn take_back(pointer: *mut Self) -> Box<Self> {
        // SAFETY: the caller's word. Before it is taken: whoever is found out here does not own it.
        unsafe { &*pointer }.watch.free();
        // SAFETY: the caller's word.
        unsafe { Box::from_raw(pointer) }
    }
}

/// What was taken out of the tree, to be freed.
#[derive(Debug)]
pub(crate) enum Retired<P: Pairs> {
    /// A node and all that it links to; and records that were in it.
    Chain(Link<P>, Vec<Dead>),
    /// A node alone: what it links to is another's; and a record that was in it.
    Node(Link<P>, Option<Dead>),
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
        arms.extend(node.body.contents());
        next = node.next().or_else(|| arms.pop());
        with(ptr::from_ref(node).cast_mut());
    }
}

impl<P: Pairs> Retired<P> {
    /// A chain, and what of its records is not in what took its place.
    pub(crate) fn chain(head: &Node<P>, dead: &[P::Record<'_>]) -> Weighed<P> {
        let chain = Link::to(head);
        let (mut count, mut bytes) = (0, weight::<P>(dead));
        for_nodes(&chain, |node| {
            count += 1;
            // SAFETY: nodes of a chain are there as long as its head.
            bytes += unsafe { &*node }.memory() as u64;
        });
        let objects = count + dead.len() as u64;
        (Self::Chain(chain, dead.iter().filter_map(|record| P::dead(*record)).collect()), (objects, bytes))
    }

    /// A node alone, and what of its records is not in what took its place.
    #[inline(always)]
    pub(crate) fn node(node: &Node<P>, dead: Option<P::Record<'_>>) -> Weighed<P> {
        let bytes = node.memory() as u64 + weight::<P>(dead.as_slice());
        (Self::Node(Link::to(node), dead.and_then(P::dead)), (1 + u64::from(dead.is_some()), bytes))
    }

    /// Frees the nodes and records; gives back a PID. What it had in models and schedules is kept until the tree goes, in `graves`, so
    /// that who still has one is found out.
    ///
    /// # Safety
    /// Nobody has any of them.
    pub(crate) unsafe fn free(self, graves: &Graves<P>) -> Option<Pid> {
        let bury = |node| {
            // SAFETY: nobody else has it, as the caller says; a chain has each node once.
            graves.bury(unsafe { Node::take_back(node) });
        };
        match self {
            Self::Pid(pid) => return Some(pid),
            Self::Node(link, dead) => {
                bury(link.0);
                dead.into_iter().for_each(|dead| graves.bury_record(dead));
            }
            Self::Chain(link, dead) => {
                for_nodes(&link, bury);
                dead.into_iter().for_each(|dead| graves.bury_record(dead));
            }
        }
        None
    }
}

fn weight<P: Pairs>(dead: &[P::Record<'_>]) -> u64 {
    dead.iter().map(|record| P::record_memory(*record) as u64).sum()
}

/// Where freed nodes and records go: to the allocator; in models and schedules only when the tree goes.
#[derive(Debug)]
pub(crate) struct Graves<P: Pairs> {
    #[cfg(any(all(test, loom), shuttle))]
    nodes: std::sync::Mutex<Vec<Box<Node<P>>>>,
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

    #[cfg_attr(any(all(test, loom), shuttle), allow(clippy::vec_box))]
    fn bury(&self, node: Box<Node<P>>) {
        #[cfg(any(all(test, loom), shuttle))]
        self.nodes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(node);
        #[cfg(not(any(all(test, loom), shuttle)))]
        mem::drop(node);
    }

    fn bury_record(&self, dead: Dead) {
        dead.bury();
        #[cfg(any(all(test, loom), shuttle))]
        self.records.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(dead);
        #[cfg(not(any(all(test, loom), shuttle)))]
        // SAFETY: `Retired::free` alone comes here; its caller's word.
        unsafe {
            dead.free();
        }
    }
}

#[cfg(any(all(test, loom), shuttle))]
impl<P: Pairs> Drop for Graves<P> {
    fn drop(&mut self) {
        let records = self.records.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for dead in records.drain(..) {
            // SAFETY: nobody had it when it was buried, and it is here once.
            unsafe { dead.free() };
        }
    }
}

/// Frees everything that can be reached from these pages' heads, each node once: contents of a merge that was not completed are
/// reachable from two. Says how many bytes it was.
///
/// # Safety
/// Nobody has any of the nodes, and none of them is retired.
pub(crate) unsafe fn free_all<P: Pairs>(heads: impl Iterator<Item = *mut Node<P>>) -> usize {
    let mut seen = std::collections::HashSet::new();
    for head in heads {
        for_nodes(&Link(head), |node| _ = seen.insert(node));
    }
    let mut bytes = 0;
    for node in seen {
        // SAFETY: the caller's word; each is in the set once.
        let node = unsafe { Node::take_back(node) };
        bytes += node.memory();
        node.body.for_records(|record| {
            bytes += P::record_memory(record);
            if let Some(dead) = P::dead(record) {
                dead.bury();
                // SAFETY: a record of a node in the table is in no other one (N5), and not retired (N7).
                unsafe { dead.free() };
            }
        });
    }
    bytes
}
