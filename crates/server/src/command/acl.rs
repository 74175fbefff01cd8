//! The command ACL: users and their permissions.

use std::io::Read as _;
use std::time::Instant;

use bytes::Bytes;

use super::{Call, Command, CommandError, Flags, NO_KEYS, all, arity_fits, client, integer, is};
use crate::access::Access;
use crate::clients::Ending;
use crate::shared::{Shared, lock};
use crate::users::denials::{Denial, Reason};
use crate::users::permissions::{CATEGORIES, is_in};
use crate::users::{DEFAULT, Denied, RuleError, file};

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

/// Entries of ACL LOG without a count.
const LOG_COUNT_DEFAULT: usize = 10;

const HELP: [&str; 14] = [
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]: the categories, or the commands of one.",
    "DELUSER <username> [...]: removes users and ends their connections.",
    "DRYRUN <username> <command> [<arg> ...]: whether a user may run a command.",
    "GENPASS [<bits>]: a random password, 256 bits by default.",
    "GETUSER <username>: the rules of a user.",
    "LIST: all users as lines of an ACL file.",
    "LOAD: reads the ACL file again.",
    "LOG [<count> | RESET]: the newest refusals, or removes them.",
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
            call.shared.end_forbidden_subscribers();
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
        ("dryrun", [name, command @ ..]) if !command.is_empty() => dry_run(call, name, command)?,
        ("genpass", bits) if bits.len() <= 1 => {
            let bits = bits.first().map_or(Ok(256), |bits| integer(bits))?;
            let password = password(bits)?;
            call.reply.text(&password);
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
            call.shared.end_forbidden_subscribers();
            call.reply.ok();
        }
        ("save", []) => {
            file::write(path(call.shared)?, &call.shared.users)
                .map_err(|error| text(format!("ERR {error}")))?;
            call.reply.ok();
        }
        ("log", []) => log(call, LOG_COUNT_DEFAULT),
        ("log", [word]) if is(word, "RESET") => {
            call.shared.users.denials.clear();
            call.reply.ok();
        }
        ("log", [count]) => {
            let count = usize::try_from(integer(count)?).unwrap_or_default();
            log(call, count);
        }
        ("help", []) => {
            call.reply.array(HELP.len());
            HELP.iter().for_each(|line| call.reply.simple(line));
        }
        (
            "whoami" | "users" | "list" | "getuser" | "setuser" | "deluser" | "dryrun" | "genpass" | "cat"
            | "load" | "log" | "save" | "help",
            _,
        ) => return Err(CommandError::Arity(format!("acl|{subcommand}"))),
        _ => {
            let name = String::from_utf8_lossy(call.argument(1)).chars().take(128).collect();
            return Err(CommandError::Subcommand(name, "ACL"));
        }
    }
    Ok(())
}

/// Adds a refusal to the log.
pub(super) fn note_denial(call: &Call<'_>, reason: Reason, object: String, user: String) {
    call.shared.users.denials.add(Denial {
        count: 1,
        reason,
        in_transaction: call.session.transaction.is_open() || matches!(call.keys, Access::Transaction { .. }),
        object,
        user,
        client: client::line(&call.session.client),
        at: Instant::now(),
    });
}

fn log(call: &mut Call<'_>, count: usize) {
    let entries = call.shared.users.denials.newest(count);
    let reply = &mut call.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.map(7);
        reply.text("count");
        reply.count(entry.count);
        let context = if entry.in_transaction { "multi" } else { "toplevel" };
        for (field, value) in [
            ("reason", entry.reason.word()),
            ("context", context),
            ("object", &entry.object),
            ("username", &entry.user),
        ] {
            reply.text(field);
            reply.text(value);
        }
        reply.text("age-seconds");
        reply.double(entry.at.elapsed().as_secs_f64());
        reply.text("client-info");
        reply.text(&entry.client);
    }
}

/// Answers whether a user may run a command. The texts are those of Redis.
fn dry_run(call: &mut Call<'_>, name: &[u8], words: &[Bytes]) -> Result<(), CommandError> {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(128).collect::<String>();
    let user = std::str::from_utf8(name).ok().and_then(|name| call.shared.users.find(name));
    let user = user.ok_or_else(|| text(format!("ERR User '{}' not found", shown(name))))?;
    let command = call.shared.find(&words[0]);
    let command = command.ok_or_else(|| text(format!("ERR Command '{}' not found", shown(&words[0]))))?;
    if !arity_fits(command.arity, words.len()) {
        return Err(CommandError::Arity(command.name.to_owned()));
    }
    match user.check(command, words) {
        Ok(()) => call.reply.ok(),
        Err(Denied::Command(name)) => {
            call.reply.text(&format!("This user has no permissions to run the '{name}' command"));
        }
        Err(Denied::Key) => {
            let key = user.denied_key(command, words);
            let keys = key.map_or("all keys".to_owned(), |key| format!("the '{}' key", shown(key)));
            call.reply.text(&format!("This user has no permissions to access {keys}"));
        }
        Err(Denied::Channel) => {
            let channel = shown(user.denied_channel(command, words).unwrap_or_default());
            call.reply.text(&format!("This user has no permissions to access the '{channel}' channel"));
        }
    }
    Ok(())
}

/// A random password in hexadecimal digits of four bits each.
fn password(bits: i64) -> Result<String, CommandError> {
    if !(1..=4096).contains(&bits) {
        return Err(text(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }
    let digits = usize::try_from(bits).unwrap_or_default().div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| text(format!("ERR cannot read random bytes from /dev/urandom: {error}")))?;
    let mut password: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    password.truncate(digits);
    Ok(password)
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
        [("commands", user.commands.rules()), ("keys", user.key_rules()), ("channels", user.channel_rules())]
    {
        reply.text(field);
        reply.text(&value);
    }
    reply.text("selectors");
    reply.array(0);
}
