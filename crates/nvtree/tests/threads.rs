//! See the shared module.

#[path = "../../chain/tests/shared/threads.rs"]
mod shared;
