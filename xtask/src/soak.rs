//! `cargo xtask soak`: the longer campaigns, one after another, each with a seed of its own, until the time is up.
//!
//! A campaign once begun is finished, so a soak may take longer than it was given. Every campaign prints the line that
//! repeats it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Outcome;
use crate::run::{Step, target};

/// How long, and from which seed on.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    minutes: u64,
    seed: u64,
}

impl Options {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Words that are no option of `soak`.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut options = Self { minutes: 60, seed: clock };
        for pair in words.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} wants a number", pair[0])) };
            let number = value.parse().map_err(|error| format!("{name} {value}: {error}"))?;
            match *name {
                "--minutes" => options.minutes = number,
                "--seed" => options.seed = number,
                other => return Err(format!("unknown option {other}: soak has --minutes and --seed")),
            }
        }
        Ok(options)
    }
}

/// The campaigns of one seed.
fn campaigns(seed: u64) -> Vec<Step> {
    let lab = |tree| {
        // The random runs alone depend on the number: at every crash point a few images.
        let line = format!("cargo run --release -- lab crash --tree {tree} --ops 100000 --seed {seed}");
        Step::new(&line)
    };
    let mut steps = vec![
        Step::new("cargo test --package bristlecone-tree --test model")
            .with("BRISTLECONE_SEED", seed.to_string()),
        // Some 200,000 schedules of trees in durable memory, 360,000 of lists of leaves, two million of the Bw-tree.
        crate::test::schedules().with("BRISTLECONE_ROUNDS", "20").with("BRISTLECONE_SEED", seed.to_string()),
        Step::new("cargo test --package bristlecone-bwtree --test model")
            .with("BRISTLECONE_SEED", seed.to_string()),
        // Some 12,000 histories.
        Step::new("cargo test --package bristlecone-bwtree --test threads")
            .with("BRISTLECONE_ROUNDS", "50")
            .with("BRISTLECONE_SEED", seed.to_string()),
        // Some 2,400 orders of 4,000 turns.
        Step::new("cargo test --package bristlecone-cdds --test turns")
            .with("BRISTLECONE_ROUNDS", "25")
            .with("BRISTLECONE_SEED", seed.to_string()),
        // Some 22,000 histories.
        Step::new("cargo test --package bristlecone --test histories")
            .with("BRISTLECONE_ROUNDS", "50")
            .with("BRISTLECONE_SEED", seed.to_string()),
        // No seed changes it; the long form of a test of `test`.
        Step::new("cargo test --package bristlecone --test snapshots").with("BRISTLECONE_CHANGES", "1000000"),
        // Some 50,000 cuts.
        Step::new("cargo test --package bristlecone --test power")
            .with("BRISTLECONE_ROUNDS", "82")
            .with("BRISTLECONE_SEED", seed.to_string()),
        Step::new("cargo test --package bristlecone-cli --test kill")
            .with("BRISTLECONE_ROUNDS", "50")
            .with("BRISTLECONE_SEED", seed.to_string()),
    ];
    steps.extend(TREES.map(lab));
    steps
}

/// Real threads on the Bw-tree under the address sanitizer, which looks for leaks too, and under the thread sanitizer. They need a toolchain
/// that has them, the second its library's sources as well: where they are missing that is said, and nothing is done.
fn sanitized() -> Outcome {
    if !Step::new("cargo +nightly --version").succeeds() {
        println!(
            "== no nightly toolchain: the Bw-tree is not run under the sanitizers (rustup toolchain install nightly)"
        );
        return Ok(());
    }
    let threads = |sanitizer: &str, more: &str| {
        let line = format!(
            "cargo test {more} --package bristlecone-bwtree --test threads --target x86_64-unknown-linux-gnu \
             --target-dir {}",
            target().join(sanitizer).display()
        );
        let flags = format!("-Zsanitizer={sanitizer}");
        Step::new(&line).with("RUSTUP_TOOLCHAIN", "nightly").with("RUSTFLAGS", flags).run()
    };
    threads("address", "")?;
    let roots = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    let root =
        roots.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if !Path::new(&root).join("lib/rustlib/src/rust/library").is_dir() {
        println!(
            "== no sources of the library: the Bw-tree is not run under the thread sanitizer (rustup component add --toolchain \
             nightly rust-src)"
        );
        return Ok(());
    }
    // What the library does between threads has to be seen, too.
    threads("thread", "-Zbuild-std")
}

/// Trees that have a layout or a discipline that those before them have not. The first two have all kinds of keys.
const TREES: [&str; 11] = [
    "wbtree",
    "wbtree-keyptr",
    "wbtree-bmp",
    "wbtree-slot",
    "wbtree-line",
    "btree-log",
    "unsorted-log",
    "ubmp-shadow",
    "cnt-4k",
    "wb-4k",
    "buffer-pool",
];

/// Runs campaigns until the time is up.
pub fn run(options: &Options) -> Outcome {
    let end = Instant::now() + Duration::from_secs(options.minutes * 60);
    Step::new("cargo build --release").run()?;
    // No seed changes these: once, and deeper than `test` goes. With three preemptions some have too many orders for any patience:
    // the some forty of them get at most a third of the time, and those that are cut short say so.
    let seconds = (options.minutes / 2).max(10);
    crate::test::models(3).with("LOOM_MAX_DURATION", seconds.to_string()).run()?;
    sanitized()?;
    let mut done = 0;
    for seed in options.seed.. {
        println!("\n== soak: seed {seed}");
        for campaign in campaigns(seed) {
            campaign.run()?;
            done += 1;
            if Instant::now() >= end {
                println!("\n== soak: {done} campaigns passed, seeds {} to {seed}", options.seed);
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        assert_eq!(Options::parse(&["--minutes", "3", "--seed", "9"]), Ok(Options { minutes: 3, seed: 9 }));
        assert_eq!(Options::parse(&[]).unwrap().minutes, 60);
        for wrong in [&["--seed"] as &[&str], &["--hours", "1"], &["--minutes", "x"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
