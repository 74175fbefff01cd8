//! Compares several trees, and judges the claims of the CDDS thesis about pairs of trees (figures 6.1 to 6.3 and 6.5).

use std::fmt::{Display, Formatter};

use super::{Heat, Part};
use crate::verdict::Verdict;

/// Results of a tree.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Name of the engine.
    pub engine: &'static str,
    /// Cache lines of a node.
    pub node_lines: u64,
    /// Simulated cycles at the end.
    pub cycles: u64,
    /// Number of nodes at the end.
    pub nodes: u64,
    /// Words stored into these nodes.
    pub node_stores: u64,
    /// Words stored into the node with the most stores.
    pub node_most: u64,
    /// Words stored into the log.
    pub log_stores: u64,
    /// Words stored anywhere.
    pub stores: u64,
    /// Lines written by the device.
    pub writes: u64,
}

impl Row {
    fn of(heat: &Heat) -> Self {
        Self {
            engine: heat.engine,
            node_lines: heat.node_lines,
            cycles: heat.cycles,
            nodes: heat.nodes.len() as u64,
            node_stores: heat.nodes.iter().map(|node| node.stores).sum(),
            node_most: heat.nodes.iter().map(|node| node.stores).max().unwrap_or(0),
            log_stores: heat.parts.get(&Part::Log).map_or(0, |tally| tally.stores),
            stores: heat.parts.values().map(|tally| tally.stores).sum(),
            writes: heat.parts.values().map(|tally| tally.writes).sum(),
        }
    }

    /// Stores of the hottest node divided by the mean of all nodes.
    fn heat(&self) -> f64 {
        self.node_most as f64 * self.nodes as f64 / self.node_stores.max(1) as f64
    }
}

/// Results of all trees, and the claims of the thesis about pairs of these trees.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Beside {
    /// Number of keys in each tree.
    pub keys: u64,
    /// One row per tree.
    pub rows: Vec<Row>,
    /// The judged claims.
    pub claims: Vec<Verdict>,
}

impl Beside {
    /// Compares several runs with the same keys.
    pub fn new(heats: &[Heat]) -> Self {
        let rows: Vec<Row> = heats.iter().map(Row::of).collect();
        let row = |name: &str| rows.iter().find(|row| row.engine == name);
        let mut claims = Vec::new();
        if let (Some(versions), Some(plain)) = (row(cdds::ENGINE), row("btree")) {
            let [most, others] = [versions, plain].map(|row| row.node_most);
            claims.push(Verdict {
                claim:
                    "6.1 to 6.3: the hottest node of the tree of versions is less hot than the other tree's"
                        .into(),
                ours: format!(
                    "{most} words, {others}; {:.1} and {:.1} times the mean",
                    versions.heat(),
                    plain.heat()
                ),
                holds: most < others,
            });
            claims.push(Verdict {
                claim: "6.1: its writes go to more nodes (93 for 47)".into(),
                ours: format!("{} for {}", versions.nodes, plain.nodes),
                holds: versions.nodes > plain.nodes,
            });
        }
        if let (Some(versions), Some(logged)) = (row(cdds::ENGINE), row("btree-log")) {
            claims.push(Verdict {
                claim: "6.5: versions write less than a log".into(),
                ours: format!("{} words for {}", versions.stores, logged.stores),
                holds: versions.stores < logged.stores,
            });
            claims.push(Verdict {
                claim: "6.5: and are done earlier".into(),
                ours: format!("{:.2} of its cycles", versions.cycles as f64 / logged.cycles.max(1) as f64),
                holds: versions.cycles < logged.cycles,
            });
        }
        Self { keys: heats.first().map_or(0, |heat| heat.keys), rows, claims }
    }
}

impl Display for Beside {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "\n{} keys in each, side by side; words stored, lines written\n", self.keys)?;
        let heads =
            ["lines", "nodes", "in nodes", "most", "x mean", "in the log", "words", "written", "cycles"];
        write!(f, "{:16}", "")?;
        heads.iter().try_for_each(|head| write!(f, "{head:>12}"))?;
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{:16}{:>12}{:>12}{:>12}", row.engine, row.node_lines, row.nodes, row.node_stores)?;
            write!(f, "{:>12}{:>12.1}{:>12}", row.node_most, row.heat(), row.log_stores)?;
            writeln!(f, "{:>12}{:>12}{:>12}", row.stores, row.writes, row.cycles)?;
        }
        self.claims.iter().try_for_each(|claim| write!(f, "\n{claim}"))
    }
}
