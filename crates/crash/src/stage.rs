//! The memory in which images are composed, lazily.
//!
//! At a crash point the stage holds the known-durable words and a list of *open* lines, each with its possible contents.
//! When recovery or the check first reads an open line, the next choice of the script is taken and the words are put in
//! place; past the script's end the first content is taken (or a random one, when sampling). All changes go to an undo
//! list, so that the next image starts from the same words at the cost of the lines touched.
//!
//! A store to an open line does not look at it, so it does not branch: the stage remembers which words were stored (the
//! line's *mask*), and the later read branches on the distinct contents of the other words. A block of garbage that is
//! used again, and a home line that a redo log overwrites, cost no images.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::{Event, LINE, Memory, Observer, WORD};

use crate::line::Words;
use crate::model::{OpenLines, Undo, put, rewind, words};
use crate::tape::Recorded;

/// What a crash point leaves open.
#[derive(Clone, Debug, Default)]
pub struct Open {
    /// The lines a crash may choose, ascending.
    pub lines: OpenLines,
    /// Bytes in use.
    pub len: u64,
}

/// A choice that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Byte offset of the line.
    pub line: u64,
    /// Which of its contents.
    pub choice: usize,
    /// How many it had.
    pub count: usize,
    /// Words (a bit each) that had been stored to before the line was read.
    pub mask: u8,
    /// What the line then held.
    pub words: Words,
}

/// How choices past the script are made.
#[derive(Debug)]
pub enum Beyond {
    /// The first content: what was known to be durable.
    First,
    /// Any.
    Random(fastrand::Rng),
}

/// Memory for images, told about reads and stores. Used by one thread at a time.
pub struct Stage {
    memory: Arc<Memory>,
    open: Box<[AtomicU8]>,
    steps: AtomicU64,
    steps_max: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    open: Open,
    script: Vec<usize>,
    beyond: Beyond,
    taken: Vec<Taken>,
    /// Lines read in this image, and lines stored to while open: for the next image all this is put back.
    closed: Vec<u64>,
    masked: Vec<u64>,
    masks: Vec<u8>,
    undo: Undo,
    epoch: u64,
    touched: Vec<u64>,
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
            closed: Vec::new(),
            masked: Vec::new(),
            masks: vec![0; lines],
            undo: Undo::new(),
            epoch: 1,
            touched: vec![0; lines],
            recording: false,
            events: Vec::new(),
        };
        Arc::new(Self {
            memory: Memory::new(capacity, len),
            open: (0..lines).map(|_| AtomicU8::new(0)).collect(),
            steps: AtomicU64::new(0),
            steps_max,
            inner: Mutex::new(inner),
        })
    }

    /// The memory below.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Leaves `open` open from now on; returns what was open before. Only between images.
    pub fn install(&self, open: Open) -> Open {
        let mut inner = self.lock();
        for (line, _) in &inner.open.lines {
            self.mark(*line, 0);
        }
        for (line, _) in &open.lines {
            self.mark(*line, 1);
        }
        std::mem::replace(&mut inner.open, open)
    }

    /// Begins an image with these first choices.
    pub fn begin(&self, script: Vec<usize>, beyond: Beyond) {
        let mut inner = self.lock();
        self.memory.set_len(inner.open.len);
        self.steps.store(0, Ordering::Relaxed);
        inner.epoch += 1;
        (inner.script, inner.beyond, inner.recording) = (script, beyond, false);
        inner.events.clear();
    }

    /// Ends the image: puts all words back, and returns the choices that were made.
    pub fn end(&self) -> Vec<Taken> {
        let mut inner = self.lock();
        while let Some(line) = inner.closed.pop() {
            self.mark(line, 1);
        }
        while let Some(line) = inner.masked.pop() {
            inner.masks[(line / LINE) as usize] = 0;
        }
        rewind(&self.memory, &mut inner.undo);
        self.memory.set_len(inner.open.len);
        std::mem::take(&mut inner.taken)
    }

    /// How many choices were made so far.
    pub fn taken(&self) -> usize {
        self.lock().taken.len()
    }

    /// From now on events are kept (`true`) or not.
    pub fn record(&self, recording: bool) {
        self.lock().recording = recording;
    }

    /// Takes the events kept so far.
    pub fn events(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.lock().events)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, line: u64, open: u8) {
        self.open[(line / LINE) as usize].store(open, Ordering::Relaxed);
    }

    fn is_open(&self, line: u64) -> bool {
        self.open.get((line / LINE) as usize).is_some_and(|open| open.load(Ordering::Relaxed) != 0)
    }

    #[inline]
    fn step(&self) {
        let steps = self.steps.load(Ordering::Relaxed) + 1;
        self.steps.store(steps, Ordering::Relaxed);
        if steps > self.steps_max {
            endless(steps);
        }
    }

    /// Not in line with [`Observer::read`], which most images spend their time in.
    #[cold]
    fn resolve(&self, line: u64) {
        let inner = &mut *self.lock();
        let Ok(index) = inner.open.lines.binary_search_by_key(&line, |open| open.0) else { return };
        let choices = inner.open.lines[index].1.clone();
        let mask = inner.masks[(line / LINE) as usize];
        let masked =
            if mask == 0 { None } else { Some(overlay(&choices.contents, mask, &words(&self.memory, line))) };
        let contents = masked.as_ref().unwrap_or(&choices.contents);
        let count = contents.len();
        let mut choice = 0;
        if count > 1 {
            choice = match (inner.script.get(inner.taken.len()), &mut inner.beyond) {
                (Some(choice), _) => *choice,
                (None, Beyond::First) => 0,
                (None, Beyond::Random(rng)) => rng.usize(..count),
            };
            assert!(
                choice < count,
                "the subject is not deterministic: choice {choice} of {count} at line {line:#x}"
            );
            inner.taken.push(Taken { line, choice, count, mask, words: contents[choice] });
        }
        self.mark(line, 0);
        inner.closed.push(line);
        inner.touch(&self.memory, line);
        put(&self.memory, line, &contents[choice]);
    }
}

#[cold]
fn endless(steps: u64) {
    // Destructors may still read while the first panic unwinds; a second one would abort.
    assert!(std::thread::panicking(), "no end after {steps} reads and stores on one image");
}

/// The distinct contents when the words of `mask` are those of `stored`.
fn overlay(contents: &[Words], mask: u8, stored: &Words) -> Vec<Words> {
    let mut seen = HashSet::new();
    let over = |content: &Words| {
        std::array::from_fn(|word| if mask & (1 << word) != 0 { stored[word] } else { content[word] })
    };
    contents.iter().map(over).filter(|words: &Words| seen.insert(*words)).collect()
}

impl Inner {
    /// Remembers that a word of an open line was stored to.
    fn mask(&mut self, line: u64, word: usize) {
        let mask = &mut self.masks[(line / LINE) as usize];
        if *mask == 0 {
            self.masked.push(line);
        }
        *mask |= 1 << word;
    }

    /// Remembers a line's words before they change for the first time in this image.
    fn touch(&mut self, memory: &Memory, line: u64) {
        let touched = &mut self.touched[(line / LINE) as usize];
        if *touched != self.epoch {
            *touched = self.epoch;
            self.undo.push((line, words(memory, line)));
        }
    }
}

impl Observer for Stage {
    fn read(&self, line: u64) {
        self.step();
        if self.is_open(line) {
            self.resolve(line);
        }
    }

    fn event(&self, event: Event) {
        self.step();
        let mut inner = self.lock();
        if let Event::Store { at, .. } = event
            && at < self.memory.len()
        {
            let line = at & !(LINE - 1);
            if self.is_open(line) {
                inner.mask(line, (at / WORD % 8) as usize);
            }
            inner.touch(&self.memory, line);
        }
        if inner.recording {
            let recorded = Recorded::new(event, &self.memory, inner.taken.len());
            inner.events.push(recorded);
        }
    }
}
