//! Loading: after an open, the directory lacks leaves. Loading adds them while the index is in use.
//!
//! A list of ten million keys has half a million leaves. If an open read all of them, it would delay the first lookup. So an open reads the
//! heads of some chunks, spread evenly over the region. From each of these chunks that has leaves, it takes one leaf. The first directory
//! contains these leaves and the head of the list. A search descends to the nearest leaf below its key. From there it follows the links to
//! the right.
//!
//! Then the list is read in steps, from its head. A step adds leaves to the directory. If the number of keys is not known, as after a
//! crash, a step also counts the keys of its leaves. In that case a write of a key that the loading has not reached does not change the
//! number: a later step counts the key.
//!
//! Invariants:
//! * O1: every leaf of the directory is in the list. An open takes only allocated leaves, and these are in the list, with two exceptions: a
//!   leaf in the newest operation's intents (the durable list of the blocks that it allocates or frees), and the leaves of a cleared list
//!   that is being freed. So an open never takes a leaf of the intents. While a cleared list is being freed, an open takes only the head of
//!   the current list.
//! * O2: while the index is loading, only a clear removes leaves from the list. The clear begins the loading again, with the new list.

use std::cmp::Ordering as Order;

use index::leaf_list::bound::bound;
use index::leaf_list::recover::is_leaf_block;
use index::sorting::sort_unstable_by_first;
use index::{KEYS_UNKNOWN, Schema};
use pmem::alloc::{self, Kind};
use pmem::simd::Vectors;
use pmem::sync::Ordering;
use pmem::{Error, Found, Medium, Result, record};

use crate::index::{Line, Writer};
use crate::leaf::Leaf;
use crate::node::Child;
use crate::vectored::Lead;

/// Maximum number of chunks whose heads an open reads.
const CHUNKS_LOOKED_AT: u64 = 2048;
/// Leaves that are added to the directory in one step, while writers wait.
const LEAVES_OF_STEP: u64 = 64;
/// Leaves that are added to the directory before an open returns.
const LEAVES_OF_OPEN: u64 = 512;

/// How far the loading has come.
pub(crate) struct Loading<S: Schema> {
    /// The lower bound of the next leaf to add. All leaves before it are in the directory, and their keys are counted.
    next: S::KeyBuf,
    /// True if keys are counted.
    counts: bool,
}

impl<M: Medium, S: Schema> Line<M, S> {
    /// Builds the first directory and begins the loading. Stores nothing.
    ///
    /// # Errors
    /// `Corrupt` if the head of the list is damaged.
    pub(crate) fn begin_loading(&self, writer: &mut Writer<S>, found: Found) -> Result<()> {
        let medium = self.region.medium();
        let head = self.meta().head(medium)?;
        if !self.is_sound_leaf(head) || Leaf(head).low(medium) != 0 {
            return Err(Error::Corrupt { what: "leaf", at: head });
        }
        let mut leaves = vec![(S::KeyBuf::default(), Child::leaf(0, head))];
        if !self.has_garbage() {
            let doubtful: Vec<u64> = alloc::newest(&self.region).map(|(_, at)| at).collect();
            let sample = alloc::sample(&self.region, Kind::Leaf, CHUNKS_LOOKED_AT);
            for at in sample
                .filter(|at| !doubtful.contains(at) && is_leaf_block(self, *at) && self.is_sound_leaf(*at))
            {
                let low = Leaf(at).low(medium);
                if low != 0
                    && let Ok(key) = bound::<M, S>(medium, low)
                {
                    leaves.push((key, Child::leaf(low, at)));
                }
            }
            sort_unstable_by_first(&mut leaves[1..]);
        }
        let keys = match found {
            Found::Clean { keys } if keys != KEYS_UNKNOWN => Some(keys),
            _ => None,
        };
        self.changes.begin();
        let leaves = leaves.into_iter().map(|(_, leaf)| leaf).collect();
        self.directory.build::<M, S>(medium, &mut writer.own.own.spare, leaves);
        self.keys.store(keys.unwrap_or(0), Ordering::Release);
        writer.loading = Some(Loading { next: S::KeyBuf::default(), counts: keys.is_none() });
        self.loading.store(true, Ordering::Relaxed);
        self.changes.end();
        Ok(())
    }

    /// True if link and lower bound match their checks. Does not read the head of the chunk: a damaged head must not hide keys.
    fn is_sound_leaf(&self, at: u64) -> bool {
        let medium = self.region.medium();
        at != 0 && Leaf(at).is_sealed(medium) && Leaf(at).next(medium).is_some()
    }

    /// Adds the first leaves before an open returns: all leaves of a small index. If a leaf is damaged, the loading does not end, and reads
    /// of the leaf report it.
    pub(crate) fn load_little(&self) {
        for _ in 0..LEAVES_OF_OPEN / LEAVES_OF_STEP {
            if !matches!(self.load_step(&mut self.writer_side()), Ok(true)) {
                break;
            }
        }
    }

    /// Adds some leaves to the directory. False if the directory then contains all leaves.
    ///
    /// # Errors
    /// `Corrupt` if the next leaf is damaged. The loading does not end then.
    pub(crate) fn load_step(&self, writer: &mut Writer<S>) -> Result<bool> {
        let Some(mut loading) = writer.loading.take() else { return Ok(false) };
        let mut at = self.with_vectors(Lead(self, S::borrow(&loading.next), false));
        for _ in 0..LEAVES_OF_STEP {
            let leaf = Leaf(at);
            let step = self.add_leaf(writer, leaf, &loading.next);
            let Ok(next) = step else {
                writer.loading = Some(loading);
                return step.map(|_| true);
            };
            if loading.counts {
                self.keys.fetch_add(self.used(leaf) as u64, Ordering::AcqRel);
            }
            match next {
                Some((low, next)) => (loading.next, at) = (low, next),
                None => {
                    self.changes.begin();
                    self.loading.store(false, Ordering::Relaxed);
                    self.changes.end();
                    return Ok(false);
                }
            }
        }
        writer.loading = Some(loading);
        Ok(true)
    }

    /// Adds a leaf with this lower bound, if the directory lacks it. Returns lower bound and address of the next leaf, `None` after the
    /// last leaf.
    fn add_leaf(
        &self,
        writer: &mut Writer<S>,
        leaf: Leaf,
        low: &S::KeyBuf,
    ) -> Result<Option<(S::KeyBuf, u64)>> {
        let medium = self.region.medium();
        let next = leaf.next(medium).filter(|_| self.is_sound_leaf(leaf.0));
        let next = next.ok_or(Error::Corrupt { what: "leaf", at: leaf.0 })?;
        let child = Child::leaf(leaf.low(medium), leaf.0);
        let behind = if next == 0 {
            None
        } else {
            let is_leaf = self.is_sound_leaf(next) && Leaf(next).low(medium) != 0;
            let corrupt = Error::Corrupt { what: "order of leaves", at: next };
            let key =
                if is_leaf { bound::<M, S>(medium, Leaf(next).low(medium))? } else { S::KeyBuf::default() };
            Some((key, next)).filter(|(key, _)| is_leaf && key > low).ok_or(corrupt).map(Some)?
        };
        if self.directory.leaf_of::<M, S>(medium, None, S::borrow(low), false) != leaf.0 {
            self.changes.begin();
            self.directory.insert::<M, S>(
                (medium, self.vectors),
                &mut writer.own.own.spare,
                S::borrow(low),
                child,
            );
            self.changes.end();
        }
        Ok(behind)
    }

    /// The leaf of a key; if `below` is set, of the keys strictly below it. Any address or 0 during a change. O(levels), if the index is
    /// not loading.
    #[inline(always)]
    pub(crate) fn lead(&self, vectors: Option<Vectors>, key: &S::Key, below: bool) -> u64 {
        let leaf = self.directory.leaf_of::<M, S>(self.region.medium(), vectors, key, below);
        if self.loading.load(Ordering::Relaxed) { self.walk(leaf, Some((key, below))) } else { leaf }
    }

    /// Follows the links from `leaf` to the leaf of a key, without a key to the last leaf. 0 at a damaged leaf. O(leaves that the directory
    /// lacks).
    #[cold]
    pub(crate) fn walk(&self, leaf: u64, to: Option<(&S::Key, bool)>) -> u64 {
        let medium = self.region.medium();
        let mut leaf = Leaf(leaf);
        // Damaged links could lead in a circle.
        for _ in 0..medium.len() / self.shape.bytes() {
            let Some(next) = leaf.next(medium).map(Leaf).filter(|next| next.0 != 0) else { break };
            if !next.is_sealed(medium) {
                return 0;
            }
            if let Some((key, below)) = to {
                let order = match next.low(medium) {
                    low if S::PLAIN => low.cmp(&S::plain(S::probe(key))),
                    low => record::compare_key(medium, low, S::key_bytes(key).as_ref()),
                };
                if order == Order::Greater || (below && order == Order::Equal) {
                    break;
                }
            }
            leaf = next;
        }
        leaf.0
    }

    /// Updates the number of keys after a write.
    #[inline(always)]
    pub(crate) fn count_key(&self, writer: &Writer<S>, key: &S::Key, added: bool) {
        if let Some(loading) = &writer.loading
            && loading.counts
            && S::order_probe(S::probe(key), S::borrow(&loading.next)).is_ge()
        {
            return; // the loading will count it
        }
        // One writer changes the number.
        let keys = self.keys.load(Ordering::Relaxed);
        self.keys.store(if added { keys + 1 } else { keys.saturating_sub(1) }, Ordering::Release);
    }
}
