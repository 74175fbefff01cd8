//! Many keys at once: their descents go down together, level by level, so that the cache misses of one are waited for while
//! those of the others are; and changes of different leaves share their fences.
//!
//! Changes come in *write groups*: as many operations as touch different leaves that have space, looked up together, made durable by one
//! change of the commit protocol; then the full leaves among them, split together in one commit. What shares a leaf with another
//! operation of its write group, leaves it too empty or would split more than a leaf is done by itself behind the write group; so operations
//! on one key keep their order. Each operation is durable when the call returns,
//! and each by itself is whole or absent after a crash before that: a write group is no atomic batch.

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

/// Descents in flight: what a processor has buffers for, and some more that wait.
pub(crate) const LANES: usize = 16;
/// Writes of a write group: a bit each.
pub(crate) const GROUP_WRITES: usize = 64;
/// Blocks that a write group may name, with those of one operation more: fewer than an operation's intents.
const GROUP_BLOCKS: usize = INTENTS - 8;
/// Leaves that are split in one commit.
const SPLITS: usize = 12;
/// Children of nodes up to this level are asked for; what is above them is in the cache.
const PREFETCHED: usize = 2;
/// Records beyond this are written alone: in pieces, with fences of their own.
const RECORD_BYTES_MAX: u64 = 4096;

/// A write group's leaves, each with the look that was taken at it, and the bits of those who lost their way.
type Arrived = ([(Node, Version); LANES], u32);

/// True if there may be space for one write after the other where there is none for all at once: for words in a log, for blocks
/// that the first of them would give back.
fn is_crowded(error: &Error) -> bool {
    matches!(error, Error::TooLarge { .. } | Error::NoSpace { .. } | Error::Full { .. })
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Copies the values of many keys, in their order; `None` for an absent one. Of each atomic batch all is seen or nothing.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get_many(&self, keys: &[&S::Key]) -> Result<Vec<Option<S::ValueBuf>>> {
        let mut values = Vec::with_capacity(keys.len());
        self.get_each(keys, &mut |value| {
            values.push(value);
            true
        })?;
        Ok(values)
    }

    /// As [`Tree::get_many`], one value after the other, until `give` returns false: for values that together would be too much.
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

    /// Lets the processor bring in what reads of these keys will touch, as far as their leaves.
    pub fn prefetch(&self, keys: &[&S::Key]) {
        for keys in keys.chunks(LANES) {
            self.descend_together::<Scalar>(keys.len(), |i| keys[i]);
        }
    }

    /// Calls `arrived` with the number of each key, and its leaf with the look that was taken at it (`None` for who lost his way),
    /// until that returns false. The leaves of a write group are on their way while the next write group goes down.
    ///
    /// # Errors
    /// What `arrived` says.
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

    /// The leaves of up to [`LANES`] keys. Their lines are on their way.
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
                // A request waits for the walk through the page tables, and what is behind it waits for the request: so first a
                // line of each node, with nothing in between, that as many walks as can be are under way.
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

    /// Values of keys as of a moment. Who loses his way beside a writer starts again alone.
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
                let found = arrived.and_then(|(leaf, version)| {
                    let value = self.leaf_value::<V>(shape, leaf, key)?;
                    let pending = self.pending.as_ref();
                    let durable = || pending.is_none_or(|pending| !pending.may_wait_for_node(leaf.0));
                    (self.stripes.check(version) && durable()).then_some(value)
                });
                let found = match found {
                    Some(value) => value,
                    None => {
                        let mut value = S::ValueBuf::default();
                        self.get(key, Some(&mut value))?.then_some(value)
                    }
                };
                // After the validation: a batch that shows in what was read has its images by now.
                Ok(give(now.replaced(key)?.unwrap_or(found)))
            },
        )
    }

    /// What a leaf says of a key; `None` if it makes no sense or may be the leaf of other keys (a race, or damage: who asks alone will
    /// be told).
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
        let mut value = S::ValueBuf::default();
        S::read_value(medium, &shape.entry(medium, leaf, index), &mut value).then_some(Some(value))
    }

    /// Carries out many writes, in order where they are of one key. Returns for each whether its key was there. With
    /// [`WriteOptions::sync`] all of them are durable when it returns.
    ///
    /// # Errors
    /// As [`Tree::put_as`] and [`Tree::delete_as`]; some of the writes are done then, others not.
    pub fn write_many(&self, writes: &[WriteOf<'_, S>], how: WriteOptions) -> Result<Vec<bool>> {
        let mut was_there = vec![false; writes.len()];
        for write in writes {
            if let Write::Put(_, value) = write {
                S::check_value(value, self.leaf.payload_words)?;
            }
        }
        let mut done = 0;
        while done < writes.len() {
            // As many as the running group has space for, and at least one.
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
            self.write_group(&mut writer, &rest[..count], &mut was_there[done..])?;
            self.move_some(&mut writer);
            done += count;
            if done == writes.len() {
                self.leave(writer, how)?;
            }
        }
        Ok(was_there)
    }

    /// Up to [`GROUP_WRITES`] writes, with the writer's lock held.
    pub(crate) fn write_group(
        &self,
        writer: &mut Writer<S>,
        writes: &[WriteOf<'_, S>],
        was_there: &mut [bool],
    ) -> Result<()> {
        self.save_images(writes)?;
        let mut alone = u64::MAX;
        // A constant of the types: what is not wanted is not compiled.
        if const { D::SHARES_FENCES } && writes.len() > 1 {
            alone = dispatch!(self, V => self.write_together::<V>(writer, writes, was_there))?;
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

    /// Does together what can be; the others' bits are set in what it returns.
    #[inline(always)]
    fn write_together<V: Search>(
        &self,
        writer: &mut Writer<S>,
        writes: &[WriteOf<'_, S>],
        was_there: &mut [bool],
    ) -> Result<u64> {
        let (medium, shape) = (self.region.medium(), &self.leaf_for::<V>());
        let mut leaves = [self.root(); GROUP_WRITES];
        for (leaves, writes) in leaves.chunks_mut(LANES).zip(writes.chunks(LANES)) {
            // Damage: who goes down alone will say where.
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
            // Behind another operation of this leaf, or in the place of one that could not go along.
            let is_large = record_bytes::<S>(write) > RECORD_BYTES_MAX;
            let is_last = writer.allocator.named() > GROUP_BLOCKS;
            if !is_leaf || is_large || is_last || leaves[..i].contains(&leaf) {
                alone |= 1 << i;
                continue;
            }
            let located = L::Leaf::place::<_, S, V>(medium, shape, leaf, S::probe(write.key()));
            let count = L::Leaf::count(medium, shape, leaf);
            if located.hit.is_none() {
                // Damage: who goes alone will say where.
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

    /// Splits the full leaves that the puts with these bits go to, all in one commit, the new keys with them. Returns the bits of
    /// those that could not go along: behind another one of their parent, or below a parent that is full.
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
