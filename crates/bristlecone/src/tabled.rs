//! The trait [`Tabled`] tells for each kind of keys and values whether its stores can have several tables ([`index::tables`]). Only stores
//! of byte strings can.

use std::sync::Arc;

use ::index::Index;
use ::index::engine::Count;
use ::index::kind::{Bytes, Fixed, Kind, U64};
use ::index::tables::{Clock, Tables};
use pmem::{Found, Result};

/// A kind of keys and values, with or without tables.
pub trait Tabled: Kind {
    /// True if a store of this kind can have tables.
    const HAS_TABLES: bool = false;

    /// The default table of an index that has tables. A kind without tables returns the index.
    ///
    /// # Errors
    /// As [`Tables::open`].
    fn with_tables(
        index: Arc<dyn Index<Self>>,
        _found: Found,
        _clock: Clock,
    ) -> Result<Arc<dyn Index<Self>>> {
        Ok(index)
    }
}

impl Tabled for U64 {}
impl Tabled for Fixed {}

impl Tabled for Bytes {
    const HAS_TABLES: bool = true;

    fn with_tables(index: Arc<dyn Index<Self>>, found: Found, clock: Clock) -> Result<Arc<dyn Index<Self>>> {
        Ok(Arc::new(Tables::open(index, found, clock)?.default_table()))
    }
}

/// Number of keys of all tables. May be pending until [`Index::count_all`].
pub(crate) fn count<K: Kind>(index: &dyn Index<K>) -> Count {
    let Some(tables) = index.tables() else { return index.len() };
    let counts = tables.list().into_iter().map(|(_, count)| count);
    let sum = |a: Count, b: Count| Count { keys: a.keys + b.keys, pending: a.pending || b.pending };
    counts.fold(Count { keys: 0, pending: false }, sum)
}
