//! Mutations of a recorded event list. A mutant leaves out a flush, a fence or a sync, moves a publish before a fence, or tears a publish.
//!
//! The subject itself runs unchanged; only the durability model receives the mutated events. A mutant belongs to one call site and changes
//! every event of that site.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use pmem::observed::Site;
use pmem::{Event, Fence, LINE, Store};

use crate::tape::Recorded;

/// Number of lines of one flush that have their own mutants, besides its last line.
const LINES_MAX: usize = 8;

/// A line in a flush of several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Which {
    /// The line with this number; the first one is 0.
    Nth(u8),
    /// The last line, in a flush with too many lines for a number.
    Last,
}

/// The effect of a mutant on the events of its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Leaves out every flush at the site.
    DropFlush,
    /// Leaves out one line of every flush of several lines at the site.
    DropLine(Which),
    /// Leaves out every fence at the site.
    DropFence(Fence),
    /// Leaves out every sync at the site.
    DropSync,
    /// Records a publish at the site before the preceding fence, if it is the first publish after that fence.
    SwapPublish,
    /// Records a publish at the site before the preceding fence, if it is not the first publish after that fence.
    EarlyPublish,
    /// Records a publish at the site as two: the low 32 bits, then the whole word.
    SplitPublish,
}

/// One mutation of one call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mutant {
    /// The kind of mutation.
    pub kind: Kind,
    /// The call site.
    pub site: Site,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.kind, self.site)
    }
}

impl Mutant {
    /// Returns the mutated events for the durability model.
    pub fn rewrite(&self, events: Vec<Recorded>) -> Vec<Recorded> {
        match self.kind {
            Kind::DropFlush => {
                drop_where(events, |event| matches!(event, Event::Flush { site, .. } if *site == self.site))
            }
            Kind::DropLine(which) => self.drop_lines(events, which),
            Kind::DropFence(_) => {
                drop_where(events, |event| matches!(event, Event::Fence { site, .. } if *site == self.site))
            }
            Kind::DropSync => drop_where(events, |event| match event {
                Event::Flush { site, .. } | Event::Fence { site, .. } => *site == self.site,
                Event::Store { .. } => false,
            }),
            Kind::SwapPublish => self.advance(events, true),
            Kind::EarlyPublish => self.advance(events, false),
            Kind::SplitPublish => self.split(events),
        }
    }

    fn drop_lines(&self, mut events: Vec<Recorded>, which: Which) -> Vec<Recorded> {
        let mut dropped = Vec::new();
        let is_meant = |flush: &Flush| flush.site == self.site && !flush.is_sync && flush.lines.len() > 1;
        for flush in flushes(&events).filter(is_meant) {
            let line = match which {
                Which::Nth(number) => flush.lines.get(usize::from(number)),
                Which::Last => flush.lines.last(),
            };
            dropped.extend(line);
        }
        let mut index = 0;
        events.retain(|_| {
            index += 1;
            dropped.binary_search(&(index - 1)).is_err()
        });
        events
    }

    /// Records the publishes at the site before the preceding fence: with `first` those that are the first after it, otherwise the others.
    fn advance(&self, events: Vec<Recorded>, first: bool) -> Vec<Recorded> {
        let mut mutated = Vec::with_capacity(events.len());
        let mut epoch = Epoch::default();
        for recorded in events {
            match recorded.event {
                Event::Fence { .. } => epoch = Epoch { fence: Some(mutated.len()), published: false },
                Event::Store { kind: Store::Publish, site, .. } => {
                    let is_meant = site == self.site && epoch.published != first;
                    epoch.published = true;
                    if let Some(fence) = epoch.fence
                        && is_meant
                        && (first || can_pass(&recorded, &mutated[fence..]))
                    {
                        mutated.insert(fence, recorded);
                        epoch.fence = Some(fence + 1);
                        continue;
                    }
                }
                _ => {}
            }
            mutated.push(recorded);
        }
        mutated
    }

    fn split(&self, events: Vec<Recorded>) -> Vec<Recorded> {
        let mut mutated = Vec::with_capacity(events.len());
        for recorded in events {
            if let Event::Store { at, value, kind: Store::Publish, site } = recorded.event
                && site == self.site
            {
                let half = Event::Store { at, value: half(recorded.old, value), kind: Store::Publish, site };
                mutated.push(Recorded { event: half, ..recorded });
            }
            mutated.push(recorded);
        }
        mutated
    }
}

fn drop_where(mut events: Vec<Recorded>, dropped: impl Fn(&Event) -> bool) -> Vec<Recorded> {
    events.retain(|recorded| !dropped(&recorded.event));
    events
}

/// The word after only the low half of `value` has been stored over `old`.
fn half(old: u64, value: u64) -> u64 {
    (old & !0xffff_ffff) | (value & 0xffff_ffff)
}

/// The events since a fence.
#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    /// Index of the fence.
    fence: Option<usize>,
    /// True if there was a publish since the fence.
    published: bool,
}

/// True if no passed event stores to the same word. Otherwise the word's last value would change, and that is not an early store.
fn can_pass(publish: &Recorded, passed: &[Recorded]) -> bool {
    let word = |recorded: &Recorded| match recorded.event {
        Event::Store { at, .. } => Some(at),
        _ => None,
    };
    passed.iter().all(|recorded| word(recorded) != word(publish))
}

/// One call of flush.
struct Flush {
    site: Site,
    /// Indexes of the events that flush its lines, by ascending line.
    lines: Vec<usize>,
    /// True if the flush belongs to a sync.
    is_sync: bool,
}

/// Returns the flush calls among `events`: consecutive lines at one call site.
fn flushes(events: &[Recorded]) -> impl Iterator<Item = Flush> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let (first, site, mut end) = (next..events.len()).find_map(|index| match events[index].event {
            Event::Flush { line, site } => Some((index, site, line + LINE)),
            _ => None,
        })?;
        let mut flush = Flush { site, lines: vec![first], is_sync: false };
        next = first + 1;
        while let Some(recorded) = events.get(next) {
            match recorded.event {
                Event::Flush { line, site } if site == flush.site && line == end => {
                    flush.lines.push(next);
                    end += LINE;
                }
                Event::Fence { why: Fence::Superblock, site } if site == flush.site => {
                    flush.is_sync = true;
                    break;
                }
                _ => break,
            }
            next += 1;
        }
        Some(flush)
    })
}

/// Finds the mutants of a run. It tracks the lines that were changed and not flushed since. Leaving out the flush of any other line changes
/// nothing.
#[derive(Debug, Default)]
pub struct Discovery {
    changed: HashSet<u64>,
}

impl Discovery {
    /// Adds to `found` every mutant that would change something in `events`. The events continue those of the previous call.
    pub fn discover(&mut self, events: &[Recorded], found: &mut BTreeSet<Mutant>) {
        let mut epoch = Epoch::default();
        let mut calls = flushes(events).peekable();
        let mut syncs = HashSet::new();
        for (index, recorded) in events.iter().enumerate() {
            match recorded.event {
                Event::Flush { line, site } => {
                    let Some(call) = calls.next_if(|call| call.lines[0] == index) else {
                        self.changed.remove(&line);
                        continue;
                    };
                    if call.is_sync {
                        syncs.insert(site);
                        found.insert(Mutant { kind: Kind::DropSync, site });
                    } else {
                        found.insert(Mutant { kind: Kind::DropFlush, site });
                        self.lines(events, &call, found);
                    }
                    self.changed.remove(&line);
                }
                Event::Fence { why, site } => {
                    if !syncs.contains(&site) {
                        found.insert(Mutant { kind: Kind::DropFence(why), site });
                    }
                    epoch = Epoch { fence: Some(index), published: false };
                }
                Event::Store { at, value, kind, site } => {
                    if value != recorded.old {
                        self.changed.insert(at & !(LINE - 1));
                    }
                    if kind == Store::Copy {
                        continue;
                    }
                    let first = !std::mem::replace(&mut epoch.published, true);
                    if let Some(fence) = epoch.fence {
                        if first {
                            found.insert(Mutant { kind: Kind::SwapPublish, site });
                        } else if value != recorded.old && can_pass(recorded, &events[fence..index]) {
                            found.insert(Mutant { kind: Kind::EarlyPublish, site });
                        }
                    }
                    let half = half(recorded.old, value);
                    if half != recorded.old && half != value {
                        found.insert(Mutant { kind: Kind::SplitPublish, site });
                    }
                }
            }
        }
    }

    /// Adds the mutants that leave out single lines of a flush. A sync has none: its range is up to the file system.
    fn lines(&self, events: &[Recorded], call: &Flush, found: &mut BTreeSet<Mutant>) {
        let last = call.lines.len() - 1;
        for (number, index) in call.lines.iter().enumerate().filter(|_| last > 0) {
            let Event::Flush { line, .. } = events[*index].event else { continue };
            if !self.changed.contains(&line) {
                continue;
            }
            let which = match u8::try_from(number) {
                Ok(number) if usize::from(number) < LINES_MAX => Which::Nth(number),
                _ if number == last => Which::Last,
                _ => continue,
            };
            found.insert(Mutant { kind: Kind::DropLine(which), site: call.site });
        }
    }
}
