//! The intent ring as recovery reads it: the blocks of the newest operation, and the repair of their bits.

use crate::error::Result;
use crate::heap::alloc::class::Class;
use crate::heap::alloc::place::{place, set_bit};
use crate::heap::region::{INTENTS, INTENTS_AT, Region};
use crate::medium::traits::{Fence, Medium, WORD};

/// The intent ring as a crash left it.
pub(super) struct Ring {
    /// Newest operation with an intent.
    pub operation: u16,
    /// Slot after its last intent.
    pub next: u64,
    /// The blocks in its intents.
    blocks: Vec<u64>,
}

impl Ring {
    pub fn read<M: Medium>(medium: &M) -> Self {
        let mut ring = Self { operation: 0, next: 0, blocks: Vec::new() };
        for slot in 0..INTENTS as u64 {
            let word = medium.word(INTENTS_AT + slot * WORD);
            if word == 0 {
                continue;
            }
            let operation = (word >> 48) as u16;
            // The ring contains at most as many operations as it has slots, so the sign of the difference shows which is newer.
            if ring.blocks.is_empty() || operation.wrapping_sub(ring.operation).cast_signed() > 0 {
                (ring.operation, ring.next) = (operation, 0);
                ring.blocks.clear();
            }
            if operation == ring.operation {
                ring.blocks.push(word & ((1 << 48) - 1));
                ring.next = ring.next.max(slot + 1);
            }
        }
        // An operation whose intents wrap around the end of the ring has them in its first and last slots.
        let named = |slot: u64| medium.word(INTENTS_AT + slot * WORD) >> 48 == u64::from(ring.operation);
        if ring.next == INTENTS as u64 && !ring.blocks.is_empty() {
            ring.next = (0..INTENTS as u64).find(|slot| !named(*slot)).unwrap_or(0);
        }
        ring
    }
}

/// The blocks that the newest operation allocated or freed, with their classes. An address that is not a block is left out.
pub fn newest<M: Medium>(region: &Region<M>) -> impl Iterator<Item = (Class, u64)> {
    let blocks = Ring::read(region.medium()).blocks.into_iter();
    blocks.filter_map(|at| place(region, at).map(|place| (place.class, at)))
}

/// Repairs the bits of the blocks in the intent ring after a crash: each bit becomes the answer of `owned`. It stores nothing where
/// the bit is already right. `pieces` returns the blocks whose bits must equal the bit of a block in the ring. Call it after the
/// log was replayed.
///
/// # Errors
/// The errors of `owned`.
pub fn recover<M: Medium>(
    region: &Region<M>,
    mut owned: impl FnMut(Class, u64) -> Result<bool>,
    mut pieces: impl FnMut(Class, u64) -> Vec<u64>,
) -> Result<()> {
    let medium = region.medium();
    let mut changed = false;
    for at in Ring::read(medium).blocks {
        let Some(named) = place(region, at) else { continue };
        let owned = owned(named.class, at)?;
        let also = pieces(named.class, at);
        for block in also.into_iter().chain([at]) {
            let Some(place) = place(region, block) else { continue };
            if (medium.word(place.word_at()) & place.bit() != 0) != owned {
                set_bit(medium, place, owned);
                changed = true;
            }
        }
    }
    if changed {
        medium.fence(Fence::Allocate);
    }
    Ok(())
}
