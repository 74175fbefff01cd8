//! Memory that the processor maps: a file (`/dev/shm`, DAX, page cache) or anonymous pages.
//!
//! A power-of-two range of addresses is reserved at open, readable and empty (the kernel's zero page); the file is mapped
//! over its beginning and grows into it, so the base never moves. Offsets are masked into the range: reading is total.
//!
//! The range begins on a huge page's boundary, as the kernel wants it to map a huge page of the file (or of DAX memory) by one
//! entry: a miss of the TLB then is a shorter walk, or none. What a shared file grows by is asked to be made of huge pages if it
//! is at least one. A file that was made so is mapped so when it is opened again.
//!
//! A *private image* (`map_private`) is the same with a mapping that copies on write: what is stored to it never
//! reaches the file. The [journal](crate::journal) reads and stores through one.
//!
//! Invariants:
//! * N1: `[0, len)` of the range is the file, backed by allocated blocks, and zeros where the file has holes ([`Medium::holes`]): no store
//!   and no load can raise SIGBUS, and reading allocates nothing. A hole is given blocks ([`Medium::provide`]) before the
//!   allocator stores to it again.
//! * N2: the range and one guard stretch behind it stay readable while the `Native` lives.
//! * N3: only the verbs store, and only below `len`.
//! * N5: a sync that failed is never repeated: the kernel reports a page that it could not write once and then calls it clean.
//!   After it the file neither grows nor is synced, so no length is noted that the disk may not have.
//! * N4: a private image's pages are given up only by `drop_pages`, and only while they hold what the file holds.

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

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process: the kernel keeps the pages. Costs no flush.
    Process,
    /// The machine: lines are flushed and fenced.
    Power,
    /// The machine, where its caches are inside the power-safe domain: no flush, the fence stays.
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

/// Which instruction writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOp {
    /// Writes back and may keep the line cached.
    Clwb,
    /// Writes back and evicts, weakly ordered.
    ClflushOpt,
    /// Writes back and evicts, ordered: the papers' setting.
    Clflush,
}

/// Which instruction orders write-backs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceOp {
    /// Orders stores and write-backs; later loads may pass it.
    Sfence,
    /// Orders loads too: the papers' setting.
    Mfence,
}

impl FlushOp {
    /// The best instruction that this processor has.
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

/// Mapped memory. See the module's head.
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
    /// Stores stay out of the file.
    private: bool,
    /// Growths to go by before huge pages are asked for again, or [`NEVER`].
    no_huge: AtomicU32,
    /// A sync failed (N5).
    failed: AtomicBool,
    /// A window may map pages of the file.
    shown: AtomicBool,
    /// What of the range is not the file.
    holes: Mutex<Holes>,
    /// Offset in the file of the first mapped byte, whole pages.
    origin: u64,
    path: PathBuf,
}

/// No growth asks for huge pages any more: file system or kernel have none.
const NEVER: u32 = u32::MAX;
/// What a huge page may take to come. As a rule it takes a quarter of what its small ones would take, and some milliseconds a growth where
/// all processors are busy, whose lists of fresh pages the kernel empties first. One that takes longer had to be made space for, by
/// moving what was there.
const PATIENCE: Duration = Duration::from_millis(10);
/// Growths that go by without after that.
const PAUSE: u32 = 4;
/// Bytes that the file system must have free besides a growth by huge pages.
const SPACE: u64 = 64 << 20;

impl Native {
    /// Maps `file`, reserving space to grow to `max_bytes`. Its holes stay holes ([`Medium::holes`]) until they are provided for.
    ///
    /// # Errors
    /// `Io` if the file cannot be inspected or mapped.
    pub fn map(file: File, path: &Path, max_bytes: u64, durability: Durability) -> Result<Self> {
        Self::map_from(file, path, 0, max_bytes, durability)
    }

    /// The same of what lies in `file` from its byte `origin` (whole pages) on.
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
        // Whole pages only: a torn tail of a page cannot hold a block, and a mapping past the end would fault.
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

    /// Maps `file` for reading alone: nothing of it changes, not even its allocated blocks, and it need not be writable.
    /// Growing is refused; another write verb is a bug of the caller and faults.
    ///
    /// # Errors
    /// `Io` if the file cannot be inspected or mapped.
    pub fn map_read_only(file: File, path: &Path) -> Result<Self> {
        let len = system::inspect(&file, path).map_err(|source| io("cannot inspect", path, source))?.len();
        let mut native = Self::reserve(len, Durability::Process, path)?;
        native.max_bytes = 0;
        // Holes stay the zeros of the reserved range: a memory file system would allocate a page for each one read.
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

    /// Maps `file` from its byte `origin` (whole pages) on for this process alone: what is stored, and what it grows by, stays in
    /// memory. Nothing of the file changes, not even its allocated blocks, and it need not be writable. Nobody may write to the
    /// file meanwhile: a page that was not stored to is the file's. It can grow to `max_bytes` and 4 GiB more.
    ///
    /// # Errors
    /// `Io` if the file cannot be inspected or mapped.
    pub fn map_aside(file: File, path: &Path, origin: u64, max_bytes: u64) -> Result<Self> {
        let end = system::inspect(&file, path).map_err(|source| io("cannot inspect", path, source))?.len();
        let len = end.saturating_sub(origin) & !(PAGE - 1);
        // Addresses for what recovery may add: a chunk or two, or what a batch of the largest size needs to be finished.
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
        // Growing adds memory.
        native.file = None;
        native.len = AtomicU64::new(len);
        Ok(native)
    }

    /// A private image of `file` from its byte `origin` (whole pages) on: what is stored stays in memory. Nothing is mapped
    /// until [`Native::extend_private`].
    ///
    /// # Errors
    /// `Io` if the range cannot be reserved.
    pub(crate) fn map_private(file: File, path: &Path, origin: u64, max_bytes: u64) -> Result<Self> {
        assert!(origin.is_multiple_of(PAGE), "an image begins with a page: {origin:#x}");
        let mut native = Self::reserve(max_bytes, Durability::Process, path)?;
        (native.file, native.private, native.origin) = (Some(file), true, origin);
        Ok(native)
    }

    /// Makes a private image `bytes` long (whole pages). Its file already is that long, with allocated blocks (N1).
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

    /// Gives up the pages of `[from, to)` of a private image: they are read from the file again. The caller sees to it that
    /// the file holds the same bytes and that nobody stores there meanwhile (N4), so a reader beside it notices nothing.
    pub(crate) fn drop_pages(&self, from: u64, to: u64) {
        let inside = self.private && from.is_multiple_of(PAGE) && to.is_multiple_of(PAGE);
        assert!(inside && from < to && to <= self.len(), "pages outside the image: {from:#x}..{to:#x}");
        // SAFETY: `from` lies inside the reserved range (N2).
        let place = unsafe { self.view.base.as_ptr().add(from as usize) };
        // SAFETY: `[from, to)` is our own private mapping of the file, which holds the same bytes (N4). A refusal is harmless:
        // the pages stay.
        unsafe { libc::madvise(place.cast(), (to - from) as usize, libc::MADV_DONTNEED) };
    }

    /// Anonymous memory for volatile engines and tests.
    ///
    /// # Errors
    /// `Io` if the range cannot be reserved.
    pub fn anonymous(max_bytes: u64, durability: Durability) -> Result<Self> {
        Self::reserve(max_bytes, durability, Path::new("anonymous memory"))
    }

    /// Forces the instructions, so that a paper's setting can be reproduced.
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

    /// What reading needs. Not to be used when this is dropped.
    pub(crate) fn view(&self) -> View {
        self.view
    }

    /// The promise this mapping keeps.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The file's path (or a phrase for anonymous memory).
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
        // As much more as it takes to begin on a huge page's boundary.
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
                // SAFETY: a part of the range just mapped, whole pages, that nobody knows of.
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

    /// Maps `[from, to)` of the file (or fresh anonymous pages) at its place in the range.
    fn map_range(&self, from: u64, to: u64, protection: libc::c_int) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let (flags, fd) = match &self.file {
            // NORESERVE: at most the pages between two checkpoints are ever ours, not the whole file.
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
            // SAFETY: MAP_FIXED replaces pages of our own reserved range only; they held zeros that nobody writes (N3).
            mapped(unsafe {
                libc::mmap(place.cast(), bytes, protection, flags, fd, (self.origin + from) as libc::off_t)
            })
        };
        let outcome = system::call(Kind::Map, &self.path, self.file.as_ref(), map);
        outcome.map_err(|source| io("cannot map", &self.path, source))?;
        if self.file.is_none() {
            // SAFETY: the range was just mapped; the advice changes no content. A refusal is harmless.
            unsafe { libc::madvise(place.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(())
    }

    /// Asks for huge pages of what the file is about to grow by, from `old` to `new` bytes: they come without a copy of small ones,
    /// as long as all but one of those are holes. Nothing but speed depends on the answer; [`allocate`] fills what is left.
    fn make_huge(&self, file: &File, old: u64, new: u64) {
        // A boundary of the range is one of the file, or the file's pages are no huge ones of the range.
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
        // Whoever is killed behind the next line leaves a file with holes, which the next open fills: there has to be space for that.
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
        // Aside, so that no reader can come upon a hole whose page there is no memory for.
        let Ok(aside) = Self::reserve(end - first, Durability::Process, &self.path) else { return };
        // SAFETY: MAP_FIXED replaces pages of `aside`'s own range only, which is at least as long and which nobody reads.
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
        // SAFETY: exactly what was just mapped; the advice changes no content.
        let refused = unsafe { libc::madvise(mapped, bytes, libc::MADV_COLLAPSE) } != 0;
        // Short of memory the kernel may have some later; a file system or kernel without them never will.
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

    /// Refuses after a sync that failed (N5).
    fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::SeqCst) { Err(Error::Failed) } else { Ok(()) }
    }

    /// What a sync came to.
    fn synced(&self, outcome: std::io::Result<()>) -> Result<()> {
        outcome.map_err(|source| {
            self.failed.store(true, Ordering::SeqCst);
            io("cannot sync", &self.path, source)
        })
    }

    #[inline(always)]
    fn cell(&self, at: u64) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(WORD), "store to no word: {at:#x}");
        // On in release builds (N3): the range behind the file is mapped for reading, so a store there would end the process.
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
        // Release keeps earlier stores before it; the compiler fence keeps later ones behind it, so that lines see
        // program order (stores are not reordered among themselves on x86).
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
                // What was asked for is not there: nothing of it stays.
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

    /// Not of a private image, whose stores stay out of the file, nor of a file that may have holes.
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

// `reserve` refuses every durability that would get here on other processors.
#[cfg(not(target_arch = "x86_64"))]
fn write_back(_line: &Line, _op: FlushOp) {}
#[cfg(not(target_arch = "x86_64"))]
fn store_fence(_op: FenceOp) {}

#[cfg(all(test, not(loom)))]
mod tests;
