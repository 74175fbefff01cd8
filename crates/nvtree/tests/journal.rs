//! See the shared module.

#[path = "../../chain/tests/shared/journal.rs"]
mod shared;
