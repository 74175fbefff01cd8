//! Recovery of the allocation bits of an index that was not closed cleanly. For each block that the newest operation
//! allocated or freed (its intents), recovery sets the bit if the index references the block, and clears the bit
//! otherwise.

use pmem::alloc::{self, Class, Kind};
use pmem::{Medium, Region, Result, record};

/// Recovers the allocation bits of the intents' blocks. `owns` returns true if the index references a block. For a piece of a record, the
/// function asks about the record, so `owns` never gets a piece. The function ignores an intent whose address is not a block.
///
/// # Errors
/// The errors of `owns`.
pub fn recover_blocks<M: Medium>(
    region: &Region<M>,
    mut owns: impl FnMut(Class, u64) -> Result<bool>,
) -> Result<()> {
    alloc::recover(
        region,
        |class, at| match class.kind {
            // The ring may still contain the address of an older block, from before the chunk was closed and opened again for pieces.
            Kind::Piece => match record_of(region, at) {
                Some((class, record)) => owns(class, record),
                None => Ok(false),
            },
            _ => owns(class, at),
        },
        |class, at| if class.kind.has_pieces() { record::pieces(region, at) } else { Vec::new() },
    )
}

/// The record that references a piece.
fn record_of<M: Medium>(region: &Region<M>, piece: u64) -> Option<(Class, u64)> {
    let record = region.medium().word(piece);
    let class = alloc::class_of(region, record).filter(|class| class.kind.has_pieces())?;
    record::pieces(region, record).contains(&piece).then_some((class, record))
}
