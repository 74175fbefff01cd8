//! The suite `snapshots` for indexes over a list of leaves.

#[path = "snapshots.rs"]
mod snapshots;

use std::ops::Bound;

use crate::common::{Index, Options, Sample, memory, options};
use index::leaf_list::prelude::*;
use index::{Fixed, Keyed, Prefixed, Snapshot, Words, WriteOptions};
use pmem::{Geometry, Medium};
use snapshots::{Make, Next, Subject, borrowed, decide};

const LATER: WriteOptions = WriteOptions { sync: false };

impl<M: Medium, S: Sample> Subject for Index<M, S> {
    fn put(&self, key: &S::KeyBuf, value: &S::ValueBuf) {
        self.put_as(S::borrow(key), S::borrow_value(value), LATER).unwrap();
    }
    fn delete(&self, key: &S::KeyBuf) {
        self.delete_as(S::borrow(key), LATER).unwrap();
    }
    fn update(&self, key: &S::KeyBuf, value: &S::ValueBuf) {
        Writes::update(self, S::borrow(key), |_| decide::<S>(value), LATER).unwrap();
    }
    fn write_many(&self, writes: &[(S::KeyBuf, Option<S::ValueBuf>)]) {
        self.write_many_as(&borrowed::<S>(writes), LATER).unwrap();
    }
    fn append(&self, key: &S::KeyBuf, value: &S::ValueBuf) {
        self.bulk_load([(S::borrow(key), S::borrow_value(value))]).unwrap();
    }
    fn clear(&self) {
        Writes::clear(self).unwrap();
    }
    fn with_cursor<R>(
        &self,
        snapshot: Option<&Snapshot<'_, Self>>,
        place: Option<(Bound<S::KeyBuf>, bool)>,
        run: impl FnOnce(&mut Next<'_, S>) -> R,
    ) -> R {
        let mut cursor = match snapshot {
            Some(snapshot) => Self::cursor_of(snapshot),
            None => LeafList::cursor(self),
        };
        if let Some((from, descending)) = place {
            cursor.seek(from, descending);
        }
        run(&mut |key, value| cursor.next(key, value))
    }
}

fn make<M: Medium, S: Sample>() -> Make<Index<M, S>> {
    Make { key: |n| S::key(n as u32), value: |n| S::value(n as u32) }
}

fn index<S: Sample>(lines: u64) -> Index<impl Medium, S> {
    Index::create(memory(256 << 20).0, &options::<S>(lines, false)).unwrap()
}

#[test]
fn snapshots_equal_the_model_at_their_time() {
    for seed in 0..6 {
        snapshots::snapshots_equal_the_model(&index::<Words>(2), &make(), seed, 3000, 120);
        snapshots::snapshots_equal_the_model(&index::<Keyed>(3), &make(), seed, 3000, 120);
        snapshots::snapshots_equal_the_model(&index::<Prefixed>(9), &make(), seed, 3000, 300);
        snapshots::snapshots_equal_the_model(&index::<Fixed>(5), &make(), seed, 3000, 300);
    }
}

#[test]
fn memory_for_before_images_is_bounded() {
    snapshots::the_oldest_snapshot_fails_at_the_bound(&index::<Words>(9), &make());
    snapshots::the_oldest_snapshot_fails_at_the_bound(&index::<Keyed>(9), &make());
    snapshots::an_idle_cursor_pins_bounded_memory(&index::<Words>(9), &make());
    snapshots::an_idle_cursor_pins_bounded_memory(&index::<Keyed>(9), &make());
    let large = Options { geometry: Geometry::default(), ..options::<Words>(9, false) };
    let index = Index::<_, Words>::create(memory(256 << 20).0, &large).unwrap();
    snapshots::a_scan_copies_no_more_of_a_batch_than_it_gives(&index, &make(), 20_000);
}
