//! The suite `sparse` for indexes over a list of leaves.

#[path = "sparse.rs"]
mod sparse;

use index::Keyed;
use pmem::Durability;

use crate::common::Options;
use crate::common::engine::Of;

#[test]
fn random_deletes_leave_space_for_records_of_another_size() {
    let subject = Of::<Keyed, _>::new(Options::new(16, Durability::Process));
    sparse::random_deletes_leave_space_for_records_of_another_size(&subject);
}
