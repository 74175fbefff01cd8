//! See the shared module.

#[path = "../../../index/tests/shared/write_groups.rs"]
mod shared;
