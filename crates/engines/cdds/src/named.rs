//! The search for references to a block. Recovery, reuse and the collector run it before they free a block.
//!
//! A block may have several references: a moved entry and its old copy, two copies of an entry that a crash left, separators that
//! neighbours share. All of them have the same key, so a descent for this key through every version finds them. At an inner node the
//! descent takes each child that had the key at some version of the node's life. After a collection this is one child per level.
//!
//! The thesis collects nodes by mark and sweep, since a node may have several parents (§4.4.4). Here the search is for one block at a time.
//! So space is freed in small steps, and the allocation bits are right after each step.

use index::Schema;
use pmem::alloc::Kind;
use pmem::{Error, Medium, Result};

use crate::entry_order::Order;
use crate::node::{Header, Node, read_key};
use crate::ordered::Tree;
use crate::version::{Death, View};

/// The parameters of a search: the view, and the slots that do not count.
pub(crate) struct Named<'a> {
    /// Determines void entries, which reference nothing, and the versions that an entry covers.
    pub view: &'a View,
    pub root: u64,
    /// A slot that will be cleared.
    pub except: Option<(Node, usize)>,
    /// Other slots that will be cleared.
    pub cleared: &'a [(Node, usize)],
}

impl Named<'_> {
    /// True unless the slot will be cleared.
    fn counts(&self, node: Node, slot: usize) -> bool {
        self.except != Some((node, slot)) && !self.cleared.contains(&(node, slot))
    }
}

/// Versions for which no child with the key has been found yet.
struct Uncovered(Vec<(u64, u64)>);

impl Uncovered {
    fn meets(&self, start: u64, end: u64) -> bool {
        self.0.iter().any(|&(from, to)| from < end && start < to)
    }

    fn cover(&mut self, start: u64, end: u64) {
        let mut index = 0;
        // In damaged memory an entry may end before it begins.
        while let Some(&(from, to)) = self.0.get(index).filter(|_| start < end) {
            let (older, newer) = ((from, to.min(start)), (from.max(end), to));
            match (older.0 < older.1, newer.0 < newer.1) {
                (true, true) => {
                    self.0[index] = older;
                    self.0.insert(index + 1, newer);
                    index += 2;
                    continue;
                }
                (true, false) => self.0[index] = older,
                (false, true) => self.0[index] = newer,
                (false, false) => {
                    self.0.remove(index);
                    continue;
                }
            }
            index += 1;
        }
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Tree<M, S, O> {
    /// True if an entry that is reachable and not void references the block.
    ///
    /// # Errors
    /// `Corrupt` if a node on the way is damaged.
    pub(crate) fn is_named(&self, named: &Named<'_>, kind: Kind, block: u64) -> Result<bool> {
        let medium = self.region.medium();
        let mut key = S::KeyBuf::default();
        let lowest = match kind {
            Kind::Record | Kind::Separator => {
                if !S::key_of_block(medium, block, &mut key) {
                    return Ok(false);
                }
                0
            }
            _ => {
                let Some(header) = Header::read(medium, Node(block)) else { return Ok(false) };
                if !self.key_of_word(header.low, &mut key) {
                    return Ok(false);
                }
                header.level + 1
            }
        };
        let lowest = if kind == Kind::Separator { 1 } else { lowest };
        Ok(self.namer_at(named, kind, block, &key, lowest)?.is_some())
    }

    /// As [`Tree::is_named`], but searches for the reference along the paths of `key`, at the level `lowest` or above it. Returns the node
    /// with the reference.
    pub(crate) fn namer_at(
        &self,
        named: &Named<'_>,
        kind: Kind,
        block: u64,
        key: &S::KeyBuf,
        lowest: usize,
    ) -> Result<Option<Node>> {
        let medium = self.region.medium();
        let probe = S::probe(S::borrow(key));
        let root = Node(named.root);
        let level = Header::read(medium, root).ok_or(Error::Corrupt { what: "root", at: root.0 })?.level;
        let (mut open, mut met) = (vec![(root, level)], vec![root]);
        while let Some((node, level)) = open.pop() {
            let header = Header::at_level(medium, node, level)?;
            if level < lowest {
                continue;
            }
            let may_name = if kind == Kind::Separator { level > 0 } else { level == lowest };
            if may_name && self.names(named, kind, node, block) {
                return Ok(Some(node));
            }
            if level > lowest {
                for child in self.children_at(named.view, node, &header, probe) {
                    if !met.contains(&child) {
                        met.push(child);
                        open.push((child, level - 1));
                    }
                }
            }
        }
        Ok(None)
    }

    /// True if an entry of this node that counts references the block: in a leaf as a record, in an inner node as a child or a separator.
    pub(crate) fn names(&self, named: &Named<'_>, kind: Kind, node: Node, block: u64) -> bool {
        let medium = self.region.medium();
        (0..self.shape.slots).any(|slot| {
            let [key, payload] = node.words(medium, slot);
            let is_meant = match kind {
                Kind::Record => payload == block || key == block,
                Kind::Separator => key == block,
                _ => payload == block,
            };
            is_meant && !named.view.is_void(node.start(medium, slot)) && named.counts(node, slot)
        })
    }

    /// Copies the key of a key word. The word 0 is the lowest key.
    pub(crate) fn key_of_word(&self, word: u64, key: &mut S::KeyBuf) -> bool {
        read_key::<M, S>(self.region.medium(), [word, 0], key)
    }

    /// The children that had the key at any version at which a reference to a block may have begun.
    fn children_at(&self, view: &View, node: Node, header: &Header, probe: S::Probe<'_>) -> Vec<Node> {
        let mut uncovered = Uncovered(vec![(header.birth, u64::MAX)]);
        let mut children = Vec::with_capacity(4);
        let dead = view.dead.intervals();
        let rolled_back = || dead.iter().filter(|interval| interval.death == Death::RolledBack);
        for entry in O::up_to::<M, S>(self.look(node, view), probe) {
            let end = if entry.end == 0 { u64::MAX } else { entry.end };
            let is_dead = |version| view.is_dead(version);
            if is_dead(entry.start) || (entry.end != 0 && is_dead(entry.end)) {
                children.push(Node(entry.payload));
                // A dead start covers no version. With a dead end, the entry was visible at least until then.
                if is_dead(entry.start) {
                    continue;
                }
            } else if uncovered.meets(entry.start, end) {
                children.push(Node(entry.payload));
            }
            // Within the change that ended this entry, other entries may have had its keys before this one ended. So its last version stays
            // open.
            let end = if entry.end == 0 { end } else { end - 1 };
            // The entry may not have been visible at a rolled-back version. So these versions stay open.
            let mut from = entry.start;
            let mut breaks: Vec<(u64, u64)> = rolled_back().map(|i| (i.lo, i.hi)).collect();
            breaks.sort_unstable();
            for (lo, hi) in breaks {
                if from < lo {
                    uncovered.cover(from, lo.min(end));
                }
                from = from.max(hi + 1);
            }
            if from < end {
                uncovered.cover(from, end);
            }
            if uncovered.0.is_empty() {
                break;
            }
        }
        children
    }
}

#[cfg(test)]
mod tests {
    use super::Uncovered;

    #[test]
    fn versions_are_covered_piece_by_piece() {
        let mut uncovered = Uncovered(vec![(1, u64::MAX)]);
        uncovered.cover(5, u64::MAX);
        assert!(uncovered.meets(4, 6) && !uncovered.meets(5, 9));
        uncovered.cover(2, 3);
        assert_eq!(uncovered.0, [(1, 2), (3, 5)]);
        uncovered.cover(4, 2);
        assert_eq!(uncovered.0, [(1, 2), (3, 5)]);
        uncovered.cover(1, 5);
        assert!(uncovered.0.is_empty());
    }
}
