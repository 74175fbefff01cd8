//! An index that was opened and does not have all leaves in its directory yet, against an ordered map.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use crate::form;
use index::engine::Count;
use index::leaf_list::LeafList;
use index::leaf_list::prelude::*;
use index::{Create, Keyed, Kind, Schema, SchemaOf, Words, kind};
use line::Line;
use pmem::{Counter, Memory, Observed};

type Of<S> = Line<Observed, S>;

fn opened<S: Schema>(medium: &Observed) -> Of<S> {
    Line::open(medium.clone(), Path::new("memory"), &form(2)).unwrap().0
}

/// Random operations beside a loading of `left` steps.
fn equals_a_map<K: Kind, S>(key: impl Fn(u32) -> S::KeyBuf, value: fn(u32) -> S::ValueBuf)
where
    S: SchemaOf<K> + Schema<KeyBuf: Ord, ValueBuf: PartialEq>,
{
    const KEYS: u32 = 12_000;
    let medium = Observed::new(Memory::new(64 << 20, 0), std::sync::Arc::new(Counter::default()));
    let mut model = BTreeMap::new();
    let index: Of<S> = Line::create(medium.clone(), &form(2)).unwrap();
    for n in (0..KEYS).filter(|n| n % 3 != 0) {
        index.put(S::borrow(&key(n)), S::borrow_value(&value(n))).unwrap();
        model.insert(key(n), value(n));
    }
    let mut rng = fastrand::Rng::with_seed(5);
    for round in 0..4 {
        // Every second time a crash, after which the keys are counted, too.
        if round == 0 {
            index.close().unwrap();
        }
        let index: Of<S> = opened(&medium);
        let counted = |index: &Of<S>| -> Count { index::Index::<K>::len(index) };
        assert!(index.is_loading(), "round {round}: everything was loaded by the open");
        assert_eq!(counted(&index).pending, index.is_loading());
        let mut steps = 0;
        while index.is_loading() {
            for _ in 0..40 {
                let one = key(rng.u32(..KEYS));
                match rng.u32(..4) {
                    0 => {
                        let was = model.insert(one.clone(), value(steps)).is_some();
                        assert_eq!(index.put(S::borrow(&one), S::borrow_value(&value(steps))).unwrap(), was);
                    }
                    1 => assert_eq!(index.delete(S::borrow(&one)).unwrap(), model.remove(&one).is_some()),
                    _ => {
                        let mut got = S::ValueBuf::default();
                        let found = index.get(S::borrow(&one), Some(&mut got)).unwrap();
                        assert_eq!(found.then_some(&got), model.get(&one), "round {round}, step {steps}");
                    }
                }
            }
            let (from, mut cursor) = (key(rng.u32(..KEYS)), index.cursor());
            for descending in [false, true] {
                cursor.seek(Bound::Included(from.clone()), descending);
                let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
                let mut up = model.range(from.clone()..).take(60);
                let mut down = model.range(..=from.clone()).rev().take(60);
                while let Some((expected, of_key)) = if descending { down.next() } else { up.next() } {
                    assert!(cursor.next(&mut key, &mut value).unwrap());
                    assert!(key == *expected && value == *of_key, "round {round}, step {steps}");
                }
            }
            index.load_some().unwrap();
            steps += 1;
        }
        assert!(steps > 1, "{steps} steps");
        assert_eq!(counted(&index).keys, model.len() as u64, "round {round}");
        let report = index.check();
        assert!(report.problems.is_empty(), "round {round}: {:?}", report.problems);
        if round % 2 == 1 {
            index.close().unwrap();
        }
    }
    // A close before the end of the count leaves the number unknown.
    drop(opened::<S>(&medium));
    let index: Of<S> = opened(&medium);
    index.close().unwrap();
    let index: Of<S> = opened(&medium);
    index::Index::<K>::count_all(&index).unwrap();
    assert_eq!(index::Index::<K>::len(&index), Count { keys: model.len() as u64, pending: false });
}

#[test]
fn words_equal_a_map_while_their_index_is_loading() {
    equals_a_map::<kind::U64, Words>(|n| u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15), u64::from);
}

#[test]
fn byte_strings_equal_a_map_while_their_index_is_loading() {
    equals_a_map::<kind::Bytes, Keyed>(|n| format!("user:{n:09}").into_bytes(), |n| n.to_le_bytes().to_vec());
}
