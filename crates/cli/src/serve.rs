//! `serve`: serves a store to network clients until a signal or SHUTDOWN.

mod arguments;
mod channel;
mod last_resort;
pub mod layers;
mod logging;
mod notify;
mod sockets;
mod takeover;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bristlecone::{Count, Options, Stats, Store};
use serde_json::json;
use server::handover::{Connection, HandedOver, Stopping};
use tokio::signal::unix::{Signal, SignalKind, signal};

use terminal::Output;

use crate::failure::{Failure, Result, io};
use crate::stats;
pub use arguments::{Arguments, address as server_address, is_path};
use last_resort::LastResort;
use sockets::{SocketFile, Sockets};
use takeover::{Control, Predecessor};

/// Polls of sessions after which a thread asks for new input although some sessions are still ready. All that are ready should run first:
/// with tokio's 61, the slowest replies to 500 connections took three times as long, because new input ran before replies that were ready. A
/// larger number would delay timers and new connections.
const EVENT_INTERVAL: u32 = 1024;

/// Time that the threads of the runtime get after the store is closed.
const RUNTIME_GRACE: Duration = Duration::from_secs(1);

/// Runs the command.
/// `options`: the names and values of all options, for CONFIG GET.
pub fn run(arguments: &Arguments, options: Vec<(String, String)>) -> Result<ExitCode> {
    let threads = arguments.threads.map_or_else(default_threads, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build();
    let runtime = runtime.map_err(io("cannot start the runtime"))?;
    let result = runtime.block_on(serve(arguments, options));
    // A command in C code of Lua may still run. The process ends without it.
    runtime.shutdown_timeout(RUNTIME_GRACE);
    result
}

/// Half of the processors: the system needs the others for its network, for the thread that commits, and often for the clients. With a
/// thread for each of two processors, SETs on a memory file system were slower than with one.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2))
}

/// The names and values of all options of the command line, with defaults. Options without a value are absent.
pub fn named(matches: &clap::ArgMatches) -> Vec<(String, String)> {
    let Some(serve) = matches.subcommand_matches("serve") else { return Vec::new() };
    let value = |id: &clap::Id| {
        let values: Vec<_> =
            serve.try_get_raw(id.as_str()).ok()??.map(|value| value.to_string_lossy()).collect();
        Some((id.as_str().replace('_', "-"), values.join(" ")))
    };
    serve.ids().filter_map(value).collect()
}

async fn serve(arguments: &Arguments, named: Vec<(String, String)>) -> Result<ExitCode> {
    let log = logging::start(arguments.log_level, arguments.log_format);
    for name in layers::unknown_variables() {
        tracing::warn!("the environment variable {name} is no option");
    }
    let config = config(arguments, named, log)?;
    // Install the signal handlers first: a signal that arrives during recovery stops the server right after it.
    let mut signals = Signals::new()?;
    let last_resort = LastResort::start()?;
    let (predecessor, taken) = match arguments.take_over {
        true => Predecessor::find(&arguments.common.dir).await?.unzip(),
        false => (None, None),
    };
    // Listen before opening the store: a port in use is a common mistake and must not touch the store.
    let mut sockets = Sockets::listen(arguments, taken.unwrap_or_default()).await?;
    let (store, connections) = match predecessor {
        Some(predecessor) => tokio::select! {
            opened = take_over(predecessor, arguments, &mut sockets) => opened?,
            // The old server goes on.
            () = signals.next() => return Ok(ExitCode::FAILURE),
        },
        None => (Store::open(&arguments.common.dir, options(arguments))?, Vec::new()),
    };
    announce(arguments, &store, &sockets)?;
    notify::notify(&notify::ready());
    let Sockets { listeners, unix_paths, .. } = sockets;
    let handed = HandedOver { listeners, connections, config };
    life(arguments, store, handed, unix_paths, &mut signals, &last_resort).await
}

/// SIGTERM and SIGINT.
struct Signals(Signal, Signal);

impl Signals {
    fn new() -> Result<Self> {
        let terminate = signal(SignalKind::terminate()).map_err(io("cannot wait for SIGTERM"))?;
        Ok(Self(terminate, signal(SignalKind::interrupt()).map_err(io("cannot wait for SIGINT"))?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Lets the old server stop, opens the store, and receives the connections.
async fn take_over(
    predecessor: Predecessor,
    arguments: &Arguments,
    sockets: &mut Sockets,
) -> Result<(Store, Vec<Connection>)> {
    let pid = predecessor.pid;
    let predecessor = predecessor.stop().await?;
    let store = match takeover::open(&arguments.common.dir, &options(arguments)).await {
        Ok(store) => store,
        Err(error) => {
            let failure = Failure::from(error);
            predecessor.fail(&failure);
            return Err(failure);
        }
    };
    let connections = predecessor.opened().await;
    sockets.unix_paths.iter_mut().for_each(|file| file.set_own(true));
    tracing::info!(pid, connections = connections.len(), "took over from another server");
    Ok((store, connections))
}

/// Serves until a signal or SHUTDOWN, or until another server has taken over.
async fn life(
    arguments: &Arguments,
    mut store: Store,
    mut handed: HandedOver,
    mut unix_paths: Vec<SocketFile>,
    signals: &mut Signals,
    last_resort: &LastResort,
) -> Result<ExitCode> {
    // Another server could not take over a store that is in this process alone.
    let control =
        store.capabilities().durable.then(|| Control::listen(&arguments.common.dir, &handed.listeners));
    let mut control = control.transpose().unwrap_or_else(|error| {
        tracing::warn!(
            "no other server can take over from this one, because it has no socket in {}: {error}",
            arguments.common.dir.display()
        );
        None
    });
    loop {
        let mut request = None;
        let stop = async {
            let next = async {
                match &mut control {
                    Some(control) => control.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = signals.next() => {
                    notify::notify(notify::STOPPING);
                    Stopping::Close
                }
                next = next => {
                    request = Some(next);
                    Stopping::HandOver
                }
            }
        };
        let HandedOver { listeners, connections, config } = handed;
        last_resort.set_serving(true);
        let served = server::run(store.clone(), listeners, config, connections, stop).await;
        last_resort.set_serving(false);
        // Close the store also if serving failed. The error of serving is reported first.
        let closed = store.close();
        let Count { keys, pending } = store.len();
        let (Some(next), Ok(())) = (served?, &closed) else {
            if let (Err(error), Some(request)) = (&closed, request.take()) {
                request.fail(error.to_string());
            }
            closed?;
            return say_closed(arguments, keys, pending);
        };
        // The lock of the store ends with its last handle.
        drop(store);
        handed = next;
        let Some(request) = request.take() else { return say_closed(arguments, keys, pending) };
        let successor = tokio::select! {
            successor = request.closed() => Some(successor),
            // The other server may have the store already, so its files stay.
            () = signals.next() => None,
        };
        let successor = match successor {
            Some(Err(error)) => {
                tracing::warn!("the other server has not taken over, this one goes on: {error}");
                store = takeover::open(&arguments.common.dir, &options(arguments)).await?;
                continue;
            }
            Some(Ok(successor)) => Some(successor),
            None => None,
        };
        if let Some(successor) = successor {
            match successor.adopt(handed.connections).await {
                Ok(sent) => tracing::info!(connections = sent, "another server has taken over"),
                Err(error) => tracing::warn!("connections were not handed over: {error}"),
            }
        }
        control.into_iter().for_each(Control::leave);
        unix_paths.iter_mut().for_each(|file| file.set_own(false));
        return say_closed(arguments, keys, pending);
    }
}

fn say_closed(arguments: &Arguments, keys: u64, pending: bool) -> Result<ExitCode> {
    say(|output| match arguments.common.json {
        true => output.json(&json!({ "closed": true, "keys": keys, "keys_pending": pending })),
        false => output.line(&format!("  {:<12}{}", "closed", closing(keys, pending))),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The settings of the server.
fn config(
    arguments: &Arguments,
    named: Vec<(String, String)>,
    log: server::settings::LogControl,
) -> Result<server::Config> {
    let password = password(arguments)?;
    let users = arguments.acl_file.as_deref().map(server::users::file::read).transpose();
    let users = users.map_err(|error| Failure::Text(error.to_string()))?.unwrap_or_default();
    let renames = server::settings::Renames::new(&arguments.rename_command);
    let renames = renames.map_err(|error| Failure::Usage(format!("--rename-command: {error}")))?;
    let clients_limit = clients_limit();
    let clients_max = arguments.max_clients.get().min(clients_limit);
    if clients_max < arguments.max_clients.get() {
        tracing::warn!(
            "the limit of open files allows only {clients_max} clients instead of {}",
            arguments.max_clients
        );
    }
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let memcached = server::memcached::Settings {
        table: arguments.memcached_table.clone(),
        item_bytes_max: bytes(arguments.memcached_item_size),
    };
    memcached.check().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(server::Config {
        clients_max,
        clients_limit,
        users,
        acl_file: arguments.acl_file.clone(),
        renames,
        slowlog_slower_us: arguments.slowlog_slower_than,
        slowlog_entries_max: arguments.slowlog_max_len,
        script_ms: arguments.script_time_limit,
        notified: arguments.notify_keyspace_events,
        options: named,
        timeout_seconds: arguments.timeout,
        reply_bytes_max: bytes(arguments.max_client_bytes),
        held_bytes_max: bytes(arguments.max_clients_bytes),
        // The parser allows only names of policies.
        memory_policy: server::eviction::Policy::named(&arguments.maxmemory_policy).unwrap_or_default(),
        memory_bytes_max: arguments.maxmemory,
        memory_samples: arguments.maxmemory_samples.into(),
        log: Some(log),
        release_memory: crate::allocator::release,
        backup_dir: arguments.backup_dir.clone(),
        password,
        unprotected: arguments.unprotected,
        memcached,
        ..server::Config::default()
    })
}

/// Descriptors for the store, the listening sockets, logs and backups.
const OWN_FILES: u64 = 64;

/// Raises the soft limit of open files to the hard one. Returns how many clients there can be.
fn clients_limit() -> usize {
    let limit = rlimit::increase_nofile_limit(u64::MAX).or_else(|error| {
        tracing::warn!("cannot raise the limit of open files: {error}");
        rlimit::Resource::NOFILE.get_soft()
    });
    // An unknown limit is not checked in advance. Then the system refuses connections.
    let limit = limit.unwrap_or(u64::MAX);
    usize::try_from(limit.saturating_sub(OWN_FILES).max(1)).unwrap_or(usize::MAX)
}

/// The password, from the file or the environment.
fn password(arguments: &Arguments) -> Result<Option<server::Password>> {
    match &arguments.password_file {
        Some(file) => first_line(file).map(Some),
        None => Ok(layers::password()),
    }
}

/// The password in the first line of a file.
pub fn first_line(file: &Path) -> Result<server::Password> {
    let text = std::fs::read(file).map_err(io(format!("cannot read the password in {}", file.display())))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let none = || std::io::Error::new(std::io::ErrorKind::InvalidData, "its first line is empty");
    let password = server::Password::new(line).ok_or_else(none);
    password.map_err(io(format!("there is no password in {}", file.display())))
}

/// The last line of output, after the word `closed`. A close does not wait for the count of keys after a crash.
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
    let mut options = arguments.writing.set(arguments.new.set(Options::default()));
    if let Some(bytes) = arguments.max_bytes {
        options = options.max_bytes(bytes);
    }
    if let Some(bytes) = arguments.snapshot_memory {
        options = options.snapshot_bytes(bytes);
    }
    options
}

/// Prints the store, the addresses, and the durability.
fn announce(arguments: &Arguments, store: &Store, sockets: &Sockets) -> Result<()> {
    let stats: Stats = store.stats();
    let addresses = sockets.addresses()?;
    say(|output| {
        if arguments.common.json {
            let mut object = json!({
                "dir": arguments.common.dir.display().to_string(),
                "version": env!("CARGO_PKG_VERSION"),
                "pid": std::process::id(),
                "stats": stats,
            });
            for (name, address) in &addresses {
                object[*name] = json!(address);
            }
            return output.json(&object);
        }
        output.line(&format!("bristlecone {}", env!("CARGO_PKG_VERSION")))?;
        output.line(&format!("  {:<12}{}", "store", arguments.common.dir.display()))?;
        for (name, value) in stats::rows(&stats) {
            output.line(&format!("  {name:<12}{value}"))?;
        }
        addresses.iter().try_for_each(|(name, address)| {
            let name = if *name == "listen" { "listening" } else { *name };
            output.line(&format!("  {name:<11} {address}"))
        })
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
