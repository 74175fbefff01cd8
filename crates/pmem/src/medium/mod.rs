//! The trait for durable memory and its implementations.

pub mod buffer_pool;
pub mod copy;
pub(crate) mod counter;
pub mod durable;
pub(crate) mod events;
pub(crate) mod holes;
pub mod journal;
pub mod native;
pub mod observed;
pub mod page_remap;
pub(crate) mod traits;
pub(crate) mod view;

pub use traits::{Fence, Group, LINE, Line, Medium, Pages, WORD, lines_of};
