//! Clearing: one commit replaces the structure by an empty one. The old structure becomes *garbage*. Later steps free
//! the garbage leaf by leaf.
//!
//! The bytes: a durable word, the garbage word, describes the garbage ([`Garbage`]). In trees this word is in the root
//! line, beside the root. One commit through the redo log changes both words. In lists the word is in the meta block: a
//! clear writes a new meta block and publishes its address in the root word.
//!
//! Writers free a part of the garbage after each write. The maintenance thread frees the rest. If a write finds no space, it frees garbage
//! until it has the space it needs. Garbage that a crash leaves is freed after the next open. A second clear first frees all garbage of the
//! first one. So there is garbage of one clear at most, and each block is freed once.
//!
//! Invariants:
//! * U1: the garbage owns the blocks that are reachable from the garbage word. A walk visits them in a fixed order. Each step frees the
//!   first blocks of the walk, and only these. The commit of the step also removes exactly these blocks from the walk. So the walk never
//!   reaches a free block. Recovery checks the ownership only of the blocks in the newest operation's intents (the durable list of the
//!   blocks that it allocates or frees). If the garbage owns such a block, that operation was a step that did not commit. So the block is
//!   at the beginning of the walk: it is the walk's first leaf, a record of that leaf, (in a list) that leaf's separator, or (in a tree) an
//!   inner node above that leaf or a separator in such a node. Recovery does not walk further.
//! * U2: a clear locks all version locks. So a reader that began before the clear fails its validation and does not continue in freed
//!   memory.
//! * U3: with an open snapshot every key needs a before-image, so a clear deletes key by key. A clear also deletes key by key if there is
//!   no space for an empty structure, or if damaged garbage remains.
//!
//! The commit point of a clear is the switch to the empty structure. The commit point of a step is the commit that
//! removes the freed blocks from the walk (U1).
//!
//! | fence passed ([`pmem::Fence`]) | may be on the medium at a crash | recovery |
//! |---|---|---|
//! | clear: none | some of the new nodes, intents | the old structure; the new blocks are free |
//! | clear: payload | the new root and the garbage word, or neither | the old structure; or the empty one and the garbage |
//! | clear: commit | both | the empty structure and the garbage |
//! | step: none | intents | the garbage is unchanged; it owns the blocks in the step's intents |
//! | step: payload | changed allocation bits; the step's commit, or not | sets the bits of blocks that are still garbage, clears the other bits |
//! | step: commit | the step's commit | the garbage without the freed blocks |

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
#[inline(always)]
pub fn with_space<T: Embed, R>(index: &T, mut write: impl FnMut() -> Result<R>) -> Result<R> {
    match write() {
        Ok(done) => Ok(done),
        Err(error) => with_more_space(index, error, write),
    }
}

/// The rest of [`with_space`] after the first error of the write.
#[cold]
#[inline(never)]
fn with_more_space<T: Embed, R>(
    index: &T,
    mut error: Error,
    mut write: impl FnMut() -> Result<R>,
) -> Result<R> {
    while lacks_space(&error) && index.kernel().has_garbage() {
        free_once(index)?;
        match write() {
            Ok(done) => return Ok(done),
            Err(next) => error = next,
        }
    }
    Err(error)
}

/// Applies writes one by one, so that garbage can be freed for each. Used while there is garbage: a write group would end at the first
/// write that finds no space.
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
pub(crate) fn lacks_space(error: &Error) -> bool {
    matches!(error, Error::Full { .. } | Error::NoSpace { .. })
}
