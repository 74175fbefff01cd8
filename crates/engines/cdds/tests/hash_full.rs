//! A medium that cannot grow: writes without space are refused, and no data is lost.

use std::sync::Arc;

use crate::common::{Sample, write_many};
use crate::hash_common::{Map, open, options, pairs};
use cdds::Recovery;
use cdds::hash::Table;
use index::{Keyed, Words};
use pmem::{Counter, Error, Memory, Observed};

fn observed(memory: &Arc<Memory>) -> Observed {
    Observed::new(Arc::clone(memory), Arc::new(Counter::default()))
}

/// Fills media of different sizes. Acknowledged writes are present, refused writes are not. Deletes make space again.
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
