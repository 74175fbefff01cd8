//! Opening: reads the list from its head and builds the inner nodes.
//!
//! The list never needs repair. An interrupted append left entries only beyond the leaf's count, and no search reads them. If a leaf was
//! being replaced, either the old leaf or its successors are in the list. If the index was not closed cleanly, opening also reads all
//! entries to count the keys. Then recovery determines which blocks of the newest operation the list references.

use index::Schema;
use index::leaf_list::bound::bound;
use index::leaf_list::recover::is_leaf_block;
use pmem::sync::Ordering;
use pmem::{Error, Found, Medium, Result};

use crate::index::NvTree;
use crate::inner::Inner;
use crate::leaf::Leaf;
use crate::rebuild::begin_of;

impl<M: Medium, S: Schema> NvTree<M, S> {
    /// Reads the list and builds the inner nodes. Stores nothing.
    ///
    /// # Errors
    /// `Corrupt` if this is not a list of leaves with ascending bounds.
    pub(crate) fn load(&self, found: Found) -> Result<()> {
        let medium = self.region.medium();
        let head = self.meta().head(medium)?;
        let leaves = self.walk(head)?;
        let keys = match found {
            Found::Clean { keys } => keys,
            _ => leaves.iter().map(|(_, at)| Leaf(*at).live::<M, S>(medium, &self.shape).len() as u64).sum(),
        };
        let begin = leaves.get(1).zip(leaves.last()).map(|(second, last)| begin_of::<S>(&second.0, &last.0));
        let parents = 2 * leaves.len() / self.space + 1;
        let mut inner = Inner::with_capacity(begin.unwrap_or_default(), parents, self.space);
        for (i, (key, at)) in leaves.iter().enumerate() {
            let word = if i == 0 { 0 } else { inner.word_of::<S>(S::borrow(key)) };
            inner.push(word, *at);
        }
        inner.finish();
        self.changes.begin();
        self.keys.store(keys, Ordering::Release);
        self.set_inner(inner);
        self.changes.end();
        Ok(())
    }

    /// `min` and address of each leaf.
    fn walk(&self, head: u64) -> Result<Vec<(S::KeyBuf, u64)>> {
        let medium = self.region.medium();
        let mut leaves: Vec<(S::KeyBuf, u64)> = Vec::new();
        let mut next = head;
        while next != 0 || leaves.is_empty() {
            let leaf = Leaf(next);
            let is_leaf = is_leaf_block(self, next)
                && leaf.count(medium, &self.shape).is_some()
                && leaf.is_sealed(medium);
            let Some(nxt) = is_leaf.then(|| leaf.nxt(medium)).flatten() else {
                return Err(Error::Corrupt { what: "leaf", at: next });
            };
            let min = leaf.min(medium);
            let key = bound::<M, S>(medium, min)?;
            let ascends = leaves.last().map_or(min == 0, |(last, _)| *last < key);
            if !ascends {
                return Err(Error::Corrupt { what: "order of leaves", at: next });
            }
            leaves.push((key, next));
            next = nxt;
        }
        Ok(leaves)
    }
}
