//! A buffer pool in front of durable memory [wB+ §3.1]: pages that are copied into volatile frames on first access. A
//! page has the size of a node, rounded up to a power of two, at most 4 KiB.
//!
//! A hash table of page numbers finds the frames. The paper measures the cost of this lookup. Stores go to the frame.
//! [`flush`](Medium::flush) writes the changed words of a line to the medium below and flushes the line there. The
//! bytes before the heap (superblock, root line, intents, log) are not pooled.
//!
//! Invariants:
//! * P1: a page in the pool is read and written only in the pool. The medium below holds the content of the last flush.
//! * P2: a frame keeps its page, its address and its entry in the table until the pool is dropped, so references of readers stay
//!   valid. The pool therefore holds every page that was ever accessed.
//! * P3: an entry of the table is complete once its page number is visible. A table of twice the size replaces a full table. The full table
//!   stays allocated for readers that still use it.
//! * P4: the first word of a line is written to the medium last. If it was published since the last write-back, it is published
//!   there too. A write-back in the order of the words would lose the order of the stores to the line. That order matters only in
//!   chunk headers (A3 of the allocator), where the first word is the published one.
//! * P5: a lock is held while a line is read from its frame and written to the medium. [`Medium::sync`] also writes lines back,
//!   concurrently with the writer. Because of the lock it never overwrites a newer word with an older one.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError};

use crate::error::Result;
use crate::medium::traits::{Fence, Group, LINE, Line, Medium, WORD, lines_of};
use crate::medium::view::prefetch;
use crate::sync::atomics::unmodelled::Mutex;

/// How an index accesses a medium: directly, or through a pool.
pub trait Access<M: Medium>: Medium {
    /// Accesses `medium`. The bytes from offset `from` on may be pooled in pages of `page_bytes` bytes.
    fn over(medium: M, from: u64, page_bytes: u64) -> Self;
}

impl<M: Medium> Access<M> for M {
    fn over(medium: M, _from: u64, _page_bytes: u64) -> Self {
        medium
    }
}

impl<M: Medium> Access<M> for BufferPool<M> {
    fn over(medium: M, from: u64, page_bytes: u64) -> Self {
        BufferPool::new(medium, from, page_bytes)
    }
}

/// Frames of the first segment; each further segment has twice as many.
const FRAMES: usize = 64;
const STRETCHES: usize = 40;
/// Entries of the first table; each further one has twice as many.
const ENTRIES: usize = 256;
const TABLES: usize = 40;

/// A buffer pool over a medium.
#[derive(Debug)]
pub struct BufferPool<M> {
    medium: M,
    from: u64,
    /// Bytes of a page: a power of two of whole lines.
    page_bytes: u64,
    /// A page is exactly a node, so it may be read as a run of lines.
    whole: bool,
    tables: [OnceLock<Table>; TABLES],
    /// The table in use.
    current: AtomicUsize,
    frames: [OnceLock<Box<[Line]>>; STRETCHES],
    /// Number of pages in the pool. Locked while a page is added.
    pages: Mutex<usize>,
    /// Lines whose first word was published since their last write-back (P4). Held while a line is written to the medium (P5).
    published: Mutex<HashSet<u64>>,
}

/// Open addressing, at most half full.
#[derive(Debug)]
struct Table {
    entries: Box<[TableEntry]>,
}

#[derive(Debug, Default)]
struct TableEntry {
    /// Page number; 0 (a page that is never pooled) for a free entry.
    page: AtomicU64,
    frame: AtomicUsize,
}

impl Table {
    fn new(entries: usize) -> Self {
        Self { entries: (0..entries).map(|_| TableEntry::default()).collect() }
    }

    /// The entries that may hold a page, in the order of probing.
    #[inline(always)]
    fn places(&self, page: u64) -> impl Iterator<Item = &TableEntry> {
        let mask = self.entries.len() - 1;
        let first = (page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        (0..=mask).map(move |step| &self.entries[(first + step) & mask])
    }

    #[inline(always)]
    fn find(&self, page: u64) -> Option<usize> {
        for entry in self.places(page) {
            match entry.page.load(Ordering::Acquire) {
                0 => return None,
                found if found == page => return Some(entry.frame.load(Ordering::Relaxed)),
                _ => {}
            }
        }
        None
    }

    fn add(&self, page: u64, frame: usize) {
        let free = self.places(page).find(|entry| entry.page.load(Ordering::Relaxed) == 0);
        if let Some(entry) = free {
            entry.frame.store(frame, Ordering::Relaxed);
            entry.page.store(page, Ordering::Release);
        }
    }
}

impl<M: Medium> BufferPool<M> {
    /// A pool of the pages from offset `from` on. The page size is the smallest power of two that holds `page_bytes`, at most
    /// 4,096 bytes.
    fn new(medium: M, from: u64, page_bytes: u64) -> Self {
        let page = page_bytes.next_power_of_two().clamp(LINE, 4096);
        let pool = Self {
            medium,
            from: from.max(page).next_multiple_of(page),
            page_bytes: page,
            whole: page == page_bytes,
            tables: [const { OnceLock::new() }; TABLES],
            current: AtomicUsize::new(0),
            frames: [const { OnceLock::new() }; STRETCHES],
            pages: Mutex::new(0),
            published: Mutex::new(HashSet::new()),
        };
        pool.tables[0].get_or_init(|| Table::new(ENTRIES));
        pool
    }

    #[inline(always)]
    fn table(&self) -> Option<&Table> {
        self.tables[self.current.load(Ordering::Acquire) % TABLES].get()
    }

    /// The lines of a frame. Frames are in segments that double in size, so no frame ever moves (P2).
    #[inline(always)]
    fn frame(&self, number: usize) -> Option<&[Line]> {
        let stretch = (number / FRAMES + 1).ilog2() as usize;
        let lines = (self.page_bytes / LINE) as usize;
        let first = number + FRAMES - (FRAMES << stretch);
        self.frames[stretch].get()?.get(first * lines..(first + 1) * lines)
    }

    /// The frame of the page that holds byte `at`, if it is in the pool.
    #[inline(always)]
    fn resident(&self, at: u64) -> Option<&[Line]> {
        self.frame(self.table()?.find(at / self.page_bytes)?)
    }

    /// The frame of the page that holds byte `at`, loaded if necessary; `None` outside the pooled range.
    #[inline(always)]
    fn fix(&self, at: u64) -> Option<&[Line]> {
        if at < self.from {
            return None;
        }
        match self.resident(at) {
            Some(frame) => Some(frame),
            None => self.load(at),
        }
    }

    #[cold]
    fn load(&self, at: u64) -> Option<&[Line]> {
        let page = at / self.page_bytes;
        if at >= self.medium.len() {
            return None;
        }
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(frame) = self.resident(at) {
            return Some(frame); // another thread loaded it first
        }
        let number = *pages;
        let stretch = (number / FRAMES + 1).ilog2() as usize;
        let lines = (FRAMES << stretch) * (self.page_bytes / LINE) as usize;
        self.frames.get(stretch)?.get_or_init(|| (0..lines).map(|_| Line::zero()).collect());
        let frame = self.frame(number)?;
        for (line, at) in frame.iter().zip(lines_of(page * self.page_bytes, self.page_bytes)) {
            for (to, from) in line.0.iter().zip(&self.medium.line(at).0) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let current = self.current.load(Ordering::Relaxed);
        let table = self.table()?;
        if (number + 1) * 2 > table.entries.len() && current + 1 < TABLES {
            let larger = self.tables[current + 1].get_or_init(|| Table::new(table.entries.len() * 2));
            for entry in &table.entries {
                let page = entry.page.load(Ordering::Relaxed);
                if page != 0 {
                    larger.add(page, entry.frame.load(Ordering::Relaxed));
                }
            }
            larger.add(page, number);
            self.current.store(current + 1, Ordering::Release);
        } else {
            table.add(page, number);
        }
        *pages += 1;
        Some(frame)
    }

    /// The word at `at` in its frame; `None` outside the pooled range.
    #[inline(always)]
    fn cell(&self, at: u64) -> Option<&AtomicU64> {
        Some(&self.line_in(self.fix(at)?, at).0[(at / WORD % 8) as usize])
    }

    #[inline(always)]
    fn line_in<'a>(&self, frame: &'a [Line], at: u64) -> &'a Line {
        &frame[(at % self.page_bytes / LINE) as usize]
    }

    /// Writes the words of a line that differ from the medium below. Returns false if the line is not in the pool. The stores have
    /// the call site of the flush or sync, so the mutation run can break them by call site.
    #[track_caller]
    fn write_back(&self, line: u64) -> bool {
        let Some(frame) = self.resident(line) else { return false };
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner); // P5
        let [first, others @ ..] = &self.line_in(frame, line).0;
        // The first word is loaded first, so the other words are at least as new as the stores before its publish.
        let first = first.load(Ordering::Acquire);
        for (word, at) in others.iter().zip((line + WORD..).step_by(WORD as usize)) {
            let word = word.load(Ordering::Relaxed);
            if self.medium.word(at) != word {
                self.medium.copy(at, word);
            }
        }
        let publishes = published.remove(&line);
        if self.medium.word(line) != first {
            match publishes {
                true => self.medium.publish(line, first), // P4
                false => self.medium.copy(line, first),
            }
        }
        true
    }
}

impl<M: Medium> Medium for BufferPool<M> {
    #[inline(always)]
    fn line(&self, at: u64) -> &Line {
        match self.fix(at) {
            Some(frame) => self.line_in(frame, at),
            None => self.medium.line(at),
        }
    }

    #[inline(always)]
    fn copy(&self, at: u64, value: u64) {
        match self.cell(at) {
            Some(word) => word.store(value, Ordering::Relaxed),
            None => self.medium.copy(at, value),
        }
    }

    #[inline(always)]
    fn publish(&self, at: u64, value: u64) {
        let Some(word) = self.cell(at) else { return self.medium.publish(at, value) };
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_multiple_of(LINE) {
            published.insert(at);
        }
        word.store(value, Ordering::Release);
    }

    fn flush(&self, at: u64, bytes: u64) {
        let mut changed = at < self.from;
        if !changed {
            for line in lines_of(at, bytes) {
                changed |= self.write_back(line);
            }
        }
        if changed {
            self.medium.flush(at, bytes);
        }
    }

    #[inline(always)]
    fn fence(&self, why: Fence) {
        self.medium.fence(why);
    }

    #[inline(always)]
    fn prefetch(&self, at: u64, bytes: u64) {
        if at < self.from {
            self.medium.prefetch(at, bytes);
        } else if let Some(frame) = self.resident(at) {
            for line in frame {
                prefetch(line);
            }
        }
    }

    fn len(&self) -> u64 {
        self.medium.len()
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        self.medium.grow(bytes)
    }

    fn provide(&self, at: u64, bytes: u64) -> Result<()> {
        self.medium.provide(at, bytes)
    }

    fn sync(&self, at: u64, bytes: u64) -> Result<()> {
        let end = at.saturating_add(bytes);
        if let Some(table) = self.table().filter(|_| end > self.from) {
            for entry in &table.entries {
                let page = entry.page.load(Ordering::Acquire) * self.page_bytes;
                if page != 0 && page < end && page + self.page_bytes > at {
                    for line in lines_of(page, self.page_bytes) {
                        self.write_back(line);
                    }
                }
            }
        }
        self.medium.sync(at, bytes)
    }

    fn group(&self) -> Option<Group> {
        self.medium.group()
    }

    fn reserve(&self, lines: u64) -> Result<()> {
        self.medium.reserve(lines)
    }

    fn commit_beside<G>(&self, hold: impl FnOnce() -> Option<G>) -> Result<()> {
        self.medium.commit_beside(hold)
    }

    /// The frames keep their content, so an index over this pool must not be read afterwards.
    fn roll_back(&self) {
        self.medium.roll_back();
    }

    #[inline(always)]
    fn lines(&self, at: u64, count: usize) -> Option<&[Line]> {
        if !self.whole {
            return None;
        }
        match self.fix(at) {
            Some(frame) => {
                let first = (at % self.page_bytes / LINE) as usize;
                frame.get(first..first + count)
            }
            None => self.medium.lines(at, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::observed::{Memory, Observed, Recorder};
    use std::sync::Arc;

    const FROM: u64 = 4096;

    fn pool(bytes: u64) -> (Arc<Memory>, BufferPool<Observed>) {
        let memory = Memory::new(bytes, bytes);
        let medium = Observed::new(memory.clone(), Arc::new(Recorder::default()));
        (memory, BufferPool::over(medium, FROM, 128))
    }

    #[test]
    fn what_is_stored_goes_home_when_its_line_is_flushed_and_the_head_is_not_pooled() {
        let (memory, pool) = pool(1 << 14);
        memory.poke(5000, 1);
        assert_eq!(pool.word(5000), 1);
        pool.copy(5000, 2);
        pool.publish(5064, 3);
        pool.copy(64, 4);
        assert_eq!((pool.word(5000), pool.word(5064), pool.word(64)), (2, 3, 4));
        assert_eq!((memory.peek(5000), memory.peek(5064), memory.peek(64)), (1, 0, 4));
        pool.flush(5000, 8);
        assert_eq!((memory.peek(5000), memory.peek(5064)), (2, 0));
        pool.sync(0, pool.len()).unwrap();
        assert_eq!(memory.peek(5064), 3);
        assert_eq!(pool.word(1 << 20), 0, "outside");
    }

    #[test]
    fn lines_are_whole_nodes_and_end_with_them() {
        let memory = Memory::new(1 << 14, 1 << 14);
        memory.poke(FROM + 64, 7);
        let pool = BufferPool::new(Observed::new(memory.clone(), Arc::new(Recorder::default())), FROM, 128);
        assert_eq!(pool.lines(FROM, 2).unwrap()[1].0[0].load(Ordering::Relaxed), 7);
        assert!(pool.lines(FROM + 64, 2).is_none());
        let odd = BufferPool::new(Observed::new(memory, Arc::new(Recorder::default())), FROM, 192);
        assert!(odd.lines(FROM, 3).is_none(), "nodes that are no pages");
    }

    #[test]
    fn a_sync_beside_the_writer_takes_nothing_back() {
        let (memory, pool) = pool(1 << 13);
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) == 0 {
                    pool.sync(FROM, 128).unwrap();
                }
            });
            let mut stale = None;
            for round in 1..=100_000 {
                pool.copy(FROM + 8, round);
                pool.flush(FROM, 8);
                // Time for a late store of the other thread.
                let late = (0..50).find(|_| memory.peek(FROM + 8) != round);
                stale = stale.or(late.map(|_| round));
            }
            done.store(1, Ordering::Relaxed);
            assert_eq!(stale, None, "an older word was written back after this round");
        });
    }

    #[test]
    fn readers_beside_a_table_that_grows_find_every_page() {
        let pages = 4 * ENTRIES as u64;
        let (memory, pool) = pool(FROM + pages * 128);
        for page in 0..pages {
            memory.poke(FROM + page * 128, page + 1);
        }
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    for step in 0..pages {
                        let page = if thread % 2 == 0 { step } else { pages - 1 - step };
                        assert_eq!(pool.word(FROM + page * 128), page + 1);
                    }
                });
            }
        });
        assert_eq!(*pool.pages.lock().unwrap(), pages as usize, "each page once");
    }
}
