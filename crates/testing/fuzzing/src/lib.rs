//! What the fuzz targets do with their input. `fuzz/` has the targets for cargo-fuzz, one line each; `tests/main.rs` replays their corpus in
//! every test run.
//!
//! * [`requests`]: bytes from the network through the request parser.
//! * [`region`], [`journal`]: a store whose files are damaged as the input says, opened and used.
//! * [`salvage`]: the same store, salvaged into a new one.
//!
//! A target panics if the code panics, and if an answer is wrong.
#![forbid(unsafe_code)]

mod damage;
mod protocol;

pub use damage::{journal, region, salvage};
pub use protocol::requests;

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 4] =
    [("requests", requests), ("region", region), ("journal", journal), ("salvage", salvage)];
