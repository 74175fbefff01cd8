//! Full verification: the list, bounds, order, records, the directory and the braids, and the ownership of every block.

pub use index::Report;
use index::Schema;
use index::check::Walk;
use index::leaf_list::LeafList;
use index::leaf_list::bound::bound;
use index::leaf_list::garbage::own as own_garbage;
use pmem::Medium;
use pmem::alloc::{self, Kind};

use crate::bucket::{Bucket, MAX, MIN, VNXT, slots};
use crate::index::Vlab;

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Verifies everything. Writers wait meanwhile. Never panics, whatever the region contains.
    pub fn check(&self) -> Report {
        let _writer = self.writer_side();
        let medium = self.region.medium();
        let mut walk = Walk::begin(&self.region, self.root_block());
        match (self.meta().head(medium), self.meta().second(medium)) {
            (Ok(head), Ok(second)) => self.check_list(&mut walk, [head, second]),
            (Err(error), _) | (_, Err(error)) => walk.problem(error.to_string()),
        }
        own_garbage(self, &mut walk);
        walk.end(&self.region, self.len())
    }

    /// The index of the list whose next key is smaller.
    fn lesser(&self, next: [u64; 2]) -> usize {
        let key = |at: u64| bound::<M, S>(self.region.medium(), self.region.medium().word(at + MIN)).ok();
        match next {
            [_, 0] => 0,
            [0, _] => 1,
            [first, second] => usize::from(key(first) > key(second)),
        }
    }

    fn check_list(&self, walk: &mut Walk, heads: [u64; 2]) {
        let medium = self.region.medium();
        let mut heads = heads;
        let mut last: Option<(S::KeyBuf, u64)> = None;
        while heads != [0, 0] && walk.goes_on() {
            let list = self.lesser(heads);
            let next = heads[list];
            let bucket = Bucket(next);
            let class = alloc::allocated(&self.region, next);
            let is_bucket = class.is_some_and(|class| class.kind == Kind::Leaf);
            let Some(nxt) = bucket.nxt(medium).filter(|_| is_bucket && !walk.has(next)) else {
                return walk.problem(format!("no bucket at {next:#x}, or a second time"));
            };
            walk.report.nodes += 1;
            walk.own(next, Kind::Leaf);
            let (min, max) = (medium.word(next + MIN), medium.word(next + MAX));
            let expected = last.as_ref().map_or(0, |(_, max)| *max);
            if min != expected || (last.is_some() && min == 0) {
                walk.problem(format!("bucket {next:#x}: from {min:#x} to {max:#x}, after {expected:#x}"));
            }
            if bucket.is_flagged(medium) || medium.word(next + VNXT) != 0 {
                walk.problem(format!("bucket {next:#x}: a change is on"));
            }
            if !S::PLAIN && min != 0 {
                walk.own(min, Kind::Separator);
            }
            let Ok(low) = bound::<M, S>(medium, min) else {
                return walk.problem(format!("bucket {next:#x} has no lower bound"));
            };
            if last.as_ref().is_some_and(|(before, _)| *before >= low) {
                return walk.problem(format!("bucket {next:#x} begins with {low:?} after {last:?}"));
            }
            let high = (max != 0).then(|| bound::<M, S>(medium, max).ok()).flatten();
            let bits = bucket.bits(medium, &self.shape);
            let entries = slots(&bits).map(|slot| bucket.entry::<M, S::Tail>(medium, &self.shape, slot));
            walk.check_entries::<M, S>(&self.region, next, entries, (&low, high.as_ref()));
            let view = self.view();
            let led = self.locate(&view, S::borrow(&low), false).bucket;
            let read = self.locate_to_read(&view, S::borrow(&low)).bucket;
            if led != bucket || read != bucket {
                walk.problem(format!("{low:?} leads to {:#x} and {:#x}, not to {next:#x}", led.0, read.0));
            }
            last = Some((low, max));
            heads[list] = nxt;
        }
        if let Some((_, max)) = last.filter(|(_, max)| *max != 0) {
            walk.problem(format!("there is no bucket from {max:#x} on"));
        }
        let view = self.view();
        let aliases = (0..view.directory.len()).filter(|i| Self::is_alias(view.directory.marked(*i))).count();
        let found = (view.directory.len() - aliases + view.braids.count()) as u64;
        if walk.is_sound() && found != walk.report.nodes {
            walk.problem(format!("{} buckets are in the list, {found} are found", walk.report.nodes));
        }
        if let Some(place) = self.misplaced(&view) {
            walk.problem(format!("place {place} of the window is another bucket"));
        }
        if walk.is_sound() && medium.word(self.last_bucket(&view).0 + MAX) != 0 {
            walk.problem(format!("{:#x} is taken for the last bucket", self.last_bucket(&view).0));
        }
    }
}
