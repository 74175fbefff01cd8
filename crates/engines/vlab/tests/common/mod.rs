//! Shared parts of the tests: the samples for indexes that are one list of leaves, and how a VLAB is made and opened.

#[path = "../../../../index/tests/shared/engine.rs"]
pub mod engine;
#[path = "../../../../index/tests/shared/engine_of_lists.rs"]
mod engine_of_lists;
#[path = "../../../../index/tests/shared/samples.rs"]
pub mod samples;

use std::fs::File;
use std::path::Path;

use index::leaf_list::LeafList;
use pmem::file::memory_file;
use pmem::{Durability, Geometry, Medium, Native, Observed, Result};
pub use samples::*;
use vlab::Addressing;
#[allow(unused_imports)]
pub use vlab::{Options, Vlab as Index};

/// Number of words in use in the meta block.
#[allow(dead_code)]
pub const META_WORDS: u64 = 3;
/// Words of a header that are checked.
#[allow(dead_code)]
pub const CHECKED: &[(u64, &str)] = &[(0, "nxt"), (2, "min"), (3, "max")];

/// Small chunks, few stripes, and short braids that are combined often and slowly.
pub fn options<S: Sample>(lines: u64, faithful: bool) -> Options {
    Options {
        payload_words: S::PAYLOAD_WORDS,
        geometry: Geometry::tiny(),
        stripes: 2,
        faithful,
        braids: 4,
        braid_buckets: Some(2),
        combine_step: 2,
        ..Options::new(lines, Durability::Power)
    }
}

/// The same settings with buckets of one page, addressed by windows.
#[allow(dead_code)]
pub fn rewired<S: Sample>(faithful: bool) -> Options {
    let geometry = Geometry { chunk_bytes: 64 << 10, ..Geometry::tiny() };
    let durability = Durability::Process;
    Options { geometry, durability, addressing: Addressing::Rewired, ..options::<S>(64, faithful) }
}

/// Memory over which an index is opened again and again.
pub trait Home {
    /// The medium of the memory.
    type Medium: Medium;
    /// A medium over the current contents.
    fn medium(&self) -> Self::Medium;
}

impl Home for Observed {
    type Medium = Self;
    fn medium(&self) -> Self {
        self.clone()
    }
}

/// A file in memory. Each medium is a new mapping.
#[allow(dead_code)]
pub struct Mapped(pub File);

impl Mapped {
    /// An empty file.
    #[allow(dead_code)]
    pub fn new() -> Self {
        Self(memory_file().unwrap())
    }
}

impl Home for Mapped {
    type Medium = Native;
    fn medium(&self) -> Native {
        let file = self.0.try_clone().unwrap();
        Native::map(file, Path::new("memory"), 1 << 30, Durability::Process).unwrap()
    }
}

/// Opens the index in memory.
#[allow(dead_code)]
pub fn open<S: Sample>(medium: &Observed, lines: u64) -> Index<Observed, S> {
    open_in(medium, &options::<S>(lines, false))
}

/// Opens the index in this memory.
#[allow(dead_code)]
pub fn open_in<H: Home, S: Sample>(home: &H, options: &Options) -> Index<H::Medium, S> {
    Index::open(home.medium(), Path::new("memory"), options).unwrap().0
}

/// Combines at once.
#[allow(dead_code)]
pub fn rebuild<M: Medium, S: Sample>(index: &Index<M, S>) -> Result<()> {
    index.combine()
}

/// Maximum number of buckets of an index without keys. `None` if buckets are never merged.
#[allow(dead_code)]
pub fn leaves_of_empty<M: Medium, S: Sample>(index: &Index<M, S>) -> Option<u64> {
    index.can_switch().then_some(1)
}
