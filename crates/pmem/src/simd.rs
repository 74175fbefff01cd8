//! Vector comparison of a node's keys: the only module that reads durable lines as vectors.
//!
//! Nodes have one of these layouts:
//!
//! * The entries are pairs of words (key, payload) from a 16-byte aligned offset on, four to a line. Bit `4 * line + i` of
//!   [`pair_mask`] is the result for the `i`-th pair of a line.
//! * The keys are in an array of their own, apart from the payloads. [`key_mask`] has a bit for each key.
//! * An entry is half a line: key, payload, start version, end version. [`Vectors::slots`] compares keys and versions.
//! * A word contains parts of keys: two of 32 bits or four of 16 bits ([`Vectors::parts_up_to`]), or one in its upper 16 bits
//!   ([`Vectors::tops`]).
//!
//! Results are used only after the reader validated the node's version, so a line that changes during the load has no effect.

use crate::medium::traits::Line;

/// True if [`pair_mask`] may be called.
pub fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("popcnt")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// A comparison: keys below the probe. The caller selects a comparison by a const generic parameter, so the others cost nothing.
pub const BELOW: u8 = 1;
/// Keys equal to the probe.
pub const EQUAL: u8 = 2;
/// Keys below the probe or equal to it.
pub const UP_TO: u8 = 3;

/// Compares the key words (even words) of up to 16 lines with `probe`. Returns the mask of keys for which `WHICH` holds.
///
/// # Safety
/// The processor must have the features that [`available`] asks for.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn pair_mask<const WHICH: u8>(lines: &[Line], probe: u64) -> u64 {
    use std::arch::x86_64::{_mm512_set_epi64, _mm512_set1_epi64};
    debug_assert!(lines.len() <= 16);
    // SAFETY: avx512f, by the caller's promise.
    let needle = unsafe { _mm512_set1_epi64(probe as i64) };
    // SAFETY: avx512f, by the caller's promise.
    let evens = unsafe { _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0) };
    let (pairs, odd) = lines.as_chunks::<2>();
    let mut mask = 0;
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

/// As [`pair_mask`]; `None` if the processor lacks these vectors. For callers that compare many lines in one call: each call checks
/// the processor's features.
#[inline]
pub fn pairs<const WHICH: u8>(lines: &[Line], probe: u64) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,popcnt,bmi1,bmi2")]
        fn mask<const WHICH: u8>(lines: &[Line], probe: u64) -> u64 {
            // SAFETY: this function is compiled with the features.
            unsafe { pair_mask::<WHICH>(lines, probe) }
        }
        // SAFETY: `available` checked the features that `mask` needs.
        available().then(|| unsafe { mask::<WHICH>(lines, probe) })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (lines, probe);
        None
    }
}

/// Compares `probe` with `count` key words, at most 64, that begin at word `first` of the lines. Returns the mask of keys for
/// which `WHICH` holds; bits after `count` are undefined. The lines must contain that many words, rounded up to a multiple of
/// eight.
///
/// # Safety
/// The processor must have the features that [`available`] asks for.
#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn top_mask(lines: &[Line], top: u16) -> u64 {
    use std::arch::x86_64::{_mm512_load_si512, _mm512_set1_epi64, _mm512_srli_epi64};
    assert!(lines.len() <= 8, "a mask has one bit for each of 64 words");
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
#[cfg(target_arch = "x86_64")]
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

/// Proof that the processor has the vector instructions that [`available`] checks. The methods use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors(());

/// Work that is compiled with the features of [`Vectors`] ([`Vectors::run_body`]). The compiler does not inline every closure, and without
/// inlining each vector instruction is a call. So an implementation marks its function `inline(always)`.
pub trait Body {
    /// The result.
    type Out;
    /// Does the work, with vectors if there are any.
    fn run(self, vectors: Option<Vectors>) -> Self::Out;
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

/// Lines of a node that are compared together.
const GROUP: usize = 16;

impl Vectors {
    /// `None` if the processor lacks these vectors.
    pub fn of_processor() -> Option<Self> {
        available().then_some(Self(()))
    }

    /// Runs `body` compiled with these features. Functions that are inlined into it use them too.
    #[inline(always)]
    pub fn run<R>(self, body: impl FnOnce() -> R) -> R {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512dq,avx512bw,popcnt,bmi1,bmi2")]
            fn run<R>(body: impl FnOnce() -> R) -> R {
                body()
            }
            // SAFETY: there is a `Vectors` only where the processor has the features of the function.
            unsafe { run(body) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        body()
    }

    /// As [`Vectors::run`], always with inlining.
    #[inline(always)]
    pub fn run_body<B: Body>(self, body: B) -> B::Out {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512dq,avx512bw,popcnt,bmi1,bmi2")]
            fn run<B: Body>(vectors: Vectors, body: B) -> B::Out {
                body.run(Some(vectors))
            }
            // SAFETY: there is a `Vectors` only where the processor has the features of the function.
            unsafe { run(self, body) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        body.run(Some(self))
    }

    /// [`pair_mask`], for callers that run inside of [`Vectors::run`].
    #[inline(always)]
    pub fn pairs<const WHICH: u8>(self, lines: &[Line], probe: u64) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: there is a `Vectors` only where the processor has the features.
            unsafe { pair_mask::<WHICH>(lines, probe) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (lines, probe);
            unreachable!("no processor but this kind has a `Vectors`")
        }
    }

    /// [`key_mask`] of all words of up to 8 lines, for callers that run inside of [`Vectors::run`].
    ///
    /// # Panics
    /// With more than 8 lines.
    #[inline(always)]
    pub fn words<const WHICH: u8>(self, lines: &[Line], probe: u64) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: there is a `Vectors` only where the processor has the features.
            unsafe { key_mask::<WHICH>(lines, 0, lines.len() * 8, probe) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (lines, probe);
            unreachable!("no processor but this kind has a `Vectors`")
        }
    }

    /// Counts the parts of the lines' words that are at most `limit`. A part has `BITS` bits, 16 or 32. For callers that run inside of
    /// [`Vectors::run`].
    #[inline(always)]
    pub fn parts_up_to<const BITS: u32>(self, lines: &[Line], limit: u32) -> usize {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: there is a `Vectors` only where the processor has the features.
            unsafe { parts_up_to::<BITS>(lines, limit) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (lines, limit);
            unreachable!("no processor but this kind has a `Vectors`")
        }
    }

    /// Compares the upper 16 bits of each word of up to 8 lines with `top`. Returns a bit for each word, set if they are equal. For callers
    /// that run inside of [`Vectors::run`].
    ///
    /// # Panics
    /// With more than 8 lines.
    #[inline(always)]
    pub fn tops(self, lines: &[Line], top: u16) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: there is a `Vectors` only where the processor has the features.
            unsafe { top_mask(lines, top) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (lines, top);
            unreachable!("no processor but this kind has a `Vectors`")
        }
    }

    /// Compares all slots of up to 64 lines. A slot has four words: key, payload, start, end.
    ///
    /// # Panics
    /// With more than 64 lines.
    #[inline(always)]
    pub fn slots<const PREFIX: bool>(self, lines: &[Line], probe: u64, version: u64) -> Slots {
        let (groups, rest) = lines.as_chunks::<GROUP>();
        if let ([group], []) = (groups, rest) {
            return Slots::of(self.slots_of::<PREFIX>(group, probe, version), 0);
        }
        assert!(lines.len() <= 64, "a node has 64 lines at most");
        let mut slots = Slots::default();
        for (number, group) in groups.iter().enumerate() {
            slots = slots.with(Slots::of(self.slots_of::<PREFIX>(group, probe, version), number));
        }
        if !rest.is_empty() {
            let copied: [Line; GROUP] =
                std::array::from_fn(|at| rest.get(at).map_or(Line::zero(), Line::copied));
            let (keys, versions) = self.slots_of::<PREFIX>(&copied, probe, version);
            // Lines that do not exist have keys of 0.
            let there = u64::from(u32::MAX >> (2 * (GROUP - rest.len())));
            slots = slots.with(Slots::of((keys & (there | there << 32), versions), groups.len()));
        }
        slots
    }

    #[inline(always)]
    fn slots_of<const PREFIX: bool>(self, lines: &[Line; GROUP], probe: u64, version: u64) -> (u64, u64) {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: there is a `Vectors` only where the processor has the features of the function.
            unsafe { slots_of::<PREFIX>(lines, probe, version) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (lines, probe, version);
            unreachable!("no processor but this kind has a `Vectors`")
        }
    }
}

/// Compares 32 slots. The first word of the result has `up_to` of [`Slots`] in its low half and `same` in its high half. The
/// second word has `begun` and `ended` likewise. Two words stay in registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,popcnt,bmi1,bmi2")]
#[inline]
fn slots_of<const PREFIX: bool>(lines: &[Line; GROUP], probe: u64, version: u64) -> (u64, u64) {
    use std::arch::x86_64::{
        __m512i, _mm512_cmpeq_epu64_mask, _mm512_cmple_epu64_mask, _mm512_load_si512,
        _mm512_mask_blend_epi64, _mm512_permutex2var_epi64, _mm512_set_epi64, _mm512_set1_epi64,
        _mm512_srli_epi64, _mm512_sub_epi64, _mm512_test_epi64_mask, _pext_u64,
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

/// Returns its argument. The compiler would combine eight masks in a vector, byte by byte, which takes longer than all comparisons.
/// This function separates four of them from the other four.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn apart(mut part: u64) -> u64 {
    // SAFETY: it contains no instruction.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) part, options(pure, nomem, nostack, preserves_flags)) };
    part
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn compare<const WHICH: u8>(
    keys: std::arch::x86_64::__m512i,
    needle: std::arch::x86_64::__m512i,
) -> u64 {
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

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn two_lines<const WHICH: u8>(
    first: &Line,
    second: &Line,
    needle: std::arch::x86_64::__m512i,
    evens: std::arch::x86_64::__m512i,
) -> u64 {
    use std::arch::x86_64::{__m512i, _mm512_load_si512, _mm512_permutex2var_epi64};
    // SAFETY: a line is 64 readable bytes, 64-byte aligned; the reader's validation detects a torn load.
    let low = unsafe { _mm512_load_si512(std::ptr::from_ref(first).cast::<__m512i>()) };
    // SAFETY: as above.
    let high = unsafe { _mm512_load_si512(std::ptr::from_ref(second).cast::<__m512i>()) };
    // SAFETY: avx512f, by the caller's promise.
    let keys = unsafe { _mm512_permutex2var_epi64(low, evens, high) };
    // SAFETY: avx512f, by the caller's promise.
    unsafe { compare::<WHICH>(keys, needle) }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_lists_every_feature_exactly_where_vectors_are_available() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags")).unwrap();
        let wanted = ["avx512f", "avx512dq", "avx512bw", "popcnt", "bmi1", "bmi2"];
        let all = wanted.iter().all(|wanted| flags.split_whitespace().any(|flag| flag == *wanted));
        assert_eq!(available(), all);
    }

    #[test]
    fn masks_of_words_and_of_their_upper_bits_agree_with_a_plain_loop() {
        let Some(vectors) = Vectors::of_processor() else { return };
        let mut random = 7_u64;
        for count in 1..=8_usize {
            let lines: Vec<Line> = (0..count).map(|_| Line::zero()).collect();
            for word in lines.iter().flat_map(|line| &line.0) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                word.store((random >> 62) << 48 | random >> 60, Ordering::Relaxed);
            }
            let word = |i: usize| lines[i / 8].0[i % 8].load(Ordering::Relaxed);
            let mask = |is: &dyn Fn(u64) -> bool| {
                (0..count * 8).filter(|i| is(word(*i))).fold(0, |mask, i| mask | 1_u64 << i)
            };
            for probe in [0, 2 << 48 | 5, u64::MAX] {
                let top = (probe >> 48) as u16;
                vectors.run(|| {
                    assert_eq!(vectors.tops(&lines, top), mask(&|word| word >> 48 == u64::from(top)));
                    let halves = (0..count * 8).flat_map(|i| [word(i) as u32, (word(i) >> 32) as u32]);
                    let up_to = halves.filter(|half| *half <= probe as u32).count();
                    assert_eq!(vectors.parts_up_to::<32>(&lines, probe as u32), up_to);
                    let quarters = (0..count * 32).map(|i| (word(i / 4) >> (16 * (i % 4))) as u16);
                    let up_to = quarters.filter(|quarter| *quarter <= top).count();
                    assert_eq!(vectors.parts_up_to::<16>(&lines, u32::from(top)), up_to);
                    assert_eq!(vectors.words::<UP_TO>(&lines, probe), mask(&|word| word <= probe));
                    assert_eq!(vectors.words::<EQUAL>(&lines, probe), mask(&|word| word == probe));
                });
            }
        }
    }

    #[test]
    fn slots_agree_with_a_plain_loop_for_every_number_of_lines() {
        let Some(vectors) = Vectors::of_processor() else { return };
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        for count in 1..=64_usize {
            let lines: Vec<Line> = (0..count).map(|_| Line::zero()).collect();
            for line in &lines {
                for half in [0, 4] {
                    line.0[half]
                        .store((next() % 5) << 62 | (next() % 3) << 8 | (next() % 4), Ordering::Relaxed);
                    line.0[half + 1].store(u64::MAX, Ordering::Relaxed);
                    line.0[half + 2].store(next() % 7, Ordering::Relaxed);
                    line.0[half + 3].store(next() % 7, Ordering::Relaxed);
                }
            }
            for _ in 0..20 {
                let (probe, version) = ((next() % 5) << 62 | (next() % 3) << 8 | (next() % 4), next() % 8);
                let plain = vectors.slots::<false>(&lines, probe, version);
                let prefix = vectors.slots::<true>(&lines, probe, version);
                for slot in 0..128 {
                    let words = lines.get(slot / 2).map(|line| {
                        [0, 1, 2, 3].map(|word| line.0[slot % 2 * 4 + word].load(Ordering::Relaxed))
                    });
                    let is =
                        |of: fn([u64; 4], u64, u64) -> bool| words.is_some_and(|w| of(w, probe, version));
                    let bit = |mask: u128| mask >> slot & 1 == 1;
                    assert_eq!(bit(plain.up_to), is(|w, probe, _| w[0] <= probe));
                    assert_eq!(bit(plain.same), is(|w, probe, _| w[0] == probe));
                    assert_eq!(bit(prefix.same), is(|w, probe, _| w[0] & 1 == 0 || w[0] >> 8 == probe >> 8));
                    assert_eq!(bit(plain.begun), is(|w, _, at| w[2] != 0 && w[2] <= at));
                    assert_eq!(bit(plain.ended), is(|w, _, at| w[3] != 0 && w[3] <= at));
                    assert_eq!((plain.up_to, plain.begun), (prefix.up_to, prefix.begun));
                }
            }
        }
    }

    #[test]
    fn masks_agree_with_a_plain_loop_for_every_number_of_lines() {
        if !available() {
            // A test above shows that this is true, and the tree's model test shows that the scalar path is used then.
            return;
        }
        for count in 1..=16_usize {
            let lines: Vec<Line> = (0..count).map(|_| Line::zero()).collect();
            for pair in 0..4 * count {
                let key = (pair as u64 * 7919) % 64;
                lines[pair / 4].0[pair % 4 * 2].store(key << 58, Ordering::Relaxed);
                lines[pair / 4].0[pair % 4 * 2 + 1].store(u64::MAX, Ordering::Relaxed);
            }
            for probe in (0..64_u64).map(|k| k << 58).chain([u64::MAX]) {
                // SAFETY: `available` was checked above.
                let below = unsafe { pair_mask::<BELOW>(&lines, probe) };
                // SAFETY: as above.
                let equal = unsafe { pair_mask::<EQUAL>(&lines, probe) };
                // SAFETY: as above.
                let up_to = unsafe { pair_mask::<UP_TO>(&lines, probe) };
                for first in [0, 2, 3, 8] {
                    let keys = (8 * count).saturating_sub(first).min(64) / 8 * 8;
                    // SAFETY: as above.
                    let mask = unsafe { key_mask::<UP_TO>(&lines, first, keys, probe) };
                    for i in 0..keys {
                        let key = lines[(first + i) / 8].0[(first + i) % 8].load(Ordering::Relaxed);
                        assert_eq!(mask >> i & 1 == 1, key <= probe);
                    }
                }
                for pair in 0..64 {
                    let key = ((pair as u64 * 7919) % 64) << 58;
                    let there = pair < 4 * count;
                    assert_eq!(below >> pair & 1 == 1, there && key < probe);
                    assert_eq!(equal >> pair & 1 == 1, there && key == probe);
                    assert_eq!(up_to >> pair & 1 == 1, there && key <= probe);
                }
            }
        }
    }
}
