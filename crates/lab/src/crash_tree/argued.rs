//! Mutants that no image can break: at most three an engine, each with the invariant that makes it so.

use crash::{Argued, Kind, Spot};

const WRITE_ATOMIC: &str = include_str!("../../../tree/src/discipline/write_atomic.rs");
const LOG: &str = include_str!("../../../pmem/src/log.rs");

const fn spot(kind: Kind, file_suffix: &'static str, source: &'static str, contains: &'static str) -> Spot {
    Spot { kind, file_suffix, source, contains }
}

/// The canary: the fence between a change's payload and the publish that commits it.
pub const CANARY: Spot = spot(
    Kind::DropFence(pmem::Fence::Payload),
    "discipline/write_atomic.rs",
    WRITE_ATOMIC,
    "medium.fence(Fence::Payload);",
);

/// The table, for every tree over the write-atomic discipline.
pub const ARGUED: [Argued; 1] = [Argued {
    spot: spot(Kind::SplitPublish, "pmem/src/log.rs", LOG, "medium.publish(at + WORD, tag.word());"),
    why: "L2: the lap is in the upper half, so a record whose lower half alone was stored still carries an older lap and is \
          not read",
}];
