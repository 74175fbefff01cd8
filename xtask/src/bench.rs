//! `cargo xtask record NAME`: runs a benchmark and writes its record, `docs/records/NAME.json`. Documents show tables of these records
//! ([`docs`](crate::docs)).
//!
//! A record is one JSON object: `commit`; `machine` (model of the processor, number of processors, memory in bytes, kernel); `command`,
//! which repeats the run; `baseline`, the reference that makes figures of different machines comparable; `figures`, the JSON output of the
//! command. If the commands print several JSON objects, `figures` is the list of them.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::Outcome;
use crate::run::{Step, commit, root};

/// A benchmark with a record.
struct Bench {
    name: &'static str,
    /// Arguments of `bristlecone-lab`, for each command that the record consists of.
    arguments: &'static [&'static str],
    /// True if it needs a build with the other stores.
    competes: bool,
    baseline: &'static str,
    /// Members of the output that the record leaves out. They are long, and no table shows them. Members with these names that are numbers
    /// stay.
    omitted: &'static [&'static str],
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "stores-process",
        arguments: &["bench store --rounds 3 --json"],
        competes: true,
        baseline: "Bristlecone in the same run",
        omitted: &[],
    },
    Bench {
        name: "stores-power",
        arguments: &["bench store --backing target --rounds 5 --keys 100000 --durability power --json"],
        competes: true,
        baseline: "Bristlecone in the same run",
        omitted: &[],
    },
    Bench {
        name: "flash",
        arguments: &["--memory 256 --backing target --json"],
        competes: true,
        baseline: "the best other store in the same run",
        omitted: &[],
    },
    Bench {
        name: "memory",
        arguments: &["--backing target --svg docs/memory.svg --json"],
        competes: false,
        baseline: "the memory budget",
        omitted: &["samples"],
    },
    Bench {
        name: "trees",
        arguments: &[
            "bench trees --keys 10000000 --rounds 5 --engines btree,line,wbtree,wbtree-bmp,wbtree-line,vlab,nvtree --count-instructions --json",
        ],
        competes: false,
        baseline: "a dependent read and a flush of the same memory (`floor` in the figures)",
        omitted: &[],
    },
    Bench {
        name: "readers",
        arguments: &["bench readers --json"],
        competes: false,
        baseline: "one reader in the same run",
        omitted: &[],
    },
    Bench {
        name: "reopen",
        arguments: &["bench reopen --keys 1000000,10000000,50000000 --json"],
        competes: false,
        baseline: "the number of keys in the same run",
        omitted: &[],
    },
    Bench {
        name: "costs",
        arguments: &["costs --check --node-lines 8 --entry-bytes 16 --json", "costs --by-category --json"],
        competes: false,
        baseline: "none: counts do not depend on the machine",
        omitted: &["bytes_changed", "ours", "parts", "problems"],
    },
    Bench {
        name: "pcm",
        arguments: &[
            "run wb-fig4 wb-fig12 wb-fig11 --keys 4000000 --json",
            "heat --tree cdds,btree --node-lines 16,8 --keys 1000 --json",
            "heat --tree cdds,btree --node-lines 16,8 --keys 100000 --json",
            "heat --tree cdds,btree-log --node-lines 16,8 --keys 10000 --json",
        ],
        competes: false,
        baseline: "none: a simulated machine",
        omitted: &["nodes", "bins", "hottest"],
    },
    Bench {
        name: "wb",
        arguments: &["run wb-fig13 wb-fig14 --scale 0.1 --rounds 1 --node-lines 2,8 --json"],
        competes: false,
        baseline: "`btree` in the same round",
        omitted: &[],
    },
    Bench {
        name: "vlab",
        arguments: &[
            "run vlab-fig15 vlab-fig17 vlab-fig18 --scale 0.1 --rounds 1 --json",
            "run vlab-keys vlab-stalls --scale 0.1 --json",
        ],
        competes: false,
        baseline: "`vlab` in the same round",
        omitted: &[],
    },
    Bench {
        name: "cdds",
        arguments: &[
            "bench cdds --pairs 200000 --keys 1000000 --json",
            "flush --json",
            "run cdds-fig3 --json",
        ],
        competes: true,
        baseline: "Berkeley DB and `btree` in the same run",
        omitted: &[],
    },
    Bench {
        name: "bwtree",
        arguments: &[
            "bench bwtree --rounds 1 --scale 0.02 --keys 1000000 --larger 10 --caches 100000 --json",
        ],
        competes: true,
        baseline: "Berkeley DB and the skip list in the same run",
        omitted: &[],
    },
];

/// Benchmarks that are no commands of `bristlecone-lab`.
const OTHERS: [&str; 3] = ["serve", "serve-types", "serve-papers"];

impl Bench {
    /// A cargo command for the laboratory with the features that the benchmark needs.
    fn cargo(&self, command: &str) -> Step {
        let features = if self.competes { " --features competitors" } else { "" };
        // They need no other benchmark, and are built in a tenth of the time.
        let program = match self.name {
            "flash" | "memory" => format!("flash --example {}", self.name),
            _ => "lab".to_owned(),
        };
        Step::new(&format!("cargo {command} --release -p bristlecone-{program}{features}"))
    }

    /// The commands that repeat the run.
    fn steps(&self) -> impl Iterator<Item = Step> {
        self.arguments.iter().map(|arguments| {
            let step = self.cargo("run").and("--");
            arguments.split_whitespace().fold(step, |step, argument| step.and(argument))
        })
    }

    /// Runs a command. Returns the JSON values that it prints.
    fn output(&self, step: &Step) -> Result<Vec<Value>, String> {
        println!("== {}", step.line());
        // The benchmark shows its progress on the standard error.
        let output = step.command().stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot run {}: {error}", step.line()))?;
        if !output.status.success() {
            return Err(format!("failed ({}). To repeat it:\n  {}", output.status, step.line()));
        }
        let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        let mut values: Vec<Value> =
            values.collect::<Result<_, _>>().map_err(|error| format!("{}: {error}", step.line()))?;
        values.iter_mut().for_each(|value| omit(value, self.omitted));
        Ok(values)
    }
}

/// Removes the members of these names, except numbers, from a value and all values within it.
fn omit(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| member.is_number() || !names.contains(&name.as_str()));
            members.values_mut().for_each(|member| omit(member, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| omit(item, names)),
        _ => {}
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
    if name == "serve" {
        return crate::serve::run(write);
    }
    if name == "serve-types" {
        return crate::serve::types::run(write);
    }
    if name == "serve-papers" {
        return crate::serve::papers::run(write);
    }
    if let Some(outcome) = crate::clients::record(name, write) {
        return outcome;
    }
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        let others = OTHERS.iter().copied().chain(crate::clients::names());
        let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).chain(others).collect();
        return Err(format!("no benchmark {name}: choose one of {}", names.join(", ")));
    };
    bench.cargo("build").run()?;
    let mut figures = Vec::new();
    for step in bench.steps() {
        figures.extend(bench.output(&step)?);
    }
    let commands: Vec<_> = bench.steps().map(|step| step.line()).collect();
    let figures = match <[Value; 1]>::try_from(figures) {
        Ok([only]) => only,
        Err(several) => several.into(),
    };
    write(name, &commands.join(" && "), bench.baseline, figures)
}

/// Writes a record.
fn write(name: &str, command: &str, baseline: &str, figures: Value) -> Outcome {
    let record = json!({
        "commit": commit(),
        "machine": machine(),
        "command": command,
        "baseline": baseline,
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
        let steps: Vec<_> = BENCHES[0].steps().map(|step| step.line()).collect();
        assert_eq!(
            steps,
            [
                "cargo run --release -p bristlecone-lab --features competitors -- bench store --rounds 3 --json"
            ]
        );
        assert!(
            BENCHES.iter().flat_map(|bench| bench.arguments).all(|arguments| arguments.ends_with(" --json"))
        );
        let mut names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), BENCHES.len());
    }

    #[test]
    fn omitted_members_are_removed_at_every_depth_but_numbers_stay() {
        let mut value = json!([{ "nodes": [1], "rows": [{ "nodes": 2, "bins": {} }] }]);
        omit(&mut value, &["nodes", "bins"]);
        assert_eq!(value, json!([{ "rows": [{ "nodes": 2 }] }]));
    }
}
