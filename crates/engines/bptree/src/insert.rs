//! Insert, upsert, update in place [wB+ §4.3].

use std::borrow::Borrow;

use pmem::{Error, LINE, Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::search::{Search, dispatch};
use crate::shape::{LEVELS_MAX, Link, Node};
use crate::tree::{Tree, Writer};
use index::Schema;
use index::Target;
use index::{Batching, Decision, Life, WriteOptions};
use index::{Entry, Tail};

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Descends as the writer. Records the path in `writer.own.path`.
    #[inline(always)]
    pub(crate) fn descend<V: Search>(
        &self,
        writer: &mut Writer<S>,
        target: Target<S::Probe<'_>>,
    ) -> Result<Node> {
        let (medium, shape) = (self.region.medium(), &self.inner_for::<V>());
        let mut node = self.root();
        let region_bytes = medium.len();
        writer.own.path.clear();
        let mut above = None;
        for _ in 0..LEVELS_MAX {
            // At a damaged address the medium may still return data: zeros beyond the region, an alias of a node far beyond it, and the
            // containing word at an odd address. It does not accept stores at such addresses.
            let is_node = node.0 < region_bytes && node.0.is_multiple_of(LINE);
            let link = Link::below(medium, node, above).filter(|_| is_node);
            let Some(link) = link else {
                return Err(Error::Corrupt { what: "node", at: node.0 });
            };
            if link.level == 0 {
                return Ok(node);
            }
            let (rank, child, _) = self.child::<V>(node, link.node, target);
            writer.own.path.push(node, rank);
            above = Some(link.level);
            V::prefetch(medium, shape, child);
            node = child;
        }
        Err(Error::Corrupt { what: "path deeper than any tree, at node", at: node.0 })
    }

    #[inline(always)]
    pub(crate) fn put_with<V: Search>(
        &self,
        writer: &mut Writer<S>,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.leaf_for::<V>());
        let probe = S::probe(key);
        let mut leaf = self.descend::<V>(writer, Target::Holding(probe))?;
        let located = L::Leaf::place::<_, S, V>(medium, shape, leaf, probe);
        if let Some(index) = located.hit {
            self.replace(writer, leaf, index, key, value)?;
            return Ok(true);
        }
        self.confirm_leaf::<V>(leaf, located.rank, probe)?;
        if D::STEPWISE_SPLITS && L::Leaf::count(medium, shape, leaf) == shape.capacity {
            self.split_stepwise(writer, leaf, probe)?;
            leaf = self.descend::<V>(writer, Target::Holding(probe))?;
            return self.insert_into::<V>(writer, leaf, None, key, value);
        }
        self.insert_into::<V>(writer, leaf, Some(located.rank), key, value)
    }

    /// Inserts a new key into a leaf, at this rank if it is known. Returns false: no value was replaced.
    #[inline(always)]
    fn insert_into<V: Search>(
        &self,
        writer: &mut Writer<S>,
        leaf: Node,
        rank: Option<usize>,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.leaf_for::<V>());
        let probe = S::probe(key);
        let rank = match rank {
            Some(rank) => rank,
            None => L::Leaf::place::<_, S, V>(medium, shape, leaf, probe).rank,
        };
        let entry = S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value)
            .map_err(|error| self.give_up(writer, error))?;
        if L::Leaf::count(medium, shape, leaf) >= shape.capacity {
            self.split_leaf(writer, leaf, probe, entry)?;
        } else if D::COPIES_LEAVES {
            self.insert_into_copy(writer, leaf, probe, entry)?;
        } else {
            L::Leaf::insert::<_, S, S::Tail>(medium, shape, leaf, rank, &entry, &mut writer.own.edits[0]);
            self.change(writer, 1)?;
        }
        self.count_key(writer, key, true);
        Ok(false)
    }

    /// Updates in place. A word is one publish. A record is written first; then its address is published.
    #[inline(never)]
    fn replace(
        &self,
        writer: &mut Writer<S>,
        leaf: Node,
        index: usize,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<()> {
        self.prepare_update(writer, 0, leaf, index, key, value)?;
        self.change(writer, 1)
    }

    /// Writes edit `number`: entry `index` of a leaf gets this value. On an error the operation is aborted.
    pub(crate) fn prepare_update(
        &self,
        writer: &mut Writer<S>,
        number: usize,
        leaf: Node,
        index: usize,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<()> {
        let old = self.entry_at(0, leaf, index);
        let new = S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value)
            .map_err(|error| self.give_up(writer, error))?;
        self.give_entry(writer, &old)?;
        let edit = writer.edit(number);
        edit.start(leaf, self.leaf.bytes());
        // The words of an inline value of several words must change together.
        edit.independent = S::Tail::EMPTY;
        let place = |(number, word)| (self.leaf.entry_word_at(leaf, index, number), word);
        edit.switch.extend(S::replace(&old, &new).map(place));
        Ok(())
    }

    /// Frees the records of an entry that the running operation removes. On an error the operation is aborted.
    pub(crate) fn give_entry(&self, writer: &mut Writer<S>, old: &Entry<S::Tail>) -> Result<()> {
        for block in S::blocks_of(old) {
            pmem::record::give(&self.region, &mut writer.allocator, block)
                .map_err(|error| self.give_up(writer, error))?;
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn put_locked(&self, writer: &mut Writer<S>, key: &S::Key, value: &S::Value) -> Result<bool> {
        S::check_value(value, self.leaf.payload_words)?;
        dispatch!(self, V => self.put_with::<V>(writer, key, value))
    }

    /// Stores `value` under `key`. True if a value was replaced. Durable on return.
    ///
    /// # Errors
    /// `NoSpace`, `Full`, `TooLarge`, `ValueBytes`, `Closed`, `ReadOnly`, `Failed`: nothing has changed. `Corrupt` if the path is damaged.
    pub fn put(&self, key: &S::Key, value: &S::Value) -> Result<bool> {
        self.put_as(key, value, WriteOptions::default())
    }

    /// As [`Tree::put`], with the durability that `how` selects.
    ///
    /// # Errors
    /// As [`Tree::put`], and as [`Life::commit`].
    pub fn put_as(&self, key: &S::Key, value: &S::Value, how: WriteOptions) -> Result<bool> {
        let mut writer = self.enter(S::record_bytes(key, value))?;
        self.save_image(key)?;
        self.note_key(key);
        let replaced = self.put_locked(&mut writer, key, value)?;
        self.leave(writer, how)?;
        Ok(replaced)
    }

    /// Reads and changes one key in one step, without another write in between. `decide` must not use the tree. It is called again if its
    /// decision needs space that must first be made.
    ///
    /// # Errors
    /// As [`Tree::put_as`].
    pub fn update<W: Borrow<S::Value>>(
        &self,
        key: &S::Key,
        mut decide: impl FnMut(Option<&S::Value>) -> Decision<W>,
        how: WriteOptions,
    ) -> Result<()> {
        let mut value = S::ValueBuf::default();
        let mut bytes = 0;
        loop {
            let mut writer = self.enter(bytes)?;
            let found = self.look(key, Some(&mut value))?.found;
            match writer.outside(|| decide(found.then(|| S::borrow_value(&value)))) {
                // The value that `decide` saw may belong to the running group, so this waits for it.
                Decision::Keep => {}
                Decision::Put(new) => {
                    bytes = S::record_bytes(key, new.borrow());
                    if !self.has_space(1, bytes)? {
                        continue;
                    }
                    self.save_image(key)?;
                    self.note_key(key);
                    self.put_locked(&mut writer, key, new.borrow())?;
                }
                Decision::Delete => {
                    self.save_image(key)?;
                    self.note_key(key);
                    self.delete_locked(&mut writer, key)?;
                }
            }
            return self.leave(writer, how);
        }
    }
}
