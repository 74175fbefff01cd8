//! Merges: they free nodes after deletes have made the tree sparse [wB+ §4.4].
//!
//! * If a delete leaves a node a quarter full or less, this node is joined with a neighbour below the same parent, provided that both
//!   together fill at most three quarters of a node or that one of them is empty.
//! * An inner node that lost its last separator takes half of a neighbour's entries if the neighbour is too full for a join (T3).
//! * A root that lost its last separator is replaced by its only child.
//!
//! A step is one commit through the log and leaves a complete tree, so a crash between two steps leaves a sparse node and no other effect.
//! In two cases a commit has more than one step. A delete that would empty a leaf other than the root also joins the leaf with a neighbour.
//! A join that takes a parent's last separator also does the next step, the one for this parent.

use pmem::{Error, Medium, Result, WORD};

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::shape::{Link, Node, Placed};
use crate::tree::{Tree, Writer};
use index::Entry;
use index::Schema;

/// Two neighbours below one parent, and the rank of the separator between them.
struct Pair<T> {
    parent: Node,
    rank: usize,
    separator: Entry<T>,
    left: Node,
    right: Node,
}

/// The result for a pair.
enum Outcome {
    /// Nothing changes.
    Left,
    /// The left node gets all entries. The separator must leave the parent.
    Joined,
    /// Each node gets half of the entries.
    Levelled,
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Joins `node` (below `writer.own.path`) and then its parents with their neighbours, as long as they are too empty and the running
    /// group has space. During a batch over a journal, the group has no space for this, and a node may stay sparse.
    #[cold]
    pub(crate) fn merge_up(&self, writer: &mut Writer<S>, node: Node) -> Result<()> {
        let mut node = node;
        while self.has_space_to_merge() && {
            let level = self.link(node)?.level;
            self.count_at(level, node) <= self.shape_at(level).capacity / 4
        } {
            match self.merge_once(writer, None)? {
                Some(parent) => node = parent,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Joins the node below `writer.own.path` with a neighbour, in one commit with the pending part of the operation. `emptied` is that
    /// node if its last entry leaves with this commit.
    ///
    /// If a join takes the last separator of a parent, the parent's step belongs to the same commit. A crash in between would leave an
    /// empty node: T3 forbids it, and recovery would not find its owner. Returns the next parent to check, if there is one.
    #[cold]
    pub(crate) fn merge_once(&self, writer: &mut Writer<S>, emptied: Option<Node>) -> Result<Option<Node>> {
        let prepared = self.prepare_merges(writer, emptied);
        let (edits, root, next) = prepared.map_err(|error| self.give_up(writer, error))?;
        if edits > 0 {
            self.change_prepared(writer, Ok((edits, root)))?;
        }
        Ok(next)
    }

    /// The edits of [`Tree::merge_once`]: their number, the new root, and the next parent to check.
    fn prepare_merges(
        &self,
        writer: &mut Writer<S>,
        mut emptied: Option<Node>,
    ) -> Result<(usize, Option<Node>, Option<Node>)> {
        let mut edits = 0;
        while let Some((parent, taken)) = writer.own.path.pop() {
            let pair = self.neighbours(parent, taken)?;
            match self.prepare_merge(writer, edits, &pair, emptied)? {
                Outcome::Left if edits == 0 && emptied.is_none() => return Ok((0, None, None)),
                Outcome::Left => return Err(Error::Corrupt { what: "node", at: parent.0 }),
                Outcome::Levelled => return Ok((edits + 3, None, Some(parent))),
                Outcome::Joined => edits += 2,
            }
            if self.count_at(self.link(parent)?.level, parent) > 1 {
                self.remove_separator(parent, pair.rank, writer.edit(edits));
                return Ok((edits + 1, None, Some(parent)));
            }
            if parent == self.root() {
                // One child is left. It becomes the root.
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

    fn neighbours(&self, parent: Node, taken: usize) -> Result<Pair<S::Tail>> {
        let link = self.link(parent)?;
        let entries = self.placed(link.level, parent);
        if entries.is_empty() {
            return Err(Error::Corrupt { what: "node without separators", at: parent.0 });
        }
        let rank = taken.min(entries.len() - 1);
        let left = if rank == 0 { link.node } else { Node::of_payload(entries[rank - 1].entry.payload) };
        let separator = entries[rank].entry;
        Ok(Pair { parent, rank, separator, left, right: Node::of_payload(separator.payload) })
    }

    /// Writes the edits, from number `first` on, that join a pair (two edits) or level it (three). `emptied` is a node whose entries leave
    /// with this commit.
    fn prepare_merge(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        pair: &Pair<S::Tail>,
        emptied: Option<Node>,
    ) -> Result<Outcome> {
        let (left_link, right_link) = (self.link(pair.left)?, self.link(pair.right)?);
        let level = left_link.level;
        let mut entries = self.staying(level, pair.left, emptied);
        let left_count = entries.len();
        if left_link.level > 0 {
            // The separator moves down between the entries. It leads to the right node's leftmost child.
            entries.push(Placed::new(Entry::new(pair.separator.key, right_link.node.0)));
        }
        let right = self.staying(level, pair.right, emptied);
        entries.extend(right.iter().map(|placed| Placed::new(placed.entry)));
        let capacity = self.shape_at(level).capacity;
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

    /// A node's entries, without those that leave with this commit.
    fn staying(&self, level: usize, node: Node, emptied: Option<Node>) -> Vec<Placed<S::Tail>> {
        if emptied == Some(node) { Vec::new() } else { self.placed(level, node) }
    }

    /// The left node gets all entries. The right node is freed.
    fn prepare_join(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        pair: &Pair<S::Tail>,
        entries: &[Placed<S::Tail>],
        left_link: Link,
        right_link: Link,
    ) -> Result<()> {
        writer.allocator.give(&self.region, pair.right.0)?;
        let link = if left_link.level == 0 {
            if let Some(block) = S::separator_block(pair.separator.key) {
                writer.allocator.give(&self.region, block)?;
            }
            right_link
        } else {
            left_link
        };
        self.compose(pair.left, entries, link, writer.edit(first));
        self.lock_out(writer, first + 1, pair.right);
        Ok(())
    }

    /// Both nodes get half of the entries. The separator between the halves replaces the parent's.
    #[expect(clippy::too_many_arguments, reason = "what `prepare_merge` has found out, handed on")]
    fn prepare_level(
        &self,
        writer: &mut Writer<S>,
        first: usize,
        pair: &Pair<S::Tail>,
        entries: &[Placed<S::Tail>],
        left_count: usize,
        left_link: Link,
        right_link: Link,
    ) {
        let medium = self.region.medium();
        let middle = entries.len() / 2;
        let promoted = entries[middle].entry;
        self.compose(pair.left, &entries[..middle], left_link, writer.edit(first));
        // Entries that stay in the right node keep their places.
        let own = self.placed(left_link.level, pair.right);
        let right: Vec<_> = (middle + 1..entries.len())
            .map(|i| match i.checked_sub(left_count + 1) {
                Some(rank) => own[rank],
                None => Placed::new(entries[i].entry),
            })
            .collect();
        let link = Link { node: Node::of_payload(promoted.payload), level: right_link.level };
        self.compose(pair.right, &right, link, writer.edit(first + 1));
        let index = L::Inner::nth::<_, S>(medium, &self.inner, pair.parent, pair.rank);
        let at = self.inner.key_at(pair.parent, index);
        let edit = writer.edit(first + 2);
        edit.start(pair.parent, self.inner.bytes());
        edit.switch.extend((0..S::KEY_WORDS).map(|i| (at + i as u64 * WORD, promoted.key[i])));
    }

    /// Writes an edit without words. It locks the version of a node that leaves the tree.
    fn lock_out(&self, writer: &mut Writer<S>, number: usize, node: Node) {
        writer.edit(number).start(node, self.inner.bytes());
    }
}
