//! Merging: an emptied tree gives its memory back [wB+ §4.4].
//!
//! A node that a delete left at most a quarter full is joined with a neighbour below the same parent if together they fill
//! at most three quarters of a node, or if one of them is empty. An inner node that lost its last separator and whose
//! neighbour is too full to be joined takes half of the neighbour's entries instead (T3); a root that lost its last one gives
//! way to its only child. Each step is one commit through the log and leaves a whole tree: a delete that would empty a leaf
//! joins it in the same commit, and so does a join that takes a parent's last separator. A crash between two steps leaves
//! a node emptier than it might be, nothing else.

use pmem::{Error, Medium, Result, WORD};

use crate::discipline::Discipline;
use crate::layout::Layout;
use crate::schema::Schema;
use crate::shape::{Entry, Link, Node, Placed};
use crate::tree::{Tree, Writer};

/// Two neighbours below one parent, and the rank of the separator between them.
struct Pair {
    parent: Node,
    rank: usize,
    separator: Entry,
    left: Node,
    right: Node,
}

/// What became of a pair.
enum Outcome {
    /// Nothing: it is better left alone.
    Left,
    /// The left node took everything; the separator has to leave the parent.
    Joined,
    /// Both have half now.
    Levelled,
}

impl<M: Medium, S: Schema, L: Layout, D: Discipline> Tree<M, S, L, D> {
    /// Joins `node` (below `writer.path`) and then its parents with their neighbours, as far as they are too empty.
    #[cold]
    pub(crate) fn merge_up(&self, writer: &mut Writer<S>, node: Node) -> Result<()> {
        let mut node = node;
        while L::count(self.region.medium(), &self.shape, node) <= self.shape.capacity / 4 {
            match self.merge_once(writer, None)? {
                Some(parent) => node = parent,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Joins the node below `writer.path` with a neighbour, in one commit with whatever else the operation has pending.
    /// `emptied`: that node, if its last entry leaves with this commit. Where a join takes the last separator of a parent,
    /// the parent's own turn belongs to the same commit: a crash in between would leave an empty node, which T3 forbids
    /// and recovery would take for nobody's. Returns the parent to look at next, if there is one.
    #[cold]
    pub(crate) fn merge_once(&self, writer: &mut Writer<S>, emptied: Option<Node>) -> Result<Option<Node>> {
        let prepared = self.prepare_merges(writer, emptied);
        let (edits, root, next) = prepared.map_err(|error| self.give_up(writer, error))?;
        if edits > 0 {
            self.change_and(writer, edits, || root.into_iter().for_each(|root| self.set_root(root)))?;
        }
        Ok(next)
    }

    /// The edits of [`Tree::merge_once`]: how many, the new root, and the parent to look at next.
    fn prepare_merges(
        &self,
        writer: &mut Writer<S>,
        mut emptied: Option<Node>,
    ) -> Result<(usize, Option<Node>, Option<Node>)> {
        let medium = self.region.medium();
        let mut edits = 0;
        while let Some((parent, taken)) = writer.path.pop() {
            let pair = self.neighbours(parent, taken)?;
            match self.prepare_merge(writer, edits, &pair, emptied)? {
                Outcome::Left if edits == 0 && emptied.is_none() => return Ok((0, None, None)),
                Outcome::Left => return Err(Error::Corrupt { what: "node", at: parent.0 }),
                Outcome::Levelled => return Ok((edits + 3, None, Some(parent))),
                Outcome::Joined => edits += 2,
            }
            if L::count(medium, &self.shape, parent) > 1 {
                let order = L::order::<M, S>(medium, &self.shape, parent);
                L::remove(medium, &self.shape, parent, &order, pair.rank, writer.edit(edits));
                return Ok((edits + 1, None, Some(parent)));
            }
            if parent == self.root() {
                // One child is left: it becomes the root.
                writer.allocator.give(&self.region, parent.0)?;
                self.lock_out(writer, edits, parent);
                self.edit_root(writer, edits + 1, pair.left);
                return Ok((edits + 2, Some(pair.left), None));
            }
            emptied = Some(parent);
        }
        if edits > 0 || emptied.is_some() {
            return Err(Error::Corrupt { what: "path above node", at: self.root().0 });
        }
        Ok((0, None, None))
    }

    fn neighbours(&self, parent: Node, taken: usize) -> Result<Pair> {
        let medium = self.region.medium();
        let link = self.shape.link(medium, parent).ok_or(Error::Corrupt { what: "node", at: parent.0 })?;
        let entries = self.placed(parent);
        if entries.is_empty() {
            return Err(Error::Corrupt { what: "node without separators", at: parent.0 });
        }
        let rank = taken.min(entries.len() - 1);
        let left = if rank == 0 { link.node } else { Node::of_payload(entries[rank - 1].entry.payload) };
        let separator = entries[rank].entry;
        Ok(Pair { parent, rank, separator, left, right: Node::of_payload(separator.payload) })
    }

    /// Writes the edits, from number `first` on, that join (two) or level (three) a pair. `emptied` is a node whose entries
    /// leave with this commit.
    fn prepare_merge(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        pair: &Pair,
        emptied: Option<Node>,
    ) -> Result<Outcome> {
        let medium = self.region.medium();
        let link_of =
            |node: Node| self.shape.link(medium, node).ok_or(Error::Corrupt { what: "node", at: node.0 });
        let (left_link, right_link) = (link_of(pair.left)?, link_of(pair.right)?);
        let mut entries = self.staying(pair.left, emptied);
        let left_count = entries.len();
        if left_link.level > 0 {
            // The separator comes down between them, leading to what was the right node's leftmost child.
            let down = Entry { key: pair.separator.key, payload: right_link.node.0 };
            entries.push(Placed { kept: None, entry: down });
        }
        let right = self.staying(pair.right, emptied);
        entries.extend(right.iter().map(|p| Placed { kept: None, entry: p.entry }));
        let capacity = self.shape.capacity;
        let starved = left_count == 0 || right.is_empty();
        if entries.len() <= capacity * 3 / 4 || (starved && entries.len() <= capacity) {
            self.prepare_join(writer, first, pair, &entries, left_link, right_link)?;
            return Ok(Outcome::Joined);
        }
        if left_link.level > 0 && starved {
            self.prepare_level(writer, first, pair, &entries, left_count, left_link, right_link);
            return Ok(Outcome::Levelled);
        }
        Ok(Outcome::Left)
    }

    /// A node's entries, less those that leave with this commit.
    fn staying(&self, node: Node, emptied: Option<Node>) -> Vec<Placed> {
        if emptied == Some(node) { Vec::new() } else { self.placed(node) }
    }

    /// The left node takes everything and the right node goes.
    fn prepare_join(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        pair: &Pair,
        entries: &[Placed],
        left_link: Link,
        right_link: Link,
    ) -> Result<()> {
        let medium = self.region.medium();
        writer.allocator.give(&self.region, pair.right.0)?;
        let link = if left_link.level == 0 {
            if let Some(block) = S::separator_block(pair.separator.key) {
                writer.allocator.give(&self.region, block)?;
            }
            right_link
        } else {
            left_link
        };
        L::compose(medium, &self.shape, pair.left, true, entries, link, writer.edit(first));
        self.lock_out(writer, first + 1, pair.right);
        Ok(())
    }

    /// Both nodes get half; the parent's separator changes to the one between the halves.
    #[expect(clippy::too_many_arguments, reason = "what `prepare_merge` has found out, handed on")]
    fn prepare_level(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        pair: &Pair,
        entries: &[Placed],
        left_count: usize,
        left_link: Link,
        right_link: Link,
    ) {
        let medium = self.region.medium();
        let middle = entries.len() / 2;
        let promoted = entries[middle].entry;
        L::compose(medium, &self.shape, pair.left, true, &entries[..middle], left_link, writer.edit(first));
        // Entries that stay in the right node keep their places in it.
        let own = self.placed(pair.right);
        let right: Vec<Placed> = (middle + 1..entries.len())
            .map(|i| match i.checked_sub(left_count + 1) {
                Some(rank) => own[rank],
                None => Placed { kept: None, entry: entries[i].entry },
            })
            .collect();
        let link = Link { node: Node::of_payload(promoted.payload), level: right_link.level };
        L::compose(medium, &self.shape, pair.right, true, &right, link, writer.edit(first + 1));
        let index = L::order::<M, S>(medium, &self.shape, pair.parent).at(pair.rank);
        let at = self.shape.key_at(pair.parent, index);
        let edit = writer.edit(first + 2);
        edit.start(pair.parent, self.shape.bytes());
        edit.switch.extend((0..S::KEY_WORDS).map(|i| (at + i as u64 * WORD, promoted.key[i])));
    }

    /// An edit without words: readers are kept from a node that leaves the tree.
    fn lock_out(&self, writer: &mut Writer<S>, number: usize, node: Node) {
        writer.edit(number).start(node, self.shape.bytes());
    }
}
