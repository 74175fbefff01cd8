//! See the shared module.

#[path = "../../../index/tests/shared/snapshots_of_lists.rs"]
mod shared;
