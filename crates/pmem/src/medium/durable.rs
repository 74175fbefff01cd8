//! The medium of a store, chosen when the store is opened: mapped memory ([`Native`]) or a journal ([`Journal`]).
//!
//! One type covers both, so a tree is compiled once for both. A read is the same for both and equally fast, because this type holds the
//! address of the mapped memory and reads there. A write to the medium branches on the kind of medium.
//!
//! Invariant: the field `view` (the address) refers to memory that the field `below` (the chosen medium) owns. Both are dropped together.

use std::sync::Arc;

use crate::error::Result;
use crate::medium::journal::Journal;
use crate::medium::native::Native;
use crate::medium::traits::Pages;
use crate::medium::traits::{Fence, Group, Line, Medium};
use crate::medium::view::View;

/// The medium of a store: mapped memory or a journal.
#[derive(Debug)]
pub struct Durable {
    view: View,
    below: Below,
}

#[derive(Debug)]
enum Below {
    Native(Native),
    Journal(Arc<Journal>),
}

impl From<Native> for Durable {
    fn from(native: Native) -> Self {
        Self { view: native.view(), below: Below::Native(native) }
    }
}

impl From<Arc<Journal>> for Durable {
    fn from(journal: Arc<Journal>) -> Self {
        Self { view: journal.view(), below: Below::Journal(journal) }
    }
}

impl Durable {
    /// The journal, if there is one.
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        match &self.below {
            Below::Native(_) => None,
            Below::Journal(journal) => Some(journal),
        }
    }
}

/// Calls the medium below.
macro_rules! pass {
    ($self:expr, $medium:ident => $call:expr) => {
        match &$self.below {
            Below::Native($medium) => $call,
            Below::Journal(shared) => {
                let $medium = &**shared;
                $call
            }
        }
    };
}

impl Medium for Durable {
    #[inline(always)]
    fn line(&self, at: u64) -> &Line {
        self.view.line(at)
    }

    #[inline(always)]
    fn word(&self, at: u64) -> u64 {
        self.view.word(at)
    }

    #[inline(always)]
    fn copy(&self, at: u64, value: u64) {
        pass!(self, medium => medium.copy(at, value));
    }

    #[inline(always)]
    fn publish(&self, at: u64, value: u64) {
        pass!(self, medium => medium.publish(at, value));
    }

    #[inline(always)]
    fn flush(&self, at: u64, bytes: u64) {
        pass!(self, medium => medium.flush(at, bytes));
    }

    #[inline(always)]
    fn fence(&self, why: Fence) {
        pass!(self, medium => medium.fence(why));
    }

    #[inline(always)]
    fn prefetch(&self, at: u64, bytes: u64) {
        self.view.prefetch(at, bytes);
    }

    #[inline(always)]
    fn len(&self) -> u64 {
        pass!(self, medium => medium.len())
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        pass!(self, medium => medium.grow(bytes))
    }

    fn discard(&self, at: u64, bytes: u64) -> bool {
        pass!(self, medium => medium.discard(at, bytes))
    }

    fn provide(&self, at: u64, bytes: u64) -> Result<()> {
        pass!(self, medium => medium.provide(at, bytes))
    }

    fn holes(&self) -> Vec<(u64, u64)> {
        pass!(self, medium => medium.holes())
    }

    fn sync(&self, at: u64, bytes: u64) -> Result<()> {
        pass!(self, medium => medium.sync(at, bytes))
    }

    fn group(&self) -> Option<Group> {
        pass!(self, medium => medium.group())
    }

    fn reserve(&self, lines: u64) -> Result<()> {
        pass!(self, medium => medium.reserve(lines))
    }

    fn commit_beside<G>(&self, hold: impl FnOnce() -> Option<G>) -> Result<()> {
        pass!(self, medium => Medium::commit_beside(medium, hold))
    }

    fn roll_back(&self) {
        pass!(self, medium => Medium::roll_back(medium));
    }

    fn pages(&self) -> Option<Pages<'_>> {
        pass!(self, medium => medium.pages())
    }

    #[inline(always)]
    fn lines(&self, at: u64, count: usize) -> Option<&[Line]> {
        Some(self.view.lines(at, count))
    }
}
