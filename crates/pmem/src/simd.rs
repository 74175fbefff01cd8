//! Vector comparison of a node's keys: the one place that looks at durable lines as vectors.
//!
//! Entries of a node are pairs of words (key, payload) from some 16-byte aligned place on, four to a line: [`pair_mask`] has
//! bit `4 * line + i` set for the `i`-th pair of a line. Or keys stand in a column: [`key_mask`] has a bit for each. Results are used only after the reader's second look at the
//! node's stripe, so a line that changes under the load is never believed.

use crate::medium::Line;

/// True if [`pair_mask`] may be called.
pub fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("popcnt")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Which comparison a mask is wanted of: the caller names it in the type, so that the other costs nothing.
pub const BELOW: u8 = 1;
/// Keys equal to the probe.
pub const EQUAL: u8 = 2;
/// Keys below the probe or equal to it.
pub const UP_TO: u8 = 3;

/// Compares the key words (even words) of up to 16 lines with `probe`: the mask of keys that are as `WHICH` says.
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

/// As [`pair_mask`], of keys equal to `probe`; `None` where the processor has no such vectors. For who asks once for many lines: what
/// the processor has is looked up with each call.
#[inline]
pub fn equal_pairs(lines: &[Line], probe: u64) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,popcnt,bmi1,bmi2")]
        fn equal(lines: &[Line], probe: u64) -> u64 {
            // SAFETY: this function has the features.
            unsafe { pair_mask::<EQUAL>(lines, probe) }
        }
        // SAFETY: the processor has what `equal` asks for.
        available().then(|| unsafe { equal(lines, probe) })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (lines, probe);
        None
    }
}

/// Compares `count` key words from word `first` of the lines on, at most 64, with `probe`: the mask of keys that are as `WHICH`
/// says, and whatever it likes beyond them. The lines must hold as many words, made a multiple of eight.
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
            // SAFETY: the place lies inside the lines, as the assertion above says.
            let place = unsafe { lines.as_ptr().cast::<u64>().add(first + i * 8) };
            // SAFETY: 64 readable bytes of the lines; a torn load is caught by the stripe's second look.
            let keys = unsafe { _mm512_loadu_si512(place.cast()) };
            // SAFETY: avx512f, by the caller's promise.
            part |= unsafe { compare::<WHICH>(keys, needle) } << (8 * (i % 4));
        }
        mask |= apart(part) << (32 * half);
    }
    mask
}

/// Its argument. The compiler, seeing eight masks put together, does it in a vector, byte after byte, which takes longer than
/// all the comparisons; this keeps four of them from the other four.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn apart(mut part: u64) -> u64 {
    // SAFETY: no instruction at all.
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
    // SAFETY: a line is 64 readable bytes, 64-byte aligned; a torn load is caught by the stripe's second look.
    let low = unsafe { _mm512_load_si512(std::ptr::from_ref(first).cast::<__m512i>()) };
    // SAFETY: as above.
    let high = unsafe { _mm512_load_si512(std::ptr::from_ref(second).cast::<__m512i>()) };
    // SAFETY: avx512f, by the caller's promise.
    let keys = unsafe { _mm512_permutex2var_epi64(low, evens, high) };
    // SAFETY: passed on.
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
        let wanted = ["avx512f", "avx512dq", "popcnt", "bmi1", "bmi2"];
        let all = wanted.iter().all(|wanted| flags.split_whitespace().any(|flag| flag == *wanted));
        assert_eq!(available(), all);
    }

    #[test]
    fn masks_agree_with_a_plain_loop_for_every_number_of_lines() {
        if !available() {
            // The test above has shown that this is true, and the tree's model test that it takes its scalar path then.
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
                // SAFETY: `available` was asked above.
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
