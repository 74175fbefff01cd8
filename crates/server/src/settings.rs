//! Settings that can change while the server runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use crate::Config;
use crate::command::{Command, find};

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
    /// Commands that take at least this time in microseconds are in the slow log. Negative: none are.
    pub slowlog_slower_us: AtomicI64,
    /// Maximum number of entries of the slow log.
    pub slowlog_entries_max: AtomicUsize,
    /// A script that runs longer, in milliseconds, is stopped. 0: never.
    pub script_ms: AtomicU64,
    /// The bits of the classes of keyspace notifications.
    pub notified: AtomicU16,
    /// The level of log lines, if the server can change it.
    pub log_level: Mutex<Option<tracing::Level>>,
}

impl Settings {
    /// The settings of a server that is about to start.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            clients_max: AtomicUsize::new(config.clients_max),
            timeout_seconds: AtomicU64::new(config.timeout_seconds),
            slowlog_slower_us: AtomicI64::new(config.slowlog_slower_us),
            slowlog_entries_max: AtomicUsize::new(config.slowlog_entries_max),
            script_ms: AtomicU64::new(config.script_ms),
            notified: AtomicU16::new(config.notified.bits()),
            log_level: Mutex::new(config.log.as_ref().map(|log| log.level)),
        }
    }
}

/// Other names of commands.
#[derive(Clone, Debug, Default)]
pub struct Renames(HashMap<String, Option<&'static Command>>);

/// The reason why a command cannot be renamed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RenameError {
    /// There is no such command.
    #[error("there is no command {0}")]
    Unknown(String),
    /// The new name is in use.
    #[error("the name {0} is in use")]
    InUse(String),
}

impl Renames {
    /// Renames commands: old name, new name. An empty new name disables the command.
    ///
    /// # Errors
    /// A command does not exist, or a new name is in use.
    pub fn new(pairs: &[(String, String)]) -> Result<Self, RenameError> {
        let mut names = HashMap::new();
        for (old, _) in pairs {
            find(old.as_bytes()).ok_or_else(|| RenameError::Unknown(old.clone()))?;
            names.insert(old.to_ascii_lowercase(), None);
        }
        for (old, new) in pairs.iter().filter(|(_, new)| !new.is_empty()) {
            let lower = new.to_ascii_lowercase();
            let is_used = match names.get(&lower) {
                Some(command) => command.is_some(),
                None => find(lower.as_bytes()).is_some(),
            };
            if is_used {
                return Err(RenameError::InUse(new.clone()));
            }
            names.insert(lower, find(old.as_bytes()));
        }
        Ok(Self(names))
    }

    /// Finds the command with this name. The name is the new one if the command is renamed. Upper and lower case are equal.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        if self.0.is_empty() {
            return find(name);
        }
        let renamed = std::str::from_utf8(name).ok().and_then(|name| self.0.get(&name.to_ascii_lowercase()));
        renamed.copied().unwrap_or_else(|| find(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_renamed_swapped_and_disabled() {
        let pairs = |pairs: &[(&str, &str)]| {
            Renames::new(
                &pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect::<Vec<_>>(),
            )
        };
        let renames = pairs(&[("KEYS", ""), ("config", "Secret"), ("get", "set"), ("set", "get")]).unwrap();
        let name = |name: &str| renames.find(name.as_bytes()).map(|command| command.name);
        assert_eq!([name("keys"), name("CONFIG"), name("SECRET")], [None, None, Some("config")]);
        assert_eq!([name("GET"), name("SET"), name("ping")], [Some("set"), Some("get"), Some("ping")]);
        assert_eq!(pairs(&[("nosuch", "")]).unwrap_err(), RenameError::Unknown("nosuch".to_owned()));
        assert_eq!(pairs(&[("keys", "get")]).unwrap_err(), RenameError::InUse("get".to_owned()));
        assert_eq!(pairs(&[("keys", "x"), ("get", "X")]).unwrap_err(), RenameError::InUse("X".to_owned()));
    }
}
