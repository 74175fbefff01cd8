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

use std::mem;
use std::ptr;

use crate::pairs::{Group, Pairs};
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
    pub(crate) low: Option<P::KeyBuf>,
    /// `None`: it is the last of its level.
    pub(crate) high: Option<P::KeyBuf>,
    /// The page from `high` on.
    pub(crate) right: Option<Pid>,
}

/// Kinds of nodes.
#[derive(Debug)]
pub(crate) enum Body<P: Pairs> {
    /// A base page of records.
    Leaf { keys: P::Keys, values: P::Values, bounds: Bounds<P> },
    /// A base page of index terms: `children[0]` from the low key on, `children[i]` from `keys[i - 1]` on.
    Inner { keys: P::Keys, children: Box<[Pid]>, bounds: Bounds<P> },
    /// A record is there, with this value.
    Put { key: P::KeyBuf, value: P::Held },
    /// A record is not there.
    Delete { key: P::KeyBuf },
    /// Records are there, or not: several changes, which took each other's place in the mapping table (N4).
    Group { changes: P::Group },
    /// Keys from `key` on are in page `right`.
    Split { key: P::KeyBuf, right: Pid },
    /// Keys from `key` on, below `high`, are below `child`.
    IndexInsert { key: P::KeyBuf, high: Option<P::KeyBuf>, child: Pid },
    /// The child at `key` is going to be merged into the one to its left. Who changes the structure of this page completes that first.
    IndexMerging { key: P::KeyBuf },
    /// The child at `key` is gone: keys from `low` on, below `high`, are below `child`.
    IndexDelete { key: P::KeyBuf, low: Option<P::KeyBuf>, high: Option<P::KeyBuf>, child: Pid },
    /// The page is being removed: what it had goes to its left sibling, or, if there is no `low`, becomes the root.
    Remove { low: Option<P::KeyBuf> },
    /// Keys from `key` on are in `contents`, which was another page's, with that page's high key and right sibling.
    Merge { key: P::KeyBuf, contents: Link<P>, high: Option<P::KeyBuf>, right: Option<Pid> },
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

    /// Bytes of memory behind it.
    fn memory(&self) -> usize {
        let own = |key: &P::KeyBuf| P::key_memory(key);
        let may = |key: &Option<P::KeyBuf>| key.as_ref().map_or(0, P::key_memory);
        match self {
            Self::Leaf { keys, values, bounds } => {
                P::keys_memory(keys) + P::values_memory(values) + may(&bounds.low) + may(&bounds.high)
            }
            Self::Inner { keys, children, bounds } => {
                P::keys_memory(keys) + size_of_val(&**children) + may(&bounds.low) + may(&bounds.high)
            }
            Self::Group { .. } => 0,
            Self::Put { key, value } => own(key) + P::held_memory(value),
            Self::Delete { key } | Self::Split { key, .. } | Self::IndexMerging { key } => own(key),
            Self::IndexInsert { key, high, .. } | Self::Merge { key, high, .. } => own(key) + may(high),
            Self::IndexDelete { key, low, high, .. } => own(key) + may(low) + may(high),
            Self::Remove { low } => may(low),
        }
    }
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

    /// A group of changes in front of `head`; or in its place, in front of what that is in front of, if it is a group itself and it takes
    /// its place.
    #[inline(always)]
    pub(crate) fn group(
        head: &Self,
        takes_place: bool,
        lsn: u64,
        bytes: usize,
        changes: P::Group,
    ) -> Box<Self> {
        let behind = head.next().filter(|_| takes_place).unwrap_or(head);
        let (depth, level) = (behind.depth + changes.count() as u32, head.level);
        let next = Link::to(behind);
        Box::new(Self { body: Body::Group { changes }, next, lsn, depth, level, bytes, watch: Watch::new() })
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

    /// Bytes of memory that a chain takes.
    pub(crate) fn chain_memory(head: &Self) -> usize {
        let mut bytes = 0;
        let mut next = Some(head);
        while let Some(node) = next {
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
        // SAFETY: the caller's word.
        unsafe { Box::from_raw(pointer) }
    }
}

/// Nodes that were taken out of the tree, to be freed.
#[derive(Debug)]
pub(crate) enum Retired<P: Pairs> {
    /// A node and all that it links to.
    Chain(Link<P>),
    /// A node alone: what it links to is another's.
    Node(Link<P>),
    /// A PID.
    Pid(Pid),
}

/// What was retired, with its objects and bytes.
pub(crate) type Weighed<P> = (Retired<P>, (u64, u64));

// SAFETY: a retired node is owned by who has this, and may be dropped by any thread.
unsafe impl<P: Pairs> Send for Retired<P> {}

impl<P: Pairs> Retired<P> {
    /// The nodes, each once.
    fn nodes(&self) -> Vec<*mut Node<P>> {
        match self {
            Self::Pid(_) => Vec::new(),
            Self::Node(link) => vec![link.0],
            Self::Chain(link) => {
                let mut nodes = Vec::new();
                let mut arms = vec![link.get()];
                while let Some(arm) = arms.pop() {
                    let mut next = arm;
                    while let Some(node) = next {
                        nodes.push(ptr::from_ref(node).cast_mut());
                        arms.push(node.body.contents());
                        next = node.next();
                    }
                }
                nodes
            }
        }
    }

    /// How many objects, and their bytes.
    pub(crate) fn weight(&self) -> (u64, u64) {
        match self {
            Self::Pid(_) => (1, 0),
            Self::Node(link) => (1, link.get().map_or(0, Node::memory) as u64),
            Self::Chain(_) => {
                let nodes = self.nodes();
                let bytes = nodes.iter().map(|node| {
                    // SAFETY: nodes of a retired chain are there until it is freed, and this has the chain.
                    unsafe { &**node }.memory()
                });
                (nodes.len() as u64, bytes.sum::<usize>() as u64)
            }
        }
    }

    /// Frees the nodes; gives back a PID. What it had in models and schedules is kept until the tree goes, in `graves`, so that
    /// who still has one is found out.
    ///
    /// # Safety
    /// Nobody has any of the nodes.
    pub(crate) unsafe fn free(self, graves: &Graves<P>) -> Option<Pid> {
        let bury = |node| {
            // SAFETY: nobody else has it, as the caller says; a chain has each node once (N3).
            let node = unsafe { Node::take_back(node) };
            node.watch.free();
            graves.bury(node);
        };
        match &self {
            Self::Pid(pid) => return Some(*pid),
            Self::Node(link) => bury(link.0),
            Self::Chain(_) => self.nodes().into_iter().for_each(bury),
        }
        None
    }
}

/// Where freed nodes go: to the allocator; in models and schedules only when the tree goes.
#[derive(Debug)]
pub(crate) struct Graves<P: Pairs> {
    #[cfg(any(all(test, loom), shuttle))]
    nodes: std::sync::Mutex<Vec<Box<Node<P>>>>,
    pairs: std::marker::PhantomData<fn() -> P>,
}

impl<P: Pairs> Graves<P> {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(any(all(test, loom), shuttle))]
            nodes: std::sync::Mutex::default(),
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
}

/// Frees everything that can be reached from these pages' heads, each node once: contents of a merge that was not completed are
/// reachable from two.
///
/// # Safety
/// Nobody has any of the nodes, and none of them is retired.
pub(crate) unsafe fn free_all<P: Pairs>(heads: impl Iterator<Item = *mut Node<P>>) {
    let mut seen = std::collections::HashSet::new();
    for head in heads {
        let chain = Retired::Chain(Link(head));
        seen.extend(chain.nodes());
    }
    for node in seen {
        // SAFETY: the caller's word; each is in the set once.
        mem::drop(unsafe { Node::take_back(node) });
    }
}
