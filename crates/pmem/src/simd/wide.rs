//! Comparisons with AVX-512.

use std::arch::x86_64::__m512i;

use super::{BELOW, Body, Columns, EQUAL, Slots, Vectors};
use crate::medium::traits::Line;

/// True if the processor has the features of [`Wide`], so that [`pair_mask`] may be called.
pub fn available() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512dq")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("popcnt")
        && std::arch::is_x86_feature_detected!("lzcnt")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("bmi2")
}

/// Proof that the processor has the features that [`available`] checks. The methods use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wide(());

/// Compares the key words (even words) of up to 16 lines with `probe`. Returns the mask of keys for which `WHICH` holds.
///
/// # Safety
/// The processor must have the features that [`available`] asks for.
#[inline(always)]
pub unsafe fn pair_mask<const WHICH: u8>(lines: &[Line], probe: u64) -> u64 {
    use std::arch::x86_64::{_mm512_set_epi64, _mm512_set1_epi64};
    debug_assert!(lines.len() <= 16);
    // SAFETY: avx512f, by the caller's promise.
    let needle = unsafe { _mm512_set1_epi64(probe as i64) };
    // SAFETY: avx512f, by the caller's promise.
    let evens = unsafe { _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0) };
    let mut mask = 0;
    // The usual length, without a loop.
    if let Some((eight, [])) = lines.split_first_chunk::<8>() {
        for i in 0..4 {
            // SAFETY: the caller's promise, passed on.
            mask |= unsafe { two_lines::<WHICH>(&eight[2 * i], &eight[2 * i + 1], needle, evens) } << (8 * i);
        }
        return apart(mask);
    }
    let (pairs, odd) = lines.as_chunks::<2>();
    for (i, four) in pairs.chunks(4).enumerate() {
        let mut part = 0;
        for (i, pair) in four.iter().enumerate() {
            // SAFETY: the caller's promise, passed on.
            part |= unsafe { two_lines::<WHICH>(&pair[0], &pair[1], needle, evens) } << (8 * i);
        }
        mask |= apart(part) << (32 * i);
    }
    if let [last] = odd {
        // SAFETY: the caller's promise, passed on.
        let twice = unsafe { two_lines::<WHICH>(last, last, needle, evens) };
        mask |= (twice & 0xF) << (8 * pairs.len());
    }
    mask
}

/// Compares `probe` with `count` key words, at most 64, that begin at word `first` of the lines. Returns the mask of keys for
/// which `WHICH` holds; bits after `count` are undefined. The lines must contain that many words, rounded up to a multiple of
/// eight.
///
/// # Safety
/// The processor must have the features that [`available`] asks for.
#[inline(always)]
pub unsafe fn key_mask<const WHICH: u8>(lines: &[Line], first: usize, count: usize, probe: u64) -> u64 {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_set1_epi64};
    let eights = count.div_ceil(8);
    assert!(count <= 64 && first + eights * 8 <= lines.len() * 8, "keys outside their node");
    // SAFETY: avx512f, by the caller's promise.
    let needle = unsafe { _mm512_set1_epi64(probe as i64) };
    let mut mask = 0;
    for half in 0..2 {
        let mut part = 0;
        for i in half * 4..eights.min(half * 4 + 4) {
            // SAFETY: the place lies inside the lines, as the assertion above checks.
            let place = unsafe { lines.as_ptr().cast::<u64>().add(first + i * 8) };
            // SAFETY: 64 readable bytes of the lines; the reader's validation detects a torn load.
            let keys = unsafe { _mm512_loadu_si512(place.cast()) };
            // SAFETY: avx512f, by the caller's promise.
            part |= unsafe { compare::<WHICH>(keys, needle) } << (8 * (i % 4));
        }
        mask |= apart(part) << (32 * half);
    }
    mask
}

/// Compares the upper 16 bits of each word of up to 8 lines with `top`. Returns a bit for each word, set if they are equal.
///
/// # Safety
/// The processor must have the features that [`available`] asks for.
#[inline(always)]
unsafe fn top_mask(lines: &[Line], top: u16) -> u64 {
    use std::arch::x86_64::{_mm512_load_si512, _mm512_set1_epi64, _mm512_srli_epi64};
    // SAFETY: avx512f, by the caller's promise.
    let needle = unsafe { _mm512_set1_epi64(i64::from(top)) };
    let mut mask = 0;
    for (half, lines) in lines.chunks(4).enumerate() {
        let mut part = 0;
        for (i, line) in lines.iter().enumerate() {
            // SAFETY: a line is 64 readable bytes, 64-byte aligned; the reader's validation detects a torn load.
            let words = unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) };
            // SAFETY: avx512f, by the caller's promise.
            let tops = unsafe { _mm512_srli_epi64::<48>(words) };
            // SAFETY: avx512f, by the caller's promise.
            part |= unsafe { compare::<EQUAL>(tops, needle) } << (8 * i);
        }
        mask |= apart(part) << (32 * half);
    }
    mask
}

/// Counts the parts of the lines' words that are at most `limit`. A part has `BITS` bits, 16 or 32.
///
/// # Safety
/// The processor must have the features that [`available`] asks for.
#[inline(always)]
unsafe fn parts_up_to<const BITS: u32>(lines: &[Line], limit: u32) -> usize {
    use std::arch::x86_64::{
        _mm512_cmple_epu16_mask, _mm512_cmple_epu32_mask, _mm512_load_si512, _mm512_set1_epi32,
    };
    const { assert!(BITS == 16 || BITS == 32, "a word has four or two parts") };
    let each = if BITS == 16 { (limit & 0xFFFF) * 0x1_0001 } else { limit };
    // SAFETY: avx512f, by the caller's promise.
    let needle = unsafe { _mm512_set1_epi32(each.cast_signed()) };
    let count = |line: &Line| {
        // SAFETY: a line is 64 readable bytes, 64-byte aligned; the reader's validation detects a torn load.
        let parts = unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) };
        if BITS == 16 {
            // SAFETY: avx512bw, by the caller's promise.
            u64::from(unsafe { _mm512_cmple_epu16_mask(parts, needle) })
        } else {
            // SAFETY: avx512f, by the caller's promise.
            u64::from(unsafe { _mm512_cmple_epu32_mask(parts, needle) })
        }
    };
    let (pairs, odd) = lines.as_chunks::<2>();
    let of_pairs = pairs.iter().map(|[first, second]| (count(first) | count(second) << 32).count_ones());
    (of_pairs.sum::<u32>() + odd.iter().map(|line| count(line).count_ones()).sum::<u32>()) as usize
}

/// Lines of a node that are compared together.
const GROUP: usize = 16;

impl Wide {
    /// `None` if the processor lacks one of the features.
    pub fn of_processor() -> Option<Self> {
        available().then_some(Self(()))
    }

    /// Runs `body` compiled with these features. Functions that are inlined into it use them too.
    #[inline(always)]
    pub fn run<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,popcnt,lzcnt,bmi1,bmi2")]
        fn run<R>(body: impl FnOnce() -> R) -> R {
            body()
        }
        // SAFETY: there is a `Wide` only where the processor has the features of the function.
        unsafe { run(body) }
    }

    /// As [`Wide::run`], always with inlining.
    #[inline(always)]
    pub(super) fn run_body<B: Body>(self, body: B) -> B::Out {
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,popcnt,lzcnt,bmi1,bmi2")]
        fn run<B: Body>(wide: Wide, body: B) -> B::Out {
            body.run(Some(Vectors::Wide(wide)))
        }
        // SAFETY: there is a `Wide` only where the processor has the features of the function.
        unsafe { run(self, body) }
    }

    /// As [`Vectors::pairs`].
    #[inline(always)]
    pub(super) fn pairs<const WHICH: u8>(self, lines: &[Line], probe: u64) -> u64 {
        // SAFETY: there is a `Wide` only where the processor has the features.
        unsafe { pair_mask::<WHICH>(lines, probe) }
    }

    /// As [`Vectors::columns`].
    #[inline(always)]
    pub(super) fn columns(self, lines: &[Line], which: u64) -> Columns {
        let mut columns = Columns::default();
        // The usual length, without a loop.
        if let Some((eight, [])) = lines.split_first_chunk::<8>() {
            for (i, pair) in eight.as_chunks::<2>().0.iter().enumerate() {
                // SAFETY: there is a `Wide` only where the processor has the features. Each call adds at most eight pairs.
                unsafe { add_pairs(&mut columns, pair, (which >> (8 * i)) as u8) };
            }
        } else {
            columns.extend(lines, which);
        }
        columns
    }

    /// For each word, the number of words that are below it.
    #[inline(always)]
    pub(super) fn numbers_below<const WORDS: usize>(self, words: &[u64; WORDS]) -> [u64; WORDS] {
        // SAFETY: there is a `Wide` only where the processor has the features.
        unsafe { numbers_below(words) }
    }

    /// As [`Vectors::words`].
    #[inline(always)]
    pub(super) fn words<const WHICH: u8>(self, lines: &[Line], probe: u64) -> u64 {
        // SAFETY: there is a `Wide` only where the processor has the features.
        unsafe { key_mask::<WHICH>(lines, 0, lines.len() * 8, probe) }
    }

    /// As [`Vectors::tops`].
    #[inline(always)]
    pub(super) fn tops(self, lines: &[Line], top: u16) -> u64 {
        // SAFETY: there is a `Wide` only where the processor has the features.
        unsafe { top_mask(lines, top) }
    }

    /// As [`Vectors::parts_up_to`].
    #[inline(always)]
    pub(super) fn parts_up_to<const BITS: u32>(self, lines: &[Line], limit: u32) -> usize {
        // SAFETY: there is a `Wide` only where the processor has the features.
        unsafe { parts_up_to::<BITS>(lines, limit) }
    }

    /// Compares all slots of up to 64 lines. A slot has four words: key, payload, start, end.
    ///
    /// # Panics
    /// With more than 64 lines.
    #[inline(always)]
    pub fn slots<const PREFIX: bool>(self, lines: &[Line], probe: u64, version: u64) -> Slots {
        let (groups, rest) = lines.as_chunks::<GROUP>();
        if let ([group], []) = (groups, rest) {
            return Slots::of(self.group_of::<PREFIX>(group, probe, version), 0);
        }
        assert!(lines.len() <= 64, "a node has 64 lines at most");
        let mut slots = Slots::default();
        for (number, group) in groups.iter().enumerate() {
            slots = slots.with(Slots::of(self.group_of::<PREFIX>(group, probe, version), number));
        }
        if !rest.is_empty() {
            let copied: [Line; GROUP] =
                std::array::from_fn(|at| rest.get(at).map_or(Line::zero(), Line::copied));
            let (keys, versions) = self.group_of::<PREFIX>(&copied, probe, version);
            // Lines that do not exist have keys of 0.
            let there = u64::from(u32::MAX >> (2 * (GROUP - rest.len())));
            slots = slots.with(Slots::of((keys & (there | there << 32), versions), groups.len()));
        }
        slots
    }

    #[inline(always)]
    fn group_of<const PREFIX: bool>(self, lines: &[Line; GROUP], probe: u64, version: u64) -> (u64, u64) {
        // SAFETY: there is a `Wide` only where the processor has the features of the function.
        unsafe { slots_of::<PREFIX>(lines, probe, version) }
    }
}

impl Slots {
    /// From the result of [`slots_of`] for a group.
    #[inline(always)]
    fn of((keys, versions): (u64, u64), group: usize) -> Self {
        let [up_to, same, begun, ended] = [keys, keys >> 32, versions, versions >> 32]
            .map(|mask| u128::from(mask as u32) << (2 * GROUP * group));
        Self { up_to, same, begun, ended }
    }

    fn with(self, other: Self) -> Self {
        Self {
            up_to: self.up_to | other.up_to,
            same: self.same | other.same,
            begun: self.begun | other.begun,
            ended: self.ended | other.ended,
        }
    }
}

/// Compares 32 slots. The first word of the result has `up_to` of [`Slots`] in its low half and `same` in its high half. The
/// second word has `begun` and `ended` likewise. Two words stay in registers.
#[target_feature(enable = "avx512f,avx512dq,popcnt,bmi1,bmi2")]
#[inline]
fn slots_of<const PREFIX: bool>(lines: &[Line; GROUP], probe: u64, version: u64) -> (u64, u64) {
    use std::arch::x86_64::{
        _mm512_cmpeq_epu64_mask, _mm512_cmple_epu64_mask, _mm512_load_si512, _mm512_mask_blend_epi64,
        _mm512_permutex2var_epi64, _mm512_set_epi64, _mm512_set1_epi64, _mm512_srli_epi64, _mm512_sub_epi64,
        _mm512_test_epi64_mask, _pext_u64,
    };
    let (key, last) = (probe as i64, version.wrapping_sub(1) as i64);
    // From two lines: four keys in the low half and four starts in the high half; the four ends twice.
    let keys_and_starts = _mm512_set_epi64(14, 10, 6, 2, 12, 8, 4, 0);
    let ends = _mm512_set_epi64(15, 11, 7, 3, 15, 11, 7, 3);
    // A version of 0 minus one wraps around and is above all others.
    let less = _mm512_set_epi64(1, 1, 1, 1, 0, 0, 0, 0);
    let limits = _mm512_set_epi64(last, last, last, last, key, key, key, key);
    let (one, last) = (_mm512_set1_epi64(1), _mm512_set1_epi64(last));
    let wanted = _mm512_set1_epi64(key);
    let leading = _mm512_srli_epi64::<8>(wanted);
    // SAFETY: a line is 64 readable bytes, 64-byte aligned; the reader's validation detects a torn load.
    let load = |line: &Line| unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast::<__m512i>()) };
    let (mut limited, mut same, mut ended) = (0, 0, 0);
    for four in 0..GROUP / 4 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|line| load(&lines[4 * four + line]));
        let [first, second] = [(a, b), (c, d)].map(|(a, b)| _mm512_permutex2var_epi64(a, keys_and_starts, b));
        let [below, above] =
            [first, second].map(|of| u64::from(_mm512_cmple_epu64_mask(_mm512_sub_epi64(of, less), limits)));
        limited |= apart(below | above << 8) << (16 * four);
        let [below, above] = [first, second].map(|of| {
            u64::from(if PREFIX {
                let near = _mm512_cmpeq_epu64_mask(_mm512_srli_epi64::<8>(of), leading);
                near | !_mm512_test_epi64_mask(of, one)
            } else {
                _mm512_cmpeq_epu64_mask(of, wanted)
            })
        });
        same |= apart(below | above << 8) << (16 * four);
        let (low, high) = (_mm512_permutex2var_epi64(a, ends, b), _mm512_permutex2var_epi64(c, ends, d));
        let of = _mm512_sub_epi64(_mm512_mask_blend_epi64(0xF0, low, high), one);
        ended |= apart(u64::from(_mm512_cmple_epu64_mask(of, last))) << (8 * four);
    }
    // Version 0 does not exist, so a view at version 0 sees nothing.
    let none = if version == 0 { 0 } else { u64::MAX };
    let [low, high] = [0x0F0F_0F0F_0F0F_0F0F, 0xF0F0_F0F0_F0F0_F0F0];
    let keys = _pext_u64(limited, low) | _pext_u64(same, low) << 32;
    (keys, (_pext_u64(limited, high) | ended << 32) & none)
}

/// Adds the pairs of two lines whose bits are set in `which`.
///
/// # Safety
/// The processor must have the features that [`available`] asks for. The columns have space for eight more pairs.
#[inline(always)]
unsafe fn add_pairs(to: &mut Columns, [first, second]: &[Line; 2], which: u8) {
    use std::arch::x86_64::{
        _mm512_load_si512, _mm512_mask_compress_epi64, _mm512_permutex2var_epi64, _mm512_set_epi64,
        _mm512_set1_epi64, _mm512_storeu_si512,
    };
    debug_assert!(to.len + 8 <= super::PAIRS);
    // SAFETY: a line is 64 readable bytes, 64-byte aligned; the reader's validation detects a torn load.
    let low = unsafe { _mm512_load_si512(std::ptr::from_ref(first).cast::<__m512i>()) };
    // SAFETY: as above.
    let high = unsafe { _mm512_load_si512(std::ptr::from_ref(second).cast::<__m512i>()) };
    // SAFETY: avx512f, by the caller's promise.
    let evens = unsafe { _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0) };
    // SAFETY: avx512f, by the caller's promise.
    let odds = unsafe { _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1) };
    // SAFETY: avx512f, by the caller's promise.
    let greatest = unsafe { _mm512_set1_epi64(-1) };
    for (array, parity) in [(&mut to.keys.0, evens), (&mut to.payloads.0, odds)] {
        // SAFETY: avx512f, by the caller's promise.
        let words = unsafe { _mm512_permutex2var_epi64(low, parity, high) };
        // SAFETY: avx512f, by the caller's promise.
        let chosen = unsafe { _mm512_mask_compress_epi64(greatest, which, words) };
        // SAFETY: the place is inside the array, by the caller's promise.
        let place = unsafe { array.as_mut_ptr().add(to.len) };
        // SAFETY: eight words from here on are inside the array, by the caller's promise, and borrowed mutably.
        unsafe { _mm512_storeu_si512(place.cast(), chosen) };
    }
    to.len += which.count_ones() as usize;
}

/// As [`Wide::numbers_below`].
///
/// # Safety
/// The processor must have the features that [`available`] asks for.
#[inline(always)]
unsafe fn numbers_below<const WORDS: usize>(words: &[u64; WORDS]) -> [u64; WORDS] {
    use std::arch::x86_64::{
        _mm512_cmplt_epu64_mask, _mm512_loadu_si512, _mm512_mask_sub_epi64, _mm512_set1_epi64,
        _mm512_setzero_si512, _mm512_storeu_si512,
    };
    const { assert!(WORDS.is_multiple_of(8) && WORDS <= super::PAIRS, "whole vectors") };
    // SAFETY: avx512f, by the caller's promise.
    let zero = unsafe { _mm512_setzero_si512() };
    let (mut vectors, mut numbers) = ([zero; 8], [zero; 8]);
    // SAFETY: avx512f, by the caller's promise.
    let minus_one = unsafe { _mm512_set1_epi64(-1) };
    let (eights, _) = words.as_chunks::<8>();
    for (vector, eight) in vectors.iter_mut().zip(eights) {
        // SAFETY: the words are readable.
        *vector = unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) };
    }
    for word in words {
        // SAFETY: avx512f, by the caller's promise.
        let word = unsafe { _mm512_set1_epi64(word.cast_signed()) };
        for (number, vector) in numbers.iter_mut().zip(vectors).take(WORDS / 8) {
            // SAFETY: avx512f, by the caller's promise.
            let is_below = unsafe { _mm512_cmplt_epu64_mask(word, vector) };
            // SAFETY: avx512f, by the caller's promise.
            *number = unsafe { _mm512_mask_sub_epi64(*number, is_below, *number, minus_one) };
        }
    }
    let mut out = [0; WORDS];
    for (eight, number) in out.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
        // SAFETY: the words are borrowed mutably.
        unsafe { _mm512_storeu_si512(eight.as_mut_ptr().cast(), number) };
    }
    out
}

/// Returns its argument. The compiler would combine eight masks in a vector, byte by byte, which takes longer than all comparisons.
/// This function separates four of them from the other four.
#[inline(always)]
fn apart(mut part: u64) -> u64 {
    // SAFETY: it contains no instruction.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) part, options(pure, nomem, nostack, preserves_flags)) };
    part
}

#[inline(always)]
unsafe fn compare<const WHICH: u8>(keys: __m512i, needle: __m512i) -> u64 {
    use std::arch::x86_64::{_mm512_cmpeq_epu64_mask, _mm512_cmple_epu64_mask, _mm512_cmplt_epu64_mask};
    let mask = match WHICH {
        // SAFETY: avx512f, by the caller's promise.
        BELOW => unsafe { _mm512_cmplt_epu64_mask(keys, needle) },
        // SAFETY: as above.
        EQUAL => unsafe { _mm512_cmpeq_epu64_mask(keys, needle) },
        // SAFETY: as above.
        _ => unsafe { _mm512_cmple_epu64_mask(keys, needle) },
    };
    u64::from(mask)
}

#[inline(always)]
unsafe fn two_lines<const WHICH: u8>(first: &Line, second: &Line, needle: __m512i, evens: __m512i) -> u64 {
    use std::arch::x86_64::{_mm512_load_si512, _mm512_permutex2var_epi64};
    // SAFETY: a line is 64 readable bytes, 64-byte aligned; the reader's validation detects a torn load.
    let low = unsafe { _mm512_load_si512(std::ptr::from_ref(first).cast::<__m512i>()) };
    // SAFETY: as above.
    let high = unsafe { _mm512_load_si512(std::ptr::from_ref(second).cast::<__m512i>()) };
    // SAFETY: avx512f, by the caller's promise.
    let keys = unsafe { _mm512_permutex2var_epi64(low, evens, high) };
    // SAFETY: avx512f, by the caller's promise.
    unsafe { compare::<WHICH>(keys, needle) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::UP_TO;
    use crate::simd::tests::keys_from_any_word_on_agree_with_a_plain_loop;

    #[test]
    fn keys_from_any_word_on_are_compared() {
        if available() {
            // SAFETY: `available` returned true.
            keys_from_any_word_on_agree_with_a_plain_loop(|lines, first, count, probe| unsafe {
                key_mask::<UP_TO>(lines, first, count, probe)
            });
        }
    }
}
