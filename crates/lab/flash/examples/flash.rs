//! `bench flash` alone, without the other benchmarks of `bristlecone-lab`. It builds faster.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "flash", args_conflicts_with_subcommands = true)]
struct Program {
    #[command(flatten)]
    arguments: flash::Arguments,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(clap::Subcommand)]
enum Child {
    /// The process of one store.
    #[command(hide = true)]
    Store,
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let Program { arguments, child } = Program::parse();
    if child.is_some() {
        return Ok(flash::serve()?);
    }
    let child = vec![std::env::current_exe()?.into_os_string(), OsString::from("store")];
    let report = flash::run(&arguments.options(child), &|step| eprintln!("{step}"))?;
    Ok(terminal::show(report, arguments.json)?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::report("flash", &error);
            ExitCode::FAILURE
        }
    }
}
