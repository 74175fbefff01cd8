//! Settings that can change while the server runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::Config;

/// The program's function that changes the level of log lines. The server calls it for CONFIG SET.
#[derive(Clone)]
pub struct LogControl {
    /// The level at the start.
    pub level: tracing::Level,
    /// Sets the level.
    pub set: Arc<dyn Fn(tracing::Level) + Send + Sync>,
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogControl({})", self.level)
    }
}

/// The settings, at first those of [`Config`].
#[derive(Debug)]
pub struct Settings {
    /// Maximum number of connections.
    pub clients_max: AtomicUsize,
    /// Idle connections are closed after this time in seconds. 0: never.
    pub timeout_seconds: AtomicU64,
}

impl Settings {
    /// The settings of a server that is about to start.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            clients_max: AtomicUsize::new(config.clients_max),
            timeout_seconds: AtomicU64::new(config.timeout_seconds),
        }
    }
}
