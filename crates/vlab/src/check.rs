//! Full verification: the list, bounds, order, records, what leads to the buckets, and the ownership of every block.

use std::collections::HashMap;

use pmem::alloc::{self, Kind};
use pmem::{Medium, record};
use tree::Schema;
pub use tree::check::Report;

use crate::bucket::{Bucket, MAX, MIN, VNXT, bound, slots};
use crate::index::Vlab;

const PROBLEMS_MAX: usize = 100;

struct Walk {
    report: Report,
    /// Blocks with what they are used for.
    owned: HashMap<u64, Kind>,
}

impl Walk {
    fn problem(&mut self, text: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(text);
        }
    }

    fn own(&mut self, block: u64, kind: Kind) {
        if self.owned.insert(block, kind).is_some() {
            self.problem(format!("block {block:#x} is used as a {kind:?} and a second time"));
        }
    }
}

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Verifies everything, with writers shut out meanwhile. Never panics, whatever the region holds.
    pub fn check(&self) -> Report {
        let _writer = self.writer_side();
        let medium = self.region.medium();
        let mut walk = Walk { report: Report { levels: 1, ..Report::default() }, owned: HashMap::new() };
        walk.own(self.meta.0, Kind::Inner);
        if let Ok(batch) = self.region.batch()
            && batch != 0
        {
            walk.own(batch, Kind::Batch);
            record::pieces(&self.region, batch).into_iter().for_each(|piece| walk.own(piece, Kind::Piece));
        }
        match (self.meta.head(medium), self.meta.second(medium)) {
            (Ok(head), Ok(second)) => self.check_list(&mut walk, [head, second]),
            (Err(error), _) | (_, Err(error)) => walk.problem(error.to_string()),
        }
        if walk.report.problems.is_empty() && walk.report.keys != self.len() {
            let text = format!("{} keys are in buckets, {} were counted", walk.report.keys, self.len());
            walk.problem(text);
        }
        self.check_blocks(&mut walk);
        walk.report
    }

    /// Which of two lists goes on with the lesser key.
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
        while heads != [0, 0] && walk.report.problems.len() < PROBLEMS_MAX {
            let list = self.lesser(heads);
            let next = heads[list];
            let bucket = Bucket(next);
            let class = alloc::allocated(&self.region, next);
            let is_bucket = class.is_some_and(|class| class.kind == Kind::Leaf);
            let Some(nxt) = bucket.nxt(medium).filter(|_| is_bucket && !walk.owned.contains_key(&next))
            else {
                return walk.problem(format!("no bucket at {next:#x}, or a second time"));
            };
            walk.report.nodes += 1;
            walk.own(next, Kind::Leaf);
            let (min, max) = (medium.word(next + MIN), medium.word(next + MAX));
            let expected = last.as_ref().map_or(0, |(_, max)| *max);
            if min != expected || (last.is_some() && min == 0) {
                walk.problem(format!("bucket {next:#x}: from {min:#x} to {max:#x}, behind {expected:#x}"));
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
                return walk.problem(format!("bucket {next:#x} begins with {low:?} behind {last:?}"));
            }
            let high = (max != 0).then(|| bound::<M, S>(medium, max).ok()).flatten();
            self.check_entries(walk, bucket, &low, high.as_ref());
            let (led, _) = self.locate(&self.view.load(), S::borrow(&low), false);
            if led != bucket {
                walk.problem(format!("{low:?} leads to {:#x}, not to {next:#x}", led.0));
            }
            last = Some((low, max));
            heads[list] = nxt;
        }
        if let Some((_, max)) = last.filter(|(_, max)| *max != 0) {
            walk.problem(format!("there is no bucket from {max:#x} on"));
        }
        let view = self.view.load();
        let aliases = (0..view.directory.len()).filter(|i| Self::is_alias(view.directory.marked(*i))).count();
        let found = (view.directory.len() - aliases + view.braids.count()) as u64;
        if walk.report.problems.is_empty() && found != walk.report.nodes {
            walk.problem(format!("{} buckets are in the list, {found} are found", walk.report.nodes));
        }
        if walk.report.problems.is_empty() && medium.word(self.last_bucket(&view).0 + MAX) != 0 {
            walk.problem(format!("{:#x} is taken for the last bucket", self.last_bucket(&view).0));
        }
    }

    fn check_entries(&self, walk: &mut Walk, bucket: Bucket, low: &S::KeyBuf, high: Option<&S::KeyBuf>) {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let mut keys = Vec::new();
        for slot in slots(&bucket.bits(medium, shape)) {
            let entry = bucket.entry::<M, S::Tail>(medium, shape, slot);
            walk.report.keys += 1;
            let mut blocks: Vec<u64> = S::blocks_of(&entry).collect();
            blocks.dedup();
            for block in blocks {
                walk.own(block, Kind::Record);
                for piece in record::pieces(&self.region, block) {
                    walk.own(piece, Kind::Piece);
                }
            }
            let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
            if !S::read_pair(medium, &entry, &mut key, &mut value) {
                walk.problem(format!(
                    "bucket {:#x}: the record at {:#x} is damaged",
                    bucket.0, entry.payload
                ));
                continue;
            }
            if key < *low || high.is_some_and(|high| key >= *high) {
                walk.problem(format!("bucket {:#x} holds {key:?}, outside of its bounds", bucket.0));
            }
            keys.push(key);
        }
        keys.sort();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            walk.problem(format!("bucket {:#x} holds {:?} twice", bucket.0, twice[0]));
        }
    }

    /// Each allocated block is somebody's, and each that is somebody's is allocated.
    fn check_blocks(&self, walk: &mut Walk) {
        let region = &self.region;
        let mut owned = std::mem::take(&mut walk.owned);
        for (chunk, class) in alloc::chunks(region) {
            let Ok(class) = class else {
                walk.problem(format!("the header of chunk {chunk:#x} is damaged"));
                continue;
            };
            let Some(class) = class else { continue };
            for block in alloc::blocks_in(region, chunk, class) {
                match owned.remove(&block) {
                    Some(kind) if kind == class.kind => walk.report.live_bytes += class.block_bytes,
                    Some(kind) => {
                        walk.problem(format!("block {block:#x} is a {:?}, used as a {kind:?}", class.kind));
                    }
                    None => walk.problem(format!("block {block:#x} ({:?}) belongs to nobody", class.kind)),
                }
            }
        }
        let mut left: Vec<_> = owned.into_iter().collect();
        left.sort_unstable_by_key(|(block, _)| *block);
        for (block, kind) in left {
            walk.problem(format!("block {block:#x}, used as a {kind:?}, is not allocated"));
        }
    }
}
