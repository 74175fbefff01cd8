//! See the shared module.

#[path = "../../../index/tests/shared/waves.rs"]
mod shared;
