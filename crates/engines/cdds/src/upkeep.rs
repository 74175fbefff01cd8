//! Operations on the whole structure: collection, verification, clear.

use index::{Life, Report};
use pmem::{Medium, Result};

use crate::structure::Structure;
use crate::structure::Versioned;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Collects garbage and removes the traces of dead versions in about `places` nodes of a tree or buckets of a table. True if a complete
    /// pass has ended. It visits more nodes if retained versions have many nodes below one. In a table that lost most of its keys, up to as
    /// many buckets are removed.
    ///
    /// # Errors
    /// `Closed`; `Corrupt` if a node is damaged; over a journal the errors of a commit.
    pub fn collect_some(&self, places: usize) -> Result<bool> {
        X::collect_some(self, places)
    }

    /// As [`Versioned::collect_some`], until a complete pass has ended.
    ///
    /// # Errors
    /// As there.
    pub fn collect_all(&self) -> Result<()> {
        X::begin_collection(self)?;
        while !X::collect_some(self, PLACES_OF_STEP)? {}
        self.commit()
    }

    /// Verifies everything. Writers wait meanwhile. Never panics, whatever the region contains. For a table, `levels` in the report is the
    /// number of nodes of the longest chain.
    pub fn check(&self) -> Report {
        X::check(self)
    }

    /// Removes every key as one step. A tree is replaced by an empty tree at a cost that does not depend on the number of keys; the old one
    /// is collected later. A table is cleared in a similar way if no version is kept. Otherwise each entry is ended.
    ///
    /// # Errors
    /// As [`Versioned::put`]; `TooLarge` if no group can hold it.
    pub fn clear(&self) -> Result<()> {
        X::clear(self)
    }
}

/// Nodes or buckets of one step of a complete collection.
const PLACES_OF_STEP: usize = 256;
