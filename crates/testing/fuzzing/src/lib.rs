//! The fuzz targets. `fuzz/` has the programs for cargo-fuzz, one line each. `tests/main.rs` replays their corpus in every test run.
//!
//! * [`requests`], [`memcached`]: bytes from the network, passed through the request parser of a protocol.
//! * [`region`], [`journal`]: a store with files damaged by the input, opened and used.
//! * [`salvage`]: such a store, salvaged into a new one.
//!
//! A target panics if the code under test panics or returns a wrong result.
#![forbid(unsafe_code)]

mod damage;
mod protocol;

pub use damage::{journal, region, salvage};
pub use protocol::{memcached, requests};

/// Name and function of a target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 5] = [
    ("requests", requests),
    ("memcached", memcached),
    ("region", region),
    ("journal", journal),
    ("salvage", salvage),
];
