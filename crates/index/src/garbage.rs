//! Clearing: one commit puts an empty structure in the place of the one that there is, which becomes garbage and is freed behind it, a
//! leaf at a time.
//!
//! A durable word says what is garbage ([`Garbage`]): of trees in the root line, beside the root, so both change through the log
//! in one step; of lists in the meta block, which a clear writes anew and names by one store. Writers free a part behind each write,
//! the maintenance thread frees the rest, and a write that finds no space frees what it needs. What a crash leaves is freed after the
//! next open. A second clear first frees what the first one left: each block is freed once, whatever the order.
//!
//! | fence passed | may be on the medium | recovery |
//! |---|---|---|
//! | clear: none | some of the new nodes, intents | the old structure: the new blocks are free |
//! | payload | the root with the garbage's word, or neither | the old structure, or the empty one and garbage |
//! | commit | both | the empty structure, and garbage |
//! | step: none | intents | the garbage as it was: it owns the blocks that the step named |
//! | payload | flipped bits, the step's word or not | the bits follow the owner |
//! | commit | the step's word | the garbage without them |
//!
//! Invariants:
//! * U1: garbage owns what can be reached from its word and is not freed. A step frees what the garbage is walked to first, and no
//!   more; its commit point, one step of the commit protocol, takes exactly that away from the walk. So nothing that is free is ever
//!   walked, and recovery, which asks who owns the blocks that the newest step named, looks only at where the walk begins.
//! * U2: a clear locks every stripe, so no reader that began before it goes on in what is freed.
//! * U3: with an open snapshot every key needs a before-image, so a clear deletes key by key. It does so, too, where there is no space
//!   for an empty structure.

pub use pmem::region::Garbage;
use pmem::{Error, Medium, Result, record};

use crate::engine::Index;
use crate::entry::Entry;
use crate::group::Life;
use crate::kernel::{Embed, Kernel, Phase, Writer};
use crate::kind::Kind;
use crate::schema::Schema;
use crate::write::{Write, WriteOptions};

/// Most blocks of records that a step frees; the intent ring has space for these and for nodes and separators.
pub const BLOCKS_MAX: usize = 64;
/// Most pieces of large values that it frees, but for those of one value.
const PIECES_MAX: usize = 256;

/// Lines that a step may change beside those of an operation without a record: the bits of what it frees.
pub const LINES_OF_STEP: u64 = (BLOCKS_MAX + PIECES_MAX) as u64;

/// Frees a part of the garbage behind a write. What is damaged stays, and a check tells of it.
#[cold]
#[inline(never)]
pub(crate) fn free_behind<T: Embed>(index: &T, writer: &mut Writer<T::Own>) {
    if index.kernel().phase() == Phase::Open && index.has_lines_beside(index.lines_of_free()) {
        index.kernel().set_garbage(index.free_some(writer).unwrap_or(false));
    }
}

/// Frees a part of the garbage; false if there is no more.
///
/// # Errors
/// As of a write; `Corrupt` if it is damaged: the rest stays.
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

/// Frees all garbage. What is damaged stays, and a check tells of it.
///
/// # Errors
/// As of a write.
pub fn free_all<T: Embed>(index: &T) -> Result<()> {
    loop {
        match free_once(index) {
            Ok(true) => {}
            Ok(false) | Err(Error::Corrupt { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Removes every key: `switch`, which changes at most `lines` lines, replaces the structure by an empty one in one commit. Where that is
/// not possible (U3, or garbage that is damaged), `delete_each` removes the keys. `is_left` reads the durable word: is there garbage?
///
/// # Errors
/// As of a write; nothing is removed then, unless keys were deleted one by one.
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
            continue; // of another clear
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

/// Makes a write that changes nothing if it fails; while it finds no space and there is garbage, frees some of this and tries again.
///
/// # Errors
/// What `write` says.
pub fn with_space<T: Embed, R>(index: &T, mut write: impl FnMut() -> Result<R>) -> Result<R> {
    loop {
        match write() {
            Err(error) if lacks_space(&error) && index.kernel().has_garbage() => _ = free_once(index)?,
            outcome => return outcome,
        }
    }
}

/// Carries out writes one after the other, each of which may have space freed for it: for a store with garbage, in which many writes at
/// once would end at the first that finds no space.
///
/// # Errors
/// As of a write; those before it are carried out.
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

/// Frees the blocks of the next entries of a leaf, as part of the running operation; returns how many entries that are.
///
/// # Errors
/// `Corrupt`: the operation is given up then.
pub fn free_entries<M: Medium, S: Schema, W>(
    kernel: &Kernel<M, S, W>,
    writer: &mut Writer<W>,
    entries: impl Iterator<Item = Entry<S::Tail>>,
) -> Result<usize> {
    let (mut blocks, mut pieces, mut freed) = (0, 0, 0);
    // In the small chunks of tests a leaf of few records takes several steps.
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

/// True if an error says that there is no space.
fn lacks_space(error: &Error) -> bool {
    matches!(error, Error::Full { .. } | Error::NoSpace { .. })
}
