//! What is wrong with a region is an error, and nothing panics or runs for ever: words of it that hold anything, and a medium that
//! cannot grow.

use std::path::Path;
use std::sync::Arc;

use crate::common::{Sample, memory, write_many};
use crate::hash_common::{Map, open, options, pairs};
use cdds::Recovery;
use cdds::hash::Table;
use index::{Keyed, Life, Words};
use pmem::{Counter, Error, Memory, Observed};

fn observed(memory: &Arc<Memory>) -> Observed {
    Observed::new(Arc::clone(memory), Arc::new(Counter::default()))
}

/// Everything that a table does, whatever comes of it.
fn use_it<S: Sample>(table: &Table<Observed, S>, keys: u32) {
    let mut value = S::ValueBuf::default();
    _ = table.check();
    _ = table.each(|_, _| true);
    let mark = table.mark();
    for n in 0..keys {
        let key = S::key(n);
        _ = table.get(S::borrow(&key), Some(&mut value));
        _ = table.put(S::borrow(&key), S::borrow_value(&S::value(n)));
    }
    _ = write_many(table, &[(S::key(1), None), (S::key(2), Some(S::value(2)))]);
    _ = table.collect_some(3);
    _ = table.roll_back(&mark);
    drop(mark);
    for n in 0..keys {
        _ = table.delete(S::borrow(&S::key(n)));
    }
    _ = table.collect_all();
    _ = table.check();
    _ = table.close();
}

fn damage<S: Sample>(seed: u64, rounds: usize) {
    const KEYS: u32 = 60;
    let mut rng = fastrand::Rng::with_seed(seed);
    let (medium, _) = memory(256 << 10);
    let table = Table::<Observed, S>::create(medium.clone(), &options(2)).unwrap();
    for n in 0..KEYS {
        table.put(S::borrow(&S::key(n)), S::borrow_value(&S::value(n))).unwrap();
    }
    let mark = table.mark();
    for n in 0..KEYS / 2 {
        table.delete(S::borrow(&S::key(n))).unwrap();
    }
    table.roll_back(&mark).unwrap();
    drop((mark, table));
    let whole = medium.memory();
    let words: Vec<u64> = (0..whole.len()).step_by(8).map(|at| whole.peek(at)).collect();
    let used: Vec<usize> = (0..words.len()).filter(|n| words[*n] != 0).collect();
    let (mut opened, mut reported) = (0, 0);
    for round in 0..rounds {
        let copy = Memory::new(512 << 10, whole.len());
        words.iter().enumerate().for_each(|(n, word)| copy.poke(n as u64 * 8, *word));
        for _ in 0..rng.usize(1..4) {
            let at = used[rng.usize(..used.len())] as u64 * 8;
            let other = words[used[rng.usize(..used.len())]];
            copy.poke(
                at,
                match rng.u32(..5) {
                    0 => 0,
                    1 => other,
                    2 => copy.peek(at) ^ 1 << rng.u32(..64),
                    3 => copy.peek(at).wrapping_add(rng.u64(..129)),
                    _ => rng.u64(..),
                },
            );
        }
        let recovery = if round % 2 == 0 { Recovery::Lazy } else { Recovery::Scan };
        if let Ok((table, _)) =
            Table::<Observed, S>::open(observed(&copy), Path::new("memory"), &options(2), recovery)
        {
            opened += 1;
            reported += u32::from(!table.check().problems.is_empty());
            use_it(&table, KEYS);
        }
    }
    println!("{opened} of {rounds} opened, {reported} with problems");
    assert!(opened > rounds as u32 / 4 && reported > rounds as u32 / 10);
}

#[test]
fn words_of_a_region_may_hold_anything() {
    damage::<Words>(1, 3000);
    damage::<Keyed>(2, 3000);
}

/// Fills a medium of every size: what is acknowledged is there, what is refused is not; deletes make room again.
fn fill<S: Sample>() {
    for kilobytes in (40..120).step_by(4) {
        let memory = Memory::new(kilobytes << 10, 0);
        let table = match Table::<Observed, S>::create(observed(&memory), &options(2)) {
            Ok(table) => table,
            Err(error) => {
                assert!(matches!(error, Error::Full { .. }), "{error}");
                continue;
            }
        };
        let mut map = Map::<S>::new();
        let mut refused = 0;
        for n in 0..4000 {
            let writes: Vec<_> = (n..n + n % 4 + 1).map(|n| (S::key(n), Some(S::value(n % 300)))).collect();
            match write_many(&table, &writes) {
                Ok(_) => map.extend(writes.into_iter().map(|(key, value)| (key, value.unwrap()))),
                Err(error) => {
                    assert!(matches!(error, Error::Full { .. }), "{error}");
                    refused += 1;
                }
            }
            if refused > 5 {
                break;
            }
        }
        assert!(refused > 0);
        assert_eq!(table.check().problems, Vec::<String>::new());
        assert!(pairs(&mut table.pairs()) == map);
        drop(table);
        let table = open::<S>(&observed(&memory), 2, Recovery::Lazy);
        assert_eq!(table.check().problems, Vec::<String>::new());
        assert!(pairs(&mut table.pairs()) == map);
        for key in map.keys() {
            assert!(table.delete(S::borrow(key)).unwrap());
        }
        table.collect_all().unwrap();
        assert_eq!((table.check().problems, table.len()), (Vec::new(), 0));
        for n in 0..map.len() as u32 / 2 {
            table.put(S::borrow(&S::key(n)), S::borrow_value(&S::value(n % 300))).unwrap();
        }
        assert_eq!(table.check().problems, Vec::<String>::new());
    }
}

#[test]
fn a_full_medium_refuses_and_loses_nothing() {
    fill::<Words>();
    fill::<Keyed>();
}
