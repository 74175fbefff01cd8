//! Deletes and underflow [thesis §4.4.3, algorithm 4].
//!
//! The key of a link is the lower bound of the child. A node with too few entries underflows in one of two ways:
//!
//! * Its left sibling takes the entries. The parent's link to this sibling stays as it is. (In the thesis the key is the upper bound, so
//!   there the right sibling takes the entries.) The sibling must have space, and the present parent must be the only one that ever had a
//!   link to it: an older version of the parent would not lead to the sibling for the keys that it takes.
//! * Otherwise the node and its left sibling are replaced by one or two new nodes with all their entries. A node without a left sibling is
//!   replaced together with its right sibling.

use index::Schema;
use pmem::{Error, Medium, Result};

use crate::entry_order::Order;
use crate::node::{Entry, Header, Node};
use crate::ordered::{Change, Tree};
use crate::simd_scan::SimdScan;

impl<M: Medium, S: Schema<Tail = [u64; 0]>, O: Order> Tree<M, S, O> {
    pub(crate) fn delete_in(&self, change: &mut Change<'_>, key: &S::Key) -> Result<bool> {
        let probe = S::probe(key);
        let leaf = match change.writer.hint.take() {
            Some(leaf) => leaf,
            None => self.path(&change.view, change.state.root, probe)?.leaf(),
        };
        let (slots, seen) = self.wide(
            #[inline(always)]
            || {
                let look = self.look(leaf, &change.view);
                let simd_scan = look.simd_scan::<S>(probe);
                let slots = simd_scan.map_or_else(|| O::holding::<M, S>(look, probe), SimdScan::found);
                (
                    slots,
                    simd_scan.map_or_else(|| look.census_anyhow::<S>(), |simd_scan| simd_scan.census).seen,
                )
            },
        );
        if slots.is_empty() {
            return Ok(false);
        }
        change.stored = true;
        self.stripes.lock(leaf.0, &mut change.writer.held);
        self.drop_records(change, leaf, slots);
        self.end(change, leaf, slots);
        // In a damaged tree the count may be too small. The check reports it.
        change.state.keys = change.state.keys.saturating_sub(1);
        // Copies that a crash left are counted twice. A leaf with that many entries does not underflow.
        if seen.len() - slots.len() <= 2 * self.shape.least {
            let path = self.path(&change.view, change.state.root, probe)?;
            self.underflow(change, &path)?;
        }
        Ok(true)
    }

    /// The last node of the path lost an entry. If it has too few left, it shares entries with a sibling. Its parents follow in the same
    /// way.
    fn underflow(&self, change: &mut Change<'_>, mut path: &[Node]) -> Result<()> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        while let [above @ .., node] = path {
            let Some(parent) = above.last() else { return Ok(()) };
            if node.seen(medium, shape, &change.view).len() > shape.least {
                return Ok(());
            }
            let links = self.seen_by_key(*parent, &change.view);
            if links.len() < 2 {
                return Ok(());
            }
            let index = links.iter().position(|(_, link)| link.payload == node.0);
            let index = index.ok_or(Error::Corrupt { what: "link to a node", at: parent.0 })?;
            let in_place = if index == 0 {
                self.share_out(change, above, *node, Node(links[1].1.payload))?
            } else {
                self.share_with_left(change, above, &links[index - 1].1, *node)?
            };
            if !in_place {
                return Ok(());
            }
            path = above;
        }
        Ok(())
    }

    /// `node` has too few entries. Its left sibling takes them if it has space (`merge_with_sibling` in the thesis). Otherwise both are
    /// replaced. True if no node above was replaced.
    ///
    /// A sibling with many entries does not move some of them to `node` and stay in the tree (`copy_from_sibling` in the thesis). It would
    /// keep the moved entries as ended entries. If a new parent then replaced the present one, the new parent would not lead to the sibling
    /// for the keys of those entries. A search for references ([`crate::named`]) would miss them, and their blocks would be freed too
    /// early.
    ///
    /// The sibling takes the entries, or only their range, if no parent but the present one ever had a link to it. An older parent would
    /// not lead to it for the keys of its neighbour. So a search for references ([`crate::named`]) could miss the entries that it took.
    fn share_with_left(
        &self,
        change: &mut Change<'_>,
        above: &[Node],
        left_link: &Entry,
        node: Node,
    ) -> Result<bool> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let left = Node(left_link.payload);
        let header = self.header_beside(left, node)?;
        // A parent copies links with its own birth as their start. So a link of the same version as the parent may be a copy.
        let parent = above.last().and_then(|parent| Header::read(medium, *parent));
        let has_one_parent =
            left_link.start == header.birth && parent.is_some_and(|parent| parent.birth < header.birth);
        let own = entries_of(node.seen(medium, shape, &change.view));
        let theirs = left.seen(medium, shape, &change.view);
        let used = left.used(medium, shape, &change.view).count();
        let has_space =
            theirs.len() <= 3 * shape.least && used < 4 * shape.least && used + own.len() <= shape.slots;
        if has_one_parent && (own.is_empty() || has_space) {
            let version = change.view.version;
            self.stripes.lock(left.0, &mut change.writer.held);
            for entry in own {
                self.insert_by_word(change, left, &Entry { start: version, end: 0, ..entry });
            }
            return self.replace(change, above, &[node], &[]);
        }
        self.share_out(change, above, left, node)
    }

    /// Replaces two neighbours by one or two nodes with all their entries. True if no node above was replaced.
    fn share_out(&self, change: &mut Change<'_>, above: &[Node], left: Node, right: Node) -> Result<bool> {
        let header = self.header_beside(left, right)?;
        let mut entries = entries_of(self.seen_by_key(left, &change.view));
        entries.extend(entries_of(self.seen_by_key(right, &change.view)));
        let links = self.make_nodes(change, header, &entries)?;
        self.replace(change, above, &[left, right], &links)
    }

    /// The left node's header. Verifies that both nodes have the same level.
    fn header_beside(&self, left: Node, right: Node) -> Result<Header> {
        let corrupt = |node: Node| Error::Corrupt { what: "node", at: node.0 };
        let header = Header::read(self.region.medium(), left).ok_or_else(|| corrupt(left))?;
        Header::at_level(self.region.medium(), right, header.level)?;
        Ok(header)
    }
}

fn entries_of(seen: Vec<(usize, Entry)>) -> Vec<Entry> {
    seen.into_iter().map(|(_, entry)| entry).collect()
}
