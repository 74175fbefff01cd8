//! The suite `sparse` for VLAB.

#[path = "../../../index/tests/shared/sparse_of_lists.rs"]
mod shared;
