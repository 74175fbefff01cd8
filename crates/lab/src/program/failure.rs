//! The errors of commands, their messages and exit codes.

use std::io;
use std::process::ExitCode;

use terminal::{USAGE, WriteError, progress_bar};

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An experiment failed.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// A system call failed.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] WriteError),
    /// Arguments that cannot be combined.
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    /// Prints the error to standard error and returns the exit code. A closed pipe at the output is a success.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Output(error) if error.is_closed_pipe() => return ExitCode::SUCCESS,
            failure => terminal::report("bristlecone-lab", failure),
        }
        if let Failure::Usage(_) = self { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    }
}

/// Runs an experiment with a spinner that shows the current step.
pub fn with_spinner<T>(run: impl FnOnce(&dyn Fn(&str)) -> std::result::Result<T, lab::Error>) -> Result<T> {
    let spinner = progress_bar(0, "{spinner} {msg}");
    let report = run(&|what| spinner.set_message(what.to_owned()));
    spinner.finish_and_clear();
    Ok(report?)
}
