//! `cargo xtask record NAME`: runs a benchmark and writes its record, `docs/records/NAME.json`. Documents show tables of these records
//! ([`docs`](crate::docs)).
//!
//! A record is one JSON object: `commit`; `machine` (processor, processors, memory in bytes, kernel); `command`, which repeats the run;
//! `baseline`, by which figures of different machines compare; `figures`, the JSON output of the command.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::Outcome;
use crate::run::{Step, commit, root};

/// A benchmark with a record.
struct Bench {
    name: &'static str,
    /// Arguments of `bristlecone-lab`.
    arguments: &'static str,
    /// True if it needs a build with the other stores.
    competes: bool,
    baseline: &'static str,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "stores-process",
        arguments: "bench store --rounds 3 --json",
        competes: true,
        baseline: "Bristlecone in the same run",
    },
    Bench {
        name: "stores-power",
        arguments: "bench store --backing target --rounds 5 --keys 100000 --durability power --json",
        competes: true,
        baseline: "Bristlecone in the same run",
    },
    Bench {
        name: "trees",
        arguments: "bench trees --keys 10000000 --rounds 5 --engines btree,wbtree,wbtree-bmp,wbtree-line,vlab,nvtree --json",
        competes: false,
        baseline: "a dependent read and a flush of the same memory (`floor` in the figures)",
    },
    Bench {
        name: "readers",
        arguments: "bench readers --json",
        competes: false,
        baseline: "one reader in the same run",
    },
    Bench {
        name: "reopen",
        arguments: "bench reopen --keys 1000000,10000000 --json",
        competes: false,
        baseline: "the number of keys in the same run",
    },
];

impl Bench {
    /// A cargo command for the laboratory with the features that the benchmark needs.
    fn cargo(&self, command: &str) -> Step {
        let features = if self.competes { " --features competitors" } else { "" };
        Step::new(&format!("cargo {command} --release -p bristlecone-lab{features}"))
    }

    /// The command that repeats the run.
    fn step(&self) -> Step {
        let step = self.cargo("run").and("--");
        self.arguments.split_whitespace().fold(step, |step, argument| step.and(argument))
    }
}

/// The value of the first line `name : value` of a file in /proc.
fn field(text: &str, name: &str) -> Option<String> {
    let value = |line: &str| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_owned());
    text.lines().find_map(value)
}

/// The machine, as far as the system describes it.
fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kib = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
    json!({
        "processor": field(&read("/proc/cpuinfo"), "model name"),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_bytes": kib.map(|kib| kib * 1024),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}

/// Runs the benchmark of this name and writes its record.
///
/// # Errors
/// A message if there is no such benchmark, if it fails, if it prints no JSON, or if the record cannot be written.
pub fn run(name: &str) -> Outcome {
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        return Err(format!("no benchmark {name}: choose one of {}", names.join(", ")));
    };
    bench.cargo("build").run()?;
    let step = bench.step();
    println!("== {}", step.line());
    // The benchmark shows its progress on the standard error.
    let output = step.command().stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", step.line()))?;
    if !output.status.success() {
        return Err(format!("failed ({}). To repeat it:\n  {}", output.status, step.line()));
    }
    let figures: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{}: {error}", step.line()))?;
    let record = json!({
        "commit": commit(),
        "machine": machine(),
        "command": step.line(),
        "baseline": bench.baseline,
        "figures": figures,
    });
    let path = root().join(format!("docs/records/{name}.json"));
    let text = serde_json::to_string_pretty(&record).map_err(|error| error.to_string())?;
    fs::write(&path, text + "\n").map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("{}: written. Next: cargo xtask docs", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_its_description() {
        let machine = machine();
        assert!(machine["processors"].as_u64().is_some_and(|count| count > 0));
        assert!(machine["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{machine}");
        assert!(machine["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
        assert_eq!(field("a\t: 1\nmodel name\t: x y\n", "model name"), Some("x y".to_owned()));
        assert_eq!(field("model names: x", "model name"), None);
    }

    #[test]
    fn commands_are_complete_and_names_are_distinct() {
        assert!(run("no such benchmark").unwrap_err().contains("stores-process, "));
        let step = BENCHES[0].step().line();
        assert_eq!(
            step,
            "cargo run --release -p bristlecone-lab --features competitors -- bench store --rounds 3 --json"
        );
        assert!(BENCHES.iter().all(|bench| bench.arguments.ends_with(" --json")));
        let mut names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), BENCHES.len());
    }
}
