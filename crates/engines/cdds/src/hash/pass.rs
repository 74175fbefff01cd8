//! What a pass of the table's collector keeps between its steps.

use crate::version::Interval;

/// A pass through the table.
#[derive(Debug)]
pub struct Pass {
    pub(crate) next: u64,
    /// Dead intervals whose traces this pass removes.
    pub(crate) removes: Vec<Interval>,
    /// It removes the traces of the version in flight, too.
    pub(crate) doubt: bool,
}
