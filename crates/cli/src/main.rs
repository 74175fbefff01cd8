//! The `bristlecone` program. Each command has a module; this file dispatches to them.
//!
//! Exit codes: 0 success; 1 an error; 2 wrong usage; 3 a key that `get` or `del` did not find; 4 a damaged store, or an incomplete salvage.
//! It is no error if the reader of the output closes the pipe (`scan | head`).
#![deny(unsafe_code)]

mod allocator;
mod backup;
mod check;
mod common;
mod compact;
mod elsewhere;
mod failure;
mod get;
mod input;
mod load;
mod new_store;
mod put;
mod scan;
mod serve;
mod stats;
mod text;
mod top;
mod versions;

use std::ffi::OsString;
use std::process::ExitCode;

use terminal::USAGE;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 error; 2 wrong usage; 3 key not found (get, del); 4 the store is damaged (any command), or
not everything was rescued (check --salvage). With --json an error is an object on standard error: {\"error\":\"...\"}.

Examples:
  bristlecone serve --dir data                     serve Redis clients on 127.0.0.1:7379
  bristlecone load pairs.tsv --format tsv          fill the store in ./bristlecone-data
  bristlecone scan --prefix user: --limit 10       print keys and values in order
  bristlecone top                                  show what the server on 127.0.0.1:7379 does
  bristlecone check --json                         verify everything";

/// A durable ordered key-value store.
#[derive(Parser)]
#[command(name = "bristlecone", version, after_help = EXIT_CODES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a store to Redis clients over the network
    Serve(Box<serve::Arguments>),
    /// Fill a store from a file
    Load(load::Arguments),
    /// Print the value of a key
    Get(get::Arguments),
    /// Store a value under a key
    Put(put::Arguments),
    /// Remove keys
    Del(put::DelArguments),
    /// Print keys and values in key order
    Scan(scan::Arguments),
    /// List, name, forget and restore versions of a store
    Versions(versions::Arguments),
    /// Print sizes and counts of a store
    Stats(stats::Arguments),
    /// Show what a running server does
    Top(top::Arguments),
    /// Point to the benchmarks of bristlecone-lab
    #[command(hide = true)]
    Bench(elsewhere::Arguments),
    /// Point to the experiments of bristlecone-lab
    #[command(hide = true)]
    Lab(elsewhere::Arguments),
    /// Verify a store and report problems
    Check(check::Arguments),
    /// Rewrite a store into a smaller file
    Compact(compact::Arguments),
    /// Copy the state of a store at one moment to another directory
    Backup(backup::Arguments),
}

fn main() -> ExitCode {
    // An error is ignored: without the handler, a bus error ends the program without a message.
    let _ = bristlecone::explain_bus_errors(i32::from(terminal::DAMAGED));
    let line = match serve::layers::expand(std::env::args_os().collect(), |name| std::env::var_os(name)) {
        Ok(line) => line,
        Err(failure) => return failure.report(wants_json(std::env::args_os())),
    };
    let is_json = wants_json(line.iter().cloned());
    let parsed = Program::command().try_get_matches_from(line);
    let parsed = parsed.and_then(|matches| Ok((Program::from_arg_matches(&matches)?, matches)));
    let (program, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) if is_json && error.use_stderr() => {
            let text = error.render().to_string();
            failure::report(&text.trim_start_matches("error: ").trim_end(), true);
            return ExitCode::from(USAGE);
        }
        Err(error) => error.exit(),
    };
    let result = match program.command {
        Command::Serve(arguments) => serve::run(&arguments, serve::named(&matches)),
        Command::Load(arguments) => load::run(&arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Put(arguments) => put::run(&arguments),
        Command::Del(arguments) => put::run_del(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Versions(arguments) => versions::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Bench(arguments) => elsewhere::run("bench ", &arguments),
        Command::Lab(arguments) => elsewhere::run("", &arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Compact(arguments) => compact::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(is_json),
    }
}

/// True if the arguments ask for JSON. This is known also if they are wrong.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}
