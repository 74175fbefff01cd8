//! Bulk load with a fill factor: leaves are written whole and appended to the right end of the tree one by one.
//!
//! Each leaf costs two fences: one for its content, one for the commit that links it and inserts its separator. (Single inserts with
//! write-atomic commits cost three fences per entry.) A crash keeps the leaves that were appended. The load is durable from left to right,
//! and no block leaks.

use pmem::region::INTENTS;
use pmem::{Error, Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::Layouts;
use crate::search::Scalar;
use crate::shape::{Link, Node, Placed};
use crate::split::Rising;
use crate::tree::{Tree, Writer};
use index::Schema;
use index::Target;
use index::{Batching, Life, WriteOptions};

/// Blocks reserved for the nodes and separators above a leaf.
const BLOCKS_ABOVE: usize = 32;

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Loads pairs with distinct keys in ascending order, all above every key in the tree. The iterator must not use the tree. Leaves get
    /// `fill` (0.1 to 1.0) of their capacity. A leaf of byte strings gets at most 96 entries, because one change references a bounded
    /// number of blocks. Returns the number of keys loaded.
    ///
    /// # Errors
    /// `Order` at the first key that is not above the one before it. Otherwise as [`Tree::put`]. Keys that were loaded before stay.
    pub fn bulk_load<'a>(
        &self,
        pairs: impl IntoIterator<Item = (&'a S::Key, &'a S::Value)>,
        fill: f64,
    ) -> Result<u64>
    where
        S::Key: 'a,
        S::Value: 'a,
    {
        let loaded = self.load(pairs, fill);
        // The loaded keys stay also after an error, so they must be durable.
        let durable = if self.pending.is_some() { self.commit() } else { Ok(()) };
        let loaded = loaded?;
        durable?;
        Ok(loaded)
    }

    /// Number of keys that [`Tree::bulk_load`] puts into a leaf.
    pub fn bulk_leaf(&self, fill: f64) -> usize {
        let full = ((self.leaf.capacity as f64 * fill.clamp(0.1, 1.0)) as usize).max(1);
        // Each byte string takes a block, and the levels above take some more.
        if S::PLAIN { full } else { full.min(INTENTS - BLOCKS_ABOVE) }
    }

    fn load<'a>(&self, pairs: impl IntoIterator<Item = (&'a S::Key, &'a S::Value)>, fill: f64) -> Result<u64>
    where
        S::Key: 'a,
        S::Value: 'a,
    {
        let mut writer = self.enter(0)?;
        let batch = self.bulk_leaf(fill);
        let mut loaded = 0;
        let mut entries: Vec<Placed<S::Tail>> = Vec::with_capacity(batch);
        let mut keys: Vec<&S::Key> = Vec::with_capacity(batch);
        let mut last: Option<&S::Key> = None;
        for (key, value) in pairs {
            let ascending = match last {
                Some(last) => S::order_probe(S::probe(key), last).is_gt(),
                None => self.is_above_all(key)?,
            };
            if !ascending {
                self.append_leaf(&mut writer, &mut entries, &mut keys)?;
                return Err(Error::Order { loaded });
            }
            if let Err(error) = S::check_value(value, self.leaf.payload_words) {
                self.append_leaf(&mut writer, &mut entries, &mut keys)?;
                return Err(error);
            }
            last = Some(key);
            let bytes = S::record_bytes(key, value);
            let space = self.has_space(1, bytes);
            if !matches!(space, Ok(true)) {
                self.append_leaf(&mut writer, &mut entries, &mut keys)?;
                self.leave(writer, WriteOptions::default())?;
                space?;
                writer = self.enter(bytes)?;
                // Other writers may have written meanwhile.
                if !self.is_above_all(key)? {
                    return Err(Error::Order { loaded });
                }
            }
            let side = &mut *writer;
            let entry = S::make(&self.region, &mut side.allocator, &mut side.log, key, value)
                .map_err(|error| self.give_up(side, error))?;
            entries.push(Placed::new(entry));
            keys.push(key);
            loaded += 1;
            if entries.len() == batch {
                self.append_leaf(&mut writer, &mut entries, &mut keys)?;
            }
        }
        self.append_leaf(&mut writer, &mut entries, &mut keys)?;
        Ok(loaded)
    }

    fn is_above_all(&self, key: &S::Key) -> Result<bool> {
        let mut cursor = self.cursor().unsettled();
        cursor.seek(std::ops::Bound::Unbounded, true);
        let mut greatest = S::KeyBuf::default();
        Ok(!cursor.next_key(&mut greatest)? || S::order_probe(S::probe(key), S::borrow(&greatest)).is_gt())
    }

    fn append_leaf(
        &self,
        writer: &mut Writer<S>,
        entries: &mut Vec<Placed<S::Tail>>,
        keys: &mut Vec<&S::Key>,
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        keys.iter().try_for_each(|key| self.save_image(key))?;
        keys.iter().for_each(|key| self.note_key(key));
        let prepared = self.prepare_append(writer, entries);
        self.change_prepared(writer, prepared)?;
        for key in keys.drain(..) {
            self.count_key(writer, key, true);
        }
        entries.clear();
        Ok(())
    }

    fn prepare_append(
        &self,
        writer: &mut Writer<S>,
        entries: &[Placed<S::Tail>],
    ) -> Result<(usize, Option<Node>)> {
        let last = self.descend::<Scalar>(writer, Target::Last)?;
        let old = self.placed(0, last);
        let end = Link { node: Node(0), level: 0 };
        let Some(greatest) = old.last() else {
            // Only the root of an empty tree is an empty leaf. It gets the entries.
            self.compose(last, entries, end, writer.edit(0));
            return Ok((1, None));
        };
        let leaf = self.take_node(writer, 0)?;
        let first = &entries[0].entry;
        let key = S::separate(&self.region, &mut writer.allocator, &mut writer.log, &greatest.entry, first)?;
        self.compose_new(writer, 0, leaf, entries, end);
        self.compose(last, &old, Link { node: leaf, level: 0 }, writer.edit(1));
        self.raise(writer, 2, Rising { key, left: None, right: leaf, appending: true })
    }
}
