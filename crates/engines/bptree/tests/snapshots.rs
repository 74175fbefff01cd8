//! The suite `snapshots` for trees: each layout and commit protocol, both kinds of keys.
//!
//! Tests of the bound of a snapshot's memory, and of scans beside batches, run on the default tree only, because the crate `index` does
//! this work for all trees.

#[path = "../../../index/tests/shared/snapshots.rs"]
mod shared;

use std::ops::Bound;
use std::sync::Arc;

use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layouts;
use bptree::roster::{self, ByteStrings, TREES, Visitor};
use bptree::{Slotted, Tree, TreeOptions, WriteAtomic};
use index::About;
use index::{Prefixed, Schema, Snapshot, Words, WriteOptions};
use pmem::{Counter, Durability, Durable, Medium, Memory, Native, Observed};
use shared::{Make, Next, Subject, borrowed, decide};

use crate::streams::{Sample, options, seed};

const LATER: WriteOptions = WriteOptions { sync: false };

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Subject for Tree<M, S, L, D> {
    fn put(&self, key: &S::KeyBuf, value: &S::ValueBuf) {
        self.put_as(S::borrow(key), S::borrow_value(value), LATER).unwrap();
    }
    fn delete(&self, key: &S::KeyBuf) {
        self.delete_as(S::borrow(key), LATER).unwrap();
    }
    fn update(&self, key: &S::KeyBuf, value: &S::ValueBuf) {
        Tree::update(self, S::borrow(key), |_| decide::<S>(value), LATER).unwrap();
    }
    fn write_many(&self, writes: &[(S::KeyBuf, Option<S::ValueBuf>)]) {
        Tree::write_many(self, &borrowed::<S>(writes), LATER).unwrap();
    }
    fn append(&self, key: &S::KeyBuf, value: &S::ValueBuf) {
        self.bulk_load([(S::borrow(key), S::borrow_value(value))], 1.0).unwrap();
    }
    fn clear(&self) {
        Tree::clear(self).unwrap();
    }
    fn with_cursor<R>(
        &self,
        snapshot: Option<&Snapshot<'_, Self>>,
        place: Option<(Bound<S::KeyBuf>, bool)>,
        run: impl FnOnce(&mut Next<'_, S>) -> R,
    ) -> R {
        let mut cursor = snapshot.map_or_else(|| self.cursor(), Self::cursor_of);
        if let Some((from, descending)) = place {
            cursor.seek(from, descending);
        }
        run(&mut |key, value| cursor.next(key, value))
    }
}

fn make<M: Medium, S: Sample, L: Layouts, D: CommitProtocol>() -> Make<Tree<M, S, L, D>> {
    Make { key: S::key, value: |n| S::value(n, 1) }
}

struct Models;

impl Visitor for Models {
    type Out = usize;

    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) -> usize {
        for lines in [2, 3, 4, 8, 16].into_iter().filter(|lines| about.allows(*lines)).take(3) {
            let medium = || Observed::new(Memory::new(16 << 20, 0), Arc::new(Counter::default()));
            let options = options::<D>(lines);
            let words = Tree::<_, Words, L, D>::create(medium(), &options).unwrap();
            shared::snapshots_equal_the_model(&words, &make(), seed(lines), 2000, 150);
            let strings = Tree::<_, B, L, D>::create(medium(), &options).unwrap();
            shared::snapshots_equal_the_model(&strings, &make(), seed(lines), 2000, 150);
        }
        1
    }
}

#[test]
fn snapshots_of_all_trees_equal_the_model_at_their_time() {
    let visited: usize = TREES.iter().filter_map(|about| roster::visit(about.name, Models)).sum();
    assert_eq!(visited, TREES.len());
}

fn tree<S: Sample>() -> Tree<impl Medium, S, (Slotted, Slotted), WriteAtomic> {
    let medium = Durable::from(Native::anonymous(1 << 30, Durability::Process).unwrap());
    Tree::create(medium, &TreeOptions::new("t", 8, Durability::Process)).unwrap()
}

#[test]
fn memory_for_before_images_is_bounded() {
    let plain = Make { key: |n| n, value: |n| n };
    shared::the_oldest_snapshot_fails_at_the_bound(&tree::<Words>(), &plain);
    shared::an_idle_cursor_pins_bounded_memory(&tree::<Words>(), &plain);
    let strings =
        || Make { key: |n: u64| format!("{n:08}").into_bytes(), value: |n: u64| n.to_le_bytes().to_vec() };
    shared::the_oldest_snapshot_fails_at_the_bound(&tree::<Prefixed>(), &strings());
    shared::an_idle_cursor_pins_bounded_memory(&tree::<Prefixed>(), &strings());
}

#[test]
fn a_scan_beside_a_batch_of_100_000_keys_copies_what_it_gives() {
    let plain = Make { key: |n| n, value: |n| n };
    shared::a_scan_copies_no_more_of_a_batch_than_it_gives(&tree::<Words>(), &plain, 100_000);
}
