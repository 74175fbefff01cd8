//! Programs of Redis clients against `bristlecone serve`: as campaigns of `soak`, and for records in `docs/records`.
//!
//! | record | script in `crates/cli/clients` | runs |
//! |---|---|---|
//! | `clients` | `run.py` | the test suites of clients and frameworks |
//! | `jobs` | `jobs/jobs.py` | job systems while the server is killed |
//! | `ycsb` | `ycsb.py` | the core workloads of YCSB, also against Redis |
//!
//! A script installs its programs in the target folder, runs them and judges the results. Its JSON output has one row for each suite, system
//! or workload, and perhaps sums and a list of problems.

use std::process::Stdio;

use serde_json::Value;

use crate::Outcome;
use crate::run::{Step, target};

/// A record that a script makes.
struct Script {
    name: &'static str,
    /// The script with its options.
    line: &'static str,
    baseline: &'static str,
}

const SCRIPTS: [Script; 3] = [
    Script { name: "clients", line: "crates/cli/clients/run.py", baseline: "none: counts of tests" },
    Script {
        name: "jobs",
        line: "crates/cli/clients/jobs/jobs.py --rounds 10 --compare",
        baseline: "redis-server 7 of Debian with appendfsync always, in rounds of their own",
    },
    Script {
        name: "ycsb",
        line: "crates/cli/clients/ycsb.py",
        baseline: "redis-server 7 of Debian in the same rounds, without persistence and with appendfsync always",
    },
];

/// The names of the records.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCRIPTS.iter().map(|script| script.name)
}

impl Script {
    fn step(&self) -> Step {
        Step::new(&format!("python3 -B {} --target", self.line)).and(&target().display().to_string())
    }
}

/// The command that runs all suites.
pub fn suites() -> Step {
    SCRIPTS[0].step()
}

/// The command that runs ten rounds of each job system.
pub fn jobs(seed: u64) -> Step {
    SCRIPTS[1].step().and("--seed").and(&seed.to_string())
}

/// Builds the server that the suites use.
pub fn build() -> Outcome {
    Step::new("cargo build --release --package bristlecone-cli").run()
}

/// Runs the script of a record and writes its figures with `write` (name, command, baseline, figures). `None` if there is no such script.
pub fn record(name: &str, write: impl Fn(&str, &str, &str, Value) -> Outcome) -> Option<Outcome> {
    let script = SCRIPTS.iter().find(|script| script.name == name)?;
    Some(
        figures(&script.step())
            .and_then(|figures| write(name, &format!("python3 {}", script.line), script.baseline, figures)),
    )
}

/// The figures that a script prints.
fn figures(step: &Step) -> Result<Value, String> {
    build()?;
    println!("== {}", step.line());
    let output = step.command().stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", step.line()))?;
    let failed = |why: String| format!("{why} ({}). To repeat it:\n  {}", output.status, step.line());
    let figures = serde_json::from_slice(&output.stdout);
    let mut figures: Value = figures.map_err(|error| failed(format!("no JSON output: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("it failed: {}", figures["problems"].take())));
    }
    if let Some(members) = figures.as_object_mut() {
        members.remove("problems");
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_judged_as_documented() {
        // Without `-B`, Python writes its cache beside the sources.
        for test in ["test_run.py", "test_ycsb.py", "jobs/test_jobs.py"] {
            Step::new("python3 -B").and(&format!("crates/cli/clients/{test}")).run().unwrap();
        }
    }
}
