//! The parts of an index, and what an engine has to say for itself.
//!
//! Invariants:
//! * C1: a leaf changes while its stripe is odd, and every change of which leaf holds which keys moves [`Core::changes`] on before the
//!   stripes are even again. While what leads to the leaves is itself being changed, it is odd.
//! * C2: one writer at a time: whoever holds [`Writer`].

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use pmem::alloc::{Allocator, Kind};
use pmem::log::{Format, Log};
use pmem::pending::Pending;
use pmem::region::ROOT_AT;
use pmem::stripe::{Held, Stripes};
use pmem::sync::{AtomicU8, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use pmem::{Durability, Error, Fence, Found, LINE, Medium, Region, Result, WORD, record};
use tree::Schema;
use tree::before::Batches;
use tree::check::Report;
use tree::shape::Entry;

use crate::scan::Cursor;
use crate::wave::{Step, Stored, WriteOf};

/// Takes reads and writes.
pub const OPEN: u8 = 0;
/// Takes reads.
pub const READ_ONLY: u8 = 1;
/// Is being closed: no more writes, and those before are committed.
pub const CLOSING: u8 = 2;
/// Was closed.
pub const CLOSED: u8 = 3;
/// Takes no more writes, for one could not be made durable.
pub const FAILED: u8 = 4;
/// A batch failed half-way: whoever leads next takes it back.
pub const BROKEN: u8 = 5;

/// How often it changed which leaf holds which keys, and what leads to them, since an index was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Leaves of which a part went to another.
    pub splits: u64,
    /// Leaves that began with a key behind all others.
    pub appends: u64,
    /// Leaves that joined a neighbour, or left the list.
    pub merges: u64,
    /// Leaves that another with the same keys took the place of.
    pub copies: u64,
    /// Times that what leads to the leaves was built anew beside use.
    pub rebuilds: u64,
}

/// What only the writer has, with what an engine adds to it.
pub struct Writer<W> {
    /// For records and chunks.
    pub log: Log,
    /// Blocks.
    pub allocator: Allocator,
    /// Stripes that are odd.
    pub held: Held,
    /// What was done to the list.
    pub turnover: Turnover,
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

/// The parts that every such index has.
pub struct Core<M: Medium, S: Schema, W> {
    /// Where it lives.
    pub region: Region<M>,
    /// Versions of leaves.
    pub stripes: Stripes,
    /// Twice the changes of which leaf holds which keys that were shown so far (C1).
    pub changes: AtomicU64,
    /// Number of keys.
    pub keys: AtomicU64,
    /// What it takes: see the constants here.
    pub state: AtomicU8,
    /// Over a medium of groups: who waits for which.
    pub pending: Option<Box<Pending>>,
    /// What batches replaced.
    pub batches: Batches<S>,
    /// Who closes, and who keeps others from it.
    pub(crate) closing: Mutex<()>,
    writer: Mutex<Writer<W>>,
}

impl<M: Medium, S: Schema, W> Core<M, S, W> {
    /// The parts of an index in a region that is marked in use from now on, its log recovered.
    ///
    /// # Errors
    /// `Corrupt` if the log is damaged; `Io` if the mark cannot be synced.
    pub fn new(
        region: Region<M>,
        found: Found,
        durability: Durability,
        stripes: usize,
        own: W,
    ) -> Result<Self> {
        let allocator = Allocator::new(&region);
        region.mark_in_use(durability)?;
        let log = match found {
            Found::New => Log::new(region.geometry(), Format::Redo),
            _ => Log::recover(region.medium(), region.geometry(), Format::Redo)?,
        };
        Ok(Self {
            stripes: Stripes::new(stripes),
            changes: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            state: AtomicU8::new(OPEN),
            pending: region.medium().group().map(|_| Box::default()),
            batches: Batches::default(),
            closing: Mutex::new(()),
            writer: Mutex::new(Writer {
                log,
                allocator,
                held: Held::default(),
                turnover: Turnover::default(),
                own,
            }),
            region,
        })
    }

    /// Gives an index without a root (new, or crashed before it had one) that and a first leaf: `write` writes both, given their
    /// addresses in this order, and starts writing them back. Returns the root's block.
    ///
    /// # Errors
    /// What the allocator says.
    pub fn make_root(
        &mut self,
        leaf_bytes: u64,
        root_bytes: u64,
        write: impl FnOnce(&M, u64, u64),
    ) -> Result<u64> {
        let (region, medium) = (&self.region, self.region.medium());
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let leaf = writer.allocator.take(region, &mut writer.log, Kind::Leaf, leaf_bytes)?;
        let root = writer.allocator.take(region, &mut writer.log, Kind::Inner, root_bytes)?;
        write(medium, leaf, root);
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(ROOT_AT, Region::<M>::root_word(root));
        medium.flush(ROOT_AT, WORD);
        medium.fence(Fence::Commit); // [format]
        writer.allocator.finish(region, &mut writer.log);
        Ok(root)
    }

    /// The writer's side, unless the index was closed.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`.
    pub fn lock_writer(&self) -> Result<MutexGuard<'_, Writer<W>>> {
        self.stripes.give_way();
        let writer = self.writer_side();
        self.writable()?;
        Ok(writer)
    }

    /// The writer's side, whatever state the index is in.
    pub fn writer_side(&self) -> MutexGuard<'_, Writer<W>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.stripes.take_over();
        writer
    }

    /// `Closed`, `ReadOnly` or `Failed` once no more writes are taken.
    ///
    /// # Errors
    /// These.
    pub fn writable(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            CLOSED | CLOSING => Err(Error::Closed),
            READ_ONLY => Err(Error::ReadOnly),
            _ => Err(Error::Failed),
        }
    }

    /// True once it takes no more writes, whatever the reason.
    pub fn is_closed(&self) -> bool {
        self.writable().is_err()
    }

    /// Refuses every write from now on, and has nothing to close: for an index over memory of its own.
    pub fn refuse_writes(&self) {
        self.state.store(READ_ONLY, Ordering::Release);
    }

    /// Runs `look` while nobody changes or closes the index; readers go on.
    ///
    /// # Errors
    /// `Closed` or `Failed`: it was not run.
    pub fn hold_writers<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        let _turn = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        let _writer = self.lock_writer()?;
        Ok(look())
    }

    /// What was done to the list since it was opened.
    pub fn turnover(&self) -> Turnover {
        self.writer_side().turnover
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
    #[inline]
    pub fn make(&self, writer: &mut Writer<W>, key: &S::Key, value: &S::Value) -> Result<Entry<S::Tail>> {
        S::make(&self.region, &mut writer.allocator, &mut writer.log, key, value)
            .map_err(|error| self.give_up(writer, error))
    }

    /// Gives back what an entry points to.
    ///
    /// # Errors
    /// `Corrupt`, `TooLarge`: the operation is given up then.
    #[inline]
    pub fn give_blocks(&self, writer: &mut Writer<W>, entry: &Entry<S::Tail>) -> Result<()> {
        for block in S::blocks_of(entry) {
            record::give(&self.region, &mut writer.allocator, block)
                .map_err(|error| self.give_up(writer, error))?;
        }
        Ok(())
    }

    /// What leads to the leaves is about to be changed in place (C1). The stripes of the leaves that change are odd.
    pub fn begin_change(&self) {
        self.changes.store(self.changes.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// What leads to the leaves was changed (C1).
    pub fn end_change(&self) {
        self.changes.store((self.changes.load(Ordering::Relaxed) | 1) + 1, Ordering::Release);
    }
}

/// Keys with their entries, ascending or not.
pub type Pages<S> = Vec<(<S as Schema>::KeyBuf, Entry<<S as Schema>::Tail>)>;

/// An index over one list of leaves: what differs between engines. Leaves are told by their address, in bytes from the region's base.
pub trait Chain: Deref<Target = Core<Self::Medium, Self::Schema, Self::Own>> + Send + Sync + Sized {
    /// Where it lives.
    type Medium: Medium;
    /// Keys and values.
    type Schema: Schema;
    /// What its writer has besides.
    type Own: Send;
    /// What the commit of a write publishes.
    type Change: Send;

    /// Words of a value in its entry.
    fn payload_words(&self) -> usize;
    /// Bytes of a leaf.
    fn leaf_bytes(&self) -> u64;
    /// The block that the region's root names, 0 before there is one.
    fn root_block(&self) -> u64;
    /// The leaf of a key (of the keys strictly below it, if so asked) as far as what leads there says now. Has the processor bring in
    /// what a look at it begins with.
    fn leaf_of(&self, key: &<Self::Schema as Schema>::Key, below: bool) -> u64;
    /// The last leaf, as [`Chain::leaf_of`].
    fn last_leaf(&self) -> u64;
    /// True if there is a leaf here.
    fn is_leaf(&self, leaf: u64) -> bool;
    /// Word of the lower bound of a leaf, 0 for none.
    fn lower_bound(&self, leaf: u64) -> u64;
    /// Word of the upper bound of a leaf, 0 for none.
    fn upper_bound(&self, leaf: u64) -> u64;
    /// The entry of a key in a leaf.
    fn entry_of(
        &self,
        leaf: u64,
        probe: <Self::Schema as Schema>::Probe<'_>,
    ) -> Option<Entry<<Self::Schema as Schema>::Tail>>;
    /// The entry of a key in its leaf, as far as what leads there says now, and whether there is a leaf at all. `first_look` is told
    /// the leaf before anything of it is read. An index may read it by another way than its address.
    #[inline]
    fn entry_for<V>(
        &self,
        key: &<Self::Schema as Schema>::Key,
        first_look: impl FnOnce(u64) -> V,
    ) -> (V, Option<Entry<<Self::Schema as Schema>::Tail>>, bool) {
        let leaf = self.leaf_of(key, false);
        let seen = first_look(leaf);
        (seen, self.entry_of(leaf, Self::Schema::probe(key)), self.is_leaf(leaf))
    }
    /// All entries of a leaf with their keys, in any order; false if one cannot be read (a race, or damage).
    fn entries_of(&self, leaf: u64, page: &mut Pages<Self::Schema>) -> bool;
    /// Most leaves that so many writes to a leaf may take, and those that come of it.
    fn leaves_for(&self, leaf: u64, writes: u64) -> u64;
    /// Stores a write into its leaf, but for the word that commits it, and starts writing that back.
    ///
    /// # Errors
    /// As [`Writes::put`](crate::batch::Writes::put); what was stored before in the running operation is given up with it.
    fn store(
        &self,
        writer: &mut Writer<Self::Own>,
        write: &WriteOf<'_, Self>,
        leaf: u64,
    ) -> Result<Step<Self::Change>>;
    /// Publishes a change, and starts writing it back. The change is of one line.
    fn publish(&self, change: &Self::Change);
    /// A write is durable: what comes of it. Other writes of its wave may have been concluded meanwhile.
    fn conclude(
        &self,
        writer: &mut Writer<Self::Own>,
        write: &WriteOf<'_, Self>,
        stored: &Stored<Self::Change>,
    );
    /// Stores a value; true if that replaced one.
    ///
    /// # Errors
    /// As [`Writes::put`](crate::batch::Writes::put).
    fn put_locked(
        &self,
        writer: &mut Writer<Self::Own>,
        key: &<Self::Schema as Schema>::Key,
        value: &<Self::Schema as Schema>::Value,
    ) -> Result<bool>;
    /// Removes a key; false if it was absent.
    ///
    /// # Errors
    /// As [`Writes::delete`](crate::batch::Writes::delete).
    fn delete_locked(
        &self,
        writer: &mut Writer<Self::Own>,
        key: &<Self::Schema as Schema>::Key,
    ) -> Result<bool>;
    /// Builds what leads to the leaves anew from what is durable; stores nothing. All stripes are odd.
    fn reload(&self, writer: &mut Writer<Self::Own>);
    /// Verifies everything, with writers shut out meanwhile. Never panics, whatever the region holds.
    fn check(&self) -> Report;

    /// Has the processor bring in what a look for a key begins with.
    #[inline]
    fn prefetch_for(&self, key: &<Self::Schema as Schema>::Key) {
        self.leaf_of(key, false);
    }

    /// Lines of a leaf.
    fn leaf_lines(&self) -> u64 {
        self.leaf_bytes() / LINE
    }

    /// A cursor before the first key.
    fn cursor(&self) -> Cursor<'_, Self> {
        Cursor::new(self)
    }
}

/// The schema of an index.
pub(crate) type SchemaOf<T> = <T as Chain>::Schema;
/// A key as it is passed to an index.
pub(crate) type KeyOf<T> = <SchemaOf<T> as Schema>::Key;
/// A key as an index hands it out.
pub(crate) type KeyBufOf<T> = <SchemaOf<T> as Schema>::KeyBuf;
/// A value as it is passed to an index.
pub(crate) type ValueOf<T> = <SchemaOf<T> as Schema>::Value;
/// A value as an index hands it out.
pub(crate) type ValueBufOf<T> = <SchemaOf<T> as Schema>::ValueBuf;
