//! Descents, and lookups by readers that run concurrently with the writer.
//!
//! A reader reads the version of a child before it validates the version of the parent. If the validation succeeds, the parent referenced
//! the child at the time when the reader read the child's version. A get reads the leaf's version, then the value, and then validates the
//! version. If validations fail repeatedly, the writer waits for the reader (see [`pmem::stripe`]).

use pmem::pending::Pending;
use pmem::simd::{BELOW, UP_TO};
use pmem::stripe::{Descent, Step, Version};
use pmem::{Error, Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::shape::{LEVELS_MAX, Link, Node, Shape};
use crate::tree::Tree;
use index::Target;
use index::{Life, Schema};

/// The comparison of a node's keys. It is chosen once per operation, because a choice at every node costs more than the comparison.
pub trait Search {
    /// Lines of a node if the operation is compiled for one size; 0 for any size.
    const LINES: usize;

    /// Prefetches a node that will be searched next.
    fn prefetch<M: Medium>(medium: &M, shape: &Shape, node: Node);

    /// The mask of entries whose keys compare with the probe as `WHICH` says (see [`pmem::simd`]). `None` if this search or medium has no
    /// such comparison.
    fn mask<M: Medium, S: Schema, const WHICH: u8>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Option<u64>;
}

/// Compares keys one by one.
#[derive(Debug)]
pub struct Scalar;

impl Search for Scalar {
    const LINES: usize = 0;

    #[inline(always)]
    fn prefetch<M: Medium>(medium: &M, shape: &Shape, node: Node) {
        medium.prefetch(node.0, shape.bytes());
    }

    #[inline(always)]
    fn mask<M: Medium, S: Schema, const WHICH: u8>(
        _medium: &M,
        _shape: &Shape,
        _node: Node,
        _probe: S::Probe<'_>,
    ) -> Option<u64> {
        None
    }
}

/// Compares eight keys at a time if `WIDE`, else four. Operations use it only if the processor has these vectors
/// ([`pmem::simd::Vectors::of_processor`]).
#[derive(Debug)]
pub struct Vector<const LINES: usize, const WIDE: bool>(());

impl<const LINES: usize, const WIDE: bool> Search for Vector<LINES, WIDE> {
    const LINES: usize = LINES;

    #[inline(always)]
    fn prefetch<M: Medium>(medium: &M, shape: &Shape, node: Node) {
        // The vector comparison reads all keys at once, with the payloads beside them. Payloads in a column of their own would miss the
        // cache after it.
        if shape.payload_step == 1 {
            let first = shape.payloads_at / 8 * pmem::LINE;
            medium.prefetch(node.0 + first, shape.bytes() - first);
        }
    }

    #[inline(always)]
    fn mask<M: Medium, S: Schema, const WHICH: u8>(
        medium: &M,
        shape: &Shape,
        node: Node,
        probe: S::Probe<'_>,
    ) -> Option<u64> {
        if !S::PLAIN {
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        {
            use pmem::simd::{narrow, wide};
            let probe = S::plain(probe);
            if shape.key_step == 1 {
                let lines = medium.lines(node.0, shape.lines as usize)?;
                let (first, count) = (shape.keys_at as usize, shape.capacity);
                return Some(if WIDE {
                    // SAFETY: operations are entered with `Vector` only after the processor was asked (see `dispatch`).
                    unsafe { wide::key_mask::<WHICH>(lines, first, count, probe) }
                } else {
                    // SAFETY: as above.
                    unsafe { narrow::key_mask::<WHICH>(lines, first, count, probe) }
                });
            }
            let first_line = shape.keys_at / 8;
            let lines =
                medium.lines(node.0 + first_line * pmem::LINE, (shape.lines - first_line) as usize)?;
            let before = shape.keys_at % 8 / 2;
            let mask = if WIDE {
                // SAFETY: as above.
                unsafe { wide::pair_mask::<WHICH>(lines, probe) }
            } else {
                // SAFETY: as above.
                unsafe { narrow::pair_mask::<WHICH>(lines, probe) }
            };
            Some(mask >> before)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (medium, shape, node, probe);
            None
        }
    }
}

/// Runs a body. It is inlined into a function that is compiled with the processor's vector features.
macro_rules! with_vectors {
    ($features:literal, $vector:ty, $search:ident => $body:expr) => {{
        type $search = $vector;
        #[target_feature(enable = $features)]
        fn run<R>(body: impl FnOnce() -> R) -> R {
            body()
        }
        // SAFETY: `wide` has this value only if the processor has these features.
        unsafe {
            run(
                #[inline(always)]
                || $body,
            )
        }
    }};
}
pub(crate) use with_vectors;

/// [`with_vectors`] with AVX-512.
macro_rules! with_wide {
    ($lines:literal, $search:ident => $body:expr) => {
        crate::search::with_vectors!(
            "avx512f,avx512dq,popcnt,bmi1,bmi2",
            crate::search::Vector<$lines, true>,
            $search => $body
        )
    };
}
pub(crate) use with_wide;

/// [`with_vectors`] with AVX2, for nodes of any size.
macro_rules! with_narrow {
    ($search:ident => $body:expr) => {
        crate::search::with_vectors!(
            "avx2,popcnt,lzcnt,bmi1,bmi2",
            crate::search::Vector<0, false>,
            $search => $body
        )
    };
}
pub(crate) use with_narrow;

/// Runs a body with the scalar search. It is compiled once, not at every call site.
macro_rules! without_vectors {
    ($search:ident => $body:expr) => {{
        type $search = crate::search::Scalar;
        #[inline(never)]
        fn run<R>(body: impl FnOnce() -> R) -> R {
            body()
        }
        run(
            #[inline(always)]
            || $body,
        )
    }};
}
pub(crate) use without_vectors;

/// Runs an operation with the search that fits the processor, the medium and the node size: `dispatch!(tree, V => body)`.
///
/// The body is compiled once for each search that the tree's types (`M`, `S`, `L` and `D` in the calling scope) allow: without vectors;
/// with AVX-512 for any node size, if keys are words; with AVX-512 for nodes of 16 lines and with AVX2, if the engine is also
/// [specialised](crate::layout::Layouts::SPECIALISED). This is for short operations that are called often. Other operations use
/// [`dispatch_any`], or no vectors.
macro_rules! dispatch {
    ($tree:expr, $search:ident => $body:expr) => {
        match $tree.wide {
            #[cfg(target_arch = "x86_64")]
            crate::tree::Wide::Sixteen
                if const { M::SHOWS_LINES && S::PLAIN && D::SPECIALISED && L::SPECIALISED } =>
            {
                crate::search::with_wide!(16, $search => $body)
            }
            #[cfg(target_arch = "x86_64")]
            crate::tree::Wide::Any if const { M::SHOWS_LINES && S::PLAIN } => {
                crate::search::with_wide!(0, $search => $body)
            }
            #[cfg(target_arch = "x86_64")]
            crate::tree::Wide::Narrow
                if const { M::SHOWS_LINES && S::PLAIN && D::SPECIALISED && L::SPECIALISED } =>
            {
                crate::search::with_narrow!($search => $body)
            }
            _ => crate::search::without_vectors!($search => $body),
        }
    };
}
pub(crate) use dispatch;

/// As [`dispatch`], with one vector form for all node sizes.
macro_rules! dispatch_any {
    ($tree:expr, $search:ident => $body:expr) => {
        match $tree.wide {
            #[cfg(target_arch = "x86_64")]
            crate::tree::Wide::Sixteen | crate::tree::Wide::Any if const { M::SHOWS_LINES && S::PLAIN } => {
                crate::search::with_wide!(0, $search => $body)
            }
            #[cfg(target_arch = "x86_64")]
            crate::tree::Wide::Narrow
                if const { M::SHOWS_LINES && S::PLAIN && D::SPECIALISED && L::SPECIALISED } =>
            {
                crate::search::with_narrow!($search => $body)
            }
            _ => crate::search::without_vectors!($search => $body),
        }
    };
}
pub(crate) use dispatch_any;

/// A leaf and the version that the reader read before it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The leaf.
    pub leaf: Node,
    /// The version before the first read of the leaf.
    pub version: Version,
}

/// The result of a lookup, and the leaf of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub found: bool,
    pub leaf: Node,
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// The geometry of a leaf. It is a compile-time constant in operations for one size.
    #[inline(always)]
    pub(crate) fn leaf_for<V: Search>(&self) -> Shape {
        if V::LINES == 0 { self.leaf } else { L::Leaf::SHAPES[V::LINES][S::KEY_WORDS - 1] }
    }

    /// The geometry of an inner node.
    #[inline(always)]
    pub(crate) fn inner_for<V: Search>(&self) -> Shape {
        if V::LINES == 0 { self.inner } else { L::Inner::SHAPES[V::LINES][S::KEY_WORDS - 1] }
    }

    /// The child of an inner node for the target. Returns the number of separators at or below the target (for `Below`: strictly below),
    /// the child, and the number of the entry that references it (none for the leftmost child).
    #[inline(always)]
    pub(crate) fn child<V: Search>(
        &self,
        node: Node,
        leftmost: Node,
        target: Target<S::Probe<'_>>,
    ) -> (usize, Node, Option<usize>) {
        let (medium, shape) = (self.region.medium(), &self.inner_for::<V>());
        let (rank, index) = match target {
            Target::Holding(probe) => L::Inner::floor::<_, S, V, UP_TO>(medium, shape, node, probe),
            Target::Below(probe) => L::Inner::floor::<_, S, V, BELOW>(medium, shape, node, probe),
            Target::First => (0, None),
            Target::Last => match L::Inner::count(medium, shape, node) {
                0 => (0, None),
                count => (count, Some(L::Inner::nth::<_, S>(medium, shape, node, count - 1))),
            },
        };
        match index {
            None => (0, leftmost, None),
            Some(index) => (rank, Node::of_payload(medium.word(shape.payload_at(node, index))), Some(index)),
        }
    }

    /// Descends to the leaf for `target`, as a reader. If `low` is given, it gets the separator that is the leaf's lower bound, or `None`
    /// if there is none.
    #[inline(always)]
    pub(crate) fn find_leaf<V: Search>(
        &self,
        target: Target<S::Probe<'_>>,
        mut low: Option<&mut Option<S::KeyBuf>>,
    ) -> Result<Seen> {
        let (medium, shape) = (self.region.medium(), &self.inner_for::<V>());
        loop {
            if let Some(low) = low.as_deref_mut() {
                *low = None;
            }
            let mut above = None;
            let descent = self.stripes.descend(
                || self.root().0,
                LEVELS_MAX,
                // Without the attribute it would be compiled by itself, without the vector instructions.
                #[inline(always)]
                |at| {
                    let node = Node(at);
                    let Some(link) = Link::below(medium, node, above) else { return Step::Nonsense };
                    above = Some(link.level);
                    if link.level == 0 {
                        return Step::Target(());
                    }
                    let (_, child, index) = self.child::<V>(node, link.node, target);
                    V::prefetch(medium, shape, child);
                    if let (Some(low), Some(index)) = (low.as_deref_mut(), index) {
                        S::read_key(medium, shape.key(medium, node, index), low.get_or_insert_default());
                    }
                    Step::Child(child.0)
                },
            );
            return match descent {
                Some(Descent::Target { node, version, .. }) => Ok(Seen { leaf: Node(node), version }),
                Some(Descent::Nonsense { node }) => Err(Error::Corrupt { what: "node", at: node }),
                Some(Descent::TooDeep { node }) => {
                    Err(Error::Corrupt { what: "path deeper than any tree, at node", at: node })
                }
                // A validation failed. Either a change was made, or a change will never be finished.
                None if self.stripes.is_abandoned() => Err(Error::Failed),
                None => continue,
            };
        }
    }

    /// True if a leaf must be the one for a probe with this rank in it: it has keys on both sides of the probe, or it is the last leaf and
    /// has keys below the probe. Leaves have disjoint ranges, so no other leaf fits. O(1).
    #[inline(always)]
    fn encloses<V: Search>(&self, leaf: Node, rank: usize) -> bool {
        let (medium, shape) = (self.region.medium(), &self.leaf_for::<V>());
        rank > 0 && (rank < L::Leaf::count(medium, shape, leaf) || self.is_last_leaf(leaf))
    }

    fn is_last_leaf(&self, leaf: Node) -> bool {
        Link::read(self.region.medium(), leaf).is_some_and(|link| link.level == 0 && link.node.0 == 0)
    }

    /// As [`Tree::encloses`], for a probe whose rank is unknown.
    #[inline(always)]
    pub(crate) fn surrounds<V: Search>(&self, leaf: Node, probe: S::Probe<'_>) -> bool {
        let (medium, shape) = (self.region.medium(), &self.leaf_for::<V>());
        self.encloses::<V>(leaf, L::Leaf::locate::<_, S, V>(medium, shape, leaf, probe).rank)
    }

    /// A key of a leaf. `None` if the leaf has none, or the words are not sound.
    fn key_of(&self, leaf: Node) -> Option<S::KeyBuf> {
        let (medium, shape) = (self.region.medium(), &self.leaf);
        let index = L::Leaf::any::<_, S>(medium, shape, leaf)?;
        let mut key = S::KeyBuf::default();
        S::read_key(medium, shape.key(medium, leaf, index), &mut key).then_some(key)
    }

    /// The child of an inner node for `target`, and true if `key`, a key of the leaf at the end of the path, leads to the same child.
    fn shared_child<V: Search>(
        &self,
        (node, link): (Node, Link),
        target: Target<S::Probe<'_>>,
        key: &S::KeyBuf,
    ) -> (Node, bool) {
        let (_, child, index) = self.child::<V>(node, link.node, target);
        let (_, _, of_key) = self.child::<V>(node, link.node, Target::Holding(S::probe(S::borrow(key))));
        (child, index == of_key)
    }

    /// Verifies, for a reader that found nothing in a leaf, that this is the target's leaf. False if the leaf changed since the reader read
    /// it. A damaged pointer may lead to another sound leaf. The keys of that leaf lead down a different path than the one that the reader
    /// took.
    ///
    /// # Errors
    /// `Corrupt` if it is another leaf.
    // If this function is inlined, it slows down every lookup, also those that find their key: by 2 to 7 % in measurements.
    #[inline(never)]
    pub(crate) fn is_right_leaf(&self, target: Target<S::Probe<'_>>, seen: &Seen) -> Result<bool> {
        let is_surely = match target {
            Target::Holding(probe) | Target::Below(probe) => {
                dispatch_any!(self, V => self.surrounds::<V>(seen.leaf, probe))
            }
            Target::First => false,
            Target::Last => self.is_last_leaf(seen.leaf),
        };
        if is_surely { Ok(self.stripes.check(seen.version)) } else { self.path_agrees(target, seen) }
    }

    #[inline(never)]
    fn path_agrees(&self, target: Target<S::Probe<'_>>, seen: &Seen) -> Result<bool> {
        let medium = self.region.medium();
        let key = self.key_of(seen.leaf);
        if !self.stripes.check(seen.version) {
            return Ok(false);
        }
        let Some(key) = key else { return Ok(true) };
        let mut strayed = None;
        let step = |at| match Link::read(medium, Node(at)) {
            None => Step::Nonsense,
            Some(link) if link.level == 0 => Step::Target(()),
            Some(link) => {
                let (child, fits) = self.shared_child::<Scalar>((Node(at), link), target, &key);
                if !fits {
                    strayed = Some(at);
                }
                Step::Child(child.0)
            }
        };
        let ended = self.stripes.descend(|| self.root().0, LEVELS_MAX, step);
        let arrived = matches!(ended, Some(Descent::Target { node, .. }) if node == seen.leaf.0);
        // If nothing changed, all reads on the path were right. If the leaf did not change, its key was in it all the time.
        if !arrived || !self.stripes.check(seen.version) {
            return Ok(false);
        }
        strayed.map_or(Ok(true), |at| Err(Error::Corrupt { what: "child pointer", at }))
    }

    /// For the writer that found no entry of a key in a leaf: verifies that this is the key's leaf.
    ///
    /// # Errors
    /// `Corrupt` if it is another leaf.
    #[inline(always)]
    pub(crate) fn confirm_leaf<V: Search>(&self, leaf: Node, rank: usize, probe: S::Probe<'_>) -> Result<()> {
        if self.encloses::<V>(leaf, rank) { Ok(()) } else { self.confirm_path(leaf, probe) }
    }

    #[inline(never)]
    fn confirm_path(&self, leaf: Node, probe: S::Probe<'_>) -> Result<()> {
        let Some(key) = self.key_of(leaf) else { return Ok(()) };
        let medium = self.region.medium();
        let mut node = self.root();
        for _ in 0..LEVELS_MAX {
            let Some(link) = Link::read(medium, node) else { break };
            if link.level == 0 {
                return Ok(());
            }
            let (child, fits) = self.shared_child::<Scalar>((node, link), Target::Holding(probe), &key);
            if !fits {
                return Err(Error::Corrupt { what: "child pointer", at: node.0 });
            }
            node = child;
        }
        Err(Error::Corrupt { what: "node", at: node.0 })
    }

    #[inline(always)]
    fn look_with<V: Search>(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Result<Looked> {
        let (medium, shape) = (self.region.medium(), &self.leaf_for::<V>());
        let probe = S::probe(key);
        let mut value = value;
        let mut tries = self.stripes.tries();
        loop {
            let seen = self.find_leaf::<V>(Target::Holding(probe), None)?;
            let Some(index) = L::Leaf::find::<_, S, V>(medium, shape, seen.leaf, probe) else {
                if self.is_right_leaf(Target::Holding(probe), &seen)? {
                    return Ok(Looked { found: false, leaf: seen.leaf });
                }
                tries.fail()?;
                continue;
            };
            let entry = shape.entry(medium, seen.leaf, index);
            let sound = value.as_deref_mut().is_none_or(|value| S::read_value(medium, &entry, value));
            if self.stripes.check(seen.version) {
                return if sound {
                    Ok(Looked { found: true, leaf: seen.leaf })
                } else {
                    Err(Error::Corrupt { what: "record", at: entry.payload })
                };
            }
            tries.fail()?;
        }
    }

    /// Copies the value of `key` into `value` (if given). False if the key is absent. Over a journal it waits until the result is durable.
    ///
    /// # Errors
    /// `Corrupt` if the path or the record is damaged; `Failed` if the writer failed during a change of the nodes that are read.
    #[inline]
    pub fn get(&self, key: &S::Key, mut value: Option<&mut S::ValueBuf>) -> Result<bool> {
        loop {
            let found = match &self.pending {
                None => self.look(key, value.as_deref_mut())?.found,
                Some(pending) => self.get_durable(pending, key, value.as_deref_mut())?,
            };
            if !self.images.is_running() {
                return Ok(found);
            }
            let Some((before, ticket)) = self.images.before(key, value.as_deref_mut()) else {
                return Ok(found);
            };
            // After an error it was rolled back: read again.
            if self.wait_for_image(ticket).is_ok() {
                return Ok(before);
            }
        }
    }

    /// Looks up a key, durable or not.
    #[inline(always)]
    pub(crate) fn look(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Result<Looked> {
        dispatch!(self, V => self.look_with::<V>(key, value))
    }

    /// A get over a journal. Returns when its result is durable.
    fn get_durable(
        &self,
        pending: &Pending,
        key: &S::Key,
        mut value: Option<&mut S::ValueBuf>,
    ) -> Result<bool> {
        loop {
            let failed = pending.has_failed();
            self.readable(failed)?;
            let looked = self.look(key, value.as_deref_mut())?;
            if failed || !pending.may_wait_for_node(looked.leaf.0) {
                return Ok(looked.found);
            }
            match self.wait_for_key(pending, S::hash(key)) {
                Some(ticket) if self.wait_to_read(pending, ticket).is_err() => {} // the write was rolled back: read again
                _ => return Ok(looked.found),
            }
        }
    }
}
