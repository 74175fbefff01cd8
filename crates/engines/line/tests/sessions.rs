//! Sessions: the writer's lock held over several changes ([`Index::session`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use index::engine::Index;
use index::kind::U64;
use index::{Create, Words, WriteOptions};
use line::Line;
use pmem::{Counter, Error, Observed};

use crate::{counted, form, observed_of};

type AnyIndex = dyn Index<U64>;

#[test]
fn changes_in_a_session_are_as_in_a_map_beside_a_reader() {
    let (index, _) = counted::<Words>(8);
    let index: &AnyIndex = &index;
    // Keys that no session changes.
    let kept: Vec<u64> = (0..1000).map(|n| n << 50 | 1).collect();
    for key in &kept {
        index.put(key, &!key, WriteOptions::default()).unwrap();
    }
    let (mut model, mut random) = (BTreeMap::new(), fastrand::Rng::with_seed(7));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut reads, mut value) = (0, 0);
            while !ended.load(Ordering::Relaxed) || reads == 0 {
                for key in &kept {
                    assert!(index.get(key, Some(&mut value)).unwrap());
                    assert_eq!(value, !key);
                    reads += 1;
                }
            }
        });
        for _ in 0..20 {
            let mut session = index.session().unwrap().expect("this engine has sessions");
            for step in 0..1000 {
                let key = random.u64(..1 << 12) << 48 | 2;
                let (was, expected) = if random.u8(..3) > 0 {
                    (session.put(&key, &step).unwrap(), model.insert(key, step).is_some())
                } else {
                    (session.delete(&key).unwrap(), model.remove(&key).is_some())
                };
                assert_eq!(was, expected, "step {step}");
            }
        }
        ended.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    for (key, expected) in &model {
        let mut value = 0;
        assert!(index.get(key, Some(&mut value)).unwrap());
        assert_eq!(value, *expected);
    }
    assert_eq!(index.len().keys, (kept.len() + model.len()) as u64);
    assert!(index.check().problems.is_empty());
}

#[test]
fn a_change_in_a_session_costs_what_it_costs_alone() {
    let (index, counter) = counted::<Words>(8);
    let index: &AnyIndex = &index;
    let cost = |counter: &Counter, change: &mut dyn FnMut()| {
        counter.take();
        change();
        let counts = counter.take();
        (counts.words, counts.flushes, counts.fences_total())
    };
    // The first put splits the only leaf.
    index.put(&0, &0, WriteOptions::default()).unwrap();
    let mut session = index.session().unwrap().unwrap();
    assert_eq!(cost(&counter, &mut || assert!(!session.put(&5, &1).unwrap())), (2, 1, 1));
    assert_eq!(cost(&counter, &mut || assert!(session.put(&5, &2).unwrap())), (1, 1, 1));
    assert_eq!(cost(&counter, &mut || assert!(session.delete(&5).unwrap())), (1, 1, 1));
}

#[test]
fn a_snapshot_does_not_see_a_session_and_a_session_ends_when_writes_are_refused() {
    let (index, _) = counted::<Words>(8);
    let index: &AnyIndex = &index;
    index.put(&1, &1, WriteOptions::default()).unwrap();
    let before = index.snapshot().unwrap();
    let mut session = index.session().unwrap().unwrap();
    session.put(&1, &2).unwrap();
    session.put(&2, &2).unwrap();
    let mut value = 0;
    assert!(before.get(&1, &mut value).unwrap());
    assert_eq!(value, 1);
    assert!(!before.get(&2, &mut value).unwrap());
    assert!(index.get(&1, Some(&mut value)).unwrap());
    assert_eq!(value, 2);
    index.refuse_writes();
    assert!(matches!(session.put(&3, &3), Err(Error::ReadOnly)));
    assert!(matches!(session.delete(&1), Err(Error::ReadOnly)));
}

#[test]
fn a_session_frees_the_garbage_of_a_clear_when_it_lacks_space() {
    let (medium, _) = observed_of(4 << 20);
    let index = Line::<Observed, Words>::create(medium, &form(8)).unwrap();
    let index: &AnyIndex = &index;
    let fill = |from: u64| {
        let mut session = index.session().unwrap().unwrap();
        let mut put = |n: u64| session.put(&(from + n).wrapping_mul(0x9E37_79B9_7F4A_7C15), &n);
        let mut keys = 0;
        loop {
            match put(keys) {
                Ok(_) => keys += 1,
                Err(Error::Full { .. } | Error::NoSpace { .. }) => return keys,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let first = fill(1);
    assert!(first > 10_000, "{first}");
    index.clear().unwrap();
    assert_eq!(index.len().keys, 0);
    let second = fill(first + 1);
    assert!(second * 10 > first * 9, "{second} of {first}");
    assert!(index.check().problems.is_empty());
}

#[test]
fn a_panic_of_the_caller_between_two_changes_does_not_end_writes() {
    let (index, _) = counted::<Words>(8);
    let index: &AnyIndex = &index;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut session = index.session().unwrap().unwrap();
        session.put(&1, &1).unwrap();
        panic!("the caller's");
    }));
    assert!(panicked.is_err());
    assert!(index.put(&1, &2, WriteOptions::default()).unwrap());
    assert!(index.session().unwrap().unwrap().delete(&1).unwrap());
}

#[test]
fn a_batch_that_splits_leaves_writes_each_of_its_keys_to_the_right_leaf() {
    let (index, _) = counted::<Words>(8);
    let index: &AnyIndex = &index;
    for round in 0..8_u64 {
        // Its first writes split leaves that it has found for later ones.
        let keys: Vec<u64> = (0..600).map(|n| n << 40 | round).collect();
        let writes: Vec<_> = keys.iter().map(|key| (*key, Some(!key))).collect();
        assert!(index.batch(writes, &[], WriteOptions::default()).unwrap());
        let mut value = 0;
        for key in &keys {
            assert!(index.get(key, Some(&mut value)).unwrap(), "{key:x} of round {round}");
            assert_eq!(value, !key);
        }
    }
    assert_eq!(index.len().keys, 8 * 600);
    assert!(index.check().problems.is_empty());
}
