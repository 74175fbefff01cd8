//! Full verification: structure, order, versions, records, and the ownership of every block.

use std::collections::{HashMap, HashSet};

use index::Report;
use index::Schema;
use pmem::alloc::Kind;
use pmem::{Medium, record};

use crate::entry_order::Order;
use crate::node::{Entry, Header, Node, compare_words, read_key};
use crate::ordered::Tree;
use crate::version::View;

struct Walk<S: Schema> {
    report: Report,
    /// Blocks with their kinds.
    owned: HashMap<u64, Kind>,
    met: HashSet<Node>,
    last_key: Option<S::KeyBuf>,
    view: View,
}

impl<S: Schema> Walk<S> {
    fn problem(&mut self, text: String) {
        self.report.problem(text);
    }

    fn own(&mut self, block: u64, kind: Kind) {
        if self.owned.insert(block, kind).is_some_and(|other| other != kind) {
            self.problem(format!("block {block:#x} is used as a {kind:?} and as something else"));
        }
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Tree<M, S, O> {
    pub(crate) fn check_all_nodes(&self) -> Report {
        let writer = self.writer_side();
        let mut walk = Walk::<S> {
            report: Report::default(),
            owned: HashMap::new(),
            met: HashSet::new(),
            last_key: None,
            view: self.view_now(&writer),
        };
        walk.own(self.meta_at(), Kind::Inner);
        let kept = self.meta.kept(self.region.medium());
        if kept != 0 {
            walk.own(kept, Kind::Batch);
            record::pieces(&self.region, kept).into_iter().for_each(|piece| walk.own(piece, Kind::Piece));
        }
        let root = Node(writer.state.root);
        let level = Header::read(self.region.medium(), root).map_or(0, |header| header.level);
        walk.report.levels = level as u64 + 1;
        self.check_all(&mut walk, root, level);
        if walk.report.problems.is_empty() {
            self.check_live(&mut walk, root, level, 0, None);
        }
        if walk.report.problems.is_empty() && walk.report.keys != writer.state.keys {
            let text = format!("{} keys are in leaves, {} were counted", walk.report.keys, writer.state.keys);
            walk.problem(text);
        }
        let owned = std::mem::take(&mut walk.owned).into_iter().collect();
        walk.report.check_blocks(&self.region, owned);
        walk.report
    }

    /// Checks every node of every version.
    fn check_all(&self, walk: &mut Walk<S>, root: Node, level: usize) {
        let medium = self.region.medium();
        let mut open = vec![(root, level)];
        while let Some((node, level)) = open.pop() {
            if walk.report.problems.len() >= index::check::PROBLEMS_MAX || !walk.met.insert(node) {
                continue;
            }
            let Some(header) = Header::read(medium, node).filter(|header| header.level == level) else {
                walk.problem(format!("no node of level {level} at {:#x}", node.0));
                continue;
            };
            walk.report.nodes += 1;
            walk.own(node.0, if level == 0 { Kind::Leaf } else { Kind::Inner });
            let used: Vec<(usize, Entry)> = self.used_by_key(node, &walk.view).collect();
            for (_, entry) in &used {
                self.check_entry(walk, node, &header, entry);
                if level > 0 {
                    open.push((Node(entry.payload), level - 1));
                }
            }
            for pair in used.windows(2) {
                let (left, right) = (pair[0].1, pair[1].1);
                let order = compare_words::<M, S>(medium, left.words(), right.words());
                if order.then(left.start.cmp(&right.start)).is_gt() {
                    walk.problem(format!("node {:#x}: {left:?} before {right:?}", node.0));
                }
                // A crash may leave two copies of a moving entry. A dead version may have ended one of them.
                let end = |entry: &Entry| match entry.end {
                    end if end > walk.view.version || walk.view.is_dead(end) => 0,
                    end => end,
                };
                let is_copy = O::SHIFTS && (left.payload, end(&left)) == (right.payload, end(&right));
                if order.is_eq() && left.start == right.start && !is_copy {
                    walk.problem(format!("node {:#x}: two entries of one key and start", node.0));
                }
            }
        }
    }

    fn check_entry(&self, walk: &mut Walk<S>, node: Node, header: &Header, entry: &Entry) {
        let medium = self.region.medium();
        if entry.start < header.birth || (entry.end != 0 && entry.end <= entry.start) {
            walk.problem(format!("node {:#x}: versions of an entry are wrong", node.0));
        }
        if compare_words::<M, S>(medium, entry.words(), [header.low, 0]).is_lt() {
            walk.problem(format!("node {:#x}: a key below its lowest", node.0));
        }
        let mut key = S::KeyBuf::default();
        let mut is_whole = read_key::<M, S>(medium, entry.words(), &mut key);
        if header.level == 0 {
            let of_tree = entry.of_tree();
            is_whole &= S::read_value(medium, &of_tree, &mut S::ValueBuf::default());
            // A sound record may belong to another key.
            let mut own = S::KeyBuf::default();
            is_whole &= S::PLAIN || (S::key_of_block(medium, entry.payload, &mut own) && own == key);
            for block in S::blocks_of(&of_tree) {
                walk.own(block, Kind::Record);
                for piece in record::pieces(&self.region, block) {
                    walk.own(piece, Kind::Piece);
                }
            }
        } else if let Some(block) = S::separator_block([entry.key, 0]).filter(|block| *block != 0) {
            walk.own(block, Kind::Separator);
        }
        if !is_whole {
            walk.problem(format!("node {:#x}: the record at {:#x} is damaged", node.0, entry.payload));
        }
    }

    /// Checks the tree at the current version (T2).
    fn check_live(&self, walk: &mut Walk<S>, node: Node, level: usize, low: u64, high: Option<u64>) {
        let medium = self.region.medium();
        let Some(header) = Header::read(medium, node) else { return };
        if compare_words::<M, S>(medium, [header.low, 0], [low, 0]).is_ne() {
            walk.problem(format!("node {:#x}: its lowest key is not its link's", node.0));
        }
        let seen: Vec<Entry> = self.seen_by_key(node, &walk.view).into_iter().map(|(_, e)| e).collect();
        for entry in &seen {
            if high.is_some_and(|high| compare_words::<M, S>(medium, entry.words(), [high, 0]).is_ge()) {
                walk.problem(format!("node {:#x}: a key at or above the next node's", node.0));
            }
        }
        if level == 0 {
            for entry in &seen {
                let mut key = S::KeyBuf::default();
                read_key::<M, S>(medium, entry.words(), &mut key);
                if walk.last_key.as_ref().is_some_and(|last| *last >= key) {
                    walk.problem(format!("leaf {:#x}: key {key:?} is not above the one before", node.0));
                }
                walk.last_key = Some(key);
                walk.report.keys += 1;
            }
            return;
        }
        if seen
            .first()
            .is_none_or(|first| compare_words::<M, S>(medium, first.words(), [header.low, 0]).is_ne())
        {
            walk.problem(format!("node {:#x}: its first child does not begin where it does", node.0));
        }
        for (index, entry) in seen.iter().enumerate() {
            let next = seen.get(index + 1).map(|next| next.key).or(high);
            self.check_live(walk, Node(entry.payload), level - 1, entry.key, next);
        }
    }
}
