//! Full verification: the list, bounds, slots, records, the directory, and the ownership of every block.

use index::check::Walk;
use index::leaf_list::bound::bound;
use index::leaf_list::garbage::own as own_garbage;
use index::leaf_list::prelude::*;
use index::{Report, Schema};
use pmem::Medium;
use pmem::alloc::{self, Kind};

use crate::index::Line;
use crate::leaf::{Leaf, entry_of};

impl<M: Medium, S: Schema> Line<M, S> {
    /// Verifies everything. Writers wait meanwhile. Never panics, whatever the region contains.
    pub(crate) fn check(&self) -> Report {
        let mut writer = self.writer_side();
        let loaded = loop {
            match self.load_step(&mut writer) {
                Ok(true) => {}
                other => break other,
            }
        };
        let mut walk = Walk::begin(&self.region, self.root_block());
        match self.meta().head(self.region.medium()) {
            Ok(head) if loaded.is_ok() => self.check_list(&mut walk, head),
            Ok(_) => loaded.err().into_iter().for_each(|error| walk.problem(error.to_string())),
            Err(error) => walk.problem(error.to_string()),
        }
        own_garbage(self, &mut walk);
        walk.end(&self.region, self.len())
    }

    fn check_list(&self, walk: &mut Walk, head: u64) {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let (mut before, mut next) = (0, head);
        let mut last: Option<S::KeyBuf> = None;
        while next != 0 && walk.goes_on() {
            let leaf = Leaf(next);
            let is_leaf = alloc::allocated(&self.region, next).is_some_and(|class| class.kind == Kind::Leaf)
                && !walk.has(next);
            let Some(behind) = is_leaf.then(|| leaf.next(medium)).flatten() else {
                return walk.problem(format!("no leaf at {next:#x}, or a second time"));
            };
            walk.report.nodes += 1;
            walk.report.leaves += 1;
            walk.own(next, Kind::Leaf);
            let word = leaf.low(medium);
            if !leaf.is_sealed(medium) || (word == 0) != last.is_none() {
                walk.problem(format!("leaf {next:#x}: its bound {word:#x} is damaged"));
            }
            if !S::PLAIN && word != 0 {
                walk.own(word, Kind::Separator);
            }
            let Ok(low) = bound::<M, S>(medium, word) else {
                return walk.problem(format!("leaf {next:#x} has no lower bound"));
            };
            if last.as_ref().is_some_and(|before| *before >= low) {
                return walk.problem(format!("leaf {next:#x} begins with {low:?} after {last:?}"));
            }
            let high = self.upper_bound(next);
            let high = (high != 0).then(|| bound::<M, S>(medium, high).ok()).flatten();
            let slots: Vec<_> = leaf.used_slots::<M, S>(medium, shape).collect();
            if S::PLAIN && word == 0 && behind == 0 && !slots.is_empty() {
                walk.problem(format!("leaf {next:#x} is the only one and has keys"));
            }
            let entries = slots.iter().map(|(_, words)| entry_of::<S>(*words));
            walk.check_entries::<M, S>(&self.region, next, entries, (&low, high.as_ref()));
            for (slot, words) in slots {
                let mut key = S::KeyBuf::default();
                if S::read_key(medium, entry_of::<S>(words).key, &mut key)
                    && leaf.find::<M, S>(medium, shape, None, S::borrow(&key)) != Some(slot)
                {
                    walk.problem(format!("leaf {next:#x}: a search for {key:?} does not find slot {slot}"));
                }
            }
            let lead = |below| self.leaf_of(S::borrow(&low), below);
            if lead(false) != next || (before != 0 && lead(true) != before) {
                let led = (lead(true), lead(false));
                walk.problem(format!("{low:?} leads to {led:x?}, not to {before:#x} and {next:#x}"));
            }
            last = Some(low);
            (before, next) = (next, behind);
        }
        if walk.is_sound() && self.directory.leaves() != walk.report.nodes {
            let found = self.directory.leaves();
            walk.problem(format!("{} leaves are in the list, {found} are found", walk.report.nodes));
        }
    }
}
