//! The suite `sparse` for indexes over a list of leaves.

#[path = "sparse.rs"]
mod sparse;

use std::path::Path;

use index::leaf_list::prelude::*;
use index::{Keyed, Write, WriteOptions};
use pmem::{Durability, Durable};

use crate::common::{Index, Options};

fn options() -> Options {
    Options::new(16, Durability::Process)
}

impl sparse::Subject for Index<Durable, Keyed> {
    fn create(medium: Durable) -> Self {
        Index::create(medium, &options()).unwrap()
    }
    fn open(medium: Durable, path: &Path) -> Self {
        Index::open(medium, path, &options()).unwrap().0
    }
    fn put(&self, key: &[u8], value: &[u8]) {
        Writes::put(self, key, value).unwrap();
    }
    fn put_many(&self, pairs: &[(Vec<u8>, Vec<u8>)]) {
        let writes: Vec<_> = pairs.iter().map(|(key, value)| Write::Put(&key[..], &value[..])).collect();
        self.write_many_as(&writes, WriteOptions::default()).unwrap();
    }
    fn delete_many(&self, keys: &[Vec<u8>]) {
        let writes: Vec<_> = keys.iter().map(|key| Write::Delete(&key[..])).collect();
        self.write_many_as(&writes, WriteOptions::default()).unwrap();
    }
    fn delete(&self, key: &[u8]) {
        assert!(Writes::delete(self, key).unwrap());
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        Reads::get(self, key, Some(&mut value)).unwrap().then_some(value)
    }
    fn problems(&self) -> Vec<String> {
        LeafList::check(self).problems
    }
    fn close(self) {
        Life::close(&self).unwrap();
    }
}

#[test]
fn random_deletes_leave_space_for_records_of_another_size() {
    sparse::random_deletes_leave_space_for_records_of_another_size::<Index<Durable, Keyed>>();
}
