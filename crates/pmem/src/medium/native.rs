//! Mapped memory: a file (`/dev/shm`, DAX, page cache) or anonymous pages.
//!
//! At open a range of addresses is reserved. Its length is a power of two. It is readable and empty (the kernel's zero page). The
//! file is mapped over the beginning of the range and grows inside it, so the base never moves. Offsets are masked into the range,
//! so a read of any offset succeeds.
//!
//! The range begins at a multiple of the huge page size. The kernel requires this to map a huge page of the file (or of
//! DAX memory) with one entry, which shortens page-table walks after TLB misses. When a shared file grows by at least
//! one huge page, the growth requests huge pages from the kernel. The kernel maps the file by these huge pages when the
//! file is opened again.
//!
//! A *private image* (`map_private`) uses a copy-on-write mapping: stores never reach the file. The [journal](crate::journal) reads
//! and stores through one.
//!
//! Invariants:
//! * N1: `[0, len)` of the range is the file, backed by allocated blocks, and zeros where the file has holes ([`Medium::holes`]). A hole
//!   gets blocks ([`Medium::provide`]) before the allocator stores to it again. So stores and loads raise no SIGBUS, and a load allocates
//!   nothing.
//! * N2: the range and one guard area after it stay readable while the `Native` lives.
//! * N3: only the operations of the trait store, and only below `len`.
//! * N4: pages of a private image are dropped only by `drop_pages`, while the file holds the same bytes, or by `hide`,
//!   for a range that was discarded or is a hole.
//! * N5: a failed sync is never repeated. The kernel reports only once that it could not write a page, and then treats
//!   the page as clean. After a failed sync the file neither grows nor is synced, so the store never records a length
//!   that the disk may not have.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

mod holes;

use crate::bus;
use crate::error::{Error, Result};
use crate::file::{allocate, free_bytes, io, is_dax, mapped, next_data};
use crate::medium::holes::Holes;
use crate::medium::traits::Pages;
use crate::medium::traits::{Fence, Line, Medium, WORD, lines_of};
use crate::medium::view::{GUARD, HUGE_PAGE, PAGE, View};
use crate::sync::atomics::unmodelled::Mutex;
use crate::system::{self, Kind};

/// The failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process: the kernel keeps the pages. No flush is needed.
    Process,
    /// A power failure: lines are flushed and fenced.
    Power,
    /// A power failure, if the caches are inside the power-safe domain: no flush, but fences.
    Eadr,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Durability::Process => "process",
            Durability::Power => "power",
            Durability::Eadr => "eadr",
        })
    }
}

/// The instruction that writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOp {
    /// Writes back and may keep the line cached.
    Clwb,
    /// Writes back and evicts, weakly ordered.
    ClflushOpt,
    /// Writes back and evicts, ordered. The papers measured with it.
    Clflush,
}

/// The instruction that orders write-backs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceOp {
    /// Orders stores and write-backs. Later loads may be reordered before it.
    Sfence,
    /// Orders loads too. The papers measured with it.
    Mfence,
}

impl FlushOp {
    /// The best flush instruction of this processor.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            // CPUID leaf 7, EBX: bit 24 clwb, bit 23 clflushopt [Intel SDM vol. 2, CPUID].
            let max_leaf = std::arch::x86_64::__cpuid(0).eax;
            let features = if max_leaf >= 7 { std::arch::x86_64::__cpuid_count(7, 0).ebx } else { 0 };
            if features & (1 << 24) != 0 {
                return FlushOp::Clwb;
            }
            if features & (1 << 23) != 0 {
                return FlushOp::ClflushOpt;
            }
        }
        FlushOp::Clflush
    }
}

/// Mapped memory.
#[derive(Debug)]
pub struct Native {
    view: View,
    len: AtomicU64,
    max_bytes: u64,
    durability: Durability,
    flush_op: FlushOp,
    fence_op: FenceOp,
    file: Option<File>,
    /// The mapping is a DAX mapping: flushed lines are durable without a system call.
    dax: bool,
    /// The mapping is private: stores do not reach the file.
    private: bool,
    /// Number of growths before huge pages are requested again, or [`NEVER`].
    no_huge: AtomicU32,
    /// A sync failed (N5).
    failed: AtomicBool,
    /// A window may map pages of the file.
    shown: AtomicBool,
    /// The ranges that are not mapped from the file.
    holes: Mutex<Holes>,
    /// Offset in the file of the first mapped byte; whole pages.
    origin: u64,
    path: PathBuf,
}

/// No growth requests huge pages any more: the file system or the kernel has none.
const NEVER: u32 = u32::MAX;
/// Time limit for one huge page. A huge page usually takes a quarter of the time of its small pages, and some milliseconds per
/// growth if all processors are busy, because the kernel first empties their lists of free pages. A huge page that takes longer
/// needed compaction of memory.
const PATIENCE: Duration = Duration::from_millis(10);
/// Number of growths without huge pages after a slow one.
const PAUSE: u32 = 4;
/// Bytes that the file system must have free besides a growth by huge pages.
const SPACE: u64 = 64 << 20;

impl Native {
    /// Maps `file` and reserves addresses to grow to `max_bytes`. Its holes stay holes ([`Medium::holes`]) until
    /// [`Medium::provide`].
    ///
    /// # Errors
    /// `Io` if the file cannot be inspected or mapped; `NoSpace` if the system has too few mappings for the holes and the disk is full;
    /// `Durability` if this processor's flush instruction is not known.
    pub fn map(file: File, path: &Path, max_bytes: u64, durability: Durability) -> Result<Self> {
        Self::map_from(file, path, 0, max_bytes, durability)
    }

    /// As [`Native::map`], for the part of `file` from byte `origin` (whole pages) on.
    ///
    /// # Errors
    /// As [`Native::map`].
    pub fn map_from(
        file: File,
        path: &Path,
        origin: u64,
        max_bytes: u64,
        durability: Durability,
    ) -> Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let meta = system::inspect(&file, path).map_err(|source| io("cannot inspect", path, source))?;
        // Whole pages only. A partial page at the end cannot hold a block, and a mapping beyond the end would fault.
        let len = meta.len().saturating_sub(origin) & !(PAGE - 1);
        let mut native = Self::reserve(max_bytes.max(len), durability, path)?;
        let is_dense = meta.blocks() * 512 >= origin + len;
        native.origin = origin;
        native.dax = is_dax(&file);
        let data = system::duplicate(&file, path).map_err(|source| io("cannot open", path, source))?;
        native.file = Some(file);
        native.map_data(&data, len, is_dense)?;
        native.len = AtomicU64::new(len);
        Ok(native)
    }

    /// Maps `file` read-only: nothing of it changes, not even its allocated blocks, and it need not be writable. Growing is
    /// refused. Every other write is a bug of the caller and faults.
    ///
    /// # Errors
    /// `Io` if the file cannot be inspected or mapped.
    pub fn map_read_only(file: File, path: &Path) -> Result<Self> {
        let len = system::inspect(&file, path).map_err(|source| io("cannot inspect", path, source))?.len();
        let mut native = Self::reserve(len, Durability::Process, path)?;
        native.max_bytes = 0;
        // Holes stay unmapped, as zeros of the reserved range: a memory file system would allocate a page for each hole that is
        // read.
        let mut stretches = Vec::new();
        let mut from = 0;
        while let Some((data, hole)) = next_data(&file, path, from, len)? {
            stretches.push((data & !(PAGE - 1), hole.next_multiple_of(PAGE)));
            from = hole;
        }
        native.file = Some(file);
        for (from, to) in stretches {
            native.map_range(from, to, libc::PROT_READ)?;
        }
        native.len = AtomicU64::new(len);
        Ok(native)
    }

    /// Maps `file` from its byte `origin` (whole pages) on, private to this process: stores and growth stay in memory. Nothing of
    /// the file changes, not even its allocated blocks, and it need not be writable. The file must not be written meanwhile,
    /// because a page without a store is read from the file. The mapping can grow to 4 GiB more than its present length or
    /// `max_bytes`, whichever is larger.
    ///
    /// # Errors
    /// `Io` if the file cannot be inspected or mapped.
    pub fn map_aside(file: File, path: &Path, origin: u64, max_bytes: u64) -> Result<Self> {
        let end = system::inspect(&file, path).map_err(|source| io("cannot inspect", path, source))?.len();
        let len = end.saturating_sub(origin) & !(PAGE - 1);
        // Addresses for memory that recovery may add: a chunk or two, or the space to finish a batch of the largest size.
        let mut native = Self::reserve(len.max(max_bytes) + (4 << 30), Durability::Process, path)?;
        (native.private, native.origin) = (true, origin);
        native.map_range(0, len, libc::PROT_READ | libc::PROT_WRITE)?;
        native.file = Some(system::duplicate(&file, path).map_err(|source| io("cannot open", path, source))?);
        let mut from = origin;
        while let Some((data, hole)) = next_data(&file, path, from, origin + len)? {
            let first = (data & !(PAGE - 1)).max(origin) - origin;
            let last = hole.next_multiple_of(PAGE) - origin;
            native.map_range(first, last.min(len), libc::PROT_READ | libc::PROT_WRITE)?;
            from = hole;
        }
        // Without a file, growing adds anonymous memory.
        native.file = None;
        native.len = AtomicU64::new(len);
        Ok(native)
    }

    /// A private image of `file` from its byte `origin` (whole pages) on: stores stay in memory. Nothing is mapped until
    /// [`Native::extend_private`].
    ///
    /// # Errors
    /// `Io` if the range cannot be reserved.
    pub(crate) fn map_private(file: File, path: &Path, origin: u64, max_bytes: u64) -> Result<Self> {
        assert!(origin.is_multiple_of(PAGE), "an image begins with a page: {origin:#x}");
        let mut native = Self::reserve(max_bytes, Durability::Process, path)?;
        (native.file, native.private, native.origin) = (Some(file), true, origin);
        Ok(native)
    }

    /// Makes a private image `bytes` bytes long (whole pages). Its file already has that length, with allocated blocks (N1).
    ///
    /// # Errors
    /// `Full` beyond the reserved range, `Io` if the file cannot be mapped.
    pub(crate) fn extend_private(&self, bytes: u64) -> Result<()> {
        assert!(self.private && bytes.is_multiple_of(PAGE), "an image has whole pages: {bytes:#x}");
        if bytes > self.max_bytes {
            return Err(Error::Full { max_bytes: self.max_bytes });
        }
        self.map_range(self.len().min(bytes), bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        self.len.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Drops the pages of `[from, to)` of a private image: they are read from the file again. The caller ensures that the file
    /// holds the same bytes and that no thread stores there meanwhile (N4). So a concurrent reader sees no change.
    pub(crate) fn drop_pages(&self, from: u64, to: u64) {
        let inside = self.private && from.is_multiple_of(PAGE) && to.is_multiple_of(PAGE);
        assert!(inside && from < to && to <= self.len(), "pages outside the image: {from:#x}..{to:#x}");
        // SAFETY: `from` lies inside the reserved range (N2).
        let place = unsafe { self.view.base.as_ptr().add(from as usize) };
        // SAFETY: `[from, to)` is our own private mapping of the file, which holds the same bytes (N4). If the kernel refuses, the
        // pages stay, which is harmless.
        unsafe { libc::madvise(place.cast(), (to - from) as usize, libc::MADV_DONTNEED) };
    }

    /// Makes the page of a word ready for stores. If the first access to a page of a private image is a load, the kernel maps the
    /// file's page, and the first store has to replace it on all processors.
    #[inline]
    pub(crate) fn claim_page(&self, at: u64) {
        // A compare-and-exchange counts as a store for the kernel, even if the word keeps its value.
        let _ = self.cell(at).compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Anonymous memory for volatile engines and tests.
    ///
    /// # Errors
    /// `Io` if the range cannot be reserved; `Durability` if this processor's flush instruction is not known.
    pub fn anonymous(max_bytes: u64, durability: Durability) -> Result<Self> {
        Self::reserve(max_bytes, durability, Path::new("anonymous memory"))
    }

    /// Sets the instructions, to reproduce the setting of a paper. The processor must have them.
    #[must_use]
    pub fn with_instructions(mut self, flush_op: FlushOp, fence_op: FenceOp) -> Self {
        self.flush_op = flush_op;
        self.fence_op = fence_op;
        self
    }

    /// The instruction that flushes.
    pub fn flush_op(&self) -> FlushOp {
        self.flush_op
    }

    /// The address of the lines. It must not be used after this medium is dropped.
    pub(crate) fn view(&self) -> View {
        self.view
    }

    /// The durability of this mapping.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The file's path (or a description of anonymous memory).
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn reserve(max_bytes: u64, durability: Durability, path: &Path) -> Result<Self> {
        if cfg!(not(target_arch = "x86_64")) && durability != Durability::Process {
            return Err(Error::Durability(
                "this processor's flush instruction is not known to this program: use process durability",
            ));
        }
        let reserved = max_bytes.max(1 << 20).next_power_of_two();
        // Additional addresses, so that the range can begin at a multiple of the huge page size.
        let lead = HUGE_PAGE - PAGE;
        let reserve = |_| {
            // SAFETY: a fresh private anonymous range at an address of the kernel's choice aliases nothing.
            mapped(unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    (lead + reserved + GUARD) as usize,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            })
        };
        let base = system::call(Kind::Map, path, None, reserve);
        let base = base.map_err(|source| io("cannot reserve addresses for", path, source))?;
        let before = base.align_offset(HUGE_PAGE as usize);
        let after = lead as usize - before;
        for (from, bytes) in [(0, before), (before + (reserved + GUARD) as usize, after)] {
            if bytes > 0 {
                // SAFETY: a part of the range just mapped, whole pages, to which no reference exists.
                unsafe { libc::munmap(base.wrapping_byte_add(from), bytes) };
            }
        }
        let base =
            NonNull::new(base.wrapping_byte_add(before).cast::<u8>()).expect("mmap gives no null range");
        bus::note(base.as_ptr() as usize, (reserved + GUARD) as usize, path);
        Ok(Self {
            view: View { base, reserved },
            len: AtomicU64::new(0),
            max_bytes,
            durability,
            flush_op: FlushOp::detect(),
            fence_op: FenceOp::Sfence,
            no_huge: AtomicU32::new(0),
            file: None,
            dax: false,
            private: false,
            failed: AtomicBool::new(false),
            shown: AtomicBool::new(false),
            holes: Mutex::default(),
            origin: 0,
            path: path.to_owned(),
        })
    }

    /// Maps `[from, to)` of the file (or new anonymous pages) at its place in the range.
    fn map_range(&self, from: u64, to: u64, protection: libc::c_int) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let (flags, fd) = match &self.file {
            // NORESERVE: only the pages between two checkpoints become private, not the whole file.
            Some(file) if self.private => {
                (libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED, file.as_raw_fd())
            }
            Some(file) if self.dax => {
                (libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC | libc::MAP_FIXED, file.as_raw_fd())
            }
            Some(file) => (libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE, -1),
        };
        // SAFETY: `from < to <= reserved`, so the pointer stays inside the reserved range (N2).
        let place = unsafe { self.view.base.as_ptr().add(from as usize) };
        let bytes = (to - from) as usize;
        let map = |_| {
            // SAFETY: MAP_FIXED replaces pages of our own reserved range only. They held zeros, which no thread writes (N3).
            mapped(unsafe {
                libc::mmap(place.cast(), bytes, protection, flags, fd, (self.origin + from) as libc::off_t)
            })
        };
        let outcome = system::call(Kind::Map, &self.path, self.file.as_ref(), map);
        outcome.map_err(|source| io("cannot map", &self.path, source))?;
        if self.file.is_none() {
            // SAFETY: the range was just mapped, and the advice changes no content. A refusal is harmless.
            unsafe { libc::madvise(place.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(())
    }

    /// Requests huge pages for a growth from `old` to `new` bytes. The kernel makes a huge page without copying small pages if all but one
    /// of its small pages are holes. Only speed depends on the outcome: [`allocate`] fills the rest.
    fn make_huge(&self, file: &File, old: u64, new: u64) {
        // Huge pages of the file are huge pages of the range only if both have the same boundaries.
        let may = !self.private && !self.dax && self.origin.is_multiple_of(HUGE_PAGE);
        let (first, end) = (old.next_multiple_of(HUGE_PAGE), new & !(HUGE_PAGE - 1));
        if !may || first >= end {
            return;
        }
        match self.no_huge.load(Ordering::Relaxed) {
            0 => {}
            NEVER => return,
            growths => return self.no_huge.store(growths - 1, Ordering::Relaxed),
        }
        let start = Instant::now();
        let (from, bytes) = (self.origin + first, (end - first) as usize);
        // If the process is killed after `set_len`, the file has holes, which the next open fills. So the disk must have space
        // for them.
        if free_bytes(file).is_none_or(|free| free < new - old + SPACE) {
            return;
        }
        let one_each = || -> Result<()> {
            system::set_len(file, &self.path, self.origin + new)
                .map_err(|source| io("cannot extend", &self.path, source))?;
            let mut pages = (from..self.origin + end).step_by(HUGE_PAGE as usize);
            pages.try_for_each(|page| allocate(file, &self.path, page, page + PAGE))
        };
        if one_each().is_err() {
            return;
        }
        // In a separate mapping, so that no reader accesses a hole for whose page there is no memory.
        let Ok(aside) = Self::reserve(end - first, Durability::Process, &self.path) else { return };
        // SAFETY: MAP_FIXED replaces pages of `aside`'s own range only. It is at least as long, and no thread reads it.
        let mapped = unsafe {
            libc::mmap(
                aside.view.base.as_ptr().cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                from as libc::off_t,
            )
        };
        if mapped == libc::MAP_FAILED {
            return;
        }
        // SAFETY: exactly the range that was just mapped; the advice changes no content.
        let refused = unsafe { libc::madvise(mapped, bytes, libc::MADV_COLLAPSE) } != 0;
        // A kernel that lacks memory may have some later. A file system or kernel without huge pages never will.
        if refused && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            self.no_huge.store(NEVER, Ordering::Relaxed);
        } else if start.elapsed() > PATIENCE * ((end - first) / HUGE_PAGE) as u32 {
            self.no_huge.store(PAUSE, Ordering::Relaxed);
        }
    }

    /// True if a window may map pages of the file.
    fn is_shown(&self) -> bool {
        self.shown.load(Ordering::Relaxed)
    }

    /// Refuses after a failed sync (N5).
    fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::SeqCst) { Err(Error::Failed) } else { Ok(()) }
    }

    /// Records the failure of a sync (N5).
    fn synced(&self, outcome: std::io::Result<()>) -> Result<()> {
        outcome.map_err(|source| {
            self.failed.store(true, Ordering::SeqCst);
            io("cannot sync", &self.path, source)
        })
    }

    #[inline(always)]
    fn cell(&self, at: u64) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(WORD), "store to no word: {at:#x}");
        // Also in release builds (N3): the range after the file is mapped read-only, so a store there would end the process.
        assert!(at < self.len.load(Ordering::Relaxed), "store outside: {at:#x}");
        let offset = (at & (self.view.reserved - 1) & !(WORD - 1)) as usize;
        // SAFETY: the masked offset lies inside the reserved range, which stays mapped while self lives (N2).
        let word = unsafe { self.view.base.as_ptr().add(offset) };
        // SAFETY: 8-byte aligned, mapped, and only ever accessed as atomics.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        bus::forget(self.view.base.as_ptr() as usize);
        // SAFETY: the range was mapped by `reserve` with this length and no reference outlives self.
        unsafe { libc::munmap(self.view.base.as_ptr().cast(), (self.view.reserved + GUARD) as usize) };
    }
}

impl Medium for Native {
    #[inline(always)]
    fn line(&self, at: u64) -> &Line {
        self.view.line(at)
    }

    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        self.view.word(at)
    }

    #[inline(always)]
    fn copy(&self, at: u64, value: u64) {
        self.cell(at).store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn publish(&self, at: u64, value: u64) {
        // Release keeps earlier stores before it. The compiler fence keeps later stores after it, so lines see program order (x86
        // does not reorder stores among themselves).
        self.cell(at).store(value, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn flush(&self, at: u64, bytes: u64) {
        if self.durability != Durability::Power {
            return;
        }
        for line in lines_of(at, bytes) {
            write_back(self.line(line), self.flush_op);
        }
    }

    #[inline(always)]
    fn fence(&self, _why: Fence) {
        if self.durability == Durability::Process {
            compiler_fence(Ordering::SeqCst);
            return;
        }
        store_fence(self.fence_op);
    }

    #[inline(always)]
    fn prefetch(&self, at: u64, bytes: u64) {
        self.view.prefetch(at, bytes);
    }

    #[inline(always)]
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        let old = self.len();
        let new = bytes.next_multiple_of(PAGE);
        if new <= old {
            return Ok(());
        }
        if new > self.max_bytes {
            return Err(Error::Full { max_bytes: self.max_bytes });
        }
        if let Some(file) = &self.file {
            self.check()?;
            self.make_huge(file, old, new);
            if let Err(error) = allocate(file, &self.path, self.origin + old, self.origin + new) {
                // The growth failed, so none of it stays.
                let _ = system::set_len(file, &self.path, self.origin + old);
                return Err(error);
            }
            if self.durability != Durability::Process {
                self.synced(system::sync_all(file, &self.path))?;
            }
        }
        self.map_range(old, new, libc::PROT_READ | libc::PROT_WRITE)?;
        self.len.store(new, Ordering::Release);
        Ok(())
    }

    fn discard(&self, at: u64, bytes: u64) -> bool {
        self.max_bytes != 0 && self.punch(at, at + bytes)
    }

    fn provide(&self, at: u64, bytes: u64) -> Result<()> {
        self.fill(at, at + bytes)
    }

    fn holes(&self) -> Vec<(u64, u64)> {
        self.all_holes()
    }

    fn sync(&self, at: u64, bytes: u64) -> Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        self.check()?;
        let first = at & !(PAGE - 1);
        let end = (at + bytes).min(self.len());
        // SAFETY: `first` lies inside the reserved range (N2).
        let place = unsafe { self.view.base.as_ptr().add(first as usize) };
        let kind = Kind::SyncRange { at: self.origin + first, bytes: end - first };
        self.synced(system::call(kind, &self.path, self.file.as_ref(), |_| {
            // SAFETY: `[first, end)` is mapped (N1); msync changes no content.
            match unsafe { libc::msync(place.cast(), (end - first) as usize, libc::MS_SYNC) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        }))
    }

    /// `None` for a private image, whose stores do not reach the file, and for a read-only mapping, whose file may have holes.
    fn pages(&self) -> Option<Pages<'_>> {
        let file = self.file.as_ref().filter(|_| !self.private && self.max_bytes != 0)?;
        self.shown.store(true, Ordering::Relaxed);
        Some(Pages { file, origin: self.origin, len: self.len() })
    }

    #[inline(always)]
    fn lines(&self, at: u64, count: usize) -> Option<&[Line]> {
        Some(self.view.lines(at, count))
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn write_back(line: &Line, op: FlushOp) {
    let place = std::ptr::from_ref(line);
    match op {
        // SAFETY: clwb changes no architectural state; `detect` or the caller chose an instruction that exists.
        FlushOp::Clwb => unsafe {
            std::arch::asm!("clwb [{}]", in(reg) place, options(nostack, preserves_flags));
        },
        // SAFETY: as above.
        FlushOp::ClflushOpt => unsafe {
            std::arch::asm!("clflushopt [{}]", in(reg) place, options(nostack, preserves_flags));
        },
        // SAFETY: as above.
        FlushOp::Clflush => unsafe {
            std::arch::asm!("clflush [{}]", in(reg) place, options(nostack, preserves_flags));
        },
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn store_fence(op: FenceOp) {
    match op {
        // SAFETY: a fence touches no memory of ours.
        FenceOp::Sfence => unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) },
        // SAFETY: as above.
        FenceOp::Mfence => unsafe { std::arch::asm!("mfence", options(nostack, preserves_flags)) },
    }
}

// On other processors `reserve` refuses every durability that would call these.
#[cfg(not(target_arch = "x86_64"))]
fn write_back(_line: &Line, _op: FlushOp) {}
#[cfg(not(target_arch = "x86_64"))]
fn store_fence(_op: FenceOp) {}

#[cfg(all(test, not(loom)))]
mod tests;
