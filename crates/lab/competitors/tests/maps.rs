//! Every competitor map answers as a `BTreeMap` does, with 64-bit words and with byte strings. Then two threads find
//! all of its pairs, and all pairs that they add are present at the end.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use competitors::maps::{Item, Kind, of_bytes, of_words};

fn equals_the_model<T: Item + ?Sized>(kind: &Kind<T, T>, make: impl Fn(u64) -> T::Owned + Sync) {
    let map = (kind.make)();
    let (mut model, mut random) = (BTreeMap::new(), fastrand::Rng::with_seed(1));
    let mut handle = map.handle();
    for _ in 0..20_000 {
        let (key, value) = (random.u64(..500), random.u64(..1000));
        let mut found = make(0);
        if random.bool() {
            handle.put(T::Owned::borrow(&make(key)), T::Owned::borrow(&make(value)));
            model.insert(key, value);
        }
        let is_there = handle.get(T::Owned::borrow(&make(key)), &mut found);
        assert_eq!(is_there.then_some(found), model.get(&key).map(|value| make(*value)), "{}", kind.name);
    }
    // Other threads see all pairs, and all threads see the pairs that they store.
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (map, model, make) = (&map, &model, &make);
            scope.spawn(move || {
                let mut handle = map.handle();
                for (key, value) in model {
                    let mut found = make(0);
                    assert!(handle.get(T::Owned::borrow(&make(*key)), &mut found));
                    assert_eq!(found, make(*value), "{}", kind.name);
                    let own = make(1000 + key * 2 + thread);
                    handle.put(T::Owned::borrow(&own), T::Owned::borrow(&own));
                }
            });
        }
    });
    for key in model.keys().flat_map(|key| [1000 + key * 2, 1001 + key * 2]) {
        let mut found = make(0);
        assert!(handle.get(T::Owned::borrow(&make(key)), &mut found), "{}", kind.name);
        assert_eq!(found, make(key));
    }
}

#[test]
fn maps_equal_the_model() {
    let (words, strings) = (of_words(), of_bytes());
    assert_eq!((words.len(), strings.len()), (4, 4));
    words.iter().for_each(|kind| equals_the_model(kind, |number| number));
    strings.iter().for_each(|kind| equals_the_model(kind, |number| format!("{number:0120}").into_bytes()));
}
