//! The report of `bristlecone-lab costs` as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::measure::Operation;
use super::report::{Metric, Report, Row, Spread};

/// Categories that are not compared with formulas.
const APART: [&str; 3] = ["home", "allocation", "checkpoint"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "N_w words, N_clf flushes, N_mf fences of an operation: measured mean (least..most), the paper's value at the same \
             n, m, l, and the difference;\nwords have 8 bytes, VLAB's bytes are divided by 8"
        )?;
        writeln!(f, "leaves {:.0} % full, for splits full; seed {}", self.fill * 100.0, self.seed)?;
        let mut engine = ("", 0, 0);
        for row in &self.rows {
            if (row.engine, row.node_lines, row.entry_bytes) != engine {
                engine = (row.engine, row.node_lines, row.entry_bytes);
                print_head(f, row)?;
            }
            writeln!(f, "{row}")?;
        }
        print_notes(f, &self.rows)?;
        for problem in &self.others.problems {
            writeln!(f, "NOT GOOD, in no row ({} operations): {problem}", self.others.failures)?;
        }
        let verdict = if self.is_good() { "good" } else { "NOT GOOD" };
        write!(f, "\n{verdict}: {} operations, {} of them not at their price", self.operations, self.failures)
    }
}

fn print_head(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    writeln!(
        f,
        "\n{}, {} lines, {} entries of {} bytes: {}",
        row.engine, row.node_lines, row.entries_max, row.entry_bytes, row.made_of
    )?;
    writeln!(f, "  {:<16}{:>7}{:>8}{:>35}{:>31}{:>31}", "", "times", "m", "words", "flushes", "fences")
}

/// Prints the notes on differences from the papers' rules of counting, each once.
fn print_notes(f: &mut fmt::Formatter<'_>, rows: &[Row]) -> fmt::Result {
    let mut notes: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let kind = if row.operation == Operation::InsertWithSplits { "splits of " } else { "" };
        notes.entry(row.note).or_default().insert(format!("{kind}{}", row.engine));
    }
    for (note, who) in notes {
        let who: Vec<String> = who.into_iter().collect();
        write!(f, "\n{}: {note}", who.join(", "))?;
    }
    writeln!(f)
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.operation {
            Operation::InsertWithSplits => format!("insert, {} split", self.split_levels),
            Operation::InsertWithCombine => "insert, combine".to_owned(),
            operation => operation.name().to_owned(),
        };
        let [words, flushes, fences] = [&self.words, &self.flushes, &self.fences].map(Metric::to_string);
        write!(
            f,
            "  {name:<16}{:>7}{:>8.2}{words:>35}{flushes:>31}{fences:>31}",
            self.operations, self.entries
        )?;
        if self.node_lines > 16 {
            write!(f, "\n    {:<29}{:>35.2}", "bytes changed", self.bytes_changed.mean)?;
            if let Some(most) = self.bytes_changed_most {
                write!(f, " of {most} at most")?;
            }
        }
        let apart = |name: &&&str| **name != "home" || !self.awaits_homes;
        for name in APART.iter().filter(apart) {
            if let Some(part) = self.parts.get(name) {
                let [words, flushes, fences] =
                    [part.words, part.flushes, part.fences].map(|spread| format!("{:.2}", spread.mean));
                write!(f, "\n    {name:<29}{words:>35}{flushes:>31}{fences:>31}")?;
            }
        }
        for problem in &self.problems {
            write!(f, "\n    NOT GOOD ({} operations): {problem}", self.failures)?;
        }
        Ok(())
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { mean, min, max } = self.measured;
        write!(f, "{mean:.2} ({min}..{max})")?;
        match (self.paper, self.difference) {
            (Some(paper), Some(difference)) => write!(f, " {paper:.2} {difference:+.2}"),
            _ => Ok(()),
        }
    }
}
