//! The results of `bristlecone-lab heat` as text and as data.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

use pcm::{Levelling, Sim, Write};

use super::{BINS, HOTTEST, Options, Order, Places};

/// The part of the region that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A leaf.
    Leaf,
    /// An inner node.
    Inner,
    /// Records of byte strings.
    Record,
    /// The log, and the word that truncates it.
    Log,
    /// Bitmaps and intents of the allocator.
    Allocator,
    /// The reference to the root: a line, or a block with the current version.
    Root,
    /// The superblock, which describes the region.
    Superblock,
}

/// Results of a node.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Node {
    /// Offset of its first byte.
    pub at: u64,
    /// A leaf or an inner node.
    pub part: Part,
    /// Cycles at its first store.
    pub made_cycles: u64,
    /// Words stored into it.
    pub stores: u64,
    /// Lines of the node that the device wrote.
    pub writes: u64,
}

/// Results of a time interval.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Bin {
    /// Words stored into nodes.
    pub stores: u64,
    /// Lines that the device wrote, of nodes and other parts.
    pub writes: u64,
    /// Nodes with their first store in this interval.
    pub nodes_made: u64,
}

/// A line and the number of its writes.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Hot {
    /// Number of the line. With wear levelling, number of the physical line.
    pub line: u64,
    /// The part it belongs to; `None` if wear levelling moves lines.
    pub part: Option<Part>,
    /// Number of writes by the device.
    pub writes: u32,
}

/// Words stored and lines written of a part.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Tally {
    /// Words stored.
    pub stores: u64,
    /// Lines written.
    pub writes: u64,
}

/// Results of a run: where and when a tree wrote.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Heat {
    /// Name of the engine.
    pub engine: &'static str,
    /// Number of inserted keys.
    pub keys: u64,
    /// Order of the keys.
    pub order: Order,
    /// Cache lines of a node.
    pub node_lines: u64,
    /// Seed of the keys.
    pub seed: u64,
    /// Parameters of the hierarchy.
    pub memory: Vec<(&'static str, f64)>,
    /// Simulated cycles at the end.
    pub cycles: u64,
    /// Cycles of a bin.
    pub bin_cycles: u64,
    /// All nodes at the end, in the order of their first stores.
    pub nodes: Vec<Node>,
    /// Results by time interval.
    pub bins: Vec<Bin>,
    /// Stores and writes by part.
    pub parts: BTreeMap<Part, Tally>,
    /// The lines with the most writes.
    pub hottest: Vec<Hot>,
    /// Number of lines with one write, two or three, four to seven, and so on.
    pub histogram: Vec<u64>,
    /// Number of lines that wear levelling moved.
    pub moves: u64,
    /// Inserts per second that the lifetime assumes: the requested rate or the rate of the simulated clock.
    pub rate: f64,
    /// Years until the first cell fails at this rate. `None` if no cell fails.
    pub years: Option<f64>,
    /// The same if all lines were written equally often.
    pub years_alike: Option<f64>,
}

impl Heat {
    pub(super) fn new(options: &Options, sim: &Sim, stores: &[Write], places: &Places) -> Self {
        let wear = sim.wear();
        let bin_cycles = (sim.now() / BINS).max(1);
        let mut bins = vec![Bin::default(); (sim.now() / bin_cycles + 1) as usize];
        let mut parts: BTreeMap<Part, Tally> = BTreeMap::new();
        let mut nodes: BTreeMap<u64, Node> = BTreeMap::new();
        for store in stores {
            let part = places.part(store.line);
            parts.entry(part).or_default().stores += 1;
            let Some(at) = places.node(store.line) else { continue };
            let bin = &mut bins[(store.cycles / bin_cycles) as usize];
            bin.stores += 1;
            let node = nodes.entry(at).or_insert_with(|| {
                bin.nodes_made += 1;
                Node { at, part, made_cycles: store.cycles, stores: 0, writes: 0 }
            });
            node.stores += 1;
        }
        for write in wear.trace().unwrap_or_default() {
            bins[(write.cycles / bin_cycles) as usize].writes += 1;
            parts.entry(places.part(write.line)).or_default().writes += 1;
            if let Some(node) = places.node(write.line).and_then(|at| nodes.get_mut(&at)) {
                node.writes += 1;
            }
        }
        let mut nodes: Vec<_> = nodes.into_values().collect();
        nodes.sort_by_key(|node| (node.made_cycles, node.at));
        let levelled = options.levelling != Levelling::None;
        let hot = |(line, writes)| Hot { line, part: (!levelled).then(|| places.part(line)), writes };
        let rate = options.rate.unwrap_or(options.keys as f64 / sim.seconds());
        let (years, years_alike) = wear.years(sim.config().endurance, options.keys as f64 / rate);
        let finite = |years: f64| years.is_finite().then_some(years);
        Self {
            engine: options.engine.name,
            keys: options.keys,
            order: options.order,
            node_lines: options.node_lines,
            seed: options.seed,
            memory: sim.config().figures(),
            cycles: sim.now(),
            bin_cycles,
            nodes,
            bins,
            parts,
            hottest: wear.hottest(HOTTEST).into_iter().map(hot).collect(),
            histogram: wear.histogram(),
            moves: wear.moves(),
            rate,
            years: finite(years),
            years_alike: finite(years_alike),
        }
    }

    /// Number of nodes per cell, and for each of at most `cells` groups of adjacent nodes the mean of its stores.
    pub(super) fn cells(&self, cells: usize) -> (usize, Vec<f64>) {
        let each = self.nodes.len().div_ceil(cells).max(1);
        let mean =
            |nodes: &[Node]| nodes.iter().map(|node| node.stores as f64).sum::<f64>() / nodes.len() as f64;
        (each, self.nodes.chunks(each).map(mean).collect())
    }
}

/// Nodes per line of text, and maximum number of lines.
const COLUMNS: usize = 80;
const ROWS: usize = 20;
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Formats a number of years as text.
fn span(years: f64) -> String {
    let days = years * 365.25;
    match days {
        365.25.. => format!("{years:.1} years"),
        1.0.. => format!("{days:.1} days"),
        _ => format!("{:.1} hours", days * 24.0),
    }
}

fn shade<const N: usize>(of: &[char; N], value: f64, most: f64) -> char {
    let place = if most > 0.0 { (value / most * (N - 1) as f64).ceil() } else { 0.0 };
    of[(place as usize).min(N - 1)]
}

impl Display for Heat {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let order = if self.order == Order::Random { "random" } else { "ascending" };
        writeln!(
            f,
            "{}: {} {order} keys, nodes of {} lines; {} cycles, {} nodes; seed {}\n",
            self.engine,
            self.keys,
            self.node_lines,
            self.cycles,
            self.nodes.len(),
            self.seed
        )?;
        let (each, cells) = self.cells(COLUMNS * ROWS);
        let most = cells.iter().copied().fold(0.0, f64::max);
        let of = if each == 1 { "a node".to_owned() } else { format!("{each} nodes, their mean") };
        writeln!(f, "stores by node, in the order in which they were made; a sign is {of}, █ is {most:.0}")?;
        for row in cells.chunks(COLUMNS) {
            writeln!(f, "  {}", row.iter().map(|cell| shade(&SHADES, *cell, most)).collect::<String>())?;
        }
        let bins = |name: &str, of: fn(&Bin) -> u64| {
            let most = self.bins.iter().map(of).max().unwrap_or(0);
            let line: String =
                self.bins.iter().map(|bin| shade(&LEVELS, of(bin) as f64, most as f64)).collect();
            format!("  {line} {name}, █ is {most}")
        };
        writeln!(f, "\ntime, {} cycles a sign", self.bin_cycles)?;
        writeln!(f, "{}", bins("words stored into nodes", |bin| bin.stores))?;
        writeln!(f, "{}", bins("lines written", |bin| bin.writes))?;
        writeln!(f, "{}", bins("nodes made", |bin| bin.nodes_made))?;
        writeln!(f, "\n{:12}{:>12}{:>12}", "", "stores", "writes")?;
        for (part, tally) in &self.parts {
            writeln!(f, "{:12}{:>12}{:>12}", format!("{part:?}").to_lowercase(), tally.stores, tally.writes)?;
        }
        writeln!(f, "\nlines by how often they were written")?;
        for (i, lines) in self.histogram.iter().enumerate() {
            let (from, to) = (1_u64 << i, (2_u64 << i) - 1);
            let range = if from == to { from.to_string() } else { format!("{from} to {to}") };
            writeln!(f, "  {range:>16}{lines:>12}")?;
        }
        writeln!(f, "\nhottest lines")?;
        for hot in &self.hottest {
            let part = hot.part.map(|part| format!("{part:?}").to_lowercase()).unwrap_or_default();
            writeln!(f, "  {:>16}{:>12}  {part}", hot.line, hot.writes)?;
        }
        if self.moves > 0 {
            writeln!(f, "\nlevelling moved {} lines", self.moves)?;
        }
        match (self.years, self.years_alike) {
            (Some(years), Some(alike)) => write!(
                f,
                "\nif it goes on like this, {:.0} inserts a second, the first cell fails after {}; with the same \
                 writes on all lines of this memory alike, after {}",
                self.rate,
                span(years),
                span(alike)
            ),
            _ => write!(f, "\nnothing wears out"),
        }
    }
}
