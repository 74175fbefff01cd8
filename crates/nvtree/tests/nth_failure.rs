//! See the shared module.

mod common;
#[path = "../../chain/tests/shared/nth_failure.rs"]
mod shared;
