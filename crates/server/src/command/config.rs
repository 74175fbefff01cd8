//! The command CONFIG: shows settings, and changes those that can change while the server runs.

use std::sync::atomic::Ordering::Relaxed;

use super::observe::help;
use super::server::command;
use super::{Call, Command, CommandError, Flags, integer};
use crate::eviction::{Policy, SAMPLES_MAX};
use crate::glob;
use crate::notifications::Classes;
use crate::shared::{DATABASES, Shared, lock};
use crate::users::{DEFAULT, User, hash};

/// The commands of this module.
pub const COMMANDS: &[Command] = &[command(
    "config",
    -2,
    Flags::ADMIN,
    "Shows and changes settings. Subcommands: GET, SET, RESETSTAT.",
    config,
)];

const HELP: [&str; 5] = [
    "CONFIG <subcommand> [<arg> ...]. Subcommands:",
    "GET <pattern> ...: the settings whose names match a pattern.",
    "SET <name> <value> ...: changes settings until the server ends.",
    "RESETSTAT: counts from 0 again.",
    "HELP: this text.",
];

/// A setting that can change: the name in Redis, the name of the option, how to read and how to write it.
struct Setting {
    redis: &'static str,
    option: &'static str,
    get: fn(&Shared) -> String,
    /// Checks a value and returns the change.
    set: fn(&Shared, &[u8]) -> Result<Change, String>,
}

/// A change that cannot fail any more.
type Change = Box<dyn FnOnce(&Shared)>;

const NOT_INTEGER: &str = "argument couldn't be parsed into an integer";

fn number(value: &[u8], minimum: i64) -> Result<i64, String> {
    let number = integer(value).map_err(|_| NOT_INTEGER.to_owned())?;
    if number < minimum { Err(format!("argument must be at least {minimum}")) } else { Ok(number) }
}

/// Parses a number of bytes as Redis does: `1k` is 1,000 bytes, `1kb` is 1,024.
fn bytes(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.to_ascii_lowercase();
    let split = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor: u64 = match unit {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

const SETTINGS: [Setting; 12] = [
    Setting {
        redis: "tracking-table-max-keys",
        option: "tracking-table-max-keys",
        get: |shared| shared.watches.tracking.keys_max().to_string(),
        set: |_, value| {
            let keys = usize::try_from(number(value, 0)?).map_err(|_| NOT_INTEGER)?;
            Ok(Box::new(move |shared| shared.watches.tracking.set_keys_max(keys)))
        },
    },
    Setting {
        redis: "maxmemory",
        option: "maxmemory",
        get: |shared| shared.eviction.limit_bytes().to_string(),
        set: |_, value| {
            let bytes = bytes(value).ok_or("argument must be a memory value")?;
            Ok(Box::new(move |shared| shared.eviction.set_limit_bytes(bytes)))
        },
    },
    Setting {
        redis: "maxmemory-policy",
        option: "maxmemory-policy",
        get: |shared| shared.eviction.policy().to_string(),
        set: |_, value| {
            let policy = std::str::from_utf8(value).ok().and_then(Policy::named);
            let policy = policy.ok_or_else(|| {
                let names = Policy::ALL.map(Policy::name).join(", ");
                format!("argument(s) must be one of the following: {names}")
            })?;
            Ok(Box::new(move |shared| shared.eviction.set_policy(policy)))
        },
    },
    Setting {
        redis: "maxmemory-samples",
        option: "maxmemory-samples",
        get: |shared| shared.eviction.samples().to_string(),
        set: |_, value| {
            let samples = usize::try_from(integer(value).map_err(|_| NOT_INTEGER)?).ok();
            let samples = samples.filter(|samples| (1..=SAMPLES_MAX).contains(samples));
            let samples =
                samples.ok_or_else(|| format!("argument must be between 1 and {SAMPLES_MAX} inclusive"))?;
            Ok(Box::new(move |shared| shared.eviction.set_samples(samples)))
        },
    },
    Setting {
        redis: "timeout",
        option: "timeout",
        get: |shared| shared.settings.timeout_seconds.load(Relaxed).to_string(),
        set: |_, value| {
            let seconds = number(value, 0)?.unsigned_abs();
            Ok(Box::new(move |shared| shared.settings.timeout_seconds.store(seconds, Relaxed)))
        },
    },
    Setting {
        redis: "maxclients",
        option: "max-clients",
        get: |shared| shared.settings.clients_max.load(Relaxed).to_string(),
        set: |shared, value| {
            let clients = usize::try_from(number(value, 1)?).unwrap_or(usize::MAX);
            if clients > shared.config.clients_limit {
                let limit = shared.config.clients_limit;
                return Err(format!("the limit of open files of the process allows at most {limit} clients"));
            }
            Ok(Box::new(move |shared| shared.settings.clients_max.store(clients, Relaxed)))
        },
    },
    Setting {
        redis: "requirepass",
        option: "requirepass",
        // The server knows only the hash.
        get: |shared| {
            let is_open = shared.users.find(DEFAULT).is_some_and(|user| user.needs_no_password);
            if is_open { String::new() } else { "(hidden)".to_owned() }
        },
        set: |_, value| {
            let password = (!value.is_empty()).then(|| hash(value));
            let change = move |user: &mut User| {
                user.set_password(password);
                Ok::<(), std::convert::Infallible>(())
            };
            Ok(Box::new(move |shared| match shared.users.change(DEFAULT, change) {
                Ok(()) => {}
                Err(never) => match never {},
            }))
        },
    },
    Setting {
        redis: "slowlog-log-slower-than",
        option: "slowlog-slower-than",
        get: |shared| shared.settings.slowlog_slower_us.load(Relaxed).to_string(),
        set: |_, value| {
            let microseconds = number(value, -1)?;
            Ok(Box::new(move |shared| shared.settings.slowlog_slower_us.store(microseconds, Relaxed)))
        },
    },
    Setting {
        redis: "slowlog-max-len",
        option: "slowlog-max-len",
        get: |shared| shared.settings.slowlog_entries_max.load(Relaxed).to_string(),
        set: |_, value| {
            let entries = usize::try_from(number(value, 0)?).unwrap_or(usize::MAX);
            Ok(Box::new(move |shared| shared.settings.slowlog_entries_max.store(entries, Relaxed)))
        },
    },
    Setting {
        redis: "lua-time-limit",
        option: "script-time-limit",
        get: |shared| shared.settings.script_ms.load(Relaxed).to_string(),
        set: |_, value| {
            let milliseconds = number(value, 0)?.unsigned_abs();
            Ok(Box::new(move |shared| shared.settings.script_ms.store(milliseconds, Relaxed)))
        },
    },
    Setting {
        redis: "notify-keyspace-events",
        option: "notify-keyspace-events",
        get: |shared| Classes::selected(shared).to_string(),
        set: |_, value| {
            let classes = std::str::from_utf8(value).ok().and_then(Classes::parse);
            let wrong = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
            let classes = classes.ok_or_else(|| wrong.to_owned())?;
            Ok(Box::new(move |shared| shared.settings.notified.store(classes.bits(), Relaxed)))
        },
    },
    Setting {
        redis: "loglevel",
        option: "log-level",
        get: |shared| {
            lock(&shared.settings.log_level)
                .map_or_else(String::new, |level| level.as_str().to_ascii_lowercase())
        },
        set: |shared, value| {
            let level = match value.to_ascii_lowercase().as_slice() {
                b"error" => tracing::Level::ERROR,
                b"warn" | b"warning" => tracing::Level::WARN,
                b"info" | b"notice" => tracing::Level::INFO,
                b"debug" | b"verbose" => tracing::Level::DEBUG,
                _ => {
                    return Err(
                        "argument(s) must be one of the following: error, warn, info, debug".to_owned()
                    );
                }
            };
            if shared.config.log.is_none() {
                return Err("the program does not let the server change it".to_owned());
            }
            Ok(Box::new(move |shared| {
                if let Some(log) = &shared.config.log {
                    *lock(&shared.settings.log_level) = Some(level);
                    (log.set)(level);
                }
            }))
        },
    },
];

fn config(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = call.argument(1);
    let name = String::from_utf8_lossy(subcommand).to_ascii_lowercase();
    match (name.as_str(), call.rest(2)) {
        ("get", patterns @ [_, ..]) => {
            let mut settings = all(call.shared);
            settings.retain(|(name, _)| {
                patterns.iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
            });
            call.reply.map(settings.len());
            for (name, value) in settings {
                call.reply.text(&name);
                call.reply.text(&value);
            }
            Ok(())
        }
        ("set", pairs @ [_, _, ..]) if pairs.len().is_multiple_of(2) => {
            let mut changes = Vec::new();
            for (number, pair) in pairs.chunks_exact(2).enumerate() {
                let mut earlier = pairs.chunks_exact(2).take(number);
                if earlier.any(|earlier| earlier[0].eq_ignore_ascii_case(&pair[0])) {
                    let name: String = String::from_utf8_lossy(&pair[0]).chars().take(128).collect();
                    return Err(CommandError::Text(format!(
                        "ERR CONFIG SET failed (possibly related to argument '{name}') - duplicate parameter"
                    )));
                }
                changes.push(change(call.shared, &pair[0], &pair[1])?);
            }
            // All values are valid, so no change can fail. An invalid value has returned an error before any change took effect.
            changes.into_iter().for_each(|change| change(call.shared));
            call.reply.ok();
            Ok(())
        }
        ("resetstat", []) => {
            call.shared.counters.reset();
            call.reply.ok();
            Ok(())
        }
        ("rewrite", []) => {
            Err(CommandError::Text("ERR the server does not write its configuration file".to_owned()))
        }
        ("help", []) => {
            help(call, &HELP);
            Ok(())
        }
        ("get" | "help" | "set" | "resetstat" | "rewrite", _) => {
            Err(CommandError::Arity(format!("config|{name}")))
        }
        _ => {
            let name = String::from_utf8_lossy(subcommand).chars().take(128).collect();
            Err(CommandError::Subcommand(name, "CONFIG"))
        }
    }
}

fn change(shared: &Shared, name: &[u8], value: &[u8]) -> Result<Change, CommandError> {
    let shown: String = String::from_utf8_lossy(name).chars().take(128).collect();
    let lower = shown.to_ascii_lowercase();
    let Some(setting) = SETTINGS.iter().find(|setting| setting.redis == lower || setting.option == lower)
    else {
        return match all(shared).into_iter().find(|(known, _)| *known == lower) {
            // Programs for Redis switch its own persistence off, which the server does not have.
            Some((_, current)) if current.as_bytes() == value => Ok(Box::new(|_| {})),
            Some(_) => Err(CommandError::Text(format!(
                "ERR CONFIG SET failed (possibly related to argument '{shown}') - can't set immutable config"
            ))),
            None => Err(CommandError::Text(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
            ))),
        };
    };
    (setting.set)(shared, value).map_err(|why| {
        CommandError::Text(format!("ERR CONFIG SET failed (possibly related to argument '{shown}') - {why}"))
    })
}

/// All settings, sorted by name: those of Redis that clients and benchmarks read, and the options of the program.
fn all(shared: &Shared) -> Vec<(String, String)> {
    let fixed = [
        ("appendonly", "no".to_owned()),
        ("bind", shared.address.map_or_else(String::new, |address| address.ip().to_string())),
        ("databases", DATABASES.to_string()),
        ("port", shared.address.map_or(0, |address| address.port()).to_string()),
        ("proto-max-bulk-len", shared.config.limits.bulk_bytes_max.to_string()),
        ("save", String::new()),
    ];
    let mut all: std::collections::BTreeMap<String, String> = shared.config.options.iter().cloned().collect();
    all.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
    for setting in &SETTINGS {
        all.insert(setting.redis.to_owned(), (setting.get)(shared));
        all.insert(setting.option.to_owned(), (setting.get)(shared));
    }
    all.into_iter().collect()
}
