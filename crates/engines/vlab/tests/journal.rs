//! The suite `journal` for VLAB.

#[path = "../../../index/tests/shared/journal.rs"]
mod shared;
