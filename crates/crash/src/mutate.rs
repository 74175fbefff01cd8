//! Mutations of a recorded event list: what if this flush, fence or order were missing?
//!
//! The subject itself runs unchanged; only the durability model sees the mutated events. A mutant names a verb's call
//! site and changes every event of that site.

use std::collections::BTreeSet;
use std::fmt;

use pmem::observed::Site;
use pmem::{Event, Fence, Store};

use crate::tape::Recorded;

/// What a mutant does to the events of its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Every flush at the site is left out.
    DropFlush,
    /// Every fence at the site is left out.
    DropFence(Fence),
    /// A publish at the site that is the first one after a fence is recorded before that fence.
    SwapPublish,
    /// A publish at the site is recorded as two: the low 32 bits, then the whole word.
    SplitPublish,
}

/// One change to one call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mutant {
    /// What is changed.
    pub kind: Kind,
    /// Where in the source.
    pub site: Site,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.kind, self.site)
    }
}

impl Mutant {
    /// The events as the durability model is to see them.
    pub fn rewrite(&self, events: Vec<Recorded>) -> Vec<Recorded> {
        match self.kind {
            Kind::DropFlush => {
                drop_where(events, |event| matches!(event, Event::Flush { site, .. } if *site == self.site))
            }
            Kind::DropFence(_) => {
                drop_where(events, |event| matches!(event, Event::Fence { site, .. } if *site == self.site))
            }
            Kind::SwapPublish => self.swap(events),
            Kind::SplitPublish => self.split(events),
        }
    }

    fn swap(&self, events: Vec<Recorded>) -> Vec<Recorded> {
        let mut mutated = Vec::with_capacity(events.len());
        let mut fence = None;
        for recorded in events {
            match recorded.event {
                Event::Fence { .. } => fence = Some(mutated.len()),
                Event::Store { kind: Store::Publish, site, .. } => {
                    if let Some(index) = fence.take()
                        && site == self.site
                    {
                        mutated.insert(index, recorded);
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

/// The word when only the low half of `value` has been stored over `old`.
fn half(old: u64, value: u64) -> u64 {
    (old & !0xffff_ffff) | (value & 0xffff_ffff)
}

/// The medium's own file. `Observed::sync` flushes and fences in the file system's stead: no subject can leave that out.
const MEDIUM_FILE: &str = "observed.rs";

/// Adds to `found` every mutant that would change something in `events`.
pub fn discover(events: &[Recorded], found: &mut BTreeSet<Mutant>) {
    let mut fence_before = false;
    let is_subject = |site: Site| !site.file().ends_with(MEDIUM_FILE);
    for recorded in events {
        match recorded.event {
            Event::Flush { site, .. } | Event::Fence { site, .. } if !is_subject(site) => {}
            Event::Flush { site, .. } => _ = found.insert(Mutant { kind: Kind::DropFlush, site }),
            Event::Fence { why, site } => {
                found.insert(Mutant { kind: Kind::DropFence(why), site });
                fence_before = true;
            }
            Event::Store { value, kind: Store::Publish, site, .. } => {
                if std::mem::take(&mut fence_before) {
                    found.insert(Mutant { kind: Kind::SwapPublish, site });
                }
                let half = half(recorded.old, value);
                if half != recorded.old && half != value {
                    found.insert(Mutant { kind: Kind::SplitPublish, site });
                }
            }
            Event::Store { .. } => {}
        }
    }
}
