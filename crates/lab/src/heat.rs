//! `bristlecone-lab heat`: where and when a tree writes: stores by node, as CDDS's thesis counts them (sections 6.1 and 6.2), and line
//! writes that reach a simulated device below simulated caches.
//!
//! Keys are inserted one by one into an empty tree on simulated memory. Stores are counted at the index, line writes at the device. So a
//! volatile tree may have more stores than line writes: some of its stores stay in the caches.

mod beside;
mod draw;
mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use index::About;
use pcm::{Config, Levelling, Pcm, Write};
use pmem::alloc::{blocks_in, chunks};
use pmem::observed::{Event, Memory, Observed, Observer};
use pmem::{Durability, LINE, Region};

pub use beside::{Beside, Row};
pub use draw::svg;
pub use report::{Bin, Heat, Hot, Node, Part};

use crate::keys::Random;
use crate::measured::{Making, of_words};
use crate::{Error, wrong};

/// Number of bins of the time axis.
const BINS: u64 = 100;
/// Number of hottest lines in the report.
const HOTTEST: usize = 10;

/// Order of the inserted keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Pseudo-random order.
    Random,
    /// Ascending order.
    Ascending,
}

/// Parameters of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The tree.
    pub engine: &'static About,
    /// Number of keys.
    pub keys: u64,
    /// Order of the keys.
    pub order: Order,
    /// Cache lines of a node.
    pub node_lines: u64,
    /// The memory hierarchy.
    pub memory: Config,
    /// Wear levelling of the device.
    pub levelling: Levelling,
    /// Inserts per second, for the lifetime. `None` for the rate of the simulated clock.
    pub rate: Option<f64>,
    /// Seed of the keys.
    pub seed: u64,
}

/// Records every store with its time, and forwards all events to the hierarchy.
struct Watch {
    pcm: Arc<Pcm>,
    stores: Mutex<Vec<Write>>,
}

impl Watch {
    fn stores(&self) -> MutexGuard<'_, Vec<Write>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watch {
    fn read(&self, line: u64) {
        self.pcm.read(line);
    }

    fn prefetch(&self, line: u64) {
        self.pcm.prefetch(line);
    }

    fn event(&self, event: Event) {
        self.pcm.event(event);
        if let Event::Store { at, .. } = event {
            let cycles = self.pcm.sim().now();
            self.stores().push(Write { cycles, line: at / LINE });
        }
    }
}

/// Inserts the keys and reports the stores and writes. `progress` receives the number of inserted keys.
///
/// # Errors
/// `Pmem` if the tree does not support nodes of this size, or outgrows the simulated memory; `Wrong` for a wrong answer.
pub fn run(options: &Options, progress: &dyn Fn(u64)) -> Result<Heat, Error> {
    let memory = Memory::new((16 << 20) + options.keys * 256, 0);
    let pcm = Pcm::new(Arc::clone(&memory), options.memory, options.engine.durable);
    pcm.sim().level(options.levelling);
    let watch = Arc::new(Watch { pcm: Arc::clone(&pcm), stores: Mutex::default() });
    let medium = Observed::new(memory, Arc::clone(&watch) as Arc<dyn Observer>);
    let making = Making {
        name: options.engine.name.into(),
        medium: medium.clone(),
        node_lines: options.node_lines,
        durability: Durability::Power,
        payload_words: 1,
    };
    let mut tree = of_words(options.engine, making)?;
    let mut keys = u64::range(options.seed, 0, options.keys);
    if options.order == Order::Ascending {
        keys.sort_unstable();
    }
    pcm.sim().trace();
    watch.stores().clear();
    pcm.begin();
    const STEP: usize = 1000;
    for (done, keys) in (0..).step_by(STEP).zip(keys.chunks(STEP)) {
        progress(done);
        if tree.insert(keys)? != keys.len() as u64 {
            return Err(wrong(tree.name(), "a new key was there".into()));
        }
    }
    pcm.end();
    keys.sort_unstable();
    if let Some(fault) = tree.fault(&keys)? {
        return Err(wrong(tree.name(), fault));
    }
    let places = Places::find(&medium, options.node_lines * LINE)?;
    let stores = std::mem::take(&mut *watch.stores());
    Ok(Heat::new(options, &pcm.sim(), &stores, &places))
}

/// The contents of a region, by offset.
struct Places {
    /// Nodes by first byte: bytes of the node, and true for a leaf.
    nodes: BTreeMap<u64, (u64, bool)>,
    /// Chunks by first byte, with the part that they belong to.
    chunks: BTreeMap<u64, Part>,
    heap_at: u64,
}

impl Places {
    /// Finds the nodes, which have `node_bytes` bytes. (A smaller block of the same kind references the root.)
    fn find(medium: &Observed, node_bytes: u64) -> Result<Self, Error> {
        let (identity, geometry) = pmem::region::describe(medium, Path::new("the simulated memory"))?;
        let region = Region::unchecked(medium.clone(), geometry, identity);
        let mut places =
            Self { nodes: BTreeMap::new(), chunks: BTreeMap::new(), heap_at: geometry.heap_at() };
        for (chunk, class) in chunks(&region) {
            let Ok(Some(class)) = class else { continue };
            let leaf = class.kind == pmem::alloc::Kind::Leaf;
            let is_node = class.kind.is_node() && class.block_bytes == node_bytes;
            let part = match class.kind.is_node() {
                true if is_node => Part::Allocator,
                true => Part::Root,
                false => Part::Record,
            };
            places.chunks.insert(chunk, part);
            if is_node {
                let nodes = blocks_in(&region, chunk, class).map(|at| (at, (class.block_bytes, leaf)));
                places.nodes.extend(nodes);
            }
        }
        Ok(places)
    }

    /// The first byte of the node that contains a line.
    fn node(&self, line: u64) -> Option<u64> {
        let (at, (bytes, _)) = self.nodes.range(..=line * LINE).next_back()?;
        (line * LINE < at + bytes).then_some(*at)
    }

    fn part(&self, line: u64) -> Part {
        let at = line * LINE;
        match self.node(line).and_then(|node| self.nodes.get(&node)) {
            Some((_, true)) => Part::Leaf,
            Some((_, false)) => Part::Inner,
            None if (pmem::region::ROOT_AT..pmem::region::GENERATION_AT).contains(&at) => Part::Root,
            None if (pmem::region::GENERATION_AT..pmem::region::INTENTS_AT).contains(&at) => Part::Log,
            None if at < pmem::region::ROOT_AT => Part::Superblock,
            None if at < pmem::region::LOG_AT => Part::Allocator,
            None if at < self.heap_at => Part::Log,
            None => self.chunks.range(..=at).next_back().map_or(Part::Allocator, |(_, part)| *part),
        }
    }
}
