//! FUNCTION: libraries of functions in Lua. FCALL and FCALL_RO: calls of these functions.
//!
//! A call is a transaction, like a script ([`crate::scripts`]). Between MULTI and EXEC, a change of the libraries is a part of the
//! transaction (invariant F3 of [`crate::scripts::functions`]).

use std::sync::Arc;

use bytes::Bytes;

use super::observe::{help, unknown};
use super::{Call, Command, CommandError, Flags, KeyPositions, NO_KEYS, integer, is, numbered, scripts};
use crate::access::Access;
use crate::glob;
use crate::scripts::functions::{Registry, write};
use crate::scripts::libraries::{Library, ScriptFlags, dump, restore};

const fn command(
    name: &'static str,
    (arity, flags, keys): (i64, Flags, KeyPositions),
    summary: &'static str,
    handler: super::Handler,
) -> Command {
    Command { name, arity, flags: flags.and(Flags::NOSCRIPT), keys, group: "scripting", summary, handler }
}

/// The number of keys is the second argument.
const CALL: (i64, Flags, KeyPositions) = (-3, Flags::NONE, numbered(2, 0));

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("fcall", CALL, "Calls a function.", |call| run(call, false)),
    command("fcall_ro", CALL, "Calls a function that only reads.", |call| run(call, true)),
    command(
        "function",
        (-2, Flags::SLOW, NO_KEYS),
        "Loads, shows, saves, removes or stops functions.",
        function,
    ),
];

fn text(text: &str) -> CommandError {
    CommandError::Text(format!("ERR {text}"))
}

fn run(call: &mut Call<'_>, is_read_only: bool) -> Result<(), CommandError> {
    let function = match call.session.transaction.functions() {
        Some(pending) => pending.find(call.argument(1)),
        None => call.shared.functions.find(call.argument(1)),
    };
    let function = function.ok_or_else(|| text("Function not found"))?;
    let count = integer(call.argument(2)).map_err(|_| text("Bad number of keys provided"))?;
    let rest = call.rest(3);
    let split = match usize::try_from(count) {
        Err(_) => return Err(text("Number of keys can't be negative")),
        Ok(count) => rest.split_at_checked(count),
    };
    let split = split.ok_or_else(|| text("Number of keys can't be greater than number of args"))?;
    if is_read_only && !function.flags.has(ScriptFlags::NO_WRITES) {
        return Err(text("Can not execute a script with write flag using *_ro command."));
    }
    scripts::run(call, &function, split, is_read_only)
}

/// The libraries as the command sees them.
fn registry(call: &Call<'_>) -> Arc<Registry> {
    call.session.transaction.functions().cloned().unwrap_or_else(|| call.shared.functions.registry())
}

/// Changes the libraries: at once, or as a part of the running transaction.
fn change<R>(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut Registry) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    let old = registry(call);
    let Access::Transaction { transaction, shared, .. } = &mut call.keys else {
        return call.shared.functions.change(call.shared, change);
    };
    let mut new = Registry::clone(&old);
    let result = change(&mut new)?;
    if write(shared, transaction, (&old, &new))? {
        call.session.transaction.set_functions(Arc::new(new));
    }
    Ok(result)
}

/// True if the command changes the libraries.
#[must_use]
pub fn changes(command: &Command, arguments: &[Bytes]) -> bool {
    let words = ["LOAD", "DELETE", "FLUSH", "RESTORE"];
    command.name == "function"
        && arguments.get(1).is_some_and(|given| words.iter().any(|word| is(given, word)))
}

fn function(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    let (shared, rest) = (call.shared, call.rest(2));
    match (subcommand.as_str(), rest) {
        ("load", [options @ .., code]) => return load(call, options, code),
        ("delete", [name]) => {
            let name = String::from_utf8_lossy(name);
            change(call, |registry| match registry.remove(&name) {
                true => Ok(()),
                false => Err(text("Library not found")),
            })?;
            call.reply.ok();
        }
        ("flush", []) => return flush(call),
        ("flush", [how]) if is(how, "SYNC") || is(how, "ASYNC") => return flush(call),
        ("flush", [_]) => return Err(text("FUNCTION FLUSH only supports SYNC|ASYNC option")),
        ("flush", _) => {
            let given = String::from_utf8_lossy(call.argument(1));
            return Err(text(&format!(
                "unknown subcommand or wrong number of arguments for '{given}'. Try FUNCTION HELP."
            )));
        }
        ("list", options) => return list(call, options),
        ("stats", []) => return stats(call),
        ("dump", []) => {
            let registry = registry(call);
            let codes: Vec<_> = registry.libraries().map(|library| &library.code).collect();
            call.reply.bulk(&dump(codes.into_iter()))?;
        }
        ("restore", [payload, options @ ..]) if options.len() <= 1 => {
            return restore_all(call, payload, options);
        }
        ("kill", []) if shared.scripts.kill(true) => call.reply.ok(),
        ("kill", []) => {
            return Err(CommandError::Text("NOTBUSY No scripts in execution right now.".to_owned()));
        }
        ("help", []) => help(
            call,
            &[
                "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "DELETE <library-name>",
                "    Remove a library and its functions.",
                "DUMP",
                "    Return all libraries as a payload for RESTORE. The format is that of this server.",
                "FLUSH [ASYNC|SYNC]",
                "    Remove all libraries.",
                "KILL",
                "    Stop the functions that are running. They change nothing.",
                "LIST [LIBRARYNAME <pattern>] [WITHCODE]",
                "    Return the libraries and their functions.",
                "LOAD [REPLACE] <code>",
                "    Add a library. Its first line is `#!lua name=<library-name>`.",
                "RESTORE <payload> [FLUSH|APPEND|REPLACE]",
                "    Add the libraries of a payload: in place of all others, if no name is in use, or in place of those",
                "    with the same names.",
                "STATS",
                "    Return the function that is running, and the numbers of libraries and functions.",
            ],
        ),
        ("load" | "delete" | "stats" | "dump" | "restore" | "kill" | "help", _) => {
            return Err(CommandError::Arity(format!("function|{subcommand}")));
        }
        _ => return Err(unknown(call, "FUNCTION")),
    }
    Ok(())
}

fn exists(name: &str, quote: &str) -> CommandError {
    text(&format!("Library {quote}{name}{quote} already exists"))
}

fn load(call: &mut Call<'_>, options: &[Bytes], code: &Bytes) -> Result<(), CommandError> {
    if let Some(wrong) = options.iter().find(|option| !is(option, "REPLACE")) {
        return Err(text(&format!("Unknown option given: {}", String::from_utf8_lossy(wrong))));
    }
    let replaces = !options.is_empty();
    let shared = call.shared;
    // A copy: the argument is a part of a larger buffer.
    let code = Bytes::copy_from_slice(code);
    let name = change(call, |registry| {
        let (name, _) = crate::scripts::libraries::header(&code)?;
        if !replaces && registry.library(&name).is_some() {
            return Err(exists(&name, "'"));
        }
        registry.add(Arc::new(shared.scripts.load(&code)?))?;
        Ok(name)
    })?;
    call.reply.text(&name);
    Ok(())
}

fn flush(call: &mut Call<'_>) -> Result<(), CommandError> {
    change(call, |registry| {
        *registry = Registry::default();
        Ok(())
    })?;
    call.reply.ok();
    Ok(())
}

fn restore_all(call: &mut Call<'_>, payload: &[u8], options: &[Bytes]) -> Result<(), CommandError> {
    let (clears, replaces) = match options.first() {
        None => (false, false),
        Some(policy) if is(policy, "APPEND") => (false, false),
        Some(policy) if is(policy, "REPLACE") => (false, true),
        Some(policy) if is(policy, "FLUSH") => (true, false),
        Some(_) => {
            let why = "Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
            return Err(text(why));
        }
    };
    let codes = restore(payload).ok_or_else(|| text("DUMP payload version or checksum are wrong"))?;
    let shared = call.shared;
    change(call, |registry| {
        if clears {
            *registry = Registry::default();
        }
        for code in &codes {
            let library = shared.scripts.load(code)?;
            if !replaces && registry.library(&library.name).is_some() {
                return Err(exists(&library.name, ""));
            }
            registry.add(Arc::new(library))?;
        }
        Ok(())
    })?;
    call.reply.ok();
    Ok(())
}

fn list(call: &mut Call<'_>, options: &[Bytes]) -> Result<(), CommandError> {
    let (mut pattern, mut with_code, mut rest) = (None, false, options);
    while let [option, after @ ..] = rest {
        rest = match after {
            after if !with_code && is(option, "WITHCODE") => {
                with_code = true;
                after
            }
            [name, after @ ..] if pattern.is_none() && is(option, "LIBRARYNAME") => {
                pattern = Some(name);
                after
            }
            _ if pattern.is_none() && is(option, "LIBRARYNAME") => {
                return Err(text("library name argument was not given"));
            }
            _ => return Err(text(&format!("Unknown argument {}", String::from_utf8_lossy(option)))),
        };
    }
    let registry = registry(call);
    let is_meant = |library: &&Arc<Library>| {
        pattern.is_none_or(|pattern| glob::matches(pattern, library.name.as_bytes()))
    };
    let libraries: Vec<_> = registry.libraries().filter(is_meant).collect();
    let reply = &mut call.reply;
    reply.array(libraries.len());
    for library in libraries {
        reply.map(if with_code { 4 } else { 3 });
        for (field, value) in [("library_name", library.name.as_str()), ("engine", "LUA")] {
            reply.text(field);
            reply.text(value);
        }
        reply.text("functions");
        reply.array(library.functions.len());
        for declared in &library.functions {
            reply.map(3);
            reply.text("name");
            reply.text(&declared.script.name);
            reply.text("description");
            match &declared.description {
                Some(description) => reply.bulk(description)?,
                None => reply.null(),
            }
            reply.text("flags");
            let flags = declared.script.flags.names();
            reply.set(flags.len());
            flags.iter().for_each(|flag| reply.simple(flag));
        }
        if with_code {
            reply.text("library_code");
            reply.bulk(&library.code)?;
        }
    }
    Ok(())
}

fn stats(call: &mut Call<'_>) -> Result<(), CommandError> {
    let registry = registry(call);
    let reply = &mut call.reply;
    reply.map(2);
    reply.text("running_script");
    match call.shared.scripts.running_function() {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.text("name");
            reply.text(running.function.as_deref().unwrap_or_default());
            reply.text("command");
            reply.array(running.command.len());
            running.command.iter().try_for_each(|word| reply.bulk(word))?;
            reply.text("duration_ms");
            reply.count(u64::try_from(running.elapsed().as_millis()).unwrap_or(u64::MAX));
        }
    }
    reply.text("engines");
    reply.map(1);
    reply.text("LUA");
    reply.map(2);
    for (field, count) in
        [("libraries_count", registry.libraries().len()), ("functions_count", registry.function_count())]
    {
        reply.text(field);
        reply.count(count as u64);
    }
    Ok(())
}
