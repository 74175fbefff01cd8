//! The suite `sparse` for the NV-Tree.

#[path = "../../../index/tests/shared/sparse_of_lists.rs"]
mod shared;
