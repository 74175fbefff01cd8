//! The errors of commands, their messages and exit codes.

use std::io::{self, Write as _};
use std::process::ExitCode;

use terminal::{DAMAGED, USAGE};

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] bristlecone::Error),
    /// The server stopped because of an error.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// A system call failed.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] terminal::WriteError),
    /// A line of an input file cannot be loaded.
    #[error("{input}, line {line}: {why}; {loaded} pairs before it were loaded and stay")]
    Line {
        /// The file's name.
        input: String,
        /// The line, from 1.
        line: u64,
        /// The problem of the line.
        why: String,
        /// Number of pairs stored before this line.
        loaded: u64,
    },
    /// A line of an input file cannot be loaded. `load` had made the store, and removed it.
    #[error("{input}, line {line}: {why}; no store was made")]
    FirstLoad {
        /// The file's name.
        input: String,
        /// The line, from 1.
        line: u64,
        /// The problem of the line.
        why: String,
    },
    /// Loading ended because of an error of the store.
    #[error("{why}; {loaded} pairs before it were loaded and stay")]
    Load {
        /// The reason.
        why: String,
        /// Number of pairs stored before the error.
        loaded: u64,
    },
    /// Arguments that cannot be combined.
    #[error("{0}")]
    Usage(String),
    /// Any other error.
    #[error("{0}")]
    Text(String),
}

impl Failure {
    /// Prints the error to standard error, as JSON if the command prints JSON, and returns the exit code. A closed pipe at the output is a
    /// success.
    pub fn report(&self, is_json: bool) -> ExitCode {
        if let Failure::Output(error) = self
            && error.is_closed_pipe()
        {
            return ExitCode::SUCCESS;
        }
        report(self, is_json);
        match self {
            Failure::Usage(_) => ExitCode::from(USAGE),
            Failure::Store(error) if error.is_damage() => ExitCode::from(DAMAGED),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Prints an error to standard error: a line of text, or an object `{"error":"…"}`.
pub fn report(error: &dyn std::fmt::Display, is_json: bool) {
    match is_json {
        true => {
            // As in `terminal::report`, there is no place for an error of this write.
            let object = serde_json::json!({ "error": error.to_string() });
            let _ = writeln!(io::stderr(), "{object}");
        }
        false => terminal::report("bristlecone", error),
    }
}

/// Adds a description of the failed action to a system error.
pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    let what = what.into();
    move |error| Failure::Io(what, error)
}
