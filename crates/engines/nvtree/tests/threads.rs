//! The suite `threads` for the NV-Tree.

#[path = "../../../index/tests/shared/threads.rs"]
mod shared;
