//! The default tree against `BTreeMap`, and refused operations.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bptree::roster::{TREES, Visitor};
use bptree::shape::FourGroups;
use bptree::{Redo, Slotted, Sorted, Tree, TreeOptions, WriteAtomic};
use index::{Fixed, Life, Prefixed, Words};
use pmem::{Counter, Durability, Durable, Found, Memory, Native, Observed};

use crate::streams::{Streams, assert_same, options, payload, run, seed, text};

#[test]
fn the_default_tree_equals_the_model() {
    Streams.visit::<Prefixed, (Slotted, Slotted), WriteAtomic>(&TREES[0]);
}

#[test]
fn a_bulk_load_equals_single_inserts_and_refuses_keys_out_of_order() {
    let medium = Durable::from(Native::anonymous(1 << 28, Durability::Power).unwrap());
    let tree = Tree::<_, Prefixed, (Slotted, Slotted), WriteAtomic>::create(
        medium,
        &TreeOptions::new("t", 8, Durability::Power),
    )
    .unwrap();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = (0..5000).map(|n| (text(n), payload(n))).collect();
    let pairs = model.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
    assert_eq!(tree.bulk_load(pairs, 0.7).unwrap(), model.len() as u64);
    assert_same(&tree, &model, 0);
    let error = tree.bulk_load([(b"0".as_slice(), b"".as_slice())], 0.7).unwrap_err();
    assert!(matches!(error, pmem::Error::Order { loaded: 0 }), "{error}");
    run(&tree, &mut model, 6000, 5000, seed(3));
}

#[test]
fn nodes_of_too_few_entries_are_refused() {
    // Entries of 128 bytes: three lines hold one, six lines two, eight lines three.
    for (lines, enough) in [(3, false), (6, false), (8, true)] {
        let medium = Observed::new(Memory::new(1 << 20, 0), Arc::new(Counter::default()));
        type Parts = (Sorted<FourGroups>, Sorted<FourGroups>);
        let options = TreeOptions { payload_words: 15, ..options::<Redo>(lines) };
        let made = Tree::<_, Fixed, Parts, Redo>::create(medium, &options);
        match made {
            Ok(_) => assert!(enough, "{lines} lines"),
            Err(error) => assert!(!enough && error.to_string().contains("take more lines"), "{error}"),
        }
    }
}

#[test]
fn a_value_of_another_length_is_refused_and_changes_nothing() {
    type Parts = (Slotted<FourGroups>, Slotted<FourGroups>);
    let medium = Observed::new(Memory::new(1 << 20, 0), Arc::new(Counter::default()));
    let options = TreeOptions { payload_words: 3, ..options::<WriteAtomic>(10) };
    let tree = Tree::<_, Fixed, Parts, WriteAtomic>::create(medium, &options).unwrap();
    tree.put(&1, &[1; 24]).unwrap();
    for bytes in [0, 8, 23, 25, 32, 120] {
        let error = tree.put(&1, &vec![2; bytes]).unwrap_err();
        assert!(matches!(error, pmem::Error::ValueBytes { given, takes: 24 } if given == bytes), "{error}");
        assert!(tree.bulk_load([(&2, [2; 24].as_slice()), (&3, &vec![2; bytes])], 1.0).is_err());
        assert!(tree.delete(&2).unwrap(), "what came before the refused pair stays");
    }
    let mut value = Vec::new();
    assert!(tree.get(&1, Some(&mut value)).unwrap());
    assert_eq!((value, tree.len()), (vec![1; 24], (1, false)));
}

#[test]
fn two_threads_that_finish_a_pending_count_together_count_each_key_once() {
    // A former defect: the thread that waited for the lock while the other one finished restarted the count.
    for _ in 0..50 {
        let memory = Memory::new(1 << 20, 0);
        let medium = || Observed::new(Arc::clone(&memory), Arc::new(Counter::default()));
        let tree =
            Tree::<_, Words, (Slotted, Slotted), WriteAtomic>::create(medium(), &options::<WriteAtomic>(4))
                .unwrap();
        for key in 0..1000 {
            tree.put(&key, &key).unwrap();
        }
        drop(tree);
        let open = Tree::<_, Words, (Slotted, Slotted), WriteAtomic>::open;
        let (tree, _) = open(medium(), Path::new("memory"), "t", Durability::Power, 1024).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| while tree.count_some(64).unwrap() {});
            }
        });
        assert_eq!(tree.len(), (1000, false));
    }
}

/// A former defect: a close after a crash counted all keys before it returned.
#[test]
fn a_close_does_not_wait_for_the_count_and_the_next_open_goes_on_with_it() {
    const KEYS: u64 = 70_000;
    let memory = Memory::new(16 << 20, 0);
    let medium = || Observed::new(Arc::clone(&memory), Arc::new(Counter::default()));
    type T = Tree<Observed, Words, (Slotted, Slotted), WriteAtomic>;
    let open = || T::open(medium(), Path::new("memory"), "t", Durability::Power, 1024).unwrap();
    let tree = T::create(medium(), &options::<WriteAtomic>(4)).unwrap();
    for key in 0..KEYS {
        tree.put(&key, &key).unwrap();
    }
    drop(tree);
    let (tree, found) = open();
    assert_eq!(found, Found::InUse);
    assert!(tree.count_some(100).unwrap());
    tree.close().unwrap();
    let (counted, pending) = tree.len();
    assert!(counted < KEYS && pending, "{counted} were counted");
    drop(tree);
    let (tree, found) = open();
    assert!(matches!(found, Found::Clean { .. }) && tree.len() == (0, true), "{found:?}");
    assert!(tree.count_some(300).unwrap());
    assert!(tree.delete(&5).unwrap() && tree.delete(&900).unwrap());
    assert!(!tree.put(&(KEYS + 5), &1).unwrap());
    while tree.count_some(3000).unwrap() {}
    assert_eq!(tree.len(), (KEYS - 1, false));
    tree.close().unwrap();
    assert_eq!(open().1, Found::Clean { keys: KEYS - 1 });
}
