//! The command COMMAND: the table of commands for clients and redis-cli.

use super::{Call, Command, CommandError, Flags, NO_KEYS, all, arity_fits};

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
        ("getkeys", [name, ..]) => return keys(call, name, rest.len()),
        ("count" | "list" | "getkeys", _) => return Err(CommandError::Arity(format!("command|{name}"))),
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
    let names =
        [(Flags::READ, "readonly"), (Flags::WRITE, "write"), (Flags::FAST, "fast"), (Flags::ADMIN, "admin")];
    let flags: Vec<_> = names.iter().filter(|(flag, _)| command.flags.has(*flag)).collect();
    reply.array(flags.len());
    flags.iter().for_each(|(_, name)| reply.simple(name));
    let (first, last, step) = command.keys;
    [first, last, step].into_iter().for_each(|number| reply.integer(number));
    // Categories, tips, key specifications and subcommands are empty.
    (0..4).for_each(|_| reply.array(0));
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

fn keys(call: &mut Call<'_>, name: &[u8], count: usize) -> Result<(), CommandError> {
    let invalid = |text: &str| CommandError::Text(format!("ERR {text}"));
    let command = call.shared.find(name).ok_or_else(|| invalid("Invalid command specified"))?;
    if !arity_fits(command.arity, count) {
        return Err(invalid("Invalid number of arguments specified for command"));
    }
    let (first, last, step) = command.keys;
    let (Ok(first), Ok(step @ 1..)) = (usize::try_from(first), usize::try_from(step)) else {
        return Err(invalid("The command has no key arguments"));
    };
    let end = if last < 0 { count } else { (first + 1).min(count) };
    let found: Vec<_> = call.rest(2)[..end].iter().skip(first).step_by(step).collect();
    call.reply.array(found.len());
    Ok(found.into_iter().try_for_each(|key| call.reply.bulk(key))?)
}
