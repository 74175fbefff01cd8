//! Saves of leaves: an image of a leaf, or of its changes, is written. So are moves of images.
//!
//! A leaf in memory is saved as its changes since its base, or whole. An evicted leaf that keeps changes is saved without its records in
//! memory: its changes become an image, or its contents a new whole image. Only if its changes made it so small or so large that its
//! structure has to change, it is paged in.
//!
//! Invariants: I1, I2, I4 and I5 of [`paged`](crate::paged).
//!
//! Commit points: the exchanges that install a saved leaf. Paper: Bw-tree §V-A.

use std::borrow::{Borrow, Cow};

use crate::digest;
use crate::error::{Error, Result};
use crate::image::{self, Address, Difference, Image, ImageKind, Lineage, Origin, Raw};
use crate::node::{Body, Head};
use crate::omission::Omission;
use crate::options::Options;
use crate::page::{Outline, Records};
use crate::paged::{Kept, NewEvicted, Saved, Stub, damaged, records_of};
use crate::pairs::{Pairs, Place, RECORD_BYTES, Spotted};
use crate::stats::Count;
use crate::sync::IS_SMALL;
use crate::table::Pid;
use crate::tree::{Tree, Visit};

/// The image of a leaf, or of the upper part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedLeaf<K> {
    /// The image.
    pub image: Image,
    /// Number of records from the requested key on.
    pub records: u32,
    /// False if that number may be wrong, because the image has late changes.
    pub is_counted: bool,
    /// Bytes of the leaf in memory.
    pub bytes: u64,
    /// The key at which the next leaf begins. `None`: it is the last leaf.
    pub next: Option<K>,
}

impl<P: Pairs> Tree<P> {
    /// Saves the leaf that contains `from` (`None`: the first leaf), unless its image is current. `keep` stores an image and returns its
    /// address. A leaf that changes meanwhile is saved in a state that it had during the call; then it stays dirty.
    ///
    /// One thread at a time may call this, [`move_image`](Self::move_image) and [`evict`](Self::evict) (I4).
    ///
    /// # Errors
    /// Those of `keep`, and of the shelf.
    pub fn save<E: From<Error>>(
        &self,
        from: Option<&P::Key>,
        mut keep: impl FnMut(&[u8], ImageKind) -> std::result::Result<Address, E>,
    ) -> std::result::Result<SavedLeaf<P::KeyBuf>, E> {
        let place = || from.map_or(Place::First, Place::At);
        loop {
            let visit = self.visit();
            let (pid, mut head) = visit.leaf(place());
            if !head.is_base() {
                visit.maintain(pid);
                head = visit.leaf(place()).1;
            }
            let outline = Outline::of(head);
            let is_whole = match (from, outline.low) {
                (Some(from), Some(low)) => low.borrow() == from,
                (from, low) => from.is_none() && low.is_none(),
            };
            let bytes = head.bytes() as u64;
            let next = outline.high.map(|high| P::own_key(high.borrow()));
            let saved = |image, records, is_counted| SavedLeaf { image, records, is_counted, bytes, next };
            if let (Some(stub), Body::Evicted { leaf, .. }) = (head.evicted(), head.body()) {
                if leaf.kept.bytes() == 0 && is_whole {
                    return Ok(saved(leaf.image, leaf.records, leaf.is_counted));
                }
                let (high, image) = (outline.high.cloned(), leaf.image);
                drop(visit);
                let turn = self.paging.turn(pid);
                let kept = match self.visit().stub(pid, stub) {
                    Some((_, evicted)) => evicted.kept.to_vecs(),
                    None => continue,
                };
                if kept.bytes() > 0 {
                    let Some(changes) = self.kept_changes(image, &kept, bytes as usize)? else {
                        self.rewrite(pid, stub, image, kept, &mut keep)?;
                        drop(turn);
                        self.visit().split_large(pid);
                        continue;
                    };
                    let base = Some(image.whole());
                    let image = Image { address: keep(&changes, ImageKind::Changes)?, base };
                    let visit = self.visit();
                    if let Some((head, evicted)) = visit.stub(pid, stub) {
                        // R1: the contents are the same.
                        let digest = digest::of(&changes).into();
                        let leaf = NewEvicted { image, kept: Kept::default(), digest, ..evicted.as_new() };
                        visit.replace_stub(pid, head, evicted, visit.stub_of(head, leaf));
                    }
                    continue;
                }
                let bytes = self.read_image(image, kept)?;
                let high = high.as_ref().map(Borrow::borrow);
                let (inside, _) =
                    records_of::<P>(&bytes, from, high).ok_or_else(|| damaged(image.address))?;
                return Ok(saved(image, inside.len() as u32, true));
            }
            let Body::Leaf { saved: known, .. } = head.body() else { continue };
            let Records { live, .. } = Records::of(head);
            let inside = live.iter().filter(|own| from.is_none_or(|from| P::record_key(**own) >= from));
            let records = inside.count() as u32;
            if let Some(image) = known.current(head) {
                return Ok(saved(image, records, true));
            }
            let difference = known.lineage.as_ref().and_then(|lineage| self.difference(lineage, head, &live));
            let (state, whole) =
                (head.lsn(), difference.is_none().then(|| image::whole::<P>(&live, head.bytes())));
            // Without a visit, so that retired memory can be freed while the image is written.
            drop(live);
            drop(visit);
            let (image, lineage) = match (difference, whole) {
                (Some(difference), _) => {
                    let address = keep(&difference.image, ImageKind::Changes)?;
                    (Image { address, base: Some(difference.base) }, Lineage::changed(address, difference))
                }
                (None, whole) => {
                    let whole = whole.unwrap_or_default();
                    let address = keep(&whole, ImageKind::Whole)?;
                    let guide = self.guide_of(&whole, address);
                    (Image { address, base: None }, Lineage::whole(address, guide))
                }
            };
            self.visit().install_saved(place(), state, lineage);
            return Ok(saved(image, records, true));
        }
    }

    /// The image of the changes that an evicted leaf keeps. `None` if a whole image is better, or is needed.
    fn kept_changes(&self, image: Image, kept: &Kept<Vec<u8>>, bytes: usize) -> Result<Option<Vec<u8>>> {
        let Some(shelf) = &self.shelf else { return Ok(None) };
        let Kept { unsaved, late } = kept;
        if late.is_empty() {
            return Ok(Some(unsaved.clone()));
        }
        let changes = match unsaved.is_empty() {
            true if image.base.is_some() => Some(shelf.read(image.address)?),
            true => None,
            false => Some(unsaved.clone()),
        };
        let changes = image::with_late::<P>(changes.as_deref(), image.whole(), late);
        let changes = changes.ok_or_else(|| damaged(image.address))?;
        let may_save = changes.len() <= bytes / image::SHARE || IS_SMALL;
        Ok((may_save && shelf.is_kept(image.whole())).then_some(changes))
    }

    /// Saves an evicted leaf with the changes that it keeps as a whole image, without its records in memory. The leaf is paged in instead
    /// if its changes made it so small or so large that its structure has to change. The caller has the turn of the page (I5), and no visit.
    fn rewrite<E: From<Error>>(
        &self,
        pid: Pid,
        stub: Stub,
        image: Image,
        kept: Kept<Vec<u8>>,
        keep: impl FnOnce(&[u8], ImageKind) -> std::result::Result<Address, E>,
    ) -> std::result::Result<(), E> {
        let image = self.read_image(image, kept)?;
        let whole = {
            let visit = self.visit();
            let Some((head, evicted)) = visit.stub(pid, stub) else { return Ok(()) };
            let (records, _) = visit.contents_of(head, evicted, &image)?;
            let Options { leaf_merge_bytes, leaf_split_bytes, .. } = self.options;
            let bytes = self.bytes_of(&records);
            match bytes.filter(|bytes| (leaf_merge_bytes..=leaf_split_bytes).contains(bytes)) {
                Some(bytes) => Some((image::whole_of(&records), records.len() as u32, bytes)),
                None => {
                    visit.fill(pid, head, evicted, &image)?;
                    None
                }
            }
        };
        let Some((whole, records, bytes)) = whole else { return Ok(()) };
        // Without a visit, so that retired memory can be freed while the image is written.
        let address = keep(&whole, ImageKind::Whole)?;
        let visit = self.visit();
        if let Some((head, evicted)) = visit.stub(pid, stub) {
            // R1: the contents are the same.
            let mut leaf = NewEvicted::of(Image { address, base: None }, records, true);
            leaf.copies = evicted.copies.to_new();
            leaf.guide = visit.tree.guide_of(&whole, address).into();
            visit.replace_stub(pid, head, evicted, visit.stub_with(head, bytes, leaf));
            visit.count(Count::PagedIn);
        }
        Ok(())
    }

    /// Bytes that these records take in a leaf. `None` if one of them has a block of its own.
    fn bytes_of(&self, records: &[(Raw<'_>, Origin)]) -> Option<usize> {
        let weight = |(raw, _): &(Raw<'_>, Origin)| match self.options.weighs_records {
            true => P::sizes_of_copy(*raw).map(|(_, weight)| RECORD_BYTES + weight),
            false => Some(RECORD_BYTES),
        };
        records.iter().map(weight).sum()
    }

    /// The difference of a leaf from its base, if it is to be saved or kept.
    pub(crate) fn difference(
        &self,
        lineage: &Lineage,
        head: Head<'_, P>,
        live: &[P::Record<'_>],
    ) -> Option<Difference> {
        lineage
            .difference::<P>(head, live, |base| self.shelf.as_ref().is_some_and(|shelf| shelf.is_kept(base)))
    }

    /// Moves the image of the leaf that contains `from` (`None`: the first leaf), if it or its base satisfies `is_unwanted`. The contents of
    /// an evicted leaf become a whole image: `keep` stores it and returns its address. A leaf in memory only forgets its image; the next
    /// [`save`](Self::save) writes a whole one. True if there is a leaf without the unwanted image now. Called as `save` (I4).
    ///
    /// # Errors
    /// Those of `keep`, and of the shelf.
    pub fn move_image<E: From<Error>>(
        &self,
        from: Option<&P::Key>,
        is_unwanted: impl Fn(Address) -> bool,
        keep: impl FnOnce(&[u8], ImageKind) -> std::result::Result<Address, E>,
    ) -> std::result::Result<bool, E> {
        let (pid, stub) = {
            let visit = self.visit();
            let (pid, head) = visit.leaf(from.map_or(Place::First, Place::At));
            let is_unwanted =
                |image: Image| is_unwanted(image.address) || image.base.is_some_and(&is_unwanted);
            match head.body() {
                Body::Evicted { leaf, .. } if is_unwanted(leaf.image) => (pid, head.stub(leaf)),
                Body::Leaf { saved: Saved { lineage: Some(lineage), .. }, .. } => {
                    let is_there = lineage.image().is_some_and(is_unwanted);
                    if is_there {
                        lineage.forget();
                    }
                    return Ok(is_there);
                }
                _ => return Ok(false),
            }
        };
        let _turn = self.paging.turn(pid);
        let (image, kept, low, high) = match self.visit().stub(pid, stub) {
            Some((head, evicted)) => {
                let Outline { low, high, .. } = Outline::of(head);
                (evicted.image, evicted.kept.to_vecs(), low.cloned(), high.cloned())
            }
            None => return Ok(false),
        };
        let bytes = self.read_image(image, kept)?;
        let whole = match bytes.only() {
            Some(whole) => Cow::Borrowed(whole),
            None => {
                let contents = bytes.contents::<P>().ok_or_else(|| damaged(stub.address))?;
                Cow::Owned(image::whole_of(&contents.records))
            }
        };
        let moved = keep(&whole, ImageKind::Whole)?;
        let (low, high) = (low.as_ref().map(Borrow::borrow), high.as_ref().map(Borrow::borrow));
        let (records, _) = records_of::<P>(&bytes, low, high).ok_or_else(|| damaged(stub.address))?;
        let visit = self.visit();
        let Some((head, evicted)) = visit.stub(pid, stub) else { return Ok(false) };
        let mut leaf = NewEvicted::of(Image { address: moved, base: None }, records.len() as u32, true);
        leaf.copies = evicted.copies.to_new();
        leaf.guide = visit.tree.guide_of(&whole, moved).into();
        Ok(visit.replace_stub(pid, head, evicted, visit.stub_of(head, leaf)))
    }
}

impl<'v, P: Pairs> Visit<'v, P> {
    /// Notes the image of a leaf, if the leaf still has the state that was saved (I1).
    fn install_saved(&self, place: Place<'_, P>, state: u64, lineage: Box<Lineage>) {
        let (pid, head) = self.leaf(place);
        if head.lsn() != state {
            return;
        }
        let saved = |known: &Saved, _, _: &[Spotted<'_, P>]| known.with(lineage);
        let Some((page, dead)) = self.merged_as(head, state, saved) else { return };
        self.tell_change(head);
        self.replace(pid, head, page, &dead, Omission::Consolidation);
    }

    /// Splits a leaf that became too large by late changes. Their writers could not split it.
    fn split_large(&self, pid: Pid) {
        let is_large =
            |head: Head<'_, P>| head.level() == 0 && head.bytes() > self.tree.options.leaf_split_bytes;
        if self.load(pid).is_some_and(is_large) {
            self.maintain(pid);
        }
    }
}
