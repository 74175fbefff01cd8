//! The measurements of the VLAB paper as text: a line per index, then the verdicts.

use std::fmt::{Display, Formatter, Result};

use super::{Report, Row};

impl Report {
    fn of(&self, f: &mut Formatter<'_>, rows: &[&Row]) -> Result {
        for row in rows {
            write!(f, "  {:10}", row.tree)?;
            if let (Some(ns), Some(over)) = (row.ns, row.over) {
                write!(f, "{ns:>10.0} ns ({over:.2} of vlab)")?;
            }
            if let Some(bare) = row.bare_ns {
                write!(f, ", {bare:.0} ns without flushes and fences")?;
            }
            if let Some(of) = row.costs {
                write!(f, "{:>10.2} words {:>8.2} flushes {:>6.2} fences", of.words, of.flushes, of.fences)?;
            }
            if let Some(of) = row.anatomy {
                write!(f, "{:>10} leaves {:>12} bytes beside them", of.leaves, of.extra_bytes)?;
                if let Some(comparisons) = of.comparisons {
                    write!(f, ", {comparisons:.2} comparisons")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{}: {}", self.experiment, self.about)?;
        writeln!(
            f,
            "up to {} keys, {} operations, {} rounds, nodes of 4 KiB, durable at power on {}{}\n",
            self.keys,
            self.operations,
            self.rounds,
            self.backing.display(),
            match self.keys_counted {
                0 => String::new(),
                keys => format!("; counted on {keys} keys"),
            }
        )?;
        let mut heads: Vec<(&str, u64)> = Vec::new();
        for row in &self.rows {
            let head = (row.workload, row.entry_bytes);
            if !heads.contains(&head) {
                heads.push(head);
            }
        }
        for (workload, entry_bytes) in heads {
            writeln!(f, "{workload}, entries of {entry_bytes} bytes: an operation")?;
            let here =
                self.rows.iter().filter(|row| (row.workload, row.entry_bytes) == (workload, entry_bytes));
            self.of(f, &here.collect::<Vec<_>>())?;
        }
        writeln!(f)?;
        self.claims.iter().try_for_each(|claim| writeln!(f, "{claim}"))
    }
}
