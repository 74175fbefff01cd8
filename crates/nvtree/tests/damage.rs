//! See the shared module.

#[path = "../../chain/tests/shared/damage.rs"]
mod shared;
