//! Holes of a mapped file: discarded ranges, and ranges for which a file has no blocks or no data when it is opened.
//!
//! The file's mapping leaves a hole out. In its place, the reserved range of addresses shows zeros that take no memory and cannot be stored
//! to. A load there reads these zeros and not the file, so it never asks the file system for a block. A hole is allocated and mapped before
//! the next store to it.
//!
//! Each range between holes is one kernel mapping. A process may usually have 65,530 mappings (`vm.max_map_count`). Beyond that a
//! discard is refused, and an open allocates blocks for the holes of the file.

use std::fs::File;
use std::sync::PoisonError;

use super::{Durability, Native};
use crate::error::Result;
use crate::file::{allocate, mapped, next_data, punch};
use crate::medium::holes::Holes;
use crate::medium::traits::Medium;
use crate::medium::view::PAGE;
use crate::sync::atomics::unmodelled::MutexGuard;
use crate::system::{self, Kind};

impl Native {
    pub(super) fn lock_holes(&self) -> MutexGuard<'_, Holes> {
        self.holes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all_holes(&self) -> Vec<(u64, u64)> {
        self.lock_holes().all()
    }

    /// Maps the first `len` bytes of a file, except its holes.
    pub(super) fn map_data(&self, file: &File, len: u64, is_dense: bool) -> Result<()> {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        if is_dense {
            return self.map_range(0, len, both);
        }
        let mut holes = Holes::default();
        let mut at = 0;
        while let Some((data, hole)) = next_data(file, &self.path, self.origin + at, self.origin + len)? {
            let first = (data & !(PAGE - 1)) - self.origin;
            let end = (hole.next_multiple_of(PAGE) - self.origin).min(len);
            if first > at {
                holes.add(at, first);
            }
            if self.map_range(first, end, both).is_err() {
                // The system has too few mappings for all ranges.
                allocate(file, &self.path, self.origin, self.origin + len)?;
                return self.map_range(0, len, both);
            }
            at = end;
        }
        if at < len {
            holes.add(at, len);
        }
        *self.lock_holes() = holes;
        Ok(())
    }

    /// Turns the whole pages of `[from, to)` into a hole. False if they stay as they are.
    pub(super) fn punch(&self, from: u64, to: u64) -> bool {
        let (from, to) = (from.next_multiple_of(PAGE), to.min(self.len()) & !(PAGE - 1));
        // A private image does not change the file. A window maps pages a second time, and none of them may be a hole (D2).
        let may = !self.private && !self.is_shown() && self.check().is_ok() && from < to;
        let Some(file) = self.file.as_ref().filter(|_| may) else { return false };
        let mut holes = self.lock_holes();
        // Hidden before the punch, so that no load reads from a hole.
        if self.hide(from, to).is_err() {
            return false;
        }
        let punched = punch(file, &self.path, self.origin + from, self.origin + to);
        if punched.is_err() && self.show(from, to).is_ok() {
            return false;
        }
        holes.add(from, to);
        true
    }

    /// Maps pages of the file again where zeros replaced them.
    ///
    /// # Errors
    /// `Io` if the file cannot be mapped.
    pub(crate) fn show(&self, from: u64, to: u64) -> Result<()> {
        self.map_range(from, to, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Replaces pages of the file with zeros.
    pub(crate) fn hide(&self, from: u64, to: u64) -> std::io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: `from` lies inside the reserved range (N2).
        let place = unsafe { self.view.base.as_ptr().add(from as usize) };
        system::call(Kind::Map, &self.path, self.file.as_ref(), |_| {
            // SAFETY: MAP_FIXED replaces pages of our own reserved range; the caller no longer needs their content.
            mapped(unsafe { libc::mmap(place.cast(), (to - from) as usize, libc::PROT_READ, flags, -1, 0) })
        })
        .map(drop)
    }

    /// Allocates and maps the holes in `[from, to)`.
    pub(super) fn fill(&self, from: u64, to: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let (from, to) = (from & !(PAGE - 1), to.next_multiple_of(PAGE).min(self.len()));
        let mut holes = self.lock_holes();
        let within = holes.within(from, to);
        for (from, to) in &within {
            self.check()?;
            allocate(file, &self.path, self.origin + from, self.origin + to)?;
            if self.durability != Durability::Process {
                self.synced(system::sync_all(file, &self.path))?;
            }
            self.show(*from, *to)?;
            holes.remove(*from, *to);
        }
        Ok(())
    }
}
