//! Clearing: one commit replaces the structure by an empty one. The old structure becomes garbage, which is freed leaf by leaf.
//!
//! The bytes: a durable word describes the garbage ([`Garbage`]). In trees it is in the root line beside the root, and both words change in
//! one step through the redo log. In lists it is in the meta block: a clear writes a new meta block and publishes its address in the root
//! word.
//!
//! Writers free a part of the garbage after each write. The maintenance thread frees the rest. A write that finds no space frees garbage
//! until it has the space it needs. Garbage that a crash leaves is freed after the next open. A second clear first frees the garbage of the
//! first one. So each block is freed once, in any order of events.
//!
//! Invariants:
//! * U1: garbage owns all blocks that are reachable from its word and not free. A step frees the first blocks on the walk through the
//!   garbage, and only these. Its commit point, one step of the commit protocol, removes exactly these blocks from the walk. So the walk
//!   never reaches a free block. Recovery asks for the owner of the blocks in the newest step's intents. It needs only the beginning of the
//!   walk for this.
//! * U2: a clear locks all version locks. So no reader that began earlier goes on in freed memory.
//! * U3: with an open snapshot every key needs a before-image, so a clear deletes key by key. It also does so if there is no space for an
//!   empty structure.
//!
//! The commit point is the commit of the switch to the empty structure, and then the commit of each step.
//!
//! | fence passed | may be on the medium | recovery |
//! |---|---|---|
//! | clear: none | some of the new nodes, intents | the old structure; the new blocks are free |
//! | payload | the root with the garbage word, or neither | the old structure, or the empty one and garbage |
//! | commit | both | the empty structure, and garbage |
//! | step: none | intents | the garbage unchanged; it owns the blocks in the step's intents |
//! | payload | changed allocation bits, the step's word or not | each bit is set to match the owner |
//! | commit | the step's word | the garbage without the freed blocks |

pub use pmem::region::Garbage;
use pmem::{Error, Medium, Result, record};

use crate::engine::Index;
use crate::entry::Entry;
use crate::group::Life;
use crate::kernel::{Embed, Kernel, Phase, Writer};
use crate::kind::Kind;
use crate::schema::Schema;
use crate::write::{Write, WriteOptions};

/// Maximum number of record blocks that a step frees. The intent ring has space for these, for nodes and for separators.
pub const BLOCKS_MAX: usize = 64;
/// Maximum number of pieces of large values that a step frees. A single value may exceed it.
const PIECES_MAX: usize = 256;

/// Lines that a step may change in addition to an operation without a record: the allocation bits of the freed blocks.
pub const LINES_OF_STEP: u64 = (BLOCKS_MAX + PIECES_MAX) as u64;

/// Frees a part of the garbage after a write. Damaged garbage stays, and a check reports it.
#[cold]
#[inline(never)]
pub(crate) fn free_behind<T: Embed>(index: &T, writer: &mut Writer<T::Own>) {
    if index.kernel().phase() == Phase::Open && index.has_lines_beside(index.lines_of_free()) {
        index.kernel().set_garbage(index.free_some(writer).unwrap_or(false));
    }
}

/// Frees a part of the garbage. False if nothing remains.
///
/// # Errors
/// As for a write. `Corrupt` if the garbage is damaged: the rest is not freed.
pub fn free_once<T: Embed>(index: &T) -> Result<bool> {
    if !index.kernel().has_garbage() {
        return Ok(false);
    }
    let mut writer = index.enter_for(|_| Ok(index.lines_of_free()))?;
    let outcome = index.free_some(&mut writer);
    index.kernel().set_garbage(matches!(outcome, Ok(true)));
    index.leave(writer, WriteOptions { sync: false })?;
    outcome.map(|_| index.kernel().has_garbage())
}

/// Frees all garbage. Damaged garbage stays, and a check reports it.
///
/// # Errors
/// As for a write.
pub fn free_all<T: Embed>(index: &T) -> Result<()> {
    loop {
        match free_once(index) {
            Ok(true) => {}
            Ok(false) | Err(Error::Corrupt { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Removes every key. `switch` replaces the structure by an empty one in one commit and changes at most `lines` lines. If this is not
/// possible (U3, or damaged garbage), `delete_each` removes the keys. `is_left` reads the durable word: true if there is garbage.
///
/// # Errors
/// As for a write. No key is removed then, unless keys were deleted one by one.
pub fn clear<T: Embed>(
    index: &T,
    lines: u64,
    is_left: impl Fn() -> Result<bool>,
    switch: impl Fn(&mut Writer<T::Own>) -> Result<()>,
    delete_each: impl Fn() -> Result<()>,
) -> Result<()> {
    loop {
        free_all(index)?;
        let mut writer = index.enter_for(|_| Ok(lines))?;
        if index.kernel().has_garbage() {
            continue; // from a concurrent clear
        }
        if !index.kernel().images.saves() && !is_left()? {
            match switch(&mut writer) {
                Ok(()) => return index.leave(writer, WriteOptions::default()),
                Err(error) if lacks_space(&error) => {}
                Err(error) => return Err(error),
            }
        }
        drop(writer);
        return delete_each();
    }
}

/// Runs a write that changes nothing if it fails. While it finds no space and there is garbage, frees some garbage and runs the write
/// again.
///
/// # Errors
/// As `write`.
pub fn with_space<T: Embed, R>(index: &T, mut write: impl FnMut() -> Result<R>) -> Result<R> {
    loop {
        match write() {
            Err(error) if lacks_space(&error) && index.kernel().has_garbage() => _ = free_once(index)?,
            outcome => return outcome,
        }
    }
}

/// Applies writes one by one, so that garbage can be freed for each. For a store with garbage: a write group would end at the first write
/// that finds no space.
///
/// # Errors
/// As for a write. The earlier writes are applied.
pub fn write_singly<K: Kind>(
    index: &dyn Index<K>,
    writes: &[Write<'_, K::Key, K::Value>],
    how: WriteOptions,
) -> Result<Vec<bool>> {
    let unsynced = WriteOptions { sync: false };
    let single = |write: &Write<'_, K::Key, K::Value>| match write {
        Write::Put(key, value) => index.put(key, value, unsynced),
        Write::Delete(key) => index.delete(key, unsynced),
    };
    let were = writes.iter().map(single).collect::<Result<_>>()?;
    if how.sync {
        index.commit()?;
    }
    Ok(were)
}

/// Frees the blocks of the next entries of a leaf, as part of the running operation. Returns the number of entries.
///
/// # Errors
/// `Corrupt`: the operation is aborted.
pub fn free_entries<M: Medium, S: Schema, W>(
    kernel: &Kernel<M, S, W>,
    writer: &mut Writer<W>,
    entries: impl Iterator<Item = Entry<S::Tail>>,
) -> Result<usize> {
    let (mut blocks, mut pieces, mut freed) = (0, 0, 0);
    // The small chunks of tests make a leaf of few records take several steps.
    let blocks_max = BLOCKS_MAX.min((kernel.region.geometry().chunk_bytes >> 11) as usize);
    for entry in entries {
        let of_entry = || S::blocks_of(&entry);
        blocks += of_entry().count();
        pieces += of_entry().map(|block| record::pieces(&kernel.region, block).len()).sum::<usize>();
        if freed > 0 && (blocks > blocks_max || pieces > PIECES_MAX) {
            break;
        }
        kernel.give_blocks(writer, &entry)?;
        freed += 1;
    }
    Ok(freed)
}

/// True if the error means that there is no space.
fn lacks_space(error: &Error) -> bool {
    matches!(error, Error::Full { .. } | Error::NoSpace { .. })
}
