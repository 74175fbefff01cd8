//! The suite `damage` for VLAB.

#[path = "../../../index/tests/shared/damage.rs"]
mod shared;
