//! Damaged nodes: the writer reports a flipped bit of an address and stores nothing.

use bptree::{Error, Slotted, Tree, TreeOptions, WriteAtomic};
use index::Words;
use pmem::{Durability, Medium, Native};

/// A bit above every address of the region. The medium masks addresses into its range. So a load at an address with this bit returns the
/// node of the address without it.
const FAR: u64 = 1 << 45;

#[test]
fn a_child_address_far_behind_the_region_is_damage_for_the_writer_and_nothing_is_stored() {
    let medium = Native::anonymous(1 << 24, Durability::Process).unwrap();
    let options = TreeOptions::new("t", 8, Durability::Process);
    let tree = Tree::<_, Words, (Slotted, Slotted), WriteAtomic>::create(medium, &options).unwrap();
    (0..2000_u64).for_each(|key| _ = tree.put(&key, &key).unwrap());
    let (medium, root) = (tree.region().medium(), tree.region().root().unwrap());
    assert_eq!(
        medium.word(root) >> 48 & 0xFF,
        2,
        "a root above inner nodes: its children are never split here"
    );
    // The address of the leftmost child is in the link word. Key 0 is below it.
    medium.copy(root, medium.word(root) | FAR);
    let before: Vec<u64> = (0..medium.len() / 8).map(|word| medium.word(word * 8)).collect();
    for outcome in [tree.put(&0, &7), tree.delete(&0)] {
        assert!(matches!(outcome, Err(Error::Corrupt { what: "node", .. })), "{outcome:?}");
    }
    let after: Vec<u64> = (0..medium.len() / 8).map(|word| medium.word(word * 8)).collect();
    assert!(before == after, "something was stored");
    // Other paths are intact.
    assert!(tree.put(&1999, &7).unwrap());
}

#[test]
#[should_panic(expected = "store outside")]
fn a_store_behind_the_region_is_refused_in_every_build() {
    let medium = Native::anonymous(1 << 24, Durability::Process).unwrap();
    medium.grow(1 << 20).unwrap();
    medium.copy(1 << 21, 1);
}
