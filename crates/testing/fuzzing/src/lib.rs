//! The fuzz targets. `fuzz/` has the programs for cargo-fuzz, one line each. `tests/main.rs` replays their corpus in every test run.
//!
//! * [`requests`], [`memcached`]: bytes from the network, passed through the request parser of a protocol.
//! * [`dumps`]: payloads of RESTORE.
//! * [`region`], [`journal`]: a store with files damaged by the input, opened and used.
//! * [`salvage`]: such a store, salvaged into a new one.
//! * [`segment`], [`checkpoint`], [`log`]: a log-structured store with such files of this kind, salvaged, opened and used. Half of the
//!   inputs get right checksums, so that the readers believe the damage.
//!
//! A target panics if the code under test panics or returns a wrong result.
#![forbid(unsafe_code)]

mod damage;
mod log_structured;
mod protocol;

pub use damage::{journal, region, salvage};
pub use log_structured::{checkpoint, log, segment};
pub use protocol::{dumps, memcached, requests};

/// Name and function of a target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 9] = [
    ("requests", requests),
    ("memcached", memcached),
    ("dumps", dumps),
    ("region", region),
    ("journal", journal),
    ("salvage", salvage),
    ("segment", segment),
    ("checkpoint", checkpoint),
    ("log", log),
];
