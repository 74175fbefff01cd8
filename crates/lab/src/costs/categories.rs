//! `bristlecone-lab costs --by-category`: bytes that VLAB's indexes A to G write for entries, for changes of structure and for consistency
//! [VLAB §3.3, figure 6a].
//!
//! The workload has the paper's 30 million inserts and 20 million deletes, both multiplied by a scale factor: random keys are inserted into
//! an empty tree, then two thirds of them are deleted. Nodes have 4 KB, entries 16 bytes. Each word that an operation stores into nodes or
//! into the log belongs to one category:
//!
//! * *consistency*: log records and log truncations. If an operation copies a leaf and switches pointers to the copy, the words that a
//!   change in place would not have written belong here, too;
//! * *structure*: all other words of nodes, if the operation changed the number of nodes (a split or a merge);
//! * *entry*: all other words of nodes, if the operation did not change the number of nodes.
//!
//! Words of the allocator and of the superblock are in no category: the paper does not count them.

use std::fmt;

use pmem::WORD;
use pmem::observed::{Category, Counts};

use super::engines::Engine;
use super::subject::{Plan, Subject};
use super::survey::Way;
use crate::Error;

/// Numbers of inserts and deletes in the paper.
const INSERTS: f64 = 30e6;
const DELETES: f64 = 20e6;
/// The paper's names and the names of our engines.
const INDEXES: [(char, &str); 7] = [
    ('A', "trad-4k-shadow"),
    ('B', "trad-4k"),
    ('C', "cnt-4k"),
    ('D', "bmp-4k"),
    ('E', "wb-4k"),
    ('F', "bmp-all-4k"),
    ('G', "vlab"),
];

/// Stored bytes by category, eight per stored word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Bytes {
    /// Bytes of entries and of the headers of their nodes.
    pub entry: u64,
    /// Bytes of nodes in splits and merges.
    pub structure: u64,
    /// Bytes that only keep the rest consistent.
    pub consistency: u64,
}

impl Bytes {
    /// Sum of all categories.
    pub fn total(&self) -> u64 {
        self.entry + self.structure + self.consistency
    }
}

/// Results of one index.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The paper's letter.
    pub index: char,
    /// Name of our engine.
    pub tree: &'static str,
    /// Operations that changed the number of nodes.
    pub structure_changes: u64,
    /// Words stored by log truncations. They are included in consistency.
    pub settlings: u64,
    /// Stored bytes by category.
    pub bytes: Bytes,
    /// Bytes whose value changed, of all stored bytes, including allocator and superblock.
    pub bytes_changed: u64,
    /// Stored bytes of allocator and superblock, which are in no category.
    pub bytes_apart: u64,
    /// Sum of the categories divided by the sum of index F.
    pub times_f: f64,
}

/// Results of all indexes.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Number of inserts.
    pub inserts: u64,
    /// Number of deletes.
    pub deletes: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// One row per index.
    pub rows: Vec<Row>,
}

/// Runs the workload on every index, scaled by `scale`.
///
/// # Errors
/// Errors of a tree; `Wrong` for a wrong answer.
pub fn run(scale: f64, seed: u64, progress: &dyn Fn(&str)) -> Result<Report, Error> {
    let [inserts, deletes] = [INSERTS, DELETES].map(|number| ((number * scale) as u64).max(1));
    let mut rows = Vec::new();
    for (index, tree) in INDEXES {
        progress(&format!("index {index}, {tree}"));
        rows.push(row(index, tree, inserts, deletes, seed)?);
    }
    let f = rows.iter().find(|row| row.index == 'F').map_or(1, |row| row.bytes.total()) as f64;
    rows.iter_mut().for_each(|row| row.times_f = row.bytes.total() as f64 / f);
    Ok(Report { inserts, deletes, seed, rows })
}

fn row(index: char, tree: &'static str, inserts: u64, deletes: u64, seed: u64) -> Result<Row, Error> {
    let engines = Engine::named(&[tree.to_owned()])?;
    let engine = &engines[0];
    let capacity = inserts * 64 + (64 << 20);
    let mut subject = engine.make(Plan { node_lines: 64, entry_bytes: 16, capacity })?;
    subject.take();
    let mut random = fastrand::Rng::with_seed(seed);
    let wrong = |key: u64| Error::Wrong { who: tree.to_owned(), what: format!("key {key} was misjudged") };
    let mut present = Vec::new();
    let mut sums = Sums::default();
    while (present.len() as u64) < inserts {
        let key = random.u64(..);
        let way = subject.way(key)?;
        if way.hit {
            continue;
        }
        if subject.put(key, random.u64(..))? {
            return Err(wrong(key));
        }
        present.push(key);
        sums.add(engine, &way, true, subject.as_mut());
    }
    random.shuffle(&mut present);
    for key in present.into_iter().take(deletes as usize) {
        let way = subject.way(key)?;
        if !subject.delete(key)? {
            return Err(wrong(key));
        }
        sums.add(engine, &way, false, subject.as_mut());
    }
    let Sums { bytes, structure_changes, settlings, bytes_changed, bytes_apart } = sums;
    Ok(Row { index, tree, structure_changes, settlings, bytes, bytes_changed, bytes_apart, times_f: 0.0 })
}

#[derive(Default)]
struct Sums {
    bytes: Bytes,
    structure_changes: u64,
    settlings: u64,
    bytes_changed: u64,
    bytes_apart: u64,
}

impl Sums {
    fn add(&mut self, engine: &Engine, way: &Way, insert: bool, subject: &mut dyn Subject) {
        let spent = subject.take();
        let empties = way.leaf().count() == 1 && way.steps.len() > 1;
        let structure = if insert { way.full_levels() > 0 } else { empties || spent.commits() > 1 };
        let surplus = match insert {
            true => engine.parts.surplus_of_insert(way),
            false if empties => 0,
            false => engine.parts.surplus_of_delete(way),
        };
        self.count(&spent.counts, surplus, structure);
    }

    fn count(&mut self, counts: &Counts, surplus: u64, structure: bool) {
        let words = |category| counts.part(category).words;
        let nodes = words(Category::Node);
        let surplus = surplus.min(nodes);
        let kind = if structure { &mut self.bytes.structure } else { &mut self.bytes.entry };
        *kind += (nodes - surplus) * WORD;
        self.bytes.consistency += (surplus + words(Category::Log) + words(Category::Checkpoint)) * WORD;
        self.settlings += words(Category::Checkpoint);
        self.bytes_apart += (words(Category::Allocation) + words(Category::Superblock)) * WORD;
        self.structure_changes += u64::from(structure);
        self.bytes_changed += counts.bytes;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} inserts of random keys, then {} deletes, nodes of 4 KB, entries of 16 bytes; seed {}; bytes written for each \
             operation\n",
            self.inserts, self.deletes, self.seed
        )?;
        writeln!(
            f,
            "   {:<16}{:>10}{:>11}{:>13}{:>10}{:>10}{:>10}{:>10}{:>16}",
            "index",
            "entry",
            "structure",
            "consistency",
            "total",
            "times F",
            "changed",
            "apart",
            "splits, joins"
        )?;
        let operations = (self.inserts + self.deletes) as f64;
        for row in &self.rows {
            let each = |bytes: u64| bytes as f64 / operations;
            writeln!(
                f,
                "{}  {:<16}{:>10.1}{:>11.1}{:>13.1}{:>10.1}{:>10.2}{:>10.1}{:>10.1}{:>16}",
                row.index,
                row.tree,
                each(row.bytes.entry),
                each(row.bytes.structure),
                each(row.bytes.consistency),
                each(row.bytes.total()),
                row.times_f,
                each(row.bytes_changed),
                each(row.bytes_apart),
                row.structure_changes
            )?;
        }
        let total = |index: usize| self.rows[index].bytes.total() as f64;
        let share = |index: usize| 100.0 * self.rows[index].bytes.structure as f64 / total(index);
        write!(
            f,
            "\nsorted leaves (A, B) write {:.1} times what unsorted ones (C, D) write, in the paper's figure 2 times; {:.1} times \
             what bitmaps throughout (F) write, there 7 times, and {:.1} times what VLAB (G) writes, there 15 times;\nstructure is {:.0} % of E \
             and {:.0} % of F, there about half",
            (total(0) + total(1)) / (total(2) + total(3)),
            (total(0) + total(1)) / (2.0 * total(5)),
            (total(0) + total(1)) / (2.0 * total(6)),
            share(4),
            share(5)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logging_and_copying_are_consistency_and_splits_are_structure() {
        let report = run(0.00003, 1, &|_| {}).unwrap();
        assert_eq!((report.inserts, report.deletes), (900, 600));
        let of = |index: char| {
            report.rows.iter().find(|row| row.index == index).map(|row| row.bytes).unwrap_or_default()
        };
        let [a, b, c, d, e, f, g] = ['A', 'B', 'C', 'D', 'E', 'F', 'G'].map(of);
        assert_eq!(
            b.consistency,
            2 * (b.entry + b.structure) + 8 * settlings(&report, 'B'),
            "two words of log for each"
        );
        assert!(
            a.entry.abs_diff(b.entry) * 10 < b.entry,
            "the same entries in sorted nodes, copied or logged: {a:?} {b:?}"
        );
        assert!(a.consistency > 0 && a.structure > 0, "{a:?}");
        assert!(c.total() < b.total() && d.total() < c.total(), "{b:?} {c:?} {d:?}");
        assert!(f.consistency * 5 < f.total() && e.consistency * 5 < e.total(), "{e:?} {f:?}");
        assert!(g.consistency == 0 && g.structure > 0 && g.total() < f.total(), "{f:?} {g:?}");
        assert!(report.rows.iter().all(|row| row.structure_changes > 0), "{report:?}");
        assert_eq!(report.rows[5].times_f, 1.0);
    }

    /// Words that the log truncations of an index stored.
    fn settlings(report: &Report, index: char) -> u64 {
        report.rows.iter().find(|row| row.index == index).map_or(0, |row| row.settlings)
    }

    #[test]
    fn the_report_names_every_index_and_what_the_paper_says() {
        let text = run(0.000_01, 1, &|_| {}).unwrap().to_string();
        for (index, tree) in INDEXES {
            assert!(text.contains(&format!("\n{index}  {tree}")), "{text}");
        }
        assert!(text.contains("in the paper's figure 2 times"), "{text}");
    }
}
