//! `cargo xtask test`: all steps, the cheapest first.

use crate::run::{Clock, Step, commit, root, target};
use crate::{Outcome, needs, programs, record, tidy};

/// Runs every check and the short tests. Stops at the first failure. At the end prints the time of each step and the age of the last full
/// soak.
pub fn run() -> Outcome {
    let clock = Clock::default();
    let outcome = steps(&clock);
    clock.print();
    println!("\n{}", record::age());
    outcome?;
    println!("\n== all checks passed");
    Ok(())
}

fn steps(clock: &Clock) -> Outcome {
    println!("== what the tests need");
    clock.step("needs", needs::provide)?;
    clock.step("format", || Step::new("cargo fmt --all --check").run())?;
    println!("\n== cargo xtask tidy");
    let tidy = || tidy::run(&root()).map_err(|why| format!("{why}\nTo repeat it:\n  cargo xtask tidy"));
    clock.step("tidy", tidy)?;
    let before = [
        ("clippy", Step::new("cargo clippy --workspace --all-targets -- -D warnings")),
        ("documentation", Step::new("cargo doc --workspace --no-deps").with("RUSTDOCFLAGS", "-D warnings")),
        ("build the tests", Step::new("cargo test --workspace --no-run")),
    ];
    let behind = [
        ("documents' examples", Step::new("cargo test --workspace --doc")),
        // No other build compiles the maps that `bench bwtree` measures. (Other stores need system libraries.)
        (
            "competitors' maps",
            Step::new("cargo test --package bristlecone-competitors --features maps --test maps"),
        ),
        ("models (loom)", models(2)),
        ("schedules (shuttle)", schedules()),
    ];
    before.iter().try_for_each(|(name, step)| clock.step(name, || step.run()))?;
    clock.step("tests", || programs::run(&variables()))?;
    behind.iter().try_for_each(|(name, step)| clock.step(name, || step.run()))?;
    clock.step("program of default features", engines_left_out)
}

/// Checks a program with the default features. It opens a golden store of an engine that it has. For an engine that it lacks, it names the
/// feature. No test program can check this, because tests are built with all engines.
fn engines_left_out() -> Outcome {
    // The program runs only briefly, so optimisation costs more time than it saves.
    Step::new("cargo build --package bristlecone-cli --config profile.dev.package.bristlecone.opt-level=0")
        .run()?;
    let program = target().join("debug/bristlecone").display().to_string();
    let stats = |golden: &str| -> Result<(Option<i32>, String), String> {
        let dir = target().join("golden").join(golden);
        let fail = |error: std::io::Error| format!("{}: {error}", dir.display());
        std::fs::create_dir_all(&dir).map_err(fail)?;
        let packed = root().join("crates/bristlecone/tests/golden");
        for entry in std::fs::read_dir(&packed).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(file) = name.strip_prefix(&format!("{golden}.")).and_then(|n| n.strip_suffix(".gz"))
            else {
                continue;
            };
            let content =
                Step::new("gzip -dc").and(&path.display().to_string()).command().output().map_err(fail)?;
            std::fs::write(dir.join(file), content.stdout).map_err(fail)?;
        }
        let step = Step::new(&program).and("stats").and("--dir").and(&dir.display().to_string());
        let output = step.command().output().map_err(fail)?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let (code, said) = stats("v5-wbtree-bytes-mapped-closed")?;
    if code != Some(0) {
        return Err(format!("a program with the default features does not open a store of wbtree: {said}"));
    }
    let (code, said) = stats("v5-nvtree-bytes-mapped-closed")?;
    if code != Some(1) || !said.contains("paper-engines") {
        return Err(format!(
            "a program without nvtree does not name its feature: exit code {code:?}, {said}"
        ));
    }
    println!("it says: {}", said.trim_end());
    Ok(())
}

/// Environment variables of the tests. Tests that are too long for every change take turns by the commit's number. For example, besides the
/// mutants of the default engine, those of one other engine run.
fn variables() -> [(&'static str, String); 2] {
    let turn = commit().and_then(|hash| u64::from_str_radix(hash.get(..8)?, 16).ok()).unwrap_or(0);
    [("BRISTLECONE_PY", target().join("py").display().to_string()), ("BRISTLECONE_TURN", turn.to_string())]
}

/// The loom models, with at most this many preemptions. They have their own target folder, because the model checker's flag would rebuild
/// everything.
pub fn models(preemptions: u32) -> Step {
    let folder = target().join("loom");
    let line = format!(
        "cargo test --package bristlecone-pmem --package bristlecone-bwtree --package bristlecone-logstore --lib \
         --target-dir {} model -- --nocapture",
        folder.display()
    );
    Step::new(&line).with("RUSTFLAGS", "--cfg loom").with("LOOM_MAX_PREEMPTIONS", preemptions.to_string())
}

/// Schedules of whole operations on trees and on lists of leaves. They have their own target folder, as the models have. They are hardly
/// optimised, because they run for less time than an optimised build takes.
pub fn schedules() -> Step {
    let folder = target().join("shuttle");
    let line = format!(
        "cargo test --package bristlecone-bptree --package bristlecone-bwtree --package bristlecone-vlab \
         --package bristlecone-nvtree --package bristlecone-schedules --test main --target-dir {} -- --nocapture",
        folder.display()
    );
    Step::new(&line)
        .with("RUSTFLAGS", "--cfg shuttle")
        .with("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .with("CARGO_PROFILE_DEV_DEBUG", "0")
}
