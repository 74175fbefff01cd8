//! The state that all durable indexes share ([`Kernel`]), the phases of an index ([`Phase`]), the writer's lock ([`Guard`]), and the
//! interface between an engine and the kernel ([`Embed`]).
//!
//! Invariants K1 to K3 are in the head of the crate (`lib.rs`).

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use pmem::alloc::Allocator;
use pmem::log::{Format, Log};
use pmem::pending::Pending;
use pmem::stripe::{Held, Stripes};
use pmem::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, MutexGuard, Ordering};
use pmem::{Durability, Error, Found, Medium, Region, Result, record};

use crate::entry::Entry;
use crate::group::Life;
use crate::images::Images;
use crate::schema::Schema;

/// The number of keys in the mark of a close that did not know it. The next open counts them.
pub const KEYS_UNKNOWN: u64 = u64::MAX;

/// A phase in the life of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Takes reads and writes.
    Open,
    /// Takes reads only. Stores to its memory reach no file.
    ReadOnly,
    /// The close has begun. Writes are refused; earlier writes are committed.
    Closing,
    /// Closed cleanly.
    Closed,
    /// A write failed before it was complete. The next leader rolls it back.
    Broken,
    /// Refuses writes: a write could not be made durable. A close sets this phase until its mark is durable.
    Failed,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::Open, Self::ReadOnly, Self::Closing, Self::Closed, Self::Broken, Self::Failed];
}

/// The state that the writer's lock protects, with the state that the engine adds.
pub struct Writer<W> {
    /// The redo log, for changes of several words.
    pub log: Log,
    /// The allocator of blocks.
    pub allocator: Allocator,
    /// Version locks that the writer holds.
    pub held: Held,
    /// The engine's own state.
    pub own: W,
}

impl<W> Deref for Writer<W> {
    type Target = W;
    fn deref(&self) -> &W {
        &self.own
    }
}

impl<W> DerefMut for Writer<W> {
    fn deref_mut(&mut self) -> &mut W {
        &mut self.own
    }
}

/// The parts that every index has. The engine adds its search structure.
pub struct Kernel<M: Medium, S: Schema, W> {
    /// The region that holds the index.
    pub region: Region<M>,
    /// The striped version locks of the nodes.
    pub stripes: Stripes,
    /// Number of keys.
    pub keys: AtomicU64,
    /// The commit groups and their dirty marks. `None` where fences make writes durable.
    pub pending: Option<Box<Pending>>,
    /// Before-images: the values that writes replaced, for older readers.
    pub images: Images<S>,
    /// True if blocks of a cleared structure are still to be freed ([`crate::garbage`]).
    pub(crate) garbage: AtomicBool,
    /// Ticket of the group that contains the latest clear.
    cleared: AtomicU64,
    phase: AtomicU8,
    /// Held during a close. [`Life::hold_writers`] takes it to delay a close.
    pub(crate) closing: Mutex<()>,
    writer: Mutex<Writer<W>>,
}

impl<M: Medium, S: Schema, W> Kernel<M, S, W> {
    /// Builds the parts of an index, marks the region as in use, and recovers the redo log.
    ///
    /// # Errors
    /// `Corrupt` if the log is damaged; `Io` if the mark cannot be synced.
    pub fn new(
        region: Region<M>,
        found: Found,
        durability: Durability,
        stripes: usize,
        format: Format,
        own: W,
    ) -> Result<Self> {
        let allocator = Allocator::new(&region);
        region.mark_in_use(durability)?;
        let log = match found {
            Found::New => Log::new(region.geometry(), format),
            _ => Log::recover(region.medium(), region.geometry(), format)?,
        };
        Ok(Self {
            stripes: Stripes::new(stripes),
            keys: AtomicU64::new(0),
            pending: region.medium().group().map(|_| Box::default()),
            images: Images::default(),
            garbage: AtomicBool::new(false),
            cleared: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Open as u8),
            closing: Mutex::new(()),
            writer: Mutex::new(Writer { log, allocator, held: Held::default(), own }),
            region,
        })
    }

    /// Takes the writer's lock in any phase. The caller must not write; writers use [`Life::lock_writer`].
    pub fn writer_side(&self) -> MutexGuard<'_, Writer<W>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.stripes.take_over();
        writer
    }

    /// As [`Kernel::writer_side`]. `None` if a thread has the lock: another one, or the caller's.
    pub fn try_writer_side(&self) -> Option<MutexGuard<'_, Writer<W>>> {
        self.writer.try_lock().ok()
    }

    /// The region and the writer's state. No other thread has the index yet.
    pub fn parts_mut(&mut self) -> (&Region<M>, &mut Writer<W>) {
        (&self.region, self.writer.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// The current phase.
    #[inline(always)]
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire)) % Phase::ALL.len()]
    }

    /// Sets the phase.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Returns an error if the index takes no writes.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`.
    #[inline(always)]
    pub fn writable(&self) -> Result<()> {
        if self.phase.load(Ordering::Acquire) == Phase::Open as u8 { Ok(()) } else { self.open_or_error() }
    }

    #[cold]
    #[inline(never)]
    fn open_or_error(&self) -> Result<()> {
        match self.phase() {
            Phase::Open => Ok(()),
            Phase::Closed | Phase::Closing => Err(Error::Closed),
            Phase::ReadOnly => Err(Error::ReadOnly),
            Phase::Broken | Phase::Failed => Err(Error::Failed),
        }
    }

    /// True if the index takes no writes, for whatever reason.
    pub fn is_closed(&self) -> bool {
        self.writable().is_err()
    }

    /// Refuses all later writes. After that, the index needs no close. Used for an index over a private mapping
    /// ([`pmem::Native::map_aside`]).
    pub fn refuse_writes(&self) {
        self.set_phase(Phase::ReadOnly);
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.keys.load(Ordering::Acquire)
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The region.
    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    /// Aborts the running operation and returns `error`.
    #[cold]
    pub fn give_up(&self, writer: &mut Writer<W>, error: Error) -> Error {
        writer.allocator.abort(&self.region, &mut writer.log);
        error
    }

    /// Makes the entry of a key and a value, and writes the record that it references.
    ///
    /// # Errors
    /// `NoSpace`, `Full` or `TooLarge`, from the allocator. The operation is aborted.
    #[inline(always)]
    pub fn make(&self, writer: &mut Writer<W>, key: &S::Key, value: &S::Value) -> Result<Entry<S::Tail>> {
        S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value)
            .map_err(|error| self.give_up(writer, error))
    }

    /// Frees the blocks that an entry references, at the end of the running operation.
    ///
    /// # Errors
    /// `Corrupt`, `TooLarge`. The operation is aborted.
    #[inline(always)]
    pub fn give_blocks(&self, writer: &mut Writer<W>, entry: &Entry<S::Tail>) -> Result<()> {
        for block in S::blocks_of(entry) {
            record::give(&self.region, &mut writer.allocator, block)
                .map_err(|error| self.give_up(writer, error))?;
        }
        Ok(())
    }

    /// Sets the dirty mark of a key before it changes. The caller holds the writer's lock.
    #[inline(always)]
    pub fn note_key(&self, key: &S::Key) {
        if let Some(pending) = &self.pending {
            pending.note_key(S::hash(key));
        }
    }

    /// Marks all keys as dirty before a clear. The caller holds the writer's lock and all version locks.
    pub fn note_clear(&self) {
        if let Some(pending) = &self.pending {
            // Any hash will do: the mark makes the group count as one that changed keys.
            pending.note_key(0);
            self.cleared.store(pending.ticket(), Ordering::Relaxed);
        }
    }

    /// The ticket to wait for if the state that a reader found for a key with this hash may not be durable. `None` if it is durable.
    pub fn wait_for_key(&self, pending: &Pending, hash: u64) -> Option<u64> {
        let cleared = self.cleared.load(Ordering::Relaxed);
        pending.wait_for_key(hash).or_else(|| (cleared > pending.durable()).then_some(cleared))
    }

    /// True if blocks of a cleared structure are still to be freed.
    #[inline(always)]
    pub fn has_garbage(&self) -> bool {
        self.garbage.load(Ordering::Relaxed)
    }

    /// Sets whether blocks of a cleared structure are still to be freed.
    pub fn set_garbage(&self, garbage: bool) {
        self.garbage.store(garbage, Ordering::Relaxed);
    }

    /// True if every write was durable at the time of this call. Then a read is unlikely to wait.
    pub fn is_quiet(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.is_quiet())
    }
}

/// The interface between an engine and the kernel.
pub trait Embed: Sized {
    /// The medium of the region.
    type Medium: Medium;
    /// The schema of keys and values.
    type Schema: Schema;
    /// The engine's own part of the writer's state.
    type Own;
    /// State at the end of a group, which the engine publishes when the group is durable.
    type Shown: Copy;

    /// The kernel that the engine embeds.
    fn kernel(&self) -> &Kernel<Self::Medium, Self::Schema, Self::Own>;

    /// Returns the state at the end of the running group. The caller holds the writer's lock.
    fn shown(&self, writer: &Writer<Self::Own>) -> Self::Shown;

    /// Publishes the state of a group that is now durable.
    fn show_durable(&self, shown: Self::Shown);

    /// Rebuilds all volatile state from the durable state. It stores nothing. The caller holds all version locks.
    fn reload(&self, writer: &mut Writer<Self::Own>);

    /// A ticket that must be durable before the writer may go on. `None` if there is none.
    #[inline(always)]
    fn waits_for(&self, _pending: &Pending, _writer: &mut Writer<Self::Own>) -> Option<u64> {
        None
    }

    /// Moves the record in this block, if a key references it ([`crate::moves`]): stores the key's value again, in a new record. False if
    /// no more records can be moved now. The caller holds the writer's lock.
    fn move_record(&self, _writer: &mut Writer<Self::Own>, _block: u64) -> bool {
        false
    }

    /// Maximum number of lines that [`Embed::free_some`] changes.
    fn lines_of_free(&self) -> u64 {
        0
    }

    /// Frees a bounded part of a cleared structure ([`crate::garbage`]). False if nothing remains. The caller holds the writer's lock,
    /// between two operations. The running group has space for [`Embed::lines_of_free`] lines.
    ///
    /// # Errors
    /// `Corrupt`: the rest is not freed.
    fn free_some(&self, _writer: &mut Writer<Self::Own>) -> Result<bool> {
        Ok(false)
    }

    /// Prepares a close before the writer's lock is taken. Takes bounded time.
    fn prepare_close(&self) {}

    /// The number of keys for the clean mark.
    fn keys_to_mark(&self) -> u64 {
        self.kernel().len()
    }

    /// Takes the writer's lock for a close.
    ///
    /// # Errors
    /// As [`Life::enter_for`]. Also the errors of commits that must come first.
    fn enter_to_close(&self) -> Result<Guard<'_, Self>> {
        self.lock_writer()
    }
}

/// The writer's lock (K1). A panic while the lock is held ends all writes (K2). The fields are dropped in this order.
pub struct Guard<'a, T: Embed> {
    in_panic: InPanic<'a, T>,
    writer: MutexGuard<'a, Writer<T::Own>>,
    after: AfterPanic<'a, T>,
}

impl<'a, T: Embed> Guard<'a, T> {
    #[inline(always)]
    pub(crate) fn new(index: &'a T, writer: MutexGuard<'a, Writer<T::Own>>) -> Self {
        Self { in_panic: InPanic { index, is_armed: true }, writer, after: AfterPanic { index } }
    }

    /// Releases the lock. As a drop, without its tests for a panic: every write ends here.
    #[inline(always)]
    pub(crate) fn release(self) {
        let Self { in_panic, writer, after } = self;
        std::mem::forget(in_panic);
        drop(writer);
        std::mem::forget(after);
    }

    /// Sets whether a panic ends all writes: false while no change is incomplete and a caller's code runs.
    #[inline(always)]
    pub(crate) fn arm(&mut self, is_armed: bool) {
        self.in_panic.is_armed = is_armed;
    }

    /// Runs a caller's closure. A panic in it does not end writes, because no change is incomplete at this point.
    #[inline(always)]
    pub fn outside<R>(&mut self, run: impl FnOnce() -> R) -> R {
        self.arm(false);
        let outcome = run();
        self.arm(true);
        outcome
    }
}

impl<T: Embed> Deref for Guard<'_, T> {
    type Target = Writer<T::Own>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.writer
    }
}

impl<T: Embed> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.writer
    }
}

/// Ends all writes if it is dropped by a panic. The lock is still held then.
struct InPanic<'a, T: Embed> {
    index: &'a T,
    is_armed: bool,
}

impl<T: Embed> Drop for InPanic<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if std::thread::panicking() && self.is_armed {
            self.fail();
        }
    }
}

impl<T: Embed> InPanic<'_, T> {
    #[cold]
    fn fail(&self) {
        let kernel = self.index.kernel();
        match &kernel.pending {
            // Nodes of the incomplete change stay locked until the rollback.
            Some(_) if kernel.phase() == Phase::Open => kernel.set_phase(Phase::Broken),
            Some(_) => {}
            None => {
                kernel.set_phase(Phase::Failed);
                kernel.stripes.abandon();
            }
        }
    }
}

/// Rolls back if it is dropped by a panic. The lock is released then.
struct AfterPanic<'a, T: Embed> {
    index: &'a T,
}

impl<T: Embed> Drop for AfterPanic<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.take_back();
        }
    }
}

impl<T: Embed> AfterPanic<'_, T> {
    /// Rolls back all changes that are not durable. A leader does it, after the groups that are still being committed.
    #[cold]
    fn take_back(&self) {
        let kernel = self.index.kernel();
        if let Some(pending) = &kernel.pending
            && kernel.phase() == Phase::Broken
        {
            let wait = || self.index.wait_until_durable(pending, pending.ticket());
            // A second panic during unwinding would abort the process.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait));
        }
    }
}
