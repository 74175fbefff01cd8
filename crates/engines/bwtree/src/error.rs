//! Errors of the tree.

/// The reason why an operation was refused. A refused operation changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is too long.
    #[error("a key of {bytes} bytes: keys have at most {max}")]
    KeyTooLong {
        /// Bytes of the key.
        bytes: usize,
        /// Maximum bytes of a key.
        max: usize,
    },
    /// The value is too long.
    #[error("a value of {bytes} bytes: values have at most {max}")]
    ValueTooLong {
        /// Bytes of the value.
        bytes: usize,
        /// Maximum bytes of a value.
        max: usize,
    },
    /// A page's image cannot be read.
    #[error("cannot read a page: {why}")]
    Unreadable {
        /// The reason.
        why: String,
    },
    /// The log does not accept the update.
    #[error("the update is not logged: {why}")]
    NotLogged {
        /// The reason.
        why: String,
    },
    /// An option is invalid.
    #[error("option {name}: {why}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// The reason.
        why: &'static str,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
