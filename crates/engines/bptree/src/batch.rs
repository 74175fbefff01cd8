//! What a batch needs of a tree, and how it is carried out: see [`index::batch`] for the protocol.

use index::batch::{Batching, Blocks, Pair, value_bytes};
use index::{Phase, Schema, WriteOf};
use pmem::alloc::Kind;
use pmem::region::BATCH_AT;
use pmem::{LINE, Medium, Region, Result, record};

use crate::batched_ops::GROUP_WRITES;
use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::search::Scalar;
use crate::shape::Node;
use crate::tree::{Tree, Writer};

/// Nodes that are taken before others are given back.
const NODES_MORE: u64 = 4;

/// What a batch may need space for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Its writes.
    pub writes: u64,
    /// Leaves that they go to.
    pub leaves: u64,
    /// Most splits and merges of leaves that can come of it.
    pub turns: u64,
    /// Lines of its records, those that it replaces apart.
    pub record_lines: u64,
    /// Pieces of large values written and given back.
    pub pieces: u64,
    /// Bytes of its longest key.
    pub key_bytes: u64,
    /// New keys.
    inserts: u64,
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Batching for Tree<M, S, L, D> {
    type Extent = Extent;

    fn is_durable(&self) -> bool {
        D::DURABLE
    }

    fn payload_words(&self) -> usize {
        self.leaf.payload_words
    }

    fn value_now(&self, key: &S::Key, value: Option<&mut S::ValueBuf>) -> Result<bool> {
        let found = self.look(key, value)?.found;
        // Asked after the read: the roll-back begins by saying so.
        self.readable(self.pending.is_some() && self.phase() == Phase::Failed)?;
        Ok(found)
    }

    fn survey(&self, writes: &[Pair<S>]) -> Result<(Vec<Pair<S>>, Extent)> {
        let (medium, shape) = (self.region.medium(), &self.leaf);
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let mut extent = Extent { writes: writes.len() as u64, ..Extent::default() };
        let mut before = Vec::with_capacity(writes.len());
        // The leaf that the last writes go to, with how many come and go there.
        let (mut last, mut comes, mut goes) = (Node(0), 0, 0);
        let count = |extent: &mut Extent, leaf: Node, comes: u64, goes: u64| {
            if leaf.0 == 0 {
                return;
            }
            let (held, capacity) = (L::Leaf::count(medium, shape, leaf) as u64, shape.capacity as u64);
            extent.leaves += 1;
            // The halves of a split leaf are at least a third full. A leaf that gets empty goes, and what comes there after that
            // goes to its neighbour; merges for less are not made where space is lacking.
            let gets_empty = u64::from(goes >= held);
            let splits = if held + comes > capacity || gets_empty == 1 { comes } else { 0 };
            extent.turns += gets_empty + splits.min(1 + 3 * (held + comes) / capacity);
        };
        self.each_arrived::<Scalar>(
            writes.len(),
            |i| S::borrow(&writes[i].0),
            #[inline(always)]
            |i, arrived| {
                let (key, value) = &writes[i];
                let borrowed = S::borrow(key);
                let found = arrived.and_then(|(leaf, _)| {
                    self.leaf_value::<Scalar>(shape, leaf, borrowed).map(|value| (value, leaf))
                });
                let (old, leaf) = match found {
                    Some(found) => found,
                    // Damage, of which this look tells.
                    None => {
                        let mut old = S::ValueBuf::default();
                        let looked = self.look(borrowed, Some(&mut old))?;
                        (looked.found.then_some(old), looked.leaf)
                    }
                };
                if leaf != last {
                    count(&mut extent, last, comes, goes);
                    (last, comes, goes) = (leaf, 0, 0);
                }
                comes += u64::from(old.is_none() && value.is_some());
                goes += u64::from(old.is_some() && value.is_none());
                extent.inserts += u64::from(old.is_none() && value.is_some());
                let key_bytes = S::key_bytes(borrowed).as_ref().len() as u64;
                extent.key_bytes = extent.key_bytes.max(key_bytes);
                let of = |value: &Option<S::ValueBuf>| {
                    let value = value.as_ref().filter(|_| !S::PLAIN)?;
                    Some(record::needs(Kind::Record, key_bytes, value_bytes::<S>(value), chunk_bytes))
                };
                if let Some([head, pieces]) = of(value) {
                    extent.record_lines += head.1 / LINE + 2 + pieces.2 * (pieces.1 / LINE + 2);
                    extent.pieces += pieces.2;
                }
                if let Some([_, pieces]) = of(&old) {
                    extent.pieces += pieces.2;
                }
                before.push((key.clone(), old));
                Ok(true)
            },
        )?;
        count(&mut extent, last, comes, goes);
        Ok((before, extent))
    }

    fn lines_of(&self, extent: &Extent) -> u64 {
        self.lines_of_batch(extent)
    }

    fn blocks_of(&self, extent: &Extent) -> Result<Vec<Blocks>> {
        let (node_bytes, chunk_bytes) = (self.leaf.bytes(), self.region.geometry().chunk_bytes);
        let levels = self.link(self.root())?.level as u64;
        let splits = extent.turns.min(extent.inserts);
        let copies = if D::COPIES_LEAVES { NODES_MORE } else { 0 };
        let inner = if splits > 0 { splits * 2 + levels + NODES_MORE } else { 0 };
        let separators = if S::PLAIN { 0 } else { inner };
        let separator = record::needs(Kind::Separator, extent.key_bytes, 0, chunk_bytes)[0].1;
        let leaves = (Kind::Leaf, node_bytes, splits + copies);
        Ok(vec![leaves, (Kind::Inner, node_bytes, inner), (Kind::Separator, separator, separators)])
    }

    fn write_all(&self, writer: &mut Writer<S>, writes: &[WriteOf<'_, S>], found: &mut [bool]) -> Result<()> {
        for (group, found) in writes.chunks(GROUP_WRITES).zip(found.chunks_mut(GROUP_WRITES)) {
            self.write_group(writer, group, found)?;
        }
        Ok(())
    }

    fn name_batch(&self, writer: &mut Writer<S>, record: u64) -> Result<()> {
        let edit = writer.edit(0);
        edit.start(Node(pmem::region::ROOT_AT), LINE);
        edit.switch.push((BATCH_AT, Region::<M>::root_word(record)));
        self.change(writer, 1)
    }
}
