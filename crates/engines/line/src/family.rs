//! The line engine as an engine of the registry.

use index::engine::{Capabilities, Family};
use index::{Keyed, Words};
use pmem::Medium;

use crate::index::Line;

/// See the module's head.
pub struct LineFamily;

impl Family for LineFamily {
    const CAPABILITIES: Capabilities = Capabilities::KERNEL;
    type Bytes<M: Medium> = Line<M, Keyed>;
    type Words<M: Medium> = Line<M, Words>;
}
