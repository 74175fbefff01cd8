//! See the shared module.

#[path = "../../../index/tests/shared/threads.rs"]
mod shared;
