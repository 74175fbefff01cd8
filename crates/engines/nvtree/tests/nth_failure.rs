//! The suite `nth_failure` for the NV-Tree.

#[path = "../../../index/tests/shared/nth_failure_of_lists.rs"]
mod shared;
