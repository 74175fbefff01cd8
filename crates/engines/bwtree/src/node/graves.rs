//! Freed nodes and records, in models and schedules.

use std::ptr::NonNull;

use super::{Made, Node, SEEN};
use crate::pairs::Pairs;
use crate::pool::Block;
use crate::record::Dead;

/// Freed nodes and records. Their blocks are reused at once. Models and schedules keep the blocks until the tree is dropped.
#[derive(Debug)]
pub(crate) struct Graves<P: Pairs> {
    #[cfg(any(all(test, loom), shuttle))]
    nodes: std::sync::Mutex<Vec<Made<P>>>,
    #[cfg(any(all(test, loom), shuttle))]
    records: std::sync::Mutex<Vec<Dead>>,
    pairs: std::marker::PhantomData<fn() -> P>,
}

impl<P: Pairs> Graves<P> {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(any(all(test, loom), shuttle))]
            nodes: std::sync::Mutex::default(),
            #[cfg(any(all(test, loom), shuttle))]
            records: std::sync::Mutex::default(),
            pairs: std::marker::PhantomData,
        }
    }

    /// Frees the node of a word.
    ///
    /// # Safety
    /// The word is null or a node's. No other thread has the node or can get it.
    pub(crate) unsafe fn bury(&self, word: *mut Node<P>, give: &mut impl FnMut(Block)) {
        let Some(at) = NonNull::new(word.map_addr(|addr| addr & !SEEN)) else { return };
        // SAFETY: by the caller's contract.
        unsafe { at.as_ref() }.watch.free();
        let made = Made(at);
        #[cfg(any(all(test, loom), shuttle))]
        {
            let _ = give;
            self.nodes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(made);
        }
        #[cfg(not(any(all(test, loom), shuttle)))]
        // SAFETY: by the caller's contract.
        give(unsafe { made.free() });
    }

    /// Frees a record.
    ///
    /// # Safety
    /// No other thread has the record or can get it.
    pub(crate) unsafe fn bury_record(&self, dead: Dead, give: &mut impl FnMut(Block)) {
        dead.bury();
        #[cfg(any(all(test, loom), shuttle))]
        {
            let _ = give;
            self.records.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(dead);
        }
        #[cfg(not(any(all(test, loom), shuttle)))]
        // SAFETY: by the caller's contract.
        give(unsafe { dead.free() });
    }

    /// Destroys the kept nodes and records. No thread has any of them.
    pub(crate) fn empty(&mut self, mut give: impl FnMut(Block)) {
        #[cfg(any(all(test, loom), shuttle))]
        {
            for made in self.nodes.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).drain(..) {
                // SAFETY: no thread had the node when it was buried, and the list has it once.
                give(unsafe { made.free() });
            }
            for dead in self.records.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).drain(..) {
                // SAFETY: as above.
                give(unsafe { dead.free() });
            }
        }
        let _ = &mut give;
    }
}
