//! Operations on the whole structure: collection, verification, clear.

use index::{Life, Report};
use pmem::{Medium, Result};

use crate::structure::Structure;
use crate::structure::Versioned;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Collects garbage and removes the traces of dead versions in about `places` nodes of a tree or buckets of a table. In a tree it
    /// visits more nodes if retained versions have many nodes below one node. From a table that lost most of its keys it also removes up
    /// to `places` buckets. True if a complete pass has ended.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`; `Corrupt` if a node is damaged; `TooLarge` if no group can hold the changes; over a journal the
    /// errors of a commit.
    pub fn collect_some(&self, places: usize) -> Result<bool> {
        X::collect_some(self, places)
    }

    /// As [`Versioned::collect_some`], until a complete pass has ended.
    ///
    /// # Errors
    /// As [`Versioned::collect_some`].
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

    /// Removes every key as one step. A tree is replaced by an empty one, at a cost that does not depend on the number of keys; the
    /// collector frees the old tree later. A table without kept versions rolls back all its versions. A table with kept versions ends each
    /// entry.
    ///
    /// # Errors
    /// As [`Versioned::put`]; `TooLarge` if no group can hold the changes.
    pub fn clear(&self) -> Result<()> {
        X::clear(self)
    }
}

/// Nodes or buckets of one step of a complete collection.
const PLACES_OF_STEP: usize = 256;
