//! `cargo xtask record serve-types`: commands on structures and scripts, compared with Debian's `redis-server`, and clients of memcached,
//! compared with Debian's `memcached`. The record is `docs/records/serve-types.json`.
//!
//! `redis-benchmark` drives the commands on structures. There are a thousand structures of each type, and a command takes a random one. A
//! hash, a set and a sorted set grow to at most a thousand elements. A load of our own ([`crate::load`]) drives the sockets of memcached's
//! protocol, at the level *process* only.
//!
//! The servers take turns, so the figures of a ratio come from the same minutes. The ratio of a row is the median of the ratios of its
//! rounds. Each row has a target: the smallest ratio that the project accepts.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::median;
use super::servers::{LEVELS, Level, Server};
use crate::Outcome;
use crate::load::{Load, Protocol, Verb};
use crate::run::{Step, target};

const ROUNDS: usize = 5;
const CONNECTIONS: u64 = 50;
const PIPELINES: [u64; 2] = [1, 16];
/// Number of structures of each type, and of different elements of each.
const STRUCTURES: u64 = 1000;
/// Number of different keys of memcached's clients.
const KEYS: u64 = 1_000_000;
const VALUE_BYTES: [u64; 2] = [64, 1024];

/// The commands, in the order in which a round runs them. `__rand_int__` is a random number below [`STRUCTURES`], another one at each
/// place. `VALUE` has 64 bytes.
const COMMANDS: [(&str, &[&str]); 9] = [
    ("LPUSH", &["LPUSH", "list:__rand_int__", "VALUE"]),
    ("RPOP", &["RPOP", "list:__rand_int__"]),
    ("HSET", &["HSET", "hash:__rand_int__", "field:__rand_int__", "VALUE"]),
    ("HGET", &["HGET", "hash:__rand_int__", "field:__rand_int__"]),
    ("ZADD", &["ZADD", "zset:__rand_int__", "__rand_int__", "member:__rand_int__"]),
    ("ZRANGEBYSCORE", &["ZRANGEBYSCORE", "zset:__rand_int__", "__rand_int__", "+inf", "LIMIT", "0", "10"]),
    ("SADD", &["SADD", "set:__rand_int__", "member:__rand_int__"]),
    ("XADD", &["XADD", "stream:__rand_int__", "*", "field", "VALUE"]),
    ("EVAL", &["EVAL", SCRIPT, "1", "count:__rand_int__", "VALUE"]),
];

/// A script that reads a key and writes it.
const SCRIPT: &str = "local old = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return old";

/// The smallest ratio that the project accepts: to Redis without persistence, and to Redis with `appendfsync always`.
fn least(level: Level) -> f64 {
    if level.in_memory { 0.9 } else { 1.3 }
}

/// The smallest ratio to memcached that the project accepts.
const LEAST_MEMCACHED: f64 = 0.9;

/// Number of commands of one run. A run takes about a second.
fn count(level: Level, pipeline: u64) -> u64 {
    match (level.in_memory, pipeline) {
        (true, 1) => 50_000,
        (true, _) => 200_000,
        (false, 1) => 20_000,
        (false, _) => 100_000,
    }
}

/// Commands per second and the 99th percentile from a line of CSV. Its first cell is the whole command, which may have commas. So the other
/// seven cells are counted from the end.
fn figures(line: &str) -> Option<(f64, f64)> {
    let cells: Vec<_> = line.rsplit(',').map(|cell| cell.trim_matches('"')).collect();
    Some((cells.get(6)?.parse().ok()?, cells.get(1)?.parse().ok()?))
}

/// Runs a command many times. Returns commands per second and the 99th percentile of the latency in milliseconds.
fn run_command(
    server: &Server,
    command: &[&str],
    requests: u64,
    pipeline: u64,
) -> Result<(f64, f64), String> {
    let numbers = [("-c", CONNECTIONS), ("-P", pipeline), ("-r", STRUCTURES), ("-n", requests)];
    let mut arguments: Vec<String> =
        numbers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]).collect();
    let value = "v".repeat(64);
    arguments.extend(command.iter().map(|word| word.replace("VALUE", &value)));
    let text = server.benchmark(&arguments)?;
    text.lines().nth(1).and_then(figures).ok_or_else(|| format!("redis-benchmark printed no figures: {text}"))
}

/// A row with the figures of both servers in each round.
fn row(mut about: Value, least: f64, rounds: &[[(f64, f64); 2]]) -> Value {
    let of = |number: fn(&[(f64, f64); 2]) -> f64| median(rounds.iter().map(number).collect());
    let ratio = of(|round| round[0].0 / round[1].0);
    let figures = json!({
        "per_second": of(|round| round[0].0), "other_per_second": of(|round| round[1].0), "ratio": ratio,
        "p99_ms": of(|round| round[0].1), "other_p99_ms": of(|round| round[1].1),
        "least": least, "holds": ratio >= least,
    });
    if let (Value::Object(about), Value::Object(figures)) = (&mut about, figures) {
        about.extend(figures);
    }
    println!("{about}");
    about
}

/// The rows of one level.
fn level_rows(level: Level, program: &Path) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for pipeline in PIPELINES {
        let servers = [Server::ours(level, program)?, Server::redis(level)?];
        let requests = count(level, pipeline);
        let mut rounds = vec![Vec::new(); COMMANDS.len()];
        for _ in 0..ROUNDS {
            for ((_, command), rounds) in COMMANDS.iter().zip(&mut rounds) {
                let of = |server: &Server| run_command(server, command, requests, pipeline);
                rounds.push([of(&servers[0])?, of(&servers[1])?]);
            }
        }
        for ((name, _), rounds) in COMMANDS.iter().zip(&rounds) {
            let about = json!({
                "level": level.name, "other": "Redis", "command": name, "connections": CONNECTIONS, "pipeline": pipeline,
            });
            all.push(row(about, least(level), rounds));
        }
    }
    let _ = fs::remove_dir_all(level.dir());
    Ok(all)
}

/// The rows of memcached's protocol.
fn memcached_rows(program: &Path) -> Result<Vec<Value>, String> {
    let level = LEVELS[0];
    let mut all = Vec::new();
    for value_bytes in VALUE_BYTES {
        let options = ["--durability", level.durability];
        let servers = [
            Server::bristlecone_memcached(program, level.dir().join("ours"), &options)?,
            Server::memcached()?,
        ];
        for pipeline in PIPELINES {
            let mut rounds = [const { Vec::new() }; 2];
            for _ in 0..ROUNDS {
                for (verb, rounds) in [Verb::Set, Verb::Get].into_iter().zip(&mut rounds) {
                    let load = Load {
                        protocol: Protocol::Memcached,
                        verb,
                        connections: CONNECTIONS,
                        pipeline,
                        value_bytes,
                        keys: KEYS,
                        key_digits: 12,
                        seed: 0,
                        requests: count(level, pipeline),
                    };
                    let of = |server: &Server| load.run(server.port).map(|of| (of.per_second, of.p99_ms));
                    rounds.push([of(&servers[0])?, of(&servers[1])?]);
                }
            }
            for (name, rounds) in ["set", "get"].iter().zip(&rounds) {
                let about = json!({
                    "level": level.name, "other": "memcached", "command": format!("{name}, {value_bytes} bytes"),
                    "connections": CONNECTIONS, "pipeline": pipeline,
                });
                all.push(row(about, LEAST_MEMCACHED, rounds));
            }
        }
    }
    let _ = fs::remove_dir_all(level.dir());
    Ok(all)
}

/// Measures everything.
///
/// # Errors
/// A message if a server or a load cannot run.
fn measure() -> Result<Value, String> {
    Step::new("cargo build --release -p bristlecone-cli").run()?;
    let program = target().join("release/bristlecone");
    let mut rows = Vec::new();
    for level in LEVELS {
        rows.extend(level_rows(level, &program)?);
    }
    rows.extend(memcached_rows(&program)?);
    Ok(json!({ "rounds": ROUNDS, "structures": STRUCTURES, "keys": KEYS, "rows": rows }))
}

/// Runs the benchmark and writes its record.
///
/// # Errors
/// As [`measure`]; the record cannot be written.
pub fn run(write: impl FnOnce(&str, &str, &str, Value) -> Outcome) -> Outcome {
    write("serve-types", "cargo xtask record serve-types", super::BASELINE, measure()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_counted_from_the_end_of_the_line() {
        let line = r#""EVAL return {1,2} 0","88105.73","7.126","0.432","9.311","11.359","13.071","13.311""#;
        assert_eq!(figures(line), Some((88105.73, 13.071)));
        assert_eq!(figures(r#""test","rps""#), None);
    }

    #[test]
    fn a_row_has_the_median_of_the_ratios_and_its_verdict() {
        let rounds = [[(9.0, 1.0), (10.0, 2.0)], [(5.0, 3.0), (10.0, 4.0)], [(30.0, 5.0), (10.0, 6.0)]];
        let good = row(json!({ "command": "C" }), 0.9, &rounds);
        assert_eq!((good["ratio"].as_f64(), good["p99_ms"].as_f64()), (Some(0.9), Some(3.0)));
        assert_eq!((good["command"].as_str(), good["holds"].as_bool()), (Some("C"), Some(true)));
        assert_eq!(row(json!({}), 1.3, &rounds)["holds"].as_bool(), Some(false));
    }
}
