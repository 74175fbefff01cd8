//! The state of a pass of the table's collector between its steps.

use crate::version::Interval;

/// A pass through the table.
#[derive(Debug)]
pub struct Pass {
    pub(crate) next: u64,
    /// Dead intervals whose traces this pass removes.
    pub(crate) removes: Vec<Interval>,
    /// True if it also removes the traces of the version in flight.
    pub(crate) doubt: bool,
}
