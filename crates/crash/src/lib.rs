//! Crash-state explorer.
