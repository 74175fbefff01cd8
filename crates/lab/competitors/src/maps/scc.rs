//! scc's TreeIndex: a B+-tree whose readers take no lock.

use scc::TreeIndex;

use super::{Handle, Kind, Map};

struct Words(TreeIndex<u64, u64>);
struct Strings(TreeIndex<Vec<u8>, Vec<u8>>);

const NAME: &str = "scc";
const WHAT: &str = "TreeIndex: a B+-tree, readers without locks";

pub(super) fn of_words() -> Kind<u64, u64> {
    Kind { name: NAME, what: WHAT, make: || Box::new(Words(TreeIndex::new())) }
}

pub(super) fn of_bytes() -> Kind<[u8], [u8]> {
    Kind { name: NAME, what: WHAT, make: || Box::new(Strings(TreeIndex::new())) }
}

impl Map<u64, u64> for Words {
    fn handle(&self) -> Box<dyn Handle<u64, u64> + '_> {
        Box::new(self)
    }
}

impl Handle<u64, u64> for &Words {
    fn put(&mut self, key: &u64, value: &u64) {
        self.0.upsert_sync(*key, *value);
    }

    fn get(&mut self, key: &u64, value: &mut u64) -> bool {
        self.0.peek_with(key, |_, found| *value = *found).is_some()
    }
}

impl Map<[u8], [u8]> for Strings {
    fn handle(&self) -> Box<dyn Handle<[u8], [u8]> + '_> {
        Box::new(self)
    }
}

impl Handle<[u8], [u8]> for &Strings {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.upsert_sync(key.to_vec(), value.to_vec());
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> bool {
        self.0.peek_with(key, |_, found| found[..].clone_into(value)).is_some()
    }
}
