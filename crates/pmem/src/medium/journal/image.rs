//! The private image: readers load from it and the writer stores to it. It keeps track of changes that are not in the data file
//! yet.
//!
//! Invariants:
//! * M1: a line is *saved*, with its old content, before the first store to it in a group. The line's bit in the mask
//!   of its page is set under the lock of the running group and cleared only when the group is closed or rolled back.
//!   The saved lines of a closed group are kept until it is acknowledged, so both groups can be rolled back, the
//!   younger one first.
//! * M2: for each page, the image records the newest generation that contains one of the page's lines. A page is dropped only under
//!   the lock, while no line of it is saved and that generation is checkpointed. Then the data file has the same bytes, and the next
//!   store must take the lock first. A group gets its generation when it is closed. (`space` has the rules for discarded pages.)
//! * M3: stores, closing and roll-back are done by one writer at a time (the index's own lock), as in every medium. If
//!   a group were closed between two stores of another thread, the group could lose the older store, and the next group
//!   would contain the younger one.
//! * M4: each page with a saved line is dropped at some time. Either a generation contains one of its lines, or the page is *idle*: its
//!   saved lines did not change, or were rolled back. A checkpoint tries to drop the pages of its generation and all idle pages. If M2
//!   forbids this, then a line of the page is saved again, or a newer generation contains one of its lines.
//!
//! The first store to a line in a group costs a lock and a copy of 64 bytes. Every other store costs one load.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError};

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

    /// Drops those of `pages` (page numbers) and of the idle pages that have no store newer than `generation`, which is checkpointed (M2).
    /// Returns their number.
    pub fn give_up(&self, files: &Files, generation: u64, mut pages: Vec<u64>) -> u64 {
        pages.extend(std::mem::take(&mut self.running().idle));
        pages.sort_unstable();
        pages.dedup();
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
                    // As the kernel would, so that a simulation sees the effect of a page that is dropped too early.
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

    #[test]
    fn state_is_made_for_the_stretches_that_are_stored_to_alone() {
        let bytes = 8 * STRETCH * PAGE;
        let folder = tempfile::tempdir().unwrap();
        let storage = |name: &str| {
            let path = folder.path().join(name);
            std::fs::File::create_new(&path).unwrap().set_len(DATA_AT + bytes).unwrap();
            Box::new(FileStorage::open(&path).unwrap())
        };
        let files = Files::new(storage("store"), storage("store.journal"));
        let image = Image::new(&files, bytes + PAGE).unwrap();
        image.extend(&files, bytes).unwrap();
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
