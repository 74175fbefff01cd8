//! Vector comparison of all slots of a node at once. It needs keys that are words or begin with one, a medium that gives access to whole
//! lines, and a processor that compares eight words at a time.
//!
//! A binary search through slots of four words, some of them void, mispredicts about half of its branches. A node may have several entries
//! of one key, each for some versions. So after a binary search has found the key, the reader must still search for the entry of its
//! version. Here the search is two comparisons per line, for all lines in parallel, and a few operations on masks. Without such a processor
//! or medium, or while there are dead versions (which background work removes), slots are compared one by one.

use index::Schema;
use pmem::Medium;

use crate::mask::Mask;
use crate::node::{Node, Shape, compare};
use crate::version::View;

/// A node to read at a view.
pub struct Look<'a, M> {
    /// The node.
    pub node: Node,
    /// The medium with the node.
    pub medium: &'a M,
    /// The geometry of the node.
    pub shape: &'a Shape,
    /// The view.
    pub view: &'a View,
}

impl<M> Clone for Look<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Look<'_, M> {}

impl FromIterator<usize> for Mask {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        Self(slots.into_iter().fold(0, |mask, slot| mask | 1 << slot))
    }
}

impl Iterator for Mask {
    type Item = usize;
    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = self.first();
        self.0 &= self.0.wrapping_sub(1);
        first
    }
}

/// The slots of a node by their state in a view, without regard to keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Slots that are not void.
    pub used: Mask,
    /// Slots that the view sees.
    pub seen: Mask,
}

impl Census {
    /// Slots that are void.
    #[inline]
    pub fn empty(self, shape: &Shape) -> Mask {
        Mask(!self.used.0).below(shape.slots)
    }

    /// Slots that are used but not seen.
    #[inline]
    pub fn unseen(self) -> Mask {
        Mask(self.used.0 & !self.seen.0)
    }
}

/// The slots of a node by their state in a view and by their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimdScan {
    /// The slots by their state.
    pub census: Census,
    /// Slots that are not void with keys at or below the probe.
    pub up_to: Mask,
    /// Slots that are not void with the probe's key.
    pub same: Mask,
}

impl SimdScan {
    /// Used slots with keys below the probe (with `above`: at or below it).
    #[inline]
    pub fn before(self, above: bool) -> Mask {
        if above { self.up_to } else { Mask(self.up_to.0 & !self.same.0) }
    }

    /// As [`crate::node::Node::bound`].
    #[inline]
    pub fn bound(self, above: bool) -> usize {
        self.before(above).last().map_or(0, |slot| slot + 1)
    }

    /// Slots with the probe's key that the view sees.
    #[inline]
    pub fn found(self) -> Mask {
        Mask(self.same.0 & self.census.seen.0)
    }
}

/// Up to this number of keys with the probe's first bytes are compared one by one. For more of them a binary search is faster.
const ALIKE_MAX: usize = 4;

impl<M: Medium> Look<'_, M> {
    #[inline(always)]
    fn slots<S: Schema>(self, word: u64) -> Option<pmem::simd::Slots> {
        if !M::SHOWS_LINES || !(S::PLAIN || S::LEADING) || !self.view.dead.is_empty() {
            return None;
        }
        let vectors = self.shape.vectors?;
        let lines = self.medium.lines(self.node.0, self.shape.lines())?;
        let version = self.view.version;
        let half_lines = match S::PLAIN {
            true => vectors.slots::<false>(lines, word, version),
            false => vectors.slots::<true>(lines, word, version),
        };
        // The first half line is the header.
        let [up_to, same, begun, ended] =
            [half_lines.up_to, half_lines.same, half_lines.begun, half_lines.ended].map(|mask| mask >> 1);
        Some(pmem::simd::Slots { up_to, same, begun, ended })
    }

    /// The used and the seen slots. `None` if they must be compared one by one.
    #[inline(always)]
    pub fn census<S: Schema>(self) -> Option<Census> {
        let slots = self.slots::<S>(0)?;
        Some(Census { used: Mask(slots.begun), seen: Mask(slots.begun & !slots.ended) })
    }

    /// As [`Look::census`]. Compares one by one if necessary.
    #[inline(always)]
    pub fn census_anyhow<S: Schema>(self) -> Census {
        self.census::<S>().unwrap_or_else(|| {
            let used = self.node.used(self.medium, self.shape, self.view);
            used.fold(Census::default(), |Census { used, seen }, (slot, entry)| {
                let is_seen = self.view.sees(entry.start, entry.end);
                Census { used: Mask(used.0 | 1 << slot), seen: Mask(seen.0 | u128::from(is_seen) << slot) }
            })
        })
    }

    /// The slots for this view and key. `None` if they must be compared one by one.
    #[inline(always)]
    pub fn simd_scan<S: Schema>(self, probe: S::Probe<'_>) -> Option<SimdScan> {
        let slots = self.slots::<S>(S::plain(probe))?;
        let (used, seen) = (slots.begun, slots.begun & !slots.ended);
        let (mut up_to, mut same) = (slots.up_to & used, slots.same & used);
        if !S::PLAIN {
            let alike = Mask(same);
            if alike.len() > ALIKE_MAX {
                return None;
            }
            same = 0;
            for slot in alike {
                let order = compare::<M, S>(self.medium, self.node.slot_at(slot), probe);
                let bit = 1 << slot;
                up_to = if order.is_le() { up_to | bit } else { up_to & !bit };
                same |= if order.is_eq() { bit } else { 0 };
            }
        }
        let census = Census { used: Mask(used), seen: Mask(seen) };
        Some(SimdScan { census, up_to: Mask(up_to), same: Mask(same) })
    }
}
