//! System calls that fail: the N-th call on the files below a directory, once or from then on.
//!
//! A sweep runs the same program for N = 1, 2, 3 … until a run has no failure ([`Failing::was_met`]).
//!
//! The error number suits the call: for example a full disk for writes, no descriptors for opens, no memory for mappings. The seed selects
//! the error number. The seed also selects what the call does before it fails. Most calls do nothing. A write or an allocation does nothing,
//! or half of its work. A change of the length, a rename or a sync does nothing, or all of its work. A write can also do half of its work
//! and return no error (a short write).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::system::{Kind, Verdict, Watch, Watching, watch};

use crate::mix;

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const ENOLCK: i32 = 37;

/// The calls that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// This call only. The first call is 1.
    Once(u64),
    /// This call and all later ones.
    From(u64),
    /// No call. Calls are only counted.
    Never,
}

impl Plan {
    fn hits(self, call: u64) -> bool {
        match self {
            Plan::Once(at) => call == at,
            Plan::From(at) => call >= at,
            Plan::Never => false,
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    calls: u64,
    failed: BTreeMap<&'static str, u64>,
    last: Option<(Kind, i32)>,
    syncs_failed: u64,
}

/// A running plan. See the module's head.
#[derive(Debug)]
pub struct Failing {
    plan: Plan,
    seed: u64,
    seen: Mutex<Seen>,
}

impl Failing {
    /// Injects failures into calls on the files below `dir`, until the returned [`Watching`] is dropped.
    pub fn below(dir: &Path, plan: Plan, seed: u64) -> (Arc<Self>, Watching) {
        let failing = Arc::new(Self { plan, seed, seen: Mutex::default() });
        let watching = watch(dir, Arc::clone(&failing) as Arc<dyn Watch>);
        (failing, watching)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a call failed, or did only a part of its work.
    pub fn was_met(&self) -> bool {
        self.seen().last.is_some()
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.seen().calls
    }

    /// Number of failed syncs of files.
    pub fn syncs_failed(&self) -> u64 {
        self.seen().syncs_failed
    }

    /// The last call that failed and its error number; 0 for a call that did a part of its work without an error.
    pub fn last(&self) -> Option<(Kind, i32)> {
        self.seen().last
    }

    /// Number of failed calls, by name of the call.
    pub fn failed(&self) -> BTreeMap<&'static str, u64> {
        self.seen().failed.clone()
    }
}

impl Watch for Failing {
    fn before(&self, kind: Kind, _path: &Path, _file: Option<&File>) -> Verdict {
        let mut seen = self.seen();
        seen.calls += 1;
        if !self.plan.hits(seen.calls) {
            return Verdict::Go;
        }
        let (name, codes): (_, &[i32]) = match kind {
            Kind::Open => ("open", &[EMFILE, EIO, ENOMEM]),
            Kind::Duplicate => ("dup", &[EMFILE]),
            Kind::Inspect => ("fstat", &[EIO]),
            Kind::Lock => ("flock", &[ENOLCK]),
            Kind::Read => ("pread", &[EIO]),
            Kind::Write => ("pwrite", &[ENOSPC, EIO]),
            Kind::SetLength => ("ftruncate", &[EIO, ENOSPC]),
            Kind::Allocate => ("fallocate", &[ENOSPC, EIO]),
            Kind::Discard => ("fallocate that gives blocks back", &[ENOSPC, EIO]),
            Kind::Map => ("mmap", &[ENOMEM]),
            Kind::Sync => ("fsync", &[EIO, ENOSPC]),
            Kind::SyncRange { .. } => ("msync", &[EIO]),
            Kind::SyncDirectory => ("fsync of a directory", &[EIO]),
            Kind::Rename => ("rename", &[EIO, ENOSPC]),
            Kind::Remove => ("unlink", &[EIO]),
            Kind::MakeDirectory => ("mkdir", &[ENOSPC, EIO]),
        };
        let choice = mix(self.seed, seen.calls);
        let code = codes[choice as usize % codes.len()];
        // Other calls have no partial effect: a mapping, an open file or a lock that exists after an error would be a defect of the kernel.
        let has_parts = matches!(
            kind,
            Kind::Write | Kind::SetLength | Kind::Allocate | Kind::Rename | Kind::Sync | Kind::SyncDirectory
        );
        let verdict = match choice >> 32 & 3 {
            0 if kind == Kind::Write => Verdict::Part,
            0 | 1 if has_parts => Verdict::PartThenFail(code),
            _ => Verdict::Fail(code),
        };
        seen.syncs_failed += u64::from(matches!(kind, Kind::Sync | Kind::SyncRange { .. }));
        *seen.failed.entry(name).or_default() += 1;
        seen.last = Some((kind, if verdict == Verdict::Part { 0 } else { code }));
        verdict
    }
}
