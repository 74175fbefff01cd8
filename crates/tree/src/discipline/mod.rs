//! Disciplines: how edits become durable. A discipline knows words and their classes, never a layout.

mod volatile;
mod write_atomic;

use pmem::alloc::Allocator;
use pmem::log::Log;
use pmem::{Medium, Region, Result};
pub use volatile::Volatile;
pub use write_atomic::WriteAtomic;

use crate::shape::Edit;

/// How edits become durable.
pub trait Discipline: Send + Sync + 'static {
    /// Name used in engines' names.
    const NAME: &'static str;
    /// Contents survive a crash.
    const DURABLE: bool;

    /// Carries the edits out in one crash-atomic step, the allocator's pending blocks with them. Durable when it
    /// returns.
    ///
    /// # Errors
    /// `TooLarge` if the change exceeds the log; nothing is changed then.
    fn commit<M: Medium>(
        region: &Region<M>,
        log: &mut Log,
        allocator: &mut Allocator,
        edits: &[Edit],
    ) -> Result<()>;
}
