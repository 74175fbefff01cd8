//! The vector types on processors other than x86-64. They have no values, so their methods are never called.

use std::sync::atomic::Ordering;

use super::{Body, Columns, Slots};
use crate::medium::traits::Line;

/// No value of this type exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wide {}

/// No value of this type exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {}

/// False: there is no [`Wide`].
pub fn available() -> bool {
    false
}

/// Part `i` of the lines' words, of `BITS` bits: 16, 32 or 64.
///
/// # Panics
/// If the lines have no such part.
pub fn part<const BITS: usize>(lines: &[Line], i: usize) -> u64 {
    const { assert!(BITS == 16 || BITS == 32 || BITS == 64, "a word has four parts, two or one") };
    let each = 64 / BITS;
    let word = lines[i / each / 8].0[i / each % 8].load(Ordering::Relaxed);
    word >> (BITS * (i % each)) & (u64::MAX >> (64 - BITS))
}

macro_rules! nowhere {
    ($vectors:ty) => {
        #[allow(missing_docs)]
        impl $vectors {
            pub fn of_processor() -> Option<Self> {
                None
            }

            pub(super) fn run_body<B: Body>(self, _: B) -> B::Out {
                match self {}
            }

            pub(super) fn pairs<const WHICH: u8>(self, _: &[Line], _: u64) -> u64 {
                match self {}
            }

            pub(super) fn words<const WHICH: u8>(self, _: &[Line], _: u64) -> u64 {
                match self {}
            }

            pub(super) fn numbers_below<const WORDS: usize>(self, _: &[u64; WORDS]) -> [u64; WORDS] {
                match self {}
            }

            pub(super) fn tops(self, _: &[Line], _: u16) -> u64 {
                match self {}
            }

            pub(super) fn parts_up_to<const BITS: u32>(self, _: &[Line], _: u32) -> usize {
                match self {}
            }
        }
    };
}
nowhere!(Wide);
nowhere!(Narrow);

#[allow(missing_docs)]
impl Wide {
    pub fn run<R>(self, _: impl FnOnce() -> R) -> R {
        match self {}
    }

    pub(super) fn columns(self, _: &[Line], _: u64) -> Columns {
        match self {}
    }

    pub fn slots<const PREFIX: bool>(self, _: &[Line], _: u64, _: u64) -> Slots {
        match self {}
    }
}
