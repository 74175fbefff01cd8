//! The command COMMAND: the table of commands for clients and redis-cli.

use super::{Call, Command, CommandError, Flags, NO_KEYS, all, arity_fits, is};
use crate::glob;
use crate::users::permissions;
use crate::users::uses::Uses;

const HELP: [&str; 8] = [
    "COMMAND [<subcommand> [<arg> ...]]. Subcommands are:",
    "COUNT: the number of commands.",
    "DOCS [<name> ...]: summaries.",
    "GETKEYS <command> [<arg> ...]: the keys among the arguments.",
    "GETKEYSANDFLAGS <command> [<arg> ...]: also what the command does with them.",
    "INFO [<name> ...]: arity, flags and positions of keys.",
    "LIST [FILTERBY PATTERN|ACLCAT|MODULE <value>]: names.",
    "HELP: this text.",
];

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command {
    name: "command",
    arity: -1,
    flags: Flags::NONE,
    keys: NO_KEYS,
    group: "server",
    summary: "Tells which commands there are.",
    handler: command,
}];

fn command(call: &mut Call<'_>) -> Result<(), CommandError> {
    let Some((subcommand, rest)) = call.rest(1).split_first() else {
        call.reply.array(all().len());
        all().iter().for_each(|command| entry(call, command));
        return Ok(());
    };
    let name = String::from_utf8_lossy(subcommand).to_ascii_lowercase();
    match (name.as_str(), rest) {
        ("count", []) => call.reply.count(all().len() as u64),
        ("list", []) => {
            call.reply.array(all().len());
            all().iter().for_each(|command| call.reply.text(command.name));
        }
        ("info", []) => {
            call.reply.array(all().len());
            all().iter().for_each(|command| entry(call, command));
        }
        ("info", names) => {
            call.reply.array(names.len());
            for name in names {
                match call.shared.find(name) {
                    Some(command) => entry(call, command),
                    None => call.reply.null_array(),
                }
            }
        }
        ("docs", names) => {
            let found: Vec<_> = names.iter().filter_map(|name| call.shared.find(name)).collect();
            docs(call, if names.is_empty() { all() } else { &found });
        }
        ("list", [filter, kind, value]) if is(filter, "FILTERBY") => {
            let value = value.to_ascii_lowercase();
            let names: Vec<_> = match () {
                () if is(kind, "PATTERN") => {
                    all().iter().filter(|command| glob::matches(&value, command.name.as_bytes())).collect()
                }
                () if is(kind, "ACLCAT") => {
                    let category = String::from_utf8_lossy(&value).into_owned();
                    all().iter().filter(|command| permissions::is_in(command, &category)).collect()
                }
                // There are no modules.
                () if is(kind, "MODULE") => Vec::new(),
                () => return Err(CommandError::Syntax),
            };
            call.reply.array(names.len());
            names.iter().for_each(|command| call.reply.text(command.name));
        }
        ("list", [_, ..]) => return Err(CommandError::Syntax),
        ("getkeys", [_, _, ..]) => return keys(call, false),
        ("getkeysandflags", [_, _, ..]) => return keys(call, true),
        ("help", []) => {
            call.reply.array(HELP.len());
            HELP.iter().for_each(|line| call.reply.simple(line));
        }
        ("count" | "getkeys" | "getkeysandflags" | "help", _) => {
            return Err(CommandError::Arity(format!("command|{name}")));
        }
        _ => {
            let name = String::from_utf8_lossy(subcommand).chars().take(128).collect();
            return Err(CommandError::Subcommand(name, "COMMAND"));
        }
    }
    Ok(())
}

/// The ten fields of COMMAND INFO.
fn entry(call: &mut Call<'_>, command: &Command) {
    let reply = &mut call.reply;
    reply.array(10);
    reply.text(command.name);
    reply.integer(command.arity);
    let names = [
        (Flags::READ, "readonly"),
        (Flags::WRITE, "write"),
        (Flags::GROWS, "denyoom"),
        (Flags::FAST, "fast"),
        (Flags::ADMIN, "admin"),
        (Flags::BLOCKS, "blocking"),
        (Flags::NOSCRIPT, "noscript"),
    ];
    let mut flags: Vec<_> =
        names.iter().filter(|(flag, _)| command.flags.has(*flag)).map(|(_, name)| *name).collect();
    if permissions::has_movable_keys(command) {
        flags.push("movablekeys");
    }
    if has_optional_keys(command) {
        flags.push("no_mandatory_keys");
    }
    // Clients find channels by this flag. In Redis, the subcommands of PUBSUB have it, but not PUBSUB.
    if command.group == "pubsub" && command.name != "pubsub" {
        flags.push("pubsub");
    }
    let positions = match command.keys {
        (..0, also, _) => {
            if also > 0 {
                [also, also, 1]
            } else {
                [0; 3]
            }
        }
        (first, last, step) => [first, last, step],
    };
    reply.set(flags.len());
    flags.iter().for_each(|name| reply.simple(name));
    positions.into_iter().for_each(|number| reply.integer(number));
    let categories: Vec<_> =
        permissions::CATEGORIES.iter().filter(|category| permissions::is_in(command, category)).collect();
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(&format!("@{category}")));
    // Tips, key specifications and subcommands are empty.
    (0..3).for_each(|_| reply.set(0));
}

/// True if the command may be called without keys although it usually has some: scripts and functions.
fn has_optional_keys(command: &Command) -> bool {
    command.group == "scripting" && permissions::has_movable_keys(command)
}

fn docs(call: &mut Call<'_>, commands: &[&Command]) {
    call.reply.map(commands.len());
    for command in commands {
        call.reply.text(command.name);
        call.reply.map(2);
        for (field, value) in [("summary", command.summary), ("group", command.group)] {
            call.reply.text(field);
            call.reply.text(value);
        }
    }
}

/// Replies with the keys of the command in the arguments. If `with_flags`, each key has flags for the command's use of it.
fn keys(call: &mut Call<'_>, with_flags: bool) -> Result<(), CommandError> {
    let invalid = |text: &str| CommandError::Text(format!("ERR {text}"));
    let arguments = call.rest(2);
    let command = call.shared.find(&arguments[0]).ok_or_else(|| invalid("Invalid command specified"))?;
    if !arity_fits(command.arity, arguments.len()) {
        return Err(invalid("Invalid number of arguments specified for command"));
    }
    let keys: Vec<_> = permissions::keys(command, arguments).collect();
    if keys.is_empty() && !has_optional_keys(command) {
        return Err(invalid("The command has no key arguments"));
    }
    call.reply.array(keys.len());
    for (position, key) in keys {
        if !with_flags {
            call.reply.bulk(key)?;
            continue;
        }
        let Uses(flags) = Uses::of(command, arguments, position);
        call.reply.array(2);
        call.reply.bulk(key)?;
        call.reply.set(flags.len());
        flags.iter().for_each(|flag| call.reply.simple(flag));
    }
    Ok(())
}
