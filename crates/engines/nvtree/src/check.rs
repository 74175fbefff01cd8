//! Full verification: the list, bounds, entries, records, the inner nodes, and the ownership of every block.

pub use index::Report;
use index::Schema;
use index::check::Walk;
use index::leaf_list::LeafList;
use index::leaf_list::bound::bound;
use index::leaf_list::garbage::own as own_garbage;
use pmem::Medium;
use pmem::alloc::{self, Kind};

use crate::index::NvTree;
use crate::leaf::Leaf;

impl<M: Medium, S: Schema> NvTree<M, S> {
    /// Verifies everything. Writers wait meanwhile. Never panics, whatever the region contains.
    pub fn check(&self) -> Report {
        let _writer = self.writer_side();
        let mut walk = Walk::begin(&self.region, self.root_block());
        match self.meta().head(self.region.medium()) {
            Ok(head) => self.check_list(&mut walk, head),
            Err(error) => walk.problem(error.to_string()),
        }
        own_garbage(self, &mut walk);
        walk.end(&self.region, self.len())
    }

    fn check_list(&self, walk: &mut Walk, head: u64) {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let inner = self.inner();
        let mut place = Some((0, 0));
        let mut next = head;
        let mut last: Option<S::KeyBuf> = None;
        while next != 0 && walk.goes_on() {
            let leaf = Leaf(next);
            let is_leaf = alloc::allocated(&self.region, next).is_some_and(|class| class.kind == Kind::Leaf)
                && leaf.count(medium, shape).is_some()
                && !walk.has(next);
            let Some(nxt) = is_leaf.then(|| leaf.nxt(medium)).flatten() else {
                return walk.problem(format!("no leaf at {next:#x}, or a second time"));
            };
            walk.report.nodes += 1;
            walk.own(next, Kind::Leaf);
            let min = leaf.min(medium);
            if !leaf.is_sealed(medium) || (min == 0) != last.is_none() {
                walk.problem(format!("leaf {next:#x}: its bound {min:#x} is damaged"));
            }
            if !S::PLAIN && min != 0 {
                walk.own(min, Kind::Separator);
            }
            let Ok(low) = bound::<M, S>(medium, min) else {
                return walk.problem(format!("leaf {next:#x} has no lower bound"));
            };
            if last.as_ref().is_some_and(|before| *before >= low) {
                return walk.problem(format!("leaf {next:#x} begins with {low:?} after {last:?}"));
            }
            let high = if nxt == 0 || nxt >= medium.len() { 0 } else { Leaf(nxt).min(medium) };
            let high = (high != 0).then(|| bound::<M, S>(medium, high).ok()).flatten();
            let entries = leaf.live::<M, S>(medium, shape).into_iter().map(|(_, entry)| entry);
            walk.check_entries::<M, S>(&self.region, next, entries, (&low, high.as_ref()));
            let led = self.place_in(&inner, S::borrow(&low), false);
            if place != Some(led) || inner.leaf(led) != next {
                walk.problem(format!("{low:?} leads to {:#x} at {led:?}, not to {next:#x}", inner.leaf(led)));
            }
            place = place.and_then(|place| inner.behind(place));
            last = Some(low);
            next = nxt;
        }
        if walk.is_sound() && inner.leaves() as u64 != walk.report.nodes {
            walk.problem(format!(
                "{} leaves are in the list, {} are found",
                walk.report.nodes,
                inner.leaves()
            ));
        }
    }
}
