//! Whom a block belongs to: what the allocator asks of an index that was not closed.

use pmem::alloc::{self, Class, Kind};
use pmem::{Medium, Region, Result, record};

/// Settles the allocator's intents. `owns` says whether the index leads to a block; it is not asked about pieces of records, which share
/// their record's fate.
///
/// # Errors
/// `Corrupt` if an intent names what is no block; what `owns` says.
pub fn recover_blocks<M: Medium>(
    region: &Region<M>,
    mut owns: impl FnMut(Class, u64) -> Result<bool>,
) -> Result<()> {
    alloc::recover(
        region,
        |class, at| match class.kind {
            // The ring may still hold the address of what was here before the chunk was closed and opened for pieces.
            Kind::Piece => match record_of(region, at) {
                Some((class, record)) => owns(class, record),
                None => Ok(false),
            },
            _ => owns(class, at),
        },
        |class, at| if class.kind.has_pieces() { record::pieces(region, at) } else { Vec::new() },
    )
}

/// The record that lists a piece.
fn record_of<M: Medium>(region: &Region<M>, piece: u64) -> Option<(Class, u64)> {
    let record = region.medium().word(piece);
    let class = alloc::class_of(region, record).filter(|class| class.kind.has_pieces())?;
    record::pieces(region, record).contains(&piece).then_some((class, record))
}
