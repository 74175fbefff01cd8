//! See the shared test.

#[path = "../../../index/tests/shared/sparse_of_lists.rs"]
mod shared;
