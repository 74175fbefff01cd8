//! A second mapping of a file's pages, in another order and at consecutive addresses: the Dual-VA of [VLAB §5.1]. The paper adds a
//! system call for it, `build_dualva_list`.
//!
//! A *window* is a reserved range of addresses, readable and empty at first. Pages of the file are mapped into it, shared and read-only.
//! One call maps a run of pages that are neighbours in the file. A page's *place* is its number in the window. Readers use the window as a
//! [`Medium`] with its own offsets (`place * PAGE`). The window must not be written. Stores go through the file's own medium and are
//! visible here, because both map the same memory. (Processor caches identify a line by its physical address.)
//!
//! Each run of neighbouring pages is one kernel mapping, for which the kernel needs 192 bytes. A process may usually have 65,530 mappings
//! (`vm.max_map_count`). Mappings are counted before they are made, over all windows of the process. [`RESERVE`] mappings are left to the
//! rest of the process. Mapping a page takes 4 to 7 us; unmapping takes about half of that.
//!
//! Invariants:
//! * D1: the range and a guard after it stay readable while the `Window` lives. Places that are not mapped read as zeros.
//! * D2: only whole pages of a file below the length of its medium are mapped. These pages have allocated blocks, so no load faults.
//! * D3: nothing is stored through a window: the processor does not allow it.
//! * D4: a place changes from one page to another atomically. A concurrent reader sees one of the two pages. When the call returns,
//!   no processor has the old page in its TLB.
//! * D5: `TAKEN` is at least the number of kernel mappings of all windows.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
pub use crate::medium::traits::Pages;
use crate::medium::traits::{Fence, LINE, Line, Medium, WORD};
use crate::medium::view::{GUARD, View};

/// Bytes of a page.
pub const PAGE: u64 = crate::medium::view::PAGE;
/// Mappings that are left to the rest of the process: stacks of threads, allocators, files, libraries.
pub const RESERVE: u64 = 4096;
/// Kernel memory of a mapping, in bytes.
pub const MAPPING_BYTES: u64 = 192;
/// Bytes of a page's entry in the page table.
pub const ENTRY_BYTES: u64 = 8;
/// Linux's default limit, for a system that does not report it.
const MAPPINGS_DEFAULT: u64 = 65_530;
/// Mappings of a window besides those of its pages: the rest of the reserved range.
const OWN: u64 = 1;
/// Most mappings that the replacement of one page inside a run adds.
const REPLACED: u64 = 2;

/// Mappings of all windows (D5).
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The reason why a window cannot be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// More mappings than this window may have.
    #[error("{needed} mappings are needed and {most} are allowed to it")]
    Limit {
        /// Number of mappings needed.
        needed: u64,
        /// Maximum number of mappings.
        most: u64,
    },
    /// More mappings than the process has left.
    #[error(
        "{needed} mappings are needed and {free} are left to windows of this process: raise vm.max_map_count ({RESERVE} \
         of it are kept for the rest)"
    )]
    System {
        /// Number of mappings needed.
        needed: u64,
        /// Mappings that may still be taken.
        free: u64,
    },
    /// An offset that is not a whole page, or lies outside the medium.
    #[error("{at:#x} is not the offset of a whole page of the file")]
    NoPage {
        /// The offset.
        at: u64,
    },
    /// The kernel refused.
    #[error("the system refuses a mapping: {0}")]
    Refused(std::io::Error),
}

/// A second mapping of pages, in an order of its own.
#[derive(Debug)]
pub struct Window {
    view: View,
    /// Number of places that are not unmapped yet. They are the first ones.
    places: u64,
    /// Upper bound of its present mappings.
    mappings: AtomicU64,
    /// Maximum number of mappings.
    most: u64,
    /// Most mappings of all windows, as the system reported when this one was reserved.
    most_of_all: u64,
}

/// Mappings that all windows of this process may have together: the system's limit minus [`RESERVE`].
pub fn mappings_max() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(MAPPINGS_DEFAULT).saturating_sub(RESERVE)
}

/// Mappings that pages at these offsets need in this order: one for each page that is not the neighbour of the page before.
/// O(pages).
pub fn runs(at: impl Iterator<Item = u64>) -> u64 {
    let mut behind = None;
    let mut count = 0;
    for at in at {
        count += u64::from(behind != Some(at));
        behind = Some(at + PAGE);
    }
    count
}

/// Takes `needed` mappings of the `most` that all windows may have (D5).
fn take(needed: u64, most: u64) -> std::result::Result<(), Refusal> {
    let more = |taken: u64| Some(taken + needed).filter(|taken| *taken <= most);
    let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    taken.map(drop).map_err(|taken| Refusal::System { needed, free: most.saturating_sub(taken) })
}

impl Window {
    /// An empty window with space for `pages` pages in `runs` runs. It never has more than `most` mappings. All windows of the
    /// process together never have more than [`mappings_max`].
    ///
    /// # Errors
    /// `Limit`, `System`; `Refused` if no addresses can be reserved.
    pub fn reserve(pages: usize, runs: u64, most: u64) -> std::result::Result<Self, Refusal> {
        let needed = runs + OWN;
        if needed > most {
            return Err(Refusal::Limit { needed, most });
        }
        let most_of_all = mappings_max();
        take(needed, most_of_all)?;
        let reserved = (pages.max(1) as u64 * PAGE).next_power_of_two();
        // SAFETY: a fresh private anonymous range at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (reserved + GUARD) as usize,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let base = if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast::<u8>()) };
        let Some(base) = base else {
            TAKEN.fetch_sub(needed, Ordering::AcqRel);
            return Err(Refusal::Refused(std::io::Error::last_os_error()));
        };
        let view = View { base, reserved };
        Ok(Self { view, places: pages as u64, mappings: AtomicU64::new(needed), most, most_of_all })
    }

    /// Maps the pages at these offsets of the medium to consecutive places from `place` on, one call for each run. Their runs must
    /// have been counted in [`Window::reserve`].
    ///
    /// # Errors
    /// `NoPage`, `Refused`: some places may already be mapped then.
    pub fn map(&self, pages: &Pages<'_>, place: usize, at: &[u64]) -> std::result::Result<(), Refusal> {
        let mut from = 0;
        while from < at.len() {
            let is_next = |i: &usize| at[*i] == at[*i - 1] + PAGE;
            let to = (from + 1..at.len()).take_while(is_next).last().map_or(from + 1, |last| last + 1);
            self.map_run(pages, (place + from) as u64, at[from], (to - from) as u64)?;
            from = to;
        }
        Ok(())
    }

    /// Replaces the page at a mapped place, concurrently with readers (D4).
    ///
    /// # Errors
    /// As [`Window::map`]; `Limit` and `System` if the change could take too many mappings.
    pub fn replace(&self, pages: &Pages<'_>, place: usize, at: u64) -> std::result::Result<(), Refusal> {
        self.expect_change()?;
        self.map_run(pages, place as u64, at, 1)
    }

    /// Takes the mappings that a change of one page may add after the runs were counted.
    ///
    /// # Errors
    /// `Limit` and `System` if the change could take too many mappings.
    pub fn expect_change(&self) -> std::result::Result<(), Refusal> {
        let needed = self.mappings() + REPLACED;
        if needed > self.most {
            return Err(Refusal::Limit { needed, most: self.most });
        }
        take(REPLACED, self.most_of_all)?;
        self.mappings.fetch_add(REPLACED, Ordering::AcqRel);
        Ok(())
    }

    fn map_run(
        &self,
        pages: &Pages<'_>,
        place: u64,
        at: u64,
        count: u64,
    ) -> std::result::Result<(), Refusal> {
        let bytes = count * PAGE;
        assert!(place + count <= self.places, "places outside of the window: {place}, {count}");
        if !at.is_multiple_of(PAGE) || at.checked_add(bytes).is_none_or(|end| end > pages.len) {
            return Err(Refusal::NoPage { at });
        }
        // SAFETY: the place lies inside the range, as the assertion checks (D1).
        let to = unsafe { self.view.base.add((place * PAGE) as usize) };
        // SAFETY: MAP_FIXED replaces pages of our own range only, which are read through atomics only. It never leaves them
        // unmapped meanwhile: a fault waits for the call (D4). The mapped pages are inside the file (D2), read-only (D3).
        let mapped = unsafe {
            libc::mmap(
                to.as_ptr().cast(),
                bytes as usize,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE,
                pages.file.as_raw_fd(),
                (pages.origin + at) as libc::off_t,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(Refusal::Refused(std::io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Unmaps the last `places` places, which then read as zeros. Returns true when no places are left. Unmapping a large window in
    /// one call would block the calling thread, and every page fault of the process meanwhile.
    pub fn take_down(&mut self, places: usize) -> bool {
        let from = self.places.saturating_sub(places as u64);
        if from < self.places {
            // SAFETY: the place lies inside the range (D1).
            let place = unsafe { self.view.base.add((from * PAGE) as usize) };
            // SAFETY: MAP_FIXED replaces pages of our own range by pages that stay readable (D1). A refusal is harmless: they are
            // unmapped with the window.
            unsafe {
                libc::mmap(
                    place.as_ptr().cast(),
                    ((self.places - from) * PAGE) as usize,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            self.places = from;
        }
        from == 0
    }

    /// Upper bound of the number of kernel mappings.
    pub fn mappings(&self) -> u64 {
        self.mappings.load(Ordering::Acquire)
    }

    /// Kernel memory in bytes, for mappings and the page table.
    pub fn memory(&self) -> u64 {
        self.mappings() * MAPPING_BYTES + self.places * ENTRY_BYTES
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `reserve` with this length and no reference outlives self.
        unsafe { libc::munmap(self.view.base.as_ptr().cast(), (self.view.reserved + GUARD) as usize) };
        TAKEN.fetch_sub(self.mappings(), Ordering::AcqRel);
    }
}

/// Offsets are the window's own. The length is 0, so every offset counts as outside for a write.
impl Medium for Window {
    #[inline(always)]
    fn line(&self, at: u64) -> &Line {
        self.view.line(at)
    }

    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        self.view.word(at)
    }

    fn copy(&self, at: u64, _value: u64) {
        panic!("nothing is written through a window: {at:#x}");
    }

    fn publish(&self, at: u64, _value: u64) {
        panic!("nothing is written through a window: {at:#x}");
    }

    fn flush(&self, _at: u64, _bytes: u64) {}

    fn fence(&self, _why: Fence) {}

    #[inline(always)]
    fn prefetch(&self, at: u64, bytes: u64) {
        self.view.prefetch(at, bytes);
    }

    fn len(&self) -> u64 {
        0
    }

    fn grow(&self, _bytes: u64) -> Result<()> {
        Err(Error::Full { max_bytes: 0 })
    }

    fn sync(&self, _at: u64, _bytes: u64) -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    fn lines(&self, at: u64, count: usize) -> Option<&[Line]> {
        Some(self.view.lines(at, count))
    }
}

const _: () = assert!(PAGE.is_multiple_of(LINE) && LINE.is_multiple_of(WORD));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::memory_file;
    use crate::medium::native::{Durability, Native};
    use std::path::Path;

    /// A medium of `pages` pages, each of which contains its number.
    fn medium(pages: u64) -> Native {
        let native =
            Native::map(memory_file().unwrap(), Path::new("memory"), 64 << 20, Durability::Process).unwrap();
        native.grow(pages * PAGE).unwrap();
        (0..pages).for_each(|page| native.copy(page * PAGE + 8, 1000 + page));
        native
    }

    fn seen(window: &Window, places: u64) -> Vec<u64> {
        (0..places).map(|place| window.word(place * PAGE + 8)).collect()
    }

    /// Mappings of the process that contain a part of a window, as the kernel reports them. The kernel may join the window's first or last
    /// mapping with one beside the window, such as that of another test.
    fn told(window: &Window) -> u64 {
        let base = window.view.base.as_ptr().addr() as u64;
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: Option<&str>| u64::from_str_radix(text.unwrap(), 16).unwrap();
        let overlaps = |line: &&str| {
            let mut ends = line.split(['-', ' ']);
            number(ends.next()) < base + window.view.reserved && base < number(ends.next())
        };
        text.lines().filter(overlaps).count() as u64
    }

    #[test]
    fn pages_stand_in_the_order_that_was_asked_for_and_neighbours_are_one_mapping() {
        let native = medium(40);
        let order = [7, 8, 9, 3, 30, 31, 2, 1, 0, 7].map(|page| page * PAGE);
        assert_eq!(runs(order.iter().copied()), 7);
        let window = Window::reserve(order.len(), 7, 100).unwrap();
        let pages = native.pages().unwrap();
        // In two parts; the first ends inside a run, and the kernel joins them.
        window.map(&pages, 0, &order[..2]).unwrap();
        window.map(&pages, 2, &order[2..]).unwrap();
        assert_eq!(seen(&window, 10), [1007, 1008, 1009, 1003, 1030, 1031, 1002, 1001, 1000, 1007]);
        assert_eq!((told(&window), window.mappings()), (7 + OWN, 7 + OWN));
        assert_eq!(window.memory(), 8 * 192 + 10 * 8);
        assert_eq!(window.word(12 * PAGE), 0, "behind the last place");
        let lines = window.lines(PAGE, 64).unwrap();
        assert_eq!(lines[0].0[1].load(Ordering::Relaxed), 1008);
    }

    #[test]
    fn what_is_stored_through_the_medium_is_seen_at_once() {
        let native = medium(4);
        let window = Window::reserve(3, 3, 4).unwrap();
        window.map(&native.pages().unwrap(), 0, &[3 * PAGE, PAGE, 2 * PAGE]).unwrap();
        for round in 0..100 {
            native.copy(PAGE + 64, round);
            native.publish(2 * PAGE + 4088, round * 3);
            assert_eq!((window.word(PAGE + 64), window.word(2 * PAGE + 4088)), (round, round * 3));
        }
    }

    #[test]
    fn a_place_is_given_another_page_beside_readers_who_see_the_one_or_the_other() {
        let native = medium(8);
        let window = Window::reserve(6, 1, 1000).unwrap();
        let pages = native.pages().unwrap();
        window.map(&pages, 0, &[0, 1, 2, 3, 4, 5].map(|page| page * PAGE)).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let word = window.word(2 * PAGE + 8);
                    assert!([1002, 1006, 1007].contains(&word), "{word}");
                }
            });
            for round in 0..400 {
                window.replace(&pages, 2, (6 + round % 2) * PAGE).unwrap();
                assert_eq!(window.word(2 * PAGE + 8), 1006 + round % 2);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(seen(&window, 6), [1000, 1001, 1007, 1003, 1004, 1005]);
        assert!(told(&window) <= window.mappings());
    }

    #[test]
    fn a_limit_is_kept_before_anything_is_mapped_and_when_a_page_is_replaced() {
        let native = medium(8);
        let refused = Window::reserve(5, 5, 5);
        assert!(matches!(refused, Err(Refusal::Limit { needed: 6, most: 5 })), "{refused:?}");
        let window = Window::reserve(3, 1, 5).unwrap();
        let pages = native.pages().unwrap();
        window.map(&pages, 0, &[PAGE, 2 * PAGE, 3 * PAGE]).unwrap();
        window.replace(&pages, 1, 0).unwrap();
        let refused = window.replace(&pages, 1, 5 * PAGE).unwrap_err();
        assert!(matches!(refused, Refusal::Limit { needed: 6, most: 5 }), "{refused}");
        assert_eq!(seen(&window, 3), [1001, 1000, 1003]);
        let whole = Window::reserve(3, u64::from(u32::MAX), u64::MAX).unwrap_err();
        assert!(whole.to_string().contains("vm.max_map_count"), "{whole}");
    }

    #[test]
    fn only_whole_pages_of_the_medium_are_mapped() {
        let native = medium(8);
        let window = Window::reserve(3, 3, 5).unwrap();
        for at in [64, 8 * PAGE, !(PAGE - 1), 100 * PAGE] {
            let refused = window.map(&native.pages().unwrap(), 0, &[at]);
            assert!(matches!(refused, Err(Refusal::NoPage { .. })), "{at:#x}");
        }
        assert_eq!(seen(&window, 3), [0, 0, 0]);
        assert!(Native::anonymous(1 << 20, Durability::Process).unwrap().pages().is_none());
    }

    #[test]
    fn a_window_is_taken_down_in_steps_and_gives_back_what_it_took() {
        let native = medium(64);
        let order: Vec<u64> = (0..60).map(|i| i * 7 % 64 * PAGE).collect();
        let mut window = Window::reserve(60, 60, 100).unwrap();
        window.map(&native.pages().unwrap(), 0, &order).unwrap();
        assert_eq!(told(&window), 60 + OWN);
        assert!(!window.take_down(40));
        assert_eq!((told(&window), seen(&window, 60)[20]), (20 + OWN, 0));
        assert_eq!(window.word(19 * PAGE + 8), 1000 + 19 * 7 % 64);
        assert!(window.take_down(40));
        assert_eq!(told(&window), 1);
        assert!(window.take_down(40));
    }
}
