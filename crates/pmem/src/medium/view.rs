//! A view of a medium's lines, for reading: the base address of a range, and the length of this range. A read masks its offset, so that it
//! stays inside the range.
//!
//! Invariant: the range and a guard after it stay readable while the owner of the mapping lives (N2 of `native`, D1 of `page_remap`).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::medium::traits::{LINE, Line, WORD};

/// The address of the lines. Valid while the owner of the mapping lives (N2 of `native`, D1 of `page_remap`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub base: NonNull<u8>,
    /// A power of two.
    pub reserved: u64,
}

// SAFETY: the mapping is plain memory reached through atomics only, and `base` never changes.
unsafe impl Send for View {}
// SAFETY: as above: all shared access goes through `AtomicU64` words.
unsafe impl Sync for View {}

/// Readable bytes after the reserved range, so that a run of lines that starts inside it stays readable (N2).
pub(crate) const GUARD: u64 = 1 << 16;
pub(crate) const PAGE: u64 = 4096;
/// The size of a page that one entry of the last but one page-table level maps.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;
impl View {
    #[inline(always)]
    pub fn line(&self, at: u64) -> &Line {
        let offset = (at & (self.reserved - 1) & !(LINE - 1)) as usize;
        // SAFETY: the masked offset lies inside the reserved range, which stays mapped while its owner lives (N2).
        let line = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: 64-byte aligned (the base is page aligned), readable, and only ever accessed as atomics.
        unsafe { &*line.cast::<Line>() }
    }

    #[inline(always)]
    pub fn word(&self, at: u64) -> u64 {
        let offset = (at & (self.reserved - 1) & !(WORD - 1)) as usize;
        // SAFETY: the masked offset lies inside the reserved range, which stays mapped while its owner lives (N2).
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: 8-byte aligned, readable, and only ever accessed as atomics.
        unsafe { AtomicU64::from_ptr(word.cast()) }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn lines(&self, at: u64, count: usize) -> &[Line] {
        assert!(count as u64 * LINE <= GUARD, "so many lines are not shown at once");
        let first = std::ptr::from_ref(self.line(at));
        // SAFETY: `first` lies inside the range and the guard keeps `count` lines after it readable (N2).
        unsafe { std::slice::from_raw_parts(first, count) }
    }

    #[inline(always)]
    pub fn prefetch(&self, at: u64, bytes: u64) {
        let first = std::ptr::from_ref(self.line(at));
        let lines = (at % LINE + bytes).div_ceil(LINE) as usize;
        for line in 0..lines {
            prefetch(first.wrapping_add(line));
        }
    }
}

/// Prefetches a line from any level of memory into the second-level cache, which can have many more outstanding misses than the
/// first. A burst of requests for the first level, such as the lines of a node for each of many descents, waits for its fill
/// buffers: one lookup of many took 250 ns instead of 180 ns.
#[inline(always)]
pub(crate) fn prefetch(line: *const Line) {
    prefetch_into::<false>(line);
}

/// As [`prefetch`], into the first level if `FIRST`. A single descent waits for the line, so it needs the line in the first level: with the
/// second level, one lookup took 520 ns instead of 420 ns.
#[inline(always)]
pub(crate) fn prefetch_into<const FIRST: bool>(line: *const Line) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        let line = line.cast();
        if FIRST {
            // SAFETY: a prefetch has no effect on the program's state whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        } else {
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
