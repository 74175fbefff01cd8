//! Sets of slots of a node.

/// A bit for each slot of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(pub u128);

impl Mask {
    /// True if a slot is among them.
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

    /// Those before a slot.
    #[inline]
    pub fn below(self, slot: usize) -> Self {
        Self(self.0 & ((1 << slot) - 1))
    }

    /// Those from a slot on.
    #[inline]
    pub fn from(self, slot: usize) -> Self {
        Self(self.0 & !((1 << slot) - 1))
    }

    /// How many.
    #[inline]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True without any.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
