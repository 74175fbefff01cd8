//! Rows and claims of an experiment as text, in this order: times with their ratios to `btree`, counts, the claims with their verdicts.

use std::fmt::{Display, Formatter, Result};

use super::{Batch, EXPERIMENTS, Report, Row};
use crate::scratch::Instructions;

/// The table of experiments.
#[derive(Debug, serde::Serialize)]
pub struct List {
    experiments: Vec<(&'static str, &'static str)>,
}

impl Default for List {
    fn default() -> Self {
        Self { experiments: EXPERIMENTS.iter().map(|one| (one.name, one.about)).collect() }
    }
}

impl Display for List {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut lines = self.experiments.iter().map(|(name, about)| format!("{name:10}  {about}"));
        write!(f, "{}", lines.by_ref().collect::<Vec<_>>().join("\n"))
    }
}

impl Report {
    fn instructions(&self, which: Instructions) -> String {
        match which {
            Instructions::Paper => "the paper's instructions (clflush, mfence)".to_owned(),
            Instructions::Best => format!("the best instructions ({}, sfence)", self.best_flush),
        }
    }

    /// Writes a table with a line per tree and a column per batch.
    fn table(
        &self,
        f: &mut Formatter<'_>,
        head: &str,
        chosen: impl Fn(&Row) -> bool,
        cell: impl Fn(&Row) -> String,
    ) -> Result {
        let rows: Vec<_> = self.rows.iter().filter(|row| chosen(row)).collect();
        write!(f, "{head:26}")?;
        for batch in Batch::ALL {
            write!(f, "{:>24}", batch.name())?;
        }
        for row in &rows {
            if row.batch == Batch::ALL[0] {
                write!(f, "\n{:26}", row.tree)?;
            }
            write!(f, "{:>24}", cell(row))?;
        }
        writeln!(f, "\n")
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{}: {}", self.experiment, self.about)?;
        writeln!(
            f,
            "{} keys, batches of {}, median of {} rounds, durable at power on {}; in a node keys are compared {}",
            self.keys,
            self.operations,
            self.rounds,
            self.backing.display(),
            if self.vectors { "eight at a time" } else { "one after another" }
        )?;
        if self.groups > 1 {
            writeln!(
                f,
                "in {} groups, for memory: multiples are of btree in the same group and round",
                self.groups
            )?;
        }
        writeln!(f)?;
        for &lines in &self.node_lines {
            writeln!(f, "nodes of {lines} lines")?;
            for which in [Instructions::Paper, Instructions::Best] {
                writeln!(f, "{}", self.instructions(which))?;
                let here = |row: &Row| (row.node_lines, row.instructions) == (lines, which);
                self.table(f, "ns (multiple of btree)", here, |row| {
                    format!("{:.0} ({:.2})", row.ns, row.ratio)
                })?;
            }
            writeln!(f, "an operation, counted on {} keys", self.keys_counted)?;
            let here = |row: &Row| (row.node_lines, row.instructions) == (lines, Instructions::Best);
            self.table(f, "words/flushes/fences/reads", here, |row| {
                let costs = &row.costs;
                format!("{:.1}/{:.1}/{:.1}/{:.1}", costs.words, costs.flushes, costs.fences, costs.lines_read)
            })?;
        }
        for which in [Instructions::Paper, Instructions::Best] {
            writeln!(f, "claims, with {}", self.instructions(which))?;
            for claim in self.claims.iter().filter(|claim| claim.instructions == which) {
                writeln!(f, "{claim}")?;
            }
        }
        Ok(())
    }
}
