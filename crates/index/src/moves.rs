//! Moves records out of sparse chunks, so that these chunks become free and serve blocks of any size.
//!
//! So the space of deleted records can be used again without a compaction. After each write the allocator selects the
//! records to move ([`pmem::alloc::Allocator::next_to_move`]). A record contains its key. If the index references the
//! record under this key, an ordinary update stores the value again. The update writes a new record and frees the old
//! one.
//!
//! Invariants:
//! * V1: a move is an update of a key to its current value, between two operations and outside of batches. So no reader, snapshot or
//!   condition observes it, and a crash leaves the old record or the new one.
//! * V2: a move never makes a write fail. If a move fails, moves stop until the allocator needs a chunk again.
//! * V3: with a journal, a move is made only if its lines fit into the running commit group (G2 of `group`).

use pmem::record;

use crate::batch::Batching;
use crate::kernel::{Embed, Phase, Writer};
use crate::schema::Schema;

/// Longest value in bytes whose record is moved. This bounds the pause of one move.
const VALUE_BYTES_MAX: u64 = 128 << 10;

/// Moves the records that the allocator selects.
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

/// Moves a record. `leads` checks that the index references the record under its key. `fits` checks that the running group has space for a
/// record of this many bytes. `put` stores a value. False if no more records can be moved now.
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
    // A damaged record, or one without a key, is reported by a check.
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
