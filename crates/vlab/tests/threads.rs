//! See the shared module.

mod common;
#[path = "../../chain/tests/shared/threads.rs"]
mod shared;
