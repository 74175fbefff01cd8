//! Records are moved out of sparse chunks, so that these become free and serve blocks of any size: what makes space after many
//! deletes without a compaction.
//!
//! The allocator says which record is next, and how many behind each write ([`pmem::alloc::Allocator::next_to_move`]). A record tells
//! its key. If the index leads from that key to the record, its value is stored again by an ordinary update, which makes a new
//! record and gives the old one back.
//!
//! Invariants:
//! * V1: a move is an update of a key to the value that it has, between two operations and outside of batches. So no reader, snapshot
//!   or condition can tell it from nothing, and a crash leaves the old record or the new one.
//! * V2: a move never makes a write fail: if one fails, moves end until a chunk is lacking again.
//! * V3: over groups a move is made only if its lines fit into the running group (G2).

use pmem::record;

use crate::batch::Batching;
use crate::kernel::{Embed, Phase, Writer};
use crate::schema::Schema;

/// A record with a longer value stays where it is: it bounds the pause of one move.
const VALUE_BYTES_MAX: u64 = 128 << 10;

/// Moves what the allocator asks for.
#[cold]
#[inline(never)]
pub(crate) fn move_records<T: Embed>(index: &T, writer: &mut Writer<T::Own>) {
    let kernel = index.kernel();
    if kernel.phase() != Phase::Open || kernel.images.is_running() {
        return;
    }
    let region = &kernel.region;
    while let Some(block) = writer.allocator.next_to_move(region, &mut writer.log) {
        if !index.move_record(writer, block) {
            writer.allocator.end_moves();
        }
    }
}

/// Moves a record, if `leads` says that the index leads to it from its key, and `fits` that there is space in the running group for a
/// record of so many bytes; `put` stores a value. False if no more can be moved now.
pub fn move_record<T: Batching>(
    index: &T,
    writer: &mut Writer<T::Own>,
    block: u64,
    leads: impl FnOnce(&<T::Schema as Schema>::KeyBuf) -> bool,
    fits: impl FnOnce(u64) -> bool,
    put: impl FnOnce(
        &mut Writer<T::Own>,
        &<T::Schema as Schema>::Key,
        &<T::Schema as Schema>::Value,
    ) -> pmem::Result<bool>,
) -> bool {
    let medium = index.kernel().region.medium();
    if record::value_bytes(medium, block).is_none_or(|bytes| bytes > VALUE_BYTES_MAX) {
        return true;
    }
    let (mut key, mut value) = Default::default();
    // A check reports a record that is damaged, or that no key leads to.
    if !T::Schema::key_of_block(medium, block, &mut key) || !leads(&key) {
        return true;
    }
    let key = T::Schema::borrow(&key);
    if !matches!(index.value_now(key, Some(&mut value)), Ok(true)) {
        return false;
    }
    let value = T::Schema::borrow_value(&value);
    fits(T::Schema::record_bytes(key, value)) && put(writer, key, value).is_ok()
}
