//! Inserts and splits [thesis §4.4.2, algorithms 2 and 3].
//!
//! In the thesis a split ends every entry of the old node. Here it ends only the link to the node. A reader at an older version that still
//! follows the link sees the entries in both cases. (With the option `faithful`, a split ends every entry, as in the thesis.)

use index::Target;
use index::{Schema, WriteOptions};
use pmem::alloc::Kind;
use pmem::sync::Ordering;
use pmem::{Error, Fence, Medium, Result, record};

use crate::entry_order::{Holes, Order};
use crate::mask::Mask;
use crate::named::Named;
use crate::node::{Entry, Header, LEVELS_MAX, Node, compare, compare_words};
use crate::ordered::{Change, Tree};
use crate::simd_scan::SimdScan;

/// A new link: key word and child.
pub(crate) type Link = (u64, Node);

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Tree<M, S, O> {
    pub(crate) fn put_in(&self, change: &mut Change<'_>, key: &S::Key, value: &S::Value) -> Result<bool> {
        let (medium, probe) = (self.region.medium(), S::probe(key));
        let leaf = match change.writer.hint.take() {
            Some(leaf) => leaf,
            None => self.path(&change.view, change.state.root, probe)?.leaf(),
        };
        let writer = &mut *change.writer;
        let made = S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value)?;
        let entry = Entry { key: made.key[0], payload: made.payload, start: change.view.version, end: 0 };
        change.stored = true;
        let (old, place) = self.wide(
            #[inline(always)]
            || self.leaf_place(change, leaf, probe),
        );
        match place {
            Some((place, hole)) => {
                self.stripes.lock(leaf.0, &mut change.writer.held);
                self.drop_records(change, leaf, old);
                self.end(change, leaf, old);
                self.insert_at(change, leaf, place, hole, &entry);
            }
            None => {
                let path = self.path(&change.view, change.state.root, probe)?;
                let (_, path) = path.split_last().expect("a path ends at a leaf");
                let mut live = self.seen_by_key(leaf, &change.view);
                live.retain(|(slot, _)| !old.has(*slot));
                let is_before =
                    |(slot, _): &(usize, Entry)| compare::<M, S>(medium, leaf.slot_at(*slot), probe).is_lt();
                let place = live.partition_point(is_before);
                let mut entries: Vec<Entry> = live.into_iter().map(|(_, entry)| entry).collect();
                entries.insert(place, entry);
                let header = Header::at_level(medium, leaf, 0)?;
                self.drop_records(change, leaf, old);
                let is_last = place + 1 == entries.len();
                change.own.appends =
                    is_last && !self.persist.faithful && self.is_rightmost(change, path, leaf);
                let links = self.make_nodes(change, header, &entries)?;
                self.replace(change, path, &[leaf], &links)?;
                change.own.appends = false;
            }
        }
        change.state.keys += u64::from(old.is_empty());
        Ok(!old.is_empty())
    }

    /// True if the leaf is the last one of the tree.
    fn is_rightmost(&self, change: &Change<'_>, above: &[Node], leaf: Node) -> bool {
        let below = above.iter().skip(1).chain([&leaf]);
        above.iter().zip(below).all(|(node, child)| {
            self.turn(&change.view, *node, Target::Last).is_some_and(|last| last.child == *child)
        })
    }

    /// Ends entries of a node at the change's version. Entries that began at this version were never seen; they are cleared. The caller
    /// holds the node's version lock.
    pub(crate) fn end(&self, change: &Change<'_>, node: Node, slots: Mask) {
        let (medium, version) = (self.region.medium(), change.view.version);
        for slot in slots {
            if node.start(medium, slot) == version {
                node.clear(medium, slot);
                node.flush_slot(medium, self.persist, slot);
            } else {
                node.set_end(medium, self.persist, slot, version);
            }
        }
    }

    /// Records the blocks of entries that began with this change and are about to be ended, or left behind in a replaced leaf.
    pub(crate) fn drop_records(&self, change: &mut Change<'_>, leaf: Node, slots: Mask) {
        for slot in slots {
            let entry = leaf.entry(self.region.medium(), slot);
            if entry.start == change.view.version {
                let of_tree = entry.of_tree();
                change.own.dropped.extend(S::blocks_of(&of_tree).map(|block| (Kind::Record, block)));
            }
        }
    }

    /// Frees the recorded blocks that no other entry references.
    pub(crate) fn give_dropped(&self, change: &mut Change<'_>) -> Result<()> {
        let mut dropped = std::mem::take(&mut change.own.dropped);
        dropped.sort_unstable();
        dropped.dedup();
        for (kind, block) in dropped {
            let named = Named { view: &change.view, root: change.state.root, except: None, cleared: &[] };
            if !self.is_named(&named, kind, block)? {
                let allocator = &mut change.writer.allocator;
                if kind.is_node() {
                    self.stripes.lock(block, &mut change.writer.held);
                    allocator.give(&self.region, block)?;
                } else {
                    record::give(&self.region, allocator, block)?;
                }
            }
        }
        Ok(())
    }

    /// The slots of a leaf with this key, and the place for a new entry of the key ([`Order::place`]). A slot may be overwritten if it is
    /// not in use, or if no reader can see its entry any more [thesis algorithm 2, `can_reuse_version`]. Such entries are cleared
    /// beforehand if they reference records, many at a time ([`Tree::make_space`]).
    #[inline(always)]
    fn leaf_place(
        &self,
        change: &Change<'_>,
        leaf: Node,
        probe: S::Probe<'_>,
    ) -> (Mask, Option<(usize, usize)>) {
        let (medium, view, look) = (self.region.medium(), &change.view, self.look(leaf, &change.view));
        let simd_scan = look.simd_scan::<S>(probe);
        let old = simd_scan.map_or_else(|| O::holding::<M, S>(look, probe), SimdScan::found);
        let census = simd_scan.map_or_else(|| look.census_anyhow::<S>(), |simd_scan| simd_scan.census);
        let is_dead = |slot: &usize| {
            let entry = leaf.entry(medium, *slot);
            view.is_garbage(entry.start, entry.end, change.own.horizon)
        };
        // No view sees garbage, so only unseen entries are checked.
        let dead = census.unseen().filter(|slot| S::PLAIN && is_dead(slot)).collect();
        let holes = Holes { empty: census.empty(&self.shape), dead };
        let before =
            || simd_scan.map_or_else(|| look.bound::<S>(probe, true), |simd_scan| simd_scan.bound(true));
        (old, O::place(leaf, holes, before))
    }

    pub(crate) fn take_node(&self, change: &mut Change<'_>, level: usize) -> Result<Node> {
        let kind = if level == 0 { Kind::Leaf } else { Kind::Inner };
        let writer = &mut *change.writer;
        writer.allocator.take(&self.region, &mut writer.log, kind, self.shape.bytes).map(Node)
    }

    /// Writes one or two new nodes with `entries`, to replace a node with this header. Returns the links to them [thesis algorithm 3].
    pub(crate) fn make_nodes(
        &self,
        change: &mut Change<'_>,
        header: Header,
        entries: &[Entry],
    ) -> Result<Vec<Link>> {
        let birth = change.view.version;
        let born: Vec<Entry> = entries.iter().map(|entry| Entry { start: birth, end: 0, ..*entry }).collect();
        let halves: Vec<&[Entry]> = if born.len() <= self.shape.most_in_one {
            vec![&born]
        } else {
            // Keys in ascending order leave full nodes behind.
            let half = born.len().div_ceil(2);
            let right = if change.own.appends { half.min(self.shape.least + 1) } else { half };
            let (left, right) = born.split_at(born.len() - right);
            vec![left, right]
        };
        let mut links = Vec::new();
        for (index, half) in halves.iter().enumerate() {
            let low = match index {
                0 => header.low,
                _ => self.separator(change, header.level, halves[0], half)?,
            };
            let node = self.take_node(change, header.level)?;
            let header = Header { birth, low, ..header };
            let spread = O::SHIFTS && !change.own.appends && !self.persist.faithful;
            node.compose(self.region.medium(), self.persist, &self.shape, header, half, spread);
            links.push((low, node));
        }
        Ok(links)
    }

    /// Makes the key word of a node that holds `right`, next to a node that holds `left`.
    pub(crate) fn separator(
        &self,
        change: &mut Change<'_>,
        level: usize,
        left: &[Entry],
        right: &[Entry],
    ) -> Result<u64> {
        let (Some(left), Some(right)) = (left.last(), right.first()) else {
            unreachable!("a half has at least one entry");
        };
        if level > 0 {
            return Ok(right.key);
        }
        let of = |entry: &Entry| entry.of_tree();
        let writer = &mut *change.writer;
        S::separate(&self.region, &mut writer.allocator, &mut writer.log, &of(left), &of(right))
            .map(|key| key[0])
    }

    /// Replaces the links to the neighbours `removed` by `links` in the last node of `above`. If `above` is empty, the root is replaced and
    /// the tree gets a new root. True if no node above was replaced.
    pub(crate) fn replace(
        &self,
        change: &mut Change<'_>,
        above: &[Node],
        removed: &[Node],
        links: &[Link],
    ) -> Result<bool> {
        let (medium, shape, version) = (self.region.medium(), &self.shape, change.view.version);
        self.note_retired(removed.len() as u64);
        if self.persist.faithful {
            for node in removed {
                self.stripes.lock(node.0, &mut change.writer.held);
                let live = node.seen(medium, shape, &change.view);
                self.end(change, *node, live.iter().map(|(slot, _)| *slot).collect());
            }
        }
        let Some((parent, above)) = above.split_last() else {
            return self.grow(change, removed[0], links).map(|()| false);
        };
        let parent = *parent;
        let is_removed = |entry: &Entry| removed.contains(&Node(entry.payload));
        let used: Vec<(usize, Entry)> = parent.used(medium, shape, &change.view).collect();
        let seen = used.iter().filter(|(_, entry)| change.view.sees(entry.start, entry.end));
        let ended: Mask = seen.filter(|(_, entry)| is_removed(entry)).map(|(slot, _)| *slot).collect();
        if ended.is_empty() {
            return Err(Error::Corrupt { what: "link to a node", at: parent.0 });
        }
        for (_, link) in used.iter().filter(|(slot, link)| ended.has(*slot) && link.start == version) {
            let child = Header::read(medium, Node(link.payload));
            let kind = if child.is_some_and(|child| child.level == 0) { Kind::Leaf } else { Kind::Inner };
            change.own.dropped.push((kind, link.payload));
            let separator = S::separator_block([link.key, 0]).filter(|block| *block != 0);
            change.own.dropped.extend(separator.map(|block| (Kind::Separator, block)));
        }
        if shape.slots - used.len() >= links.len() {
            self.stripes.lock(parent.0, &mut change.writer.held);
            self.end(change, parent, ended);
            for (key, child) in links {
                self.insert_by_word(
                    change,
                    parent,
                    &Entry { key: *key, payload: child.0, start: version, end: 0 },
                );
            }
            return Ok(true);
        }
        let mut entries: Vec<Entry> =
            self.seen_by_key(parent, &change.view).into_iter().map(|(_, entry)| entry).collect();
        let first = entries.iter().position(is_removed).unwrap_or(0);
        let born = |&(key, child): &Link| Entry { key, payload: child.0, start: version, end: 0 };
        entries.retain(|entry| !is_removed(entry));
        entries.splice(first..first, links.iter().map(born));
        let header = Header::read(medium, parent).ok_or(Error::Corrupt { what: "node", at: parent.0 })?;
        let links = self.make_nodes(change, header, &entries)?;
        self.replace(change, above, &[parent], &links).map(|_| false)
    }

    /// Stores an entry in a node in which earlier moves may not be durable (N3). The caller holds the version lock.
    fn insert_at(&self, change: &mut Change<'_>, node: Node, place: usize, hole: usize, entry: &Entry) {
        let (medium, crosses) = (self.region.medium(), node.crosses(place, hole));
        if crosses && change.own.unfenced.contains(&node) {
            self.persist.fence(medium, Fence::Guard);
        }
        if crosses {
            change.own.unfenced.clear(); // a crossing passes a fence
        }
        node.insert(medium, self.persist, place, hole, entry);
        if O::SHIFTS && !change.own.unfenced.contains(&node) {
            change.own.unfenced.push(node);
        }
    }

    /// Stores an entry in a node that has a void slot. Compares the entry's words. The caller holds the version lock.
    pub(crate) fn insert_by_word(&self, change: &mut Change<'_>, node: Node, entry: &Entry) {
        let (medium, slots) = (self.region.medium(), self.shape.slots);
        let census = self.look(node, &change.view).census_anyhow::<S>();
        let words = |slot: usize| node.entry(medium, slot).words();
        let behind = |slot: &usize| compare_words::<M, S>(medium, words(*slot), entry.words()).is_gt();
        let before = || { census.used }.find(behind).unwrap_or(slots);
        let holes = Holes { empty: census.empty(&self.shape), dead: Mask::default() };
        let place = O::place(node, holes, before);
        let (place, hole) = place.expect("the caller counted void slots");
        self.insert_at(change, node, place, hole, entry);
    }

    fn note_retired(&self, nodes: u64) {
        // There is one writer, so no read-modify-write is needed.
        let retired = &self.own.retired;
        retired.store(retired.load(Ordering::Relaxed) + nodes, Ordering::Relaxed);
    }

    /// Replaces the tree by an empty one. The cost does not depend on the number of keys.
    pub(crate) fn clear_all(&self) -> Result<()> {
        let mut writer = self.enter()?;
        self.change(&mut writer, |change| self.clear_in(change))?;
        self.acknowledge(writer, WriteOptions::default())
    }

    /// Replaces the tree by an empty one: a path of empty nodes down to one leaf, with the old tree's height.
    fn clear_in(&self, change: &mut Change<'_>) -> Result<()> {
        let (medium, old) = (self.region.medium(), Node(change.state.root));
        let root = Header::read(medium, old).ok_or(Error::Corrupt { what: "root", at: old.0 })?;
        let birth = change.view.version;
        let mut below: Option<Link> = None;
        for level in 0..=root.level {
            let node = self.take_node(change, level)?;
            let link = below.map(|(key, child)| Entry { key, payload: child.0, start: birth, end: 0 });
            let header = Header { level, birth, low: root.low };
            node.compose(medium, self.persist, &self.shape, header, link.as_slice(), false);
            below = Some((root.low, node));
        }
        self.note_retired(1);
        (change.stored, change.state.keys) = (true, 0);
        self.grow(change, old, below.as_slice())
    }

    /// Makes a new root. Older versions reach the old root through it [thesis §4.4.2].
    fn grow(&self, change: &mut Change<'_>, old: Node, links: &[Link]) -> Result<()> {
        let medium = self.region.medium();
        let header = Header::read(medium, old).ok_or(Error::Corrupt { what: "root", at: old.0 })?;
        let (level, version) = (header.level + 1, change.view.version);
        if level >= LEVELS_MAX {
            return Err(Error::TooLarge { of: "levels", asked: level as u64 + 1, limit: LEVELS_MAX as u64 });
        }
        let mut entries = Vec::new();
        if header.birth == version {
            let kind = if header.level == 0 { Kind::Leaf } else { Kind::Inner };
            change.own.dropped.push((kind, old.0));
        } else {
            entries.push(Entry { key: header.low, payload: old.0, start: header.birth, end: version });
        }
        entries.extend(links.iter().map(|&(key, child)| Entry {
            key,
            payload: child.0,
            start: version,
            end: 0,
        }));
        let root = self.take_node(change, level)?;
        root.compose(medium, self.persist, &self.shape, Header { level, ..header }, &entries, false);
        change.state.root = root.0;
        Ok(())
    }
}
