//! What can be refused.

/// Why an operation was refused; it then changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is longer than keys can be.
    #[error("a key of {bytes} bytes: keys have at most {max}")]
    KeyTooLong {
        /// Bytes of the key.
        bytes: usize,
        /// The most a key may have.
        max: usize,
    },
    /// The value is longer than values can be.
    #[error("a value of {bytes} bytes: values have at most {max}")]
    ValueTooLong {
        /// Bytes of the value.
        bytes: usize,
        /// The most a value may have.
        max: usize,
    },
    /// An option has no sense.
    #[error("option {name}: {why}")]
    Option {
        /// The option.
        name: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A result of this space.
pub type Result<T> = std::result::Result<T, Error>;
