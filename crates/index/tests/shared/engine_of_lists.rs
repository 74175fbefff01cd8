//! Adapts indexes over a list of leaves to the shared suites.

use std::path::Path;

use pmem::{Durability, Found, Medium, Result};

use super::engine::{Of, Subject};
use super::samples::Sample;
use super::{Index, Options, rebuild};

impl<S: Sample> Subject for Of<S, Options> {
    type Schema = S;
    type Over<M: Medium> = Index<M, S>;

    fn create<M: Medium>(&self, medium: M) -> Result<Index<M, S>> {
        Index::create(medium, &self.options)
    }
    fn open<M: Medium>(&self, medium: M, durability: Durability, _: u64) -> Result<(Index<M, S>, Found)> {
        Index::open(medium, Path::new("memory"), &Options { durability, ..self.options.clone() })
    }
    fn tend<M: Medium>(index: &Index<M, S>, _all: bool) -> Result<()> {
        rebuild(index)
    }
}
