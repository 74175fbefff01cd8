//! Creates and opens the region of an index. The region's identity records the engine and the kind of keys and values;
//! an open checks both.

use std::path::Path;

use pmem::{Durability, Error, Found, Geometry, Identity, Medium, Region, RegionOptions, Result};

use crate::schema::{self, Schema};

/// Creates the region of an empty index in a new medium. A node has `node_lines` cache lines. A value has `payload_words` words in its
/// entry. `tables` is true if the keys will be those of [`Tables`](crate::tables::Tables).
///
/// # Errors
/// The errors of growing the medium.
pub fn create_region<M: Medium, S: Schema>(
    medium: M,
    engine: &str,
    (node_lines, payload_words): (u64, usize),
    (geometry, durability): (Geometry, Durability),
    tables: bool,
) -> Result<Region<M>> {
    let kind = S::kind(payload_words) + if tables { schema::TABLES } else { "" };
    let identity = Identity { engine: engine.into(), kind, node_lines };
    Region::create(medium, &RegionOptions { geometry, identity }, durability)
}

/// Opens the region of an index.
///
/// # Errors
/// `Mismatch` if the region contains another engine or kind; the errors of [`Region::open`].
pub fn open_region<M: Medium, S: Schema>(medium: M, path: &Path, engine: &str) -> Result<(Region<M>, Found)> {
    let (region, found) = Region::open(medium, path)?;
    let identity = region.identity();
    if identity.engine != engine {
        return Err(Error::Mismatch {
            found: format!("engine {}", identity.engine),
            asked: format!("engine {engine}"),
            remedy: "a store keeps its engine; omit the engine (`--engine`) to open it",
        });
    }
    if S::payload_words(&identity.kind).is_none() {
        return Err(Error::Mismatch {
            found: format!("keys and values of the kind \"{}\"", identity.kind),
            asked: format!("\"{}\"", S::NAME),
            remedy: "open it with the store type of its kind",
        });
    }
    Ok((region, found))
}
