//! The slab of a leaf: places for changes, in the block of its base page.
//!
//! Invariant N4 in [`node`](crate::node) says which thread writes and reads a place.

use std::mem::MaybeUninit;

use crate::omission::{Omission, is_omitted};
use crate::pairs::{Pairs, Spot};
use crate::pool::{Array, Space};
use crate::sync::{AtomicU64, Ordering, OwnedCell};

/// Places for the changes of a leaf.
#[derive(Debug)]
pub(crate) struct Slab<P: Pairs> {
    /// Number of claimed places (N4).
    claimed: AtomicU64,
    places: Array<Place<P>>,
}

/// The place of one change (N4).
#[derive(Debug)]
pub(crate) struct Place<P: Pairs>(OwnedCell<MaybeUninit<Noted<P>>>);

// SAFETY: N4 says which thread writes and reads it.
unsafe impl<P: Pairs> Sync for Place<P> {}
// SAFETY: as above.
unsafe impl<P: Pairs> Send for Place<P> {}

/// A change of a leaf, and the size of the page with it.
#[derive(Debug)]
pub(crate) struct Noted<P: Pairs> {
    pub(crate) change: P::Change,
    pub(crate) lsn: u64,
    /// The position of the key in the leaf's run.
    pub(crate) spot: Spot,
    /// Bytes that the page would take, shifted by one. The lowest bit is set if the key has a record.
    pub(crate) bytes: u32,
}

impl<P: Pairs> Slab<P> {
    pub(crate) fn new(space: &mut Space, places: u32) -> Self {
        let empty = || Place(OwnedCell::new(MaybeUninit::uninit()));
        let places = space.collect(places as usize, align_of::<Place<P>>(), (0..places).map(|_| empty()));
        Self { claimed: AtomicU64::new(0), places }
    }

    /// Claims the place after the first `seen` ones (N4). `None` if there is no such place, or another thread claimed it.
    #[inline(always)]
    pub(crate) fn claim(&self, seen: u32) -> Option<&Place<P>> {
        let place = self.places.get(seen as usize)?;
        let (old, new) = (u64::from(seen), u64::from(seen) + 1);
        if is_omitted(Omission::Claim) {
            // The injected fault: a load and a store, between which another thread may load too.
            let is_free = self.claimed.load(Ordering::Relaxed) == old;
            if is_free {
                self.claimed.store(new, Ordering::Relaxed);
            }
            return is_free.then_some(place);
        }
        // Relaxed: the counter publishes nothing. The exchange of the mapping-table word orders the accesses to the place.
        self.claimed.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok().then_some(place)
    }

    /// A visible change.
    #[inline(always)]
    pub(crate) fn get(&self, i: u32) -> &Noted<P> {
        self.places[i as usize].0.with(|place| {
            // SAFETY: the caller found a word or a link that makes the place visible, so it is not written any more (N4).
            let place = unsafe { &*place };
            // SAFETY: as above, and the place was written before it became visible.
            unsafe { place.assume_init_ref() }
        })
    }
}

impl<P: Pairs> Place<P> {
    /// Writes the change. The caller has claimed the place.
    #[inline(always)]
    pub(crate) fn write(&self, noted: Noted<P>) {
        // SAFETY: N4.
        self.0.with_mut(|place| unsafe { place.write(MaybeUninit::new(noted)) });
    }
}

impl<P: Pairs> Noted<P> {
    #[inline(always)]
    pub(crate) fn record(&self) -> P::Record<'_> {
        P::changed(&self.change, self.bytes & 1 != 0)
    }

    /// Bytes that the page would take as a base page.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        (self.bytes >> 1) as usize
    }
}
