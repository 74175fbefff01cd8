//! See the shared test.

#[path = "../../index/tests/shared/sparse.rs"]
mod shared;

use std::path::Path;

use index::{Life, Prefixed, Write, WriteOptions};
use pmem::{Durability, Native};
use tree::{Slotted, Tree, TreeOptions, WriteAtomic};

type Index = Tree<Native, Prefixed, (Slotted, Slotted), WriteAtomic>;

impl shared::Subject for Index {
    fn create(medium: Native) -> Self {
        Tree::create(medium, &TreeOptions::new("sparse", 16, Durability::Process)).unwrap()
    }
    fn open(medium: Native, path: &Path) -> Self {
        Tree::open(medium, path, "sparse", Durability::Process, 1024).unwrap().0
    }
    fn put(&self, key: &[u8], value: &[u8]) {
        Tree::put(self, key, value).unwrap();
    }
    fn put_many(&self, pairs: &[(Vec<u8>, Vec<u8>)]) {
        let writes: Vec<_> = pairs.iter().map(|(key, value)| Write::Put(&key[..], &value[..])).collect();
        self.write_many(&writes, WriteOptions::default()).unwrap();
    }
    fn delete(&self, key: &[u8]) {
        assert!(Tree::delete(self, key).unwrap());
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        Tree::get(self, key, Some(&mut value)).unwrap().then_some(value)
    }
    fn problems(&self) -> Vec<String> {
        self.check().problems
    }
    fn close(self) {
        Life::close(&self).unwrap();
    }
}

#[test]
fn random_deletes_leave_space_for_records_of_another_size() {
    shared::random_deletes_leave_space_for_records_of_another_size::<Index>();
}
