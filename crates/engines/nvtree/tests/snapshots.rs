//! The suite `snapshots` for the NV-Tree.

#[path = "../../../index/tests/shared/snapshots_of_lists.rs"]
mod shared;
