//! What is done to all of it: collection, verification, clearing.

use index::{Life, Report};
use pmem::{Medium, Result};

use crate::structure::Structure;
use crate::structure::Versioned;

impl<M: Medium, X: Structure> Versioned<M, X> {
    /// Collects garbage and removes the traces of dead versions in about `places` nodes of a tree or buckets of a table, and says
    /// whether a pass through all of it ended with it. (More nodes where retained versions hold many below one.) Of a table
    /// that lost most of its keys, as many buckets go.
    ///
    /// # Errors
    /// `Closed`; `Corrupt` if a node is damaged; over a medium of groups, what a commit says.
    pub fn collect_some(&self, places: usize) -> Result<bool> {
        X::collect_some(self, places)
    }

    /// As [`Versioned::collect_some`] until a whole pass ended.
    ///
    /// # Errors
    /// As there.
    pub fn collect_all(&self) -> Result<()> {
        X::begin_collection(self)?;
        while !X::collect_some(self, PLACES_OF_STEP)? {}
        self.commit()
    }

    /// Verifies everything, with writers shut out meanwhile. Never panics, whatever the region holds. (Of a table, `levels` in the
    /// report is the number of nodes of the longest bucket.)
    pub fn check(&self) -> Report {
        X::check(self)
    }

    /// Removes every key, as one step. Of a tree at no cost: an empty tree takes the old one's place, which is collected later. Of a
    /// table so, too, while nobody keeps a version; else each entry is ended.
    ///
    /// # Errors
    /// As [`Versioned::put`]; `TooLarge` if no group can hold it.
    pub fn clear(&self) -> Result<()> {
        X::clear(self)
    }
}

/// Nodes or buckets of a step of a whole collection.
const PLACES_OF_STEP: usize = 256;
