//! See the shared module.

mod common;
#[path = "../../chain/tests/shared/damage.rs"]
mod shared;
