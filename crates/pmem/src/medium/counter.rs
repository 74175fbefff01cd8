//! Counts for the cost model: words stored, lines flushed and fences passed [wB+ §2.5], and bytes changed [VLAB §3.3].
//!
//! Every count is kept in total and by [`Category`], the purpose of the word, line or fence. The category follows from the source
//! file of the call site ([`PLACES`]) or from the purpose of a fence, so no operation has to state it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::medium::events::{Event, Observer, Site};
use crate::medium::traits::Fence;

/// The purpose of a store, flush or fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Nodes: their words, whichever part stores them, and their lines except those of [`Category::Home`].
    Node,
    /// The log's records.
    Log,
    /// Lines of nodes whose words went through the log. The log makes them durable. Their flush prepares its truncation.
    Home,
    /// Truncation of the log.
    Checkpoint,
    /// The allocator: intents, bits, chunks.
    Allocation,
    /// Records: the bytes of keys and values.
    Record,
    /// Superblock and life cycle of the region.
    Superblock,
}

impl Category {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Node,
        Self::Log,
        Self::Home,
        Self::Checkpoint,
        Self::Allocation,
        Self::Record,
        Self::Superblock,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Log => "log",
            Self::Home => "home",
            Self::Checkpoint => "checkpoint",
            Self::Allocation => "allocation",
            Self::Record => "record",
            Self::Superblock => "superblock",
        }
    }
}

/// The purpose of an operation by its source file: the end of the file's path, the category of its stores, and the category of
/// its flushes (and of fences whose purpose does not determine a category). An operation in any other file belongs to a node.
const PLACES: [(&str, Category, Category); 8] = [
    ("pmem/src/heap/alloc/allocator.rs", Category::Allocation, Category::Allocation),
    ("pmem/src/heap/alloc/place.rs", Category::Allocation, Category::Allocation),
    ("pmem/src/heap/log/data_words.rs", Category::Node, Category::Home),
    ("pmem/src/heap/log/truncate.rs", Category::Checkpoint, Category::Checkpoint),
    ("pmem/src/heap/log/redo.rs", Category::Log, Category::Log),
    ("pmem/src/heap/record.rs", Category::Record, Category::Record),
    ("pmem/src/heap/region.rs", Category::Superblock, Category::Superblock),
    ("pmem/src/medium/observed.rs", Category::Superblock, Category::Superblock),
];

impl Event {
    /// The purpose of the event.
    pub fn category(&self) -> Category {
        match self {
            Self::Store { site, .. } => place(site).0,
            Self::Flush { site, .. } => place(site).1,
            Self::Fence { why, site } => match why {
                Fence::Allocate => Category::Allocation,
                Fence::Home => Category::Home,
                Fence::Checkpoint => Category::Checkpoint,
                Fence::Superblock => Category::Superblock,
                Fence::Guard | Fence::Payload | Fence::Undo | Fence::Commit => place(site).1,
            },
        }
    }
}

fn place(site: Site) -> (Category, Category) {
    let known = PLACES.iter().find(|(file, ..)| site.file().ends_with(file));
    known.map_or((Category::Node, Category::Node), |(_, stores, others)| (*stores, *others))
}

/// One category's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Words of 8 bytes stored.
    pub words: u64,
    /// Bytes whose value changed with those stores.
    pub bytes: u64,
    /// Lines flushed.
    pub flushes: u64,
    /// Fences by purpose.
    pub fences: BTreeMap<Fence, u64>,
}

impl Part {
    /// Fences of all purposes.
    pub fn fences_total(&self) -> u64 {
        self.fences.values().sum()
    }
}

/// The counts of a [`Counter`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Words of 8 bytes stored.
    pub words: u64,
    /// Bytes whose value changed with those stores.
    pub bytes: u64,
    /// Lines flushed.
    pub flushes: u64,
    /// Fences by purpose.
    pub fences: BTreeMap<Fence, u64>,
    /// The same by category, without categories that have no counts.
    pub parts: BTreeMap<Category, Part>,
}

impl Counts {
    /// Fences of all purposes.
    pub fn fences_total(&self) -> u64 {
        self.fences.values().sum()
    }

    /// One category's counts.
    pub fn part(&self, category: Category) -> Part {
        self.parts.get(&category).cloned().unwrap_or_default()
    }

    /// Counts an event. `old` is the word that a store replaces.
    pub fn note(&mut self, event: &Event, old: u64) {
        let part = self.parts.entry(event.category()).or_default();
        match event {
            Event::Store { value, .. } => {
                let bytes = changed_bytes(old, *value);
                part.words += 1;
                part.bytes += bytes;
                self.words += 1;
                self.bytes += bytes;
            }
            Event::Flush { .. } => {
                part.flushes += 1;
                self.flushes += 1;
            }
            Event::Fence { why, .. } => {
                *part.fences.entry(*why).or_default() += 1;
                *self.fences.entry(*why).or_default() += 1;
            }
        }
    }
}

fn changed_bytes(old: u64, new: u64) -> u64 {
    (old ^ new).to_le_bytes().iter().filter(|byte| **byte != 0).count() as u64
}

/// An observer that counts.
#[derive(Debug, Default)]
pub struct Counter {
    counts: Mutex<Counts>,
}

impl Counter {
    /// Returns the counts and resets them to zero.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, event: &Event, old: u64) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).note(event, old);
    }
}

impl Observer for Counter {
    fn event(&self, event: Event) {
        self.note(&event, 0);
    }

    fn store(&self, event: Event, old: u64) {
        self.note(&event, old);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::heap::log::redo::{DataLines, Format, Log};
    use crate::heap::region::Geometry;
    use crate::medium::observed::{Memory, Observed};
    use crate::medium::traits::Medium;

    #[test]
    fn every_verb_is_counted_in_total_and_in_the_category_of_its_place() {
        let counter = Arc::new(Counter::default());
        let medium = Observed::new(Memory::new(1 << 16, 1 << 16), Arc::clone(&counter) as Arc<_>);
        medium.copy(0, 0x0100_00FF);
        medium.publish(0, 0x0200_00FF);
        medium.flush(60, 8);
        medium.fence(Fence::Payload);
        let seen = counter.take();
        assert_eq!((seen.words, seen.bytes, seen.flushes, seen.fences_total()), (2, 3, 2, 1));
        let node = seen.part(Category::Node);
        assert_eq!((node.words, node.bytes, node.flushes, node.fences_total()), (2, 3, 2, 1));
        assert_eq!(seen.parts.len(), 1, "a test file is no place of the table");
        assert_eq!(counter.take(), Counts::default());
    }

    #[test]
    fn a_commit_and_its_settling_are_counted_as_log_node_home_and_checkpoint() {
        let counter = Arc::new(Counter::default());
        let medium = Observed::new(Memory::new(1 << 20, 1 << 20), Arc::clone(&counter) as Arc<_>);
        let mut log = Log::new(Geometry::tiny(), Format::Redo);
        log.commit(&medium, &[(0x8000, 1), (0x9000, 2)], DataLines::Flushed).unwrap();
        medium.fence(Fence::Home);
        log.truncate(&medium);
        let seen = counter.take();
        let of = |category| {
            let part = seen.part(category);
            (part.words, part.flushes, part.fences_total())
        };
        assert_eq!(of(Category::Log), (4, 1, 1), "two records in one line, committed");
        assert_eq!(of(Category::Node), (2, 0, 0), "the home words");
        assert_eq!(of(Category::Home), (0, 2, 1), "their lines, awaited");
        assert_eq!(of(Category::Checkpoint), (1, 1, 2), "the generation word between two fences");
        assert_eq!(seen.parts.len(), 4);
    }

    #[test]
    fn the_parts_sum_up_to_the_totals() {
        let counter = Arc::new(Counter::default());
        let medium = Observed::new(Memory::new(1 << 20, 1 << 20), Arc::clone(&counter) as Arc<_>);
        let mut log = Log::new(Geometry::tiny(), Format::Redo);
        for generation in 0..3 {
            medium.copy(0x8000, generation);
            log.commit(&medium, &[(0x8000, generation), (0x9008, generation)], DataLines::Flushed).unwrap();
            log.truncate(&medium);
        }
        let seen = counter.take();
        let sum = |of: fn(&Part) -> u64| seen.parts.values().map(of).sum::<u64>();
        assert!(seen.parts.len() > 1, "{seen:?}");
        assert_eq!(sum(|part| part.words), seen.words);
        assert_eq!(sum(|part| part.bytes), seen.bytes);
        assert_eq!(sum(|part| part.flushes), seen.flushes);
        assert_eq!(sum(Part::fences_total), seen.fences_total());
    }

    #[test]
    fn bytes_that_keep_their_value_are_not_changed() {
        assert_eq!(changed_bytes(0, 0), 0);
        assert_eq!(changed_bytes(0x11, 0x1100), 2);
        assert_eq!(changed_bytes(0, u64::MAX), 8);
    }
}
