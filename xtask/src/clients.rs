//! Runs the test suites of Redis clients and frameworks against `bristlecone serve`: as a campaign of `soak`, and for the record
//! `docs/records/clients.json`.
//!
//! `crates/cli/clients/run.py` installs the frameworks in the target folder, runs their tests and judges the results. Its JSON output has
//! sums and one row for each suite.

use std::process::Stdio;

use serde_json::Value;

use crate::Outcome;
use crate::run::{Step, target};

/// The command that runs all suites.
pub fn step() -> Step {
    Step::new("python3 -B crates/cli/clients/run.py --target").and(&target().display().to_string())
}

/// Builds the server that the suites use.
pub fn build() -> Outcome {
    Step::new("cargo build --release --package bristlecone-cli").run()
}

/// Runs all suites and writes their figures with `write` (name, command, baseline, figures).
pub fn record(write: impl Fn(&str, &str, &str, Value) -> Outcome) -> Outcome {
    build()?;
    println!("== {}", step().line());
    let output = step().command().stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", step().line()))?;
    let mut figures: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("suites failed: {}", figures["problems"].take()));
    }
    if let Some(members) = figures.as_object_mut() {
        members.remove("problems");
    }
    let command = "python3 crates/cli/clients/run.py";
    write("clients", command, "none: counts of tests", figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_judged_as_documented() {
        // Without `-B`, Python writes its cache beside the sources.
        Step::new("python3 -B crates/cli/clients/test_run.py").run().unwrap();
    }
}
