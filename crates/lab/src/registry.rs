//! `bristlecone-lab registry`: every engine, its parts, and the lines of code that it takes.
//!
//! Lines are counted in the sources that this build was made from: those that are not blank, not a comment, and not tests
//! (which end a file). An engine's own lines are those of sources that no other engine of the roster uses; most have none,
//! for a tree is a combination of parts. All lines of an engine are its parts' together, each source once; the skeleton is what all
//! trees share.

use std::collections::BTreeSet;

use bristlecone::registry::engines;
use tree::roster::{About, SKELETON};

/// The nine trees of the wB+-Tree paper for integer keys.
const NINE: [&str; 9] = [
    "btree",
    "btree-log",
    "unsorted-log",
    "ubmp-log",
    "btree-shadow",
    "unsorted-shadow",
    "ubmp-shadow",
    "wbtree",
    "wbtree-bmp",
];
/// One tree of each durable discipline of theirs.
const THREE: [&str; 3] = ["wbtree", "btree-log", "btree-shadow"];

/// An engine.
#[derive(Debug, serde::Serialize)]
pub struct Row {
    /// Name.
    pub name: &'static str,
    /// Layout of leaves.
    pub leaf: &'static str,
    /// Layout of inner nodes.
    pub inner: &'static str,
    /// Discipline.
    pub discipline: &'static str,
    /// Fewest and most cache lines of a node.
    pub node_lines: (u64, u64),
    /// Cache lines of a node unless the user says otherwise.
    pub default_lines: u64,
    /// Contents survive a crash.
    pub durable: bool,
    /// What it can do.
    pub capabilities: Vec<&'static str>,
    /// Lines of code that no other engine uses.
    pub lines_own: usize,
    /// Lines of code of its parts.
    pub lines_all: usize,
}

/// Some engines together.
#[derive(Debug, serde::Serialize)]
pub struct Total {
    /// Which.
    pub engines: Vec<&'static str>,
    /// Lines of code of their parts, each part once.
    pub lines: usize,
    /// And with the skeleton.
    pub lines_with_skeleton: usize,
}

/// The registry.
#[derive(Debug, serde::Serialize)]
pub struct Report {
    /// An engine each.
    pub engines: Vec<Row>,
    /// Lines of code that all trees share.
    pub lines_skeleton: usize,
    /// The paper's nine trees.
    pub nine: Total,
    /// Three of them.
    pub three: Total,
}

/// Lines of code of a source. See the module's head.
pub fn lines_of_code(source: &str) -> usize {
    let code = source.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

fn lines_of<'a>(sources: impl IntoIterator<Item = &'a str>) -> usize {
    let each_once: BTreeSet<_> = sources.into_iter().collect();
    each_once.into_iter().map(lines_of_code).sum()
}

fn capabilities(name: &str) -> Result<Vec<&'static str>, bristlecone::Error> {
    let can = bristlecone::registry::find(name)?.capabilities;
    let all = [
        (can.ordered, "ordered"),
        (can.durable, "durable"),
        (can.snapshots, "snapshots"),
        (can.atomic_batch, "atomic batches"),
        (can.several_writers, "several writers"),
        (can.fixed_values, "values of one length in entries"),
    ];
    Ok(all.into_iter().filter(|(can, _)| *can).map(|(_, what)| what).collect())
}

fn row(about: &'static About) -> Result<Row, bristlecone::Error> {
    let others = || engines().filter(|other| other.name != about.name);
    let is_own = |source: &&str| !others().any(|other| other.sources.contains(source));
    Ok(Row {
        name: about.name,
        leaf: about.leaf,
        inner: about.inner,
        discipline: about.discipline,
        node_lines: about.lines,
        default_lines: about.default_lines,
        durable: about.durable,
        capabilities: capabilities(about.name)?,
        lines_own: lines_of(about.sources.iter().copied().filter(is_own)),
        lines_all: lines_of(about.sources.iter().copied()),
    })
}

fn total(names: &[&'static str], skeleton: usize) -> Total {
    let chosen = engines().filter(|about| names.contains(&about.name));
    let lines = lines_of(chosen.flat_map(|about| about.sources.iter().copied()));
    Total { engines: names.to_vec(), lines, lines_with_skeleton: lines + skeleton }
}

/// Lists the engines and counts.
///
/// # Errors
/// `UnknownEngine` if roster and registry differ.
pub fn report() -> Result<Report, bristlecone::Error> {
    let lines_skeleton = lines_of(SKELETON.iter().copied());
    Ok(Report {
        engines: engines().map(row).collect::<Result<_, _>>()?,
        lines_skeleton,
        nine: total(&NINE, lines_skeleton),
        three: total(&THREE, lines_skeleton),
    })
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:16}{:13}{:13}{:34}{:>12}{:>10}{:>6}{:>6}  can",
            "engine", "leaf", "inner", "discipline", "node lines", "default", "own", "all"
        )?;
        for row in &self.engines {
            let (least, most) = row.node_lines;
            writeln!(
                f,
                "{:16}{:13}{:13}{:34}{:>12}{:>10}{:>6}{:>6}  {}",
                row.name,
                row.leaf,
                row.inner,
                row.discipline,
                format!("{least} to {most}"),
                row.default_lines,
                row.lines_own,
                row.lines_all,
                row.capabilities.join(", ")
            )?;
        }
        writeln!(
            f,
            "\nlines of code: own, of sources that no other engine uses; all, of its layouts and discipline"
        )?;
        writeln!(f, "skeleton, shared by all trees: {} lines", self.lines_skeleton)?;
        for (what, total) in [("the paper's nine trees", &self.nine), ("three of them", &self.three)] {
            writeln!(
                f,
                "{what}: {} lines, {} with the skeleton ({})",
                total.lines,
                total.lines_with_skeleton,
                total.engines.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tree::roster::TREES;

    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_are_no_code() {
        let source = "//! Head.\n\nuse a;\n\n/// Doc.\nfn f() {\n    // why\n    g(); // here\n}\n\n#[cfg(test)]\nmod tests {\n    x\n}\n";
        assert_eq!(lines_of_code(source), 4);
        assert_eq!(lines_of_code(""), 0);
        assert_eq!(lines_of(["a", "a", "b\nc"]), 3, "a source counts once");
    }

    fn sources_below(folder: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.append(&mut sources_below(&path));
            } else {
                found.insert(std::fs::read_to_string(path).unwrap());
            }
        }
        found
    }

    #[test]
    fn skeleton_and_parts_are_all_sources_of_the_trees() {
        let rooms = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let counted = SKELETON.iter().chain(TREES.iter().flat_map(|about| about.sources));
        let counted: BTreeSet<_> = counted.map(|source| (*source).to_owned()).collect();
        let there = sources_below(&rooms.join("tree/src"));
        assert!(counted == there, "{} sources counted, {} there", counted.len(), there.len());
        // Rooms of their own: all but the front door, and what is below.
        for room in ["cdds", "vlab", "nvtree"] {
            let sources = bristlecone::registry::find(room).unwrap().about.sources;
            let shared = if room == "cdds" { None } else { Some(rooms.join("chain/src")) };
            let folders = [rooms.join(room).join("src")].into_iter().chain(shared);
            let there = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
            let there = there.map(|entry| entry.unwrap().path());
            let there = there.filter(|path| path.is_file() && !path.ends_with("lib.rs"));
            let there: BTreeSet<_> = there.map(|path| std::fs::read_to_string(path).unwrap()).collect();
            let sources: BTreeSet<_> = sources.iter().map(|source| (*source).to_owned()).collect();
            assert_eq!(sources, there, "{room}");
        }
        let unsorted = bristlecone::registry::find("cdds-unsorted").unwrap().about.sources;
        assert_eq!(bristlecone::registry::find("cdds").unwrap().about.sources, unsorted);
        // The hash table is a room in the tree's, and shares some of it.
        let of_tree = bristlecone::registry::find("cdds").unwrap().about.sources;
        let of_tree: BTreeSet<_> = of_tree.iter().map(|source| (*source).to_owned()).collect();
        let hash = bristlecone::registry::find("cdds-hash").unwrap().about.sources;
        let own = hash.iter().map(|source| (*source).to_owned()).filter(|source| !of_tree.contains(source));
        let front = std::fs::read_to_string(rooms.join("cdds/src/hash/mod.rs")).unwrap();
        let mut there = sources_below(&rooms.join("cdds/src/hash"));
        assert!(there.remove(&front));
        assert_eq!(own.collect::<BTreeSet<_>>(), there);
    }

    #[test]
    fn a_part_of_one_engine_alone_is_its_own() {
        let report = report().unwrap();
        let row = |name: &str| report.engines.iter().find(|row| row.name == name).unwrap();
        assert_eq!(report.engines.len(), engines().count());
        // Slot-only nodes and the volatile discipline are used once; the paper's own tree shares all of its parts.
        assert!(row("wbtree-slot").lines_own > 0 && row("btree").lines_own > 0);
        assert_eq!(row("wbtree").lines_own, 0);
        assert!(report.three.lines < report.nine.lines);
        assert!(report.nine.lines < report.engines.iter().map(|row| row.lines_all).sum());
    }
}
