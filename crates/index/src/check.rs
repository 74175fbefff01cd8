//! Verification of an index. [`Walk`] is a running verification, [`Report`] is its result. The engine reports to the
//! walk each block that it reaches and the entries of each leaf. At the end, each allocated block must have exactly one
//! owner, and each owned block must be allocated.

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

impl Report {
    /// Verifies that the owned blocks, each with its use, are exactly the allocated blocks of the region; sets `live_bytes`.
    /// O(n log n) in the number of blocks.
    pub fn check_blocks<M: Medium>(&mut self, region: &Region<M>, mut owned: Vec<(u64, Kind)>) {
        sort_unstable_by_first(&mut owned);
        for pair in owned.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            self.problem(format!("block {:#x} has two owners", pair[0].0));
        }
        owned.dedup_by_key(|(block, _)| *block);
        let mut owned = owned.into_iter().peekable();
        let not_allocated =
            |(block, kind): (u64, Kind)| format!("block {block:#x} ({kind:?}) is in use and not allocated");
        self.live_bytes = alloc::usage(region).live_bytes;
        // Chunks and their blocks come in ascending order, as the owned blocks do.
        for (chunk, class) in alloc::chunks(region) {
            let Ok(class) = class else {
                self.problem(format!("chunk {chunk:#x} has a damaged header"));
                continue;
            };
            let Some(class) = class else { continue };
            for block in alloc::blocks_in(region, chunk, class) {
                while let Some(other) = owned.next_if(|(other, _)| *other < block) {
                    self.problem(not_allocated(other));
                }
                match owned.next_if(|(owned, _)| *owned == block) {
                    Some((_, kind)) if kind == class.kind => {}
                    Some((_, kind)) => {
                        self.problem(format!(
                            "block {block:#x} is a {kind:?} in a chunk of {:?}",
                            class.kind
                        ));
                    }
                    None => {
                        self.problem(format!(
                            "block {block:#x} ({:?}) is allocated and has no owner",
                            class.kind
                        ));
                    }
                }
            }
        }
        owned.for_each(|block| self.problem(not_allocated(block)));
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

    /// Checks the entries of a leaf: the keys are in `low..high`, each key occurs once, and all records are sound. O(n log n) in the number
    /// of entries.
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
    /// found. O(n log n) in the number of blocks.
    pub fn end<M: Medium>(mut self, region: &Region<M>, len: u64) -> Report {
        if self.is_sound() && self.report.keys != len {
            let text = format!("{} keys are in leaves, {len} were counted", self.report.keys);
            self.problem(text);
        }
        self.report.check_blocks(region, self.owned.into_iter().collect());
        self.report
    }
}
