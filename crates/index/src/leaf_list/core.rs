//! The parts of an index over a list of leaves, and what an engine has to say for itself.
//!
//! Invariants:
//! * C1: a leaf changes while its stripe is odd, and every change of which leaf holds which keys moves [`Core::changes`] on before the
//!   stripes are even again. While what leads to the leaves is itself being changed, it is odd.

use std::ops::{Deref, DerefMut};

use pmem::alloc::Kind;
use pmem::log::Format;
use pmem::region::ROOT_AT;
use pmem::sync::{AtomicU64, Ordering, fence};
use pmem::{Durability, Fence, Found, LINE, Medium, Region, Result, WORD};

use super::garbage;
use super::recover::owns_record;
use super::scan::Cursor;
use super::space::HasSpace;
use super::write_group::{Step, Stored, WriteOf};
use crate::check::Report;
use crate::engine::Anatomy;
use crate::entry::Entry;
use crate::garbage::LINES_OF_STEP;
use crate::group::Life;
use crate::kernel::{self, Embed, Kernel};
use crate::moves::move_record;
use crate::schema::Schema;
use crate::snapshot::Snapshot;

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

/// What the writer of a list has besides, with what an engine adds to it.
pub struct Side<W> {
    /// What was done to the list.
    pub turnover: Turnover,
    /// The engine's own.
    pub own: W,
}

impl<W> Deref for Side<W> {
    type Target = W;
    fn deref(&self) -> &W {
        &self.own
    }
}

impl<W> DerefMut for Side<W> {
    fn deref_mut(&mut self) -> &mut W {
        &mut self.own
    }
}

/// What only the writer has.
pub type Writer<W> = kernel::Writer<Side<W>>;

/// The parts that every such index has.
pub struct Core<M: Medium, S: Schema, W> {
    kernel: Kernel<M, S, Side<W>>,
    /// Twice the changes of which leaf holds which keys that were shown so far (C1).
    pub changes: AtomicU64,
}

impl<M: Medium, S: Schema, W> Deref for Core<M, S, W> {
    type Target = Kernel<M, S, Side<W>>;
    fn deref(&self) -> &Self::Target {
        &self.kernel
    }
}

impl<M: Medium, S: Schema, W> Core<M, S, W> {
    /// As [`Kernel::new`].
    ///
    /// # Errors
    /// As there.
    pub fn new(
        region: Region<M>,
        found: Found,
        durability: Durability,
        stripes: usize,
        own: W,
    ) -> Result<Self> {
        let own = Side { turnover: Turnover::default(), own };
        let kernel = Kernel::new(region, found, durability, stripes, Format::Redo, own)?;
        Ok(Self { kernel, changes: AtomicU64::new(0) })
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
        let (region, writer) = self.kernel.parts_mut();
        let medium = region.medium();
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

    /// What was done to the list since it was opened.
    pub fn turnover(&self) -> Turnover {
        self.writer_side().turnover
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
pub trait LeafList:
    Deref<Target = Core<Self::Medium, Self::Schema, Self::Own>> + Send + Sync + Sized
{
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
    /// The region's root names another block from now on.
    fn set_root_block(&self, root: u64);
    /// The first leaf.
    ///
    /// # Errors
    /// `Corrupt` if the root's block does not lead to it.
    fn head(&self) -> Result<u64>;
    /// The leaf behind a leaf, 0 if it is the last; `None` if there is no leaf here.
    fn next_leaf(&self, leaf: u64) -> Option<u64>;
    /// Writes an empty leaf and a root's block that leads to it, both new, and starts writing them back.
    fn write_empty(&self, leaf: u64, root: u64);
    /// False if an empty list must not take the list's place.
    fn can_switch(&self) -> bool {
        true
    }
    /// The leaf of a key (of the keys strictly below it, if so asked) as far as what leads there says now. Has the processor bring in
    /// what a look at it begins with.
    fn leaf_of(&self, key: &<Self::Schema as Schema>::Key, below: bool) -> u64;
    /// The last leaf, as [`LeafList::leaf_of`].
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
    /// As [`Writes::put`](super::write::Writes::put); what was stored before in the running operation is given up with it.
    fn store(
        &self,
        writer: &mut Writer<Self::Own>,
        write: &WriteOf<'_, Self>,
        leaf: u64,
    ) -> Result<Step<Self::Change>>;
    /// Publishes a change, and starts writing it back. The change is of one line.
    fn publish(&self, change: &Self::Change);
    /// A write is durable: what comes of it. Other writes of its write group may have been concluded meanwhile.
    fn conclude(
        &self,
        writer: &mut Writer<Self::Own>,
        write: &WriteOf<'_, Self>,
        stored: &Stored<Self::Change>,
    );
    /// Stores a value; true if that replaced one.
    ///
    /// # Errors
    /// As [`Writes::put`](super::write::Writes::put).
    fn put_locked(
        &self,
        writer: &mut Writer<Self::Own>,
        key: &<Self::Schema as Schema>::Key,
        value: &<Self::Schema as Schema>::Value,
    ) -> Result<bool>;
    /// Removes a key; false if it was absent.
    ///
    /// # Errors
    /// As [`Writes::delete`](super::write::Writes::delete).
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

    /// Of what it is made, asked with keys that are there: see [`Index::anatomy`](crate::Index::anatomy).
    fn anatomy(&self, _keys: &mut dyn Iterator<Item = &<Self::Schema as Schema>::Key>) -> Option<Anatomy> {
        None
    }

    /// For salvage: every entry of the leaf at this offset that is in use, if there is one. The region may be damaged.
    fn salvage<R: Medium>(region: &Region<R>, leaf: u64) -> Vec<Entry<<Self::Schema as Schema>::Tail>>;

    /// Lines of a leaf.
    fn leaf_lines(&self) -> u64 {
        self.leaf_bytes() / LINE
    }

    /// A cursor before the first key.
    fn cursor(&self) -> Cursor<'_, Self> {
        Cursor::new(self)
    }

    /// A cursor before the first key of a snapshot.
    fn cursor_of<'a>(snapshot: &Snapshot<'a, Self>) -> Cursor<'a, Self> {
        Cursor::through(snapshot.index, snapshot.view())
    }
}

/// The schema of an index.
pub(crate) type SchemaOf<T> = <T as LeafList>::Schema;
/// A key as it is passed to an index.
pub(crate) type KeyOf<T> = <SchemaOf<T> as Schema>::Key;
/// A key as an index hands it out.
pub(crate) type KeyBufOf<T> = <SchemaOf<T> as Schema>::KeyBuf;
/// A value as it is passed to an index.
pub(crate) type ValueOf<T> = <SchemaOf<T> as Schema>::Value;
/// A value as an index hands it out.
pub(crate) type ValueBufOf<T> = <SchemaOf<T> as Schema>::ValueBuf;

impl<T: LeafList> Embed for T {
    type Medium = <T as LeafList>::Medium;
    type Schema = <T as LeafList>::Schema;
    type Own = Side<<T as LeafList>::Own>;
    type Shown = ();

    #[inline(always)]
    fn kernel(
        &self,
    ) -> &Kernel<<T as LeafList>::Medium, <T as LeafList>::Schema, Side<<T as LeafList>::Own>> {
        &self.deref().kernel
    }

    fn move_record(&self, writer: &mut Writer<<T as LeafList>::Own>, block: u64) -> bool {
        let leads = |key: &KeyBufOf<T>| owns_record(self, key, block);
        let fits = |bytes| matches!(self.has_lines(self.lines_of_operation(bytes)), Ok(true));
        move_record(self, writer, block, leads, fits, |writer, key, value| {
            self.put_locked(writer, key, value)
        })
    }

    fn shown(&self, _writer: &Writer<<T as LeafList>::Own>) {}

    fn show_durable(&self, (): ()) {}

    fn free_some(&self, writer: &mut Writer<<T as LeafList>::Own>) -> Result<bool> {
        garbage::free_some(self, writer)
    }

    fn lines_of_free(&self) -> u64 {
        self.lines_of_operation(0) + LINES_OF_STEP
    }

    fn reload(&self, writer: &mut Writer<<T as LeafList>::Own>) {
        // What was durable once does check.
        if let Ok(root) = self.region.root() {
            self.set_root_block(root);
        }
        LeafList::reload(self, writer);
    }
}
