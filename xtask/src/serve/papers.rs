//! `cargo xtask record serve-papers`: the papers' experiments with a server, run again. The record is `docs/records/serve-papers.json`.
//!
//! * The CDDS thesis, sections 5.5 and 5.6 (figures 5.5 to 5.7): Tembo is Redis with a CDDS B-Tree in place of its log. Here, Tembo is
//!   `bristlecone serve --engine cdds` with flushes and fences in a memory file system. The clients distribute the keys ([`super::ketama`]).
//! * The wB+-Tree paper, section 5.5 (figure 15): memcached with trees in place of its hash table. Here, the trees are in the server's socket
//!   for clients of memcached, and memcached itself is the volatile hash table.
//!
//! The servers of an experiment take turns in each round, and a claim compares figures of the same round. A claim is about one factor. It
//! holds if the median of the factor, rounded as in the paper, is in the paper's range.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cluster::{Cluster, Workload};
use super::median;
use super::servers::Server;
use crate::Outcome;
use crate::load::{Load, Protocol, Verb};
use crate::run::{Step, target};

const ROUNDS: usize = 3;
/// Servers of a cluster: as in figure 5.5. The cluster of figures 5.6 and 5.7 has 13, on as many machines.
const SERVERS: usize = 6;
/// Sizes of the values of figure 5.5.
const VALUE_BYTES: [usize; 3] = [256, 1024, 4096];
/// Clients of figure 5.5, and the requests that a client has under way.
const INSERT_CLIENTS: u64 = 2;
const INSERT_PIPELINE: u64 = 16;
/// Inserts of figure 5.5 in each round. The thesis has a million for each client.
const INSERTS: u64 = 60_000;
/// Numbers of clients of figures 5.6 and 5.7.
const CLIENTS: [u64; 2] = [10, 30];
/// Records of YCSB, and operations of each run. The thesis has two million operations.
const RECORDS: u64 = 20_000;
const OPERATIONS: u64 = 40_000;
/// Keys that a tree of figure 15 has before the first round, and those of a batch. The paper has 50 million and 500,000.
const TREE_KEYS: u64 = 300_000;
const TREE_BATCH: u64 = 60_000;
/// Connections of `mc-benchmark`.
const TREE_CONNECTIONS: u64 = 50;
/// The paper names no size of the values of figure 15.
const TREE_VALUE_BYTES: u64 = 64;

/// A server whose changes are durable when it replies, or a volatile one, and its name in the record.
struct Contestant {
    name: &'static str,
    /// Options of `bristlecone serve`; `None`: a competitor.
    options: Option<&'static [&'static str]>,
}

const fn ours(name: &'static str, options: &'static [&'static str]) -> Contestant {
    Contestant { name, options: Some(options) }
}

const TEMBO: &str = "cdds";
const DEFAULT: &str = "line";
const REDIS: &str = "Redis, always";

/// The clusters of figures 5.5 to 5.7.
const CLUSTERS: [Contestant; 3] = [
    ours(TEMBO, &["--engine", TEMBO, "--durability", "power"]),
    ours(DEFAULT, &["--engine", DEFAULT, "--durability", "power"]),
    Contestant { name: REDIS, options: None },
];

const HASH: &str = "memcached";
const VOLATILE: &str = "btree";

/// The trees of figure 15: those of the paper, then the others.
const TREES: [&str; 17] = [
    "wbtree-keyptr",
    "wbtree-bmp",
    "btree-log",
    "ubmp-log",
    "btree-shadow",
    "ubmp-shadow",
    VOLATILE,
    "wbtree",
    "wbtree-line",
    "wbtree-slot",
    "line",
    "vlab",
    "nvtree",
    "cdds",
    "wb-4k",
    "buffer-pool",
    "bwtree",
];

/// The older persistent trees of the paper, of those with string keys.
const OLDER: [&str; 4] = ["btree-log", "ubmp-log", "btree-shadow", "ubmp-shadow"];

/// Figures of one load: for each round, one for each contestant.
#[derive(Debug, Default)]
struct Rounds(Vec<Vec<f64>>);

impl Rounds {
    /// The median of the factors of the rounds.
    fn median(&self, factor: impl Fn(&[f64]) -> f64) -> f64 {
        median(self.0.iter().map(|round| factor(round)).collect())
    }

    /// The median of the ratios of two contestants.
    fn ratio(&self, of: usize, to: usize) -> f64 {
        self.median(|round| round[of] / round[to])
    }

    fn row(&self, names: &[&str], about: &str) -> Value {
        let cell = |(at, name): (usize, &&str)| json!({ "name": name, "per_second": self.median(|round| round[at]), "ratio": self.ratio(at, names.len() - 1) });
        let cells: Vec<_> = names.iter().enumerate().map(cell).collect();
        let row = json!({ "load": about, "cells": cells });
        println!("{row}");
        row
    }
}

/// A judged claim. `paper` is the range of the factor, `decimals` its precision.
fn claim(text: String, paper: (Option<f64>, Option<f64>), decimals: usize, factor: f64) -> Value {
    let unit = 10_f64.powi(decimals as i32);
    let rounded = (factor * unit).round() / unit;
    let holds = rounded.is_finite()
        && paper.0.is_none_or(|least| rounded >= least)
        && paper.1.is_none_or(|most| rounded <= most);
    let verdict = if holds { "holds" } else { "does not hold" };
    println!("{verdict:13}  {text}: {rounded:.decimals$}");
    json!({ "claim": text, "ours": format!("{rounded:.decimals$}"), "holds": holds })
}

/// A folder in the memory file system.
fn dir(name: &str) -> PathBuf {
    PathBuf::from("/dev/shm").join(format!("bristlecone-papers-{}", std::process::id())).join(name)
}

impl Contestant {
    /// The servers of a cluster with Redis's protocol.
    fn cluster(&self, program: &Path) -> Result<(Vec<Server>, Cluster), String> {
        let start = |number: usize| {
            let dir = dir(&format!("{}-{number}", self.name.split(',').next().unwrap_or_default()));
            match self.options {
                Some(options) => Server::bristlecone(program, dir, options),
                None => {
                    Server::redis_in(dir, &["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
                }
            }
        };
        let servers = (0..SERVERS).map(start).collect::<Result<Vec<_>, _>>()?;
        let cluster = Cluster::new(Protocol::Redis, servers.iter().map(|server| server.port).collect());
        Ok((servers, cluster))
    }
}

/// Figure 5.5.
fn inserts(program: &Path, rows: &mut Vec<Value>) -> Result<Vec<Rounds>, String> {
    let mut all = Vec::new();
    for bytes in VALUE_BYTES {
        let mut rounds = Rounds::default();
        for _ in 0..ROUNDS {
            let mut round = Vec::new();
            for contestant in &CLUSTERS {
                // New servers in each round, so that all inserts are of new keys and the memory is bounded.
                let (servers, cluster) = contestant.cluster(program)?;
                round.push(cluster.insert(bytes, INSERT_CLIENTS, INSERTS, INSERT_PIPELINE)?);
                drop(servers);
            }
            rounds.0.push(round);
        }
        rows.push(rounds.row(&CLUSTERS.map(|one| one.name), &format!("5.5: inserts of {bytes} bytes")));
        all.push(rounds);
    }
    Ok(all)
}

/// Figures 5.6 and 5.7. Returns the rounds with the most clients of each workload.
fn workloads(program: &Path, rows: &mut Vec<Value>) -> Result<Vec<Rounds>, String> {
    let mut most = Vec::new();
    for (workload, figure) in [(Workload::A, "5.6: SessionStore"), (Workload::D, "5.7: StatusUpdates")] {
        let clusters = CLUSTERS.iter().map(|one| one.cluster(program)).collect::<Result<Vec<_>, String>>()?;
        clusters.iter().try_for_each(|(_, cluster)| cluster.load(RECORDS))?;
        for clients in CLIENTS {
            let mut rounds = Rounds::default();
            for _ in 0..ROUNDS {
                let run = |(_, cluster): &(_, Cluster)| cluster.run(workload, RECORDS, clients, OPERATIONS);
                rounds.0.push(clusters.iter().map(run).collect::<Result<_, _>>()?);
            }
            rows.push(rounds.row(&CLUSTERS.map(|one| one.name), &format!("{figure}, {clients} clients")));
            if clients == CLIENTS[CLIENTS.len() - 1] {
                most.push(rounds);
            }
        }
    }
    Ok(most)
}

/// The workloads of figures 5.6 and 5.7 with clients of memcached, beside memcached itself.
fn items(program: &Path) -> Result<Vec<Value>, String> {
    let mut rows = Vec::new();
    let options = |name: &'static str| ["--engine", name, "--durability", "power"];
    let (cdds, line) = (options(TEMBO), options(DEFAULT));
    let start = |kind: usize| -> Result<(Vec<Server>, Cluster), String> {
        let server = |number: usize| match kind {
            0 => Server::bristlecone_memcached(program, dir(&format!("items-cdds-{number}")), &cdds),
            1 => Server::bristlecone_memcached(program, dir(&format!("items-line-{number}")), &line),
            _ => Server::memcached(),
        };
        let servers = (0..SERVERS).map(server).collect::<Result<Vec<_>, _>>()?;
        let cluster = Cluster::new(Protocol::Memcached, servers.iter().map(|server| server.port).collect());
        Ok((servers, cluster))
    };
    let clients = CLIENTS[CLIENTS.len() - 1];
    for (workload, name) in [(Workload::A, "SessionStore"), (Workload::D, "StatusUpdates")] {
        let clusters = (0..3).map(start).collect::<Result<Vec<_>, _>>()?;
        clusters.iter().try_for_each(|(_, cluster)| cluster.load(RECORDS))?;
        let mut rounds = Rounds::default();
        for _ in 0..ROUNDS {
            let run = |(_, cluster): &(_, Cluster)| cluster.run(workload, RECORDS, clients, OPERATIONS);
            rounds.0.push(clusters.iter().map(run).collect::<Result<_, _>>()?);
        }
        rows.push(rounds.row(&[TEMBO, DEFAULT, HASH], &format!("{name}, {clients} clients of memcached")));
    }
    Ok(rows)
}

/// The thesis's claims.
fn tembo_claims(inserts: &[Rounds], workloads: &[Rounds]) -> Vec<Value> {
    let redis = CLUSTERS.len() - 1;
    let mut claims = Vec::new();
    for (at, engine) in [TEMBO, DEFAULT].into_iter().enumerate() {
        let gain = |rounds: &Rounds| rounds.ratio(at, redis);
        let gains: Vec<_> = inserts.iter().map(gain).collect();
        let mut judge = |text: &str, least: Option<f64>, most: Option<f64>, decimals: usize, factor: f64| {
            claims.push(claim(format!("{text}, `{engine}`"), (least, most), decimals, factor));
        };
        judge(
            "5.5: 256 bytes: Redis with its hash table is faster (at most 1.00 times Redis)",
            None,
            Some(1.0),
            2,
            gains[0],
        );
        judge(
            "5.5: 1 KiB: almost equivalent to Redis (taken as 0.9 to 1.1 times)",
            Some(0.9),
            Some(1.1),
            1,
            gains[1],
        );
        judge("5.5: 4 KiB: 15 % faster than Redis (at least 1.15 times)", Some(1.15), None, 2, gains[2]);
        judge(
            "5.5: the gain grows with the values (4 KiB over 256 bytes, at least 1.0)",
            Some(1.0),
            None,
            1,
            gains[2] / gains[0],
        );
        let (a, d) = (gain(&workloads[0]), gain(&workloads[1]));
        judge(
            "5.6: SessionStore, 30 clients: 286 % more than the durable server with a log (3.86 times; there Cassandra, here Redis)",
            Some(3.86),
            None,
            2,
            a,
        );
        judge(
            "5.7: StatusUpdates: up to 250 % more (3.50 times; there Cassandra, here Redis)",
            Some(3.5),
            None,
            2,
            d,
        );
        judge(
            "5.7: the gain is slightly lower than for SessionStore (at most 1.00 of it)",
            None,
            Some(1.0),
            2,
            d / a,
        );
    }
    claims
}

/// Figure 15: rows, one for each tree, and claims.
fn trees(program: &Path) -> Result<(Vec<Value>, Vec<Value>), String> {
    let mut servers = Vec::new();
    for name in TREES {
        let durable = ["--engine", name, "--durability", "power"];
        let is_volatile = [VOLATILE, "bwtree"].contains(&name);
        let options = if is_volatile { &durable[..2] } else { &durable[..] };
        servers.push(Server::bristlecone_memcached(program, dir(&format!("tree-{name}")), options)?);
    }
    servers.push(Server::memcached()?);
    let load = |verb, pipeline, seed, requests| Load {
        protocol: Protocol::Memcached,
        verb,
        connections: TREE_CONNECTIONS,
        pipeline,
        value_bytes: TREE_VALUE_BYTES,
        keys: 1 << 50,
        // With the prefix a key has 20 bytes.
        key_digits: 16,
        seed,
        requests,
    };
    for server in &servers {
        load(Verb::Set, 64, 1 << 40, TREE_KEYS).run(server.port)?;
    }
    // With the same seed, the searches look for the keys of the inserts.
    let (mut sets, mut gets) = (Rounds::default(), Rounds::default());
    for round in 0..ROUNDS as u64 {
        let all = |verb| {
            let run = |server: &Server| {
                load(verb, 1, (round + 2) << 40, TREE_BATCH)
                    .run(server.port)
                    .map(|figures| figures.per_second)
            };
            servers.iter().map(run).collect::<Result<Vec<_>, _>>()
        };
        sets.0.push(all(Verb::Set)?);
        gets.0.push(all(Verb::Get)?);
    }
    let hash = TREES.len();
    let rows = TREES.iter().chain([&HASH]).enumerate().map(|(at, name)| {
        let row = json!({
            "tree": name,
            "sets": sets.median(|round| round[at]), "sets_ratio": sets.ratio(at, hash),
            "gets": gets.median(|round| round[at]), "gets_ratio": gets.ratio(at, hash),
        });
        println!("{row}");
        row
    });
    Ok((rows.collect(), tree_claims(&sets, &gets)))
}

/// The number of a tree.
fn tree(name: &str) -> usize {
    TREES.iter().position(|tree| *tree == name).unwrap_or_default()
}

/// The paper's claims about figure 15.
fn tree_claims(sets: &Rounds, gets: &Rounds) -> Vec<Value> {
    let older = |rounds: &Rounds, of: &str| -> Vec<f64> {
        OLDER.iter().map(|name| rounds.ratio(tree(of), tree(name))).collect()
    };
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let paper = [&OLDER[..], &["wbtree-keyptr", "wbtree-bmp"]].concat();
    // The fastest of the paper's persistent trees over the slowest.
    let spread = |rounds: &Rounds| {
        rounds.median(|round| {
            let all: Vec<_> = paper.iter().map(|name| round[tree(name)]).collect();
            most(&all) / least(&all)
        })
    };
    let mut claims = Vec::new();
    for wb in ["wbtree-keyptr", "wbtree"] {
        let factors = older(sets, wb);
        claims.push(claim(
            format!("15: inserts: `{wb}` over the best older persistent tree (at least 1.04 times)"),
            (Some(1.04), None),
            2,
            least(&factors),
        ));
        claims.push(claim(
            format!("15: inserts: `{wb}` over the worst older persistent tree (at most 3.8 times)"),
            (None, Some(3.8)),
            1,
            most(&factors),
        ));
    }
    claims.push(claim(
        "15: inserts: bitmap-only leaves have a non-trivial overhead (`wbtree-keyptr` over `wbtree-bmp`, taken as at least 1.05 times)".into(),
        (Some(1.05), None),
        2,
        sets.ratio(tree("wbtree-keyptr"), tree("wbtree-bmp")),
    ));
    claims.push(claim(
        "15: searches differ less than inserts (fastest over slowest persistent tree of the paper, searches over inserts, at most 1.00)".into(),
        (None, Some(1.0)),
        2,
        spread(gets) / spread(sets),
    ));
    claims
}

/// Measures everything.
///
/// # Errors
/// A message if a server or a load cannot run.
fn measure() -> Result<Value, String> {
    Step::new("cargo build --release -p bristlecone-cli --features paper-engines").run()?;
    let program = target().join("release/bristlecone");
    let mut rows = Vec::new();
    let inserts = inserts(&program, &mut rows)?;
    let workloads = workloads(&program, &mut rows)?;
    let items = items(&program)?;
    let (trees, tree_claims) = trees(&program)?;
    let _ = fs::remove_dir_all(dir(""));
    Ok(json!([
        { "servers": SERVERS, "rounds": ROUNDS, "clusters": rows, "items": items, "claims": tembo_claims(&inserts, &workloads) },
        { "keys": TREE_KEYS, "rounds": ROUNDS, "trees": trees, "claims": tree_claims },
    ]))
}

/// Runs the experiments and writes their record.
///
/// # Errors
/// As [`measure`]; the record cannot be written.
pub fn run(write: impl FnOnce(&str, &str, &str, Value) -> Outcome) -> Outcome {
    let baseline = "redis-server 7 with `appendfsync always` and memcached 1.6 of Debian in the same rounds";
    write("serve-papers", "cargo xtask record serve-papers", baseline, measure()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_if_its_rounded_factor_is_in_the_range() {
        let holds = |least, most, factor| claim("text".into(), (least, most), 2, factor)["holds"] == true;
        assert!(holds(Some(1.04), None, 1.036) && !holds(Some(1.04), None, 1.034));
        assert!(
            holds(None, Some(1.0), 1.004) && !holds(None, Some(1.0), 1.006) && !holds(None, None, f64::NAN)
        );
    }

    #[test]
    fn a_factor_is_the_median_of_factors_of_the_same_round() {
        let rounds = Rounds(vec![vec![1.0, 2.0], vec![30.0, 10.0], vec![8.0, 10.0]]);
        assert_eq!(rounds.ratio(0, 1).to_bits(), 0.8_f64.to_bits());
        let row = rounds.row(&["a", "b"], "load");
        assert_eq!(
            (row["cells"][0]["per_second"].as_f64(), row["cells"][1]["ratio"].as_f64()),
            (Some(8.0), Some(1.0))
        );
    }

    #[test]
    fn the_named_trees_are_measured() {
        assert!(
            OLDER.iter().chain(&["wbtree-keyptr", "wbtree-bmp", "wbtree"]).all(|name| TREES.contains(name))
        );
    }
}
