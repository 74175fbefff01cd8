//! What ends a command early, and how it is told.

use std::io;
use std::process::ExitCode;

use terminal::{DAMAGED, USAGE};

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] bristlecone::Error),
    /// The server stopped otherwise than on request.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// The system refused something.
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
        /// What is wrong with it.
        why: String,
        /// Pairs stored before.
        loaded: u64,
    },
    /// A line of an input file cannot be loaded, and the store was made for it.
    #[error("{input}, line {line}: {why}; no store was made")]
    FirstLoad {
        /// The file's name.
        input: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Loading ended for another reason.
    #[error("{why}; {loaded} pairs before it were loaded and stay")]
    Load {
        /// The reason.
        why: String,
        /// Pairs stored before.
        loaded: u64,
    },
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// Anything else.
    #[error("{0}")]
    Text(String),
}

impl Failure {
    /// Tells the failure on the error output and gives the exit code. A reader that has gone is no failure.
    pub fn report(&self) -> ExitCode {
        if let Failure::Output(error) = self
            && error.is_closed_pipe()
        {
            return ExitCode::SUCCESS;
        }
        terminal::report("bristlecone", self);
        match self {
            Failure::Usage(_) => ExitCode::from(USAGE),
            Failure::Store(error) if error.is_damage() => ExitCode::from(DAMAGED),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Gives an error of the system its subject.
pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    let what = what.into();
    move |error| Failure::Io(what, error)
}
