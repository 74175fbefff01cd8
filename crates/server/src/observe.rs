//! Observation of running commands by administrators: the slow log, and the stream of MONITOR.
//!
//! Invariants:
//! * O1: the slow log and the stream of MONITOR are bounded in entries and in bytes of an entry.
//! * O2: arguments that may be passwords are in neither of the two.
//! * O3: while no client has sent MONITOR, observation costs a command one load for MONITOR, and one reading of the clock for the slow log.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;

use crate::clients::Client;
use crate::command::is;
use crate::shared::{Shared, lock, unix_time};

/// Maximum number of arguments of an entry, as in Redis.
const ARGUMENTS_MAX: usize = 32;
/// Maximum bytes of an argument of an entry, as in Redis.
const ARGUMENT_BYTES_MAX: usize = 128;
/// Maximum number of lines that wait for a MONITOR. A client that falls further behind is disconnected.
const LINES_MAX: usize = 4096;

/// An entry of the slow log.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Number, unique in this process.
    pub id: u64,
    /// Unix time of the end of the command, in seconds.
    pub time: u64,
    /// Duration, without the wait for durability.
    pub duration: Duration,
    /// The arguments, shortened.
    pub arguments: Vec<Vec<u8>>,
    /// Address of the client.
    pub peer: String,
    /// Name of the client.
    pub name: String,
}

#[derive(Debug, Default)]
struct SlowLog {
    entries: VecDeque<Arc<Slow>>,
    next: u64,
}

/// The slow log, and the lines for MONITOR.
#[derive(Debug)]
pub struct Observers {
    slow: Mutex<SlowLog>,
    lines: broadcast::Sender<Arc<str>>,
    monitors: AtomicUsize,
}

impl Default for Observers {
    fn default() -> Self {
        Self {
            slow: Mutex::default(),
            lines: broadcast::Sender::new(LINES_MAX),
            monitors: AtomicUsize::new(0),
        }
    }
}

/// The lines that a MONITOR receives. Dropping it ends the MONITOR.
pub struct Monitor {
    shared: Arc<Shared>,
    lines: broadcast::Receiver<Arc<str>>,
}

impl Monitor {
    /// Starts to receive lines.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        shared.observers.monitors.fetch_add(1, Ordering::Relaxed);
        Self { lines: shared.observers.lines.subscribe(), shared }
    }

    /// The next line. `None` if the client has fallen behind so far that lines are lost. Waits forever without a MONITOR.
    pub async fn next(monitor: Option<&mut Self>) -> Option<Arc<str>> {
        match monitor {
            Some(monitor) => monitor.lines.recv().await.ok(),
            None => std::future::pending().await,
        }
    }

    /// The next line, if it is there already.
    pub fn ready(&mut self) -> Option<Arc<str>> {
        self.lines.try_recv().ok()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.observers.monitors.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The arguments of a command with this name. `(redacted)` replaces those that may be passwords (O2). If the command was renamed, a client
/// may still send the old name.
fn public<'a>(name: &str, arguments: &'a [Bytes]) -> Vec<&'a [u8]> {
    let word = |index: usize, word: &str| arguments.get(index).is_some_and(|argument| is(argument, word));
    let command = |of: &str| name == of || word(0, of);
    let kept = if command("auth") || command("hello") {
        1
    } else if command("acl") && word(1, "setuser") || command("config") && word(1, "set") {
        2
    } else {
        arguments.len()
    };
    let shown = |(index, argument)| if index < kept { argument } else { &b"(redacted)"[..] };
    arguments.iter().map(AsRef::as_ref).enumerate().map(shown).collect()
}

/// An argument of bounded length.
fn short(argument: &[u8]) -> Vec<u8> {
    let rest = argument.len().saturating_sub(ARGUMENT_BYTES_MAX);
    if rest == 0 {
        return argument.to_vec();
    }
    [&argument[..ARGUMENT_BYTES_MAX], format!("... ({rest} more bytes)").as_bytes()].concat()
}

/// Arguments of bounded number and length (O1).
fn shortened(name: &str, arguments: &[Bytes]) -> Vec<Vec<u8>> {
    let arguments = public(name, arguments);
    let rest = arguments.len().saturating_sub(ARGUMENTS_MAX);
    let kept = if rest == 0 { arguments.len() } else { ARGUMENTS_MAX - 1 };
    let mut short: Vec<_> = arguments[..kept].iter().map(|argument| short(argument)).collect();
    if rest > 0 {
        short.push(format!("... ({} more arguments)", rest + 1).into_bytes());
    }
    short
}

impl Shared {
    /// Arguments of bounded number and length, without passwords, also if the command was renamed.
    fn shortened(&self, arguments: &[Bytes]) -> Vec<Vec<u8>> {
        let command = arguments.first().and_then(|name| self.find(name));
        shortened(command.map_or("", |command| command.name), arguments)
    }

    /// Adds a command to the slow log if it was slow.
    pub fn note_duration(&self, client: &Client, arguments: &[Bytes], duration: Duration) {
        let bound = self.settings.slowlog_slower_us.load(Ordering::Relaxed);
        let is_slow = u64::try_from(bound).is_ok_and(|bound| duration.as_micros() >= u128::from(bound));
        if !is_slow {
            return;
        }
        let entries_max = self.settings.slowlog_entries_max.load(Ordering::Relaxed);
        let name = lock(&client.names).name.clone();
        let arguments = self.shortened(arguments);
        let mut slow = lock(&self.observers.slow);
        let id = slow.next;
        slow.next += 1;
        let time = unix_time().as_secs();
        slow.entries.push_front(Arc::new(Slow {
            id,
            time,
            duration,
            arguments,
            peer: client.peer.to_string(),
            name,
        }));
        slow.entries.truncate(entries_max);
    }

    /// The newest entries of the slow log, newest first.
    #[must_use]
    pub fn slow_log(&self, count: usize) -> Vec<Arc<Slow>> {
        lock(&self.observers.slow).entries.iter().take(count).cloned().collect()
    }

    /// Number of entries of the slow log.
    #[must_use]
    pub fn slow_log_len(&self) -> usize {
        lock(&self.observers.slow).entries.len()
    }

    /// Removes all entries of the slow log.
    pub fn reset_slow_log(&self) {
        lock(&self.observers.slow).entries.clear();
    }

    /// True if a client has sent MONITOR.
    #[must_use]
    pub fn has_monitors(&self) -> bool {
        self.observers.monitors.load(Ordering::Relaxed) > 0
    }

    /// Sends a command of a client to the MONITORs, if there are any.
    pub fn show_command(&self, client: &Client, arguments: &[Bytes]) {
        if self.has_monitors() {
            self.show(lock(&client.names).database, &client.peer, arguments);
        }
    }

    /// Sends a command of a script to the MONITORs, if there are any. A script that runs again sends its commands again.
    pub fn show_command_of_script(&self, database: usize, arguments: &[Bytes]) {
        if self.has_monitors() {
            self.show(database, &"lua", arguments);
        }
    }

    fn show(&self, database: usize, peer: &dyn fmt::Display, arguments: &[Bytes]) {
        let now = unix_time();
        let mut line = format!("{}.{:06} [{database} {peer}]", now.as_secs(), now.subsec_micros());
        for argument in self.shortened(arguments) {
            line += " ";
            quote(&mut line, &argument);
        }
        // It fails only if the last MONITOR has just ended.
        let _ = self.observers.lines.send(line.into());
    }
}

/// Appends an argument in quotation marks, as Redis writes it. The text has no line ends and no bytes beyond ASCII.
fn quote(line: &mut String, argument: &[u8]) {
    line.push('"');
    for byte in argument {
        match byte {
            b'\'' => line.push('\''),
            7 => line.push_str("\\a"),
            8 => line.push_str("\\b"),
            _ => line.extend(byte.escape_ascii().map(char::from)),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &str) -> Vec<Bytes> {
        words.split(' ').map(|word| Bytes::from(word.to_owned())).collect()
    }

    #[test]
    fn passwords_are_not_shown_and_entries_are_short() {
        for words in
            ["AUTH bob pw", "hello 3 auth bob pw", "ACL SETUSER bob >pw", "config set requirepass pw"]
        {
            let shown = shortened("", &arguments(words)).join(&b' ');
            assert!(!String::from_utf8(shown).unwrap().contains("pw"), "{words}");
        }
        assert_eq!(shortened("auth", &arguments("LOGIN pw")), [b"LOGIN".to_vec(), b"(redacted)".to_vec()]);
        assert_eq!(shortened("", &arguments("GET pw")), [b"GET".to_vec(), b"pw".to_vec()]);
        let many = shortened("", &vec![Bytes::from_static(b"x"); 1000]);
        assert_eq!((many.len(), many.last().unwrap().as_slice()), (32, &b"... (969 more arguments)"[..]));
        let long = shortened("", &[Bytes::from(vec![b'x'; 1000])]);
        assert!(long[0].ends_with(b"x... (872 more bytes)") && long[0].len() < 200);
    }
}
