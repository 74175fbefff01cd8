//! Mutants that no image can break: at most three an engine, each with the invariant that makes it so.

use crash::{Argued, Kind, Spot};

const WRITE_ATOMIC: &str = include_str!("../../../tree/src/discipline/write_atomic.rs");
const LOG: &str = include_str!("../../../pmem/src/log/mod.rs");

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
pub const ARGUED: [Argued; 2] = [
    Argued {
        spot: spot(Kind::SplitPublish, "pmem/src/log/mod.rs", LOG, "medium.publish(at, tag.word());"),
        why: "L2: the lap is in the upper half, so a record of which only the lower half was stored still carries an older \
              lap and is not read",
    },
    Argued {
        spot: spot(
            Kind::SwapPublish,
            "discipline/write_atomic.rs",
            WRITE_ATOMIC,
            "medium.publish(at, word);",
        ),
        why: "W2: a cleared valid bit means that the order is derived, which is right at any time; what matters, and is not \
              swapped, is the fence behind it",
    },
];
