//! The suite `write_groups` for VLAB.

#[path = "../../../index/tests/shared/write_groups.rs"]
mod shared;
