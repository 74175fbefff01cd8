//! Commands of the server: INFO, TIME, SHUTDOWN.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use bristlecone::{JournalStats, LatencyStats, PagingStats, Percentiles, Space};

use super::connection::REDIS_VERSION;
use super::{Call, Command, CommandError, Flags, Handler, NO_KEYS, is};
use crate::shared::{DATABASES, Shared, unix_time};
use crate::subscriptions::Kind;

const GROUP: &str = "server";

/// A command of this group without keys.
pub(super) const fn command(
    name: &'static str,
    arity: i64,
    flags: Flags,
    summary: &'static str,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys: NO_KEYS, group: GROUP, summary, handler }
}

/// The commands of this module.
pub const COMMANDS: &[Command] = &[
    command("info", -1, Flags::SLOW, "Tells about the server and the store.", info),
    command("time", 1, Flags::FAST, "Returns the time: seconds since 1970 and microseconds.", time),
    command(
        "shutdown",
        -1,
        Flags::ADMIN.and(Flags::ALONE),
        "Closes the store cleanly and ends the server.",
        shutdown,
    ),
];

fn time(call: &mut Call<'_>) -> Result<(), CommandError> {
    let now = unix_time();
    call.reply.array(2);
    call.reply.text(&now.as_secs().to_string());
    call.reply.text(&now.subsec_micros().to_string());
    Ok(())
}

/// Sends no reply, as Redis: the connection closes when the server stops.
fn shutdown(call: &mut Call<'_>) -> Result<(), CommandError> {
    let known = ["SAVE", "NOSAVE", "NOW", "FORCE"];
    if !call.rest(1).iter().all(|option| known.iter().any(|word| is(option, word))) {
        return Err(CommandError::Syntax);
    }
    call.session.close = true;
    call.shared.stop();
    Ok(())
}

/// The TCP port; 0 without one.
fn port(shared: &Shared) -> String {
    shared.address.map_or(0, |address| address.port()).to_string()
}

type Section = (&'static str, fn(&Shared) -> Vec<(&'static str, String)>);

const SECTIONS: [Section; 11] = [
    ("Server", server_fields),
    ("Clients", client_fields),
    ("Memory", memory_fields),
    ("Persistence", persistence_fields),
    ("Stats", stats_fields),
    ("Replication", |_| vec![("role", "master".to_owned()), ("connected_slaves", "0".to_owned())]),
    ("CPU", |_| cpu_fields()),
    ("Latencystats", latency_fields),
    ("Cluster", |_| vec![("cluster_enabled", "0".to_owned())]),
    ("Keyspace", keyspace_fields),
    ("Bristlecone", store_fields),
];

/// Processor time of this process in seconds with two decimals: `utime` and `stime` in proc(5) count hundredths of a second. 0 if the
/// kernel does not show them.
fn cpu_fields() -> Vec<(&'static str, String)> {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the name of the program, which may contain spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let seconds = |field: usize| {
        let ticks = fields.get(field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        format!("{}.{:02}", ticks / 100, ticks % 100)
    };
    vec![("used_cpu_sys", seconds(12)), ("used_cpu_user", seconds(11))]
}

fn info(call: &mut Call<'_>) -> Result<(), CommandError> {
    let asked = call.rest(1);
    let everything = ["default", "all", "everything"];
    let all = asked.is_empty() || asked.iter().any(|name| everything.iter().any(|word| is(name, word)));
    let mut text = String::new();
    for (section, fields) in SECTIONS {
        if !all && !asked.iter().any(|name| is(name, section)) {
            continue;
        }
        let separator = if text.is_empty() { "" } else { "\r\n" };
        let _ = write!(text, "{separator}# {section}\r\n");
        for (name, value) in fields(call.shared) {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    call.reply.verbatim(&text);
    Ok(())
}

fn server_fields(shared: &Shared) -> Vec<(&'static str, String)> {
    let uptime = shared.started.elapsed().as_secs();
    vec![
        ("redis_version", REDIS_VERSION.to_owned()),
        ("server_name", "bristlecone".to_owned()),
        ("bristlecone_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("os", std::env::consts::OS.to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", port(shared)),
        ("server_time_usec", unix_time().as_micros().to_string()),
        ("uptime_in_seconds", uptime.to_string()),
        ("uptime_in_days", (uptime / 86_400).to_string()),
    ]
}

fn client_fields(shared: &Shared) -> Vec<(&'static str, String)> {
    vec![
        ("connected_clients", shared.connections().to_string()),
        ("tracking_clients", shared.watches.tracking.counts()[0].to_string()),
        ("blocked_clients", shared.waiters.count().to_string()),
        ("maxclients", shared.settings.clients_max.load(Ordering::Relaxed).to_string()),
    ]
}

fn memory_fields(shared: &Shared) -> Vec<(&'static str, String)> {
    let resident = resident_bytes().to_string();
    let Space { live_bytes, free_bytes, overhead_bytes } = shared.store.space();
    vec![
        ("store_region_bytes", (live_bytes + free_bytes + overhead_bytes).to_string()),
        ("store_live_bytes", live_bytes.to_string()),
        ("store_free_bytes", free_bytes.to_string()),
        ("store_overhead_bytes", overhead_bytes.to_string()),
        ("used_memory", live_bytes.to_string()),
        ("used_memory_rss", resident),
        ("held_by_clients", shared.held_bytes().to_string()),
        ("maxmemory", shared.eviction.limit_bytes().to_string()),
        ("maxmemory_policy", shared.eviction.policy().to_string()),
    ]
}

/// Resident memory of this process in bytes, with mapped file pages; 0 if the kernel does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

fn persistence_fields(shared: &Shared) -> Vec<(&'static str, String)> {
    let saves = &shared.saves;
    let newest = saves.newest().to_string();
    // Every acknowledged write is durable. So no change waits to be saved.
    let fields = [
        ("loading", "0"),
        ("rdb_changes_since_last_save", "0"),
        ("rdb_bgsave_in_progress", if saves.is_running() { "1" } else { "0" }),
        ("rdb_last_save_time", newest.as_str()),
        ("rdb_last_bgsave_status", if saves.has_failed() { "err" } else { "ok" }),
        ("aof_enabled", "0"),
    ];
    let mut fields = fields.map(|(name, value)| (name, value.to_owned())).to_vec();
    let stats = shared.store.stats();
    fields.extend(stats.file_bytes.map(|bytes| ("store_file_bytes", bytes.to_string())));
    if let Some(JournalStats { bytes, file_bytes, activity }) = stats.journal {
        fields.push(("journal_file_bytes", file_bytes.to_string()));
        fields.push(("journal_capacity_bytes", bytes.to_string()));
        fields.extend(activity.map(|known| ("journal_waiting_bytes", known.waiting_bytes.to_string())));
    }
    fields
}

fn stats_fields(shared: &Shared) -> Vec<(&'static str, String)> {
    let counters = &shared.counters;
    let fields = [
        ("total_connections_received", &counters.connections),
        ("total_commands_processed", &counters.commands),
        ("total_net_input_bytes", &counters.input_bytes),
        ("total_net_output_bytes", &counters.output_bytes),
        ("rejected_connections", &counters.rejected),
        ("total_error_replies", &counters.errors),
        ("keyspace_hits", &counters.hits),
        ("keyspace_misses", &counters.misses),
        ("evicted_keys", &counters.evicted_keys),
    ];
    let mut fields =
        fields.map(|(name, counter)| (name, counter.load(Ordering::Relaxed).to_string())).to_vec();
    let [_, keys, prefixes] = shared.watches.tracking.counts();
    fields.push(("tracking_total_keys", keys.to_string()));
    fields.push(("tracking_total_prefixes", prefixes.to_string()));
    for (name, kind) in [
        ("pubsub_channels", Kind::Channel),
        ("pubsub_patterns", Kind::Pattern),
        ("pubsubshard_channels", Kind::Shard),
    ] {
        fields.push((name, shared.subscriptions.count(kind).to_string()));
    }
    // These count since the open of the store. CONFIG RESETSTAT does not reset them.
    if let Some(known) = shared.store.stats().journal.and_then(|journal| journal.activity) {
        fields.extend([
            ("total_groups_committed", known.groups_since_open.to_string()),
            ("total_syncs", known.syncs_since_open.to_string()),
            ("total_checkpoints", known.checkpoints_since_open.to_string()),
        ]);
    }
    fields
}

/// Latencies in the form of Redis. `get` covers lookups of one key, `write` changes of one key, `commit` the commits of pipelines.
fn latency_fields(shared: &Shared) -> Vec<(&'static str, String)> {
    let LatencyStats { get, write, commit } = shared.store.stats().latency;
    let kinds = [
        ("latency_percentiles_usec_get", get),
        ("latency_percentiles_usec_write", write),
        ("latency_percentiles_usec_commit", commit),
    ];
    let field = |(name, times): (_, Option<Percentiles>)| Some((name, percentiles_usec(&times?)));
    kinds.into_iter().filter_map(field).collect()
}

fn percentiles_usec(times: &Percentiles) -> String {
    let usec = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
    let Percentiles { p50_ns, p99_ns, p999_ns, max_ns, .. } = *times;
    let [p50, p99, p999, max] = [p50_ns, p99_ns, p999_ns, max_ns].map(usec);
    format!("p50={p50},p99={p99},p99.9={p999},max={max}")
}

/// INFO counts at most this many deadlines in each database, so that it takes bounded time.
const EXPIRES_MAX: usize = 10_000;

fn keyspace_fields(shared: &Shared) -> Vec<(&'static str, String)> {
    /// The names of the databases' fields.
    const NAMES: [&str; DATABASES] = [
        "db0", "db1", "db2", "db3", "db4", "db5", "db6", "db7", "db8", "db9", "db10", "db11", "db12", "db13",
        "db14", "db15",
    ];
    let field = |db: usize| {
        let store = shared.databases.known(db)?;
        let (keys, expires) = (store.len().keys, store.count_deadlines(EXPIRES_MAX).unwrap_or(0));
        (keys > 0).then(|| (NAMES[db], format!("keys={keys},expires={expires},avg_ttl=0")))
    };
    (0..DATABASES).filter_map(field).collect()
}

/// The pages of an engine whose data may be larger than memory.
fn paging_fields(paging: &PagingStats) -> Vec<(&'static str, String)> {
    let counts = [
        ("page_memory_bytes", paging.memory_bytes),
        ("page_bytes", paging.page_bytes),
        ("page_unsaved_bytes", paging.unsaved_bytes),
        ("pages_used", paging.used_leaves),
        ("pages_read", paging.read_leaves),
        ("pages_evicted", paging.evictions),
        ("pages_moved", paging.moved_images),
        ("page_bytes_read", paging.read_bytes),
        ("page_bytes_written", paging.image_bytes),
        ("page_bytes_saved", paging.saved_bytes),
        ("log_bytes_written", paging.log_bytes),
        ("log_syncs", paging.syncs),
        ("checkpoints", paging.checkpoints),
        ("checkpoint_bytes_written", paging.checkpoint_bytes),
        ("bytes_put", paging.put_bytes),
        ("page_waits", paging.waits),
        ("page_wait_usec", paging.waited_us),
    ];
    let rates = [("page_hit_rate", paging.hit_rate()), ("write_amplification", paging.write_amplification())];
    let counts = counts.into_iter().map(|(name, count)| (name, count.to_string()));
    let rates = rates.into_iter().filter_map(|(name, rate)| Some((name, format!("{:.3}", rate?))));
    counts.chain(rates).collect()
}

fn store_fields(shared: &Shared) -> Vec<(&'static str, String)> {
    let stats = shared.store.stats();
    let mut fields = vec![
        ("engine", stats.engine),
        ("medium", stats.medium),
        ("durability", stats.durability),
        ("durability_reason", stats.durability_reason.replace(['\r', '\n'], " ")),
        ("keys", stats.keys.to_string()),
        ("keys_pending", u8::from(stats.keys_pending).to_string()),
        ("node_bytes", stats.node_bytes.to_string()),
        ("recovery_us", stats.recovery_us.to_string()),
        ("opened", stats.opened),
    ];
    fields.extend(stats.limbo.map(|limbo| ("limbo_bytes", limbo.bytes.to_string())));
    fields.extend(stats.paging.iter().flat_map(paging_fields));
    fields
}
