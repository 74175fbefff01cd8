//! Vector comparison of a node's keys: the only module that reads durable lines as vectors.
//!
//! Nodes have one of these layouts:
//!
//! * The entries are pairs of words (key, payload) from a 16-byte aligned offset on, four to a line. Bit `4 * line + i` of
//!   [`Vectors::pairs`] is the result for the `i`-th pair of a line.
//! * The keys are in an array of their own, apart from the payloads. [`Vectors::words`] and `key_mask` have a bit for each key.
//! * An entry is half a line: key, payload, start version, end version. [`Wide::slots`] compares keys and versions.
//! * A word contains parts of keys: two of 32 bits or four of 16 bits ([`Vectors::parts_up_to`]), or one in its upper 16 bits
//!   ([`Vectors::tops`]). [`part`] reads one of them.
//!
//! [`Vectors`] uses AVX-512 (`wide`), or AVX2 (`narrow`) on processors without AVX-512. On other processors no value of
//! this type exists, and the callers compare without vectors.
//!
//! Results are used only after the reader validated the node's version, so a line that changes during the load has no effect.

#[cfg(target_arch = "x86_64")]
pub mod narrow;
#[cfg(not(target_arch = "x86_64"))]
mod none;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
pub mod wide;

#[cfg(target_arch = "x86_64")]
pub use narrow::{Narrow, part};
#[cfg(not(target_arch = "x86_64"))]
pub use none::{Narrow, Wide, available, part};
#[cfg(target_arch = "x86_64")]
pub use wide::{Wide, available};

use std::sync::atomic::Ordering::Relaxed;

use crate::medium::traits::Line;

/// A comparison: keys below the probe. The caller selects a comparison by a const generic parameter, so the others cost nothing.
pub const BELOW: u8 = 1;
/// Keys equal to the probe.
pub const EQUAL: u8 = 2;
/// Keys below the probe or equal to it.
pub const UP_TO: u8 = 3;

/// Proof that the processor has vector instructions. The methods use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// AVX-512.
    Wide(Wide),
    /// AVX2.
    Narrow(Narrow),
}

/// Work that is compiled with the features of [`Vectors`] ([`Vectors::run_body`]). The compiler does not inline every closure, and without
/// inlining each vector instruction is a call. So an implementation marks its function `inline(always)`. It uses the vectors in no
/// closure that a function of the standard library calls: such a function is compiled without the features.
pub trait Body {
    /// The result.
    type Out;
    /// Does the work, with vectors if there are any.
    fn run(self, vectors: Option<Vectors>) -> Self::Out;
}

/// Maximum number of [`Columns`]' pairs.
pub const PAIRS: usize = 64;

/// Words that begin at a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Words([u64; PAIRS]);

/// Pairs of words as two arrays: their first words, the keys, and their second ones, the payloads.
#[derive(Debug)]
pub struct Columns {
    /// The words behind the last key are `u64::MAX`.
    keys: Words,
    payloads: Words,
    len: usize,
}

impl Default for Columns {
    #[inline(always)]
    fn default() -> Self {
        Self { keys: Words([u64::MAX; PAIRS]), payloads: Words([0; PAIRS]), len: 0 }
    }
}

impl Columns {
    /// Adds a pair. Does nothing if there are [`PAIRS`] pairs.
    #[inline(always)]
    pub fn push(&mut self, key: u64, payload: u64) {
        if let (Some(to), Some(beside)) = (self.keys.0.get_mut(self.len), self.payloads.0.get_mut(self.len)) {
            (*to, *beside) = (key, payload);
            self.len += 1;
        }
    }

    /// Number of pairs.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pairs.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.keys.0.iter().copied().zip(self.payloads.0).take(self.len)
    }

    /// Calls `place` with the position of each pair in the order of the keys, and with the pair. False if two keys are equal: then the
    /// positions are not right. The position of a key is the number of keys below it. To count them has no branches to mispredict. For
    /// callers that run inside of [`Vectors::run_body`].
    #[inline(always)]
    pub fn sort(&self, vectors: Option<Vectors>, place: impl FnMut(usize, u64, u64)) -> bool {
        // Numbers of words that are known to the compiler.
        match self.len.div_ceil(8) {
            0..=2 => self.sort_in::<16>(vectors, place),
            3 => self.sort_in::<24>(vectors, place),
            4 => self.sort_in::<32>(vectors, place),
            _ => self.sort_in::<PAIRS>(vectors, place),
        }
    }

    /// As [`Columns::sort`], if there are at most `WORDS` pairs.
    #[inline(always)]
    fn sort_in<const WORDS: usize>(
        &self,
        vectors: Option<Vectors>,
        mut place: impl FnMut(usize, u64, u64),
    ) -> bool {
        let Some(keys) = self.keys.0.first_chunk::<WORDS>() else { return false };
        let below = match vectors {
            Some(Vectors::Wide(wide)) => wide.numbers_below(keys),
            Some(Vectors::Narrow(narrow)) => narrow.numbers_below(keys),
            None => keys.map(|key| keys.iter().map(|other| u64::from(*other < key)).sum()),
        };
        let mut taken = 0_u64;
        for ((below, key), payload) in below.iter().zip(keys).zip(&self.payloads.0).take(self.len) {
            taken |= 1 << (below % u64::from(u64::BITS));
            place(*below as usize, *key, *payload);
        }
        taken.count_ones() as usize == self.len
    }

    /// Adds the pairs in `lines` whose bits are set in `which`.
    #[inline(always)]
    fn extend(&mut self, lines: &[Line], mut which: u64) {
        while which != 0 {
            let pair = which.trailing_zeros() as usize;
            if let Some(line) = lines.get(pair / 4) {
                let word = |at: usize| line.0[pair % 4 * 2 + at].load(Relaxed);
                self.push(word(0), word(1));
            }
            which &= which - 1;
        }
    }
}

/// The result of one comparison of a node with versions: bit `2 * line + half` stands for a half line, a slot of four words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Key word (word 0) at most the probe.
    pub up_to: u128,
    /// Key word equal to the probe. With `PREFIX`: also a key word that cannot be distinguished from the probe, because the key
    /// word is even or its upper seven bytes equal those of the probe.
    pub same: u128,
    /// Start (word 2) neither 0 nor above the version.
    pub begun: u128,
    /// End (word 3) neither 0 nor above the version.
    pub ended: u128,
}

/// As [`Vectors::pairs`]. `None` if the processor has no vectors. For callers that compare many lines in one call: each call checks the
/// processor's features.
#[inline]
pub fn pairs<const WHICH: u8>(lines: &[Line], probe: u64) -> Option<u64> {
    Some(Vectors::of_processor()?.run_body(Pairs::<WHICH>(lines, probe)))
}

struct Pairs<'a, const WHICH: u8>(&'a [Line], u64);

impl<const WHICH: u8> Body for Pairs<'_, WHICH> {
    type Out = u64;
    #[inline(always)]
    fn run(self, vectors: Option<Vectors>) -> u64 {
        match vectors {
            Some(vectors) => vectors.pairs::<WHICH>(self.0, self.1),
            None => 0,
        }
    }
}

impl Vectors {
    /// The widest vectors of the processor. `None` if it has none of these.
    pub fn of_processor() -> Option<Self> {
        Wide::of_processor().map(Self::Wide).or_else(|| Narrow::of_processor().map(Self::Narrow))
    }

    /// Runs `body` compiled with the features. Functions that are inlined into it use them too.
    #[inline(always)]
    pub fn run_body<B: Body>(self, body: B) -> B::Out {
        match self {
            Self::Wide(wide) => wide.run_body(body),
            Self::Narrow(narrow) => narrow.run_body(body),
        }
    }

    /// Compares the key words (even words) of up to 16 lines with `probe`. Returns the mask of keys for which `WHICH` holds. For callers
    /// that run inside of [`Vectors::run_body`].
    #[inline(always)]
    pub fn pairs<const WHICH: u8>(self, lines: &[Line], probe: u64) -> u64 {
        match self {
            Self::Wide(wide) => wide.pairs::<WHICH>(lines, probe),
            Self::Narrow(narrow) => narrow.pairs::<WHICH>(lines, probe),
        }
    }

    /// Copies the pairs of up to 16 lines whose bits are set in `which`. For callers that run inside of [`Vectors::run_body`].
    #[inline(always)]
    pub fn columns(self, lines: &[Line], which: u64) -> Columns {
        match self {
            Self::Wide(wide) => wide.columns(lines, which),
            Self::Narrow(_) => {
                let mut columns = Columns::default();
                columns.extend(lines, which);
                columns
            }
        }
    }

    /// Compares all words of up to 8 lines with `probe`. Returns the mask of words for which `WHICH` holds. For callers that run inside of
    /// [`Vectors::run_body`].
    ///
    /// # Panics
    /// With more than 8 lines, which would need a mask of more than 64 bits.
    #[inline(always)]
    pub fn words<const WHICH: u8>(self, lines: &[Line], probe: u64) -> u64 {
        assert!(lines.len() <= 8, "a mask has one bit for each of 64 words");
        match self {
            Self::Wide(wide) => wide.words::<WHICH>(lines, probe),
            Self::Narrow(narrow) => narrow.words::<WHICH>(lines, probe),
        }
    }

    /// Counts the parts of the lines' words that are at most `limit`. A part has `BITS` bits, 16 or 32. For callers that run inside of
    /// [`Vectors::run_body`].
    #[inline(always)]
    pub fn parts_up_to<const BITS: u32>(self, lines: &[Line], limit: u32) -> usize {
        match self {
            Self::Wide(wide) => wide.parts_up_to::<BITS>(lines, limit),
            Self::Narrow(narrow) => narrow.parts_up_to::<BITS>(lines, limit),
        }
    }

    /// Compares the upper 16 bits of each word of up to 8 lines with `top`. Returns a bit for each word, set if they are equal. For callers
    /// that run inside of [`Vectors::run_body`].
    ///
    /// # Panics
    /// With more than 8 lines, which would need a mask of more than 64 bits.
    #[inline(always)]
    pub fn tops(self, lines: &[Line], top: u16) -> u64 {
        assert!(lines.len() <= 8, "a mask has one bit for each of 64 words");
        match self {
            Self::Wide(wide) => wide.tops(lines, top),
            Self::Narrow(narrow) => narrow.tops(lines, top),
        }
    }
}
