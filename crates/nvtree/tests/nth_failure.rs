//! See the shared module.

#[path = "../../chain/tests/shared/nth_failure.rs"]
mod shared;
