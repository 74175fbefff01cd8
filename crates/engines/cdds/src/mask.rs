//! Sets of slots of a node.

/// A bit for each slot of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(pub u128);

impl Mask {
    /// True if the set has the slot.
    #[inline]
    pub fn has(self, slot: usize) -> bool {
        self.0 >> slot & 1 == 1
    }

    /// The first slot.
    #[inline]
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// The last slot.
    #[inline]
    pub fn last(self) -> Option<usize> {
        (self.0 != 0).then(|| 127 - self.0.leading_zeros() as usize)
    }

    /// The slots of the set below `slot`.
    #[inline]
    pub fn below(self, slot: usize) -> Self {
        Self(self.0 & ((1 << slot) - 1))
    }

    /// The slots of the set from `slot` on.
    #[inline]
    pub fn from(self, slot: usize) -> Self {
        Self(self.0 & !((1 << slot) - 1))
    }

    /// Number of slots.
    #[inline]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
