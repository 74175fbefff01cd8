//! What ends a command early, and how it is told.

use std::io::{self, Write as _};
use std::process::ExitCode;

/// Exit code of wrong usage, as the parser of the arguments gives it.
const USAGE: u8 = 2;
/// Exit code of a key that was not found.
pub const NOT_FOUND: u8 = 3;
/// Exit code of damage that a check found.
pub const DAMAGED: u8 = 4;

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
    /// An experiment ended early.
    #[error(transparent)]
    Lab(#[from] ::lab::Error),
    /// The system refused something.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// A line of an input file cannot be loaded.
    #[error("{input}, line {line}: {why}; {loaded} keys before it were loaded and stay")]
    Line {
        /// The file's name.
        input: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
        /// Keys stored before.
        loaded: u64,
    },
    /// Loading ended for another reason.
    #[error("{why}; {loaded} keys before it were loaded and stay")]
    Load {
        /// The reason.
        why: String,
        /// Keys stored before.
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
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return ExitCode::SUCCESS;
        }
        // If the error output is closed too, the exit code has to do.
        let _ = writeln!(io::stderr(), "bristlecone: {self}");
        if let Failure::Usage(_) = self { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    }
}

/// Gives an error of the system its subject.
pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    let what = what.into();
    move |error| Failure::Io(what, error)
}
