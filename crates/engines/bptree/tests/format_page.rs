//! `docs/format.md` shows the geometry of the default engine's nodes.

#[path = "../../../pmem/src/format_page.rs"]
mod shared;

use bptree::{Slotted, Tree, TreeOptions, WriteAtomic};
use index::{Prefixed, Schema, Words};
use pmem::{Durability, Native};

/// The row of a kind.
fn row<S: Schema>(kind: &str) -> String {
    let medium = Native::anonymous(16 << 20, Durability::Process).unwrap();
    let options = TreeOptions::new("wbtree", 16, Durability::Process);
    let tree = Tree::<_, S, (Slotted, Slotted), WriteAtomic>::create(medium, &options).unwrap();
    let (leaf, inner) = (tree.leaf_shape(), tree.inner_shape());
    assert_eq!((leaf.keys_at, leaf.capacity, leaf.key_step), (inner.keys_at, inner.capacity, inner.key_step));
    format!("`{kind}` | {} | {} of {} bytes | … |", leaf.keys_at * 8, leaf.capacity, leaf.key_step * 8)
}

#[test]
fn the_format_page_has_the_geometry_of_nodes() {
    shared::assert_row(row::<Prefixed>("bytes").trim_end_matches(" |"));
    shared::assert_row(row::<Words>("u64").trim_end_matches(" |"));
}
