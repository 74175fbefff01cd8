//! `cargo xtask`: checks and tasks of the repository (`test`, `soak`, `tidy`, `record`, `docs`, `build-times`, `lines`).
//!
//! * [`mod@test`]: all checks and short tests, from formatting to the last test. Stops at the first failure.
//! * [`soak`]: long campaigns, round-robin with new seeds, until the time is up. The module [`record`] keeps their results.
//! * [`mod@bench`]: the task `record`, which runs a benchmark and writes its record. [`docs`]: tables of documents from records.
//! * [`serve`]: the benchmark of the server, compared with Redis and memcached, also for commands on structures; [`load`]: its load.
//! * [`clients`]: test suites of Redis clients and frameworks, and job systems, against the server.
//! * [`build_times`]: times of builds from an empty target directory.
//! * [`lines`]: lines of code by crate.
//! * [`tidy`]: rules of the repository that no compiler checks.
//! * [`programs`]: runs the test programs, two at a time.
//! * [`needs`]: external programs that the tests need.
//! * [`run`]: runs a command, and prints the line that repeats it if it fails.
#![forbid(unsafe_code)]

mod bench;
mod build_times;
mod circles;
mod clients;
mod docs;
mod lines;
mod load;
mod needs;
mod programs;
mod prose;
mod record;
mod run;
mod serve;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test                        every check and the short tests
cargo xtask soak [--minutes N] [--seed S] [--only NAME]
                                        campaigns in turn, for 60 minutes; starts where the last soak ended
cargo xtask build-times                 times builds from an empty target directory
cargo xtask record NAME                 runs a benchmark and writes its record, docs/records/NAME.json
cargo xtask docs                        rewrites the tables of the documents from docs/records
cargo xtask lines                       lines of code by crate
cargo xtask tidy                        the style rules alone";

/// The result of a task. An error is a message for the user.
type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        words if words.iter().any(|word| matches!(*word, "--help" | "-h" | "help")) => {
            println!("{USAGE}");
            Ok(())
        }
        ["test"] => test::run(),
        ["build-times"] => build_times::run(),
        ["record", name] => bench::run(name),
        ["docs"] => docs::run(&run::root()),
        ["lines"] => lines::run(&run::root()),
        ["tidy"] => tidy::run(&run::root()),
        ["soak", options @ ..] => soak::Options::parse(options).and_then(|options| soak::run(&options)),
        _ => Err(format!("usage:\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
