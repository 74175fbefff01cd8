//! All trees by name. One entry per tree: lines per node, the schema that it uses for byte strings ([`index::schema`]), layouts of leaves
//! and inner nodes, commit protocol.
//!
//! A new combination is a new entry. Engines, crash tests, the cost model and benchmarks take their trees from here.

use crate::commit_protocol::{
    CommitProtocol, LineOrder, Redo, Shadow, Stepwise, UndoRedo, Volatile, WriteAhead, WriteAtomic,
};
use crate::layout::{Bitmap, Counted, Layout, Layouts, SlotOnly, Slotted, Sorted};
use crate::shape::FourGroups;
use index::engine::About;
use index::{Keyed, Prefixed, Schema};

/// Schemas of byte strings.
pub trait ByteStrings: Schema<Key = [u8], KeyBuf = Vec<u8>, Value = [u8], ValueBuf = Vec<u8>> {}
impl<S: Schema<Key = [u8], KeyBuf = Vec<u8>, Value = [u8], ValueBuf = Vec<u8>>> ByteStrings for S {}

/// Receives the types of a tree.
pub trait Visitor {
    /// Result of the visit.
    type Out;
    /// Called with the types of a tree. `B` is the schema of byte strings. For 64-bit keys use [`Words`](index::Words) instead.
    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) -> Self::Out;
}

macro_rules! roster {
    (
        production { $($name:literal $lines:tt $bytes:ty, $leaf:ty, $inner:ty, $commit_protocol:ty; $about:literal)* }
        paper { $($paper_name:literal $paper_lines:tt $paper_bytes:ty, $paper_leaf:ty, $paper_inner:ty, $paper_commit_protocol:ty; $paper_about:literal)* }
    ) => {
        /// All trees: the default first, then the others for production, then those of papers.
        pub const TREES: &[About] = &[
            $(roster!(@about $name $lines $leaf, $inner, $commit_protocol; $about),)*
            $(roster!(@about $paper_name $paper_lines $paper_leaf, $paper_inner, $paper_commit_protocol; $paper_about),)*
        ];

        /// Number of trees at the start of [`TREES`] that are for production. A program that needs only these calls [`visit_production`].
        /// Then the others are not compiled into it.
        pub const PRODUCTION: usize = [$($name),*].len();

        /// Calls a visitor with the types of the tree of this name. `None` if there is none.
        pub fn visit<V: Visitor>(name: &str, visitor: V) -> Option<V::Out> {
            let about = TREES.iter().find(|about| about.name == name)?;
            match about.name {
                $($name => Some(visitor.visit::<$bytes, ($leaf, $inner), $commit_protocol>(about)),)*
                $($paper_name => {
                    Some(visitor.visit::<$paper_bytes, ($paper_leaf, $paper_inner), $paper_commit_protocol>(about))
                })*
                _ => None,
            }
        }

        /// As [`visit`], for the production trees only.
        pub fn visit_production<V: Visitor>(name: &str, visitor: V) -> Option<V::Out> {
            let about = TREES[..PRODUCTION].iter().find(|about| about.name == name)?;
            match about.name {
                $($name => Some(visitor.visit::<$bytes, ($leaf, $inner), $commit_protocol>(about)),)*
                _ => None,
            }
        }
    };
    (@about $name:literal $lines:tt $leaf:ty, $inner:ty, $commit_protocol:ty; $about:literal) => {
        About {
            name: $name,
            about: $about,
            leaf: <$leaf as Layout>::NAME,
            inner: <$inner as Layout>::NAME,
            commit_protocol: <$commit_protocol as CommitProtocol>::NAME,
            durable: <$commit_protocol as CommitProtocol>::DURABLE,
            lines: roster!(@lines $lines),
            default_lines: roster!(@default $lines),
        }
    };
    (@lines [$default:literal in $least:literal..=$most:literal]) => { ($least, $most) };
    (@default [$default:literal in $least:literal..=$most:literal]) => { $default };
}

roster! {
    production {
        "wbtree" [16 in 2..=16] Prefixed, Slotted, Slotted, WriteAtomic;
            "wB+-Tree: slot+bitmap nodes, write-atomic; byte strings with an inline 8-byte prefix"
        "wbtree-keyptr" [16 in 2..=16] Keyed, Slotted, Slotted, WriteAtomic;
            "wB+-Tree as in the paper's section 4.6: byte strings by 8-byte key pointer"
    }
    paper {
        "wbtree-bmp" [16 in 2..=16] Prefixed, Bitmap, Slotted, WriteAtomic;
            "wB+-Tree with bitmap-only leaves: fewest writes of the wB+-Trees; a lookup reads every entry of a leaf"
        "wbtree-slot" [2 in 2..=16] Prefixed, SlotOnly, SlotOnly, WriteAtomic;
            "wB+-Tree with slot-only nodes of at most 7 entries"
        "wbtree-line" [8 in 2..=16] Prefixed, Slotted, Slotted, LineOrder;
            "wB+-Tree with two fences a change instead of three: valid bit and slot array share a line, whose stores keep their order"
        "btree-log" [8 in 2..=16] Keyed, Sorted, Sorted, UndoRedo;
            "B+-Tree, every word that changes in an undo-redo log"
        "unsorted-log" [8 in 2..=16] Keyed, Counted, Sorted, UndoRedo;
            "B+-Tree with unsorted leaves and an undo-redo log"
        "ubmp-log" [8 in 2..=16] Keyed, Bitmap, Sorted, UndoRedo;
            "B+-Tree with unsorted leaves under a bitmap and an undo-redo log"
        "btree-shadow" [8 in 2..=16] Keyed, Sorted, Sorted, Shadow;
            "B+-Tree, every change in a copy of its leaf"
        "unsorted-shadow" [8 in 2..=16] Keyed, Counted, Sorted, Shadow;
            "B+-Tree with unsorted leaves, every change in a copy of its leaf"
        "ubmp-shadow" [8 in 2..=16] Keyed, Bitmap, Sorted, Shadow;
            "B+-Tree with unsorted leaves under a bitmap, every change in a copy of its leaf"
        "trad-4k" [64 in 3..=64] Keyed, Sorted<FourGroups>, Sorted<FourGroups>, Redo;
            "VLAB's index B: B+-Tree of 4 KiB nodes with a redo log"
        "trad-4k-shadow" [64 in 3..=64] Keyed, Sorted<FourGroups>, Sorted<FourGroups>, Shadow;
            "VLAB's index A: B+-Tree of 4 KiB nodes, every change in a copy of its leaf"
        "cnt-4k" [64 in 3..=64] Keyed, Counted<FourGroups>, Sorted<FourGroups>, Redo;
            "VLAB's index C: 4 KiB nodes, unsorted leaves with a counter, redo log"
        "bmp-4k" [64 in 3..=64] Keyed, Bitmap<FourGroups>, Sorted<FourGroups>, Redo;
            "VLAB's index D: 4 KiB nodes, unsorted leaves under a bitmap, redo log"
        "wb-4k" [64 in 3..=64] Keyed, Slotted<FourGroups>, Slotted<FourGroups>, Stepwise;
            "VLAB's index E: wB+-Tree of 4 KiB nodes"
        "bmp-all-4k" [64 in 3..=64] Keyed, Bitmap<FourGroups>, Bitmap<FourGroups>, Stepwise;
            "VLAB's index F: 4 KiB nodes under bitmaps throughout, write-atomic"
        "buffer-pool" [16 in 2..=16] Prefixed, Sorted, Sorted, WriteAhead;
            "B+-Tree in the volatile frames of a buffer pool, with a write-ahead log, as in a disk database"
        "btree" [16 in 2..=16] Prefixed, Sorted, Sorted, Volatile;
            "volatile cache-optimised prefetching B+-Tree: nothing survives the process"
    }
}

/// Number of records that a tree's log needs, so that no change of the tree exceeds the log.
pub fn log_records<D: CommitProtocol>(node_lines: u64) -> u64 {
    if node_lines > 16 || D::LOGS_ALL || D::COPIES_LEAVES { 2044 } else { 1024 }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names;

    impl Visitor for Names {
        type Out = (&'static str, &'static str, &'static str, bool);
        fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, _about: &'static About) -> Self::Out {
            (L::Leaf::NAME, L::Inner::NAME, D::NAME, D::DURABLE)
        }
    }

    #[test]
    fn every_name_is_there_once_and_leads_to_the_parts_it_says() {
        for (i, about) in TREES.iter().enumerate() {
            assert!(TREES[..i].iter().all(|other| other.name != about.name), "{} twice", about.name);
            let parts = (about.leaf, about.inner, about.commit_protocol, about.durable);
            assert_eq!(visit(about.name, Names), Some(parts), "{}", about.name);
            assert!(about.allows(about.default_lines), "{}", about.name);
        }
        assert_eq!(visit("no such tree", Names), None);
    }
}
