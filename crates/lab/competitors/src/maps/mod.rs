//! Ordered maps in memory that threads share: nothing survives the process.
//!
//! [`Map`] is a map, [`Handle`] a thread's way to it. Keys and values are 64-bit words or byte strings; every map copies what it is given
//! and copies out what it is asked for, so that all do the same work. std's is here in any case, the others with the feature `maps`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{PoisonError, RwLock};

#[cfg(feature = "maps")]
mod concurrent;
#[cfg(feature = "maps")]
mod scc;
#[cfg(feature = "maps")]
mod skiplist;

/// What can be a key or a value.
pub trait Item:
    ToOwned<Owned: Ord + Clone + Debug + Default + Send + Sync + 'static> + Ord + Sync + 'static
{
}
impl Item for u64 {}
impl Item for [u8] {}

/// A map in use.
pub trait Map<K: Item + ?Sized, V: Item + ?Sized>: Send + Sync {
    /// What one thread needs.
    fn handle(&self) -> Box<dyn Handle<K, V> + '_>;
}

/// A thread's way to a map.
pub trait Handle<K: Item + ?Sized, V: Item + ?Sized> {
    /// Stores a value.
    fn put(&mut self, key: &K, value: &V);
    /// Copies a value into a buffer, which it replaces; false if there is none.
    fn get(&mut self, key: &K, value: &mut V::Owned) -> bool;
}

/// A kind of map.
pub struct Kind<K: Item + ?Sized, V: Item + ?Sized> {
    /// Name in tables.
    pub name: &'static str,
    /// What it is, in words.
    pub what: &'static str,
    /// Makes an empty one.
    pub make: fn() -> Box<dyn Map<K, V>>,
}

/// std's map behind a lock for readers and writers.
type Locked<K, V> = RwLock<BTreeMap<<K as ToOwned>::Owned, <V as ToOwned>::Owned>>;

impl<K: Item + ?Sized, V: Item + ?Sized> Map<K, V> for Locked<K, V> {
    fn handle(&self) -> Box<dyn Handle<K, V> + '_> {
        Box::new(self)
    }
}

impl<K: Item + ?Sized, V: Item + ?Sized> Handle<K, V> for &Locked<K, V> {
    fn put(&mut self, key: &K, value: &V) {
        self.write().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), value.to_owned());
    }

    fn get(&mut self, key: &K, value: &mut V::Owned) -> bool {
        use std::borrow::Borrow;
        let map = self.read().unwrap_or_else(PoisonError::into_inner);
        let found = map.get(key);
        found.is_some_and(|found| {
            found.borrow().clone_into(value);
            true
        })
    }
}

/// A kind of std's map.
fn locked<K: Item + ?Sized, V: Item + ?Sized>() -> Kind<K, V> {
    Kind {
        name: "BTreeMap",
        what: "std's B-tree under a reader-writer lock",
        make: || Box::new(Locked::<K, V>::default()),
    }
}

/// The maps from words to words that were built, std's first.
pub fn of_words() -> Vec<Kind<u64, u64>> {
    vec![
        locked(),
        #[cfg(feature = "maps")]
        concurrent::kind(),
        #[cfg(feature = "maps")]
        scc::of_words(),
        #[cfg(feature = "maps")]
        skiplist::kind(),
    ]
}

/// The maps from byte strings to byte strings that were built, std's first.
pub fn of_bytes() -> Vec<Kind<[u8], [u8]>> {
    vec![
        locked(),
        #[cfg(feature = "maps")]
        concurrent::kind(),
        #[cfg(feature = "maps")]
        scc::of_bytes(),
        #[cfg(feature = "maps")]
        skiplist::kind(),
    ]
}
