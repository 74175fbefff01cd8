//! The suite `write_groups` for the NV-Tree.

#[path = "../../../index/tests/shared/write_groups.rs"]
mod shared;
