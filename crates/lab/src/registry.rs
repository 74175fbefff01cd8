//! `bristlecone-lab registry`: all engines and their parts. (`cargo xtask lines` counts their lines of code.)

use bristlecone::registry::engines;
use index::About;

/// An engine.
#[derive(Debug, serde::Serialize)]
pub struct Row {
    /// Name.
    pub name: &'static str,
    /// Layout of leaves.
    pub leaf: &'static str,
    /// Layout of inner nodes.
    pub inner: &'static str,
    /// The commit protocol.
    pub commit_protocol: &'static str,
    /// Minimum and maximum cache lines of a node.
    pub node_lines: (u64, u64),
    /// Default number of cache lines of a node.
    pub default_lines: u64,
    /// Contents survive a crash.
    pub durable: bool,
    /// Names of its capabilities.
    pub capabilities: Vec<&'static str>,
}

/// The registry.
#[derive(Debug, serde::Serialize)]
pub struct Report {
    /// One row per engine.
    pub engines: Vec<Row>,
}

fn capabilities(name: &str) -> Result<Vec<&'static str>, bristlecone::Error> {
    let can = bristlecone::registry::find(name)?.capabilities;
    let all = [
        (can.ordered, "ordered"),
        (can.durable, "durable"),
        (can.snapshots, "snapshots"),
        (can.versions, "versions"),
        (can.atomic_batch, "atomic batches"),
        (can.several_writers, "several writers"),
        (can.fixed_values, "values of one length in entries"),
    ];
    Ok(all.into_iter().filter(|(can, _)| *can).map(|(_, what)| what).collect())
}

fn row(about: &'static About) -> Result<Row, bristlecone::Error> {
    Ok(Row {
        name: about.name,
        leaf: about.leaf,
        inner: about.inner,
        commit_protocol: about.commit_protocol,
        node_lines: about.lines,
        default_lines: about.default_lines,
        durable: about.durable,
        capabilities: capabilities(about.name)?,
    })
}

/// Lists all engines.
///
/// # Errors
/// `UnknownEngine` if the list of engines and the registry differ.
pub fn report() -> Result<Report, bristlecone::Error> {
    Ok(Report { engines: engines().map(row).collect::<Result<_, _>>()? })
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:16}{:13}{:13}{:34}{:>12}{:>10}  can",
            "engine", "leaf", "inner", "commit_protocol", "node lines", "default"
        )?;
        for row in &self.engines {
            let (least, most) = row.node_lines;
            writeln!(
                f,
                "{:16}{:13}{:13}{:34}{:>12}{:>10}  {}",
                row.name,
                row.leaf,
                row.inner,
                row.commit_protocol,
                format!("{least} to {most}"),
                row.default_lines,
                row.capabilities.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_listed() {
        let report = report().unwrap();
        assert_eq!(report.engines.len(), engines().count());
        let text = report.to_string();
        assert!(engines().all(|about| text.contains(about.name)), "{text}");
    }
}
