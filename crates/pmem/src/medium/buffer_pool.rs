//! A buffer pool in front of durable memory [wB+ §3.1]: pages of the size of a node, copied into volatile frames when they
//! are first touched, and found there through a hash table of page numbers, which is what the paper measures.
//!
//! What is stored goes to the frame; [`flush`](Medium::flush) writes the words of a line that differ back and flushes the line
//! below. Superblock, intents and log, everything before the first page, are not pooled.
//!
//! Invariants:
//! * P1: a page that is in the pool is read and written there alone; the medium below holds what was last flushed.
//! * P2: a frame keeps its page, its address and its place in the table until the pool is dropped: what a reader was given
//!   stays. So the pool holds every page that was ever touched.
//! * P3: an entry of the table is whole once its page number is seen; a table that is full gives way to one twice as large,
//!   and stays for the readers that still look into it.
//! * P4: a line goes home with its first word last: the order of stores within a line, which a write-back by words would lose,
//!   matters in chunk headers alone (the allocator's A3), and there that word is the one published.
//! * P5: lines go home one at a time, so that a sync beside the writer never puts an older word over a newer one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError};

use crate::error::Result;
use crate::medium::traits::{Fence, Group, LINE, Line, Medium, WORD, lines_of};
use crate::medium::view::prefetch;
use crate::sync::atomics::unmodelled::Mutex;

/// How an index reaches a medium: directly, or through a pool.
pub trait Access<M: Medium>: Medium {
    /// Reaches `medium`; what lies from offset `from` on may be pooled in pages of `page_bytes`.
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

/// Frames of the first stretch; each further one has twice as many.
const FRAMES: usize = 64;
const STRETCHES: usize = 40;
/// Entries of the first table; each further one has twice as many.
const ENTRIES: usize = 256;
const TABLES: usize = 40;

/// See the module's head.
#[derive(Debug)]
pub struct BufferPool<M> {
    medium: M,
    from: u64,
    /// Bytes of a page: a power of two of whole lines.
    page_bytes: u64,
    /// A page is a node: it may be looked at as a run of lines.
    whole: bool,
    tables: [OnceLock<Table>; TABLES],
    /// The table in use.
    current: AtomicUsize,
    frames: [OnceLock<Box<[Line]>>; STRETCHES],
    /// Pages in the pool; held while one is added.
    pages: Mutex<usize>,
    /// Held while a line goes home (P5).
    homeward: Mutex<()>,
}

/// Open addressing, at most half full.
#[derive(Debug)]
struct Table {
    entries: Box<[TableEntry]>,
}

#[derive(Debug, Default)]
struct TableEntry {
    /// Page number; 0 (which is never pooled) for none.
    page: AtomicU64,
    frame: AtomicUsize,
}

impl Table {
    fn new(entries: usize) -> Self {
        Self { entries: (0..entries).map(|_| TableEntry::default()).collect() }
    }

    /// Where to look for a page, first place first.
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
    /// A pool of the pages from offset `from` on. A page is the smallest power of two that holds `page_bytes`.
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
            homeward: Mutex::new(()),
        };
        pool.tables[0].get_or_init(|| Table::new(ENTRIES));
        pool
    }

    #[inline(always)]
    fn table(&self) -> Option<&Table> {
        self.tables[self.current.load(Ordering::Acquire) % TABLES].get()
    }

    /// The lines of a frame. Frames stand in stretches that double, so that none ever moves (P2).
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

    /// The frame of the page that holds byte `at`, brought into the pool if need be; `None` outside the pooled range.
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
            return Some(frame); // another thread was here first
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

    /// The word at `at`, in its frame or below.
    #[inline(always)]
    fn cell(&self, at: u64) -> Option<&AtomicU64> {
        Some(&self.line_in(self.fix(at)?, at).0[(at / WORD % 8) as usize])
    }

    #[inline(always)]
    fn line_in<'a>(&self, frame: &'a [Line], at: u64) -> &'a Line {
        &frame[(at % self.page_bytes / LINE) as usize]
    }

    /// Writes the words of a line that differ from those below; false if the line is not in the pool. The stores carry the
    /// location of the flush or sync that asks for them, so that the mutation run breaks them call site by call site.
    #[track_caller]
    fn write_back(&self, line: u64) -> bool {
        let Some(frame) = self.resident(line) else { return false };
        let _turn = self.homeward.lock().unwrap_or_else(PoisonError::into_inner); // P5
        let [first, others @ ..] = &self.line_in(frame, line).0;
        // Looked at first: the others are then no older than what it was published behind.
        let first = first.load(Ordering::Acquire);
        for (word, at) in others.iter().zip((line + WORD..).step_by(WORD as usize)) {
            let word = word.load(Ordering::Relaxed);
            if self.medium.word(at) != word {
                self.medium.copy(at, word);
            }
        }
        if self.medium.word(line) != first {
            self.medium.publish(line, first); // P4
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
        match self.cell(at) {
            Some(word) => word.store(value, Ordering::Release),
            None => self.medium.publish(at, value),
        }
    }

    fn flush(&self, at: u64, bytes: u64) {
        if at < self.from {
            self.medium.flush(at, bytes);
            return;
        }
        for line in lines_of(at, bytes) {
            if self.write_back(line) {
                self.medium.flush(line, LINE);
            }
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

    /// The frames keep what they hold: an index over them must not be read after this.
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
                // What the other thread is about to store comes now.
                let late = (0..50).find(|_| memory.peek(FROM + 8) != round);
                stale = stale.or(late.map(|_| round));
            }
            done.store(1, Ordering::Relaxed);
            assert_eq!(stale, None, "an older word went home after this round");
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
