//! The tables of `bench bwtree`, and the claims that they are compared with.

use std::fmt::{Display, Formatter, Result};

use super::{BERKELEY, Loads, OURS, Report, Row, SKIP_LIST, STD, Scaling};
use crate::verdict::Verdict;

/// Factors over the rates of Berkeley DB and of the skip list that the paper measured, on four cores with eight hardware threads.
const PAPER: [(&str, &str, &str, f64); 5] = [
    ("Xbox", "all", BERKELEY, 18.7),
    ("synthetic", "all", BERKELEY, 5.8),
    ("deduplication", "all", BERKELEY, 8.6),
    ("synthetic", "all", SKIP_LIST, 3.7),
    ("uniform", "lookups", SKIP_LIST, 4.4),
];

/// Targets of our tree: name of the competitor, part of the workload (`None` for all), minimum factor.
const WANTED: [(&str, Option<&str>, f64); 5] = [
    (BERKELEY, None, 1.0),
    (SKIP_LIST, None, 1.0),
    (SKIP_LIST, Some("lookups"), 3.0),
    ("concurrent-map", Some("lookups"), 1.0),
    ("concurrent-map", Some("updates"), 1.0),
];

/// Targets: two threads relative to one, and lookups of one thread relative to those of `BTreeMap`.
const SCALES: f64 = 1.8;
const BESIDE_STD: f64 = 0.85;

/// `own`: the rows of our tree alone, and the factor of their workloads.
pub(super) fn claims(rows: &[Row], (larger, own): (u32, &[Row]), loads: &[Loads]) -> Vec<Verdict> {
    let most = rows.iter().map(|row| row.cell.threads).max().unwrap_or(1);
    let mut claims = Vec::new();
    let mut judge = |claim: String, ours: f64, least: f64| {
        claims.push(Verdict { claim, ours: format!("{ours:.2}"), holds: ours >= least });
    };
    let over = |row: &Row, other: &str| Some(row.rate.get(OURS)? / row.rate.get(other)?);
    for (workload, part, other, times) in PAPER {
        let mut at = rows.iter().filter(|row| row.cell.workload == workload && row.cell.part == part);
        if let Some(ours) = at.find(|row| row.cell.threads == most).and_then(|row| over(row, other)) {
            judge(format!("paper, {workload}, {part}: {times} times {other}"), ours, times);
        }
    }
    for (other, part, times) in WANTED {
        for row in rows.iter().filter(|row| part.is_none_or(|part| part == row.cell.part)) {
            if let Some(ours) = over(row, other) {
                judge(format!("{}: at least {times} times {other}", row.cell), ours, times);
            }
        }
    }
    for (rows, size) in [(rows, String::new()), (own, format!(", {larger} times as large"))] {
        for row in rows.iter().filter(|row| row.cell.threads == 2) {
            if let Some(times) = speedup(rows, row) {
                judge(format!("{}{size}: at least {SCALES} times one thread", row.cell), times, SCALES);
            }
        }
    }
    for row in rows.iter().filter(|row| row.cell.threads == 1 && row.cell.part == "lookups") {
        if let Some(ours) = over(row, STD) {
            judge(format!("{}: at least {BESIDE_STD} times BTreeMap", row.cell), ours, BESIDE_STD);
        }
    }
    let near = |name| loads.iter().find(|of| of.map == name).map(Loads::near);
    if let (Some(ours), Some(skip_list)) = (near(OURS), near(SKIP_LIST)) {
        claims.push(Verdict {
            claim: "paper: more loads from the first two levels of cache than the skip list (90 to 75 %)"
                .into(),
            ours: format!("{:.1} to {:.1} %", 100.0 * ours, 100.0 * skip_list),
            holds: ours > skip_list,
        });
    }
    claims
}

/// The rate of our tree in a row, relative to that of one thread.
fn speedup(rows: &[Row], row: &Row) -> Option<f64> {
    let alone = rows.iter().find(|one| {
        let (one, several) = (&one.cell, &row.cell);
        (one.workload, one.part, one.threads) == (several.workload, several.part, 1)
    });
    Some(row.rate.get(OURS)? / alone?.rate.get(OURS)?)
}

impl Display for super::Cell {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { workload, part, threads } = self;
        let threads = if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        match *part {
            "all" => write!(f, "{workload}, {threads}"),
            part => write!(f, "{workload} {part}, {threads}"),
        }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(
            f,
            "{} of the paper's operations, {} uniform keys, median of {} rounds; million operations a second:\n",
            self.scale, self.keys, self.rounds
        )?;
        write!(f, "{:32}", "")?;
        self.maps.iter().try_for_each(|(name, _)| write!(f, "{name:>16}"))?;
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{:32}", row.cell.to_string())?;
            for (name, _) in &self.maps {
                match row.rate.get(name) {
                    Some(rate) => write!(f, "{:>16.3}", rate / 1e6)?,
                    None => write!(f, "{:>16}", "-")?,
                }
            }
            writeln!(f)?;
        }
        for Scaling { threads, times } in &self.machine {
            writeln!(
                f,
                "\n{threads} threads that share nothing do {times:.2} times the arithmetic of one on this machine."
            )?;
        }
        if !self.own.is_empty() {
            let name = format!("{OURS}, {} times as large", self.larger);
            writeln!(f, "\n{name:32}{:>16}{:>16}", "", "one thread: 1")?;
        }
        for row in &self.own {
            let rate = row.rate.get(OURS).copied().unwrap_or_default() / 1e6;
            let times = speedup(&self.own, row).map_or("-".to_owned(), |times| format!("{times:.2}"));
            writeln!(f, "{:32}{rate:>16.3}{times:>16}", row.cell.to_string())?;
        }
        writeln!(f)?;
        self.maps.iter().try_for_each(|(name, what)| writeln!(f, "{name:16}{what}"))?;
        if !self.with_peers {
            writeln!(
                f,
                "\nTo measure the others in the same run, build with `--features competitors` (Debian: librocksdb-dev libdb5.3-dev)."
            )?;
        }
        writeln!(f, "\n{:32}{:>36}{:>14}{:>12}", "", "failed, %", "bytes of", "of key")?;
        writeln!(
            f,
            "{:32}{:>10}{:>16}{:>10}{:>14}{:>12}",
            "", "splits", "consolidations", "updates", "a record", "and value"
        )?;
        for inside in &self.inside {
            let [splits, consolidations, updates] = inside.failed_percent;
            let of = format!("{}, {} threads", inside.workload, inside.threads);
            writeln!(
                f,
                "{of:32}{splits:>10.4}{consolidations:>16.4}{updates:>10.4}{:>14.1}{:>12}",
                inside.bytes_per_record, inside.pair_bytes
            )?;
        }
        if !self.chains.is_empty() {
            writeln!(f, "\n{:32}{:>16}{:>20}", "", "chain length", "million operations")?;
        }
        for chain in &self.chains {
            writeln!(f, "{:32}{:>16}{:>20.3}", chain.workload, chain.length, chain.rate / 1e6)?;
        }
        if !self.loads.is_empty() {
            writeln!(f, "\nLoads of a lookup, simulated:")?;
            writeln!(
                f,
                "{:32}{:>10}{:>10}{:>10}{:>10}{:>16}",
                "", "L1", "L2", "L3", "memory", "L1 and L2, %"
            )?;
        }
        for of in &self.loads {
            write!(f, "{:32}", format!("{} of {} keys", of.map, of.lookups))?;
            of.each.iter().try_for_each(|loads| write!(f, "{loads:>10.2}"))?;
            writeln!(f, "{:>16.1}", 100.0 * of.near())?;
        }
        writeln!(f)?;
        self.claims.iter().try_for_each(|claim| writeln!(f, "{claim}"))
    }
}
