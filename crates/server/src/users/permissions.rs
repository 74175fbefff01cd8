//! The commands that a user may run, and the keys of a command.
//!
//! Invariants:
//! * P1: the newest rule that covers a command or subcommand decides.
//! * P2: commands that log in or end a connection ([`Flags::OPEN`]) need no permission.
//! * P3: a command needs the permissions for its keys that [`Uses`](super::uses::Uses) says: unless it says otherwise, one that changes keys
//!   needs those to read and to write them.

use bytes::Bytes;

use super::RuleError;
use crate::command::{Command, Flags, all, find, integer, is};

/// The categories of Redis, as ACL CAT lists them. The server has no commands of some categories. Their rules are kept, so that users and
/// ACL files of Redis can be loaded.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Commands that have subcommands.
const CONTAINERS: [(&str, &str); 14] = [
    ("acl", "cat deluser dryrun genpass getuser list load log save setuser users whoami"),
    (
        "client",
        "caching getname getredir id info kill list no-evict no-touch pause reply setinfo setname tracking trackinginfo unblock \
         unpause",
    ),
    (
        "cluster",
        "addslots addslotsrange bumpepoch count-failure-reports countkeysinslot delslots delslotsrange failover flushslots forget \
         getkeysinslot info keyslot links meet myid myshardid nodes replicas replicate reset saveconfig set-config-epoch setslot \
         shards slaves slots",
    ),
    ("command", "count docs getkeys getkeysandflags info list"),
    ("config", "get resetstat rewrite set"),
    ("function", "delete dump flush kill list load restore stats"),
    ("latency", "doctor graph histogram history latest reset"),
    ("memory", "doctor malloc-stats purge stats usage"),
    ("object", "encoding freq idletime refcount"),
    ("pubsub", "channels numpat numsub shardchannels shardnumsub"),
    ("script", "debug exists flush kill load"),
    ("slowlog", "get len reset"),
    ("xgroup", "create createconsumer delconsumer destroy setid"),
    ("xinfo", "consumers groups stream"),
];

/// The subcommands of a command; all have HELP, too. `None` if it has none.
fn subcommands(command: &str) -> Option<&'static str> {
    CONTAINERS.iter().find(|(name, _)| *name == command).map(|(_, subcommands)| *subcommands)
}

/// Subcommands for administrators, of commands that are for everybody.
const ADMIN_SUBCOMMANDS: [(&str, &[&str]); 2] = [
    ("acl", &["list", "users", "getuser", "setuser", "deluser", "dryrun", "load", "log", "save"]),
    ("client", &["kill", "list", "pause", "unblock", "unpause", "no-evict"]),
];

/// Subcommands that write, of commands that do not.
const WRITING_SUBCOMMANDS: [(&str, &[&str]); 1] = [("function", &["delete", "flush", "load", "restore"])];

/// Commands that an attacker could use to stop a server or to learn about it, although they are not for administrators.
const DANGEROUS: [&str; 10] =
    ["flushall", "flushdb", "info", "keys", "lastsave", "range", "restore", "sort", "sort_ro", "swapdb"];

/// True if a command belongs to a category.
#[must_use]
pub fn is_in(command: &Command, category: &str) -> bool {
    let has = |flag| command.flags.has(flag);
    let is_sort = matches!(command.name, "sort" | "sort_ro");
    match category {
        "keyspace" => {
            command.group == "generic" && !is_sort
                || matches!(command.name, "flushall" | "flushdb" | "swapdb")
        }
        "read" => has(Flags::READ),
        "write" => has(Flags::WRITE),
        "list" | "set" | "sortedset" if is_sort => true,
        "string" | "bitmap" | "connection" | "geo" | "hyperloglog" | "pubsub" | "hash" | "list" | "set"
        | "scripting" | "stream" => command.group == category,
        "sortedset" => command.group == "sorted-set",
        "transaction" => command.group == "transactions",
        "blocking" => has(Flags::BLOCKS),
        "fast" => has(Flags::FAST),
        "slow" => !has(Flags::FAST),
        "admin" => has(Flags::ADMIN),
        "dangerous" => has(Flags::ADMIN) || DANGEROUS.contains(&command.name),
        _ => false,
    }
}

/// The name of a command, with its subcommand if it has one.
#[must_use]
pub fn full_name(command: &Command, arguments: &[Bytes]) -> String {
    match arguments.get(1).filter(|_| subcommands(command.name).is_some()) {
        Some(subcommand) => {
            let subcommand: String = String::from_utf8_lossy(subcommand).chars().take(128).collect();
            format!("{}|{}", command.name, subcommand.to_ascii_lowercase())
        }
        None => command.name.to_owned(),
    }
}

/// A set of commands and subcommands.
#[derive(Clone, Debug)]
pub struct Commands {
    /// For each command of the table, whether it is allowed.
    allowed: Vec<bool>,
    /// Exceptions for subcommands: command, subcommand, allowed. The last one counts.
    exceptions: Vec<(&'static str, String, bool)>,
    /// The rules that made this set.
    rules: Vec<String>,
    /// True if everything is allowed.
    is_all: bool,
}

impl Commands {
    /// All commands.
    #[must_use]
    pub fn all() -> Self {
        Self::whole(true)
    }

    /// No commands.
    #[must_use]
    pub fn none() -> Self {
        Self::whole(false)
    }

    fn whole(is_all: bool) -> Self {
        let rules = vec![if is_all { "+@all" } else { "-@all" }.to_owned()];
        Self { allowed: vec![is_all; all().len()], exceptions: Vec::new(), rules, is_all }
    }

    /// The rules, separated by spaces.
    #[must_use]
    pub fn rules(&self) -> String {
        self.rules.join(" ")
    }

    /// True if every command is allowed.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.is_all || self.exceptions.is_empty() && self.allowed.iter().all(|is_allowed| *is_allowed)
    }

    /// True if a command with these arguments is allowed.
    #[must_use]
    pub fn allow(&self, command: &Command, arguments: &[Bytes]) -> bool {
        if self.is_all || command.flags.has(Flags::OPEN) {
            return true;
        }
        let subcommand = arguments.get(1);
        let exception =
            self.exceptions.iter().rev().find(|(name, word, _)| {
                *name == command.name && subcommand.is_some_and(|given| is(given, word))
            });
        match exception {
            Some((_, _, is_allowed)) => *is_allowed,
            None => position(command).is_some_and(|index| self.allowed.get(index) == Some(&true)),
        }
    }

    /// Allows or denies `command`, `command|subcommand` or `@category`.
    ///
    /// # Errors
    /// There is no such command or category. Nothing has changed.
    pub fn change(&mut self, what: &[u8], is_allowed: bool) -> Result<(), RuleError> {
        let what = std::str::from_utf8(what).map_err(|_| RuleError::Unknown)?.to_ascii_lowercase();
        match what.strip_prefix('@') {
            Some("all") => {
                *self = Self::whole(is_allowed);
                return Ok(());
            }
            Some(category) if CATEGORIES.contains(&category) => self.change_category(category, is_allowed),
            Some(_) => return Err(RuleError::Unknown),
            None => self.change_command(&what, is_allowed)?,
        }
        self.is_all = false;
        // A rule makes earlier ones about the same object obsolete.
        self.rules.retain(|rule| rule[1..] != what);
        self.rules.push(format!("{}{what}", if is_allowed { '+' } else { '-' }));
        Ok(())
    }

    fn change_category(&mut self, category: &str, is_allowed: bool) {
        for (index, command) in all().iter().enumerate().filter(|(_, command)| is_in(command, category)) {
            self.set(index, command.name, is_allowed);
        }
        let subcommands: &[(&str, &[&str])] = match category {
            "admin" | "dangerous" => &ADMIN_SUBCOMMANDS,
            "write" => &WRITING_SUBCOMMANDS,
            _ => &[],
        };
        for (name, subcommands) in subcommands {
            for subcommand in *subcommands {
                self.except(name, subcommand, is_allowed);
            }
        }
    }

    fn change_command(&mut self, what: &str, is_allowed: bool) -> Result<(), RuleError> {
        let (name, subcommand) = match what.split_once('|') {
            Some((name, subcommand)) => (name, Some(subcommand)),
            None => (what, None),
        };
        let command = find(name.as_bytes()).ok_or(RuleError::Unknown)?;
        let index = position(command).ok_or(RuleError::Unknown)?;
        let Some(word) = subcommand else {
            self.set(index, command.name, is_allowed);
            return Ok(());
        };
        // As in Redis 7: for a command without subcommands the word is its first argument, which can be allowed and not denied.
        match subcommands(name) {
            _ if word.is_empty() => return Err(RuleError::Syntax),
            Some(_) if word.contains('|') => return Err(RuleError::FirstArgument),
            Some(known) if word == "help" || known.split_whitespace().any(|known| known == word) => {}
            None if is_allowed && !word.contains('|') => {}
            _ => return Err(RuleError::Unknown),
        }
        self.except(command.name, word, is_allowed);
        Ok(())
    }

    fn set(&mut self, index: usize, name: &str, is_allowed: bool) {
        self.allowed[index] = is_allowed;
        self.exceptions.retain(|(other, ..)| *other != name);
    }

    fn except(&mut self, name: &'static str, subcommand: &str, is_allowed: bool) {
        self.exceptions.retain(|(other, word, _)| *other != name || word != subcommand);
        self.exceptions.push((name, subcommand.to_owned(), is_allowed));
    }
}

fn position(command: &Command) -> Option<usize> {
    all().binary_search_by_key(&command.name, |command| command.name).ok()
}

/// The channels among the arguments, and whether they are patterns. The end of a subscription needs no permission.
pub fn channels<'a>(command: &Command, arguments: &'a [Bytes]) -> impl Iterator<Item = (&'a [u8], bool)> {
    let count = match command.name {
        "publish" | "spublish" => 1,
        "subscribe" | "psubscribe" | "ssubscribe" => arguments.len(),
        _ => 0,
    };
    let is_pattern = command.name == "psubscribe";
    arguments.iter().skip(1).take(count).map(move |channel| (&channel[..], is_pattern))
}

/// The position of the key behind the last STORE or STOREDIST of the options, which begin at a position. These others have an argument, which
/// may be one of these words, and LIMIT has two.
fn target(arguments: &[Bytes], options: usize, others: &[&str]) -> Option<usize> {
    let (mut at, mut target) = (options, None);
    while let Some(option) = arguments.get(at) {
        at += match option {
            option if is(option, "LIMIT") => 3,
            option if others.iter().any(|other| is(option, other)) => 2,
            option if (is(option, "STORE") || is(option, "STOREDIST")) && at + 1 < arguments.len() => {
                target = Some(at + 1);
                2
            }
            _ => 1,
        };
    }
    target
}

/// True if the positions of the command's keys depend on its arguments.
#[must_use]
pub fn has_movable_keys(command: &Command) -> bool {
    let names = ["georadius", "georadiusbymember", "sort", "sort_ro", "xread", "xreadgroup"];
    command.keys.0 < 0 || names.contains(&command.name)
}

/// The keys among the arguments, with their positions.
pub fn keys<'a>(command: &Command, arguments: &'a [Bytes]) -> impl Iterator<Item = (usize, &'a [u8])> {
    let (first, last, step) = command.keys;
    let count = i64::try_from(arguments.len()).unwrap_or(i64::MAX);
    let (also, last) = if first < 0 {
        // The number of keys is an argument. If it is wrong, the command fails before it uses a key.
        let number = usize::try_from(-first).ok().and_then(|at| arguments.get(at));
        let number = number.and_then(|number| integer(number).ok()).unwrap_or(0);
        (Some(last).filter(|also| *also > 0), (-first).saturating_add(number).min(count - 1))
    } else {
        (None, if last < 0 { count + last } else { last.min(count - 1) })
    };
    // Without keys the range is empty.
    let range = match first {
        ..0 => 1 - first..last + 1,
        0 => 0..0,
        _ => first..last + 1,
    };
    let name = command.name;
    // GEORADIUS and SORT may name a key for their result behind other options.
    let stored = match name {
        "georadius" => target(arguments, 6, &["COUNT"]),
        "georadiusbymember" => target(arguments, 5, &["COUNT"]),
        "sort" => target(arguments, 2, &["GET", "BY"]),
        _ => None,
    };
    let stored = stored.and_then(|at| i64::try_from(at).ok());
    // XREAD has its keys behind the word STREAMS, before the IDs. XREADGROUP has two names before, which may be this word.
    let options = match name {
        "xread" => 1,
        "xreadgroup" => 4,
        _ => arguments.len(),
    };
    let word = (options..arguments.len()).find(|at| is(&arguments[*at], "STREAMS"));
    let streams = word.map_or(0..0, |at| at + 1..at + 1 + (arguments.len() - at - 1) / 2);
    let streams = streams.filter_map(|at| i64::try_from(at).ok());
    let indices = also
        .into_iter()
        .chain(streams)
        .chain(range.step_by(usize::try_from(step.max(1)).unwrap_or(1)))
        .chain(stored);
    indices.filter_map(move |index| {
        let position = usize::try_from(index).ok()?;
        arguments.get(position).map(|key| (position, &key[..]))
    })
}
