//! Recovery of the allocation bits of a list that was not closed cleanly. For each block that the newest operation
//! allocated or freed, recovery decides whether the list or its garbage references the block.

use pmem::alloc::{self, Class, Kind};
use pmem::{Result, record};

use super::bound::bound;
use super::core::{KeyBufOf, LeafList, SchemaOf};
use super::garbage;
use crate::owner;
use crate::schema::Schema;

/// Recovers the allocation bits of the intents' blocks: each bit is set if the list or its garbage owns the block.
///
/// # Errors
/// None of its own: an intent whose address is not a block is left out.
pub fn recover_blocks<T: LeafList>(index: &T) -> Result<()> {
    owner::recover_blocks(&index.region, |class, at| {
        Ok(index.root_block() != 0 && (owns(index, class, at) || garbage::owns(index, at)))
    })
}

/// True if there is a block of the size of a leaf at this address.
pub fn is_leaf_block<T: LeafList>(index: &T, at: u64) -> bool {
    let class = alloc::class_of(&index.region, at);
    class.is_some_and(|class| class.kind == Kind::Leaf && class.block_bytes == index.leaf_bytes())
}

/// True if the entry of this key references this record.
pub(super) fn owns_record<T: LeafList>(index: &T, key: &KeyBufOf<T>, at: u64) -> bool {
    let key = SchemaOf::<T>::borrow(key);
    let entry = index.entry_of(index.leaf_of(key, false), key);
    entry.is_some_and(|entry| SchemaOf::<T>::blocks_of(&entry).any(|block| block == at))
}

/// True if the index references this block.
fn owns<T: LeafList>(index: &T, class: Class, at: u64) -> bool {
    let medium = index.region.medium();
    let mut key = KeyBufOf::<T>::default();
    match class.kind {
        Kind::Inner => at == index.root_block(),
        Kind::Leaf => {
            // If the leaf is in the list, the key of its lower bound leads to it.
            is_leaf_block(index, at)
                && index.is_leaf(at)
                && bound::<_, SchemaOf<T>>(medium, index.lower_bound(at))
                    .is_ok_and(|key| index.leaf_of(SchemaOf::<T>::borrow(&key), false) == at)
        }
        Kind::Batch => index.region.batch().is_ok_and(|batch| batch == at),
        Kind::Separator => {
            let mut bytes = Vec::new();
            record::read_key(medium, at, &mut bytes)
                && SchemaOf::<T>::key_of(&bytes).is_some_and(|key| {
                    index.lower_bound(index.leaf_of(SchemaOf::<T>::borrow(&key), false)) == at
                })
        }
        Kind::Record => SchemaOf::<T>::key_of_block(medium, at, &mut key) && owns_record(index, &key, at),
        // Recovery never asks about pieces.
        Kind::Piece => false,
    }
}
