//! Byte-string keys that bound pages. A short one is stored inline, because each descent through a page compares its key with the fence.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt::{self, Debug};

use crate::bytes::Bytes;
use crate::pairs::Pairs;

/// A key that bounds pages.
#[derive(Clone)]
pub enum ByteFence {
    /// A short key, stored inline.
    Short(u8, [u8; SHORT]),
    /// A long key, stored outside.
    Long(Box<[u8]>),
}

/// Maximum bytes of a fence that is stored inline.
const SHORT: usize = 22;

impl Borrow<[u8]> for ByteFence {
    #[inline(always)]
    fn borrow(&self) -> &[u8] {
        match self {
            Self::Short(count, bytes) => &bytes[..usize::from(*count).min(SHORT)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for ByteFence {
    fn from(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..key.len()) {
            Some(to) => to.copy_from_slice(key),
            None => return Self::Long(key.into()),
        }
        Self::Short(key.len() as u8, bytes)
    }
}

impl PartialEq for ByteFence {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for ByteFence {}
impl PartialOrd for ByteFence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ByteFence {
    fn cmp(&self, other: &Self) -> Ordering {
        Bytes::compare(self, other.borrow())
    }
}
impl Debug for ByteFence {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: &[u8] = self.borrow();
        bytes.fmt(to)
    }
}
