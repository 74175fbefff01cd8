//! `cargo xtask build-times`: the times of builds from an empty target directory, and the size of the program.
//!
//! The command prints one row for each build, with the time that the build should take at most. A build that takes longer is reported but
//! is not an error, because machines differ.

use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::run::{Step, Times, root, target, timed};

/// A measured figure and its target, in the same unit.
struct Row {
    what: String,
    figure: f64,
    target: f64,
    unit: &'static str,
}

impl Row {
    fn print(&self) {
        let Self { what, figure, target, unit } = self;
        let verdict = if figure <= target { "met" } else { "missed" };
        println!("{what:<64} {figure:>8.1} {target:>8.1} {unit:<3} {verdict}");
    }
}

/// Builds, measures, and prints a table.
pub fn run() -> Outcome {
    let folder = target().join("build-times");
    // Downloads are not part of a build.
    Step::new("cargo fetch --locked").run()?;
    let mut rows = program(&folder.join("program"))?;
    rows.push(user_crate(&folder.join("user"))?);
    rows.push(touched(&folder.join("touched"))?);
    println!("\n{:<64} {:>8} {:>8}", "what", "figure", "target");
    rows.iter().for_each(Row::print);
    Ok(())
}

fn cold(folder: &Path) -> Outcome {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn measured(step: &Step) -> Result<Times, String> {
    let (outcome, times) = timed(|| step.run());
    outcome.map(|()| times)
}

/// The release build of the program with its dependencies.
fn program(folder: &Path) -> Result<Vec<Row>, String> {
    cold(folder)?;
    let line = format!("cargo build --release --timings --target-dir {}", folder.display());
    let times = measured(&Step::new(&line))?;
    let program = folder.join("release/bristlecone");
    let sizes = Step::new("size -A").and(&program.display().to_string()).output()?;
    let text =
        sizes.lines().find_map(|line| line.strip_prefix(".text")?.split_whitespace().next()?.parse().ok());
    let text: f64 = text.ok_or("size has no line for .text")?;
    let all = fs::metadata(&program).map_err(|error| format!("{}: {error}", program.display()))?.len();
    let row = |what: &str, figure, target, unit| Row { what: what.into(), figure, target, unit };
    println!("what each crate took: {}", folder.join("cargo-timings/cargo-timing.html").display());
    println!("the program's file has {:.1} MB", all as f64 / 1e6);
    Ok(vec![
        row("cargo build --release, wall", times.wall.as_secs_f64(), 120.0, "s"),
        row("cargo build --release, processor", times.processor.as_secs_f64(), 210.0, "s"),
        row("code of the program (.text)", text / 1e6, 12.0, "MB"),
    ])
}

/// A user's crate that depends on the library.
fn user_crate(folder: &Path) -> Result<Row, String> {
    cold(folder)?;
    let fail = |error: std::io::Error| format!("cannot make {}: {error}", folder.display());
    fs::create_dir_all(folder.join("src")).map_err(fail)?;
    let library = root().join("crates/bristlecone");
    let manifest = format!(
        "[package]\nname = \"user\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         bristlecone = {{ path = {:?} }}\n\n[workspace]\n",
        library.display().to_string()
    );
    let main = "fn main() -> Result<(), bristlecone::Error> {\n    \
                let store = bristlecone::Store::open(\"store\", bristlecone::Options::default())?;\n    \
                store.put(b\"key\", b\"value\")?;\n    store.close()\n}\n";
    fs::write(folder.join("Cargo.toml"), manifest).map_err(fail)?;
    fs::write(folder.join("src/main.rs"), main).map_err(fail)?;
    // The same versions as in this repository.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(fail)?;
    let line = format!(
        "cargo build --release --manifest-path {0}/Cargo.toml --target-dir {0}/target",
        folder.display()
    );
    let times = measured(&Step::new(&line))?;
    Ok(Row {
        what: "a crate that depends on bristlecone, release, wall".into(),
        figure: times.wall.as_secs_f64(),
        target: 75.0,
        unit: "s",
    })
}

/// The tests of the crate `bptree`, rebuilt after a change of `insert.rs`.
fn touched(folder: &Path) -> Result<Row, String> {
    let line = format!("cargo test --package bristlecone-bptree --no-run --target-dir {}", folder.display());
    let step = Step::new(&line);
    step.run()?;
    Step::new("touch crates/engines/bptree/src/insert.rs").run()?;
    let times = measured(&step)?;
    Ok(Row {
        what: "cargo test -p bristlecone-bptree after a change of insert.rs, wall".into(),
        figure: times.wall.as_secs_f64(),
        target: 60.0,
        unit: "s",
    })
}
