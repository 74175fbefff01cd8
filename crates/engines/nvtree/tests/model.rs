//! The suite `model_of_lists` for the NV-Tree, also with inner nodes of production sizes.

#[path = "../../../index/tests/shared/model_of_lists.rs"]
mod shared;

/// Full leaves, parents and rebuilds of production sizes. No insert waits for a rebuild.
#[test]
fn pages_are_as_in_a_map() {
    shared::pages(|index| {
        let paths = index.paths();
        println!("{paths:?}");
        assert!(paths.parents > 1 && paths.leaves > 64 && paths.hurried == 0, "{paths:?}");
        index.rebuild().unwrap();
        assert_eq!(index.paths().leaves, paths.leaves);
    });
}
