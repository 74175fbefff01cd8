//! Commands for administrators that show what the server does: SLOWLOG, LATENCY, MONITOR, MEMORY; and answers of a server without
//! replicas and cluster: WAIT, ROLE, CLUSTER.

use std::sync::atomic::Ordering::Relaxed;

use bristlecone::Space;

use super::server::{command, resident_bytes};
use super::{Call, Command, CommandError, Flags, integer, is};
use crate::structures;

const ADMIN: Flags = Flags::ADMIN;

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("slowlog", -2, ADMIN, "Shows the commands that took long.", slowlog),
    command("latency", -2, ADMIN, "Answers that there are no latency events; INFO has percentiles.", latency),
    command("monitor", 1, ADMIN.and(Flags::ALONE), "Shows all commands as they arrive.", monitor),
    Command {
        keys: (2, 2, 1),
        ..command("memory", -2, Flags::READ, "Shows the memory of a key or of the server.", memory)
    },
    command("cluster", -2, Flags::NONE, "Answers that there is no cluster.", |_| {
        Err(CommandError::Text("ERR This instance has cluster support disabled".to_owned()))
    }),
    Command {
        group: "generic",
        ..command("wait", 3, Flags::NONE, "Returns 0: there are no replicas.", wait)
    },
    command("role", 1, ADMIN.and(Flags::FAST), "Answers that this is a master without replicas.", |call| {
        call.reply.array(3);
        call.reply.bulk(b"master")?;
        call.reply.integer(0);
        call.reply.array(0);
        Ok(())
    }),
];

/// Entries of SLOWLOG GET without a count.
const SLOW_COUNT_DEFAULT: usize = 10;

pub(super) fn unknown(call: &Call<'_>, command: &'static str) -> CommandError {
    let name = String::from_utf8_lossy(call.argument(1)).chars().take(128).collect();
    CommandError::Subcommand(name, command)
}

pub(super) fn help(call: &mut Call<'_>, lines: &[&str]) {
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.simple(line));
}

fn slowlog(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    match (subcommand.as_str(), call.rest(2)) {
        ("get", []) => slowest(call, SLOW_COUNT_DEFAULT)?,
        ("get", [count]) => {
            let wrong = || CommandError::Text("ERR count should be greater than or equal to -1".to_owned());
            let count = integer(count).ok().filter(|count| *count >= -1).ok_or_else(wrong)?;
            slowest(call, usize::try_from(count).unwrap_or(usize::MAX))?;
        }
        ("len", []) => call.reply.count(call.shared.slow_log_len() as u64),
        ("reset", []) => {
            call.shared.reset_slow_log();
            call.reply.ok();
        }
        ("help", []) => help(
            call,
            &[
                "SLOWLOG <subcommand> [<arg>]. Subcommands are:",
                "GET [<count>]: the newest entries: number, Unix time, microseconds, arguments, address and name of the client.",
                "LEN: the number of entries.",
                "RESET: removes all entries.",
                "HELP: this text.",
            ],
        ),
        ("get" | "len" | "reset" | "help", _) => {
            return Err(CommandError::Arity(format!("slowlog|{subcommand}")));
        }
        _ => return Err(unknown(call, "SLOWLOG")),
    }
    Ok(())
}

fn slowest(call: &mut Call<'_>, count: usize) -> Result<(), CommandError> {
    let entries = call.shared.slow_log(count);
    call.reply.array(entries.len());
    for entry in entries {
        call.reply.array(6);
        call.reply.count(entry.id);
        call.reply.count(entry.time);
        call.reply.count(u64::try_from(entry.duration.as_micros()).unwrap_or(u64::MAX));
        call.reply.array(entry.arguments.len());
        entry.arguments.iter().try_for_each(|argument| call.reply.bulk(argument))?;
        call.reply.text(&entry.peer);
        call.reply.text(&entry.name);
    }
    Ok(())
}

fn latency(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    match (subcommand.as_str(), call.rest(2)) {
        ("latest", []) | ("history", [_]) => call.reply.array(0),
        ("histogram", _) => call.reply.map(0),
        ("reset", _) => call.reply.integer(0),
        ("graph", [event]) => {
            let event: String = String::from_utf8_lossy(event).chars().take(128).collect();
            return Err(CommandError::Text(format!("ERR No samples available for event '{event}'")));
        }
        ("doctor", []) => call.reply.verbatim(
            "The server records no latency events. INFO latencystats has percentiles of lookups, writes and commits. SLOWLOG GET has \
             single commands.",
        ),
        ("help", []) => help(
            call,
            &[
                "LATENCY <subcommand>. The server records no latency events.",
                "LATEST | HISTORY <event> | HISTOGRAM [<command> ...]: nothing.",
                "GRAPH <event>: an error, because no event has samples.",
                "RESET [<event> ...]: 0.",
                "DOCTOR: where to find latencies.",
            ],
        ),
        ("latest" | "history" | "graph" | "doctor" | "help", _) => {
            return Err(CommandError::Arity(format!("latency|{subcommand}")));
        }
        _ => return Err(unknown(call, "LATENCY")),
    }
    Ok(())
}

fn monitor(call: &mut Call<'_>) -> Result<(), CommandError> {
    call.session.starts_monitor = true;
    call.session.client.is_monitor.store(true, Relaxed);
    call.reply.ok();
    Ok(())
}

fn memory(call: &mut Call<'_>) -> Result<(), CommandError> {
    let subcommand = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
    match (subcommand.as_str(), call.rest(2)) {
        ("usage", [key, options @ ..]) => {
            match options {
                [] => {}
                [option, samples] if is(option, "SAMPLES") => _ = integer(samples)?,
                _ => return Err(CommandError::Syntax),
            }
            // The bytes of key and value. The index adds an entry, which depends on the engine.
            if !call.keys.stored_into(key, &mut call.session.value)? {
                call.reply.null();
                return Ok(());
            }
            let elements = match structures::head_of(&call.session.value) {
                Some(head) => call.keys.view(|view| structures::access::bytes_of(view, key, head.kind))?,
                None => 0,
            };
            call.reply.count((key.len() + call.session.value.len()) as u64 + elements);
        }
        ("stats", []) => {
            let Space { live_bytes, free_bytes, overhead_bytes } = call.shared.store.space();
            let fields = [
                ("total.allocated", resident_bytes()),
                ("clients.normal", call.shared.held_bytes() as u64),
                ("keys.count", call.shared.store.len().keys),
                ("dataset.bytes", live_bytes),
                ("dataset.free", free_bytes),
                ("dataset.overhead", overhead_bytes),
            ];
            call.reply.map(fields.len());
            for (name, value) in fields {
                call.reply.text(name);
                call.reply.count(value);
            }
        }
        ("doctor", []) => {
            let held = call.shared.held_bytes();
            let bound = call.shared.config.held_bytes_max;
            let text = format!(
                "Resident memory: {} bytes, with mapped pages of the store. Clients hold {held} of at most {bound} bytes.",
                resident_bytes()
            );
            call.reply.verbatim(&text);
        }
        ("purge", []) => {
            (call.shared.config.release_memory)();
            call.reply.ok();
        }
        ("malloc-stats", []) => call.reply.verbatim("Stats not supported for the current allocator"),
        ("help", []) => help(
            call,
            &[
                "MEMORY <subcommand> [<arg> ...]. Subcommands are:",
                "DOCTOR: resident memory and the memory of clients.",
                "MALLOC-STATS: the allocator has none.",
                "PURGE: returns free memory to the system.",
                "STATS: sizes in bytes.",
                "USAGE <key> [SAMPLES <count>]: bytes of key and value.",
                "HELP: this text.",
            ],
        ),
        ("usage" | "stats" | "doctor" | "purge" | "malloc-stats" | "help", _) => {
            return Err(CommandError::Arity(format!("memory|{subcommand}")));
        }
        _ => return Err(unknown(call, "MEMORY")),
    }
    Ok(())
}

/// There are no replicas. So the answer is 0 at once, whatever number and time the client waits for.
fn wait(call: &mut Call<'_>) -> Result<(), CommandError> {
    integer(call.argument(1))?;
    if integer(call.argument(2))? < 0 {
        return Err(CommandError::Text("ERR timeout is negative".to_owned()));
    }
    call.reply.integer(0);
    Ok(())
}
