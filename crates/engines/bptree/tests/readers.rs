//! Readers of large records beside a writer that never pauses: every get and every step of a scan terminates.
//!
//! Copying a record of some megabytes takes longer than the writer's next change. A former defect: a reader retried as long as the writer
//! went on.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use bptree::{Slotted, Tree, TreeOptions, Volatile, WriteAtomic, commit_protocol::CommitProtocol};
use index::Prefixed;
use pmem::{Durability, Native};

const READERS: u64 = 2;
const READS: u64 = 2;

/// Readers read the record under "large", half of them by scan. The writer calls `put` with the number of its round until they are done, at
/// most `rounds` times.
fn beside<D: CommitProtocol>(in_session: bool, rounds: u64, put: impl Fn(u64, &mut dyn FnMut(&[u8], &[u8]))) {
    let medium = Native::anonymous(1 << 30, Durability::Process).unwrap();
    let options = TreeOptions::new("t", 8, Durability::Process);
    let tree = Tree::<_, Prefixed, (Slotted, Slotted), D>::create(medium, &options).unwrap();
    tree.put(b"large", &large(0)).unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (tree, done) = (&tree, &done);
            scope.spawn(move || {
                for _ in 0..READS {
                    let (mut key, mut value) = (Vec::new(), Vec::new());
                    if reader % 2 == 0 {
                        assert!(tree.get(b"large", Some(&mut value)).unwrap());
                    } else {
                        let mut cursor = tree.cursor();
                        cursor.seek(Bound::Included(b"large".to_vec()), false);
                        assert!(cursor.next(&mut key, &mut value).unwrap());
                        assert_eq!(key, b"large");
                    }
                    assert!(value == large(value[0]), "a torn value");
                }
                done.fetch_add(1, Ordering::Release);
            });
        }
        // A thread that always holds the session must not starve readers either.
        let mut session = in_session.then(|| tree.session().unwrap());
        for round in 0..rounds {
            if done.load(Ordering::Acquire) == READERS {
                return;
            }
            put(round, &mut |key, value| match &mut session {
                Some(session) => _ = session.put(key, value).unwrap(),
                None => _ = tree.put(key, value).unwrap(),
            });
        }
        let done = done.load(Ordering::Acquire);
        assert_eq!(done, READERS, "readers that came to an end while the writer made {rounds} rounds");
    });
    assert!(tree.check().problems.is_empty());
}

/// A value so large that no reader finishes while the writer is descheduled.
fn large(byte: u8) -> Vec<u8> {
    vec![byte; 32 << 20]
}

#[test]
fn readers_of_a_large_record_come_to_an_end_beside_changes_of_its_neighbour() {
    let neighbour = |round: u64, put: &mut dyn FnMut(&[u8], &[u8])| put(b"neighbour", &round.to_le_bytes());
    beside::<WriteAtomic>(false, 20_000_000, neighbour);
    beside::<WriteAtomic>(true, 20_000_000, neighbour);
    beside::<Volatile>(false, 20_000_000, neighbour);
}

#[test]
fn readers_of_a_large_record_come_to_an_end_beside_updates_of_itself() {
    let values = [large(1), large(2)];
    beside::<WriteAtomic>(false, 400, |round, put| {
        put(b"large", &values[round as usize % 2]);
        (0..100).for_each(|n: u64| put(b"neighbour", &n.to_le_bytes()));
    });
}

#[test]
fn a_reader_that_holds_the_session_comes_to_an_end() {
    let medium = Native::anonymous(1 << 30, Durability::Process).unwrap();
    let options = TreeOptions::new("t", 8, Durability::Process);
    let tree = Tree::<_, Prefixed, (Slotted, Slotted), WriteAtomic>::create(medium, &options).unwrap();
    let mut session = tree.session().unwrap();
    session.put(b"large", &large(1)).unwrap();
    let mut value = Vec::new();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| tree.get(b"large", Some(&mut Vec::new())).unwrap());
        assert!(tree.get(b"large", Some(&mut value)).unwrap() && other.join().unwrap());
    });
    session.put(b"large", &large(2)).unwrap();
}
