//! See the shared module.

#[path = "../../../index/tests/shared/nth_failure_of_lists.rs"]
mod shared;
