//! Atomic batches: writes of several keys that are there together or not at all, after a crash and to every reader.
//!
//! Where fences make writes durable, a batch is first written down whole, as a record; one word in the root line names it, and
//! that word is the batch's commit point. Then its writes are carried out as any others are, waves sharing their fences, each
//! its own commit; at last the word is cleared and the record given back. What a crash cuts short is carried out again when the
//! tree is opened: all writes of the batch once more, in their order, which changes nothing where they were done. So a
//! batch works alike over every layout and discipline, its size is bounded by a record's and not by a log's, and what it costs
//! besides its writes are two fences and its bytes once more.
//!
//! Over a medium of groups none of this is needed: the lock is held until all is changed, and a group is whole or absent.
//!
//! Nobody sees half of a batch meanwhile: see [`crate::before`].
//!
//! | fence passed | may be on the medium | recovery |
//! |---|---|---|
//! | none | some of the record | nobody owns the record: its block is free |
//! | payload | the record; the word or not | old tree, or the batch is carried out |
//! | commit | the word, some of the writes | the batch is carried out |
//! | commit of the clearing | everything | nothing to do |
//!
//! Invariants:
//! * A batch is refused before it changes anything if a condition does not hold, a key's path is damaged, or room is lacking:
//!   in memory for its blocks and for the nodes of every split that it may need, in a group for the lines.
//! * If it fails all the same behind its commit point, the tree takes no more writes and readers see what was before it: over
//!   groups it is taken back, else the next open finishes it.

use pmem::alloc::Kind;
use pmem::region::BATCH_AT;
use pmem::sync::{AtomicU8, Ordering};
use pmem::{Error, LINE, Medium, Region, Result, record};

use crate::before::Pair;
use crate::discipline::Discipline;
use crate::group::WriteOptions;
use crate::layout::{Layout, Layouts};
use crate::many::{WAVE, Write, WriteOf};
use crate::schema::Schema;
use crate::search::Scalar;
use crate::shape::{Edit, Link, Node};
use crate::sorting::sort_by_first;
use crate::tree::{BROKEN, FAILED, Tree, Writer};

/// Stands for the length of a value where the key is removed.
const REMOVED: u32 = u32::MAX;
/// Nodes that are taken before others are given back.
const NODES_MORE: u64 = 4;

/// What a batch may need room for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
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

impl<M: Medium, S: Schema, L: Layouts, D: Discipline> Tree<M, S, L, D> {
    /// Puts and removes several keys in one step, if all of `expected` have these values (none: are absent). Of several writes of
    /// one key the last counts. False if it was not done because of a condition.
    ///
    /// # Errors
    /// `TooLarge` if no group or record can hold it, `NoSpace`, `Full`, `ValueBytes`, `Corrupt`: nothing has changed then.
    /// `Unfinished` if it failed behind its commit point: the tree takes no more writes, readers see what was before it, and the
    /// next open finishes it. Over groups it is taken back instead, as by a failed commit, and the error is what was met.
    pub fn batch(&self, writes: Vec<Pair<S>>, expected: &[Pair<S>], how: WriteOptions) -> Result<bool> {
        for value in writes.iter().filter_map(|(_, value)| value.as_ref()) {
            S::check_value(S::borrow_value(value), self.leaf.payload_words)?;
        }
        let writes = last_of_each::<S>(writes);
        let written_down =
            (D::DURABLE && self.pending.is_none() && writes.len() > 1).then(|| encode::<S>(&writes));
        if let Some(bytes) = &written_down
            && bytes.len() as u64 > record::VALUE_BYTES_MAX
        {
            let words = |bytes: u64| (bytes / 8) as usize;
            return Err(Error::TooLarge {
                records: words(bytes.len() as u64),
                limit: words(record::VALUE_BYTES_MAX),
            });
        }
        let (mut writer, before, extent) = loop {
            let writer = self.enter(0)?;
            if !self.holds(expected)? {
                // What was decided on may be of the running group.
                self.leave(writer, how)?;
                return Ok(false);
            }
            // What readers are given in place of the batch has to be durable. They are given nothing in place of a single write.
            if let Some(pending) = &self.pending
                && writes.len() > 1
                && pending.has_any(writes.iter().map(|(key, _)| S::hash(S::borrow(key))))
            {
                let ticket = pending.ticket();
                drop(writer);
                self.settle(pending, ticket)?;
                continue;
            }
            let (before, extent) = self.survey(&writes)?;
            if self.has_room_for(&extent)? {
                break (writer, before, extent);
            }
            if let Some(pending) = &self.pending {
                let ticket = pending.ticket();
                drop(writer);
                self.settle(pending, ticket)?;
            }
        };
        self.prepare_batch(&mut writer, &writes, &extent, written_down.as_ref().map_or(0, Vec::len) as u64)?;
        if let [write] = writes.as_slice() {
            self.write_wave(&mut writer, &[write_of::<S>(write)], &mut [false])?;
        } else if !writes.is_empty() {
            let record = match &written_down {
                Some(bytes) => Some(self.write_down(&mut writer, bytes)?),
                None => None,
            };
            self.batches.begin(before);
            let unfinished =
                Unfinished { state: &self.state, then: if self.pending.is_some() { BROKEN } else { FAILED } };
            if let Err(error) = self.carry_out(&mut writer, &writes, record) {
                drop(unfinished);
                let Some(pending) = &self.pending else {
                    return Err(if record.is_some() {
                        Error::Unfinished { why: error.to_string() }
                    } else {
                        error
                    });
                };
                let ticket = pending.ticket();
                drop(writer);
                // A leader, this one or another, takes it back; a group before it may still be on its way.
                let _ = self.settle(pending, ticket);
                return Err(error);
            }
            std::mem::forget(unfinished);
            self.batches.end();
        }
        self.leave(writer, how)?;
        Ok(true)
    }

    /// True if all of these keys have these values. The writer's lock is held.
    fn holds(&self, expected: &[Pair<S>]) -> Result<bool> {
        let mut value = S::ValueBuf::default();
        for (key, expected) in expected {
            let found = self.look(S::borrow(key), Some(&mut value))?.found;
            let found = found.then(|| S::borrow_value(&value));
            if found != expected.as_ref().map(S::borrow_value) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the keys of a batch, in ascending order, are now, and what room it needs. The writer's lock is held.
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
            // goes to its neighbour; merges for less are not made where room is lacking.
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
                    Some(record::needs(Kind::Record, key_bytes, bytes_of::<S>(value), chunk_bytes))
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

    /// Sees to it that the blocks of a batch can be taken, whatever splits come of it, and a record of so many bytes.
    fn prepare_batch(
        &self,
        writer: &mut Writer<S>,
        writes: &[Pair<S>],
        extent: &Extent,
        written_down: u64,
    ) -> Result<()> {
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let node_bytes = self.leaf.bytes();
        let levels = self.link(self.root())?.level as u64;
        let splits = extent.turns.min(extent.inserts);
        let copies = if D::COPIES_LEAVES { NODES_MORE } else { 0 };
        let inner = if splits > 0 { splits * 2 + levels + NODES_MORE } else { 0 };
        let separators = if S::PLAIN { 0 } else { inner };
        let nodes = [(Kind::Leaf, node_bytes, splits + copies), (Kind::Inner, node_bytes, inner)];
        let separator = record::needs(Kind::Separator, extent.key_bytes, 0, chunk_bytes)[0].1;
        let separators = (Kind::Separator, separator, separators);
        let down = record::needs(Kind::Batch, 0, written_down, chunk_bytes);
        let down = down.into_iter().filter(|_| written_down > 0);
        let records = writes.iter().filter(|_| !S::PLAIN).filter_map(|(key, value)| {
            let key_bytes = S::key_bytes(S::borrow(key)).as_ref().len() as u64;
            Some(record::needs(Kind::Record, key_bytes, bytes_of::<S>(value.as_ref()?), chunk_bytes))
        });
        let needs = nodes.into_iter().chain([separators]).chain(down).chain(records.flatten());
        let needs = needs.filter(|(.., blocks)| *blocks > 0);
        writer.allocator.prepare(&self.region, &mut writer.log, needs)
    }

    /// Writes a batch down and names it: its commit point. Returns its record.
    fn write_down(&self, writer: &mut Writer<S>, bytes: &[u8]) -> Result<u64> {
        let side = &mut *writer;
        let at = record::write(&self.region, &mut side.allocator, &mut side.log, Kind::Batch, &[], bytes)
            .map_err(|error| self.give_up(writer, error))?;
        name::<M>(writer.edit(0), at);
        self.change(writer, 1)?;
        Ok(at)
    }

    /// Makes all writes of a batch, and forgets the batch.
    fn carry_out(&self, writer: &mut Writer<S>, writes: &[Pair<S>], record: Option<u64>) -> Result<()> {
        for some in writes.chunks(WAVE) {
            let wave: Vec<WriteOf<'_, S>> = some.iter().map(write_of::<S>).collect();
            self.write_wave(writer, &wave, &mut [false; WAVE][..wave.len()])?;
        }
        let Some(at) = record else { return Ok(()) };
        record::give(&self.region, &mut writer.allocator, at).map_err(|error| self.give_up(writer, error))?;
        name::<M>(writer.edit(0), 0);
        self.change(writer, 1)
    }

    /// Finishes the batch that a crash cut short, if there is one. Nobody else has the tree yet.
    pub(crate) fn finish_batch(&self) -> Result<()> {
        let at = self.region.batch()?;
        if at == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let sound = record::read(self.region.medium(), at, None, &mut bytes);
        let writes = sound.then(|| decode::<S>(&bytes)).flatten();
        let writes = writes.ok_or(Error::Corrupt { what: "record of a batch", at })?;
        let mut writer = self.lock_writer()?;
        let (_, extent) = self.survey(&writes)?;
        // Without room for the worst there may be enough: some of it may be done, and what lacks here was there before the crash.
        match self.prepare_batch(&mut writer, &writes, &extent, 0) {
            Err(Error::NoSpace { .. } | Error::Full { .. }) => {}
            other => other?,
        }
        self.carry_out(&mut writer, &writes, Some(at))?;
        // Of a tree that is recovered a second recovery stores nothing.
        writer.log.settle(self.region.medium());
        Ok(())
    }

    /// Lines that a split or merge of a leaf may store to, with what comes of it above, where keys have so many bytes.
    pub(crate) fn lines_of_turn(&self, key_bytes: u64) -> u64 {
        let levels = Link::read(self.region.medium(), self.root()).map_or(0, |link| link.level) as u64;
        crate::group::nodes_of_operation(levels) * (self.region.identity().node_lines + key_bytes / LINE + 4)
    }
}

/// Ends a tree's writes when it is dropped: with an error, or a panic, in the midst of a batch.
struct Unfinished<'a> {
    state: &'a AtomicU8,
    then: u8,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.state.store(self.then, Ordering::Release);
    }
}

/// Writes the edit that makes a record the running batch, or 0 none.
fn name<M: Medium>(edit: &mut Edit, at: u64) {
    edit.start(Node(pmem::region::ROOT_AT), LINE);
    edit.switch.push((BATCH_AT, Region::<M>::root_word(at)));
}

/// Sorts the writes of a batch by key; of several of one key the last stays.
pub fn last_of_each<S: Schema>(mut writes: Vec<Pair<S>>) -> Vec<Pair<S>> {
    sort_by_first(&mut writes); // stable: of one key in the order of the batch
    let mut kept: Vec<Pair<S>> = Vec::with_capacity(writes.len());
    for write in writes {
        match kept.last_mut() {
            Some(last) if last.0 == write.0 => *last = write,
            _ => kept.push(write),
        }
    }
    kept
}

/// A pair of a batch as a write.
pub fn write_of<S: Schema>((key, value): &Pair<S>) -> WriteOf<'_, S> {
    match value {
        Some(value) => Write::Put(S::borrow(key), S::borrow_value(value)),
        None => Write::Delete(S::borrow(key)),
    }
}

fn bytes_of<S: Schema>(value: &S::ValueBuf) -> u64 {
    S::value_bytes(S::borrow_value(value)).as_ref().len() as u64
}

/// Each write: the lengths of key and value, 4 bytes each, then key and value.
pub fn encode<S: Schema>(writes: &[Pair<S>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in writes {
        let key = S::key_bytes(S::borrow(key));
        let value = value.as_ref().map(|value| S::value_bytes(S::borrow_value(value)));
        let value = value.as_ref().map(AsRef::as_ref);
        bytes.extend((key.as_ref().len() as u32).to_le_bytes());
        bytes.extend(value.map_or(REMOVED, |value| value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key.as_ref());
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    bytes
}

/// What [`encode`] wrote; `None` if it was something else.
pub fn decode<S: Schema>(mut bytes: &[u8]) -> Option<Vec<Pair<S>>> {
    let mut writes = Vec::new();
    while !bytes.is_empty() {
        let mut length = || -> Option<u32> {
            let (length, rest) = bytes.split_first_chunk()?;
            bytes = rest;
            Some(u32::from_le_bytes(*length))
        };
        let (key_bytes, value_bytes) = (length()?, length()?);
        let (key, rest) = bytes.split_at_checked(key_bytes as usize)?;
        let (value, rest) = match value_bytes {
            REMOVED => (None, rest),
            value_bytes => {
                let (value, rest) = rest.split_at_checked(value_bytes as usize)?;
                (Some(S::value_of(value)?), rest)
            }
        };
        writes.push((S::key_of(key)?, value));
        bytes = rest;
    }
    Some(writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Prefixed, Words};

    #[test]
    fn what_is_written_down_is_read_again_and_nothing_else_is() {
        let words = vec![(3, Some(4)), (5, None), (u64::MAX, Some(u64::MAX))];
        assert_eq!(decode::<Words>(&encode::<Words>(&words)), Some(words));
        let strings =
            vec![(b"a".to_vec(), Some(Vec::new())), (b"bc".to_vec(), Some(vec![7; 300])), (vec![0], None)];
        let bytes = encode::<Prefixed>(&strings);
        assert_eq!(decode::<Prefixed>(&bytes).as_ref(), Some(&strings));
        for cut in (1..bytes.len()).filter(|cut| ![9, 9 + 8 + 302].contains(cut)) {
            assert_eq!(decode::<Prefixed>(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(decode::<Words>(&encode::<Prefixed>(&strings)), None);
    }

    #[test]
    fn of_several_writes_of_a_key_the_last_counts() {
        let writes = vec![(2, Some(1)), (1, Some(1)), (2, None), (1, Some(3)), (2, Some(4))];
        assert_eq!(last_of_each::<Words>(writes), [(1, Some(3)), (2, Some(4))]);
    }
}
