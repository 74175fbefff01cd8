//! Counters, and the replies to `stats`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::VERSION;
use super::commands::{Call, Result};
use super::words::split;
use crate::shared::unix_time;

/// The counters that `stats` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Keys of `get` and `mg`.
    CmdGet,
    /// Storage commands.
    CmdSet,
    /// `flush_all`.
    CmdFlush,
    /// `touch`, `gat`.
    CmdTouch,
    /// Reads that found their item.
    GetHits,
    /// Reads that did not.
    GetMisses,
    /// Removals that found their item.
    DeleteMisses,
    /// Removals that did not.
    DeleteHits,
    /// `incr` of an absent item.
    IncrMisses,
    /// `incr` of an item.
    IncrHits,
    /// `decr` of an absent item.
    DecrMisses,
    /// `decr` of an item.
    DecrHits,
    /// `cas` of an absent item.
    CasMisses,
    /// `cas` with the right number.
    CasHits,
    /// `cas` with another number.
    CasBadval,
    /// `touch` of an item.
    TouchHits,
    /// `touch` of an absent item.
    TouchMisses,
}

/// The names of the counters, in their order.
const NAMES: [&str; 17] = [
    "cmd_get",
    "cmd_set",
    "cmd_flush",
    "cmd_touch",
    "get_hits",
    "get_misses",
    "delete_misses",
    "delete_hits",
    "incr_misses",
    "incr_hits",
    "decr_misses",
    "decr_hits",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "touch_hits",
    "touch_misses",
];

/// The counters of all connections.
#[derive(Debug, Default)]
pub struct Totals([AtomicU64; NAMES.len()]);

/// The counters of a connection that are not yet added to those of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Commands that ran.
    pub commands: u64,
    /// Commands with an error as reply.
    pub errors: u64,
    values: [u64; NAMES.len()],
}

impl Counts {
    /// Adds one.
    pub fn add(&mut self, count: Count) {
        self.values[count as usize] += 1;
    }

    /// The value of a counter.
    #[must_use]
    pub fn get(&self, count: Count) -> u64 {
        self.values[count as usize]
    }
}

impl Totals {
    /// Adds the counters of a connection.
    pub fn add(&self, counts: &Counts) {
        for (total, value) in self.0.iter().zip(counts.values).filter(|(_, value)| *value > 0) {
            total.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Sets all counters to zero.
    pub fn reset(&self) {
        self.0.iter().for_each(|total| total.store(0, Ordering::Relaxed));
    }
}

/// Replies to `stats` with these arguments.
///
/// # Errors
/// Those of the store.
pub fn reply(call: &mut Call<'_>, arguments: &[u8]) -> Result<()> {
    match split(arguments).next() {
        None => general(call),
        Some(b"settings") => settings(call),
        Some(b"conns") => connections(call),
        Some(b"items" | b"slabs") => {}
        Some(b"sizes") => call.stat("sizes_status", "disabled"),
        Some(b"reset") => {
            call.memcached.totals.reset();
            *call.counts = super::stats::Counts { commands: call.counts.commands, ..Default::default() };
            call.line("RESET");
            return Ok(());
        }
        Some(_) => {
            call.line("ERROR");
            return Ok(());
        }
    }
    call.line("END");
    Ok(())
}

impl Call<'_> {
    fn stat(&mut self, name: &str, value: impl std::fmt::Display) {
        self.line(&format!("STAT {name} {value}"));
    }
}

fn general(call: &mut Call<'_>) {
    let shared = call.shared;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &shared.counters;
    let (items, space) = (call.store.len().keys, shared.store.space());
    call.stat("pid", std::process::id());
    call.stat("uptime", shared.started.elapsed().as_secs());
    call.stat("time", unix_time().as_secs());
    call.stat("version", VERSION);
    call.stat("pointer_size", usize::BITS);
    call.stat("max_connections", shared.settings.clients_max.load(Ordering::Relaxed));
    call.stat("curr_connections", shared.connections());
    call.stat("total_connections", load(&counters.connections));
    call.stat("rejected_connections", load(&counters.rejected));
    // The counters of the server are those of all connections until their latest turn.
    let totals = &call.memcached.totals.0;
    let values: Vec<u64> =
        totals.iter().zip(call.counts.values).map(|(total, own)| load(total) + own).collect();
    for (name, value) in NAMES.into_iter().zip(values) {
        call.stat(name, value);
    }
    call.stat("bytes_read", load(&counters.input_bytes));
    call.stat("bytes_written", load(&counters.output_bytes));
    call.stat("limit_maxbytes", shared.eviction.limit_bytes());
    call.stat("bytes", space.live_bytes);
    call.stat("curr_items", items);
    call.stat("evictions", load(&counters.evicted_keys));
}

fn settings(call: &mut Call<'_>) {
    let shared = call.shared;
    let evicts = shared.eviction.policy() != crate::eviction::Policy::NoEviction;
    call.stat("maxbytes", shared.eviction.limit_bytes());
    call.stat("maxconns", shared.settings.clients_max.load(Ordering::Relaxed));
    call.stat("udpport", 0);
    call.stat("verbosity", 0);
    call.stat("evictions", if evicts { "on" } else { "off" });
    call.stat("cas_enabled", "yes");
    call.stat("auth_enabled_sasl", "no");
    call.stat("auth_enabled_ascii", if shared.users.initial().is_none() { "yes" } else { "no" });
    call.stat("item_size_max", call.memcached.settings.item_bytes_max);
    call.stat("flush_enabled", "yes");
    call.stat("binding_protocol", "ascii");
}

fn connections(call: &mut Call<'_>) {
    for client in call.shared.clients() {
        let (id, idle) = (client.id, client.idle().as_secs());
        call.stat(&format!("{id}:addr"), format!("tcp:{}", client.peer));
        call.stat(&format!("{id}:listen_addr"), format!("tcp:{}", client.local));
        call.stat(&format!("{id}:secs_since_last_cmd"), idle);
    }
}
