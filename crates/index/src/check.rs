//! The verification of an index: its report, the set of blocks that were found, the entries of a leaf, the owners of all blocks.

use std::collections::HashMap;

use pmem::alloc::{self, Kind};
use pmem::{Medium, Region, record};

use crate::entry::Entry;
use crate::schema::Schema;
use crate::sorting::sort_unstable_by_first;

/// Maximum number of problems in a report.
pub const PROBLEMS_MAX: usize = 100;

/// The result of a verification.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// Keys in leaves.
    pub keys: u64,
    /// Nodes that were reached.
    pub nodes: u64,
    /// Leaves that were reached.
    pub leaves: u64,
    /// Levels, including the leaves.
    pub levels: u64,
    /// Bytes in allocated blocks ([`pmem::alloc::Usage::live_bytes`]).
    pub live_bytes: u64,
    /// One sentence for each problem, at most [`PROBLEMS_MAX`].
    pub problems: Vec<String>,
}

impl Report {
    /// Adds a problem, unless the report is full.
    pub fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

/// The state of a running verification.
pub struct Walk {
    /// The report so far.
    pub report: Report,
    /// The blocks that were found, each with its use.
    owned: HashMap<u64, Kind>,
}

impl Walk {
    /// Begins a verification. Adds the blocks of the region and of its root.
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

    /// Adds a problem, unless the report is full.
    pub fn problem(&mut self, text: String) {
        self.report.problem(text);
    }

    /// True while there is no problem.
    pub fn is_sound(&self) -> bool {
        self.report.problems.is_empty()
    }

    /// True while the report has space for problems.
    pub fn goes_on(&self) -> bool {
        self.report.problems.len() < PROBLEMS_MAX
    }

    /// Adds a block with its use. A block that is already used is a problem.
    pub fn own(&mut self, block: u64, kind: Kind) {
        if self.owned.insert(block, kind).is_some() {
            self.problem(format!("block {block:#x} is used as a {kind:?} and a second time"));
        }
    }

    /// True if the block was found already.
    pub fn has(&self, block: u64) -> bool {
        self.owned.contains_key(&block)
    }

    /// Checks the entries of a leaf: the keys are in `low..high`, each key occurs once, and all records are sound. O(n log n).
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

    /// Ends the verification: each allocated block must have an owner, each owned block must be allocated, and `len` keys must have been
    /// found. Linear in the number of chunks and blocks.
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
