//! The verification of an index: its report, the blocks that were met, the entries of a leaf, the owners of all blocks.

use std::collections::HashMap;

use pmem::alloc::{self, Kind};
use pmem::{Medium, Region, record};

use crate::entry::Entry;
use crate::schema::Schema;
use crate::sorting::sort_unstable_by_first;

/// Most problems told.
pub const PROBLEMS_MAX: usize = 100;

/// What a verification saw.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// Keys in leaves.
    pub keys: u64,
    /// Nodes reached.
    pub nodes: u64,
    /// Leaves among them.
    pub leaves: u64,
    /// Levels, leaves included.
    pub levels: u64,
    /// Bytes in allocated blocks ([`pmem::alloc::Usage::live_bytes`]).
    pub live_bytes: u64,
    /// One sentence for each thing that is wrong, the first hundred of them.
    pub problems: Vec<String>,
}

impl Report {
    /// Notes what is wrong.
    pub fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

/// A verification on its way.
pub struct Walk {
    /// What was found.
    pub report: Report,
    /// Blocks with what they are used for.
    owned: HashMap<u64, Kind>,
}

impl Walk {
    /// Begins with what a region and its root own.
    pub fn begin<M: Medium>(region: &Region<M>, root: u64) -> Self {
        let mut walk = Self { report: Report { levels: 1, ..Report::default() }, owned: HashMap::new() };
        walk.own(root, Kind::Inner);
        if let Ok(batch) = region.batch()
            && batch != 0
        {
            walk.own(batch, Kind::Batch);
            record::pieces(region, batch).into_iter().for_each(|piece| walk.own(piece, Kind::Piece));
        }
        walk
    }

    /// Tells a problem, unless there are enough.
    pub fn problem(&mut self, text: String) {
        self.report.problem(text);
    }

    /// True while there is no problem.
    pub fn is_sound(&self) -> bool {
        self.report.problems.is_empty()
    }

    /// True while there are few problems.
    pub fn goes_on(&self) -> bool {
        self.report.problems.len() < PROBLEMS_MAX
    }

    /// Something is in this block.
    pub fn own(&mut self, block: u64, kind: Kind) {
        if self.owned.insert(block, kind).is_some() {
            self.problem(format!("block {block:#x} is used as a {kind:?} and a second time"));
        }
    }

    /// True if something is in this block.
    pub fn has(&self, block: u64) -> bool {
        self.owned.contains_key(&block)
    }

    /// The entries of a leaf, whose keys lie from `low` to below `high`, each once.
    pub fn check_entries<M: Medium, S: Schema>(
        &mut self,
        region: &Region<M>,
        leaf: u64,
        entries: impl Iterator<Item = Entry<S::Tail>>,
        (low, high): (&S::KeyBuf, Option<&S::KeyBuf>),
    ) {
        let mut keys = Vec::new();
        for entry in entries {
            self.report.keys += 1;
            let mut blocks: Vec<u64> = S::blocks_of(&entry).collect();
            blocks.dedup();
            for block in blocks {
                self.own(block, Kind::Record);
                for piece in record::pieces(region, block) {
                    self.own(piece, Kind::Piece);
                }
            }
            let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
            if !S::read_pair(region.medium(), &entry, &mut key, &mut value) {
                self.problem(format!("leaf {leaf:#x}: the record at {:#x} is damaged", entry.payload));
                continue;
            }
            if key < *low || high.is_some_and(|high| key >= *high) {
                self.problem(format!("leaf {leaf:#x} holds {key:?}, outside of its bounds"));
            }
            keys.push(key);
        }
        keys.sort();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            self.problem(format!("leaf {leaf:#x} holds {:?} twice", twice[0]));
        }
    }

    /// Each allocated block has an owner, and each owned block is allocated. `len` keys were counted.
    pub fn end<M: Medium>(mut self, region: &Region<M>, len: u64) -> Report {
        if self.is_sound() && self.report.keys != len {
            let text = format!("{} keys are in leaves, {len} were counted", self.report.keys);
            self.problem(text);
        }
        let mut owned = std::mem::take(&mut self.owned);
        for (chunk, class) in alloc::chunks(region) {
            let Ok(class) = class else {
                self.problem(format!("the header of chunk {chunk:#x} is damaged"));
                continue;
            };
            let Some(class) = class else { continue };
            for block in alloc::blocks_in(region, chunk, class) {
                match owned.remove(&block) {
                    Some(kind) if kind == class.kind => self.report.live_bytes += class.block_bytes,
                    Some(kind) => {
                        self.problem(format!("block {block:#x} is a {:?}, used as a {kind:?}", class.kind));
                    }
                    None => self.problem(format!("block {block:#x} ({:?}) belongs to nobody", class.kind)),
                }
            }
        }
        let mut left: Vec<_> = owned.into_iter().collect();
        sort_unstable_by_first(&mut left);
        for (block, kind) in left {
            self.problem(format!("block {block:#x}, used as a {kind:?}, is not allocated"));
        }
        self.report
    }
}
