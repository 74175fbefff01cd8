//! Why a command ended early, and how that is reported.

use std::io;
use std::process::ExitCode;

use terminal::{USAGE, WriteError, progress_bar};

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An experiment ended early.
    #[error(transparent)]
    Lab(#[from] lab::Error),
    /// The system refused something.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] WriteError),
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    /// Reports the failure on standard error and gives the exit code. A reader that has closed the output is no failure.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Output(error) if error.is_closed_pipe() => return ExitCode::SUCCESS,
            failure => terminal::report("bristlecone-lab", failure),
        }
        if let Failure::Usage(_) = self { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    }
}

/// Runs an experiment beside a spinner that says which step runs.
pub fn with_spinner<T>(run: impl FnOnce(&dyn Fn(&str)) -> std::result::Result<T, lab::Error>) -> Result<T> {
    let spinner = progress_bar(0, "{spinner} {msg}");
    let report = run(&|what| spinner.set_message(what.to_owned()));
    spinner.finish_and_clear();
    Ok(report?)
}
