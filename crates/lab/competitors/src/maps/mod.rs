//! Ordered maps in memory that threads share. Nothing survives the process.
//!
//! [`Map`] is a map, [`Handle`] its interface for one thread. Keys and values are 64-bit words or byte strings. Every map copies its
//! arguments and its results, so that all maps do the same work. The map of std is always built, the others with the feature `maps`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{PoisonError, RwLock};

#[cfg(feature = "maps")]
mod concurrent;
#[cfg(feature = "maps")]
mod scc;
#[cfg(feature = "maps")]
mod skiplist;

/// A type of keys or values.
pub trait Item:
    ToOwned<Owned: Ord + Clone + Debug + Default + Send + Sync + 'static> + Ord + Sync + 'static
{
}
impl Item for u64 {}
impl Item for [u8] {}

/// A map.
pub trait Map<K: Item + ?Sized, V: Item + ?Sized>: Send + Sync {
    /// Returns a handle for one thread.
    fn handle(&self) -> Box<dyn Handle<K, V> + '_>;
}

/// The interface of a map for one thread.
pub trait Handle<K: Item + ?Sized, V: Item + ?Sized> {
    /// Stores a value.
    fn put(&mut self, key: &K, value: &V);
    /// Copies a value into a buffer, replacing its contents. False if the key does not exist.
    fn get(&mut self, key: &K, value: &mut V::Owned) -> bool;
}

/// A kind of map.
pub struct Kind<K: Item + ?Sized, V: Item + ?Sized> {
    /// Name in tables.
    pub name: &'static str,
    /// Description of the map.
    pub what: &'static str,
    /// Makes an empty map.
    pub make: fn() -> Box<dyn Map<K, V>>,
}

/// The map of std behind a reader-writer lock.
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

/// The map of std as a kind.
fn locked<K: Item + ?Sized, V: Item + ?Sized>() -> Kind<K, V> {
    Kind {
        name: "BTreeMap",
        what: "std's B-tree under a reader-writer lock",
        make: || Box::new(Locked::<K, V>::default()),
    }
}

/// The maps from words to words in this build, std's first.
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

/// The maps from byte strings to byte strings in this build, std's first.
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
