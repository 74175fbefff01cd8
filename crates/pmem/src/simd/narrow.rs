//! Comparisons with AVX2, for processors without AVX-512.
//!
//! A vector has four words. AVX2 compares only signed integers. So an order comparison first inverts the highest bit of
//! each word.

use std::arch::x86_64::{
    __m256i, _mm256_castsi256_pd, _mm256_cmpeq_epi16, _mm256_cmpeq_epi32, _mm256_cmpeq_epi64,
    _mm256_cmpgt_epi64, _mm256_load_si256, _mm256_loadu_si256, _mm256_min_epu16, _mm256_min_epu32,
    _mm256_movemask_epi8, _mm256_movemask_pd, _mm256_packs_epi16, _mm256_packs_epi32,
    _mm256_permute4x64_epi64, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_sub_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::{BELOW, Body, EQUAL, UP_TO, Vectors};
use crate::medium::traits::Line;

/// Proof that the processor has AVX2, `popcnt`, `lzcnt`, and the bit instructions BMI1 and BMI2. The methods use them, so their callers run
/// inside of [`Vectors::run_body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow(());

impl Narrow {
    /// `None` if the processor lacks one of the features.
    pub(super) fn of_processor() -> Option<Self> {
        let all = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("popcnt")
            && std::arch::is_x86_feature_detected!("lzcnt")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2");
        all.then_some(Self(()))
    }

    /// Runs `body` compiled with these features.
    #[inline(always)]
    pub(super) fn run_body<B: Body>(self, body: B) -> B::Out {
        #[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
        fn run<B: Body>(narrow: Narrow, body: B) -> B::Out {
            body.run(Some(Vectors::Narrow(narrow)))
        }
        // SAFETY: there is a `Narrow` only where the processor has the features of the function.
        unsafe { run(self, body) }
    }

    /// As [`Vectors::pairs`].
    #[inline(always)]
    pub(super) fn pairs<const WHICH: u8>(self, lines: &[Line], probe: u64) -> u64 {
        // SAFETY: there is a `Narrow` only where the processor has the features of the function.
        unsafe { pair_mask::<WHICH>(lines, probe) }
    }

    /// As [`Vectors::words`].
    #[inline(always)]
    pub(super) fn words<const WHICH: u8>(self, lines: &[Line], probe: u64) -> u64 {
        // SAFETY: there is a `Narrow` only where the processor has the features of the function.
        unsafe { key_mask::<WHICH>(lines, 0, lines.len() * 8, probe) }
    }

    /// For each word, the number of words that are below it.
    #[inline(always)]
    pub(super) fn numbers_below<const WORDS: usize>(self, words: &[u64; WORDS]) -> [u64; WORDS] {
        // SAFETY: there is a `Narrow` only where the processor has the features of the function.
        unsafe { numbers_below(words) }
    }

    /// As [`Vectors::tops`].
    #[inline(always)]
    pub(super) fn tops(self, lines: &[Line], top: u16) -> u64 {
        // SAFETY: there is a `Narrow` only where the processor has the features of the function.
        unsafe { tops(lines, top) }
    }

    /// As [`Vectors::parts_up_to`].
    #[inline(always)]
    pub(super) fn parts_up_to<const BITS: u32>(self, lines: &[Line], limit: u32) -> usize {
        const { assert!(BITS == 16 || BITS == 32, "a word has four or two parts") };
        if BITS == 16 {
            // SAFETY: there is a `Narrow` only where the processor has the features of the function.
            unsafe { quarters_up_to(lines, limit as u16) }
        } else {
            // SAFETY: as above.
            unsafe { halves_up_to(lines, limit) }
        }
    }
}

/// As [`Narrow::numbers_below`].
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn numbers_below<const WORDS: usize>(words: &[u64; WORDS]) -> [u64; WORDS] {
    const { assert!(WORDS.is_multiple_of(4) && WORDS <= super::PAIRS, "whole vectors") };
    // SAFETY: avx2, by the caller's promise.
    let zero = unsafe { _mm256_setzero_si256() };
    // SAFETY: avx2, by the caller's promise.
    let highest = unsafe { _mm256_set1_epi64x(i64::MIN) };
    let (mut vectors, mut numbers) = ([zero; super::PAIRS / 4], [zero; super::PAIRS / 4]);
    for (vector, four) in vectors.iter_mut().zip(words.as_chunks::<4>().0) {
        // SAFETY: the words are readable.
        let loaded = unsafe { _mm256_loadu_si256(four.as_ptr().cast()) };
        // SAFETY: avx2, by the caller's promise.
        *vector = unsafe { _mm256_xor_si256(loaded, highest) };
    }
    for word in words {
        // SAFETY: avx2, by the caller's promise.
        let word = unsafe { _mm256_set1_epi64x(word.cast_signed() ^ i64::MIN) };
        for (number, vector) in numbers.iter_mut().zip(vectors).take(WORDS / 4) {
            // SAFETY: avx2, by the caller's promise.
            let is_above = unsafe { _mm256_cmpgt_epi64(vector, word) };
            // SAFETY: avx2, by the caller's promise. A word that is above is minus one.
            *number = unsafe { _mm256_sub_epi64(*number, is_above) };
        }
    }
    let mut out = [0; WORDS];
    for (four, number) in out.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        // SAFETY: the words are borrowed mutably.
        unsafe { _mm256_storeu_si256(four.as_mut_ptr().cast(), number) };
    }
    out
}

/// Part `i` of the lines' words, of `BITS` bits: 16, 32 or 64. One load, where a word with shifts takes five instructions.
///
/// # Panics
/// If the lines have no such part.
#[inline(always)]
pub fn part<const BITS: usize>(lines: &[Line], i: usize) -> u64 {
    const { assert!(BITS == 16 || BITS == 32 || BITS == 64, "a word has four parts, two or one") };
    assert!(i < lines.len() * (512 / BITS), "a part outside of the lines");
    let first = lines.as_ptr();
    // A load of a part is atomic on this processor, as are the vector loads of this module.
    match BITS {
        // SAFETY: the part lies inside the lines, as the assertion above checks.
        16 => u64::from(unsafe { first.cast::<u16>().wrapping_add(i).read_volatile() }),
        // SAFETY: as above.
        32 => u64::from(unsafe { first.cast::<u32>().wrapping_add(i).read_volatile() }),
        // SAFETY: as above.
        _ => unsafe { first.cast::<u64>().wrapping_add(i).read_volatile() },
    }
}

/// As [`Vectors::pairs`].
///
/// # Safety
/// The processor must have the features of [`Narrow`].
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
pub fn pair_mask<const WHICH: u8>(lines: &[Line], probe: u64) -> u64 {
    let (needle, mut mask) = (needle::<WHICH>(probe), 0);
    for (i, line) in lines.iter().enumerate() {
        let [first, second] = load(line);
        // Keys 0, 2, 1 and 3 of the line.
        let keys = _mm256_unpacklo_epi64(first, second);
        mask |= compare::<WHICH>(_mm256_permute4x64_epi64::<0b11_01_10_00>(keys), needle) << (4 * i);
    }
    mask
}

/// Compares `probe` with `count` key words, at most 64, that begin at word `first` of the lines. Returns the mask of keys for which `WHICH`
/// holds; bits after `count` are undefined.
///
/// # Panics
/// If the lines do not contain that many words, rounded up to a multiple of four.
///
/// # Safety
/// The processor must have the features of [`Narrow`].
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
pub fn key_mask<const WHICH: u8>(lines: &[Line], first: usize, count: usize, probe: u64) -> u64 {
    let fours = count.div_ceil(4);
    assert!(count <= 64 && first + fours * 4 <= lines.len() * 8, "keys outside their node");
    let (needle, mut mask) = (needle::<WHICH>(probe), 0);
    for i in 0..fours {
        // SAFETY: the place lies inside the lines, as the assertion above checks.
        let place = unsafe { lines.as_ptr().cast::<u64>().add(first + 4 * i) };
        // SAFETY: 32 readable bytes of the lines; the reader's validation detects a torn load.
        let keys = unsafe { _mm256_loadu_si256(place.cast()) };
        mask |= compare::<WHICH>(keys, needle) << (4 * i);
    }
    mask
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn tops(lines: &[Line], top: u16) -> u64 {
    let (needle, mut mask) = (_mm256_set1_epi64x(i64::from(top)), 0);
    for (i, line) in lines.iter().enumerate() {
        let [first, second] = load(line);
        let first = compare::<EQUAL>(_mm256_srli_epi64::<48>(first), needle);
        let second = compare::<EQUAL>(_mm256_srli_epi64::<48>(second), needle);
        mask |= (first | second << 4) << (8 * i);
    }
    mask
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn quarters_up_to(lines: &[Line], limit: u16) -> usize {
    let (needle, mut count) = (_mm256_set1_epi16(limit.cast_signed()), 0);
    for line in lines {
        let [first, second] = load(line);
        let first = _mm256_cmpeq_epi16(_mm256_min_epu16(first, needle), first);
        let second = _mm256_cmpeq_epi16(_mm256_min_epu16(second, needle), second);
        count += _mm256_movemask_epi8(_mm256_packs_epi16(first, second)).count_ones();
    }
    count as usize
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn halves_up_to(lines: &[Line], limit: u32) -> usize {
    let (needle, mut count) = (_mm256_set1_epi32(limit.cast_signed()), 0);
    for line in lines {
        let [first, second] = load(line);
        let first = _mm256_cmpeq_epi32(_mm256_min_epu32(first, needle), first);
        let second = _mm256_cmpeq_epi32(_mm256_min_epu32(second, needle), second);
        // Two bits for each half of a word. Their order does not matter.
        count += _mm256_movemask_epi8(_mm256_packs_epi32(first, second)).count_ones();
    }
    count as usize / 2
}

/// The two halves of a line.
#[target_feature(enable = "avx2")]
#[inline]
fn load(line: &Line) -> [__m256i; 2] {
    let (halves, _) = line.0.as_chunks::<4>();
    let (first, second) = (halves[0].as_ptr().cast::<__m256i>(), halves[1].as_ptr().cast::<__m256i>());
    // SAFETY: half a line is 32 readable bytes, 32-byte aligned; the reader's validation detects a torn load.
    let first = unsafe { _mm256_load_si256(first) };
    // SAFETY: as above.
    let second = unsafe { _mm256_load_si256(second) };
    [first, second]
}

/// Inverts the highest bit of each word.
#[target_feature(enable = "avx2")]
#[inline]
fn inverted(words: __m256i) -> __m256i {
    _mm256_xor_si256(words, _mm256_set1_epi64x(i64::MIN))
}

/// Four times the probe, as [`compare`] needs it.
#[target_feature(enable = "avx2")]
#[inline]
fn needle<const WHICH: u8>(probe: u64) -> __m256i {
    let four = _mm256_set1_epi64x(probe.cast_signed());
    if WHICH == EQUAL { four } else { inverted(four) }
}

/// A bit for each of four keys, set if the comparison holds.
#[target_feature(enable = "avx2")]
#[inline]
fn compare<const WHICH: u8>(keys: __m256i, needle: __m256i) -> u64 {
    let holds = match WHICH {
        EQUAL => _mm256_cmpeq_epi64(keys, needle),
        BELOW => _mm256_cmpgt_epi64(needle, inverted(keys)),
        _ => _mm256_cmpgt_epi64(inverted(keys), needle),
    };
    let mask = u64::from(_mm256_movemask_pd(_mm256_castsi256_pd(holds)).cast_unsigned());
    if WHICH == UP_TO { mask ^ 0xF } else { mask }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::tests::keys_from_any_word_on_agree_with_a_plain_loop;

    #[test]
    fn keys_from_any_word_on_are_compared() {
        if Narrow::of_processor().is_some() {
            // SAFETY: the processor has the features.
            keys_from_any_word_on_agree_with_a_plain_loop(|lines, first, count, probe| unsafe {
                key_mask::<UP_TO>(lines, first, count, probe)
            });
        }
    }
}
