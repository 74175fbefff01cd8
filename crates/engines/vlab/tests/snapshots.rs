//! The suite `snapshots` for VLAB.

#[path = "../../../index/tests/shared/snapshots_of_lists.rs"]
mod shared;
