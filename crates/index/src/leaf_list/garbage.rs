//! Clearing a list. Invariants and crash table are in [`crate::garbage`].
//!
//! ```text
//! meta block   word 7: the garbage of a clear ([`Garbage`]); none if its node is 0
//! ```
//!
//! A clear writes a new meta block. The block references an empty leaf, and its garbage word references the old head. The old meta block is
//! freed in the same commit. The commit point of the clear is the publish of the region's root word, which references the new block.
//!
//! A step frees the first leaf of the garbage, or the blocks of some of its entries. The commit point of a step is the publish of word 7.

use pmem::alloc::Kind;
use pmem::region::ROOT_AT;
use pmem::{Error, Fence, LINE, Medium, Region, Result, WORD, record};

use super::core::{LeafList, SchemaOf, Writer};
use super::space::HasSpace;
use super::write::Writes;
use crate::check::Walk;
use crate::entry::Entry;
use crate::garbage::{Garbage, free_entries};
use crate::schema::Schema;

/// Offset of the garbage word in the meta block.
pub const GARBAGE: u64 = 7 * WORD;

type EntryOf<T> = Entry<<SchemaOf<T> as Schema>::Tail>;

/// Reads the garbage word.
fn garbage_of<T: LeafList>(index: &T) -> Result<Option<Garbage>> {
    match index.root_block() {
        0 => Ok(None),
        root => Garbage::read(index.region.medium(), root + GARBAGE),
    }
}

/// Sets the kernel's garbage flag from the garbage word, after an open or a rollback.
///
/// # Errors
/// `Corrupt` if the garbage word is damaged.
pub fn find_garbage<T: LeafList>(index: &T) -> Result<()> {
    index.set_garbage(garbage_of(index)?.is_some());
    Ok(())
}

/// Reads the first leaf of the garbage. Returns the leaf after it, its separator (0: none), and its entries whose blocks are not freed yet.
fn first_of<T: LeafList>(index: &T, garbage: Garbage) -> Result<(u64, u64, Vec<EntryOf<T>>)> {
    let leaf = garbage.node;
    let next = index.next_leaf(leaf).filter(|_| super::recover::is_leaf_block(index, leaf));
    let next = next.ok_or(Error::Corrupt { what: "leaf of a cleared list", at: leaf })?;
    let separator = if SchemaOf::<T>::PLAIN { 0 } else { index.lower_bound(leaf) };
    // This must not read records: some of them may be free or reused.
    let entries = T::salvage(&index.region, leaf).into_iter().skip(garbage.done as usize).collect();
    Ok((next, separator, entries))
}

/// True if the garbage owns this block at the beginning of its walk (U1).
pub(super) fn owns<T: LeafList>(index: &T, at: u64) -> bool {
    let Ok(Some(garbage)) = garbage_of(index) else { return false };
    first_of(index, garbage).is_ok_and(|(_, separator, entries)| {
        at == garbage.node
            || at == separator
            || entries.iter().any(|entry| SchemaOf::<T>::blocks_of(entry).any(|block| block == at))
    })
}

/// Adds the blocks of the garbage to a check.
pub fn own<T: LeafList>(index: &T, walk: &mut Walk) {
    let mut rest = match garbage_of(index) {
        Ok(rest) => rest,
        Err(error) => return walk.problem(error.to_string()),
    };
    while let Some(garbage) = rest
        && walk.goes_on()
    {
        let (next, separator, entries) = match first_of(index, garbage) {
            Ok(first) if !walk.has(garbage.node) => first,
            _ => return walk.problem(format!("a cleared list has no leaf at {:#x}", garbage.node)),
        };
        walk.own(garbage.node, Kind::Leaf);
        if separator != 0 {
            walk.own(separator, Kind::Separator);
        }
        for block in entries.iter().flat_map(SchemaOf::<T>::blocks_of) {
            walk.own(block, Kind::Record);
            record::pieces(&index.region, block).into_iter().for_each(|piece| walk.own(piece, Kind::Piece));
        }
        rest = (next != 0).then_some(Garbage { node: next, done: 0 });
    }
}

/// Removes every key.
pub(super) fn clear<T: LeafList>(index: &T) -> Result<()> {
    if !index.can_switch() {
        return index.clear_by_key();
    }
    crate::garbage::clear(
        index,
        index.lines_of_operation(0),
        || Ok(garbage_of(index)?.is_some()),
        |writer| switch(index, writer),
        || index.clear_by_key(),
    )
}

/// Replaces the list by an empty one.
fn switch<T: LeafList>(index: &T, writer: &mut Writer<T::Own>) -> Result<()> {
    let (region, medium, old) = (&index.region, index.region.medium(), index.root_block());
    let head = index.head()?;
    let mut take = |kind, bytes| {
        let block = writer.allocator.take(region, &mut writer.log, kind, bytes);
        block.map_err(|error| index.give_up(writer, error))
    };
    let (leaf, root) = (take(Kind::Leaf, index.leaf_bytes())?, take(Kind::Inner, LINE)?);
    writer.allocator.give(region, old).map_err(|error| index.give_up(writer, error))?;
    if index.pending.is_none() {
        index.stripes.give_way();
    }
    index.stripes.lock_all(&mut writer.held); // U2
    index.note_clear();
    index.lock(writer, leaf);
    index.write_empty(leaf, root);
    medium.copy(root + GARBAGE, Garbage::word(Some(Garbage { node: head, done: 0 })));
    medium.flush(root, LINE);
    medium.fence(Fence::Payload);
    writer.allocator.flip(region);
    medium.publish(ROOT_AT, Region::<<T as LeafList>::Medium>::root_word(root));
    medium.flush(ROOT_AT, WORD);
    medium.fence(Fence::Commit);
    writer.allocator.finish(region, &mut writer.log);
    index.set_root_block(root);
    index.reload(writer);
    index.keys.store(0, pmem::sync::Ordering::Release);
    index.set_garbage(true);
    index.stripes.unlock(&mut writer.held);
    Ok(())
}

/// Frees the first leaf of the garbage, or blocks of some of its entries. False if nothing remains.
pub(super) fn free_some<T: LeafList>(index: &T, writer: &mut Writer<T::Own>) -> Result<bool> {
    let Some(garbage) = garbage_of(index)? else { return Ok(false) };
    let (next, separator, entries) = first_of(index, garbage)?;
    let (region, medium) = (&index.region, index.region.medium());
    let freed = free_entries(index, writer, entries.iter().copied())?;
    let rest = if freed < entries.len() {
        Some(Garbage { done: garbage.done + freed as u64, ..garbage })
    } else {
        let mut given = writer.allocator.give(region, garbage.node);
        if separator != 0 {
            given = given.and_then(|()| record::give(region, &mut writer.allocator, separator));
        }
        given.map_err(|error| index.give_up(writer, error))?;
        (next != 0).then_some(Garbage { node: next, done: 0 })
    };
    let at = index.root_block() + GARBAGE;
    if writer.allocator.has_pending() {
        medium.fence(Fence::Payload);
    }
    writer.allocator.flip(region);
    medium.publish(at, Garbage::word(rest));
    medium.flush(at, WORD);
    medium.fence(Fence::Commit);
    writer.allocator.finish(region, &mut writer.log);
    Ok(rest.is_some())
}
