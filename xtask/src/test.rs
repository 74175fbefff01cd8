//! `cargo xtask test`: the steps, cheapest first.

use crate::run::{Step, root, target};
use crate::{Outcome, needs, tidy};

/// Runs every check and the short tests; stops at the first failure.
pub fn run() -> Outcome {
    println!("== what the tests need");
    needs::provide()?;
    Step::new("cargo fmt --all --check").run()?;
    println!("\n== cargo xtask tidy");
    tidy::run(&root()).map_err(|why| format!("{why}\nTo repeat it:\n  cargo xtask tidy"))?;
    let steps = [
        Step::new("cargo clippy --workspace --all-targets -- -D warnings"),
        Step::new("cargo doc --workspace --no-deps").with("RUSTDOCFLAGS", "-D warnings"),
        Step::new("cargo test --workspace").with("BRISTLECONE_PY", target().join("py").display().to_string()),
        // The maps that `bench bwtree` measures are crates, and in no other build. (Those of other stores want libraries of the system.)
        Step::new("cargo test --package bristlecone-peers --features maps --test maps"),
        models(2),
        schedules(),
    ];
    steps.iter().try_for_each(Step::run)?;
    println!("\n== all checks passed");
    Ok(())
}

/// The models of the protocols between threads, explored with at most so many preemptions. They are built apart, because
/// the model checker's flag would build everything anew.
pub fn models(preemptions: u32) -> Step {
    let folder = target().join("loom");
    let line = format!(
        "cargo test --package bristlecone-pmem --package bristlecone-bwtree --lib --target-dir {} \
         model:: -- --nocapture",
        folder.display()
    );
    Step::new(&line).with("RUSTFLAGS", "--cfg loom").with("LOOM_MAX_PREEMPTIONS", preemptions.to_string())
}

/// Random schedules of whole operations on trees and on lists of leaves. Built apart, as the models are; hardly optimised, because they are run for
/// less time than it takes to build them.
pub fn schedules() -> Step {
    let folder = target().join("shuttle");
    let line = format!(
        "cargo test --package bristlecone-tree --package bristlecone-bwtree --package bristlecone-vlab \
         --package bristlecone-nvtree --test schedules --target-dir {} -- --nocapture",
        folder.display()
    );
    Step::new(&line)
        .with("RUSTFLAGS", "--cfg shuttle")
        .with("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .with("CARGO_PROFILE_DEV_DEBUG", "0")
}
