//! The suite `damage` for the NV-Tree.

#[path = "../../../index/tests/shared/damage.rs"]
mod shared;
