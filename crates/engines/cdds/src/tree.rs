//! The tree: the parts that it does not share with the table ([`crate::versioned`]).
//!
//! New nodes are flushed together with new entries in old nodes. In sorted nodes a crash may leave entries twice.
//!
//! Invariants, in addition to those of every structure:
//! * T1: entries of the current version and of all pinned versions are valid, and their nodes and records are allocated.
//! * T2: at every version, the visible entries of an inner node divide its range. The first has the node's lowest key, and each child has
//!   the range from its entry's key to the next one's.
//! * T3: between operations, a block is allocated if and only if an entry that is reachable and not void (V3 of [`crate::version`])
//!   references it.
//! * T4: every node except the root has one or more parents. The level decreases by one from parent to child.

use std::collections::HashMap;
use std::marker::PhantomData;

use index::Report;
use index::{Schema, Write};
use pmem::alloc::{Class, Kind};
use pmem::sync::{AtomicU64, Ordering};
use pmem::{Error, LINE, Medium, Region, Result};

use crate::entry_order::Order;
use crate::named::Named;
use crate::node::{Entry, Header, Node, Shape};
pub(crate) use crate::ordered::{Change, Pass, Writer};
pub use crate::ordered::{Ordered, Part, Tree};
use crate::persist::Persist;
use crate::pins::Mark;
use crate::structure::Options;
use crate::structure::Structure;
use crate::version::View;

/// The engine's name in the superblock.
pub const ENGINE: &str = "cdds";
/// The engine's name in the superblock, for nodes without order.
pub const ENGINE_UNSORTED: &str = "cdds-unsorted";
/// Nodes of a level that an operation may store to: two that are replaced, and two new ones.
const NODES_OF_LEVEL: u64 = 4;
/// Levels that an operation may add.
const LEVELS_MORE: u64 = 2;

impl<S: Schema<Tail = [u64; 0]>, O: Order> Structure for Ordered<S, O> {
    const ENGINE: &'static str = O::ENGINE;
    type Schema = S;
    type Options = Options;
    type Pass = Pass;
    type Part = Part;

    fn found<M: Medium>(medium: &M, root: u64, _: &Options) -> Result<Self> {
        if root != 0 && Header::read(medium, Node(root)).is_none() {
            return Err(Error::Corrupt { what: "root", at: root });
        }
        Ok(Self { retired: AtomicU64::new(0), parts: PhantomData })
    }

    /// Writes an empty leaf.
    fn format<M: Medium>(
        &self,
        region: &Region<M>,
        writer: &mut Writer,
        (shape, persist): (&Shape, Persist),
        _: &Options,
    ) -> Result<u64> {
        let root = writer.allocator.take(region, &mut writer.log, Kind::Leaf, shape.bytes)?;
        let header = Header { level: 0, birth: 1, low: 0 };
        Node(root).compose(region.medium(), persist, shape, header, &[], false);
        Ok(root)
    }

    fn owns<M: Medium>(of: &Tree<M, S, O>, view: &View, class: Class, at: u64) -> Result<bool> {
        let root = of.root.load(Ordering::Acquire);
        let named = Named { view, root, except: None, cleared: &[] };
        Ok((class.kind.is_node() && at == root) || of.is_named(&named, class.kind, at)?)
    }

    fn begin<M: Medium>(of: &Tree<M, S, O>, _: &Writer) -> Result<Part> {
        let horizon = of.pins.horizon(&of.visible);
        Ok(Part { horizon, dropped: Vec::new(), unfenced: Vec::new(), appends: false })
    }

    fn finish<M: Medium>(of: &Tree<M, S, O>, change: &mut Change<'_>) -> Result<()> {
        of.give_dropped(change)
    }

    fn next_group(part: &mut Part) {
        part.unfenced.clear();
    }

    fn abandon<M: Medium>(_: &Tree<M, S, O>, _: Part) {}

    /// If nodes were replaced, the root may have one child left. Then this child becomes the root.
    fn change<M: Medium, T>(
        of: &Tree<M, S, O>,
        writer: &mut Writer,
        make: impl FnOnce(&mut Change<'_>) -> Result<T>,
    ) -> Result<T> {
        let retired = of.own.retired.load(Ordering::Relaxed);
        let made = of.change(writer, make)?;
        if of.own.retired.load(Ordering::Relaxed) != retired {
            of.promote(writer)?;
        }
        Ok(made)
    }

    fn make_space<M: Medium>(
        of: &Tree<M, S, O>,
        writer: &mut Writer,
        writes: &[Write<'_, S::Key, S::Value>],
    ) -> Result<()> {
        for write in writes {
            let leaf = of.make_space(writer, write.key())?;
            // Several writes may change each other's leaf.
            writer.hint = leaf.filter(|_| writes.len() == 1);
        }
        Ok(())
    }

    #[inline]
    fn put_in<M: Medium>(
        of: &Tree<M, S, O>,
        change: &mut Change<'_>,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        of.put_in(change, key, value)
    }

    #[inline]
    fn delete_in<M: Medium>(of: &Tree<M, S, O>, change: &mut Change<'_>, key: &S::Key) -> Result<bool> {
        of.delete_in(change, key)
    }

    #[inline]
    fn find_in<M: Medium>(of: &Tree<M, S, O>, view: &View, key: &S::Key) -> Result<Option<Entry>> {
        of.find_in(view, key)
    }

    #[inline]
    fn of_schema(entry: &Entry) -> index::Entry {
        entry.of_tree()
    }

    fn count<M: Medium>(of: &Tree<M, S, O>, mark: &Mark) -> Result<u64> {
        let (mut key, mut value, mut keys) = (S::KeyBuf::default(), S::ValueBuf::default(), 0);
        let mut cursor = of.cursor_at(mark.clone());
        while cursor.next(&mut key, &mut value)? {
            keys += 1;
        }
        Ok(keys)
    }

    fn sweep<M: Medium>(of: &Tree<M, S, O>, writer: &mut Writer) -> Result<()> {
        of.sweep_locked(writer)
    }

    fn lines_of<M: Medium>(
        of: &Tree<M, S, O>,
        writer: &Writer,
        writes: &[Write<'_, S::Key, S::Value>],
    ) -> Result<u64> {
        if writes.len() <= 1 { Ok(of.lines_of_each(writer, 1)) } else { of.lines_of_batch(writer, writes) }
    }

    fn collect_some<M: Medium>(of: &Tree<M, S, O>, places: usize) -> Result<bool> {
        of.collect_places(places)
    }

    fn check<M: Medium>(of: &Tree<M, S, O>) -> Report {
        of.check_all_nodes()
    }

    fn is_leaf<M: Medium>(medium: &M, node: Node) -> bool {
        Header::read(medium, node).is_some_and(|header| header.level == 0)
    }

    fn clear<M: Medium>(of: &Tree<M, S, O>) -> Result<()> {
        of.clear_all()
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Tree<M, S, O> {
    /// Maximum number of lines that this many operations change, whatever their keys are. The lines of records do not count.
    pub(crate) fn lines_of_each(&self, writer: &Writer, operations: u64) -> u64 {
        let node_lines = self.shape.bytes / LINE;
        let each = (NODES_OF_LEVEL + 1) * node_lines + 8;
        operations * each + self.lines_once(writer)
    }

    /// Maximum lines that these writes change as one step. The leaves are looked up, so this bound is tighter than that of
    /// [`Tree::lines_of_each`].
    fn lines_of_batch(&self, writer: &Writer, writes: &[Write<'_, S::Key, S::Value>]) -> Result<u64> {
        let (medium, shape, view) = (self.region.medium(), &self.shape, self.view_now(writer));
        let node_lines = shape.bytes / LINE;
        let mut of_leaf: HashMap<Node, usize> = HashMap::new();
        for write in writes {
            let (Write::Put(key, _) | Write::Delete(key)) = write;
            let path = self.path(&view, writer.state.root, S::probe(key))?;
            *of_leaf.entry(path[path.len() - 1]).or_default() += 1;
        }
        // A leaf with space for all its writes stays. Any other leaf is replaced, with its neighbours and its part of the parent.
        let lines = of_leaf.iter().map(|(leaf, writes)| {
            let used = leaf.used(medium, shape, &view).count();
            let is_thin = leaf.seen(medium, shape, &view).len() <= shape.least + *writes;
            if used + writes <= shape.slots && !is_thin {
                node_lines
            } else {
                (NODES_OF_LEVEL + 1 + (4 * writes / shape.slots) as u64) * node_lines
            }
        });
        Ok(lines.sum::<u64>() + self.lines_once(writer))
    }

    /// The lines that count once: those of one path.
    fn lines_once(&self, writer: &Writer) -> u64 {
        let level = Header::read(self.region.medium(), Node(writer.state.root)).map_or(0, |root| root.level);
        NODES_OF_LEVEL * (level as u64 + LEVELS_MORE) * (self.shape.bytes / LINE)
    }
}
