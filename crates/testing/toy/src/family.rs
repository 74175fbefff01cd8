//! The registry entry of the toy engine.

use index::engine::{Capabilities, Family, WithIndex};
use index::kind::Fixed;
use index::{Prefixed, Words};
use pmem::Medium;

use crate::Toy;

/// The family of the registry.
pub struct ToyFamily;

impl Family for ToyFamily {
    const CAPABILITIES: Capabilities = Capabilities { fixed_values: true, ..Capabilities::KERNEL };
    type Bytes<M: Medium> = Toy<M, Prefixed>;
    type Words<M: Medium> = Toy<M, Words>;

    fn fixed<M: Medium, V: WithIndex<M, Fixed>>(with: V) -> Option<V::Out> {
        Some(with.with::<Toy<M, index::Fixed>>())
    }
}
