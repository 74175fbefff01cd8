//! Views of the index, for scans, snapshots and reads of many keys. The parent module describes which writes a view
//! shows.

use std::ops::Bound;
use std::sync::Arc;

use pmem::sync::{AtomicBool, Ordering, step};
use pmem::{Error, Result};

use super::table::{Anchor, Image, Reader};
use super::{Images, own};
use crate::schema::Schema;

/// The index at one moment, as a scan, a snapshot or a read of many keys sees it.
pub struct View<'a, S: Schema> {
    of: Reader,
    anchor: Arc<Anchor>,
    /// Declared after the anchor: fields drop in this order, so the view's reference to the anchor is gone first.
    after: Leaving<'a, S>,
}

impl<'a, S: Schema> View<'a, S> {
    pub(super) fn new(images: &'a Images<S>, anchor: Arc<Anchor>, of: Reader) -> Self {
        let after = Leaving { images, is_snapshot: of == Reader::Snapshot, segment: anchor.segment };
        Self { of, anchor, after }
    }

    /// Another view of the same moment.
    #[must_use]
    pub(crate) fn again(&self) -> Self {
        let images = self.after.images;
        if self.of == Reader::Snapshot {
            let _table = images.write();
            images.count_snapshot(&self.anchor);
        }
        Self::new(images, Arc::clone(&self.anchor), self.of)
    }

    /// True if this view is of a snapshot. Then it does not see later single writes either.
    pub fn is_snapshot(&self) -> bool {
        self.of == Reader::Snapshot
    }

    /// True if there may be images that this view must read. The reader must call this after it has validated its read.
    ///
    /// # Errors
    /// `SnapshotBytes` if images that the view needs were dropped.
    #[inline(always)]
    pub fn may_hide(&self) -> Result<bool> {
        let images = self.after.images;
        match self.of {
            Reader::Scan if images.batched.load(Ordering::Acquire) < self.anchor.segment => Ok(false),
            Reader::Scan => self.hides(&self.anchor.fails_scans),
            // This order matters: a view is failed before its images are dropped.
            Reader::Snapshot if images.bytes.load(Ordering::Acquire) == 0 => {
                self.hides(&self.anchor.fails_snapshots)?;
                Ok(false)
            }
            Reader::Snapshot => self.hides(&self.anchor.fails_snapshots),
        }
    }

    fn hides(&self, fails: &AtomicBool) -> Result<bool> {
        if fails.load(Ordering::Acquire) {
            let limit_bytes = self.after.images.limit.load(Ordering::Relaxed);
            return Err(Error::SnapshotBytes { limit_bytes });
        }
        Ok(true)
    }

    /// The image of a key in this view; `None` if the key did not change. `Some(None)` means that the key was absent. The reader must call
    /// this after it has validated its read.
    ///
    /// # Errors
    /// As [`View::may_hide`].
    #[inline]
    pub fn replaced(&self, key: &S::Key) -> Result<Option<Option<S::ValueBuf>>> {
        Ok(self.replaced_at(key)?.map(|(old, _)| old))
    }

    /// As [`View::replaced`], with the ticket that must be durable before the image counts.
    #[inline]
    pub(crate) fn replaced_at(&self, key: &S::Key) -> Result<Option<Image<S>>> {
        if self.may_hide()? { self.image(&own::<S>(key)) } else { Ok(None) }
    }

    #[cold]
    fn image(&self, key: &S::KeyBuf) -> Result<Option<Image<S>>> {
        step();
        let images = self.after.images;
        let image = images.read().image(self.anchor.segment, key, self.of).cloned();
        // The images may have been dropped before the lookup.
        self.may_hide()?;
        images.copied.fetch_add(u64::from(image.is_some()), Ordering::Relaxed);
        Ok(image)
    }

    /// The first key with an image after `behind`, and the number of changes at the time of the lookup.
    fn next_key(&self, behind: &Bound<S::KeyBuf>, descending: bool) -> Result<(u64, Option<S::KeyBuf>)> {
        step();
        let table = self.after.images.read();
        let changes = self.after.images.changes.load(Ordering::Acquire);
        let key = table.next_key(self.anchor.segment, behind, descending, self.of).cloned();
        drop(table);
        self.may_hide()?;
        Ok((changes, key))
    }
}

impl<S: Schema> Drop for View<'_, S> {
    fn drop(&mut self) {
        if self.of == Reader::Snapshot {
            self.after.images.leave(&self.anchor);
        }
    }
}

/// Removes unused segments after a view has released its anchor.
struct Leaving<'a, S: Schema> {
    images: &'a Images<S>,
    is_snapshot: bool,
    segment: u64,
}

impl<S: Schema> Drop for Leaving<'_, S> {
    fn drop(&mut self) {
        let images = self.images;
        let keeps_images = self.is_snapshot || images.batched.load(Ordering::Acquire) >= self.segment;
        if keeps_images && images.bytes.load(Ordering::Relaxed) > 0 {
            let spare = images.sweep(&mut images.write());
            drop(spare);
        }
    }
}

/// The state of a scan through a view: its position in the index and in the images.
pub struct Scanned<'a, S: Schema> {
    /// The view that the scan reads.
    pub view: View<'a, S>,
    /// True once images are merged in. Until then, the cursor's own position is the scan's position.
    merges: bool,
    /// The merged scan continues after this bound. All returned keys are before it.
    behind: Bound<S::KeyBuf>,
    /// A pair that was read from the index and not returned yet.
    ahead: Option<(S::KeyBuf, S::ValueBuf)>,
    /// True if the index has no more pairs.
    ended: bool,
    /// The next key with an image, and the number of changes at the time of its lookup.
    near: Option<(u64, Option<S::KeyBuf>)>,
}

impl<'a, S: Schema> Scanned<'a, S> {
    /// Begins a scan through `view`.
    pub fn new(view: View<'a, S>) -> Self {
        Self { view, merges: false, behind: Bound::Unbounded, ahead: None, ended: false, near: None }
    }

    /// True once images are merged in.
    #[inline(always)]
    pub fn merges(&self) -> bool {
        self.merges
    }

    /// Restarts the scan at another position: at the same moment for a snapshot, otherwise at the current one.
    pub fn begin(&mut self) {
        let view = if self.view.is_snapshot() { self.view.again() } else { self.view.after.images.view() };
        *self = Self::new(view);
    }

    /// The next pair of the view. The caller must have read the next pair of the index into `ahead`.
    fn take(&mut self, descending: bool) -> Result<Taken<S>> {
        let changes = self.view.after.images.changes.load(Ordering::Acquire);
        if self.near.as_ref().is_none_or(|(then, _)| *then != changes) {
            self.near = Some(self.view.next_key(&self.behind, descending)?);
        }
        let near = self.near.as_ref().and_then(|(_, near)| near.as_ref());
        let is_image = match (near, &self.ahead) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(near), Some((ahead, _))) if descending => near >= ahead,
            (Some(near), Some((ahead, _))) => near <= ahead,
        };
        let Some(key) = near.filter(|_| is_image).cloned() else {
            return Ok(match self.ahead.take() {
                Some(pair) => {
                    self.pass(&pair.0);
                    Taken::Pair(pair)
                }
                None => Taken::End,
            });
        };
        self.near = None;
        let (old, ticket) = self.view.image(&key)?.unwrap_or_default();
        let now = self.ahead.take_if(|(ahead, _)| *ahead == key);
        self.pass(&key);
        Ok(Taken::Image { old: old.map(|value| (key, value)), ticket, now })
    }

    /// Notes that everything up to this key was returned.
    fn pass(&mut self, key: &S::KeyBuf) {
        match &mut self.behind {
            Bound::Excluded(behind) => behind.clone_from(key),
            behind => *behind = Bound::Excluded(key.clone()),
        }
    }
}

enum Taken<S: Schema> {
    Pair((S::KeyBuf, S::ValueBuf)),
    /// The next key as it was at the view's moment, and as it is in the index. `None`: it is absent.
    Image {
        old: Option<(S::KeyBuf, S::ValueBuf)>,
        ticket: u64,
        now: Option<(S::KeyBuf, S::ValueBuf)>,
    },
    End,
}

/// A cursor of an index that returns the pairs of its view.
pub trait Scans<'a, S: Schema> {
    /// The scan's state.
    fn scanned(&mut self) -> &mut Scanned<'a, S>;
    /// The position up to which the index was read, and true if the scan is descending.
    fn position(&self) -> (&Bound<S::KeyBuf>, bool);
    /// Copies the next pair of the index. False at the end. The caller must call [`Scans::advance`] with the key.
    ///
    /// # Errors
    /// `Corrupt`; the errors of a read.
    fn next_held(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool>;
    /// Notes that the index was read up to this key.
    fn advance(&mut self, key: &S::KeyBuf);
    /// Waits until an image with this ticket is durable, if the cursor returns only durable pairs.
    ///
    /// # Errors
    /// As a commit: the image was rolled back.
    fn settle_image(&self, ticket: u64) -> Result<()>;

    /// Moves to the next key and copies key and value. False at the end.
    ///
    /// # Errors
    /// As [`Scans::next_held`], and as [`View::may_hide`].
    #[inline(always)]
    fn next_seen(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        if !self.scanned().merges {
            let more = self.next_held(key, value)?;
            if !self.scanned().view.may_hide()? {
                if more {
                    self.advance(key);
                }
                return Ok(more);
            }
            let behind = self.position().0.clone();
            if more {
                self.advance(key);
            }
            let scanned = self.scanned();
            (scanned.merges, scanned.behind, scanned.ended) = (true, behind, !more);
            scanned.ahead = more.then(|| (std::mem::take(key), std::mem::take(value)));
        }
        self.next_merged(key, value)
    }

    /// As [`Scans::next_seen`], with images merged in.
    #[cold]
    fn next_merged(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        let descending = self.position().1;
        loop {
            if self.scanned().ahead.is_none() && !self.scanned().ended {
                let more = self.next_held(key, value)?;
                if more {
                    self.advance(key);
                }
                let scanned = self.scanned();
                scanned.ended = !more;
                scanned.ahead = more.then(|| (std::mem::take(key), std::mem::take(value)));
            }
            match self.scanned().take(descending)? {
                Taken::Pair(pair) => {
                    (*key, *value) = pair;
                    return Ok(true);
                }
                Taken::Image { old, ticket, now } => {
                    // After an error the image was rolled back, and so was the batch.
                    let pair = if self.settle_image(ticket).is_ok() { old } else { now };
                    if let Some(pair) = pair {
                        (*key, *value) = pair;
                        return Ok(true);
                    }
                }
                Taken::End => return Ok(false),
            }
        }
    }
}
