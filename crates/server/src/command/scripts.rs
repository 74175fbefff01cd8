//! EVAL and its relatives, SCRIPT: scripts in Lua.
//!
//! A script is a transaction ([`crate::scripts`]). As in Redis, an error of a script does not take back what it wrote before.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::observe::{help, unknown};
use super::transactions::run_together;
use super::{Call, Command, CommandError, Flags, KeyPositions, integer, numbered, off_the_worker};
use crate::access::Access;
use crate::scripts::libraries::ScriptFlags;
use crate::scripts::{Host, Script};
use crate::shared::lock;

const GROUP: &str = "scripting";
/// The number of keys is the second argument.
const KEYS: KeyPositions = numbered(2, 0);

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("eval", "Runs a script.", |call| eval(call, Named::Text, false)),
    command("eval_ro", "Runs a script that only reads.", |call| eval(call, Named::Text, true)),
    command("evalsha", "Runs a script that is known, by its SHA-1 digest.", |call| {
        eval(call, Named::Digest, false)
    }),
    command("evalsha_ro", "Runs a known script that only reads.", |call| eval(call, Named::Digest, true)),
    Command {
        keys: super::NO_KEYS,
        arity: -2,
        ..command("script", "Adds, finds, forgets or stops scripts.", script)
    },
];

const fn command(name: &'static str, summary: &'static str, handler: super::Handler) -> Command {
    Command { name, arity: -3, flags: Flags::NOSCRIPT, keys: KEYS, group: GROUP, summary, handler }
}

/// What the first argument is.
enum Named {
    Text,
    Digest,
}

fn eval(call: &mut Call<'_>, named: Named, is_read_only: bool) -> Result<(), CommandError> {
    let text = |text: &str| CommandError::Text(text.to_owned());
    let rest = call.rest(3);
    let count = integer(call.argument(2))?;
    let count = usize::try_from(count).map_err(|_| text("ERR Number of keys can't be negative"))?;
    let split = rest.split_at_checked(count);
    let split = split.ok_or_else(|| text("ERR Number of keys can't be greater than number of args"))?;
    let scripts = &call.shared.scripts;
    let script = match named {
        Named::Text => scripts.add(&call.arguments[1], false)?,
        Named::Digest => scripts
            .find(call.argument(1))
            .ok_or_else(|| text("NOSCRIPT No matching script. Please use EVAL."))?,
    };
    run(call, &script, split, is_read_only)
}

/// Runs a script or a function in a transaction of its own, or in the running one.
///
/// # Errors
/// It was stopped, or its transaction cannot be committed.
pub fn run(
    call: &mut Call<'_>,
    script: &Script,
    arguments: (&[bytes::Bytes], &[bytes::Bytes]),
    is_read_only: bool,
) -> Result<(), CommandError> {
    let is_read_only = is_read_only || script.flags.has(ScriptFlags::NO_WRITES);
    match script.is_long() {
        true => off_the_worker(|| run_here(call, script, arguments, is_read_only)),
        false => run_here(call, script, arguments, is_read_only),
    }
}

fn run_here(
    call: &mut Call<'_>,
    script: &Script,
    arguments: (&[bytes::Bytes], &[bytes::Bytes]),
    is_read_only: bool,
) -> Result<(), CommandError> {
    let db = call.session.db;
    let limit = call.shared.settings.script_ms.load(Relaxed);
    let limit = Duration::from_millis(limit);
    let (shared, command) = (call.shared, call.arguments);
    let allows_oom = script.flags.has(ScriptFlags::ALLOW_OOM);
    if let Access::Transaction { transaction, events, .. } = &mut call.keys {
        let (session, reply) = (&mut *call.session, &mut call.reply);
        // The commands of the script add to the events of the transaction.
        std::mem::swap(&mut session.events, events);
        let mut host = Host { shared, session, transaction, reply, is_read_only, allows_oom, command };
        let result = shared.scripts.run(script, arguments, limit, &mut host);
        std::mem::swap(&mut call.session.events, events);
        if result.is_err() {
            call.session.transaction.void();
        }
        select(call, db);
        return result;
    }
    let result = run_together(call, None, |call, transaction| {
        let (session, reply) = (&mut *call.session, &mut call.reply);
        let mut host = Host { shared, session, transaction, reply, is_read_only, allows_oom, command };
        shared.scripts.run(script, arguments, limit, &mut host)
    });
    select(call, db);
    result
}

/// Selects the database again that the connection had before the script.
fn select(call: &mut Call<'_>, db: usize) {
    if call.session.db != db {
        call.session.db = db;
        lock(&call.session.client.names).database = db;
    }
}

fn script(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    let scripts = &call.shared.scripts;
    match (subcommand.as_str(), call.rest(2)) {
        ("load", [text]) => {
            let script = scripts.add(text, true)?;
            call.reply.text(&script.name);
        }
        ("exists", digests @ [_, ..]) => {
            call.reply.array(digests.len());
            digests.iter().for_each(|digest| call.reply.flag(scripts.find(digest).is_some()));
        }
        ("flush", []) => {
            scripts.clear();
            call.reply.ok();
        }
        ("flush", [how]) if super::is(how, "async") || super::is(how, "sync") => {
            scripts.clear();
            call.reply.ok();
        }
        ("flush", _) => {
            let text = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
            return Err(CommandError::Text(text.to_owned()));
        }
        ("kill", []) if scripts.kill(false) => call.reply.ok(),
        ("kill", []) => {
            return Err(CommandError::Text("NOTBUSY No scripts in execution right now.".to_owned()));
        }
        ("debug", _) => {
            return Err(CommandError::Unsupported("SCRIPT DEBUG".to_owned(), "there is no debugger"));
        }
        ("help", []) => help(
            call,
            &[
                "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "EXISTS <sha1> [<sha1> ...]",
                "    Return information about the existence of the scripts in the script cache.",
                "FLUSH [ASYNC|SYNC]",
                "    Forget all scripts.",
                "KILL",
                "    Stop the scripts that are running. They change nothing.",
                "LOAD <script>",
                "    Add a script without running it, and return its digest.",
            ],
        ),
        ("load" | "exists" | "kill" | "help", _) => {
            return Err(CommandError::Arity(format!("script|{subcommand}")));
        }
        _ => return Err(unknown(call, "SCRIPT")),
    }
    Ok(())
}
