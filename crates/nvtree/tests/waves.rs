//! See the shared module.

#[path = "../../chain/tests/shared/waves.rs"]
mod shared;
