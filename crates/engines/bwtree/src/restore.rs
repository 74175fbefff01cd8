//! The restore of a tree from the images of its leaves. No leaf is read. Paper: Bw-tree §V-C.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::omission::Omission;
use crate::options::Options;
use crate::page::{Bounds, New, Term, term_bytes};
use crate::paged::{NewEvicted, Shelf};
use crate::pairs::Pairs;
use crate::stats::Count;
use crate::table::{Pid, ROOT};
use crate::tree::{Tree, Visit};

/// A leaf of a tree that is restored: the lowest key that may be in it, and its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredLeaf<K> {
    /// The low key. The first leaf has `None`.
    pub low: Option<K>,
    /// The image.
    pub image: Image,
    /// Number of records of the image from the low key on and below the next leaf's low key.
    pub records: u32,
    /// False if `records` may be wrong, because the image has late changes.
    pub is_counted: bool,
    /// Bytes of the leaf in memory.
    pub bytes: u64,
}

impl<P: Pairs> Tree<P> {
    /// A tree of these leaves, which are in key order. None of them is read. O(leaves).
    ///
    /// # Errors
    /// [`Error::Option`] if an option is invalid; [`Error::Unreadable`] if the leaves are not in order, or are too many.
    pub fn restore(
        options: Options,
        shelf: Arc<dyn Shelf>,
        leaves: Vec<RestoredLeaf<P::KeyBuf>>,
    ) -> Result<Self> {
        let tree = Self::with_shelf(options, shelf)?;
        let is_in_order = leaves.first().is_none_or(|first| first.low.is_none())
            && leaves.windows(2).all(|pair| pair[1].low.is_some() && pair[0].low < pair[1].low);
        if !is_in_order {
            return Err(Error::Unreadable { why: "the leaves of the checkpoint are not in order".into() });
        }
        let visit = tree.visit();
        let restored = visit.restore(&leaves);
        drop(visit);
        restored.ok_or_else(|| Error::Unreadable { why: "the checkpoint has too many leaves".into() })?;
        Ok(tree)
    }
}

impl<P: Pairs> Visit<'_, P> {
    /// Builds the pages of [`Tree::restore`]. `None` if there are not enough page ids.
    fn restore(&self, leaves: &[RestoredLeaf<P::KeyBuf>]) -> Option<()> {
        let root = self.load(ROOT)?;
        let fence = |key: &Option<P::KeyBuf>| key.as_ref().map(|key| P::fence(key.borrow()));
        let stub = |i: usize, right: Option<Pid>| {
            let leaf = &leaves[i];
            let high = leaves.get(i + 1).and_then(|next| fence(&next.low));
            let new = New { level: 0, lsn: self.draw(root.lsn()), bytes: leaf.bytes as usize };
            let bounds = Bounds { low: fence(&leaf.low), high, right };
            self.evicted_page(new, bounds, NewEvicted::of(leaf.image, leaf.records, leaf.is_counted))
        };
        let records: u64 = leaves.iter().map(|leaf| u64::from(leaf.records)).sum();
        self.slot.count(Count::Records, records);
        let uncounted = leaves.iter().filter(|leaf| !leaf.is_counted).count();
        self.tree.uncounted.fetch_add(uncounted as u64, Relaxed);
        if leaves.len() < 2 {
            return match leaves.len() {
                0 => Some(()),
                _ => self.replace(ROOT, root, stub(0, None), &[], Omission::Structure).then_some(()),
            };
        }
        // Page ids of a new tree ascend by one, so a right sibling's is known before it exists.
        let mut terms: Vec<(Option<P::Fence>, Pid)> = Vec::with_capacity(leaves.len());
        for (i, leaf) in leaves.iter().enumerate() {
            let own = self.tree.table.used() as u32;
            let right = (i + 1 < leaves.len()).then_some(Pid(own + 1));
            let pid = self.allocate(stub(i, right))?;
            debug_assert_eq!(pid, Pid(own));
            terms.push((fence(&leaf.low), pid));
        }
        let most = self.tree.options.inner_split_bytes / 4 * 3;
        let mut level = 1;
        loop {
            let borrowed: Vec<Term<'_, P>> =
                terms.iter().map(|(key, pid)| (key.as_ref().map(Borrow::borrow), *pid)).collect();
            // The first term of a page has no key there, and takes at most as many bytes as with it.
            let sizes: Vec<usize> = borrowed.iter().map(term_bytes::<P>).collect();
            let mut ends = Vec::new();
            let (mut at, mut sum) = (0, 0);
            for (i, size) in sizes.iter().enumerate() {
                if i > at + 1 && sum + size > most {
                    ends.push(i);
                    (at, sum) = (i, 0);
                }
                sum += size;
            }
            ends.push(sizes.len());
            let is_root = ends.len() == 1;
            let mut above: Vec<(Option<P::Fence>, Pid)> = Vec::with_capacity(ends.len());
            let mut from = 0;
            for end in ends {
                let own = Pid(self.tree.table.used() as u32);
                let low = if is_root { None } else { terms[from].0.clone() };
                let high = terms.get(end).and_then(|(key, _)| key.clone());
                let right = high.is_some().then_some(Pid(own.0 + 1));
                let mut part = borrowed[from..end].to_vec();
                part[0].0 = None;
                let bytes = part.iter().map(term_bytes::<P>).sum();
                let new = New { level, lsn: self.draw(root.lsn()), bytes };
                let page = self.inner_page(new, &part, Bounds { low: low.clone(), high, right });
                if is_root {
                    return self.replace(ROOT, root, page, &[], Omission::Structure).then_some(());
                }
                above.push((low, self.allocate(page)?));
                from = end;
            }
            terms = above;
            level += 1;
        }
    }
}
