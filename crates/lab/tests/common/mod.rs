//! Runs the program `bristlecone-lab`.

#[path = "../../../cli/tests/common/output.rs"]
mod output;

use std::process::Command;

pub use output::{code, stderr, stdout, succeed};

pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bristlecone-lab"))
}
