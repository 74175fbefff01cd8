//! The test programs of the workspace, two at a time, because a single program often waits for a disk or for its last test.
//!
//! Cargo builds and lists the programs. Each program runs in the folder of its crate, as under `cargo test`. The output
//! of a program is shown when it ends, so that outputs do not mix.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

use crate::Outcome;
use crate::run::Step;

/// Number of programs that run at a time.
const TOGETHER: usize = 2;
/// The packages with the longest tests. They start first.
const LONGEST: [&str; 4] = ["bristlecone-crash-tree", "bristlecone", "bristlecone-cdds", "bristlecone-lab"];

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    package: String,
    /// Arguments of `cargo test` that select it: `--lib`, `--bin NAME`, `--test NAME`, `--example NAME`.
    chosen: String,
    /// Folder of the package's manifest.
    folder: PathBuf,
    path: PathBuf,
}

impl Program {
    /// The command line that repeats it.
    fn line(&self) -> String {
        format!("cargo test --package {} {}", self.package, self.chosen)
    }
}

/// Builds all test programs and runs them with these environment variables.
pub fn run(variables: &[(&'static str, String)]) -> Outcome {
    let build = Step::new("cargo test --workspace --no-run --message-format json-render-diagnostics --quiet");
    let mut programs: Vec<Program> = build.output()?.lines().filter_map(parse).collect();
    if programs.len() < LONGEST.len() {
        return Err(format!("cargo names {} test programs: {programs:?}", programs.len()));
    }
    programs.sort_by_key(|program| {
        // By package. The integration tests are the largest program of a package, so they come first.
        let rank = LONGEST.iter().position(|name| *name == program.package).unwrap_or(LONGEST.len());
        (rank, !program.chosen.starts_with("--test"))
    });
    let count = programs.len();
    programs.reverse();
    let (queue, failed) = (Mutex::new(programs), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                loop {
                    // This statement releases the lock before the program runs.
                    let next = lock(&queue).pop();
                    let Some(program) = next else { break };
                    if let Err(why) = run_one(&program, variables) {
                        lock(&failed).push(why);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    if failed.is_empty() {
        println!("\n== {count} test programs passed");
        return Ok(());
    }
    Err(format!(
        "{} of {count} test programs failed. To repeat them:\n  {}",
        failed.len(),
        failed.join("\n  ")
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs a program and shows its output. The error is the command line that repeats it.
fn run_one(program: &Program, variables: &[(&'static str, String)]) -> Outcome {
    let given = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect::<String>();
    let line = given + &program.line();
    let start = Instant::now();
    let output = Command::new(&program.path)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{line}  ({error})"))?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let seconds = start.elapsed().as_secs_f64();
    println!("\n== {line}\n{}{}== {} in {seconds:.1} s", said[0], said[1], output.status);
    if output.status.success() { Ok(()) } else { Err(line) }
}

/// The program in a message of cargo; `None` if the message is about something else.
fn parse(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let (name, kind) = (message["target"]["name"].as_str()?, message["target"]["kind"][0].as_str()?);
    let chosen = match kind {
        "test" | "bin" | "example" | "bench" => format!("--{kind} {name}"),
        _ => "--lib".to_owned(),
    };
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let id = message["package_id"].as_str()?;
    // `path+file:///folder#name@version`. The name is missing if it equals the folder's name.
    let (place, rest) = id.rsplit_once('#')?;
    let package = rest.split_once('@').map_or_else(|| place.rsplit('/').next(), |(name, _)| Some(name))?;
    let path = PathBuf::from(message["executable"].as_str()?);
    Some(Program { package: package.to_owned(), chosen, folder, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, kind: &str, is_test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact", "package_id": id, "manifest_path": "/here/crates/engines/bptree/Cargo.toml",
            "target": { "name": "main", "kind": [kind] }, "profile": { "test": is_test }, "executable": "/there/main-1",
        })
        .to_string()
    }

    #[test]
    fn a_test_program_is_read_from_a_message_of_cargo() {
        let program = |package: &str, chosen: &str| Program {
            package: package.to_owned(),
            chosen: chosen.to_owned(),
            folder: "/here/crates/engines/bptree".into(),
            path: "/there/main-1".into(),
        };
        let named = "path+file:///here/crates/engines/bptree#bristlecone-bptree@0.1.0";
        assert_eq!(parse(&message(named, "test", true)), Some(program("bristlecone-bptree", "--test main")));
        assert_eq!(parse(&message(named, "lib", true)), Some(program("bristlecone-bptree", "--lib")));
        assert_eq!(
            parse(&message("path+file:///here/crates/engines/bptree#0.1.0", "bin", true)),
            Some(program("bptree", "--bin main"))
        );
        assert_eq!(parse(&message(named, "lib", false)), None);
        assert_eq!(parse("{\"reason\":\"build-finished\",\"success\":true}"), None);
        assert_eq!(parse("words"), None);
    }

    #[test]
    fn a_program_that_fails_is_told_by_the_line_that_repeats_it() {
        let program = |path: &str| Program {
            package: "bristlecone".to_owned(),
            chosen: "--lib".to_owned(),
            folder: "/".into(),
            path: path.into(),
        };
        assert_eq!(run_one(&program("/bin/true"), &[]), Ok(()));
        let why = run_one(&program("/bin/false"), &[("BRISTLECONE_TURN", "3".to_owned())]).unwrap_err();
        assert_eq!(why, "BRISTLECONE_TURN=3 cargo test --package bristlecone --lib");
    }
}
