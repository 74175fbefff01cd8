//! Views of before-images: of one moment, for scans and snapshots. See the module above.

use std::ops::Bound;
use std::sync::Arc;

use pmem::sync::{AtomicBool, Ordering, step};
use pmem::{Error, Result};

use super::table::{Anchor, Reader};
use super::{Images, own};
use crate::schema::Schema;

/// What a scan, a snapshot, or a read of many keys sees: the index at one moment.
pub struct View<'a, S: Schema> {
    of: Reader,
    anchor: Arc<Anchor>,
    /// After the anchor: it is dropped when the view is no longer counted there.
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

    /// True if this is a snapshot: it sees no single writes either.
    pub fn is_snapshot(&self) -> bool {
        self.of == Reader::Snapshot
    }

    /// True if there may be images that this view has to read. To be asked after what was read of the index is validated.
    ///
    /// # Errors
    /// `SnapshotBytes` if images that it needs were dropped.
    #[inline(always)]
    pub fn may_hide(&self) -> Result<bool> {
        let images = self.after.images;
        match self.of {
            Reader::Scan if images.batched.load(Ordering::Acquire) < self.anchor.segment => Ok(false),
            Reader::Scan => self.hides(&self.anchor.fails_scans),
            // Asked in this order: images are dropped after the view was failed.
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

    /// What a key was at this view's moment, if that was replaced. To be asked after what was read of the index is validated.
    ///
    /// # Errors
    /// As [`View::may_hide`].
    #[inline]
    pub fn replaced(&self, key: &S::Key) -> Result<Option<Option<S::ValueBuf>>> {
        if self.may_hide()? { self.image(&own::<S>(key)) } else { Ok(None) }
    }

    #[cold]
    fn image(&self, key: &S::KeyBuf) -> Result<Option<Option<S::ValueBuf>>> {
        step();
        let images = self.after.images;
        let image = images.read().image(self.anchor.segment, key, self.of).cloned();
        // The bound may have been reached before the lookup.
        self.may_hide()?;
        images.copied.fetch_add(u64::from(image.is_some()), Ordering::Relaxed);
        Ok(image)
    }

    /// The first key with an image behind a bound, and the number of changes when it was looked for.
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

/// What comes after a view has left its anchor.
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

/// A scan through a view: how far it has come, in the index and in the images.
pub struct Scanned<'a, S: Schema> {
    /// What it sees.
    pub view: View<'a, S>,
    /// Images are merged in. Before that the cursor's own position says how far it has come.
    merges: bool,
    /// Everything given out is behind this.
    behind: Bound<S::KeyBuf>,
    /// A pair of the index that the scan has not come to.
    ahead: Option<(S::KeyBuf, S::ValueBuf)>,
    /// The index has no more.
    ended: bool,
    /// The next key with an image, and the number of changes when that was so.
    near: Option<(u64, Option<S::KeyBuf>)>,
}

impl<'a, S: Schema> Scanned<'a, S> {
    /// A scan that begins.
    pub fn new(view: View<'a, S>) -> Self {
        Self { view, merges: false, behind: Bound::Unbounded, ahead: None, ended: false, near: None }
    }

    /// Begins again at another place: of a snapshot at the same moment, else at the present.
    pub fn begin(&mut self) {
        let view = if self.view.is_snapshot() { self.view.again() } else { self.view.after.images.view() };
        *self = Self::new(view);
    }

    /// The next pair of the view, if the index was asked for its next pair; `None` behind a key that was absent.
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
        let old = self.view.image(&key)?;
        self.ahead.take_if(|(ahead, _)| *ahead == key);
        self.pass(&key);
        Ok(match old.flatten() {
            Some(value) => Taken::Pair((key, value)),
            None => Taken::Absent,
        })
    }

    /// Everything up to this key was given out.
    fn pass(&mut self, key: &S::KeyBuf) {
        match &mut self.behind {
            Bound::Excluded(behind) => behind.clone_from(key),
            behind => *behind = Bound::Excluded(key.clone()),
        }
    }
}

enum Taken<S: Schema> {
    Pair((S::KeyBuf, S::ValueBuf)),
    /// The next key of the view was absent at its moment.
    Absent,
    End,
}

/// A cursor of an index, and the pairs that its view sees.
pub trait Scans<'a, S: Schema> {
    /// The scan's state.
    fn scanned(&mut self) -> &mut Scanned<'a, S>;
    /// Where the index was read up to, and whether it is read downwards.
    fn position(&self) -> (&Bound<S::KeyBuf>, bool);
    /// The next pair that the index holds. Then the caller has to [`Scans::advance`].
    ///
    /// # Errors
    /// `Corrupt`; what reading may say.
    fn next_held(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool>;
    /// The index was read up to this key.
    fn advance(&mut self, key: &S::KeyBuf);

    /// Moves one key on and copies key and value out; false at the end.
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

    /// As [`Scans::next_seen`] where there are images.
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
                Taken::Absent => {}
                Taken::End => return Ok(false),
            }
        }
    }
}
