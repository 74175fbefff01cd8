//! Operations on many keys at once.
//!
//! The descents of several keys advance together, level by level, so their cache misses overlap. Changes of different leaves share their
//! fences.
//!
//! Writes are done in *write groups*:
//!
//! 1. All keys of the group are looked up.
//! 2. One change of the commit protocol does the writes to different leaves that have space.
//! 3. One commit splits full leaves and inserts their new entries. It splits a leaf only if the leaf's parent has space and gets no other
//!    split in this commit.
//! 4. The remaining writes follow one by one: large records, writes to a leaf that an earlier write of the group uses, deletes that leave a
//!    leaf too empty, splits that step 3 did not do. Two writes to one key go to the same leaf, so step 4 does the later one.
//!
//! With [`WriteOptions::sync`] all operations are durable when the call returns. After a crash during the call, each operation is complete
//! or absent, independently of the others: a write group is not an atomic batch.

use pmem::region::INTENTS;
use pmem::stripe::Version;
use pmem::{Error, LINE, Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::search::{Scalar, Search, dispatch};
use crate::shape::{LEVELS_MAX, Link, Node, Shape};
use crate::tree::{Tree, Writer};
use index::Schema;
use index::Target;
use index::images::View;
use index::write::record_bytes;
use index::{Batching, Life, Write, WriteOf, WriteOptions};

/// Number of concurrent descents: the number of the processor's miss buffers, and some more.
pub(crate) const LANES: usize = 16;
/// Maximum writes of a write group: one bit each.
pub(crate) const GROUP_WRITES: usize = 64;
/// Maximum blocks that a write group may reference before its last operation. It leaves intents for one operation more.
const GROUP_BLOCKS: usize = INTENTS - 8;
/// Maximum number of leaves that are split in one commit.
const SPLITS: usize = 12;
/// Children of nodes up to this level are prefetched. Higher nodes are in the cache.
const PREFETCHED: usize = 2;
/// Larger records are written one by one, because they are written in pieces with their own fences.
const RECORD_BYTES_MAX: u64 = 4096;

/// The leaves of a group of descents with their versions, and the bits of the descents that failed.
type Arrived = ([(Node, Version); LANES], u32);

/// The check that the leaves of a write group have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// The leaves were found but not confirmed: a damaged pointer may have led to another leaf.
    Found,
    /// Since the writer's lock was taken, all of them were confirmed ([`Tree::confirm_leaf`]).
    Confirmed,
}

/// True if the writes may succeed one by one although the whole write group lacks space. It may lack space for log records, or for blocks
/// that an earlier write would free.
fn is_crowded(error: &Error) -> bool {
    matches!(error, Error::TooLarge { .. } | Error::NoSpace { .. } | Error::Full { .. })
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Passes the values of many keys to `give`, in the order of the keys, until it returns false; `None` for an absent key. The call
    /// sees all or nothing of each atomic batch.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get_each(
        &self,
        keys: &[&S::Key],
        give: &mut dyn FnMut(Option<S::ValueBuf>) -> bool,
    ) -> Result<()> {
        let now = self.images.view();
        dispatch!(self, V => self.get_arrived::<V>(keys, &now, give))
    }

    /// Calls `arrived` with the number of each key and its leaf and version (`None` if the descent failed), until it returns false. The
    /// leaves of [`LANES`] descents are prefetched while the next descents advance.
    ///
    /// # Errors
    /// Errors of `arrived`.
    #[inline(always)]
    pub(crate) fn each_arrived<'a, V: Search>(
        &self,
        count: usize,
        key: impl Fn(usize) -> &'a S::Key,
        mut arrived: impl FnMut(usize, Option<(Node, Version)>) -> Result<bool>,
    ) -> Result<()>
    where
        S::Key: 'a,
    {
        let mut before: Option<(usize, Arrived)> = None;
        let mut from = 0;
        loop {
            let group = LANES.min(count - from);
            let next = (group > 0).then(|| (from, self.descend_together::<V>(group, |i| key(from + i))));
            if let Some((first, (lanes, lost))) = before {
                for (i, lane) in lanes.into_iter().enumerate().take(from - first) {
                    if !arrived(first + i, (lost >> i & 1 == 0).then_some(lane))? {
                        return Ok(());
                    }
                }
            }
            if next.is_none() {
                return Ok(());
            }
            from += group;
            before = next;
        }
    }

    /// Finds the leaves of up to [`LANES`] keys and prefetches their lines.
    #[inline(always)]
    fn descend_together<'a, V: Search>(&self, count: usize, key: impl Fn(usize) -> &'a S::Key) -> Arrived
    where
        S::Key: 'a,
    {
        let (medium, inner, leaf) = (self.region.medium(), &self.inner_for::<V>(), &self.leaf_for::<V>());
        let root = self.root();
        let first = self.stripes.read(root.0);
        let mut lanes = [(root, first); LANES];
        let mut lost = if self.root() == root { 0_u32 } else { u32::MAX };
        let mut above = None;
        for _ in 0..LEVELS_MAX {
            let mut level = 0;
            for (i, lane) in lanes[..count].iter_mut().enumerate() {
                let (node, version) = *lane;
                if lost >> i & 1 != 0 {
                    continue;
                }
                let Some(link) = Link::below(medium, node, above) else {
                    lost |= 1 << i;
                    continue;
                };
                if link.level == 0 {
                    continue;
                }
                level = link.level;
                let (_, child, _) = self.child::<V>(node, link.node, Target::Holding(S::probe(key(i))));
                *lane = (child, self.stripes.read(child.0));
                if !self.stripes.check(version) {
                    lost |= 1 << i;
                }
            }
            if level == 0 {
                break;
            }
            above = Some(level);
            if level <= PREFETCHED {
                // A prefetch waits for its page-table walk, and later prefetches wait for it. So one line of each node is requested first,
                // and as many walks as possible overlap.
                for (node, _) in &lanes[..count] {
                    medium.prefetch(node.0, LINE);
                }
                let bytes = if level == 1 { leaf.bytes() } else { inner.bytes() };
                for (node, _) in &lanes[..count] {
                    medium.prefetch(node.0 + LINE, bytes - LINE);
                }
            }
        }
        (lanes, lost)
    }

    /// Passes the values of keys to `give`, as in [`Tree::get_each`]. If a concurrent write made the descent for a key fail, the key is
    /// read again by itself.
    #[inline(always)]
    fn get_arrived<V: Search>(
        &self,
        keys: &[&S::Key],
        now: &View<'_, S>,
        give: &mut dyn FnMut(Option<S::ValueBuf>) -> bool,
    ) -> Result<()> {
        let shape = &self.leaf_for::<V>();
        self.each_arrived::<V>(
            keys.len(),
            |i| keys[i],
            #[inline(always)]
            |i, arrived| {
                let key = keys[i];
                // Not in a closure for the standard library, whose functions are compiled without the vector instructions.
                let found = if let Some((leaf, version)) = arrived
                    && let Some(value) = self.leaf_value::<V>(shape, leaf, key)
                    && self.stripes.check(version)
                    && !self.pending.as_ref().is_some_and(|pending| pending.may_wait_for_node(leaf.0))
                {
                    value
                } else {
                    let mut value = S::ValueBuf::default();
                    self.get(key, Some(&mut value))?.then_some(value)
                };
                // This comes after the validation: if a batch is visible in the value, its before-images exist by now.
                Ok(give(self.replaced(now, key)?.unwrap_or(found)))
            },
        )
    }

    /// The value of a key in a leaf. `None` if the leaf is not sound, or may be the leaf of other keys. The reason is a race or damage; a
    /// single read then reports the damage.
    #[inline(always)]
    pub(crate) fn leaf_value<V: Search>(
        &self,
        shape: &Shape,
        leaf: Node,
        key: &S::Key,
    ) -> Option<Option<S::ValueBuf>> {
        let medium = self.region.medium();
        Link::read(medium, leaf).filter(|link| link.level == 0)?;
        let Some(index) = L::Leaf::find::<_, S, V>(medium, shape, leaf, S::probe(key)) else {
            return self.surrounds::<V>(leaf, S::probe(key)).then_some(None);
        };
        self.value_at(shape, leaf, index).map(Some)
    }

    /// The value of an entry. `None` if its record is not sound.
    #[inline(always)]
    fn value_at(&self, shape: &Shape, leaf: Node, index: usize) -> Option<S::ValueBuf> {
        let (medium, mut value) = (self.region.medium(), S::ValueBuf::default());
        S::read_value(medium, &shape.entry(medium, leaf, index), &mut value).then_some(value)
    }

    /// The value of a key in a leaf, for the writer; `Some(None)` if the key is absent and the leaf is confirmed. `None` after damage: a
    /// single read then reports it.
    #[inline(always)]
    pub(crate) fn confirmed_value(
        &self,
        shape: &Shape,
        leaf: Node,
        key: &S::Key,
    ) -> Option<Option<S::ValueBuf>> {
        let medium = self.region.medium();
        Link::read(medium, leaf).filter(|link| link.level == 0)?;
        let located = L::Leaf::place::<_, S, Scalar>(medium, shape, leaf, S::probe(key));
        let Some(index) = located.hit else {
            return self.confirm_leaf::<Scalar>(leaf, located.rank, S::probe(key)).is_ok().then_some(None);
        };
        self.value_at(shape, leaf, index).map(Some)
    }

    /// Does many writes; writes of one key keep their order. Returns for each write whether its key was present. With
    /// [`WriteOptions::sync`] all of them are durable on return.
    ///
    /// # Errors
    /// As [`Tree::put_as`] and [`Tree::delete_as`]. Then some of the writes are done and others are not.
    pub fn write_many(&self, writes: &[WriteOf<'_, S>], how: WriteOptions) -> Result<Vec<bool>> {
        let mut was_there = vec![false; writes.len()];
        for write in writes {
            if let Write::Put(_, value) = write {
                S::check_value(value, self.leaf.payload_words)?;
            }
        }
        let mut done = 0;
        while done < writes.len() {
            // As many writes as the running group has space for, and at least one.
            let mut bytes = record_bytes::<S>(&writes[done]);
            let mut writer = self.enter(bytes)?;
            let rest = &writes[done..];
            let mut count = 1;
            while let Some(next) = rest.get(count).filter(|_| count < GROUP_WRITES) {
                bytes += record_bytes::<S>(next);
                if !self.has_space_beside(count as u64 + 1, bytes) {
                    break;
                }
                count += 1;
            }
            self.write_group(&mut writer, &rest[..count], &mut was_there[done..], Leaves::Found)?;
            self.move_some(&mut writer);
            done += count;
            if done == writes.len() {
                self.leave(writer, how)?;
            }
        }
        Ok(was_there)
    }

    /// Does up to [`GROUP_WRITES`] writes. The writer's lock is held.
    pub(crate) fn write_group(
        &self,
        writer: &mut Writer<S>,
        writes: &[WriteOf<'_, S>],
        was_there: &mut [bool],
        leaves: Leaves,
    ) -> Result<()> {
        self.save_images(writes)?;
        let mut alone = u64::MAX;
        // A constant of the types: unused code is not compiled.
        if const { D::SHARES_FENCES } && writes.len() > 1 {
            alone = dispatch!(self, V => self.write_together::<V>(writer, writes, was_there, leaves))?;
        }
        for (i, write) in writes.iter().enumerate().filter(|(i, _)| alone >> i & 1 != 0) {
            self.note_key(write.key());
            was_there[i] = match write {
                Write::Put(key, value) => self.put_locked(writer, key, value)?,
                Write::Delete(key) => self.delete_locked(writer, key)?,
            };
        }
        Ok(())
    }

    /// Does the writes that can share fences. Returns the bits of the others.
    #[inline(always)]
    fn write_together<V: Search>(
        &self,
        writer: &mut Writer<S>,
        writes: &[WriteOf<'_, S>],
        was_there: &mut [bool],
        confirmed: Leaves,
    ) -> Result<u64> {
        let (medium, shape) = (self.region.medium(), &self.leaf_for::<V>());
        let mut leaves = [self.root(); GROUP_WRITES];
        for (leaves, writes) in leaves.chunks_mut(LANES).zip(writes.chunks(LANES)) {
            // After damage, the single write reports the place.
            let (lanes, lost) = self.descend_together::<V>(writes.len(), |i| writes[i].key());
            for (i, (leaf, (node, _))) in leaves.iter_mut().zip(lanes).enumerate() {
                *leaf = if lost >> i & 1 == 0 { node } else { Node(0) };
            }
        }
        let (mut alone, mut full) = (0_u64, 0_u64);
        let mut edits = 0;
        let mut changed: [Option<bool>; GROUP_WRITES] = [None; GROUP_WRITES];
        for (i, write) in writes.iter().enumerate() {
            let leaf = leaves[i];
            let is_leaf = Link::read(medium, leaf).is_some_and(|link| link.level == 0);
            // A write to a leaf that an earlier write of the group uses is also done alone, even if that write is done alone.
            let is_large = record_bytes::<S>(write) > RECORD_BYTES_MAX;
            let is_last = writer.allocator.named() > GROUP_BLOCKS;
            if !is_leaf || is_large || is_last || leaves[..i].contains(&leaf) {
                alone |= 1 << i;
                continue;
            }
            let located = L::Leaf::place::<_, S, V>(medium, shape, leaf, S::probe(write.key()));
            let count = L::Leaf::count(medium, shape, leaf);
            if located.hit.is_none() && confirmed == Leaves::Found {
                // After damage, the single write reports the place.
                let confirmed = self.confirm_leaf::<V>(leaf, located.rank, S::probe(write.key()));
                if confirmed.is_err() {
                    alone |= 1 << i;
                    continue;
                }
            }
            match (write, located.hit) {
                (Write::Delete(_), None) => continue,
                (Write::Delete(_), Some(_)) if count - 1 <= shape.capacity / 4 => alone |= 1 << i,
                (Write::Put(..), None) if count >= shape.capacity => full |= 1 << i,
                (Write::Delete(_), Some(index)) => {
                    let old = shape.entry(medium, leaf, index);
                    self.give_entry(writer, &old)?;
                    L::Leaf::remove::<_, S>(medium, shape, leaf, located.rank, index, writer.edit(edits));
                    changed[i] = Some(true);
                    edits += 1;
                }
                (Write::Put(key, value), None) => {
                    let made = S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value);
                    let entry = match made.map_err(|error| self.give_up(writer, error)) {
                        Err(error) if is_crowded(&error) => return Ok(u64::MAX),
                        other => other?,
                    };
                    let edit = writer.edit(edits);
                    L::Leaf::insert::<_, S, S::Tail>(medium, shape, leaf, located.rank, &entry, edit);
                    changed[i] = Some(false);
                    edits += 1;
                }
                (Write::Put(key, value), Some(index)) => {
                    match self.prepare_update(writer, edits, leaf, index, key, value) {
                        Err(error) if is_crowded(&error) => return Ok(u64::MAX),
                        other => other?,
                    }
                    changed[i] = Some(true);
                    edits += 1;
                }
            }
        }
        for (write, _) in writes.iter().zip(&changed).filter(|(_, changed)| changed.is_some()) {
            self.note_key(write.key());
        }
        if edits > 0 {
            match self.change_apart(writer, edits) {
                Err(error) if is_crowded(&error) => return Ok(u64::MAX),
                other => other?,
            }
        }
        for ((i, write), was) in writes.iter().enumerate().zip(&changed) {
            let Some(was) = was else { continue };
            was_there[i] = *was;
            match write {
                Write::Put(key, _) if !was => self.count_key(writer, key, true),
                Write::Delete(key) => self.count_key(writer, key, false),
                Write::Put(..) => {}
            }
        }
        if full != 0 {
            alone |= if D::STEPWISE_SPLITS { full } else { self.split_together(writer, writes, full)? };
        }
        Ok(alone)
    }

    /// Splits the full leaves of the puts with these bits in one commit, and inserts the new keys. Returns the bits of the puts that are
    /// left: their parent is full, or has another split in this commit.
    #[cold]
    fn split_together(&self, writer: &mut Writer<S>, writes: &[WriteOf<'_, S>], full: u64) -> Result<u64> {
        let (mut alone, mut edits) = (full, 0);
        let mut parents: Vec<Node> = Vec::with_capacity(SPLITS);
        for (i, write) in writes.iter().enumerate().filter(|(i, _)| full >> i & 1 != 0) {
            let Write::Put(key, value) = write else { continue };
            let probe = S::probe(key);
            let leaf = self.descend::<Scalar>(writer, Target::Holding(probe));
            let leaf = leaf.map_err(|error| self.give_up(writer, error))?;
            let parent = writer.own.path.steps().last().map(|(parent, _)| *parent);
            let has_space = |parent: &Node| self.count_at(1, *parent) < self.inner.capacity;
            let Some(parent) = parent.filter(|parent| has_space(parent) && !parents.contains(parent)) else {
                continue;
            };
            if parents.len() == SPLITS {
                break;
            }
            let made = S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value);
            let prepared = made.and_then(|entry| self.prepare_split(writer, edits, leaf, probe, Some(entry)));
            match prepared.map_err(|error| self.give_up(writer, error)) {
                Ok((count, _)) => edits = count,
                Err(error) if is_crowded(&error) => return Ok(full),
                Err(error) => return Err(error),
            }
            self.note_key(key);
            parents.push(parent);
            alone &= !(1 << i);
        }
        if edits == 0 {
            return Ok(full);
        }
        match self.change(writer, edits) {
            Err(error) if is_crowded(&error) => return Ok(full),
            other => other?,
        }
        for (_, write) in writes.iter().enumerate().filter(|(i, _)| (full & !alone) >> i & 1 != 0) {
            self.count_key(writer, write.key(), true);
        }
        Ok(alone)
    }
}
