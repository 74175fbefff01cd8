//! Buckets: chains of nodes with unordered entries.
//!
//! ```text
//! node   word 0 tag   word 1 next node, 0: none   word 2 bucket   word 3 unused   words 4..8 slot 0
//! line n slots 2n - 1 and 2n
//! slot   key word, payload, start, end; start 0: not in use
//! ```
//!
//! The slots are those of the tree's nodes ([`crate::node`], N1 and N2): a slot is complete or free, and none straddles two lines. Nothing
//! is ever shifted. The key word of a 64-bit key is the key. The key word of a byte string is its hash, and the record has the key.

use pmem::{Error, LINE, Medium, Result, WORD};

use crate::node::{Entry, Node, Shape};
use crate::persist::Persist;

const TAG: u64 = 0x00CD_B0CC;

/// Offset of the word that references the next node.
pub fn next_at(node: Node) -> u64 {
    node.0 + WORD
}

/// The bucket in the header of a node. `None` if there is no node.
#[inline]
pub fn bucket_in<M: Medium>(medium: &M, node: Node) -> Option<u64> {
    let is_node = node.0 != 0 && node.0.is_multiple_of(LINE) && medium.word(node.0) == TAG;
    is_node.then(|| medium.word(node.0 + 2 * WORD))
}

/// The nodes of a bucket in their order.
pub struct Chain<'a, M> {
    medium: &'a M,
    bucket: u64,
    next: u64,
    /// Maximum number of nodes that may follow: the number that the medium has space for. A longer chain has a cycle.
    left: u64,
}

impl<'a, M: Medium> Chain<'a, M> {
    /// The chain that begins with the node in the bucket's slot.
    #[inline]
    pub fn new(medium: &'a M, bucket: u64, first: u64) -> Self {
        Self { medium, bucket, next: first, left: medium.len() / (2 * LINE) }
    }

    /// The next node; `None` after the last one.
    ///
    /// # Errors
    /// `Corrupt` if there is no node at the address, or a node of another bucket.
    #[inline]
    pub fn step(&mut self) -> Result<Option<Node>> {
        if self.next == 0 {
            return Ok(None);
        }
        let node = Node(self.next);
        if bucket_in(self.medium, node) != Some(self.bucket) || self.left == 0 {
            return Err(Error::Corrupt { what: "node of a bucket", at: node.0 });
        }
        self.left -= 1;
        self.next = self.medium.word(next_at(node));
        Ok(Some(node))
    }

    /// All nodes of the chain.
    ///
    /// # Errors
    /// As [`Chain::step`].
    pub fn all(mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        while let Some(node) = self.step()? {
            nodes.push(node);
        }
        Ok(nodes)
    }
}

/// Writes a node that no link references yet, and flushes it.
pub fn compose<M: Medium>(
    medium: &M,
    persist: Persist,
    shape: &Shape,
    node: Node,
    (bucket, next): (u64, u64),
    entries: &[Entry],
) {
    assert!(entries.len() <= shape.slots);
    medium.copy(node.0, TAG);
    medium.copy(next_at(node), next);
    medium.copy(node.0 + 2 * WORD, bucket);
    for slot in 0..shape.slots {
        let at = node.slot_at(slot);
        match entries.get(slot) {
            None => medium.copy(at + 2 * WORD, 0),
            Some(entry) => [entry.key, entry.payload, entry.start, entry.end]
                .into_iter()
                .zip(0..)
                .for_each(|(value, word)| medium.copy(at + word * WORD, value)),
        }
    }
    persist.flush(medium, node.0, shape.bytes);
}

/// The other slot of the same line. `None` for slot 0, which shares its line with the header.
pub fn beside(slot: usize) -> Option<usize> {
    (slot > 0).then(|| if slot % 2 == 1 { slot + 1 } else { slot - 1 })
}
