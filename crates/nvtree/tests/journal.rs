//! See the shared module.

mod common;
#[path = "../../chain/tests/shared/journal.rs"]
mod shared;
