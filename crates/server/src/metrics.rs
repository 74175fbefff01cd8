//! HTTP for monitoring: `/metrics` in the text format of Prometheus, and `/health`.
//!
//! Invariants:
//! * H1: HTTP connections do not affect the clients of the store. Their number and their duration are bounded, and an error ends only the
//!   connection in which it occurs.
//! * H2: a request changes nothing, and returns no keys and no values.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bristlecone::{LatencyStats, PagingStats, Space};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::command::server::resident_bytes;
use crate::handover::Stopping;
use crate::shared::Shared;

/// Maximum number of connections. Further ones wait.
const CONNECTIONS_MAX: usize = 16;
/// A connection ends after this time, even if its request is not finished.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// The key whose lookup shows that the store can be read. It need not exist.
const HEALTH_KEY: &[u8] = b"health";
/// Pause after an error of accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The content type of Prometheus' text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers requests until the future is dropped.
pub async fn serve(shared: Arc<Shared>, listener: &TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropping the set ends the connections.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _place = place;
            let answer = service_fn(|request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer(&shared, &request)) }
            });
            // The timer of hyper is not used: the timeout covers the whole connection.
            let connection = http1::Builder::new()
                .header_read_timeout(None)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer);
            // An error of a request concerns only its client.
            let _ = tokio::time::timeout(CONNECTION_TIME, connection).await;
        });
    }
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, content_type, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, PROMETHEUS, metrics(shared)),
        (&Method::GET | &Method::HEAD, "/health") => {
            let (status, text) = health(shared);
            (status, "text/plain", text)
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, "text/plain", "there are /metrics and /health\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Healthy: the server accepts commands, and a lookup in the store succeeds.
fn health(shared: &Shared) -> (StatusCode, String) {
    if *shared.stopping().borrow() != Stopping::No {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    match shared.store.contains(HEALTH_KEY) {
        Ok(_) => (StatusCode::OK, "ok\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("the store cannot be read: {error}\n")),
    }
}

/// Text in the format of Prometheus.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP bristlecone_{name} {help}\n# TYPE bristlecone_{name} {kind}");
    }

    fn value(&mut self, name: &str, value: u64) {
        let _ = writeln!(self.0, "bristlecone_{name} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.value(name, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.value(name, value);
    }
}

fn metrics(shared: &Shared) -> String {
    let mut text = Text(String::new());
    let stats = shared.store.stats();
    let Space { live_bytes, free_bytes, overhead_bytes } = shared.store.space();
    text.head("info", "gauge", "Version, engine and durability.");
    let _ = writeln!(
        text.0,
        "bristlecone_info{{version=\"{}\",engine=\"{}\",durability=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION"),
        stats.engine,
        stats.durability
    );
    text.gauge("uptime_seconds", "Time since the start of the server.", shared.started.elapsed().as_secs());
    text.gauge("connected_clients", "Connections.", shared.connections() as u64);
    let clients_max = shared.settings.clients_max.load(Ordering::Relaxed) as u64;
    text.gauge("max_clients", "Maximum number of connections.", clients_max);
    let held = shared.held_bytes() as u64;
    text.gauge("held_bytes", "Bytes of unfinished commands and unread replies.", held);
    text.gauge(
        "resident_bytes",
        "Resident memory of the process, with mapped pages of the store.",
        resident_bytes(),
    );
    text.gauge("slow_log_entries", "Entries of the slow log.", shared.slow_log_len() as u64);
    let counters = &shared.counters;
    for (name, help, counter) in [
        ("connections_total", "Accepted connections.", &counters.connections),
        ("commands_total", "Commands that ran.", &counters.commands),
        ("command_errors_total", "Commands with an error as reply.", &counters.errors),
        ("keyspace_hits_total", "Lookups that found their key.", &counters.hits),
        ("keyspace_misses_total", "Lookups that did not find their key.", &counters.misses),
        ("evicted_keys_total", "Keys evicted at the limit of memory.", &counters.evicted_keys),
        ("input_bytes_total", "Bytes read from clients.", &counters.input_bytes),
        ("output_bytes_total", "Bytes written to clients.", &counters.output_bytes),
    ] {
        text.counter(name, help, counter.load(Ordering::Relaxed));
    }
    text.head("refusals_total", "counter", "Refused clients and commands, by class.");
    for (class, total) in shared.refusals.totals() {
        text.value(&format!("refusals_total{{class=\"{class}\"}}"), total);
    }
    text.gauge("keys", "Keys of the store; only those counted so far while keys_pending is 1.", stats.keys);
    text.gauge("keys_pending", "1 while keys are counted after a crash.", u64::from(stats.keys_pending));
    text.gauge("store_live_bytes", "Bytes of the store in use.", live_bytes);
    let limit_bytes = shared.eviction.limit_bytes();
    text.gauge("max_memory_bytes", "Limit of store_live_bytes; 0: none.", limit_bytes);
    text.gauge("store_free_bytes", "Bytes of the store for later writes.", free_bytes);
    text.gauge("store_overhead_bytes", "Bytes of the store that its format takes.", overhead_bytes);
    if let Some(bytes) = stats.file_bytes {
        text.gauge("store_file_bytes", "Bytes of the data file.", bytes);
    }
    if let Some(activity) = stats.journal.and_then(|journal| journal.activity) {
        text.gauge(
            "journal_waiting_bytes",
            "Bytes of groups that are not checkpointed.",
            activity.waiting_bytes,
        );
        text.counter(
            "journal_groups_total",
            "Groups made durable since the open.",
            activity.groups_since_open,
        );
        text.counter("journal_syncs_total", "Syncs since the open.", activity.syncs_since_open);
        text.counter("checkpoints_total", "Checkpoints since the open.", activity.checkpoints_since_open);
    }
    if let Some(paging) = &stats.paging {
        pages(&mut text, paging);
    }
    latencies(&mut text, stats.latency);
    text.0
}

/// The pages of an engine whose data may be larger than memory.
fn pages(text: &mut Text, paging: &PagingStats) {
    for (name, help, value) in [
        ("page_memory_bytes", "Memory budget for pages.", paging.memory_bytes),
        ("page_bytes", "Bytes of pages in memory.", paging.page_bytes),
        ("page_unsaved_bytes", "Bytes of changes of evicted pages in memory.", paging.unsaved_bytes),
    ] {
        text.gauge(name, help, value);
    }
    for (name, help, value) in [
        ("pages_used_total", "Pages that operations used.", paging.used_leaves),
        ("pages_read_total", "Pages read from files.", paging.read_leaves),
        ("pages_evicted_total", "Pages evicted from memory.", paging.evictions),
        ("page_bytes_read_total", "Bytes of pages read from files.", paging.read_bytes),
        ("page_bytes_written_total", "Bytes of pages written to files.", paging.image_bytes),
        (
            "page_bytes_saved_total",
            "Bytes that compression saved in pages written to files.",
            paging.saved_bytes,
        ),
        ("log_bytes_written_total", "Bytes written to the commit log.", paging.log_bytes),
        ("log_syncs_total", "Syncs of the commit log.", paging.syncs),
        ("checkpoints_total", "Checkpoints.", paging.checkpoints),
        ("page_waits_total", "Operations that waited for memory or for a checkpoint.", paging.waits),
    ] {
        text.counter(name, help, value);
    }
    text.head("page_wait_seconds_total", "counter", "Time of these waits, of all threads.");
    let us = paging.waited_us;
    let _ = writeln!(text.0, "bristlecone_page_wait_seconds_total {}.{:06}", us / 1_000_000, us % 1_000_000);
}

fn latencies(text: &mut Text, LatencyStats { get, write, commit }: LatencyStats) {
    text.head("latency_seconds", "gauge", "Quantiles of timed operations since the open; 1 is the maximum.");
    for (kind, times) in [("get", get), ("write", write), ("commit", commit)] {
        let Some(times) = times else { continue };
        for (quantile, ns) in
            [("0.5", times.p50_ns), ("0.99", times.p99_ns), ("0.999", times.p999_ns), ("1", times.max_ns)]
        {
            let _ = writeln!(
                text.0,
                "bristlecone_latency_seconds{{kind=\"{kind}\",quantile=\"{quantile}\"}} {}.{:09}",
                ns / 1_000_000_000,
                ns % 1_000_000_000
            );
        }
    }
}
