//! `serve`: serves a store to network clients until a signal or SHUTDOWN.

use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use bristlecone::{Count, Durability, Options, Stats, Store};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use terminal::Output;

use crate::common::{Common, Memory, size};
use crate::failure::{Result, io};
use crate::stats;

const EXAMPLES: &str = "\
Speaks the protocol of Redis (RESP2 and RESP3): redis-cli and every Redis client can connect. Without a password it
answers only clients on its own machine. Passwords and data cross the network unencrypted. SIGTERM, SIGINT and SHUTDOWN
complete running commands and close the store.

Examples:
  bristlecone serve --dir data
  bristlecone serve --dir /dev/shm/data --listen 127.0.0.1:0 --json

With --json it prints one object when it listens, and one after it closed the store: `closed`, `keys`, `keys_pending`.";

/// Arguments of `serve`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Engine of a new store. The engine of an existing store cannot be changed.
    #[arg(long, value_name = "NAME", value_parser = engines())]
    engine: Option<String>,
    /// Address and port to listen on. Port 0 chooses a free port and prints it.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:7379")]
    listen: String,
    /// Failure that acknowledged writes survive [default: the strongest that the file system of the directory allows].
    #[arg(long, value_enum)]
    durability: Option<Promise>,
    /// Cache lines of an index node of a new store [default: depends on the engine].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=64))]
    node_lines: Option<u64>,
    /// Bytes of the journal of a new store, 4M to 1G [default: 64M]. Opening after a crash reads at most this much, and the latest large
    /// group. A store on an ordinary file system has a journal unless it is made for process durability.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    journal_bytes: Option<u64>,
    /// Maximum size of the store; K, M, G and T are powers of 1024.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    max_bytes: Option<u64>,
    #[command(flatten)]
    memory: Memory,
    /// Maximum bytes of memory for values that were overwritten since a snapshot was opened, or by batches since a scan began [default:
    /// 256M]. At this bound the oldest snapshot or scan fails.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    snapshot_memory: Option<u64>,
    /// Directory for the backups of SAVE and BGSAVE. Each backup gets a subdirectory named by the number that LASTSAVE returns. Without
    /// this option both commands are refused.
    #[arg(long, value_name = "DIR")]
    backup_dir: Option<PathBuf>,
    /// File whose first line is the password that clients give with AUTH. The variable BRISTLECONE_PASSWORD has the same effect.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Answer clients on other machines although there is no password.
    #[arg(long)]
    unprotected: bool,
    /// Maximum number of connections.
    #[arg(long, value_name = "N", default_value = "10000")]
    max_connections: NonZeroUsize,
    #[command(flatten)]
    common: Common,
}

/// Failure that an acknowledged write survives.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Promise {
    /// Death of the process.
    Process,
    /// Loss of power.
    Power,
}

fn engines() -> clap::builder::PossibleValuesParser {
    let values = bristlecone::registry::engines();
    values.map(|tree| clap::builder::PossibleValue::new(tree.name).help(tree.about)).into()
}

/// Checks the form of an address, host and port. The address itself is tried when the server listens.
fn address(text: &str) -> std::result::Result<String, String> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match parts.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("give an address and a port, as in 127.0.0.1:7379".to_owned()),
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(io("cannot start the runtime"))?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: &Arguments) -> Result<ExitCode> {
    let password = password(arguments)?;
    // Install the signal handlers first: a signal that arrives during recovery stops the server right after it.
    let mut terminate = signal(SignalKind::terminate()).map_err(io("cannot wait for SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(io("cannot wait for SIGINT"))?;
    // Listen before opening the store: a port in use is a common mistake and must not touch the store.
    let listener = TcpListener::bind(&arguments.listen).await;
    let listener = listener.map_err(io(format!("cannot listen on {}", arguments.listen)))?;
    let store = Store::open(&arguments.common.dir, options(arguments))?;
    announce(arguments, &store, &listener)?;
    let config = server::Config {
        connections_max: arguments.max_connections.get(),
        backup_dir: arguments.backup_dir.clone(),
        password,
        unprotected: arguments.unprotected,
        ..server::Config::default()
    };
    let signals = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let served = server::serve(store.clone(), listener, config, signals).await;
    // Close the store also if serving failed. The error of serving is reported first.
    let closed = store.close();
    served?;
    closed?;
    let Count { keys, pending } = store.len();
    say(|output| match arguments.common.json {
        true => output.json(&json!({ "closed": true, "keys": keys, "keys_pending": pending })),
        false => output.line(&format!("  {:<12}{}", "closed", closing(keys, pending))),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The password, from the file or the environment.
fn password(arguments: &Arguments) -> Result<Option<server::Password>> {
    let Some(file) = &arguments.password_file else {
        let variable = std::env::var_os("BRISTLECONE_PASSWORD");
        return Ok(variable.and_then(|text| server::Password::new(text.as_bytes())));
    };
    let text = std::fs::read(file).map_err(io(format!("cannot read the password in {}", file.display())))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let none = || std::io::Error::new(std::io::ErrorKind::InvalidData, "its first line is empty");
    let password = server::Password::new(line).ok_or_else(none);
    Ok(Some(password.map_err(io(format!("there is no password in {}", file.display())))?))
}

/// The end of the last line. A close does not wait for the count of keys after a crash.
fn closing(keys: u64, pending: bool) -> String {
    match pending {
        true => {
            format!("cleanly; the store has at least {keys} keys (the count after the crash had not ended)")
        }
        false => format!("cleanly, {keys} keys"),
    }
}

/// Prints to standard output. A closed pipe is ignored: the parent process need not read the output.
fn say(what: impl FnOnce(&mut Output) -> terminal::Result<()>) -> Result<()> {
    let mut output = Output::new();
    match what(&mut output).and_then(|()| output.end()) {
        Err(error) if error.is_closed_pipe() => Ok(()),
        result => Ok(result?),
    }
}

fn options(arguments: &Arguments) -> Options {
    let defaults = Options::default();
    Options {
        engine: arguments.engine.clone(),
        durability: arguments.durability.map(|promise| match promise {
            Promise::Process => Durability::Process,
            Promise::Power => Durability::Power,
        }),
        node_lines: arguments.node_lines,
        journal_bytes: arguments.journal_bytes,
        max_bytes: arguments.max_bytes.unwrap_or(defaults.max_bytes),
        memory_bytes: arguments.memory.memory,
        snapshot_bytes: arguments.snapshot_memory.unwrap_or(defaults.snapshot_bytes),
        ..defaults
    }
}

/// Prints the store, the address, and the durability.
fn announce(arguments: &Arguments, store: &Store, listener: &TcpListener) -> Result<()> {
    let address = listener.local_addr().map_err(io("cannot tell the address"))?;
    let stats: Stats = store.stats();
    say(|output| {
        if arguments.common.json {
            return output.json(&json!({
                "listen": address.to_string(),
                "dir": arguments.common.dir.display().to_string(),
                "version": env!("CARGO_PKG_VERSION"),
                "pid": std::process::id(),
                "stats": stats,
            }));
        }
        output.line(&format!("bristlecone {}", env!("CARGO_PKG_VERSION")))?;
        output.line(&format!("  {:<12}{}", "store", arguments.common.dir.display()))?;
        for (name, value) in stats::rows(&stats) {
            output.line(&format!("  {name:<12}{value}"))?;
        }
        output.line(&format!("  {:<12}{address}", "listening"))
    })
}

#[cfg(test)]
mod tests {
    use super::closing;

    #[test]
    fn a_count_that_had_not_ended_is_no_loss_of_keys() {
        assert_eq!(closing(7, false), "cleanly, 7 keys");
        assert!(closing(8192, true).contains("at least 8192 keys"));
    }
}
