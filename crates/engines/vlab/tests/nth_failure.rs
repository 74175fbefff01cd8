//! See the shared module.

#[path = "../../../index/tests/shared/nth_failure.rs"]
mod shared;
