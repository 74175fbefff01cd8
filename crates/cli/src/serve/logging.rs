//! Log lines of the server on standard error.

use std::io;
use std::sync::Arc;

use server::settings::LogControl;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, reload};

/// The lowest level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// Failures of the server.
    Error,
    /// Also refused clients, and settings that could not be kept.
    Warn,
    /// Also starts and stops.
    Info,
    /// Also single connections.
    Debug,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Time, level, text and fields.
    Text,
    /// One JSON object.
    Json,
}

impl From<Level> for tracing::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
        }
    }
}

/// Starts logging. Returns the function that changes the level.
pub fn start(level: Level, format: Format) -> LogControl {
    let level = level.into();
    let (filter, handle) = reload::Layer::new(LevelFilter::from_level(level));
    let lines = match format {
        Format::Text => fmt::layer().with_target(false).with_writer(io::stderr).boxed(),
        Format::Json => fmt::layer().json().with_target(false).with_writer(io::stderr).boxed(),
    };
    // It fails only if the process already has a subscriber. Then the lines go to that one.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    let set = move |level| {
        // It fails only after the subscriber was dropped, at the end of the process.
        let _ = handle.modify(|filter| *filter = LevelFilter::from_level(level));
    };
    LogControl { level, set: Arc::new(set) }
}
