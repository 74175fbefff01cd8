//! Durable memory in schedules. The scheduler may switch threads before each load, store, flush and fence. At each of these points the
//! tests can derive the states that a crash may leave.
//!
//! Durable words are not atomics of the scheduler. So without this wrapper the scheduler would not switch threads between two stores of an
//! operation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crash::model::{Undo, put, words};
use crash::{History, Model};
use pmem::{Event, Fence, Group, LINE, Line, Medium, Memory, Observed, Observer, Result};

/// A switch point of the scheduler, active once it is switched on.
#[derive(Debug, Default)]
pub struct Points {
    on: AtomicBool,
    at: shuttle::sync::atomic::AtomicBool,
}

impl Points {
    /// The scheduler may switch to another thread here.
    pub fn pass(&self) {
        if self.on.load(Ordering::Relaxed) {
            self.at.load(Ordering::SeqCst);
        }
    }

    /// Activates or deactivates the point.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }
}

/// A medium with switch points.
pub struct Scheduled<M> {
    /// The medium that loads and stores.
    pub medium: M,
    /// The switch points.
    pub points: Arc<Points>,
}

impl<M: Medium> Medium for Scheduled<M> {
    fn line(&self, at: u64) -> &Line {
        self.points.pass();
        self.medium.line(at)
    }
    fn word(&self, at: u64) -> u64 {
        self.points.pass();
        self.medium.word(at)
    }
    fn copy(&self, at: u64, value: u64) {
        self.points.pass();
        self.medium.copy(at, value);
    }
    fn publish(&self, at: u64, value: u64) {
        self.points.pass();
        self.medium.publish(at, value);
    }
    fn flush(&self, at: u64, bytes: u64) {
        self.points.pass();
        self.medium.flush(at, bytes);
    }
    fn fence(&self, why: Fence) {
        self.points.pass();
        self.medium.fence(why);
    }
    fn prefetch(&self, at: u64, bytes: u64) {
        self.medium.prefetch(at, bytes);
    }
    fn len(&self) -> u64 {
        self.medium.len()
    }
    fn grow(&self, bytes: u64) -> Result<()> {
        self.points.pass();
        self.medium.grow(bytes)
    }
    fn discard(&self, at: u64, bytes: u64) -> bool {
        self.medium.discard(at, bytes)
    }
    fn provide(&self, at: u64, bytes: u64) -> Result<()> {
        self.medium.provide(at, bytes)
    }
    fn holes(&self) -> Vec<(u64, u64)> {
        self.medium.holes()
    }
    fn sync(&self, at: u64, bytes: u64) -> Result<()> {
        self.medium.sync(at, bytes)
    }
    fn group(&self) -> Option<Group> {
        self.medium.group()
    }
    fn commit_beside<G>(&self, hold: impl FnOnce() -> Option<G>) -> Result<()> {
        self.medium.commit_beside(hold)
    }
    fn roll_back(&self) {
        self.medium.roll_back();
    }
    fn lines(&self, _at: u64, _count: usize) -> Option<&[Line]> {
        None
    }
}

/// All events of a memory, each with its moment in a history and the bytes in use.
pub struct Tape {
    memory: Arc<Memory>,
    history: Arc<History>,
    events: Mutex<Vec<(u64, u64, Event)>>,
    /// True while fences are recorded.
    honest: AtomicBool,
}

impl Observer for Tape {
    fn event(&self, event: Event) {
        if self.honest.load(Ordering::Relaxed) || !matches!(event, Event::Fence { .. }) {
            self.events.lock().unwrap().push((self.history.now(), self.memory.len(), event));
        }
    }
}

/// A memory of `capacity` bytes whose events are recorded.
pub fn recorded(capacity: u64, history: &Arc<History>) -> (Observed, Arc<Tape>) {
    let memory = Memory::new(capacity, 0);
    let tape = Arc::new(Tape {
        memory: memory.clone(),
        history: history.clone(),
        events: Mutex::default(),
        honest: AtomicBool::new(true),
    });
    (Observed::new(memory, tape.clone()), tape)
}

/// Ignores all events.
struct Nobody;

impl Observer for Nobody {
    fn event(&self, _event: Event) {}
}

/// Maximum number of contents of a line that are tried.
const CONTENTS: usize = 64;

impl Tape {
    /// From now on fences have no effect on the states after crashes.
    pub fn lie(&self) {
        self.honest.store(false, Ordering::Relaxed);
    }

    /// The states after crashes at `cuts` moments from `from` on, each with its moment. All, none or some of the non-durable stores
    /// survive. Half of the moments are just after the return of a read: an answer that was given too early becomes durable a few steps
    /// later.
    pub fn crashes(&self, from: u64, cuts: usize, random: &mut fastrand::Rng) -> Vec<(u64, Observed)> {
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        let first = events.partition_point(|(moment, ..)| *moment < from);
        if first == events.len() {
            return Vec::new();
        }
        let reads = self.history.operations().into_iter().filter(|operation| operation.writes.is_none());
        let behind = reads.filter_map(|read| read.returned).filter(|returned| *returned >= from);
        let mut behind: Vec<usize> =
            behind.map(|returned| events.partition_point(|(moment, ..)| *moment < returned)).collect();
        behind.sort_unstable();
        behind.dedup();
        behind.retain(|i| *i < events.len());
        let any = |random: &mut fastrand::Rng| random.usize(first..events.len());
        let choose = |i| match random.choice(&behind).filter(|_| i % 2 == 0) {
            Some(behind) => *behind,
            None => any(random),
        };
        let mut chosen: Vec<usize> = (0..cuts).map(choose).collect();
        chosen.sort_unstable();
        let capacity = self.memory.capacity();
        let ground = Memory::new(capacity, capacity);
        let mut model = Model::new(CONTENTS, random.u64(..));
        let (mut undo, mut images) = (Undo::new(), Vec::new());
        for (i, (moment, len, event)) in events.iter().enumerate() {
            while chosen.first() == Some(&i) {
                chosen.remove(0);
                let image = Memory::new(capacity, capacity);
                for line in (0..*len).step_by(LINE as usize) {
                    put(&image, line, &words(&ground, line));
                }
                let kind = random.u8(..4);
                for (line, choices) in model.open() {
                    let contents = &choices.contents;
                    let choice = match kind {
                        0 | 1 => 0,
                        2 => contents.len() - 1,
                        _ => random.usize(..contents.len()),
                    };
                    put(&image, line, &contents[choice]);
                }
                image.set_len(*len);
                images.push((*moment, Observed::new(image, Arc::new(Nobody))));
            }
            model.apply(event, &ground, &mut undo);
            undo.clear();
        }
        images
    }
}
