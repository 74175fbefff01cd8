//! The tree: its parts, and the steps of a change.
//!
//! A change (`change_and`) has five steps:
//!
//! 1. Without a journal, it lets readers whose validations failed too often read first. (With a journal this happened before the writer's
//!    lock was taken.)
//! 2. It locks the versions of all nodes in its edits.
//! 3. The commit protocol commits the edits.
//! 4. It tells the allocator that the operation has ended, so the freed blocks can be used again.
//! 5. It unlocks the versions.
//!
//! Without a journal, a reader sees the nodes as they were before the change, or as they are after all of it is durable. With a journal,
//! the change is in memory first and becomes durable with its group. A lookup that finds such a change waits for the group
//! ([`pmem::pending`]).

use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;

use index::batch::Batching;
use index::garbage::LINES_OF_STEP;
use index::moves::move_record;
use index::region::{create_region, open_region};
use index::{Embed, KEYS_UNKNOWN, Kernel, Life, Schema, Tail};
use pmem::alloc::Kind;
use pmem::region::ROOT_AT;
use pmem::simd::Vectors;
use pmem::sync::{AtomicBool, AtomicU64, Ordering};
use pmem::{Durability, Error, Found, Geometry, LINE, Medium, Region, Result};

use crate::commit_protocol::{Change, CommitProtocol};
use crate::layout::{Layout, Layouts};
use crate::shape::{Edit, LEVELS_MAX, LINES_MAX, Link, Node, Shape};

/// Options for a new tree.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Name of the engine, for the superblock.
    pub engine: String,
    /// Cache lines of a node: 2 to 16; 3 to 64 in trees with [`Layouts::PAGES`].
    pub node_lines: u64,
    /// Payload words of a leaf entry: 1. With [`Fixed`](index::Fixed) values: the words of a value.
    pub payload_words: usize,
    /// Fixed sizes of the region.
    pub geometry: Geometry,
    /// Durability, for the superblock.
    pub durability: Durability,
    /// True for the keys of several tables, for the superblock ([`index::tables`]).
    pub tables: bool,
    /// Number of striped version locks; a power of two.
    pub stripes: usize,
}

impl TreeOptions {
    /// Options for production.
    pub fn new(engine: &str, node_lines: u64, durability: Durability) -> Self {
        Self {
            engine: engine.into(),
            node_lines,
            payload_words: 1,
            geometry: Geometry::default(),
            durability,
            tables: false,
            stripes: 1024,
        }
    }
}

/// Minimum entries of a full node: both halves of a split keep some, and an inner node also gives one to its parent.
const ENTRIES_MIN: usize = 3;

/// The compiled search that an operation uses (see `dispatch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wide {
    /// Compares keys one by one.
    No,
    /// AVX-512, for nodes of any size.
    Any,
    /// AVX-512, for nodes of 16 lines.
    Sixteen,
    /// AVX2, for nodes of any size.
    Narrow,
}

/// Maximum keys that a close counts. This takes some milliseconds.
const COUNTED_AT_CLOSE: usize = 1 << 16;

/// A B+-tree over a medium. Its parts are schema, layouts and commit protocol.
pub struct Tree<M: Medium, S: Schema, L, D: CommitProtocol> {
    kernel: Kernel<D::Memory<M>, S, Own<S>>,
    /// Geometry of leaves.
    pub(crate) leaf: Shape,
    /// Geometry of inner nodes.
    pub(crate) inner: Shape,
    pub(crate) wide: Wide,
    pub(crate) counting: AtomicBool,
    root: AtomicU64,
    durability: Durability,
    /// Number of keys at the end of the newest durable group, or `KEYS_UNKNOWN`.
    pub(crate) durable_keys: AtomicU64,
    parts: PhantomData<fn() -> (L, D)>,
}

impl<M: Medium, S: Schema, L, D: CommitProtocol> Deref for Tree<M, S, L, D> {
    type Target = Kernel<D::Memory<M>, S, Own<S>>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.kernel
    }
}

/// The tree's own part of the writer's state.
pub struct Own<S: Schema> {
    pub(crate) edits: Vec<Edit>,
    pub(crate) path: Trail,
    /// While keys are being counted: the count contains the keys up to this one. `None`: it contains none yet.
    pub(crate) counted_to: Option<S::KeyBuf>,
}

/// The state that the writer's lock protects.
pub(crate) type Writer<S> = index::Writer<Own<S>>;

/// The inner nodes from the root to the parent of a leaf, with the rank of the child taken in each. The size is fixed. With a `Vec`, an
/// addition could allocate, so each descent would have to save its registers. These stores would wait for the last change's fence.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    len: usize,
    steps: [(Node, usize); LEVELS_MAX],
}

impl Trail {
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a step. A descent ends after [`LEVELS_MAX`] steps, so there is space.
    #[inline(always)]
    pub(crate) fn push(&mut self, node: Node, rank: usize) {
        self.steps[self.len % LEVELS_MAX] = (node, rank);
        self.len += 1;
    }

    /// The steps, from the root down.
    pub(crate) fn steps(&self) -> &[(Node, usize)] {
        &self.steps[..self.len.min(LEVELS_MAX)]
    }

    /// Removes the steps after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(crate) fn pop(&mut self) -> Option<(Node, usize)> {
        self.len = self.len.checked_sub(1)?;
        Some(self.steps[self.len % LEVELS_MAX])
    }
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// Creates an empty tree in a fresh medium.
    ///
    /// # Errors
    /// `Nodes` if a node of this size holds too few entries. Also the errors of growing the medium.
    pub fn create(medium: M, options: &TreeOptions) -> Result<Self> {
        let sizes = (options.node_lines, options.payload_words);
        let how = (options.geometry, options.durability);
        let region = create_region::<M, S>(medium, &options.engine, sizes, how, options.tables)?;
        Self::start(region, Found::New, options.durability, options.stripes)
    }

    /// Opens the tree in a region. Recovers it if it was not closed cleanly.
    ///
    /// # Errors
    /// `Mismatch` if the region holds something else; `Nodes` if its nodes have an impossible size. Also the errors of [`Region::open`] and
    /// of recovery.
    pub fn open(
        medium: M,
        path: &Path,
        engine: &str,
        durability: Durability,
        stripes: usize,
    ) -> Result<(Self, Found)> {
        let (region, found) = open_region::<M, S>(medium, path, engine)?;
        Ok((Self::start(region, found, durability, stripes)?, found))
    }

    fn start(region: Region<M>, found: Found, durability: Durability, stripes: usize) -> Result<Self> {
        let region = region.reached_by::<D::Memory<M>>();
        let lines = region.identity().node_lines;
        let payload_words = S::payload_words(&region.identity().kind).ok_or(Error::Nodes { lines })?;
        let leaf = L::Leaf::shape(lines, S::KEY_WORDS, payload_words);
        let inner = L::Inner::shape(lines, S::KEY_WORDS, 1);
        if leaf.capacity < ENTRIES_MIN || inner.capacity < ENTRIES_MIN {
            return Err(Error::Nodes { lines });
        }
        let may = M::SHOWS_LINES
            && S::PLAIN
            && S::Tail::EMPTY
            && lines <= LINES_MAX as u64
            && region.medium().lines(0, 1).is_some();
        let specialised = D::SPECIALISED && L::SPECIALISED;
        let wide = match Vectors::of_processor() {
            Some(Vectors::Wide(_)) if may && specialised && lines == 16 => Wide::Sixteen,
            Some(Vectors::Wide(_)) if may => Wide::Any,
            Some(Vectors::Narrow(_)) if may && specialised => Wide::Narrow,
            _ => Wide::No,
        };
        let keys = match found {
            Found::Clean { keys } => keys,
            _ => 0,
        };
        let own = Own { edits: vec![Edit::default()], path: Trail::default(), counted_to: None };
        let mut tree = Self {
            kernel: Kernel::new(region, found, durability, stripes, D::LOG, own)?,
            leaf,
            inner,
            wide,
            counting: AtomicBool::new(false),
            root: AtomicU64::new(0),
            durability,
            durable_keys: AtomicU64::new(keys),
            parts: PhantomData,
        };
        // The replay of the log may have changed the root word.
        tree.root = AtomicU64::new(tree.region.root()?);
        tree.keys.store(keys, Ordering::Release);
        tree.set_garbage(tree.garbage()?.is_some());
        if found == Found::InUse {
            tree.recover_blocks()?;
        }
        if tree.root().0 == 0 {
            tree.make_root()?;
        } else if found == Found::InUse || keys == KEYS_UNKNOWN {
            tree.keys.store(0, Ordering::Release);
            tree.counting.store(true, Ordering::Release);
            tree.durable_keys.store(KEYS_UNKNOWN, Ordering::Release);
        }
        // No other thread has the tree yet.
        if found == Found::InUse {
            tree.finish_batch()?;
        }
        tree.region.medium().commit_beside(|| Some(()))?;
        Ok(tree)
    }

    /// Compares keys one by one, even if the processor can compare several at a time.
    #[must_use]
    pub fn without_vectors(mut self) -> Self {
        self.wide = Wide::No;
        self
    }

    /// True if keys are compared eight or four at a time. This needs 64-bit keys, a medium that gives access to whole lines, and a
    /// processor with AVX-512; if the engine is specialised, AVX2 suffices.
    pub fn uses_vectors(&self) -> bool {
        self.wide != Wide::No
    }

    /// Makes an empty leaf the root. The tree has no root: it is new, or it crashed before it had one.
    fn make_root(&self) -> Result<()> {
        let mut writer = self.lock_writer()?;
        let writer = &mut *writer;
        let root = self.take_node(writer, 0)?;
        let link = Link { node: Node(0), level: 0 };
        self.compose_new(writer, 0, root, &[], link);
        self.edit_root(writer, 1, root);
        self.change_prepared(writer, Ok((2, Some(root))))?;
        // This happens once in a tree's life. Without the truncation, a second recovery would have a commit to replay.
        writer.log.truncate(self.region.medium());
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn root(&self) -> Node {
        Node(self.root.load(Ordering::Acquire))
    }

    pub(crate) fn set_root(&self, root: Node) {
        self.root.store(root.0, Ordering::Release);
    }

    /// Allocates a block for a new node of this level.
    pub(crate) fn take_node(&self, writer: &mut Writer<S>, level: usize) -> Result<Node> {
        let kind = if level == 0 { Kind::Leaf } else { Kind::Inner };
        writer.allocator.take(&self.region, &mut writer.log, kind, self.leaf.bytes()).map(Node)
    }

    /// Writes edit `number`, which makes `root` the root.
    pub(crate) fn edit_root(&self, writer: &mut Writer<S>, number: usize, root: Node) {
        let edit = writer.edit(number);
        edit.start(Node(ROOT_AT), LINE);
        edit.switch.push((ROOT_AT, Region::<M>::root_word(root.0)));
    }

    /// Commits the writer's first `edits` edits as one crash-atomic change. On an error nothing has changed and the operation is aborted.
    #[inline(always)]
    pub(crate) fn change(&self, writer: &mut Writer<S>, edits: usize) -> Result<()> {
        self.change_and(writer, edits, false, || {})
    }

    /// As [`Tree::change`], for edits that are independent of each other. Each is crash-atomic by itself.
    #[inline(always)]
    pub(crate) fn change_apart(&self, writer: &mut Writer<S>, edits: usize) -> Result<()> {
        self.change_and(writer, edits, true, || {})
    }

    /// As [`Tree::change`]. `visible` runs after the commit, before the versions are unlocked.
    #[inline(always)]
    pub(crate) fn change_and(
        &self,
        writer: &mut Writer<S>,
        edits: usize,
        apart: bool,
        visible: impl FnOnce(),
    ) -> Result<()> {
        let edits = &writer.own.edits[..edits];
        if self.pending.is_none() {
            self.stripes.give_way(); // over a journal: before the lock was taken
        }
        for edit in edits {
            self.stripes.lock(edit.node.0, &mut writer.held);
        }
        if let Some(pending) = &self.pending {
            edits.iter().for_each(|edit| pending.note_node(edit.node.0));
        }
        let outcome = D::commit(Change {
            region: &self.region,
            log: &mut writer.log,
            allocator: &mut writer.allocator,
            edits,
            apart,
        });
        match outcome {
            Ok(()) => {
                visible();
                writer.allocator.finish(&self.region, &mut writer.log);
            }
            Err(_) => writer.allocator.abort(&self.region, &mut writer.log),
        }
        self.stripes.unlock(&mut writer.held);
        outcome
    }

    /// Number of keys, durable or not, and true if they are still being counted.
    pub fn len(&self) -> (u64, bool) {
        let pending = self.counting.load(Ordering::Acquire);
        (self.keys.load(Ordering::Acquire), pending)
    }

    /// True if no key has been counted.
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    /// Geometry of a leaf.
    pub fn leaf_shape(&self) -> &Shape {
        &self.leaf
    }

    /// Geometry of an inner node.
    pub fn inner_shape(&self) -> &Shape {
        &self.inner
    }

    /// The durability that this tree was opened with.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Allocated bytes in the chunks whose headers were read since the open, and the number of the other chunks.
    pub fn live_bytes(&self) -> (u64, u64) {
        let writer = self.writer_side();
        writer.allocator.live_bytes(&self.region)
    }
}

impl<S: Schema> Own<S> {
    /// Edit `number`. Creates it if it does not exist.
    pub(crate) fn edit(&mut self, number: usize) -> &mut Edit {
        while self.edits.len() <= number {
            self.edits.push(Edit::default());
        }
        &mut self.edits[number]
    }
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Embed for Tree<M, S, L, D> {
    type Medium = D::Memory<M>;
    type Schema = S;
    type Own = Own<S>;
    /// Number of keys, or `KEYS_UNKNOWN`.
    type Shown = u64;

    #[inline(always)]
    fn kernel(&self) -> &Kernel<D::Memory<M>, S, Own<S>> {
        &self.kernel
    }

    fn shown(&self, _writer: &Writer<S>) -> u64 {
        self.known_keys()
    }

    fn show_durable(&self, keys: u64) {
        self.durable_keys.store(keys, Ordering::Release);
    }

    fn reload(&self, _writer: &mut Writer<S>) {
        // The frames of a buffer pool are not rolled back, so the root stays, too. Readers get `Failed` instead. In a tree without a pool
        // the root word is valid, because it was durable before.
        if !D::POOLED
            && let Ok(root) = self.region.root()
        {
            self.set_root(Node(root));
        }
        match self.durable_keys.load(Ordering::Acquire) {
            // The number stays unknown: no thread counts after a failure.
            KEYS_UNKNOWN => self.counting.store(true, Ordering::Release),
            keys => self.keys.store(keys, Ordering::Release),
        }
    }

    fn move_record(&self, writer: &mut Writer<S>, block: u64) -> bool {
        let leads = |key: &S::KeyBuf| self.owns_record(Kind::Record, block, key);
        let fits = |bytes| matches!(self.has_space(1, bytes), Ok(true));
        move_record(self, writer, block, leads, fits, |writer, key, value| {
            self.put_locked(writer, key, value)
        })
    }

    fn free_some(&self, writer: &mut Writer<S>) -> Result<bool> {
        self.free_last(writer)
    }

    fn lines_of_free(&self) -> u64 {
        self.lines_of_operations(1, 0) + LINES_OF_STEP
    }

    fn prepare_close(&self) {
        // This takes bounded time. Reads of a damaged leaf report the damage.
        let _ = self.count_some(COUNTED_AT_CLOSE);
    }

    fn keys_to_mark(&self) -> u64 {
        self.known_keys()
    }
}
