//! Garbage collection, and the removal of the traces of dead versions. One pass does the logical and the physical collection [thesis
//! §4.4.4, algorithm 5; §4.4.5, algorithm 6].
//!
//! An entry that no reader at the horizon ([`crate::pins`]) or later sees is removed: its slot is cleared. Blocks that only this entry
//! references are freed with it, and so are those that only a freed node references.
//!
//! A pass visits the tree in key order, some nodes in each step, under the writer's lock. It clears void slots, revives entries that a dead
//! version ended, and removes second copies of entries. A dead version is one that a crash or a rollback ended; the meta block has a list
//! of intervals of dead versions ([`crate::meta`]). At its end, a complete pass removes from this list the intervals whose traces it
//! removed.
//!
//! | fence passed ([`pmem::Fence`]) | durable | after a crash |
//! |---|---|---|
//! | none | some of the intents; some cleared slots that free no block; some revived entries | slots that free a block are unchanged |
//! | payload | intents; some of the cleared slots and allocation bits | a block is free if no slot references it |
//! | commit | slots and allocation bits | nothing to do |
//!
//! A slot with the last reference to a block is cleared only after the payload fence, which makes the block's intent durable. Intents are
//! the durable list of the blocks that the step frees ([`pmem::alloc`]).

use std::collections::VecDeque;

use index::Target;
use index::{Life, Schema, WriteOptions};
use pmem::alloc::Kind;
use pmem::region::INTENTS;
use pmem::sync::Ordering;
use pmem::{Error, Fence, Medium, Result, record};

use crate::entry_order::Order;
use crate::meta::State;
use crate::named::Named;
use crate::node::{Entry, Header, Node, read_key};
use crate::ordered::{Pass, Tree, Writer};
use crate::version::{Interval, View};

/// Intents that the removal of one entry may need, without those of lower levels.
const RING_SPARE: usize = 8;

/// The state of one step of the collector.
struct Sweep<'a> {
    writer: &'a mut Writer,
    view: View,
    horizon: u64,
    /// True if garbage is removed; false if only traces of dead versions are.
    collects: bool,
    nodes: usize,
    /// Slots that will be cleared after the fence for the intents of their blocks. Until then they look used.
    cleared: Vec<(Node, usize)>,
    /// Leaves that received entries of nodes that are being removed. They reference most of these nodes' records. None of them was freed.
    heirs: VecDeque<Node>,
    alone: Alone,
}

/// The last node that was asked about, and true if exactly one path leads to it.
type Alone = Option<(Node, bool)>;

/// Maximum number of leaves that are searched first: a replaced leaf has two heirs, or shared its heir with a neighbour.
const HEIRS_MAX: usize = 4;

/// Adds an heir at the front.
fn add_heir(heirs: &mut VecDeque<Node>, heir: Node) {
    heirs.truncate(HEIRS_MAX - 1);
    heirs.push_front(heir);
}

/// Maximum slots that wait for a fence.
const CLEARED_MAX: usize = 256;

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Tree<M, S, O> {
    /// Does one step of the collector.
    pub(crate) fn collect_places(&self, nodes: usize) -> Result<bool> {
        let operations = nodes as u64;
        let mut writer = self.enter_for(|writer| {
            Ok(self.lines_of_each(writer, operations) + self.lines_besides(operations, 0))
        })?;
        let done = self.pass_some(&mut writer, nodes, true)?;
        self.promote(&mut writer)?;
        self.acknowledge(writer, WriteOptions { sync: false })?;
        Ok(done)
    }

    /// Removes the traces of dead versions from the whole tree, and no garbage [thesis algorithm 6].
    pub(crate) fn sweep_locked(&self, writer: &mut Writer) -> Result<()> {
        writer.pass = None;
        self.pass_some(writer, usize::MAX, false).map(drop)
    }

    /// Removes garbage from the leaf of `key`, if the leaf is full and contains byte strings. If a change of `key` may split or merge, the
    /// function also removes garbage from inner nodes on the path that have little space. A change calls this first. Returns the leaf if
    /// the change cannot reach inner nodes.
    pub(crate) fn make_space(&self, writer: &mut Writer, key: &S::Key) -> Result<Option<Node>> {
        let view = self.view_now(writer);
        let shape = &self.shape;
        let census = |node: &Node| self.look(*node, &view).census_anyhow::<S>();
        let (path, mut of_leaf) = self.wide(
            #[inline(always)]
            || {
                let path = self.path_in(&view, writer.state.root, S::probe(key))?;
                let of_leaf = census(&path.leaf());
                Ok::<_, Error>((path, of_leaf))
            },
        )?;
        let space = |node: &Node| shape.slots - census(node).used.len();
        let (leaf, inner) = path.split_last().expect("a path ends at a leaf");
        if !S::PLAIN && of_leaf.used.len() == shape.slots {
            self.clean_one(writer, *leaf)?;
            of_leaf = census(leaf);
        }
        // An insert splits a leaf without space. A delete merges a leaf with few entries.
        let has_space = of_leaf.used.len() < shape.slots;
        if inner.is_empty() || (has_space && of_leaf.seen.len() > shape.least + 1) {
            return Ok(Some(*leaf));
        }
        for node in inner.iter().rev().filter(|node| space(node) < 2) {
            self.clean_one(writer, *node)?;
        }
        Ok(None)
    }

    fn clean_one(&self, writer: &mut Writer, node: Node) -> Result<()> {
        let header = Header::read(self.region.medium(), node);
        let level = header.ok_or(Error::Corrupt { what: "node", at: node.0 })?.level;
        let mut sweep = self.sweep(writer, true);
        let outcome = self.clean(&mut sweep, node, level, &[]);
        self.end_step(&mut sweep, outcome)
    }

    /// If all readers see only one child of the root, this child becomes the root.
    pub(crate) fn promote(&self, writer: &mut Writer) -> Result<()> {
        let medium = self.region.medium();
        loop {
            let root = Node(writer.state.root);
            let header = Header::read(medium, root).ok_or(Error::Corrupt { what: "root", at: root.0 })?;
            let view = self.view_now(writer);
            let mut seen = root.used(medium, &self.shape, &view).filter(|(_, e)| view.sees(e.start, e.end));
            if header.level == 0 || seen.next().is_none() || seen.next().is_some() {
                return Ok(());
            }
            self.clean_one(writer, root)?;
            let view = self.view_now(writer);
            let used: Vec<(usize, Entry)> = root.used(medium, &self.shape, &view).collect();
            let [(_, link)] = used[..] else { return Ok(()) };
            if link.start > self.pins.horizon(&self.visible) {
                return Ok(());
            }
            self.stripes.lock(root.0, &mut writer.held);
            let given = writer.allocator.give(&self.region, root.0);
            if given.is_ok() {
                medium.fence(Fence::Payload);
                writer.allocator.flip(&self.region);
                self.switch(writer, State { root: link.payload, ..writer.state });
                writer.allocator.finish(&self.region, &mut writer.log);
            }
            self.stripes.unlock(&mut writer.held);
            given?;
        }
    }

    fn sweep<'a>(&self, writer: &'a mut Writer, collects: bool) -> Sweep<'a> {
        let (view, horizon) = (self.view_now(writer), self.pins.horizon(&self.visible));
        Sweep {
            writer,
            view,
            horizon,
            collects,
            nodes: 0,
            cleared: Vec::new(),
            heirs: VecDeque::new(),
            alone: None,
        }
    }

    /// Ends a step: the blocks that it freed become free. On an error the rest of the step is aborted.
    fn end_step<T>(&self, sweep: &mut Sweep<'_>, outcome: Result<T>) -> Result<T> {
        if outcome.is_ok() {
            self.leave(sweep);
        } else {
            sweep.writer.allocator.abort(&self.region, &mut sweep.writer.log);
            self.stripes.unlock(&mut sweep.writer.held);
        }
        outcome
    }

    fn leave(&self, sweep: &mut Sweep<'_>) {
        let medium = self.region.medium();
        let gives = sweep.writer.allocator.has_pending();
        if gives {
            medium.fence(Fence::Payload);
        }
        for (node, slot) in std::mem::take(&mut sweep.cleared) {
            self.clear_slot(sweep, node, slot);
        }
        if gives {
            sweep.writer.allocator.flip(&self.region);
            medium.fence(Fence::Commit);
            sweep.writer.allocator.finish(&self.region, &mut sweep.writer.log);
        }
        self.stripes.unlock(&mut sweep.writer.held);
    }

    /// Does one step of a pass. True at the end of the pass.
    fn pass_some(&self, writer: &mut Writer, nodes: usize, collects: bool) -> Result<bool> {
        let mut pass = match writer.pass.take() {
            Some(pass) => pass,
            None => self.new_pass(writer),
        };
        let mut sweep = self.sweep(writer, collects);
        let outcome = self.walk(&mut sweep, &mut pass, nodes);
        if !self.end_step(&mut sweep, outcome)? {
            writer.pass = Some(pass);
            return Ok(false);
        }
        if pass.retired == self.own.retired.load(Ordering::Relaxed) {
            self.end_pass(writer, &pass.removes, pass.doubt);
        }
        Ok(true)
    }

    fn new_pass(&self, writer: &Writer) -> Pass {
        let removes = writer.dead.intervals().to_vec();
        Pass {
            removes,
            retired: self.own.retired.load(Ordering::Relaxed),
            doubt: writer.in_doubt,
            ..Pass::default()
        }
    }

    /// Cleans the nodes of the current version from the pass's next leaf on. True at the end of the tree.
    fn walk(&self, sweep: &mut Sweep<'_>, pass: &mut Pass, nodes: usize) -> Result<bool> {
        let medium = self.region.medium();
        loop {
            let mut key = S::KeyBuf::default();
            if let Some(bytes) = &pass.next {
                key = S::key_of(bytes).ok_or(Error::Corrupt { what: "separator", at: 0 })?;
            }
            let probe = S::probe(S::borrow(&key));
            let path = self.path(&sweep.view, sweep.writer.state.root, probe)?;
            let is_first = pass.next.is_none();
            let mut high = None;
            for (depth, node) in path.iter().enumerate() {
                let level = path.len() - 1 - depth;
                let low = Header::at_level(medium, *node, level)?.low;
                let mut own = S::KeyBuf::default();
                // An inner node is visited with the first leaf below it.
                if is_first || (self.key_of_word(low, &mut own) && own == key) {
                    self.clean_all(sweep, pass, *node, level)?;
                }
                if let Some(turn) =
                    path.get(depth + 1).and_then(|_| self.turn(&sweep.view, *node, Target::Holding(probe)))
                {
                    high = turn.high.or(high);
                }
            }
            let Some(high) = high else { return Ok(true) };
            let mut next = S::KeyBuf::default();
            if !self.key_of_word(high, &mut next) || next <= key {
                return Err(Error::Corrupt { what: "separator", at: high });
            }
            pass.next = Some(S::key_bytes(S::borrow(&next)).as_ref().to_vec());
            if sweep.nodes >= nodes {
                return Ok(false);
            }
        }
    }

    /// Cleans a node of the current version, and the nodes below it that only older versions see.
    fn clean_all(&self, sweep: &mut Sweep<'_>, pass: &mut Pass, node: Node, level: usize) -> Result<()> {
        let medium = self.region.medium();
        self.clean(sweep, node, level, &pass.removes)?;
        if level == 0 || (pass.removes.is_empty() && !pass.doubt) {
            return Ok(());
        }
        let mut open: Vec<(Node, usize)> = Vec::new();
        let old = self.left_in(sweep, node).filter(|(_, entry)| !sweep.view.sees(entry.start, entry.end));
        open.extend(old.map(|(_, entry)| (Node(entry.payload), level - 1)));
        while let Some((node, level)) = open.pop() {
            if !pass.met.insert(node) {
                continue;
            }
            Header::at_level(medium, node, level)?;
            self.clean(sweep, node, level, &pass.removes)?;
            if level > 0 {
                open.extend(self.left_in(sweep, node).map(|(_, entry)| (Node(entry.payload), level - 1)));
            }
        }
        Ok(())
    }

    /// The used slots of a node that will not be cleared.
    fn left_in(&self, sweep: &Sweep<'_>, node: Node) -> impl Iterator<Item = (usize, Entry)> {
        let used = node.used(self.region.medium(), &self.shape, &sweep.view);
        used.filter(move |(slot, _)| !sweep.cleared.contains(&(node, *slot)))
    }

    /// Removes the entries of one node that no reader needs.
    fn clean(&self, sweep: &mut Sweep<'_>, node: Node, level: usize, removes: &[Interval]) -> Result<()> {
        let medium = self.region.medium();
        sweep.nodes += 1;
        let mut last: Option<Entry> = None;
        for slot in 0..self.shape.slots {
            let entry = node.entry(medium, slot);
            if entry.start == 0 || sweep.cleared.contains(&(node, slot)) {
                continue;
            }
            if sweep.view.is_void(entry.start) {
                self.clear_slot(sweep, node, slot);
                continue;
            }
            let same =
                |last: Entry| (last.key, last.payload, last.start) == (entry.key, entry.payload, entry.start);
            if last.is_some_and(same) {
                self.clear_slot(sweep, node, slot);
                continue;
            }
            let is_swept = removes.iter().any(|interval| interval.holds(entry.start));
            if (sweep.collects || is_swept) && sweep.view.is_garbage(entry.start, entry.end, sweep.horizon) {
                self.remove(sweep, node, level, slot)?;
                continue;
            }
            let is_removed = |version: u64| {
                version > sweep.view.version || removes.iter().any(|interval| interval.holds(version))
            };
            if entry.end != 0 && is_removed(entry.end) {
                self.stripes.lock(node.0, &mut sweep.writer.held);
                node.set_end(medium, self.persist, slot, 0);
            }
            last = Some(entry);
        }
        Ok(())
    }

    fn clear_slot(&self, sweep: &mut Sweep<'_>, node: Node, slot: usize) {
        self.stripes.lock(node.0, &mut sweep.writer.held);
        node.clear(self.region.medium(), slot);
        node.flush_slot(self.region.medium(), self.persist, slot);
    }

    /// Removes an entry and the blocks that only this entry references.
    fn remove(&self, sweep: &mut Sweep<'_>, node: Node, level: usize, slot: usize) -> Result<()> {
        // Nodes that are being emptied, at most one per level: node, level, slot to clear, and `next`. A child with another reference is
        // kept. Otherwise `next` is the first slot of the child that is not done yet.
        let mut open: Vec<(Node, usize, usize, Option<usize>)> = vec![(node, level, slot, None)];
        while let Some(&(node, level, slot, next)) = open.last() {
            if sweep.writer.allocator.named() + RING_SPARE > INTENTS || sweep.cleared.len() > CLEARED_MAX {
                self.leave(sweep);
            }
            let entry = node.entry(self.region.medium(), slot);
            let root = sweep.writer.state.root;
            let view = sweep.view.clone();
            let named = Named { view: &view, root, except: Some((node, slot)), cleared: &sweep.cleared };
            if level == 0 {
                for block in S::blocks_of(&entry.of_tree()) {
                    let is_named =
                        if open.len() == 1 && self.is_alone(&mut sweep.alone, &named, node, level)? {
                            self.names(&named, Kind::Record, node, block)
                        } else {
                            // The entries of a node that is freed with its link have usually been moved to other nodes.
                            let was_moved = open.len() > 1;
                            (was_moved && self.has_heir(&named, &sweep.heirs, block)) || {
                                let mut key = S::KeyBuf::default();
                                if !read_key::<M, S>(self.region.medium(), entry.words(), &mut key) {
                                    return Err(Error::Corrupt { what: "record", at: block });
                                }
                                (was_moved && self.is_inherited(&named, &mut sweep.heirs, &key, block)?) || {
                                    let namer = self.namer_at(&named, Kind::Record, block, &key, 0)?;
                                    let heir = namer.filter(|heir| was_moved && *heir != node);
                                    heir.into_iter().for_each(|heir| add_heir(&mut sweep.heirs, heir));
                                    namer.is_some()
                                }
                            }
                        };
                    if !is_named {
                        record::give(&self.region, &mut sweep.writer.allocator, block)?;
                    }
                }
            } else {
                let child = Node(entry.payload);
                let kind = if level == 1 { Kind::Leaf } else { Kind::Inner };
                Header::at_level(self.region.medium(), child, level - 1)?;
                let is_named = if next.is_some() {
                    false
                } else if open.len() == 1 && self.is_alone(&mut sweep.alone, &named, node, level)? {
                    self.names(&named, kind, node, child.0)
                } else {
                    self.is_named(&named, kind, child.0)?
                };
                if !is_named {
                    if let Some(owner) = self.next_owner(&view, child, level - 1, next.unwrap_or(0)) {
                        if let Some(last) = open.last_mut() {
                            last.3 = Some(owner + 1);
                        }
                        open.push((child, level - 1, owner, None));
                        continue;
                    }
                    self.stripes.lock(child.0, &mut sweep.writer.held);
                    sweep.heirs.retain(|heir| *heir != child);
                    sweep.nodes += 1;
                    sweep.writer.allocator.give(&self.region, child.0)?;
                }
                if let Some(block) = S::separator_block([entry.key, 0]).filter(|block| *block != 0)
                    && !self.is_named(&named, Kind::Separator, block)?
                {
                    record::give(&self.region, &mut sweep.writer.allocator, block)?;
                }
            }
            if level == 0 && S::PLAIN {
                self.clear_slot(sweep, node, slot);
            } else {
                sweep.cleared.push((node, slot));
            }
            open.pop();
        }
        Ok(())
    }

    /// True if an heir references the record.
    fn has_heir(&self, named: &Named<'_>, heirs: &VecDeque<Node>, block: u64) -> bool {
        heirs.iter().any(|leaf| self.names(named, Kind::Record, *leaf, block))
    }

    /// True if the record is referenced by the key's leaf in the current version. The leaf becomes an heir.
    fn is_inherited(
        &self,
        named: &Named<'_>,
        heirs: &mut VecDeque<Node>,
        key: &S::KeyBuf,
        block: u64,
    ) -> Result<bool> {
        let path = self.path(named.view, named.root, S::probe(S::borrow(key)))?;
        let leaf = path[path.len() - 1];
        if heirs.contains(&leaf) {
            return Ok(false);
        }
        add_heir(heirs, leaf);
        Ok(self.names(named, Kind::Record, leaf, block))
    }

    /// True if the path of the current version is the only one to a node. Then no other node of its level has the same references.
    fn is_alone(&self, known: &mut Alone, named: &Named<'_>, node: Node, level: usize) -> Result<bool> {
        if let Some((of, alone)) = known
            && *of == node
        {
            return Ok(*alone);
        }
        let alone = self.has_one_way(named, node, level)?;
        *known = Some((node, alone));
        Ok(alone)
    }

    fn has_one_way(&self, named: &Named<'_>, node: Node, level: usize) -> Result<bool> {
        let medium = self.region.medium();
        let mut key = S::KeyBuf::default();
        let header = Header::at_level(medium, node, level)?;
        if !named.view.dead.is_empty() || !self.key_of_word(header.low, &mut key) {
            return Ok(false);
        }
        let path = self.path(named.view, named.root, S::probe(S::borrow(&key)))?;
        let Some(way) = path.len().checked_sub(level).map(|length| &path[..length]) else { return Ok(false) };
        if way.last() != Some(&node) {
            return Ok(false);
        }
        Ok(way.windows(2).all(|step| self.has_one_child(named.view, step[0], step[1])))
    }

    /// True if, at every version, no other link of `node` leads keys of `child` to another node. A link that does so has ended. It begins
    /// in the child's range, or it begins below that range and is older than the child's link. A live link may have taken keys from a
    /// neighbour, but gave none away.
    fn has_one_child(&self, view: &View, node: Node, child: Node) -> bool {
        let (mut oldest, mut start) = (u64::MAX, None);
        for (_, link) in self.used_by_key(node, view) {
            match (start, link.end) {
                (None, 0) if link.payload == child.0 => start = Some(link.start),
                (None, 0) => {}
                (None, _) => oldest = oldest.min(link.start),
                (Some(_), 0) => break,
                (Some(_), _) => return false,
            }
        }
        start.is_some_and(|start| start <= oldest)
    }

    /// The next slot of a node whose entry may reference blocks.
    fn next_owner(&self, view: &View, node: Node, level: usize, from: usize) -> Option<usize> {
        if level == 0 && S::PLAIN {
            return None;
        }
        let mut used = node.used(self.region.medium(), &self.shape, view).map(|(slot, _)| slot);
        used.find(|slot| *slot >= from)
    }
}
