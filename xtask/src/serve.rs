//! `cargo xtask record serve`: the server compared with Debian's `redis-server` and `memcached`, and the record of the results,
//! `docs/records/serve.json`. `redis-benchmark` drives the server and Redis. A load of our own ([`crate::load`]) drives all three, only at
//! the level *process*, because memcached makes nothing durable.
//!
//! The servers run on this machine and take turns, so the figures of a ratio come from the same minutes. Each figure is the median of the
//! rounds. Bristlecone and Redis run at two levels:
//!
//! | level | files | Bristlecone | Redis |
//! |---|---|---|---|
//! | process | memory file system | `--durability process` | no persistence |
//! | power | disk | `--durability power`: a sync before the reply | `appendfsync always`: a sync before the reply |

mod cluster;
mod ketama;
pub mod papers;
pub mod servers;
pub mod types;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::Outcome;
use crate::load::{Load, Protocol, Verb};
use crate::run::{Step, target};
use servers::{LEVELS, Level, Server};

/// Rounds of each load, for each server.
const ROUNDS: usize = 5;
/// Number of different random keys.
const KEYS: u64 = 1_000_000;
const VALUE_BYTES: [u64; 2] = [64, 1024];
/// Numbers of connections, each with the number of commands in a pipeline.
const LOADS: [(u64, u64); 6] = [(1, 1), (1, 16), (50, 1), (50, 16), (500, 1), (500, 16)];

/// Number of commands of one run. A run takes some seconds.
fn commands(level: Level, (clients, pipeline): (u64, u64)) -> u64 {
    let (few, many) = if level.in_memory { (20_000, 200_000) } else { (2_000, 50_000) };
    let commands = if clients == 1 { few } else { many };
    if pipeline == 1 { commands } else { commands * 5 }
}

/// Runs a load. Returns commands per second and the 99th percentile of the latency in milliseconds, of SET and of GET.
fn load(server: &Server, level: Level, bytes: u64, load: (u64, u64)) -> Result<[(f64, f64); 2], String> {
    let numbers =
        [("-c", load.0), ("-P", load.1), ("-d", bytes), ("-r", KEYS), ("-n", commands(level, load))];
    let numbers = numbers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]);
    let arguments: Vec<String> = ["-t", "set,get"].map(str::to_owned).into_iter().chain(numbers).collect();
    let text = server.benchmark(&arguments)?;
    let of = |name: &str| {
        parse(&text, name).ok_or_else(|| format!("redis-benchmark printed no line of {name}: {text}"))
    };
    Ok([of("SET")?, of("GET")?])
}

/// Commands per second and the 99th percentile from a line of CSV: name, rate, latencies (average, minimum, 50 %, 95 %, 99 %, maximum).
fn parse(text: &str, name: &str) -> Option<(f64, f64)> {
    let cells = |line: &str| -> Vec<String> {
        line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect()
    };
    let line = text.lines().map(cells).find(|cells| cells.first().is_some_and(|first| first == name))?;
    Some((line.get(1)?.parse().ok()?, line.get(6)?.parse().ok()?))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// The rows of a load: SET and GET.
fn rows(
    level: Level,
    bytes: u64,
    load: (u64, u64),
    servers: (&Server, &Server),
) -> Result<Vec<Value>, String> {
    let (mut rounds, mut syncs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = servers.0.syncs();
        let ours = self::load(servers.0, level, bytes, load)?;
        if let (Some(before), Some(after)) = (before, servers.0.syncs()) {
            // The GETs of the load need no sync.
            syncs.push((after - before) / commands(level, load) as f64);
        }
        rounds.push((ours, self::load(servers.1, level, bytes, load)?));
    }
    let row = |(at, command): (usize, &str)| {
        let of = |number: fn(&(f64, f64)) -> f64, ours: bool| {
            median(rounds.iter().map(|(a, b)| number(if ours { &a[at] } else { &b[at] })).collect())
        };
        let (rate, p99) = (|pair: &(f64, f64)| pair.0, |pair: &(f64, f64)| pair.1);
        json!({
            "level": level.name, "value_bytes": bytes, "connections": load.0, "pipeline": load.1, "command": command,
            "per_second": of(rate, true), "redis_per_second": of(rate, false), "ratio": of(rate, true) / of(rate, false),
            "p99_ms": of(p99, true), "redis_p99_ms": of(p99, false),
            "syncs_per_set": if syncs.is_empty() || at > 0 { Value::Null } else { median(syncs.clone()).into() },
        })
    };
    Ok([(0, "SET"), (1, "GET")].map(row).into())
}

/// The rows of our own load: SET and GET for each size of values and each number of connections.
fn own_rows(program: &Path) -> Result<Vec<Value>, String> {
    let level = LEVELS[0];
    let mut all = Vec::new();
    for value_bytes in VALUE_BYTES {
        let servers = [
            ("ours", Protocol::Redis, Server::ours(level, program)?),
            ("redis", Protocol::Redis, Server::redis(level)?),
            ("memcached", Protocol::Memcached, Server::memcached()?),
        ];
        for (connections, pipeline) in LOADS {
            let requests = commands(level, (connections, pipeline)) / 2;
            for verb in [Verb::Set, Verb::Get] {
                let mut figures = [const { Vec::new() }; 3];
                for _ in 0..ROUNDS {
                    for ((_, protocol, server), figures) in servers.iter().zip(&mut figures) {
                        let protocol = *protocol;
                        let load = Load {
                            protocol,
                            verb,
                            connections,
                            pipeline,
                            value_bytes,
                            keys: KEYS,
                            key_digits: 12,
                            seed: 0,
                            requests,
                        };
                        figures.push(load.run(server.port)?);
                    }
                }
                let mut row = json!({
                    "value_bytes": value_bytes, "connections": connections, "pipeline": pipeline,
                    "command": format!("{verb:?}").to_uppercase(),
                });
                for ((name, ..), figures) in servers.iter().zip(&figures) {
                    let per_second = median(figures.iter().map(|figures| figures.per_second).collect());
                    let p99_ms = median(figures.iter().map(|figures| figures.p99_ms).collect());
                    row[name] = json!({ "per_second": per_second, "p99_ms": p99_ms });
                }
                println!("own load: {row}");
                all.push(row);
            }
        }
    }
    let _ = fs::remove_dir_all(level.dir());
    Ok(all)
}

/// Measures everything.
///
/// # Errors
/// A message if a server or `redis-benchmark` cannot run.
pub fn measure() -> Result<Value, String> {
    Step::new("cargo build --release").run()?;
    let program = target().join("release/bristlecone");
    let mut all = Vec::new();
    for level in LEVELS {
        for bytes in VALUE_BYTES {
            let (ours, redis) = (Server::ours(level, &program)?, Server::redis(level)?);
            for load in LOADS {
                let rows = rows(level, bytes, load, (&ours, &redis))?;
                for row in &rows {
                    let number = |name: &str| row[name].as_f64().unwrap_or_default();
                    println!(
                        "{}, {bytes} bytes, {} connections, pipeline {}: {} {:.0} per second, Redis {:.0}, ratio {:.2}",
                        level.name,
                        load.0,
                        load.1,
                        row["command"],
                        number("per_second"),
                        number("redis_per_second"),
                        number("ratio")
                    );
                }
                all.extend(rows);
            }
        }
        let _ = fs::remove_dir_all(level.dir());
    }
    let own = own_rows(&program)?;
    Ok(json!({ "rounds": ROUNDS, "keys": KEYS, "rows": all, "own_load": own }))
}

/// The baseline of the record.
pub const BASELINE: &str = "redis-server 7 and memcached 1.6 of Debian in the same rounds";

/// The command that repeats the run.
pub const COMMAND: &str = "cargo xtask record serve";

/// Runs the benchmark and writes its record.
///
/// # Errors
/// As [`measure`]; the record cannot be written.
pub fn run(write: impl FnOnce(&str, &str, &str, Value) -> Outcome) -> Outcome {
    write("serve", COMMAND, BASELINE, measure()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_redis_benchmark_are_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"1000.50\",\"0.5\",\"0.1\",\"0.4\",\"0.9\",\"1.25\",\"3.0\"\n";
        assert_eq!(parse(text, "SET"), Some((1000.5, 1.25)));
        assert_eq!(parse(text, "GET"), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
    }
}
