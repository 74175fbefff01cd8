//! The suite `journal` for the NV-Tree.

#[path = "../../../index/tests/shared/journal.rs"]
mod shared;
