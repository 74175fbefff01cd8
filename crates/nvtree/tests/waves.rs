//! See the shared module.

mod common;
#[path = "../../chain/tests/shared/waves.rs"]
mod shared;
