//! See the shared module.

#[path = "../../../index/tests/shared/journal.rs"]
mod shared;
