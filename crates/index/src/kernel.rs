//! The parts of an index, the phases of its life, and the writer's lock.

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

/// A phase of an index's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Takes reads and writes.
    Open,
    /// Takes reads. What is stored to its memory reaches no file.
    ReadOnly,
    /// Is being closed: no more writes, and those before are committed.
    Closing,
    /// Was closed cleanly.
    Closed,
    /// A write failed half-way. The next leader takes it back.
    Broken,
    /// Takes no more writes: one could not be made durable.
    Failed,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::Open, Self::ReadOnly, Self::Closing, Self::Closed, Self::Broken, Self::Failed];
}

/// What only the writer has, with what an engine adds to it.
pub struct Writer<W> {
    /// For changes of several words.
    pub log: Log,
    /// Blocks.
    pub allocator: Allocator,
    /// Stripes that are odd.
    pub held: Held,
    /// The engine's own.
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

/// The parts that every index has. Beside these an engine has what leads to its entries.
pub struct Kernel<M: Medium, S: Schema, W> {
    /// Where it lives.
    pub region: Region<M>,
    /// Versions of nodes.
    pub stripes: Stripes,
    /// Number of keys.
    pub keys: AtomicU64,
    /// Over a medium of groups: who waits for which.
    pub pending: Option<Box<Pending>>,
    /// What writes replaced, for readers that still see it.
    pub images: Images<S>,
    /// A clear left something to be freed ([`crate::garbage`]).
    pub(crate) garbage: AtomicBool,
    /// Ticket of the group of the newest clear.
    cleared: AtomicU64,
    phase: AtomicU8,
    /// Who closes, and who keeps others from it.
    pub(crate) closing: Mutex<()>,
    writer: Mutex<Writer<W>>,
}

impl<M: Medium, S: Schema, W> Kernel<M, S, W> {
    /// The parts of an index in a region that is marked in use from now on, its log recovered.
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

    /// The writer's side, with whatever phase the index is in. It is looked at, not written with: see [`Life::lock_writer`].
    pub fn writer_side(&self) -> MutexGuard<'_, Writer<W>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.stripes.take_over();
        writer
    }

    /// The region and the writer's side of an index that nobody else has yet.
    pub fn parts_mut(&mut self) -> (&Region<M>, &mut Writer<W>) {
        (&self.region, self.writer.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// The phase.
    #[inline(always)]
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire)) % Phase::ALL.len()]
    }

    /// The next phase begins.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Refuses once no more writes are taken.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`.
    #[inline(always)]
    pub fn writable(&self) -> Result<()> {
        match self.phase() {
            Phase::Open => Ok(()),
            Phase::Closed | Phase::Closing => Err(Error::Closed),
            Phase::ReadOnly => Err(Error::ReadOnly),
            Phase::Broken | Phase::Failed => Err(Error::Failed),
        }
    }

    /// True once it takes no more writes, whatever the reason.
    pub fn is_closed(&self) -> bool {
        self.writable().is_err()
    }

    /// Refuses every write from now on, and has nothing to close: for an index over memory of its own
    /// ([`pmem::Native::map_aside`]).
    pub fn refuse_writes(&self) {
        self.set_phase(Phase::ReadOnly);
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.keys.load(Ordering::Acquire)
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The region.
    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    /// Gives up the running operation, passing its error on.
    #[cold]
    pub fn give_up(&self, writer: &mut Writer<W>, error: Error) -> Error {
        writer.allocator.abort(&self.region, &mut writer.log);
        error
    }

    /// Makes an entry of a key and a value, with what it points to.
    ///
    /// # Errors
    /// What the allocator says: the operation is given up then.
    #[inline(always)]
    pub fn make(&self, writer: &mut Writer<W>, key: &S::Key, value: &S::Value) -> Result<Entry<S::Tail>> {
        S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value)
            .map_err(|error| self.give_up(writer, error))
    }

    /// Gives back what an entry points to.
    ///
    /// # Errors
    /// `Corrupt`, `TooLarge`: the operation is given up then.
    #[inline(always)]
    pub fn give_blocks(&self, writer: &mut Writer<W>, entry: &Entry<S::Tail>) -> Result<()> {
        for block in S::blocks_of(entry) {
            record::give(&self.region, &mut writer.allocator, block)
                .map_err(|error| self.give_up(writer, error))?;
        }
        Ok(())
    }

    /// Notes that a key is about to be changed. The writer's lock is held.
    #[inline(always)]
    pub fn note_key(&self, key: &S::Key) {
        if let Some(pending) = &self.pending {
            pending.note_key(S::hash(key));
        }
    }

    /// All keys are about to go. The writer's lock is held, and all stripes are.
    pub fn note_clear(&self) {
        if let Some(pending) = &self.pending {
            // Of any key: it counts the group among those that have changed keys.
            pending.note_key(0);
            self.cleared.store(pending.ticket(), Ordering::Relaxed);
        }
    }

    /// The ticket to wait for, if what was read of the key of this hash may not be durable.
    pub fn wait_for_key(&self, pending: &Pending, hash: u64) -> Option<u64> {
        let cleared = self.cleared.load(Ordering::Relaxed);
        pending.wait_for_key(hash).or_else(|| (cleared > pending.durable()).then_some(cleared))
    }

    /// True if a clear left something to be freed.
    #[inline(always)]
    pub fn has_garbage(&self) -> bool {
        self.garbage.load(Ordering::Relaxed)
    }

    /// Says whether a clear left something to be freed.
    pub fn set_garbage(&self, garbage: bool) {
        self.garbage.store(garbage, Ordering::Relaxed);
    }

    /// True if everything was durable a moment ago: a read will hardly have to wait.
    pub fn is_quiet(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.is_quiet())
    }
}

/// What an engine says of itself to the kernel.
pub trait Embed: Sized {
    /// Where it lives.
    type Medium: Medium;
    /// Keys and values.
    type Schema: Schema;
    /// What its writer has besides.
    type Own;
    /// What is noted at the end of a group, and told when that is durable.
    type Shown: Copy;

    /// The kernel's parts.
    fn kernel(&self) -> &Kernel<Self::Medium, Self::Schema, Self::Own>;

    /// What is true at the end of the running group.
    fn shown(&self, writer: &Writer<Self::Own>) -> Self::Shown;

    /// The group that ended so is durable.
    fn show_durable(&self, shown: Self::Shown);

    /// Builds everything volatile anew from what is durable; stores nothing. All stripes are odd.
    fn reload(&self, writer: &mut Writer<Self::Own>);

    /// A ticket that has to be durable before the writer may go on, if there is one.
    #[inline(always)]
    fn waits_for(&self, _pending: &Pending, _writer: &mut Writer<Self::Own>) -> Option<u64> {
        None
    }

    /// If a key leads to the record in this block, stores its value again: it leads to a new record then. False if no more records can
    /// be moved now ([`crate::moves`]). The writer's lock is held.
    fn move_record(&self, _writer: &mut Writer<Self::Own>, _block: u64) -> bool {
        false
    }

    /// Most lines that [`Embed::free_some`] changes.
    fn lines_of_free(&self) -> u64 {
        0
    }

    /// Frees a bounded part of what a clear left ([`crate::garbage`]); false if there is no more. The writer's lock is held, between two
    /// operations, and there is space for it in the running group.
    ///
    /// # Errors
    /// `Corrupt`: the rest stays.
    fn free_some(&self, _writer: &mut Writer<Self::Own>) -> Result<bool> {
        Ok(false)
    }

    /// Comes before the writer's lock is taken to close the index; of bounded length.
    fn prepare_close(&self) {}

    /// The number of keys that the mark of a clean close has.
    fn keys_to_mark(&self) -> u64 {
        self.kernel().len()
    }

    /// Takes the writer's lock to close the index.
    ///
    /// # Errors
    /// As [`Life::enter_for`], and what has to be settled first.
    fn enter_to_close(&self) -> Result<Guard<'_, Self>> {
        self.lock_writer()
    }
}

/// The writer's lock (K1). A panic while it is held ends all writes (K2).
pub struct Guard<'a, T: Embed> {
    writer: MutexGuard<'a, Writer<T::Own>>,
    /// Behind the lock: it is dropped after that was given back.
    after: AfterPanic<'a, T>,
}

impl<'a, T: Embed> Guard<'a, T> {
    #[inline(always)]
    pub(crate) fn new(index: &'a T, writer: MutexGuard<'a, Writer<T::Own>>) -> Self {
        Self { writer, after: AfterPanic { index, is_armed: true } }
    }

    /// Runs a caller's closure. Its panic ends nothing: no change is half done meanwhile.
    #[inline(always)]
    pub fn outside<R>(&mut self, run: impl FnOnce() -> R) -> R {
        self.after.is_armed = false;
        let outcome = run();
        self.after.is_armed = true;
        outcome
    }

    #[cold]
    fn fail(&mut self) {
        let kernel = self.after.index.kernel();
        match &kernel.pending {
            _ if !self.after.is_armed => {}
            // Nodes of the unfinished change stay odd until it is taken back.
            Some(_) if kernel.phase() == Phase::Open => kernel.set_phase(Phase::Broken),
            Some(_) => {}
            None => {
                kernel.set_phase(Phase::Failed);
                kernel.stripes.abandon();
            }
        }
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

impl<T: Embed> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail();
        }
    }
}

struct AfterPanic<'a, T: Embed> {
    index: &'a T,
    is_armed: bool,
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
    /// Has a leader take back what is not durable. A group before it may still be on its way.
    #[cold]
    fn take_back(&self) {
        let kernel = self.index.kernel();
        if let Some(pending) = &kernel.pending
            && kernel.phase() == Phase::Broken
        {
            let settle = || self.index.settle(pending, pending.ticket());
            // A second panic while the first one unwinds would end the process.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(settle));
        }
    }
}
