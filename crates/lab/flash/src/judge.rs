//! The targets of Bristlecone's engine for files, judged by the figures of one run.

use competitors::{Promise, ours};

use crate::protocol::{Cell, Verb};
use crate::report::{Figure, Part, Row};

/// A committed write is as fast as the best if the best is at most this many times as fast.
const COMMITTED: f64 = 1.05;
/// The same for every cell whose data is larger than the memory.
const BEYOND_MEMORY: f64 = 1.2;
/// Maximum time of an open after a kill in seconds.
const REOPEN_SECONDS: f64 = 1.0;
/// Counts of syncs per commit are compared with this tolerance: writers share syncs by chance.
const SYNCS: f64 = 0.01;
/// The store with which bytes written are compared.
const WRITES_OF: &str = "rocksdb";

/// A judged target.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Target {
    /// The target.
    pub target: &'static str,
    /// True if it is met. `None` if this run has no figures for it.
    pub is_met: Option<bool>,
    /// The cells that miss it, and its figures.
    pub found: String,
}

/// Bristlecone's rate divided by the best rate of the other stores. 0 if Bristlecone has no result, `None` if no other store has one.
pub fn best_other(rows: &[Row], column: usize) -> Option<f64> {
    let figure = |row: &Row| row.cells[column].as_ref().map(|figure| figure.per_second);
    let others = rows.iter().filter(|row| row.name != ours::NAME).filter_map(figure);
    let best = others.max_by(f64::total_cmp)?;
    let own = rows.iter().find(|row| row.name == ours::NAME).and_then(figure);
    Some(own.unwrap_or(0.0) / best)
}

/// A cell of Bristlecone beside the other stores.
struct Standing<'a> {
    part: &'a Part,
    cell: Cell,
    column: usize,
    ratio: f64,
}

impl Standing<'_> {
    fn label(&self) -> String {
        format!(
            "{} at {} times the memory, {} ({:.2})",
            self.cell, self.part.size, self.part.durability, self.ratio
        )
    }

    /// True if every other store is faster. With one other store, the target of the ratio decides alone.
    fn is_last(&self) -> bool {
        let rate = |row: &Row| row.cells[self.column].as_ref().map_or(0.0, |figure| figure.per_second);
        let own = self.part.rows.iter().find(|row| row.name == ours::NAME).map_or(0.0, rate);
        let others: Vec<_> = self.part.rows.iter().filter(|row| row.name != ours::NAME).map(rate).collect();
        others.len() > 1 && others.iter().all(|other| *other > own)
    }

    /// True if Bristlecone has more syncs per commit than the fastest other store.
    fn has_more_syncs(&self) -> bool {
        let figure = |row: &'_ Row| row.cells[self.column].clone();
        let others = self.part.rows.iter().filter(|row| row.name != ours::NAME).filter_map(figure);
        let best = others.max_by(|a: &Figure, b| a.per_second.total_cmp(&b.per_second));
        let own = self.part.rows.iter().find(|row| row.name == ours::NAME).and_then(figure);
        let syncs = |figure: Option<Figure>| figure.and_then(|figure| figure.syncs_per_commit);
        syncs(own).zip(syncs(best)).is_some_and(|(own, best)| own > best + SYNCS)
    }
}

fn standings(parts: &[Part]) -> Vec<Standing<'_>> {
    let of = |part: &'_ Part| {
        let ratios: Vec<_> = part.ratios.iter().copied().enumerate().collect();
        ratios.into_iter().filter_map(|(column, ratio)| Some((column, ratio?))).collect::<Vec<_>>()
    };
    parts
        .iter()
        .flat_map(|part| {
            of(part).into_iter().map(move |(column, ratio)| Standing {
                part,
                cell: part.cells[column],
                column,
                ratio,
            })
        })
        .collect()
}

/// Judges a target of cells: the cells that miss it are listed.
fn by_cell(target: &'static str, cells: &[&Standing<'_>], misses: impl Fn(&Standing<'_>) -> bool) -> Target {
    let missed: Vec<_> = cells.iter().filter(|cell| misses(cell)).map(|cell| cell.label()).collect();
    let found = match missed.is_empty() {
        true => format!("{} cells", cells.len()),
        false => format!("{} of {} cells miss it: {}", missed.len(), cells.len(), missed.join("; ")),
    };
    Target { target, is_met: (!cells.is_empty()).then_some(missed.is_empty()), found }
}

/// Judges all targets.
pub fn targets(parts: &[Part]) -> Vec<Target> {
    let all = standings(parts);
    let select =
        |wanted: &dyn Fn(&Standing<'_>) -> bool| all.iter().filter(|cell| wanted(cell)).collect::<Vec<_>>();
    let is_small = |cell: &Standing<'_>| cell.part.size <= 1.0;
    let in_memory = select(&|cell| {
        is_small(cell) && cell.part.durability == Promise::Process && cell.cell.verb != Verb::Load
    });
    let committed =
        select(&|cell| is_small(cell) && cell.part.durability == Promise::Power && cell.cell.updates());
    let beyond = select(&|cell| !is_small(cell));
    let first = beyond.iter().filter(|cell| cell.ratio >= 1.0).count();
    vec![
        by_cell("data in memory: reads and updates are first", &in_memory, |cell| cell.ratio < 1.0),
        by_cell(
            "committed writes: at least 1/1.05 of the best, with no more syncs than the best",
            &committed,
            |cell| cell.ratio * COMMITTED < 1.0 || cell.has_more_syncs(),
        ),
        by_cell("data beyond memory: at least 1/1.2 of the best", &beyond, |cell| {
            cell.ratio * BEYOND_MEMORY < 1.0
        }),
        Target {
            target: "data beyond memory: first in at least half of the cells",
            is_met: (!beyond.is_empty()).then_some(2 * first >= beyond.len()),
            found: format!("first in {first} of {}", beyond.len()),
        },
        by_cell("data beyond memory: never last", &beyond, |cell| cell.is_last()),
        reopen(parts),
        written(parts),
    ]
}

fn reopen(parts: &[Part]) -> Target {
    let own = parts.iter().filter_map(|part| part.row(ours::NAME));
    let seconds: Vec<_> = own.map(|row| row.reopen_seconds.unwrap_or(f64::INFINITY)).collect();
    let slowest = seconds.iter().copied().max_by(f64::total_cmp);
    Target {
        target: "open after a kill in less than 1 s",
        is_met: slowest.map(|slowest| slowest < REOPEN_SECONDS),
        found: slowest.map_or_else(String::new, |slowest| format!("at most {slowest:.3} s")),
    }
}

fn written(parts: &[Part]) -> Target {
    let of = |part: &Part, name| part.row(name)?.write_amplification;
    let pairs: Vec<_> =
        parts.iter().filter_map(|part| Some((part, of(part, ours::NAME)?, of(part, WRITES_OF)?))).collect();
    let texts = pairs.iter().map(|(part, own, other)| {
        format!("{} times the memory, {}: {own:.2} (RocksDB {other:.2})", part.size, part.durability)
    });
    Target {
        target: "updates: fewer bytes written per byte put than RocksDB",
        is_met: (!pairs.is_empty()).then(|| pairs.iter().all(|(_, own, other)| own < other)),
        found: texts.collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(per_second: f64, syncs_per_commit: Option<f64>) -> Option<Figure> {
        let p999_us = 1.0;
        let written_per_byte = None;
        Some(Figure {
            operations: 1,
            per_second,
            slowest: 0.0,
            fastest: 0.0,
            p999_us,
            written_per_byte,
            syncs_per_commit,
        })
    }

    fn row(name: &'static str, cells: Vec<Option<Figure>>, amplification: f64, seconds: f64) -> Row {
        Row {
            name,
            setting: "",
            cells,
            write_amplification: Some(amplification),
            space_amplification: None,
            reopen_seconds: Some(seconds),
            peak_bytes: None,
            anonymous_bytes: None,
            busy_cells: 0,
            failure: None,
            uncounted: None,
        }
    }

    fn part(size: f64, durability: Promise, cells: Vec<Cell>, rows: Vec<Row>) -> Part {
        Part {
            size,
            keys: 1,
            live_bytes: 1,
            durability,
            columns: cells.iter().map(Cell::to_string).collect(),
            ratios: (0..cells.len()).map(|column| best_other(&rows, column)).collect(),
            cells,
            rows,
        }
    }

    fn cells(verbs: &[Verb]) -> Vec<Cell> {
        verbs.iter().map(|verb| Cell { verb: *verb, threads: 1 }).collect()
    }

    fn verdicts(parts: &[Part]) -> Vec<Option<bool>> {
        targets(parts).into_iter().map(|target| target.is_met).collect()
    }

    #[test]
    fn the_best_in_every_cell_reaches_every_target() {
        let rows = |best: f64, syncs| {
            vec![
                row(ours::NAME, vec![figure(best, syncs), figure(best, syncs)], 2.0, 0.5),
                row(WRITES_OF, vec![figure(90.0, syncs), figure(80.0, syncs)], 3.0, 9.0),
                row("redb", vec![figure(10.0, syncs), None], 1.0, 9.0),
            ]
        };
        let columns = || cells(&[Verb::GetUniform, Verb::Update]);
        let parts = [
            part(0.5, Promise::Process, columns(), rows(100.0, None)),
            part(0.5, Promise::Power, columns(), rows(100.0, Some(1.0))),
            part(4.0, Promise::Process, columns(), rows(100.0, None)),
        ];
        assert_eq!(parts[0].ratios, [Some(100.0 / 90.0), Some(1.25)]);
        assert_eq!(verdicts(&parts), [Some(true); 7]);
    }

    #[test]
    fn each_target_is_missed_by_its_own_figures() {
        let with = |own: f64, own_syncs: f64, amplification: f64, seconds: f64| {
            let one = |rate, syncs| vec![figure(rate, Some(syncs))];
            vec![
                row(ours::NAME, one(own, own_syncs), amplification, seconds),
                row(WRITES_OF, one(100.0, 0.5), 3.0, 0.1),
                row("lmdb", one(50.0, 2.0), 9.0, 0.1),
            ]
        };
        let at = |size, durability, rows| verdicts(&[part(size, durability, cells(&[Verb::Update]), rows)]);
        let none = None;
        // In memory, second.
        let found = at(0.5, Promise::Process, with(99.0, 0.5, 2.0, 0.5));
        assert_eq!(found, [Some(false), none, none, none, none, Some(true), Some(true)]);
        // Committed: within 1.05; slower; with more syncs.
        assert_eq!(at(0.5, Promise::Power, with(96.0, 0.5, 2.0, 0.5))[1], Some(true));
        assert_eq!(at(0.5, Promise::Power, with(95.0, 0.5, 2.0, 0.5))[1], Some(false));
        assert_eq!(at(0.5, Promise::Power, with(200.0, 0.6, 2.0, 0.5))[1], Some(false));
        // Beyond memory: within 1.2 but not first; slower; last.
        assert_eq!(
            at(4.0, Promise::Power, with(84.0, 0.5, 2.0, 0.5))[2..5],
            [Some(true), Some(false), Some(true)]
        );
        assert_eq!(
            at(4.0, Promise::Power, with(83.0, 0.5, 2.0, 0.5))[2..5],
            [Some(false), Some(false), Some(true)]
        );
        assert_eq!(
            at(4.0, Promise::Power, with(40.0, 0.5, 2.0, 0.5))[2..5],
            [Some(false), Some(false), Some(false)]
        );
        // A slow open, and more bytes than RocksDB.
        assert_eq!(at(4.0, Promise::Power, with(200.0, 0.5, 3.0, 1.0))[5..], [Some(false), Some(false)]);
    }

    #[test]
    fn without_other_stores_only_the_open_is_judged() {
        let own = row(ours::NAME, vec![figure(1.0, None)], 2.0, 0.5);
        let parts = [part(0.5, Promise::Process, cells(&[Verb::Update]), vec![own])];
        assert_eq!(verdicts(&parts), [None, None, None, None, None, Some(true), None]);
        // A store without a result is slower than all others.
        let rows =
            vec![row(ours::NAME, vec![None], 1.0, 0.1), row("redb", vec![figure(5.0, None)], 1.0, 0.1)];
        assert_eq!(best_other(&rows, 0), Some(0.0));
    }
}
