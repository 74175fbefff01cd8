//! The command ACL: users and their permissions.

use super::{Call, Command, CommandError, Flags, NO_KEYS, all, is};
use crate::clients::Ending;
use crate::shared::{Shared, lock};
use crate::users::permissions::{CATEGORIES, is_in};
use crate::users::{DEFAULT, RuleError, file};

/// The commands of this module.
pub const COMMANDS: &[Command] = &[Command {
    name: "acl",
    arity: -2,
    flags: Flags::NONE,
    keys: NO_KEYS,
    group: "server",
    summary: "Shows and changes users and their permissions.",
    handler: acl,
}];

const HELP: [&str; 11] = [
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]: the categories, or the commands of one.",
    "DELUSER <username> [...]: removes users and ends their connections.",
    "GETUSER <username>: the rules of a user.",
    "LIST: all users as lines of an ACL file.",
    "LOAD: reads the ACL file again.",
    "SAVE: writes the ACL file.",
    "SETUSER <username> [<rule> ...]: makes or changes a user.",
    "USERS: the names of all users.",
    "WHOAMI: the name of this connection's user.",
    "HELP: this text.",
];

fn text(text: impl Into<String>) -> CommandError {
    CommandError::Text(text.into())
}

fn acl(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    match (subcommand.as_str(), call.rest(2)) {
        ("whoami", []) => {
            let name = call.session.user.as_ref().map_or(DEFAULT, |user| &user.name).to_owned();
            call.reply.text(&name);
        }
        ("users", []) => {
            let users = call.shared.users.all();
            call.reply.array(users.len());
            users.iter().for_each(|user| call.reply.text(&user.name));
        }
        ("list", []) => {
            let users = call.shared.users.all();
            call.reply.array(users.len());
            users.iter().for_each(|user| call.reply.text(&user.line()));
        }
        ("getuser", [name]) => getuser(call, name),
        ("setuser", [name, rules @ ..]) => {
            let name = file::name(name)
                .ok_or_else(|| text("ERR Usernames can't contain spaces or null characters"))?;
            let apply = |rule: &[u8], error: RuleError| {
                let rule: String = String::from_utf8_lossy(rule).chars().take(128).collect();
                text(format!("ERR Error in ACL SETUSER modifier '{rule}': {error}"))
            };
            call.shared.users.change(name, |user| {
                rules.iter().try_for_each(|rule| user.apply(rule).map_err(|error| apply(rule, error)))
            })?;
            call.reply.ok();
        }
        ("deluser", names @ [_, ..]) => {
            if names.iter().any(|name| &name[..] == DEFAULT.as_bytes()) {
                return Err(text("ERR The 'default' user cannot be removed"));
            }
            let names = names.iter().filter_map(|name| std::str::from_utf8(name).ok());
            let removed = names.filter(|name| call.shared.users.remove(name)).count();
            end_without_user(call.shared);
            call.reply.count(removed as u64);
        }
        ("cat", []) => {
            call.reply.array(CATEGORIES.len());
            CATEGORIES.iter().for_each(|category| call.reply.text(category));
        }
        ("cat", [category]) => {
            let found = CATEGORIES.iter().find(|known| is(category, known));
            let unknown = || {
                let name: String = String::from_utf8_lossy(category).chars().take(128).collect();
                text(format!("ERR Unknown category '{name}'"))
            };
            let category = found.ok_or_else(unknown)?;
            let commands: Vec<_> = all().iter().filter(|command| is_in(command, category)).collect();
            call.reply.array(commands.len());
            commands.iter().for_each(|command| call.reply.text(command.name));
        }
        ("load", []) => {
            let path = path(call.shared)?;
            let users = file::read(path).map_err(|error| {
                text(format!("ERR {error}. The users and their permissions have not changed"))
            })?;
            call.shared.users.replace(users);
            end_without_user(call.shared);
            call.reply.ok();
        }
        ("save", []) => {
            file::write(path(call.shared)?, &call.shared.users)
                .map_err(|error| text(format!("ERR {error}")))?;
            call.reply.ok();
        }
        ("help", []) => {
            call.reply.array(HELP.len());
            HELP.iter().for_each(|line| call.reply.simple(line));
        }
        (
            "whoami" | "users" | "list" | "getuser" | "setuser" | "deluser" | "cat" | "load" | "save"
            | "help",
            _,
        ) => return Err(CommandError::Arity(format!("acl|{subcommand}"))),
        _ => {
            let name = String::from_utf8_lossy(call.argument(1)).chars().take(128).collect();
            return Err(CommandError::Subcommand(name, "ACL"));
        }
    }
    Ok(())
}

fn path(shared: &Shared) -> Result<&std::path::Path, CommandError> {
    shared.config.acl_file.as_deref().ok_or_else(|| {
        text("ERR This server is not configured to use an ACL file. Start it with --acl-file FILE")
    })
}

/// Ends the connections whose user was removed.
fn end_without_user(shared: &Shared) {
    for client in shared.clients() {
        let name = lock(&client.names).user.clone();
        if name.is_some_and(|name| shared.users.find(&name).is_none()) {
            client.end(Ending::Killed);
        }
    }
}

fn getuser(call: &mut Call<'_>, name: &[u8]) {
    let user = std::str::from_utf8(name).ok().and_then(|name| call.shared.users.find(name));
    let reply = &mut call.reply;
    let Some(user) = user else { return reply.null() };
    reply.map(6);
    for (field, values) in [
        ("flags", user.flags().into_iter().map(str::to_owned).collect()),
        ("passwords", user.password_hashes()),
    ] {
        reply.text(field);
        reply.array(values.len());
        values.iter().for_each(|value| reply.text(value));
    }
    for (field, value) in
        [("commands", user.commands.rules()), ("keys", user.key_rules()), ("channels", String::new())]
    {
        reply.text(field);
        reply.text(&value);
    }
    reply.text("selectors");
    reply.array(0);
}
