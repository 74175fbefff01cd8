//! The NV-Tree as an engine of the registry.

use std::path::Path;

use index::engine::{Capabilities, Create, Family, Form, WithIndex};
use index::kind::Fixed;
use index::{Prefixed, Schema, Words};
use pmem::{Found, Medium, Result};

use crate::index::{NvTree, Options};

/// See the module's head.
pub struct NvTreeFamily;

impl Family for NvTreeFamily {
    const CAPABILITIES: Capabilities = Capabilities { fixed_values: true, ..Capabilities::KERNEL };
    type Bytes<M: Medium> = NvTree<M, Prefixed>;
    type Words<M: Medium> = NvTree<M, Words>;

    fn fixed<M: Medium, V: WithIndex<M, Fixed>>(with: V) -> Option<V::Out> {
        Some(with.with::<NvTree<M, ::index::Fixed>>())
    }
}

impl From<&Form> for Options {
    fn from(form: &Form) -> Self {
        let usual = Self::new(form.node_lines, form.durability);
        let geometry = form.geometry.unwrap_or(usual.geometry);
        Self {
            payload_words: form.payload_words,
            geometry,
            stripes: form.stripes,
            tables: form.tables,
            ..usual
        }
    }
}

impl<M: Medium, S: Schema> Create<M> for NvTree<M, S> {
    fn create(medium: M, form: &Form) -> Result<Self> {
        Self::create(medium, &form.into())
    }

    fn open(medium: M, path: &Path, form: &Form) -> Result<(Self, Found)> {
        Self::open(medium, path, &form.into())
    }
}
