//! crossbeam-skiplist: a lock-free skip list.

use std::borrow::Borrow;

use crossbeam_skiplist::SkipMap;

use super::{Handle, Item, Kind, Map};

type Own<K, V> = SkipMap<<K as ToOwned>::Owned, <V as ToOwned>::Owned>;

pub(super) fn kind<K: Item + ?Sized, V: Item + ?Sized>() -> Kind<K, V> {
    Kind { name: "skip list", what: "crossbeam's, lock-free", make: || Box::new(Own::<K, V>::new()) }
}

impl<K: Item + ?Sized, V: Item + ?Sized> Map<K, V> for Own<K, V> {
    fn handle(&self) -> Box<dyn Handle<K, V> + '_> {
        Box::new(self)
    }
}

impl<K: Item + ?Sized, V: Item + ?Sized> Handle<K, V> for &Own<K, V> {
    fn put(&mut self, key: &K, value: &V) {
        self.insert(key.to_owned(), value.to_owned());
    }

    fn get(&mut self, key: &K, value: &mut V::Owned) -> bool {
        let found = SkipMap::get(self, key);
        found.is_some_and(|found| {
            found.value().borrow().clone_into(value);
            true
        })
    }
}
