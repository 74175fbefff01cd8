//! Vector comparison of a node's keys: the one place that looks at durable lines as vectors.
//!
//! Entries of a node are pairs of words (key, payload) from some 16-byte aligned place on; four to a line. A mask has
//! bit `4 * line + i` set for the `i`-th pair of a line. Results are used only after the reader's second look at the
//! node's stripe, so a line that changes under the load is never believed.

use crate::medium::Line;

/// True if [`pair_masks`] may be called.
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

/// Compares the key words (even words) of up to 16 lines with `probe`: masks of keys below it and equal to it.
///
/// # Safety
/// The processor must have the features that [`available`] asks for.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn pair_masks(lines: &[Line], probe: u64) -> (u64, u64) {
    use std::arch::x86_64::{
        __m512i, _mm512_cmpeq_epu64_mask, _mm512_cmplt_epu64_mask, _mm512_load_si512,
        _mm512_permutex2var_epi64, _mm512_set_epi64, _mm512_set1_epi64,
    };
    debug_assert!(lines.len() <= 16);
    // SAFETY: avx512f, by the caller's promise.
    let needle = unsafe { _mm512_set1_epi64(probe as i64) };
    // SAFETY: avx512f, by the caller's promise.
    let evens = unsafe { _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0) };
    let (mut below, mut equal) = (0, 0);
    let mut index = 0;
    while index < lines.len() {
        let first = std::ptr::from_ref(&lines[index]).cast::<__m512i>();
        let second = std::ptr::from_ref(&lines[(index + 1).min(lines.len() - 1)]).cast::<__m512i>();
        // SAFETY: a line is 64 readable bytes, 64-byte aligned; a torn load is caught by the stripe's second look.
        let low = unsafe { _mm512_load_si512(first) };
        // SAFETY: as above.
        let high = unsafe { _mm512_load_si512(second) };
        // SAFETY: avx512f, by the caller's promise.
        let keys = unsafe { _mm512_permutex2var_epi64(low, evens, high) };
        // SAFETY: avx512f, by the caller's promise.
        let lt = unsafe { _mm512_cmplt_epu64_mask(keys, needle) };
        // SAFETY: avx512f, by the caller's promise.
        let eq = unsafe { _mm512_cmpeq_epu64_mask(keys, needle) };
        below |= u64::from(lt) << (4 * index);
        equal |= u64::from(eq) << (4 * index);
        index += 2;
    }
    // An odd last line was compared twice: its copy lies beyond the mask of `4 * lines` pairs.
    let valid = if lines.len() == 16 { u64::MAX } else { (1 << (4 * lines.len())) - 1 };
    (below & valid, equal & valid)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn masks_agree_with_a_plain_loop_for_every_number_of_lines() {
        if !available() {
            return; // nothing to compare on such a processor: the tree takes its scalar path there
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
                let (below, equal) = unsafe { pair_masks(&lines, probe) };
                for pair in 0..64 {
                    let key = ((pair as u64 * 7919) % 64) << 58;
                    assert_eq!(below >> pair & 1 == 1, pair < 4 * count && key < probe);
                    assert_eq!(equal >> pair & 1 == 1, pair < 4 * count && key == probe);
                }
            }
        }
    }
}
