//! The parts of an index over a list of leaves, and the trait that an engine implements.
//!
//! The *directory* is the engine's structure that finds the leaf of a key.
//!
//! Invariants:
//! * C1: a leaf changes only while its version is locked. Every change of the assignment of keys to leaves is counted in
//!   [`Core::changes`] before the versions are unlocked. The protocol of writer and readers is in [`pmem::changes`].

use std::ops::{Deref, DerefMut};

use pmem::alloc::Kind;
use pmem::changes::Changes;
use pmem::log::Format;
use pmem::region::ROOT_AT;
use pmem::{Durability, Fence, Found, LINE, Medium, Region, Result, WORD};

use super::copy::LeafCopy;
use super::following::Following;
use super::garbage;
use super::read::Reads;
use super::recover::owns_record;
use super::scan::Cursor;
use super::space::HasSpace;
use super::write_group::{Step, Stored, WriteOf};
use crate::check::Report;
use crate::engine::Anatomy;
use crate::entry::Entry;
use crate::garbage::LINES_OF_STEP;
use crate::group::Life;
use crate::kernel::{self, Embed, KEYS_UNKNOWN, Kernel};
use crate::moves::move_record;
use crate::schema::Schema;
use crate::snapshot::Snapshot;

/// Numbers of structure changes since the index was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Leaves that were split.
    pub splits: u64,
    /// Leaves that were added for a key above all others.
    pub appends: u64,
    /// Leaves that were merged with a neighbour or removed from the list.
    pub merges: u64,
    /// Leaves that were replaced by a copy with the same keys.
    pub copies: u64,
    /// Times that the directory was rebuilt while it was in use.
    pub rebuilds: u64,
}

/// The list's part of the writer's state, with the state that the engine adds.
pub struct Side<W> {
    /// Numbers of structure changes.
    pub turnover: Turnover,
    /// The engine's own state.
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

/// The state that the writer's lock protects.
pub type Writer<W> = kernel::Writer<Side<W>>;

/// The parts that every index over a list has.
pub struct Core<M: Medium, S: Schema, W> {
    kernel: Kernel<M, S, Side<W>>,
    /// Counts the changes of the assignment of keys to leaves (C1).
    pub changes: Changes,
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
        Ok(Self { kernel, changes: Changes::default() })
    }

    /// Creates the root and the first leaf of an index that has none, because it is new or crashed before it had a root. `write` gets the
    /// addresses of leaf and root, in this order. It writes both and flushes them. Returns the root's block.
    ///
    /// # Errors
    /// `NoSpace`, `Full` or `TooLarge`, from the allocator.
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

    /// Numbers of structure changes since the index was opened.
    pub fn turnover(&self) -> Turnover {
        self.writer_side().turnover
    }
}

/// The interface that an engine over a list of leaves implements. A leaf is identified by its address, in bytes from the region's base.
pub trait LeafList:
    Deref<Target = Core<Self::Medium, Self::Schema, Self::Own>> + Send + Sync + Sized
{
    /// The medium of the region.
    type Medium: Medium;
    /// The schema of keys and values.
    type Schema: Schema;
    /// The engine's own part of the writer's state.
    type Own: Send;
    /// The store that commits a write.
    type Change: Send;

    /// True if the engine has sessions ([`crate::engine::Index::session`]): it needs no maintenance between changes.
    const SESSIONS: bool = false;

    /// Words of a value in an entry.
    fn payload_words(&self) -> usize;
    /// Bytes of a leaf.
    fn leaf_bytes(&self) -> u64;
    /// The block that the region's root word references; 0 if there is none yet.
    fn root_block(&self) -> u64;
    /// Sets the block that the region's root word references.
    fn set_root_block(&self, root: u64);
    /// The first leaf.
    ///
    /// # Errors
    /// `Corrupt` if the root's block does not lead to a leaf.
    fn head(&self) -> Result<u64>;
    /// The leaf after `leaf`, 0 if it is the last one. `None` if there is no leaf at this address.
    fn next_leaf(&self, leaf: u64) -> Option<u64>;
    /// Writes an empty leaf and a root block that references it, and flushes both. Both blocks are new.
    fn write_empty(&self, leaf: u64, root: u64);
    /// False if a clear must not replace the list by an empty one.
    fn can_switch(&self) -> bool {
        true
    }
    /// The leaf of a key, or of the keys strictly below it if `below` is set, according to the current directory. An engine may
    /// prefetch the lines that a read of the leaf touches first.
    fn leaf_of(&self, key: &<Self::Schema as Schema>::Key, below: bool) -> u64;
    /// The last leaf, according to the current directory.
    fn last_leaf(&self) -> u64;
    /// True if there is a leaf at this address.
    fn is_leaf(&self, leaf: u64) -> bool;
    /// Word of the lower bound of a leaf; 0: none.
    fn lower_bound(&self, leaf: u64) -> u64;
    /// Word of the upper bound of a leaf; 0: none.
    fn upper_bound(&self, leaf: u64) -> u64;
    /// The entry of a key in a leaf.
    fn entry_of(
        &self,
        leaf: u64,
        key: &<Self::Schema as Schema>::Key,
    ) -> Option<Entry<<Self::Schema as Schema>::Tail>>;
    /// As [`LeafList::entry_of`]. The second result is true if there is a leaf at this address.
    #[inline]
    fn entry_with_leaf(
        &self,
        leaf: u64,
        key: &<Self::Schema as Schema>::Key,
    ) -> (Option<Entry<<Self::Schema as Schema>::Tail>>, bool) {
        (self.entry_of(leaf, key), self.is_leaf(leaf))
    }
    /// Finds the leaf of a key in the current directory and reads the key's entry. Returns the result of `first_look`, the entry, and true
    /// if the leaf exists. `first_look` is called with the leaf's address before the leaf is read. An engine may override this to read the
    /// leaf by another path than its address.
    #[inline]
    fn entry_for<V>(
        &self,
        key: &<Self::Schema as Schema>::Key,
        first_look: impl FnOnce(u64) -> V,
    ) -> (V, Option<Entry<<Self::Schema as Schema>::Tail>>, bool) {
        let leaf = self.leaf_of(key, false);
        let seen = first_look(leaf);
        let (entry, is_leaf) = self.entry_with_leaf(leaf, key);
        (seen, entry, is_leaf)
    }
    /// One attempt to look up a key, which copies its value into `value` (if given). Returns true if the key is present, and its leaf.
    /// `None` if the attempt failed: then [`Reads`] tries again, or says why. An engine may override this to compile the attempt as one
    /// function.
    #[inline]
    fn look_once(&self, key: &KeyOf<Self>, value: Option<&mut ValueBufOf<Self>>) -> Option<(bool, u64)> {
        let changes = self.changes.settled(&self.stripes);
        let (seen, entry, is_leaf) = self.entry_for(key, |leaf| self.seen_at(leaf, changes));
        self.look_validated(&seen, (entry, is_leaf), value)
    }
    /// As [`LeafList::look_once`], if the key's leaf is known, and the number of changes from before it was found.
    #[inline]
    fn look_at(
        &self,
        (leaf, changes): (u64, u64),
        key: &KeyOf<Self>,
        value: Option<&mut ValueBufOf<Self>>,
    ) -> Option<(bool, u64)> {
        let seen = self.seen_at(leaf, changes);
        self.look_validated(&seen, self.entry_with_leaf(leaf, key), value)
    }
    /// Replaces the contents of `copy` by all entries of a leaf, in any order. If there is no leaf at this address, it may copy anything
    /// ([`LeafList::is_leaf`]). An engine that keeps orders ([`LeafList::keep_order`]) copies the entries with their slots
    /// ([`LeafCopy::push_slots`]), and those of the kept order first.
    fn entries_of(&self, leaf: u64, copy: &mut LeafCopy<Self::Schema>);
    /// Keeps the order of a leaf's slots for later copies, if the engine does. The copy was validated. `is_good` validates again that the
    /// leaf has not changed since it was copied.
    fn keep_order(&self, _leaf: u64, _copy: &LeafCopy<Self::Schema>, _is_good: impl FnOnce() -> bool) {}
    /// Maximum number of leaves that this many writes to a leaf, and the structure changes that follow, may allocate.
    fn leaves_for(&self, leaf: u64, writes: u64) -> u64;
    /// Stores a write into its leaf, except for the word that commits it, and flushes the stores.
    ///
    /// # Errors
    /// As [`Writes::put`](super::write::Writes::put). The running operation is aborted, with all that it stored before.
    fn store(
        &self,
        writer: &mut Writer<Self::Own>,
        write: &WriteOf<'_, Self>,
        leaf: u64,
    ) -> Result<Step<Self::Change>>;
    /// Publishes a change and flushes it. The change is in one line.
    fn publish(&self, change: &Self::Change);
    /// Does the work that follows a durable write, such as a merge. Other writes of its write group may already be concluded.
    fn conclude(
        &self,
        writer: &mut Writer<Self::Own>,
        write: &WriteOf<'_, Self>,
        stored: &Stored<Self::Change>,
    );
    /// Stores a value. True if the key was present.
    ///
    /// # Errors
    /// As [`Writes::put`](super::write::Writes::put).
    fn put_locked(
        &self,
        writer: &mut Writer<Self::Own>,
        key: &<Self::Schema as Schema>::Key,
        value: &<Self::Schema as Schema>::Value,
    ) -> Result<bool>;
    /// Removes a key. False if the key was absent.
    ///
    /// # Errors
    /// As [`Writes::delete`](super::write::Writes::delete).
    fn delete_locked(
        &self,
        writer: &mut Writer<Self::Own>,
        key: &<Self::Schema as Schema>::Key,
    ) -> Result<bool>;
    /// Rebuilds the directory from the durable state. It stores nothing. The caller holds all version locks.
    fn reload(&self, writer: &mut Writer<Self::Own>);
    /// True while the directory does not contain all leaves, and the keys are not counted ([`LeafList::load_some`]).
    fn is_loading(&self) -> bool {
        false
    }
    /// After an open: one bounded step of the work that an engine puts off, such as adding leaves to the directory. False if none remains.
    ///
    /// # Errors
    /// `Corrupt` if a leaf is damaged.
    fn load_some(&self) -> Result<bool> {
        Ok(false)
    }
    /// Verifies the whole index, without concurrent writers. Never panics, whatever the region contains.
    fn check(&self) -> Report;

    /// As [`LeafList::leaf_of`], for a scan. An engine may override this to add the leaves that follow, which it found in the same node.
    fn leaf_to_scan(
        &self,
        key: &<Self::Schema as Schema>::Key,
        below: bool,
        _following: &mut Following,
    ) -> u64 {
        self.leaf_of(key, below)
    }
    /// Begins to load a leaf that follows in a scan.
    fn prefetch_to_scan(&self, leaf: u64) {
        self.region.medium().prefetch(leaf, self.leaf_bytes());
    }
    /// The leaves of several keys, as [`LeafList::leaf_of`]. An engine may override this to overlap its cache misses.
    fn leaves_of(&self, keys: &[&<Self::Schema as Schema>::Key], leaves: &mut [u64]) {
        keys.iter().zip(leaves).for_each(|(key, leaf)| *leaf = self.leaf_of(key, false));
    }
    /// As [`LeafList::leaves_of`], for lookups that follow. Prefetches what they read first. An engine that reads leaves by another path
    /// ([`LeafList::entry_for`]) sets the leaves to 0.
    fn leaves_to_read(&self, keys: &[&<Self::Schema as Schema>::Key], leaves: &mut [u64]) {
        self.leaves_of(keys, leaves);
    }

    /// Measures the structure of the index: see [`Index::anatomy`](crate::Index::anatomy).
    fn anatomy(&self, _keys: &mut dyn Iterator<Item = &<Self::Schema as Schema>::Key>) -> Option<Anatomy> {
        None
    }

    /// For salvage: all used entries of the leaf at this offset, if there is one. The region may be damaged.
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
/// A key as a caller passes it.
pub(crate) type KeyOf<T> = <SchemaOf<T> as Schema>::Key;
/// A key as an index returns it.
pub(crate) type KeyBufOf<T> = <SchemaOf<T> as Schema>::KeyBuf;
/// A value as a caller passes it.
pub(crate) type ValueOf<T> = <SchemaOf<T> as Schema>::Value;
/// A value as an index returns it.
pub(crate) type ValueBufOf<T> = <SchemaOf<T> as Schema>::ValueBuf;
/// An entry of a leaf.
pub(crate) type EntryOf<T> = Entry<<SchemaOf<T> as Schema>::Tail>;

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

    fn keys_to_mark(&self) -> u64 {
        if self.is_loading() { KEYS_UNKNOWN } else { self.kernel().len() }
    }

    fn lines_of_free(&self) -> u64 {
        self.lines_of_operation(0) + LINES_OF_STEP
    }

    fn reload(&self, writer: &mut Writer<<T as LeafList>::Own>) {
        // This word was durable before, so its check succeeds.
        if let Ok(root) = self.region.root() {
            self.set_root_block(root);
        }
        LeafList::reload(self, writer);
    }
}
