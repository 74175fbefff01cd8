//! `cargo xtask soak`: long campaigns, round-robin, each for a slice of the time. Crash exploration comes first.
//!
//! A campaign repeats its command with new seeds until its slice ends. Then a running command is killed, unless it is the campaign's first
//! command (a campaign without a finished run proves nothing) or prints JSON. The target directory keeps the next seed of each campaign and
//! the next campaign (`soak.json`), so that a later soak continues there. [`record`] keeps the results. Engines come from the registry. An
//! engine without a campaign is an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Outcome;
use crate::record::{self, Record};
use crate::run::{Step, commit, target};

/// The first seed of every campaign. Documents show the figures of its run; runs of later seeds are longer.
const DOCUMENTED_SEED: u64 = 1;

/// The options of a soak.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    minutes: u64,
    /// The first seed. `None` continues after the last soak.
    seed: Option<u64>,
    /// Selects the campaigns whose names contain this text.
    only: Option<String>,
}

impl Options {
    /// Parses the arguments.
    ///
    /// # Errors
    /// A message if a word is not an option of `soak`.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { minutes: 60, seed: None, only: None };
        for pair in words.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} wants a value", pair[0])) };
            let number = || value.parse().map_err(|error| format!("{name} {value}: {error}"));
            match *name {
                "--minutes" => options.minutes = number()?,
                "--seed" => options.seed = Some(number()?),
                "--only" => options.only = Some((*value).to_owned()),
                other => {
                    return Err(format!("unknown option {other}: soak has --minutes, --seed and --only"));
                }
            }
        }
        Ok(options)
    }
}

/// A campaign: its name, and its command for a seed.
struct Campaign {
    name: String,
    step: Box<dyn Fn(u64) -> Step>,
    /// True if it prints one JSON object for the record.
    json: bool,
}

impl Campaign {
    /// A part of a test program, repeated with seeds.
    fn tests(name: &str, line: &'static str, rounds: u32) -> Self {
        let step = move |seed: u64| {
            // A failure is printed at once: the other tests of a campaign may take long, or be stopped.
            let separator = if line.contains(" -- ") { "" } else { " --" };
            Step::new(&format!("{line}{separator} --nocapture"))
                .with("BRISTLECONE_SOAK", "1")
                .with("BRISTLECONE_ROUNDS", rounds.to_string())
                .with("BRISTLECONE_SEED", seed.to_string())
        };
        Self { name: name.into(), step: Box::new(step), json: false }
    }

    /// A command without a seed.
    fn fixed(name: &str, step: Step) -> Self {
        Self { name: name.into(), step: Box::new(move |_| step.clone()), json: false }
    }
}

/// The crash campaign of an engine: exploration, mutants, injected faults, minimum counts.
fn crash_campaign(engine: &str, explored: &[String]) -> Result<Campaign, String> {
    let name = format!("crash {engine}");
    if explored.iter().any(|known| known == engine) {
        let lab = target().join("release/bristlecone-lab").display().to_string();
        let engine = engine.to_owned();
        let step = move |seed: u64| {
            let step = Step::new(&lab).and("crash").and("--json").and("--tree").and(&engine);
            let step = step.and("--seed").and(&seed.to_string());
            if seed == DOCUMENTED_SEED { step } else { step.and("--ops").and("100000") }
        };
        return Ok(Campaign { name, step: Box::new(step), json: true });
    }
    // The subjects of these engines are in tests of their own crates. These tests try only a share of the mutants by default.
    let line = match engine {
        "cdds" => {
            "cargo test --release --package bristlecone-cdds --test main -- crash:: turn:: kept:: --skip hash_crash"
        }
        "cdds-unsorted" => "cargo test --release --package bristlecone-cdds --test main -- turn::",
        "cdds-hash" => {
            "cargo test --release --package bristlecone-cdds --test main -- hash_crash:: turn:: hash_model::"
        }
        _ => {
            return Err(format!(
                "the engine {engine} has no crash campaign: bristlecone-lab crash does not know it"
            ));
        }
    };
    let step = Step::new(line)
        .with("BRISTLECONE_SOAK", "1")
        .with("BRISTLECONE_MUTANTS", "all")
        .with("BRISTLECONE_ENGINE", engine);
    let seeded = move |seed: u64| step.clone().with("BRISTLECONE_SEED", seed.to_string());
    Ok(Campaign { name, step: Box::new(seeded), json: false })
}

/// The crash campaigns of all engines.
fn crash_campaigns() -> Result<Vec<Campaign>, String> {
    Step::new("cargo build --release --package bristlecone-lab").run()?;
    let lab = target().join("release/bristlecone-lab").display().to_string();
    let registry: Value = serde_json::from_str(&Step::new(&lab).and("registry").and("--json").output()?)
        .map_err(|error| format!("registry --json: {error}"))?;
    let rows = registry["engines"].as_array().ok_or("registry --json: no engines")?;
    let names = |durable: bool| -> Vec<String> {
        let chosen = rows.iter().filter(|row| row["durable"] == durable);
        chosen.filter_map(|row| row["name"].as_str()).map(str::to_owned).collect()
    };
    let explored: Vec<String> =
        Step::new(&lab).and("crash").and("--list").output()?.lines().map(str::to_owned).collect();
    names(true).iter().map(|name| crash_campaign(name, &explored)).collect()
}

/// The names of the campaigns that run the server's program.
const OF_SERVER: [&str; 2] = ["clients", "job systems"];

/// The campaigns that need no list of the engines.
fn other_campaigns() -> Vec<Campaign> {
    let mut all = vec![
        Campaign::tests(
            "crash structures",
            "cargo test --release --package bristlecone-server --test crashes",
            1,
        ),
        Campaign::tests(
            "trees against a model",
            "cargo test --package bristlecone-crash-tree --test main -- model::",
            1,
        ),
        Campaign {
            name: "schedules".into(),
            step: Box::new(|seed| {
                crate::test::schedules()
                    .with("BRISTLECONE_SOAK", "1")
                    .with("BRISTLECONE_ROUNDS", "20")
                    .with("BRISTLECONE_SEED", seed.to_string())
            }),
            json: false,
        },
        Campaign::tests(
            "stores against a model",
            "cargo test --package bristlecone --test main -- battery:: compact:: damage::",
            1,
        ),
        Campaign::tests(
            "bwtree against a model",
            "cargo test --package bristlecone-bwtree --test main -- model::",
            1,
        ),
        Campaign::tests(
            "bwtree threads",
            "cargo test --package bristlecone-bwtree --test main -- threads::",
            50,
        ),
        Campaign::tests(
            "journal",
            "cargo test --package bristlecone-pmem --test journal -- power:: restart:: faults:: beside:: growth:: damage:: copy::",
            1,
        ),
        Campaign::tests("cdds turns", "cargo test --package bristlecone-cdds --test main -- turns::", 25),
        Campaign::tests("histories", "cargo test --package bristlecone --test main -- histories::", 50),
        Campaign::fixed(
            "snapshots",
            Step::new("cargo test --package bristlecone --test main -- snapshots::")
                .with("BRISTLECONE_CHANGES", "1000000"),
        ),
        Campaign::tests(
            "power cuts",
            "cargo test --package bristlecone --test main -- power:: tickets::",
            82,
        ),
        Campaign::tests(
            "power cuts of directories",
            "cargo test --package bristlecone --test main -- directories::",
            4,
        ),
        Campaign::tests(
            "logstore power cuts",
            "cargo test --package bristlecone-logstore --test main -- power:: cuts::no_thread",
            // More than 50,000 images.
            17,
        ),
        Campaign::tests(
            "logstore failing calls and damage",
            "cargo test --package bristlecone-logstore --test main -- failing:: damage::",
            4,
        ),
        Campaign::tests(
            "logstore churn",
            "cargo test --package bristlecone-logstore --test main -- churn::",
            30,
        ),
        Campaign::tests(
            "failing calls",
            "cargo test --package bristlecone --test main -- failing_calls::",
            1,
        ),
        Campaign::tests(
            "kills",
            "cargo test --package bristlecone-cli --test main -- kill:: shared_keys:: structures:: transactions::",
            50,
        ),
        Campaign::tests(
            "replies of redis-server",
            "cargo test --package bristlecone-server --test main -- differential::",
            10,
        ),
        Campaign {
            name: OF_SERVER[0].into(),
            // Every run starts from empty stores and has no seed.
            step: Box::new(|_| crate::clients::suites()),
            json: true,
        },
        Campaign { name: OF_SERVER[1].into(), step: Box::new(crate::clients::jobs), json: true },
        Campaign::tests("corpora", "cargo test --package bristlecone-fuzzing", 100),
        Campaign::fixed("models", crate::test::models(3).with("LOOM_MAX_DURATION", "300")),
    ];
    all.extend(fuzzed());
    all.extend(sanitized());
    all
}

/// The campaigns whose names contain `only`, crash exploration first. A whole name selects its campaign alone, also if other names contain
/// it; then the list of the engines is not needed, and its program, which takes minutes, is not built.
fn campaigns(only: Option<&str>) -> Result<Vec<Campaign>, String> {
    let mut all = other_campaigns();
    let is_name = |all: &[Campaign]| all.iter().any(|campaign| Some(campaign.name.as_str()) == only);
    if !is_name(&all) {
        all.splice(..0, crash_campaigns()?);
    }
    if let Some(only) = only {
        let is_name = is_name(&all);
        all.retain(|campaign| campaign.name == only || !is_name && campaign.name.contains(only));
        if all.is_empty() {
            return Err(format!("no campaign has {only:?} in its name"));
        }
    }
    if all.iter().any(|campaign| OF_SERVER.contains(&campaign.name.as_str())) {
        crate::clients::build()?;
    }
    Ok(all)
}

/// The fuzz targets: ten million inputs for each request parser, two minutes per run for the others. They need a nightly toolchain and
/// cargo-fuzz. Prints a message if one is missing.
fn fuzzed() -> Vec<Campaign> {
    if !Step::new("cargo +nightly fuzz --version").succeeds() {
        println!(
            "== no cargo-fuzz with a nightly toolchain: no fuzzing (rustup toolchain install nightly; cargo install cargo-fuzz)"
        );
        return Vec::new();
    }
    let target = |name: &str| {
        // The parser has no unsafe code. Without a sanitizer, ten million inputs take minutes instead of an hour.
        let (sanitizer, end) = match name {
            "requests" | "memcached" => ("none", "-runs=10000000 -max_len=512"),
            _ => ("address", "-max_total_time=120"),
        };
        let line = format!(
            "cargo +nightly fuzz run --sanitizer {sanitizer} {name} -- {end} -timeout=60 -rss_limit_mb=8192"
        );
        Campaign::fixed(&format!("fuzz {name}"), Step::new(&line).with("RUSTUP_TOOLCHAIN", "nightly"))
    };
    ["requests", "memcached", "dumps", "region", "journal", "salvage", "segment", "checkpoint", "log"]
        .map(target)
        .into()
}

/// The Bw-tree's threads under the address sanitizer, which also finds leaks, and under the thread sanitizer. They need a toolchain with
/// sanitizers; the thread sanitizer also needs the sources of the standard library. Prints a message and skips them if these are missing.
fn sanitized() -> Vec<Campaign> {
    if !Step::new("cargo +nightly --version").succeeds() {
        println!("== no nightly toolchain: no sanitizers (rustup toolchain install nightly)");
        return Vec::new();
    }
    let threads = |sanitizer: &str, more: &str| {
        let line = format!(
            "cargo test {more} --package bristlecone-bwtree --test main --target x86_64-unknown-linux-gnu \
             --target-dir {} threads::",
            target().join(sanitizer).display()
        );
        let flags = format!("-Zsanitizer={sanitizer}");
        let step = Step::new(&line).with("RUSTUP_TOOLCHAIN", "nightly").with("RUSTFLAGS", flags);
        Campaign::fixed(&format!("{sanitizer} sanitizer"), step)
    };
    let mut all = vec![threads("address", "")];
    let roots = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    let root =
        roots.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if Path::new(&root).join("lib/rustlib/src/rust/library").is_dir() {
        // The thread sanitizer must see the synchronization inside the standard library.
        all.push(threads("thread", "-Zbuild-std"));
    } else {
        println!(
            "== no sources of the library: no thread sanitizer (rustup component add --toolchain nightly rust-src)"
        );
    }
    all
}

/// The position of the last soak: the next seed of each campaign, and the next campaign.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cursor {
    next: Option<String>,
    seeds: BTreeMap<String, u64>,
}

impl Cursor {
    fn path() -> PathBuf {
        target().join("soak.json")
    }

    fn read() -> Self {
        fs::read_to_string(Self::path()).ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(text).ok()?;
        let seeds =
            all["seeds"].as_object()?.iter().filter_map(|(name, seed)| Some((name.clone(), seed.as_u64()?)));
        Some(Self { next: all["next"].as_str().map(str::to_owned), seeds: seeds.collect() })
    }

    fn text(&self) -> String {
        json!({ "next": self.next, "seeds": self.seeds }).to_string()
    }

    fn write(&self) -> Outcome {
        fs::write(Self::path(), self.text())
            .map_err(|error| format!("cannot write {}: {error}", Self::path().display()))
    }
}

/// Runs campaigns in turn until the time is up. Each campaign that starts gets at least one run.
pub fn run(options: &Options) -> Outcome {
    let end = Instant::now() + Duration::from_secs(options.minutes * 60);
    let mut all = campaigns(options.only.as_deref())?;
    let mut cursor = Cursor::read();
    let first = all.iter().position(|campaign| Some(&campaign.name) == cursor.next.as_ref()).unwrap_or(0);
    all.rotate_left(first);
    let slice = Duration::from_secs(options.minutes * 60) / all.len() as u32;
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    // A file that is not a record is an error now, not after hours.
    Record::read()?;
    let mut failures = Vec::new();
    'time: loop {
        for number in 0..all.len() {
            let campaign = &all[number];
            cursor.next = Some(all[(number + 1) % all.len()].name.clone());
            let seed =
                options.seed.or_else(|| cursor.seeds.get(&campaign.name).copied()).unwrap_or(DOCUMENTED_SEED);
            let (result, next_seed) = run_slice(campaign, seed, slice, &commit);
            if !result.passed {
                failures.push(campaign.name.clone());
            }
            cursor.seeds.insert(campaign.name.clone(), next_seed);
            cursor.write()?;
            Record::note(&campaign.name, result)?;
            if Instant::now() >= end {
                break 'time;
            }
        }
    }
    println!("\n== soak: {}", record::age());
    if failures.is_empty() { Ok(()) } else { Err(format!("campaigns failed: {}", failures.join(", "))) }
}

/// Runs a campaign for its slice. Returns its result and the next seed.
fn run_slice(campaign: &Campaign, mut seed: u64, slice: Duration, commit: &str) -> (record::Result, u64) {
    println!("\n== soak: {} from seed {seed}", campaign.name);
    let start = Instant::now();
    let end = start + slice;
    let (mut passed, mut figures, mut last) = (true, Value::Null, seed);
    let mut is_first = true;
    while passed && (is_first || Instant::now() < end) {
        let step = (campaign.step)(seed);
        let outcome = if campaign.json {
            printed(&step).and_then(|(printed, outcome)| {
                if seed == DOCUMENTED_SEED {
                    figures = printed;
                    figures["commit"] = json!(commit);
                }
                outcome.map(|()| true)
            })
        } else {
            step.run_until((!is_first).then_some(end))
        };
        match outcome {
            Ok(false) => break,
            Ok(true) => {}
            Err(why) => {
                eprintln!("{why}");
                passed = false;
            }
        }
        last = seed;
        seed += 1;
        is_first = false;
    }
    let seconds = start.elapsed().as_secs();
    (record::Result { commit: commit.to_owned(), seed: last, seconds, passed, figures }, seed)
}

/// Runs a command that prints one JSON object. Returns its members that are not objects, lists as their lengths, and the outcome. A failed
/// run has figures, too.
fn printed(step: &Step) -> Result<(Value, Outcome), String> {
    println!("\n== {}", step.line());
    let output = step
        .command()
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", step.line()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = format!("failed ({}). To repeat it:\n  {}\n{text}", output.status, step.line());
    let all: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {failed}"))?;
    let figure = |value: &Value| match value {
        Value::Array(list) => json!(list.len()),
        other => other.clone(),
    };
    let kept = all.as_object().into_iter().flatten().filter(|(_, value)| !value.is_object());
    let figures = Value::Object(kept.map(|(name, value)| (name.clone(), figure(value))).collect());
    Ok((figures, if output.status.success() { Ok(()) } else { Err(failed) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        let some = Options { minutes: 3, seed: Some(9), only: Some("crash".into()) };
        assert_eq!(Options::parse(&["--minutes", "3", "--seed", "9", "--only", "crash"]), Ok(some));
        assert_eq!(Options::parse(&[]).unwrap().minutes, 60);
        for wrong in [&["--seed"] as &[&str], &["--hours", "1"], &["--minutes", "x"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_cursor_is_read_as_it_was_written() {
        let seeds = [("a".to_owned(), 7), ("b".to_owned(), 1)].into();
        let cursor = Cursor { next: Some("b".into()), seeds };
        assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        assert_eq!(Cursor::parse("nonsense"), None);
    }

    #[test]
    fn a_campaign_goes_on_with_new_seeds_and_stops_at_a_failure() {
        let campaign = |line: &'static str| Campaign {
            name: "c".into(),
            step: Box::new(move |_| Step::new(line)),
            json: false,
        };
        let (result, seed) = run_slice(&campaign("true"), 5, Duration::ZERO, "abc");
        assert!(result.passed && (result.seed, seed) == (5, 6), "one run at least");
        let (result, seed) = run_slice(&campaign("false"), 5, Duration::from_secs(60), "abc");
        assert!(!result.passed && (result.seed, seed) == (5, 6));
    }

    #[test]
    fn the_campaign_of_clients_prints_one_object_and_fails_without_a_suite() {
        let (figures, outcome) = printed(&crate::clients::suites().and("no-such-suite")).unwrap();
        assert_eq!((&figures["rows"], &figures["passed"]), (&json!(0), &json!(0)));
        assert!(outcome.is_err_and(|why| why.contains("run.py")));
    }

    #[test]
    fn a_whole_name_selects_one_campaign() {
        let chosen = campaigns(Some("power cuts")).unwrap();
        assert_eq!(chosen.iter().map(|campaign| &campaign.name[..]).collect::<Vec<_>>(), ["power cuts"]);
    }

    #[test]
    fn an_engine_without_a_campaign_is_an_error() {
        assert!(crash_campaign("wbtree", &["wbtree".to_owned()]).is_ok());
        assert!(crash_campaign("cdds-hash", &[]).is_ok());
        assert!(crash_campaign("new", &["wbtree".to_owned()]).is_err_and(|why| why.contains("new")));
    }
}
