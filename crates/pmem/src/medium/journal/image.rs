//! The private image: readers load from it and the writer stores to it. It keeps track of changes that are not in the data file
//! yet.
//!
//! Invariants:
//! * M1: a line is *saved*, with its old content, before the first store to it in a group. The line's bit in the mask
//!   of its page is set under the lock of the running group and cleared only when the group is closed or rolled back.
//!   The saved lines of a closed group are kept until it is acknowledged, so both groups can be rolled back, the
//!   younger one first.
//! * M2: for each page, the image records the newest generation that contains one of the page's lines. A page is dropped only under the
//!   lock, while no line of it is saved and that generation is checkpointed. Then the data file has the same bytes. No store can happen
//!   during the drop: no line of the page is saved, so a store must first save its line under the lock (M1). A group gets its generation
//!   when it is closed. (`space` has the rules for discarded pages.)
//! * M3: stores, closing and roll-back are done by one writer at a time (the index's own lock), as in every medium. If
//!   a group were closed between two stores of another thread, the group could lose the older store, and the next group
//!   would contain the younger one.
//! * M4: each page with a saved line is listed for a drop at some time. Either a generation contains one of its lines, or the page is
//!   *idle*: its saved lines did not change, or were rolled back. A checkpoint lists the pages of its generation and all idle pages. If M2
//!   forbids the drop of a listed page, then a line of the page is saved again, or a newer generation contains one of its lines. So the page
//!   is listed again.
//! * M5: listed pages are kept, up to a number that the memory bound sets, and dropped in the order in which they were listed. A kept page
//!   costs nothing when it is stored to again. A dropped one costs two page faults, the second of which interrupts all processors.
//!
//! The first store to a line in a group costs a lock and a copy of 64 bytes. Every other store costs one load.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError};

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::medium::journal::freed::Space;
use crate::medium::journal::group::Changed;
use crate::medium::journal::header::DATA_AT;
use crate::medium::journal::storage::Files;
use crate::medium::native::{Durability, Native};
use crate::medium::traits::{LINE, Medium, WORD};
use crate::medium::view::PAGE;
use crate::sync::atomics::unmodelled::{Mutex, MutexGuard};

/// Pages whose state is allocated together, at the first store to one of them: 64 MiB of the region, 256 KiB of state.
const STRETCH: u64 = 1 << 14;
/// Most pages dropped under one hold of the lock.
const RUN_MAX: u64 = 64;

const _: () = assert!(PAGE / LINE == u64::BITS as u64, "a bit for each line of a page");

/// A saved line of the running group.
#[derive(Debug)]
struct Noted {
    at: u64,
    before: [u64; 8],
}

/// The changes of a page that are not in the data file yet.
#[derive(Debug, Default)]
struct Page {
    /// A bit for each line that the running group has saved.
    noted: AtomicU64,
    /// The newest generation with a line of it; 0 if there was none since open.
    generation: AtomicU64,
}

/// The private image of the data file.
#[derive(Debug)]
pub(super) struct Image {
    pub memory: Native,
    /// Maximum length in bytes.
    pub max_bytes: u64,
    /// There is no file to map: the bytes were copied.
    pub copied: bool,
    /// Segments of pages; a segment to which nothing was stored has no state, so an image that is only read costs no memory for
    /// it.
    pages: Box<[OnceLock<Box<[Page]>>]>,
    running: Mutex<Running>,
    /// The ranges that have no storage, or will have none.
    pub space: Space,
    kept: Mutex<Kept>,
}

/// The pages that checkpoints have listed and not dropped (M5). Each is in both collections, once.
#[derive(Debug, Default)]
struct Kept {
    /// In the order in which they were listed.
    queue: VecDeque<u64>,
    pages: FxHashSet<u64>,
}

impl Kept {
    /// Lists pages. Removes the first ones if there are more than `most`, and returns those in ascending order.
    fn list(&mut self, pages: impl IntoIterator<Item = u64>, most: u64) -> Vec<u64> {
        for page in pages {
            if self.pages.insert(page) {
                self.queue.push_back(page);
            }
        }
        let excess = self.queue.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
        let mut removed: Vec<u64> = self.queue.drain(..excess).collect();
        for page in &removed {
            self.pages.remove(page);
        }
        removed.sort_unstable();
        removed
    }
}

/// The data that the lock of the running group protects.
#[derive(Debug, Default)]
struct Running {
    noted: Vec<Noted>,
    /// Number of pages with a line in `noted`.
    pages: u64,
    /// The saved lines of the group that is closed and not acknowledged yet.
    closed: Vec<Noted>,
    /// Pages that the next checkpoint tries to drop (M4). Each is listed once, however many groups leave it unchanged.
    idle: BTreeSet<u64>,
}

impl Image {
    /// An empty image of the data file with space for `max_bytes`.
    ///
    /// # Errors
    /// `Io` if the range cannot be reserved.
    pub fn new(files: &Files, max_bytes: u64) -> Result<Self> {
        let memory = match files.data.file() {
            Some(file) => {
                let path = files.data.path();
                let file = crate::system::duplicate(file, path)
                    .map_err(|source| crate::file::io("cannot open", path, source))?;
                Native::map_private(file, path, DATA_AT, max_bytes)?
            }
            None => Native::anonymous(max_bytes, Durability::Process)?,
        };
        let stretches = max_bytes.div_ceil(PAGE).div_ceil(STRETCH).max(1);
        Ok(Self {
            memory,
            max_bytes,
            copied: files.data.file().is_none(),
            pages: (0..stretches).map(|_| OnceLock::new()).collect(),
            running: Mutex::default(),
            space: Space::default(),
            kept: Mutex::default(),
        })
    }

    /// Extends the image to `bytes` bytes of the data file, which has that length.
    ///
    /// # Errors
    /// `Full`, `Io`; the image keeps its length.
    pub fn extend(&self, files: &Files, bytes: u64) -> Result<()> {
        let old = self.memory.len();
        if !self.copied {
            return self.memory.extend_private(bytes);
        }
        let mut content = vec![0; (bytes - old) as usize];
        files.data.read(DATA_AT + old, &mut content)?;
        self.memory.grow(bytes)?;
        self.overwrite(old, &content);
        Ok(())
    }

    /// Stores the words that differ. Only for a copied image.
    pub fn overwrite(&self, from: u64, content: &[u8]) {
        for (i, bytes) in content.chunks_exact(WORD as usize).enumerate() {
            let (at, value) = (from + i as u64 * WORD, u64::from_le_bytes(bytes.try_into().expect("a word")));
            if self.memory.word(at) != value {
                self.memory.copy(at, value);
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a page, if it exists.
    #[inline(always)]
    fn page(&self, at: u64) -> Option<&Page> {
        let page = at / PAGE;
        let pages = self.pages.get((page / STRETCH) as usize)?.get()?;
        pages.get((page % STRETCH) as usize)
    }

    /// The state of a page that has or had a saved line.
    fn noted_page(&self, at: u64) -> &Page {
        self.page(at).expect("noting makes a page's state")
    }

    /// Saves the line of a word that is about to be stored (M1).
    #[inline(always)]
    pub fn before_store(&self, at: u64) {
        if self.page(at).is_none_or(|page| page.noted.load(Ordering::Relaxed) & bit(at) == 0) {
            self.note(at);
        }
    }

    #[cold]
    fn note(&self, at: u64) {
        assert!(at < self.memory.len(), "store outside the region: {at:#x}");
        let at = at & !(LINE - 1);
        let stretch = at / PAGE / STRETCH;
        let rest = self.max_bytes.div_ceil(PAGE) - stretch * STRETCH;
        self.pages[stretch as usize]
            .get_or_init(|| (0..STRETCH.min(rest)).map(|_| Page::default()).collect());
        let is_first = self.noted_page(at).noted.load(Ordering::Relaxed) == 0;
        assert!(!is_first || !self.space.lacks(at), "store to a discarded range: {at:#x}");
        let mut running = self.running();
        // Checked again under the lock: a caller that violates M3 then does not save a line twice, the second time with a new word.
        let noted = self.noted_page(at).noted.fetch_or(bit(at), Ordering::Relaxed);
        if noted & bit(at) == 0 {
            if noted == 0 {
                running.pages += 1;
                self.memory.claim_page(at);
            }
            running.noted.push(Noted { at, before: self.content(at) });
        }
    }

    fn content(&self, line: u64) -> [u64; 8] {
        std::array::from_fn(|i| self.memory.word(line + i as u64 * WORD))
    }

    /// Saved lines of the running group, and the number of their pages.
    pub fn noted(&self) -> (u64, u64) {
        let running = self.running();
        (running.noted.len() as u64, running.pages)
    }

    /// Puts the lines that the running group really changed into `lines`, in the order in which they were saved.
    pub fn changed(&self, lines: &mut Vec<Changed>) {
        lines.clear();
        let running = self.running();
        lines.extend(
            running
                .noted
                .iter()
                .filter_map(|Noted { at, before }| Changed::of(*at, before, self.content(*at))),
        );
    }

    /// Closes the running group, which changed these lines (in that order), and assigns it to this generation. The next group
    /// begins. The previous group must have been acknowledged. Returns the number of pages that got their first line of this
    /// generation, or became idle and wait for its end.
    pub fn close(&self, generation: u64, lines: &[Changed]) -> u64 {
        self.space.close(generation);
        let mut running = self.running();
        let Running { noted, closed, idle, pages: running_pages } = &mut *running;
        std::mem::swap(noted, closed);
        *running_pages = 0;
        let mut changed = lines.iter().map(|line| line.at).peekable();
        let mut pages = 0;
        for Noted { at, .. } in closed.iter() {
            let page = self.noted_page(*at);
            if changed.next_if_eq(at).is_some() {
                pages += u64::from(page.generation.swap(generation, Ordering::Relaxed) != generation);
            } else {
                pages += u64::from(idle.insert(at / PAGE));
            }
            page.noted.fetch_and(!bit(*at), Ordering::Relaxed);
        }
        pages
    }

    /// The closed group is durable.
    pub fn acknowledge(&self) {
        self.running().closed.clear();
    }

    /// Rolls back everything that the running group and the closed one stored. The line that was saved last is restored first: a
    /// block stays until the pointer to it, which was stored later, is gone.
    pub fn roll_back(&self) {
        self.space.roll_back();
        let mut running = self.running();
        let Running { noted, closed, idle, pages } = &mut *running;
        *pages = 0;
        for noted in noted.drain(..).rev() {
            idle.insert(noted.at / PAGE);
            self.restore(&noted);
            self.noted_page(noted.at).noted.fetch_and(!bit(noted.at), Ordering::Relaxed);
        }
        closed.drain(..).rev().for_each(|closed| self.restore(&closed));
    }

    fn restore(&self, noted: &Noted) {
        for (i, word) in noted.before.into_iter().enumerate() {
            self.memory.publish(noted.at + i as u64 * WORD, word);
        }
    }

    /// Lists `pages` (page numbers, ascending) and the idle pages, and keeps at most `most` listed pages (M5). Drops the others, except
    /// those with a store newer than `generation`, which is checkpointed (M2). Returns the number of dropped pages.
    pub fn give_up(&self, files: &Files, generation: u64, pages: Vec<u64>, most: u64) -> u64 {
        let idle = std::mem::take(&mut self.running().idle);
        // A simulation keeps no page, so that it sees the effect of one that is dropped too early.
        let most = if self.copied { 0 } else { most };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = kept.list(pages.into_iter().chain(idle), most);
        drop(kept);
        let mut count = 0;
        let mut rest = &pages[..];
        while let Some(first) = rest.first() {
            let running = self.running();
            let is_home = |number: &u64| {
                let page = self.noted_page(number * PAGE);
                page.noted.load(Ordering::Relaxed) == 0
                    && page.generation.load(Ordering::Relaxed) <= generation
            };
            let run = (*first..first + RUN_MAX).zip(rest).take_while(|(a, b)| a == *b && is_home(b)).count();
            if run > 0 {
                let (from, to) = (first * PAGE, (first + run as u64) * PAGE);
                if self.copied {
                    // As the kernel would.
                    let mut content = vec![0; (to - from) as usize];
                    if files.data.read(DATA_AT + from, &mut content).is_ok() {
                        self.overwrite(from, &content);
                    }
                } else {
                    self.memory.drop_pages(from, to);
                }
            }
            drop(running);
            count += run as u64;
            rest = &rest[run.max(1)..];
        }
        count
    }
}

/// The bit of a line in its page's mask.
#[inline(always)]
fn bit(at: u64) -> u64 {
    1 << (at % PAGE / LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::journal::storage::FileStorage;

    /// An image of a new data file with this number of bytes.
    fn image(folder: &std::path::Path, bytes: u64) -> (Files, Image) {
        let storage = |name: &str| {
            let path = folder.join(name);
            std::fs::File::create_new(&path).unwrap().set_len(DATA_AT + bytes).unwrap();
            Box::new(FileStorage::open(&path).unwrap())
        };
        let files = Files::new(storage("store"), storage("store.journal"));
        let image = Image::new(&files, bytes + PAGE).unwrap();
        image.extend(&files, bytes).unwrap();
        (files, image)
    }

    #[test]
    fn pages_are_kept_up_to_the_limit_and_those_listed_first_are_dropped_first() {
        let folder = tempfile::tempdir().unwrap();
        let (files, image) = image(folder.path(), 16 * PAGE);
        // Nothing is written to the data file, so a dropped page shows zero again.
        let store = |pages: std::ops::Range<u64>| {
            for page in pages {
                image.before_store(page * PAGE);
                image.memory.copy(page * PAGE, image.memory.word(page * PAGE) + 1);
            }
        };
        let close = |generation| {
            let mut lines = Vec::new();
            image.changed(&mut lines);
            image.close(generation, &lines);
            image.acknowledge();
        };
        let dropped = || (0..16).filter(|page| image.memory.word(page * PAGE) == 0).collect::<Vec<_>>();
        store(0..10);
        close(1);
        assert_eq!(image.give_up(&files, 1, (0..4).collect(), 6), 0);
        assert_eq!(image.give_up(&files, 1, (2..10).collect(), 6), 4);
        assert_eq!(dropped(), [0, 1, 2, 3, 10, 11, 12, 13, 14, 15]);
        // Pages with a newer store are not dropped, and are listed again.
        store(4..6);
        close(2);
        store(6..7);
        assert_eq!(image.give_up(&files, 1, Vec::new(), 2), 1);
        assert_eq!(dropped(), [0, 1, 2, 3, 7, 10, 11, 12, 13, 14, 15]);
        close(3);
        assert_eq!(image.give_up(&files, 3, vec![4, 5, 6], 0), 5);
        assert_eq!(dropped(), (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn state_is_made_for_the_stretches_that_are_stored_to_alone() {
        let bytes = 8 * STRETCH * PAGE;
        let folder = tempfile::tempdir().unwrap();
        let (_files, image) = image(folder.path(), bytes);
        let made = || image.pages.iter().filter(|pages| pages.get().is_some()).count();
        assert_eq!((image.pages.len(), made()), (9, 0));
        for (at, stretches) in [(0, 1), (STRETCH * PAGE - 8, 1), (5 * STRETCH * PAGE, 2), (bytes - 8, 3)] {
            image.before_store(at);
            image.memory.copy(at, 1);
            assert_eq!(made(), stretches);
        }
        assert_eq!(image.noted(), (4, 4));
        image.roll_back();
        assert_eq!((image.noted(), image.memory.word(bytes - 8)), ((0, 0), 0));
    }
}
