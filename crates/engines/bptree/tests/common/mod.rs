//! Shared parts of the tests: the samples of all engines, and the default tree as a subject of the shared suites.

#[path = "../../../../index/tests/shared/engine.rs"]
pub mod engine;
#[path = "../../../../index/tests/shared/samples.rs"]
pub mod samples;

use std::path::Path;

use bptree::{Slotted, Tree, TreeOptions, WriteAtomic};
use engine::{Of, Subject};
use pmem::{Durability, Found, Medium, Result};
use samples::Sample;

type Default<M, S> = Tree<M, S, (Slotted, Slotted), WriteAtomic>;

impl<S: Sample> Subject for Of<S, TreeOptions> {
    type Schema = S;
    type Over<M: Medium> = Default<M, S>;
    const KEYS: u32 = 120;

    fn create<M: Medium>(&self, medium: M) -> Result<Default<M, S>> {
        Tree::create(medium, &self.options)
    }
    fn open<M: Medium>(&self, medium: M, durability: Durability, _: u64) -> Result<(Default<M, S>, Found)> {
        Tree::open(medium, Path::new("memory"), &self.options.engine, durability, 64)
    }
}
