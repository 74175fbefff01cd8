//! The suite `nth_failure` for VLAB.

#[path = "../../../index/tests/shared/nth_failure_of_lists.rs"]
mod shared;
