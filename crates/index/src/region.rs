//! The region of an index: made with its engine's name and its kind of entries, and opened only as that.

use std::path::Path;

use pmem::{Durability, Error, Found, Geometry, Identity, Medium, Region, RegionOptions, Result};

use crate::schema::Schema;

/// Makes the region of an empty index in a fresh medium: `node_lines` cache lines a node, `payload_words` words of a value beside
/// its key.
///
/// # Errors
/// What growing the medium may say.
pub fn create_region<M: Medium, S: Schema>(
    medium: M,
    engine: &str,
    (node_lines, payload_words): (u64, usize),
    (geometry, durability): (Geometry, Durability),
) -> Result<Region<M>> {
    let identity = Identity { engine: engine.into(), kind: S::kind(payload_words), node_lines };
    Region::create(medium, &RegionOptions { geometry, identity }, durability)
}

/// Opens the region of an index.
///
/// # Errors
/// `Mismatch` if something else lives there; what [`Region::open`] says.
pub fn open_region<M: Medium, S: Schema>(medium: M, path: &Path, engine: &str) -> Result<(Region<M>, Found)> {
    let (region, found) = Region::open(medium, path)?;
    let identity = region.identity();
    if identity.engine != engine || S::payload_words(&identity.kind).is_none() {
        return Err(Error::Mismatch {
            found: format!("engine {} over {}", identity.engine, identity.kind),
            asked: format!("{engine} over {}", S::NAME),
        });
    }
    Ok((region, found))
}
