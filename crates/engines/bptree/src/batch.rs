//! The tree's part of an atomic batch: the space that a batch may need, and the write groups of a batch. [`index::batch`] has the protocol.

use index::batch::{Batching, Blocks, Pair, value_bytes};
use index::{Phase, Schema, WriteOf};
use pmem::alloc::Kind;
use pmem::region::BATCH_AT;
use pmem::{LINE, Medium, Region, Result, record};

use crate::batched_ops::{GROUP_WRITES, Leaves};
use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::search::Scalar;
use crate::shape::Node;
use crate::tree::{Tree, Writer};

/// Number of nodes of one kind that a batch may allocate before it frees other nodes of this kind.
const NODES_MORE: u64 = 4;

/// The space that a batch may need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Number of writes.
    pub writes: u64,
    /// Number of leaves that the writes go to.
    pub leaves: u64,
    /// Maximum number of splits and merges of leaves.
    pub turns: u64,
    /// Cache lines of the records that the batch writes. The lines of the old records that they replace are not counted.
    pub record_lines: u64,
    /// Number of pieces of large values that the batch writes or frees.
    pub pieces: u64,
    /// Bytes of the longest key.
    pub key_bytes: u64,
    /// Number of keys that the batch adds.
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
        // The phase is checked after the read, because a rollback first sets the phase.
        self.readable(self.pending.is_some() && self.phase() == Phase::Failed)?;
        Ok(found)
    }

    fn survey(&self, writes: &[Pair<S>]) -> Result<(Vec<Pair<S>>, Extent)> {
        let (medium, shape) = (self.region.medium(), &self.leaf);
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let mut extent = Extent { writes: writes.len() as u64, ..Extent::default() };
        let mut before = Vec::with_capacity(writes.len());
        // The leaf of the latest writes, with the numbers of keys that are added and removed there.
        let (mut last, mut comes, mut goes) = (Node(0), 0, 0);
        let count = |extent: &mut Extent, leaf: Node, comes: u64, goes: u64| {
            if leaf.0 == 0 {
                return;
            }
            let (held, capacity) = (L::Leaf::count(medium, shape, leaf) as u64, shape.capacity as u64);
            extent.leaves += 1;
            // The halves of a split leaf are at least a third full. A leaf that becomes empty is removed, and keys that are added later go
            // to its neighbour. Other merges are omitted if there is no space.
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
                let found =
                    arrived.and_then(|(leaf, _)| Some((self.confirmed_value(shape, leaf, borrowed)?, leaf)));
                let (old, leaf) = match found {
                    Some(found) => found,
                    // The descent failed. If the reason is damage, this lookup reports it.
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

    fn write_all(
        &self,
        writer: &mut Writer<S>,
        writes: &[WriteOf<'_, S>],
        _: &Extent,
        found: &mut [bool],
    ) -> Result<()> {
        for (group, found) in writes.chunks(GROUP_WRITES).zip(found.chunks_mut(GROUP_WRITES)) {
            self.write_group(writer, group, found, Leaves::Confirmed)?;
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
