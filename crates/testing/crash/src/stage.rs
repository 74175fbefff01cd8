//! The memory in which images are composed lazily.
//!
//! At a crash point the stage holds the known-durable words and a list of *open* lines, each with its possible contents. When recovery or
//! the check first reads an open line, the stage takes the next choice of the *script* (the choices that the search prescribes for this
//! image) and writes that content into memory. After the script's end the stage takes the line's first content, or a random one when the
//! search samples images. All changes go to an undo list. So the next image starts from the same words, at a cost proportional to the lines
//! touched.
//!
//! A store to an open line does not read it, so it does not branch. The stage records which words were stored (the line's *mask*). A later
//! read branches on the distinct contents of the other words. So a freed block that is reused, and a data line that a redo log overwrites,
//! cost no images.
//!
//! The stage reports the first read of each line to `recall`, which can predict the reads of an image without executing it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::{Event, LINE, Memory, Observer, WORD};

use crate::line::Words;
use crate::model::{OpenLines, Undo, put, rewind, words};
use crate::recall::{Fingerprint, Recall, over};
use crate::tape::Recorded;

/// The state that a crash point leaves undetermined.
#[derive(Clone, Debug, Default)]
pub struct Open {
    /// The lines whose content the crash determines, ascending.
    pub lines: OpenLines,
    /// Bytes in use.
    pub len: u64,
}

/// The choice of a content for one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Byte offset of the line.
    pub line: u64,
    /// Index of the chosen content.
    pub choice: usize,
    /// Number of contents to choose from.
    pub count: usize,
    /// Mask of the words (a bit each) that were stored before the line was first read.
    pub mask: u8,
    /// The line's words after the choice.
    pub words: Words,
}

/// How choices past the script are made.
#[derive(Clone, Debug)]
pub enum Beyond {
    /// The first content: the known-durable one.
    First,
    /// A random content.
    Random(fastrand::Rng),
}

/// Memory for images. It observes reads and stores. Only one thread at a time uses it.
pub struct Stage {
    memory: Arc<Memory>,
    /// For each line, the number of the last image that read it.
    seen: Box<[AtomicU32]>,
    /// Number of the current image.
    image: AtomicU32,
    steps: AtomicU64,
    steps_max: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    open: Open,
    script: Vec<usize>,
    beyond: Beyond,
    taken: Vec<Taken>,
    /// Lines stored to before their first read in this image. Their masks are reset for the next image.
    masked: Vec<u64>,
    masks: Vec<u8>,
    undo: Undo,
    touched: Vec<u32>,
    recall: Recall,
    recording: bool,
    events: Vec<Recorded>,
}

impl Stage {
    /// Zeroed memory of `capacity` bytes, `len` of them in use. One image may read or store at most `steps_max` times.
    pub fn new(capacity: u64, len: u64, steps_max: u64) -> Arc<Self> {
        let lines = capacity.div_ceil(LINE) as usize;
        let inner = Inner {
            open: Open::default(),
            script: Vec::new(),
            beyond: Beyond::First,
            taken: Vec::new(),
            masked: Vec::new(),
            masks: vec![0; lines],
            undo: Undo::new(),
            touched: vec![0; lines],
            recall: Recall::default(),
            recording: false,
            events: Vec::new(),
        };
        Arc::new(Self {
            memory: Memory::new(capacity, len),
            seen: (0..lines).map(|_| AtomicU32::new(0)).collect(),
            image: AtomicU32::new(1),
            steps: AtomicU64::new(0),
            steps_max,
            inner: Mutex::new(inner),
        })
    }

    /// The underlying memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Sets the open lines to `open` and returns the previous ones. Call it only between images.
    pub fn install(&self, open: Open) -> Open {
        std::mem::replace(&mut self.lock().open, open)
    }

    /// Begins an image. `script` holds its first choices; `expected` is the fingerprint of its expected contents.
    pub fn begin(&self, script: Vec<usize>, beyond: Beyond, expected: Fingerprint) {
        let mut inner = self.lock();
        self.memory.set_len(inner.open.len);
        self.steps.store(0, Ordering::Relaxed);
        self.image.fetch_add(1, Ordering::Relaxed);
        (inner.script, inner.beyond, inner.recording) = (script, beyond, false);
        inner.events.clear();
        let len = inner.open.len;
        inner.recall.begin(expected, len);
    }

    /// Records that the image was good. Returns false if the subject is not deterministic.
    #[must_use]
    pub fn learn(&self) -> bool {
        self.lock().recall.learn()
    }

    /// Forgets all images. Call it before the continuation or the expected contents change.
    pub fn forget(&self) {
        self.lock().recall.clear();
    }

    /// Returns the choices of the image with these first choices if the subject would read the same contents as from a known good image.
    /// Returns `None` otherwise.
    pub fn recall(&self, script: &[usize], beyond: &Beyond, expected: Fingerprint) -> Option<Vec<Taken>> {
        let inner = &*self.lock();
        let (mut taken, mut beyond) = (Vec::new(), beyond.clone());
        // The read may have happened when more bytes were in use.
        self.memory.set_len(self.memory.capacity());
        let is_known = inner.recall.knows(expected, inner.open.len, |line, len, stored| {
            inner.open.choose(line, stored, script, &mut beyond, &mut taken).unwrap_or_else(|| {
                let base = if line < len { words(&self.memory, line) } else { Words::default() };
                stored.map_or(base, |(mask, stored)| over(&base, mask, stored))
            })
        });
        self.memory.set_len(inner.open.len);
        is_known.then_some(taken)
    }

    /// Ends the image: restores all words and returns the choices made.
    pub fn end(&self) -> Vec<Taken> {
        let mut inner = self.lock();
        while let Some(line) = inner.masked.pop() {
            inner.masks[(line / LINE) as usize] = 0;
        }
        rewind(&self.memory, &mut inner.undo);
        self.memory.set_len(inner.open.len);
        std::mem::take(&mut inner.taken)
    }

    /// Number of choices made so far.
    pub fn taken(&self) -> usize {
        self.lock().taken.len()
    }

    /// Starts (`true`) or stops (`false`) the recording of events.
    pub fn record(&self, recording: bool) {
        self.lock().recording = recording;
    }

    /// Takes the events recorded so far.
    pub fn events(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.lock().events)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if this image has read the line, or if the line is outside the memory.
    #[inline]
    fn is_seen(&self, line: u64) -> bool {
        let image = self.image.load(Ordering::Relaxed);
        self.seen.get((line / LINE) as usize).is_none_or(|seen| seen.load(Ordering::Relaxed) == image)
    }

    #[inline]
    fn step(&self) {
        let steps = self.steps.load(Ordering::Relaxed) + 1;
        self.steps.store(steps, Ordering::Relaxed);
        if steps > self.steps_max {
            endless(steps);
        }
    }

    /// The first read of a line. It is separate from [`Observer::read`], the hot path of most images.
    #[cold]
    fn meet(&self, line: u64) {
        let inner = &mut *self.lock();
        let (at, image) = ((line / LINE) as usize, self.image.load(Ordering::Relaxed));
        self.seen[at].store(image, Ordering::Relaxed);
        let mask = inner.masks[at];
        // The stored words are enough: the other words differ between images with the same sequence of reads.
        let stored = (mask != 0).then(|| over(&Words::default(), mask, &words(&self.memory, line)));
        let stored = stored.as_ref().map(|words| (mask, words));
        let Inner { open, script, beyond, taken, .. } = inner;
        let content = match open.choose(line, stored, script, beyond, taken) {
            Some(content) => {
                inner.touch(&self.memory, line, image);
                put(&self.memory, line, &content);
                content
            }
            None => words(&self.memory, line),
        };
        inner.recall.read(line, self.memory.len(), stored, &content);
    }
}

impl Open {
    /// Returns the content of an open line by the next choice; `None` if the line is not open. `masked` is the mask of the stored words,
    /// and a line that holds them.
    fn choose(
        &self,
        line: u64,
        masked: Option<(u8, &Words)>,
        script: &[usize],
        beyond: &mut Beyond,
        taken: &mut Vec<Taken>,
    ) -> Option<Words> {
        let index = self.lines.binary_search_by_key(&line, |open| open.0).ok()?;
        let choices = &self.lines[index].1;
        let overlaid = masked.map(|(mask, stored)| overlay(&choices.contents, mask, stored));
        let contents = overlaid.as_ref().unwrap_or(&choices.contents);
        let count = contents.len();
        let mut choice = 0;
        if count > 1 {
            choice = match (script.get(taken.len()), beyond) {
                (Some(choice), _) => *choice,
                (None, Beyond::First) => 0,
                (None, Beyond::Random(rng)) => rng.usize(..count),
            };
            assert!(
                choice < count,
                "the subject is not deterministic: choice {choice} of {count} at line {line:#x}"
            );
            let mask = masked.map_or(0, |masked| masked.0);
            taken.push(Taken { line, choice, count, mask, words: contents[choice] });
        }
        Some(contents[choice])
    }
}

#[cold]
fn endless(steps: u64) {
    // Destructors may still read while the first panic unwinds. A second panic would abort the process.
    assert!(std::thread::panicking(), "no end after {steps} reads and stores on one image");
}

/// The distinct contents after the words of `mask` are replaced by those of `stored`.
fn overlay(contents: &[Words], mask: u8, stored: &Words) -> Vec<Words> {
    let mut seen = HashSet::new();
    contents
        .iter()
        .map(|content| over(content, mask, stored))
        .filter(|words: &Words| seen.insert(*words))
        .collect()
}

impl Inner {
    /// Records a store to a word of a line that was not read yet.
    fn mask(&mut self, line: u64, word: usize) {
        let mask = &mut self.masks[(line / LINE) as usize];
        if *mask == 0 {
            self.masked.push(line);
        }
        *mask |= 1 << word;
    }

    /// Saves a line's words before their first change in this image.
    fn touch(&mut self, memory: &Memory, line: u64, image: u32) {
        let touched = &mut self.touched[(line / LINE) as usize];
        if *touched != image {
            *touched = image;
            self.undo.push((line, words(memory, line)));
        }
    }
}

impl Observer for Stage {
    fn follows_discards(&self) -> bool {
        true
    }

    fn read(&self, line: u64) {
        self.step();
        if !self.is_seen(line) {
            self.meet(line);
        }
    }

    fn event(&self, event: Event) {
        self.step();
        let mut inner = self.lock();
        if let Event::Store { at, .. } = event
            && at < self.memory.len()
        {
            let line = at & !(LINE - 1);
            if !self.is_seen(line) {
                inner.mask(line, (at / WORD % 8) as usize);
            }
            inner.touch(&self.memory, line, self.image.load(Ordering::Relaxed));
        }
        if inner.recording {
            let recorded = Recorded::new(event, &self.memory, inner.taken.len());
            inner.events.push(recorded);
        }
    }
}
