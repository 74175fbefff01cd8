//! The measured maps that implement [`competitors::maps`]: our Bw-tree, and the B-tree of Berkeley DB, which needs a directory.

use std::borrow::Cow;

use bwtree::{Pairs, Tree};
use competitors::maps::{Handle, Item, Map};

/// A key or value that our tree can store.
pub(super) trait Own: Item {
    /// The pairs with keys of this type.
    type Pairs: Pairs<Key = Self, Value = Self>;
    /// Copies a value into a buffer.
    fn copy(&self, to: &mut Self::Owned);
    /// Bytes with the same order as the items.
    fn bytes(&self) -> Cow<'_, [u8]>;
    /// Sets an item from such bytes.
    fn set(to: &mut Self::Owned, bytes: &[u8]);
}

impl Own for u64 {
    type Pairs = bwtree::Words;
    fn copy(&self, to: &mut u64) {
        *to = *self;
    }
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.to_be_bytes().to_vec())
    }
    fn set(to: &mut u64, bytes: &[u8]) {
        *to = bytes.try_into().map_or(0, u64::from_be_bytes);
    }
}

impl Own for [u8] {
    type Pairs = bwtree::Bytes;
    fn copy(&self, to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(self);
    }
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
    fn set(to: &mut Vec<u8>, bytes: &[u8]) {
        bytes.clone_into(to);
    }
}

/// Our tree.
pub(super) struct Ours<P: Pairs>(pub(super) Tree<P>);

impl<K: Own + ?Sized> Map<K, K> for Ours<K::Pairs> {
    fn handle(&self) -> Box<dyn Handle<K, K> + '_> {
        Box::new(self)
    }
}

impl<K: Own + ?Sized> Handle<K, K> for &Ours<K::Pairs> {
    fn put(&mut self, key: &K, value: &K) {
        self.0.put(key, value).expect("a workload's pairs are not too long");
    }

    fn get(&mut self, key: &K, value: &mut K::Owned) -> bool {
        self.0.get_with(key, |found| found.copy(value)).is_some()
    }
}

/// Berkeley DB. An error panics, because a benchmark with failed operations measures nothing.
pub(super) struct Stored(pub(super) Box<dyn competitors::Competitor>);

struct StoredHandle<'a> {
    session: Box<dyn competitors::Session + 'a>,
    buffer: Vec<u8>,
}

const REFUSED: &str = "Berkeley DB without transactions does what it is asked for";

impl<K: Own + ?Sized> Map<K, K> for Stored {
    fn handle(&self) -> Box<dyn Handle<K, K> + '_> {
        Box::new(StoredHandle { session: self.0.session().expect(REFUSED), buffer: Vec::new() })
    }
}

impl<K: Own + ?Sized> Handle<K, K> for StoredHandle<'_> {
    fn put(&mut self, key: &K, value: &K) {
        self.session.put(&key.bytes(), &value.bytes()).expect(REFUSED);
    }

    fn get(&mut self, key: &K, value: &mut K::Owned) -> bool {
        let is_found = self.session.get(&key.bytes(), &mut self.buffer).expect(REFUSED);
        if is_found {
            K::set(value, &self.buffer);
        }
        is_found
    }
}
