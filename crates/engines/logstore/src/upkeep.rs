//! The upkeep of a store: eviction, checkpoints, cleaning. One thread at a time does it (A4 of [`store`](crate::store)).

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bwtree::{Address, Eviction, Image, ImageKind, Pairs, Residence, RestoredLeaf, SavedLeaf};
use pmem::{Error, Result};

use crate::checkpoint::{self, Writer};
use crate::live::Live;
use crate::log::Log;
use crate::omission::{Omission, is_omitted};
use crate::segment::Parts;
use crate::segments::Filled;
use crate::settings::StoreStats;
use crate::store::{Failure, Store, thread};
use crate::sync::{lock, try_lock};

thread_local! {
    static SINCE_CHECK: Cell<u32> = const { Cell::new(0) };
}

/// Memory for buffers of the log, of segments and of reads, if the budget is large enough.
const BUFFERS: u64 = 16 << 20;
/// Leaves are evicted when pages take more than this share of the memory budget, in twentieths.
const EVICT_FROM: u64 = 16;
/// Pages get less if the tree has allocated more than this share.
const HELD: u64 = 18;
const EXCESS_MAX: u64 = 8;
/// With less memory, what the tree has allocated is not compared with the budget.
const MEASURED_MIN: u64 = 16 << 20;
/// Leaves are evicted until pages take this part of the budget less, so that no operation waits for the eviction of many leaves.
const EVICT_PART: u64 = 256;
/// A round of the eviction looks at each page one time more often. After that no leaf counts as used.
const LAPS: u32 = 3;
/// Threads wait if memory that waits to be freed takes more than this share, but not more often than this number.
const LIMBO: u64 = 1;
const LIMBO_WAITS: u32 = 20;
/// While a checkpoint is made, updates wait if the log has this many times the length at which one begins. An open reads all of it.
const LOG_MAX: u64 = 2;
/// Pause of a thread that waits until another one has evicted leaves.
const WAIT: Duration = Duration::from_micros(100);
/// Number of leaves whose images are prefetched together, before these leaves are saved or moved.
const AHEAD: usize = 64;
/// Number of pages that are saved before their images are written. Fewer if they take more than this part of the budget.
const TOGETHER: usize = 64;
const TOGETHER_PART: u64 = 64;
/// Evicted leaves keep changes up to this share.
const UNSAVED: u64 = 6;

/// The work of one thread at a time (A4).
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    /// The page that the next round of the eviction begins with.
    hand: u32,
    /// For the pages before the second one, the images that a save reads are prefetched. From the first one on, the next pages are due.
    prefetched: (u32, u32),
    /// Number of the published checkpoint.
    pub(crate) number: u64,
    pub(crate) stats: StoreStats,
    /// Bytes of images that were written before the last checkpoint.
    images_at: u64,
    /// True if a batch kept a leaf in memory in this round of the eviction.
    was_refused: bool,
    /// Pages that were saved, and whose images are handed over. They are evicted when those of the next pages are, even if they were used
    /// meanwhile.
    handed: Vec<u32>,
    /// When a round of the eviction could not evict enough.
    failed_at: Option<Instant>,
    /// True if all segments with free space are to be cleaned.
    is_compacting: bool,
    /// True if the cleaner moved images since the last checkpoint.
    has_moved: bool,
    /// Leaves of the last checkpoint.
    leaves: u64,
    committed_at: Option<Instant>,
    /// The length of the log, and when it was seen first.
    seen: Option<(u64, Instant)>,
}

impl Upkeep {
    /// The upkeep of a store whose checkpoint has this number, and names this many leaves.
    pub(crate) fn new(number: u64, leaves: u64) -> Self {
        Self { number, leaves, ..Self::default() }
    }

    /// True if the log has had this length for a time. The next time begins then, so a checkpoint that fails is not repeated at once.
    fn is_idle(&mut self, length: u64, time: Duration) -> bool {
        let (before, since) = *self.seen.get_or_insert_with(|| (length, Instant::now()));
        let is_idle = before == length && since.elapsed() >= time;
        if is_idle || before != length {
            self.seen = Some((length, Instant::now()));
        }
        is_idle
    }
}

/// Counts operations of this thread. True every 64th.
#[inline(always)]
fn is_due(operations: u32) -> bool {
    SINCE_CHECK.with(|since| {
        let (before, count) = (since.get(), since.get().wrapping_add(operations));
        since.set(count);
        before / 64 != count / 64
    })
}

/// While it exists, updates may wait for the checkpoint.
struct Pace<'s> {
    allowed: &'s AtomicU64,
}

impl Pace<'_> {
    /// Lets the log become so long.
    fn allow(&self, bytes: u64) {
        self.allowed.store(bytes, Ordering::Relaxed);
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        self.allow(u64::MAX);
    }
}

impl<P: Pairs> Store<P> {
    /// Bytes of pages and of the mapping table. Memory that waits to be freed does not count: while a reader keeps it, an eviction of more
    /// leaves would not help. The rest of the budget is for that memory, and for free space between blocks. If both take more, pages get less,
    /// down to [`EVICT_FROM`] less [`EXCESS_MAX`]: then new blocks find space between others.
    fn used_bytes(&self) -> u64 {
        let memory = self.tree.memory();
        // The chunks of a tree do not fit into the budget of a test.
        let excess = match self.settings.memory_bytes {
            ..MEASURED_MIN => 0,
            _ => self.tree.held_bytes().saturating_sub(self.budget(HELD)),
        };
        memory.page_bytes + memory.table_bytes + excess.min(self.budget(EXCESS_MAX))
    }

    /// A share of the memory budget without [`BUFFERS`] and images that were read ahead, in twentieths.
    fn budget(&self, twentieths: u64) -> u64 {
        let budget = self.settings.memory_bytes;
        let others = BUFFERS.min(budget / 16) + self.settings.fetched_bytes();
        (budget - others) / 20 * twentieths
    }

    /// True if leaves are to be evicted: they take more than this share of the budget, and more than the last round left that could not
    /// evict enough. Inner pages and evicted leaves take memory too, so a budget can be too small.
    fn is_above(&self, twentieths: u64, used: u64) -> bool {
        let least = self.least_bytes.load(Ordering::Relaxed);
        used > self.budget(twentieths).max(least + least / 8)
    }

    /// Every 64th operation of a thread: evicts leaves if the store takes more memory than its budget, and makes a checkpoint if the log
    /// has become far too long. So the store keeps its bounds without a thread for the upkeep, too.
    #[inline(always)]
    pub(crate) fn relieve(&self) {
        if is_due(1) {
            self.relieve_now();
        }
    }

    /// As [`relieve`](Self::relieve), after several updates. Then waits while the log is longer than the running checkpoint allows.
    #[inline(always)]
    pub(crate) fn relieve_after_updates(&self, updates: usize) {
        if is_due(updates.min(1 << 20) as u32) {
            self.relieve_now();
            let must_wait = || self.log_length() > self.log_allowed.load(Ordering::Relaxed);
            if must_wait() {
                let since = self.counts.begin_wait();
                while must_wait() {
                    std::thread::sleep(WAIT);
                }
                self.counts.end_wait(since);
            }
        }
    }

    #[cold]
    pub(crate) fn relieve_now(&self) {
        // After a failure nothing can be saved. A read-only store evicts leaves that need not be saved.
        if self.log().is_err() && !self.settings.read_only {
            return;
        }
        let mut since = None;
        let mut note_wait = || _ = since.get_or_insert_with(|| self.counts.begin_wait());
        // A thread without processor time may keep much memory from being freed. It gets some.
        for _ in 0..LIMBO_WAITS {
            if self.tree.memory().limbo_bytes <= self.budget(LIMBO) {
                break;
            }
            note_wait();
            std::thread::sleep(WAIT);
            self.tree.reclaim();
        }
        // Errors here are found again by the thread of the upkeep, or by the update that they prevent.
        loop {
            let used = self.used_bytes();
            if !self.is_above(EVICT_FROM, used) {
                break;
            }
            // Up to a second bound the thread of the upkeep does it, so that operations go on.
            if !self.is_above(EVICT_FROM + 1, used) && self.wake_helper() {
                break;
            }
            if let Some(mut upkeep) = try_lock(&self.upkeep) {
                note_wait();
                let _ = self.make_room(&mut upkeep);
                break;
            }
            // Up to that bound the thread does not wait for another one that evicts or makes a checkpoint. It does not wait in the
            // queue of the lock: a thread that makes one checkpoint after the other takes the lock again before a waiting one wakes up.
            if !self.is_above(EVICT_FROM + 1, used) {
                break;
            }
            note_wait();
            std::thread::sleep(WAIT);
        }
        if self.log.is_some()
            && self.log_length() > self.settings.log_bytes.saturating_mul(4)
            && let Some(mut upkeep) = try_lock(&self.upkeep)
        {
            note_wait();
            let _ = self.checkpoint_with(&mut upkeep);
        }
        if let Some(since) = since {
            self.counts.end_wait(since);
        }
    }

    /// Lets the thread of the upkeep do its next step now. False if there is no such thread, or if it is this one.
    fn wake_helper(&self) -> bool {
        let helper = lock(&self.helper);
        let Some(helper) = helper.as_ref().filter(|helper| helper.id() != std::thread::current().id()) else {
            return false;
        };
        helper.unpark();
        true
    }

    /// Bytes of the log that the next open would read.
    fn log_length(&self) -> u64 {
        let written = self.log.as_ref().map_or(0, |log| log.stats().written_bytes);
        written.wrapping_sub(self.log_at.load(Ordering::Relaxed))
    }

    /// Evicts leaves until they take less than [`EVICT_FROM`] of the budget by [`EVICT_PART`].
    pub(crate) fn make_room(&self, upkeep: &mut Upkeep) -> Result<()> {
        let target = self.budget(EVICT_FROM) - self.settings.memory_bytes / EVICT_PART;
        if self.used_bytes() <= target {
            return Ok(());
        }
        // Pages that were saved and wait for the write of their images.
        let (mut saved, mut saved_bytes): (Vec<u32>, u64) = (Vec::new(), 0);
        let (mut laps, mut steps) = (0u32, 0u32);
        // Evicted leaves, and leaves that lost copies, before this lap.
        let (mut before, mut dropped) = (upkeep.stats.evictions, 0);
        let mut was_useless = false;
        while laps <= LAPS {
            let Some((page, residence)) = self.tree.candidate(upkeep.hand) else {
                (upkeep.hand, upkeep.prefetched, laps) = (0, (0, 0), laps + 1);
                self.evict_saved(upkeep, &mut saved)?;
                was_useless = upkeep.stats.evictions + dropped == before;
                before = upkeep.stats.evictions + dropped;
                continue;
            };
            upkeep.hand = page + 1;
            if matches!(residence, Residence::Unsaved | Residence::Copies) {
                dropped += u64::from(self.tree.drop_copies(page));
            }
            match residence {
                // The image may be in a buffer that was not written yet.
                Residence::Clean => {
                    if self.evict(upkeep, page, false) == Eviction::Kept {
                        saved.push(page);
                    }
                }
                Residence::Dirty | Residence::Unsaved if self.settings.read_only => {}
                Residence::Dirty => {
                    let may_keep = self.tree.unsaved_bytes() < self.budget(UNSAVED);
                    if !(may_keep && matches!(self.evict(upkeep, page, true), Eviction::Done(_)))
                        && let Some(bytes) = self.save(page)?
                    {
                        saved.push(page);
                        saved_bytes += bytes;
                    }
                }
                // After two laps, also changes that need not be saved yet.
                Residence::Unsaved if laps > 1 || self.tree.unsaved_bytes() > self.budget(UNSAVED) => {
                    let (due, end) = upkeep.prefetched;
                    if page >= due {
                        upkeep.prefetched = (end, self.tree.prefetch_pages(end.max(page), AHEAD));
                    }
                    // The save may have read the leaf.
                    if let Some(bytes) = self.save(page)? {
                        saved.push(page);
                        saved_bytes += bytes;
                    }
                }
                Residence::Unsaved | Residence::Used | Residence::Copies => {}
            }
            if saved.len() >= TOGETHER || saved_bytes > self.settings.memory_bytes / TOGETHER_PART {
                self.hand_over(upkeep, &mut saved)?;
                saved_bytes = 0;
            }
            steps += 1;
            if steps.is_multiple_of(128) {
                self.tree.reclaim();
            }
            if steps.is_multiple_of(4) && self.used_bytes() <= target {
                break;
            }
        }
        self.hand_over(upkeep, &mut saved)?;
        self.tree.reclaim();
        let used = self.used_bytes();
        // A leaf that a batch or a merge kept in memory can be evicted after it.
        let was_refused = std::mem::take(&mut upkeep.was_refused);
        let is_least = used > target && laps > LAPS && was_useless && !was_refused;
        self.least_bytes.store(if is_least { used } else { 0 }, Ordering::Relaxed);
        upkeep.failed_at = is_least.then(Instant::now);
        Ok(())
    }

    /// Evicts all pages that were saved, after their images are written.
    fn evict_saved(&self, upkeep: &mut Upkeep, saved: &mut Vec<u32>) -> Result<()> {
        self.hand_over(upkeep, saved)?;
        if !upkeep.handed.is_empty() && !is_omitted(Omission::Written) {
            self.segments.write_all()?;
        }
        std::mem::take(&mut upkeep.handed).into_iter().for_each(|page| _ = self.evict(upkeep, page, false));
        Ok(())
    }

    /// Lets the images of these pages be written while the next pages are saved. Evicts the pages of the call before.
    fn hand_over(&self, upkeep: &mut Upkeep, saved: &mut Vec<u32>) -> Result<()> {
        if !saved.is_empty() {
            if !is_omitted(Omission::Written) {
                self.segments.hand_over_all()?;
            }
            let before = std::mem::replace(&mut upkeep.handed, std::mem::take(saved));
            before.into_iter().for_each(|page| _ = self.evict(upkeep, page, false));
        }
        Ok(())
    }

    fn append(&self, image: &[u8], kind: ImageKind) -> std::result::Result<Address, Failure> {
        if self.settings.read_only {
            return Err(Failure(Error::ReadOnly));
        }
        let lsn = self.log.as_ref().map_or(self.base, Log::end);
        self.segments.append(image, kind, lsn).map_err(Failure)
    }

    /// Appends the image of a leaf, by its page number. Returns the bytes of the leaf. `None`: the page is no leaf.
    fn save(&self, page: u32) -> Result<Option<u64>> {
        let Some(low) = self.tree.low_key(page) else { return Ok(None) };
        let saved =
            self.tree.save(low.as_ref().map(Borrow::borrow), |image, kind| self.append(image, kind))?;
        Ok(Some(saved.bytes))
    }

    /// Evicts a leaf that is saved, or, if it `may_keep` its changes, one with few changes.
    fn evict(&self, upkeep: &mut Upkeep, page: u32, may_keep: bool) -> Eviction {
        // A2. The gate may be closed by this thread, so it must not wait.
        let eviction = self.gate.try_single(thread()).map_or(Eviction::Busy, |_gate| {
            self.tree.evict(page, may_keep, |address| self.segments.is_written(address))
        });
        upkeep.was_refused |= eviction == Eviction::Busy;
        upkeep.stats.evictions += u64::from(matches!(eviction, Eviction::Done(_)));
        eviction
    }

    /// Makes a checkpoint now.
    ///
    /// # Errors
    /// `NoSpace`: the old checkpoint stays, and a later one is tried; `Io`, `Corrupt`, `Failed`.
    pub fn checkpoint(&self) -> Result<()> {
        let _files = lock(&self.files);
        self.checkpoint_in(&mut lock(&self.upkeep))
    }

    /// As [`checkpoint`](Self::checkpoint), but only if the files are not being copied. After the copy, the log is long enough for a later
    /// one.
    fn checkpoint_with(&self, upkeep: &mut Upkeep) -> Result<()> {
        try_lock(&self.files).map_or(Ok(()), |_files| self.checkpoint_in(upkeep))
    }

    /// Makes a checkpoint. The caller holds the lock of the files (A5).
    pub(crate) fn checkpoint_in(&self, upkeep: &mut Upkeep) -> Result<()> {
        let Some(log) = &self.log else { return Err(Error::ReadOnly) };
        if self.is_above(EVICT_FROM, self.used_bytes()) {
            self.make_room(upkeep)?;
        }
        let log_at = log.stats().written_bytes;
        // The log may grow up to LOG_MAX, evenly over the leaves. The first part is free, so a short burst of updates does not wait.
        let (pace, log_bytes) = (Pace { allowed: &self.log_allowed }, self.settings.log_bytes);
        let log_max = log_bytes.saturating_mul(LOG_MAX);
        let (first, expected) = (self.log_length().max(log_max / 4 * 3), upkeep.leaves.max(1));
        let growth = log_max.saturating_sub(first) as f64;
        // C2.
        let redo = if is_omitted(Omission::Redo) { log.end() } else { log.commit_all()? };
        let filled = self.segments.begin_checkpoint();
        let number = upkeep.number + 1;
        let mut writer = Writer::begin(&self.place, number, redo, self.segments.compresses())?;
        let (mut live, mut leaves) = (Live::default(), 0u64);
        let mut from: Option<P::KeyBuf> = None;
        // The images of the leaves before the second key are prefetched. From the first key on, the next ones are due: requests are one group
        // ahead of the saves. Behind the last leaf, there is no key.
        let prefetch = |from: Option<&P::KeyBuf>| self.tree.prefetch_leaves(from.map(Borrow::borrow), AHEAD);
        let mut due = prefetch(None);
        let mut end = due.as_ref().and_then(|key| prefetch(Some(key)));
        loop {
            // Leaves split and merge meanwhile, so keys are compared, not counted.
            if due.is_some() && from >= due {
                let next = end.as_ref().map(|end| from.as_ref().map_or(end, |from| from.max(end)));
                let next = next.and_then(|next| prefetch(Some(next)));
                (due, end) = (end, next);
            }
            let saved =
                self.tree.save(from.as_ref().map(Borrow::borrow), |image, kind| self.append(image, kind))?;
            let SavedLeaf { image, records, is_counted, bytes, next } = saved;
            let leaf = RestoredLeaf { low: from, image, records, is_counted, bytes };
            writer.add::<P>(&leaf)?;
            live.add(&leaf);
            leaves += 1;
            from = next;
            let share = leaves.min(expected) as f64 / expected as f64;
            pace.allow(first.saturating_add((growth * share) as u64));
            if from.is_none() {
                break;
            }
            // Other threads wait for this one to evict.
            if leaves.is_multiple_of(64) && self.is_above(EVICT_FROM, self.used_bytes()) {
                self.make_room(upkeep)?;
            }
        }
        // P2. A failed write is repeated later. After a failed sync no image can be trusted (A3).
        self.segments.write_all()?;
        self.segments.sync().inspect_err(|_| log.fail())?;
        // C1.
        let end = if is_omitted(Omission::StableImages) { redo } else { log.commit_all()? };
        if is_omitted(Omission::Removal) {
            self.remove_unused(&live, &filled)?;
        }
        let syncs = self.settings.survives_power;
        // If this fails, the old checkpoint and the new one are both sound, because nothing that they need was removed.
        let bytes = writer.publish(end, syncs)?;
        checkpoint::make_durable(&self.place, syncs).inspect_err(|_| log.fail())?;
        (upkeep.number, upkeep.leaves) = (number, leaves);
        // A compaction may move any number of images.
        pace.allow(if upkeep.is_compacting { u64::MAX } else { log_max });
        self.log_at.store(log_at, Ordering::Relaxed);
        upkeep.stats.checkpoints += 1;
        upkeep.stats.checkpoint_bytes += bytes;
        log.discard_below(redo)?;
        upkeep.stats.live_bytes = live.bytes();
        self.segments.resize(self.settings.segment(live.bytes()));
        self.remove_unused(&live, &filled)?;
        upkeep.images_at = self.segments.traffic().0;
        upkeep.has_moved = false;
        self.clean(upkeep, &live, &filled)
    }

    /// P3: removes the segments that were filled before the checkpoint and have no live bytes. A current image is in the checkpoint, was
    /// appended since it began, or is a base that the segments know.
    fn remove_unused(&self, live: &Live, filled: &Filled) -> Result<()> {
        let is_unused = |number| filled.has(number) && live.of(number) == 0 && !self.segments.is_base(number);
        let numbers = self.segments.sizes().into_iter().map(|(number, _)| number);
        let unused: Vec<u64> = numbers.filter(|number| is_unused(*number)).collect();
        self.segments.remove(&unused)
    }

    /// Moves images out of the segments with the least live bytes, if the segments take more than 1.4 times the live bytes. The next
    /// checkpoint frees these segments.
    fn clean(&self, upkeep: &mut Upkeep, live: &Live, filled: &Filled) -> Result<()> {
        let sizes: Vec<(u64, u64)> =
            self.segments.sizes().into_iter().filter(|(number, _)| filled.has(*number)).collect();
        let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
        let is_compacting = upkeep.is_compacting;
        let usual = upkeep.stats.live_bytes / 5 * 7 + 2 * self.segments.bytes();
        let allowed = if is_compacting { 0 } else { usual };
        if total <= allowed {
            return Ok(());
        }
        let mut by_share: Vec<(f64, u64, u64, u64)> = sizes
            .into_iter()
            .map(|(number, bytes)| {
                let live = live.of(number);
                (live as f64 / bytes.max(1) as f64, number, bytes, live)
            })
            .collect();
        by_share.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut victims, mut freed, mut moved) = (BTreeSet::new(), 0, 0);
        for (share, number, bytes, live) in by_share {
            // A segment that is nearly all live costs more than it frees.
            let is_enough = freed >= total - allowed || moved > 4 * self.segments.bytes() || share > 0.85;
            if if is_compacting { share > 0.95 } else { is_enough } {
                break;
            }
            victims.insert(number);
            freed += bytes - live;
            moved += live;
        }
        let is_victim = |address| victims.contains(&Parts::of(address).segment);
        let has_victim = |image: Image| is_victim(image.address) || image.base.is_some_and(is_victim);
        let mut pages = (0..).map_while(|page| Some((page, self.tree.image(page)?)));
        loop {
            let with_victim =
                |(page, image): (u32, Option<Image>)| image.is_some_and(has_victim).then_some(page);
            let group: Vec<u32> = pages.by_ref().filter_map(with_victim).take(AHEAD).collect();
            if group.is_empty() {
                return self.segments.write_all();
            }
            self.tree.prefetch_images(&group);
            for page in group {
                let Some(low) = self.tree.low_key(page) else { continue };
                let low = low.as_ref().map(Borrow::borrow);
                let has_moved =
                    self.tree.move_image(low, is_victim, |image, kind| self.append(image, kind))?;
                upkeep.stats.moved_images += u64::from(has_moved);
                upkeep.has_moved |= has_moved;
                // Other threads wait for this one to evict.
                if has_moved && upkeep.stats.moved_images.is_multiple_of(64) {
                    self.make_room(upkeep)?;
                }
            }
        }
    }

    /// Moves all images out of segments of which more than a twentieth is free, and removes these segments. Reads and updates go on.
    /// `progress` gets the finished rounds and all rounds.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn compact(&self, progress: &dyn Fn(u64, u64)) -> Result<()> {
        const ROUNDS: u64 = 3;
        let _files = lock(&self.files);
        let mut upkeep = lock(&self.upkeep);
        upkeep.is_compacting = true;
        // A round removes the segments that the round before has emptied. Updates meanwhile make new ones, so the rounds are bounded.
        let mut rounds = 0..ROUNDS;
        let done = rounds.try_for_each(|round| {
            progress(round, ROUNDS);
            if round > 0 && !upkeep.has_moved { Ok(()) } else { self.checkpoint_in(&mut upkeep) }
        });
        upkeep.is_compacting = false;
        progress(ROUNDS, ROUNDS);
        done
    }

    /// One step of background work: commits updates without sync, evicts leaves, makes a checkpoint. Returns the pause before the next
    /// step; `None` after the close.
    pub fn upkeep(&self) -> Option<Duration> {
        const PAUSE: Duration = Duration::from_millis(50);
        const IDLE: Duration = Duration::from_millis(500);
        let log = self.log.as_ref()?;
        if self.closed.load(Ordering::Acquire) || log.check().is_err() {
            *lock(&self.helper) = None;
            return None;
        }
        *lock(&self.helper) = Some(std::thread::current());
        let mut upkeep = lock(&self.upkeep);
        if upkeep.committed_at.is_none_or(|at| at.elapsed() > IDLE) {
            upkeep.committed_at = Some(Instant::now());
            let _ = self.commit();
        }
        // Some time after a round that could not evict enough, too: the reason may be gone.
        let may_evict = upkeep.failed_at.is_none_or(|at| at.elapsed() > 4 * IDLE);
        if may_evict && self.used_bytes() > self.budget(EVICT_FROM) {
            let _ = self.make_room(&mut upkeep);
        }
        let length = self.log_length();
        // Images that were replaced since the last checkpoint stay until the next one.
        let grown = self.segments.traffic().0 - upkeep.images_at;
        let is_grown = grown > upkeep.stats.live_bytes / 5 + 2 * self.segments.bytes();
        // Without updates, a checkpoint gives the space of the log back, and the next open has nothing to replay.
        let log_bytes = self.settings.log_bytes;
        let is_worth_it = length > (upkeep.stats.live_bytes / 8).clamp(log_bytes / 16, log_bytes / 4);
        let is_idle = upkeep.is_idle(length, self.settings.idle) && is_worth_it;
        if length > log_bytes || is_grown || is_idle || (upkeep.has_moved && length > 0) {
            // Without space the next attempt comes after the pause, that of an idle store after the idle time.
            let _ = self.checkpoint_with(&mut upkeep);
        }
        Some(PAUSE)
    }
}

#[cfg(all(test, not(loom), feature = "omissions"))]
mod tests;
