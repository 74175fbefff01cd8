//! What a structure of versions has to say for itself: how entries are found, written and swept. All the rest is
//! [`Versioned`]'s.

use index::Report;
use index::{Schema, Write};
use pmem::alloc::Class;
use pmem::{Medium, Region, Result};

use crate::node::{Entry, Node, Shape};
use crate::persist::Persist;
use crate::pins::Mark;
use crate::version::View;
use crate::versioned::{Change, Options, Versioned, Writer};

/// The writer of a structure.
pub type WriterOf<X> = Writer<<X as Structure>::Pass>;
/// A change of a structure.
pub type ChangeOf<'a, X> = Change<'a, <X as Structure>::Pass, <X as Structure>::Part>;
/// A key as it is passed in.
pub type KeyOf<X> = <<X as Structure>::Schema as Schema>::Key;
/// A value as it is passed in.
pub type ValueOf<X> = <<X as Structure>::Schema as Schema>::Value;
/// A value as it is handed out.
pub type ValueBufOf<X> = <<X as Structure>::Schema as Schema>::ValueBuf;
/// A write.
pub type WriteOf<'a, X> = Write<'a, KeyOf<X>, ValueOf<X>>;

/// See the module's head.
pub trait Structure: Sized {
    /// The engine's name in the superblock.
    const ENGINE: &'static str;
    /// Keys and values.
    type Schema: Schema<Tail = [u64; 0]>;
    /// How one is made and opened.
    type Options: AsRef<Options>;
    /// A pass of the collector.
    type Pass;
    /// What a change keeps beside what all changes do.
    type Part;

    /// The structure below a root, or a new one (0).
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    fn found<M: Medium>(medium: &M, root: u64, options: &Self::Options) -> Result<Self>;

    /// Writes an empty structure that nobody can reach yet, of version 1, starts its write-back and returns its root.
    ///
    /// # Errors
    /// What the allocator says.
    fn format<M: Medium>(
        &self,
        region: &Region<M>,
        writer: &mut WriterOf<Self>,
        how: (&Shape, Persist),
        options: &Self::Options,
    ) -> Result<u64>;

    /// True if the structure leads to a block, which is neither the meta block nor the list of named versions.
    ///
    /// # Errors
    /// `Corrupt` if something on the way is damaged.
    fn owns<M: Medium>(of: &Versioned<M, Self>, view: &View, class: Class, at: u64) -> Result<bool>;

    /// What a new change keeps.
    ///
    /// # Errors
    /// `Corrupt`.
    fn begin<M: Medium>(of: &Versioned<M, Self>, writer: &WriterOf<Self>) -> Result<Self::Part>;

    /// The change is about to become true, or a wave of it: what it gave up is given back.
    ///
    /// # Errors
    /// `Corrupt`.
    fn finish<M: Medium>(of: &Versioned<M, Self>, change: &mut ChangeOf<'_, Self>) -> Result<()>;

    /// A wave ended: what the next one begins with.
    fn next_wave(part: &mut Self::Part);

    /// The change failed: blocks that it took are about to be given up.
    fn abandon<M: Medium>(of: &Versioned<M, Self>, part: Self::Part);

    /// Runs `make` as one version and tidies up behind it.
    ///
    /// # Errors
    /// Those of `make`; `Corrupt`.
    fn change<M: Medium, T>(
        of: &Versioned<M, Self>,
        writer: &mut WriterOf<Self>,
        make: impl FnOnce(&mut ChangeOf<'_, Self>) -> Result<T>,
    ) -> Result<T> {
        of.change(writer, make)
    }

    /// Before these are written as one version, and before the writer's side is entered.
    ///
    /// # Errors
    /// As a write.
    fn prepare<M: Medium>(_of: &Versioned<M, Self>, _writes: &[WriteOf<'_, Self>]) -> Result<()> {
        Ok(())
    }

    /// Makes room for these writes by operations of no version.
    ///
    /// # Errors
    /// As a write.
    fn make_room<M: Medium>(
        of: &Versioned<M, Self>,
        writer: &mut WriterOf<Self>,
        writes: &[WriteOf<'_, Self>],
    ) -> Result<()>;

    /// Puts, as part of a change; true if a value was replaced.
    ///
    /// # Errors
    /// As a write.
    fn put_in<M: Medium>(
        of: &Versioned<M, Self>,
        change: &mut ChangeOf<'_, Self>,
        key: &KeyOf<Self>,
        value: &ValueOf<Self>,
    ) -> Result<bool>;

    /// Removes, as part of a change; true if the key was there.
    ///
    /// # Errors
    /// As a write.
    fn delete_in<M: Medium>(
        of: &Versioned<M, Self>,
        change: &mut ChangeOf<'_, Self>,
        key: &KeyOf<Self>,
    ) -> Result<bool>;

    /// The entry of a key in a view of a version that is pinned, or in one of a newer version.
    ///
    /// # Errors
    /// `Corrupt` if something on the way is damaged.
    fn find_in<M: Medium>(of: &Versioned<M, Self>, view: &View, key: &KeyOf<Self>) -> Result<Option<Entry>>;

    /// What the schema calls an entry.
    fn of_schema(entry: &Entry) -> index::Entry;

    /// Counts the keys of a version.
    ///
    /// # Errors
    /// `TakenBack`, `Corrupt`.
    fn count<M: Medium>(of: &Versioned<M, Self>, mark: &Mark) -> Result<u64>;

    /// Removes the traces of dead versions, and nothing else [thesis algorithm 6].
    ///
    /// # Errors
    /// `Corrupt`.
    fn sweep<M: Medium>(of: &Versioned<M, Self>, writer: &mut WriterOf<Self>) -> Result<()>;

    /// Most lines that these writes change as one step; without any, what the list of named versions and the like take.
    ///
    /// # Errors
    /// `Corrupt`.
    fn lines_of<M: Medium>(
        of: &Versioned<M, Self>,
        writer: &WriterOf<Self>,
        writes: &[WriteOf<'_, Self>],
    ) -> Result<u64>;

    /// See [`Versioned::collect_some`].
    ///
    /// # Errors
    /// As there.
    fn collect_some<M: Medium>(of: &Versioned<M, Self>, places: usize) -> Result<bool>;

    /// Before a whole collection: no pass runs.
    ///
    /// # Errors
    /// As [`Versioned::collect_some`].
    fn begin_collection<M: Medium>(of: &Versioned<M, Self>) -> Result<()> {
        of.enter()?.pass = None;
        Ok(())
    }

    /// See [`Versioned::check`].
    fn check<M: Medium>(of: &Versioned<M, Self>) -> Report;

    /// See [`Versioned::clear`].
    ///
    /// # Errors
    /// As there.
    fn clear<M: Medium>(of: &Versioned<M, Self>) -> Result<()>;

    /// For salvage: true if there is a node here that has entries of keys.
    fn is_leaf<M: Medium>(medium: &M, node: Node) -> bool;

    /// For salvage: false of what only seems to be an entry of a node, as far as can be told. `root` may be damaged, or 0.
    fn is_at_home<M: Medium>(_medium: &M, _root: u64, _node: Node, _entry: &Entry) -> bool {
        true
    }
}
