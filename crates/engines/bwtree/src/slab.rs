//! Space for changes of a leaf, in the block of its base page (N4 in [`node`](crate::node)).

use std::mem::MaybeUninit;

use crate::canary::{Canary, sings};
use crate::pairs::{Pairs, Spot};
use crate::pool::{Array, Space};
use crate::sync::{AtomicU64, Ordering, OwnedCell};

/// Space for changes of a leaf.
#[derive(Debug)]
pub(crate) struct Slab<P: Pairs> {
    /// Places that were claimed (N4).
    claimed: AtomicU64,
    places: Array<Place<P>>,
}

/// The place of one change (N4).
#[derive(Debug)]
pub(crate) struct Place<P: Pairs>(OwnedCell<MaybeUninit<Noted<P>>>);

// SAFETY: who writes and who reads it says N4.
unsafe impl<P: Pairs> Sync for Place<P> {}
// SAFETY: as above.
unsafe impl<P: Pairs> Send for Place<P> {}

/// A change of a leaf, and what the page is with it.
#[derive(Debug)]
pub(crate) struct Noted<P: Pairs> {
    pub(crate) change: P::Change,
    pub(crate) lsn: u64,
    /// Where the key is in the leaf's run.
    pub(crate) spot: Spot,
    /// Bytes that the page would take, and in the last bit whether there is a record of this key.
    pub(crate) bytes: u32,
}

impl<P: Pairs> Slab<P> {
    pub(crate) fn new(space: &mut Space, places: u32) -> Self {
        let empty = || Place(OwnedCell::new(MaybeUninit::uninit()));
        let places = space.collect(places as usize, align_of::<Place<P>>(), (0..places).map(|_| empty()));
        Self { claimed: AtomicU64::new(0), places }
    }

    /// Claims the place behind these (N4), if there is one and nobody did.
    #[inline(always)]
    pub(crate) fn claim(&self, seen: u32) -> Option<&Place<P>> {
        let place = self.places.get(seen as usize)?;
        let (old, new) = (u64::from(seen), u64::from(seen) + 1);
        if sings(Canary::Claim) {
            // A look and a store: another may have looked too.
            let is_free = self.claimed.load(Ordering::Relaxed) == old;
            if is_free {
                self.claimed.store(new, Ordering::Relaxed);
            }
            return is_free.then_some(place);
        }
        // Whoever has seen a place knows that it was claimed: nothing else is to be learned of it.
        self.claimed.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok().then_some(place)
    }

    /// A change that is seen.
    #[inline(always)]
    pub(crate) fn get(&self, i: u32) -> &Noted<P> {
        self.places[i as usize].0.with(|place| {
            // SAFETY: who asks has found a word or a link that sees it, so it is not written any more (N4).
            let place = unsafe { &*place };
            // SAFETY: as above, and it was written before.
            unsafe { place.assume_init_ref() }
        })
    }
}

impl<P: Pairs> Place<P> {
    /// What stands here from now on. Whoever calls it has claimed the place.
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

    /// Bytes that the page would take in a base page.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        (self.bytes >> 1) as usize
    }
}
