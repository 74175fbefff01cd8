//! concurrent-map: a lock-free B+-tree, with the crate's default fan-out. A get clones the value.

use std::borrow::Borrow;
use std::sync::{Mutex, PoisonError};

use concurrent_map::{ConcurrentMap, Minimum};

use super::{Handle, Item, Kind, Map};

type Own<K, V> = ConcurrentMap<<K as ToOwned>::Owned, <V as ToOwned>::Owned>;

/// Each thread has its own handle. Handles are cloned from this one.
struct Shared<K: Item + ?Sized, V: Item + ?Sized>(Mutex<Own<K, V>>)
where
    K::Owned: Minimum;

pub(super) fn kind<K: Item + ?Sized, V: Item + ?Sized>() -> Kind<K, V>
where
    K::Owned: Minimum,
{
    Kind {
        name: "concurrent-map",
        what: "lock-free B+-tree",
        make: || Box::new(Shared::<K, V>(Mutex::new(ConcurrentMap::new()))),
    }
}

impl<K: Item + ?Sized, V: Item + ?Sized> Map<K, V> for Shared<K, V>
where
    K::Owned: Minimum,
{
    fn handle(&self) -> Box<dyn Handle<K, V> + '_> {
        Box::new(Own::<K, V>::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<K: Item + ?Sized, V: Item + ?Sized> Handle<K, V> for Own<K, V>
where
    K::Owned: Minimum,
{
    fn put(&mut self, key: &K, value: &V) {
        self.insert(key.to_owned(), value.to_owned());
    }

    fn get(&mut self, key: &K, value: &mut V::Owned) -> bool {
        let found = ConcurrentMap::get(self, key);
        found.is_some_and(|found| {
            found.borrow().clone_into(value);
            true
        })
    }
}
