//! The suite `sparse` for the default tree.

#[path = "../../../index/tests/shared/sparse.rs"]
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::engine::Of;
use bptree::{Slotted, Tree, TreeOptions, WriteAtomic};
use index::Prefixed;
use pmem::alloc::Kind;
use pmem::{Durability, Event, Geometry, Medium, Memory, Observed, Observer};

#[test]
fn random_deletes_leave_space_for_records_of_another_size() {
    let subject = Of::<Prefixed, _>::new(TreeOptions::new("sparse", 16, Durability::Process));
    shared::random_deletes_leave_space_for_records_of_another_size(&subject);
}

/// Counts the words of discarded chunks.
#[derive(Default)]
struct Discards(AtomicU64);

impl Observer for Discards {
    fn follows_discards(&self) -> bool {
        true
    }
    fn event(&self, event: Event) {
        let Event::Store { site, .. } = event else { return };
        self.0.fetch_add(u64::from(site.file().ends_with("alloc/supply.rs")), Ordering::Relaxed);
    }
}

/// The workload of the crash explorer's `a_crash_while_records_leave_sparse_chunks_loses_none`, in its geometry: it discards and reuses
/// chunks.
#[test]
fn in_small_chunks_a_few_writes_move_records_and_discard_chunks() {
    let discards = Arc::new(Discards::default());
    let medium = Observed::new(Memory::new(256 << 10, 0), Arc::clone(&discards) as Arc<dyn Observer>);
    let geometry = Geometry::tiny();
    let options = TreeOptions { geometry, ..TreeOptions::new("sparse", 4, Durability::Power) };
    let tree: Tree<Observed, Prefixed, (Slotted, Slotted), WriteAtomic> =
        Tree::create(medium.clone(), &options).unwrap();
    let key = |number: u32| format!("key{number:06}").into_bytes();
    for number in 1..=36 {
        tree.put(&key(number), &[number as u8; 900]).unwrap();
    }
    for number in (1..=32).filter(|number| number % 4 != 0) {
        tree.delete(&key(number)).unwrap();
    }
    let chunks_of_records = || {
        let chunks = pmem::alloc::chunks(tree.region());
        chunks
            .filter(|(_, class)| class.is_ok_and(|class| class.is_some_and(|c| c.kind == Kind::Record)))
            .count()
    };
    assert_eq!(chunks_of_records(), 9);
    for number in [3, 7, 11, 15] {
        tree.put(&key(number), &[number as u8; 600]).unwrap();
    }
    // Twelve records of 900 bytes, four per chunk, and four of 600.
    assert!(chunks_of_records() <= 5, "{} chunks", chunks_of_records());
    assert!(discards.0.load(Ordering::Relaxed) > 0, "no chunk was discarded");
    let len = medium.len();
    for number in 40..48 {
        tree.put(&key(number), &[number as u8; 1800]).unwrap();
    }
    assert_eq!(medium.len(), len, "free chunks were used again");
    assert_eq!(tree.check().problems, Vec::<String>::new());
    for number in (4..=32).step_by(4) {
        let mut value = Vec::new();
        assert!(tree.get(&key(number), Some(&mut value)).unwrap() && value == [number as u8; 900]);
    }
}
