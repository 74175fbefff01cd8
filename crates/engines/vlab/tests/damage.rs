//! See the shared module.

#[path = "../../../index/tests/shared/damage.rs"]
mod shared;
