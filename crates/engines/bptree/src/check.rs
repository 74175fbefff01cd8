//! Full verification: structure, order, list of leaves, records, and the ownership of every block.

use std::collections::HashSet;

use index::Life;
use index::check::{PROBLEMS_MAX, Report};
use pmem::alloc::Kind;
use pmem::{Medium, record};

use crate::commit_protocol::CommitProtocol;
use crate::layout::Layouts;
use crate::shape::{LEVELS_MAX, Link, Node};
use crate::tree::Tree;
use index::Entry;
use index::Schema;

struct Walk<S: Schema> {
    report: Report,
    /// Blocks with their kinds, in the order of the walk.
    owned: Vec<(u64, Kind)>,
    seen: HashSet<u64>,
    leaves: Vec<(Node, Node)>,
    last_key: Option<S::KeyBuf>,
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Verifies everything. Writers wait meanwhile. Never panics, whatever the region contains.
    pub fn check(&self) -> Report {
        let _writer = self.lock_writer();
        let mut walk = Walk::<S> {
            report: Report::default(),
            owned: Vec::new(),
            seen: HashSet::new(),
            leaves: Vec::new(),
            last_key: None,
        };
        let root = self.root();
        let levels = Link::read(self.region.medium(), root).map_or(0, |link| link.level);
        walk.report.levels = levels as u64 + 1;
        self.check_node(&mut walk, root, levels, None, None);
        for pair in walk.leaves.windows(2) {
            if pair[0].1 != pair[1].0 {
                walk.report.problem(format!(
                    "leaf {:#x} links to {:#x}, not to its neighbour {:#x}",
                    pair[0].0.0, pair[0].1.0, pair[1].0.0
                ));
            }
        }
        if let Some((leaf, next)) = walk.leaves.last()
            && next.0 != 0
        {
            walk.report.problem(format!("the last leaf {:#x} links on to {:#x}", leaf.0, next.0));
        }
        let (keys, pending) = self.len();
        if !pending && keys != walk.report.keys {
            walk.report.problem(format!("{} keys are in leaves, {keys} were counted", walk.report.keys));
        }
        // A batch that failed before its end. The next open completes it.
        if let Ok(batch @ 1..) = self.region.batch() {
            walk.owned.push((batch, Kind::Batch));
            walk.owned
                .extend(record::pieces(&self.region, batch).into_iter().map(|piece| (piece, Kind::Piece)));
        }
        match self.blocks_of_garbage() {
            Ok(blocks) => walk.owned.extend(blocks),
            Err(error) => walk.report.problem(error.to_string()),
        }
        let owned = std::mem::take(&mut walk.owned);
        walk.report.check_blocks(&self.region, owned);
        walk.report
    }

    fn check_node(
        &self,
        walk: &mut Walk<S>,
        node: Node,
        level: usize,
        low: Option<[u64; 2]>,
        high: Option<[u64; 2]>,
    ) {
        let medium = self.region.medium();
        if walk.report.problems.len() >= PROBLEMS_MAX || level >= LEVELS_MAX {
            return;
        }
        if !walk.seen.insert(node.0) {
            return walk.report.problem(format!("node {:#x} is reached twice", node.0));
        }
        let Some(link) = Link::read(medium, node).filter(|link| link.level == level) else {
            return walk.report.problem(format!("no node of level {level} at {:#x}", node.0));
        };
        walk.report.nodes += 1;
        walk.owned.push((node.0, if level == 0 { Kind::Leaf } else { Kind::Inner }));
        if let Some(fault) = self.fault_at(level, node) {
            return walk.report.problem(format!("node {:#x}: {fault}", node.0));
        }
        let entries: Vec<Entry<S::Tail>> =
            self.placed(level, node).iter().map(|placed| placed.entry).collect();
        if entries.is_empty() && node != self.root() {
            walk.report.problem(format!("node {:#x} is empty", node.0));
        }
        self.check_order(walk, node, &entries, low, high);
        if level == 0 {
            walk.leaves.push((node, link.node));
            walk.report.leaves += 1;
            entries.iter().for_each(|entry| self.check_leaf_entry(walk, node, entry));
            return;
        }
        for entry in &entries {
            if let Some(block) = S::separator_block(entry.key) {
                walk.owned.push((block, Kind::Separator));
            }
        }
        let bound = |i: usize| entries.get(i).map(|entry| entry.key);
        self.check_node(walk, link.node, level - 1, low, bound(0).or(high));
        for (i, entry) in entries.iter().enumerate() {
            self.check_node(
                walk,
                Node::of_payload(entry.payload),
                level - 1,
                Some(entry.key),
                bound(i + 1).or(high),
            );
        }
    }

    fn check_order(
        &self,
        walk: &mut Walk<S>,
        node: Node,
        entries: &[Entry<S::Tail>],
        low: Option<[u64; 2]>,
        high: Option<[u64; 2]>,
    ) {
        let medium = self.region.medium();
        for pair in entries.windows(2) {
            if S::compare_keys(medium, pair[0].key, pair[1].key).is_ge() {
                walk.report.problem(format!("node {:#x}: entries out of order", node.0));
            }
        }
        if let (Some(low), Some(first)) = (low, entries.first())
            && S::compare_keys(medium, first.key, low).is_lt()
        {
            walk.report.problem(format!("node {:#x}: a key below its separator", node.0));
        }
        if let (Some(high), Some(last)) = (high, entries.last())
            && S::compare_keys(medium, last.key, high).is_ge()
        {
            walk.report.problem(format!("node {:#x}: a key at or above the next separator", node.0));
        }
    }

    fn check_leaf_entry(&self, walk: &mut Walk<S>, node: Node, entry: &Entry<S::Tail>) {
        let medium = self.region.medium();
        walk.report.keys += 1;
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        if !S::read_key(medium, entry.key, &mut key) || !S::read_value(medium, entry, &mut value) {
            walk.report.problem(format!("leaf {:#x}: the record at {:#x} is damaged", node.0, entry.payload));
        }
        if walk.last_key.as_ref().is_some_and(|last| *last >= key) {
            walk.report.problem(format!("leaf {:#x}: key {key:?} is not above the one before", node.0));
        }
        walk.last_key = Some(key);
        for block in S::blocks_of(entry) {
            walk.owned.push((block, Kind::Record));
            let pieces = record::pieces(&self.region, block);
            walk.owned.extend(pieces.into_iter().map(|piece| (piece, Kind::Piece)));
        }
    }
}
