//! The hash table: the parts that it does not share with the tree ([`crate::versioned`]).

use std::collections::HashSet;
use std::marker::PhantomData;

use index::Report;
use index::{Life, Schema, Write, WriteOptions};
use pmem::alloc::{Class, Kind};
use pmem::{Durability, Error, Fence, LINE, Medium, Region, Result, WORD};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bucket::bucket_in;
use super::directory::{Directory, SEGMENT_SLOTS_MAX, partner};
use super::pass::Pass;
use crate::node::{Entry, Node, Shape};
use crate::persist::Persist;
use crate::pins::{Mark, Readers};
use crate::structure::Structure;
use crate::structure::{self, Versioned};
use crate::version::View;

/// The engine's name in the superblock.
pub const ENGINE: &str = "cdds-hash";
/// The version lock of the directory.
pub(crate) const DIRECTORY: u64 = 0;

/// The version lock of a bucket: for its slot, its nodes and their records.
pub(crate) fn stripe_of(bucket: u64) -> u64 {
    (bucket + 1) << 6
}

/// Options to create and open a table.
#[derive(Clone, Debug)]
pub struct Options {
    /// The options that a tree has, too.
    pub common: structure::Options,
    /// Slots of a segment of the directory: a power of two, 2 to 16,384. An existing table keeps its own.
    pub segment_slots: u64,
    /// Seed of the hash. Clients that choose the keys must not know it. An existing table keeps its own.
    pub seed: u64,
}

impl Options {
    /// Options for production.
    pub fn new(node_lines: u64, durability: Durability) -> Self {
        Self { common: structure::Options::new(node_lines, durability), segment_slots: 4096, seed: 0 }
    }
}

impl AsRef<structure::Options> for Options {
    fn as_ref(&self) -> &structure::Options {
        &self.common
    }
}

/// A CDDS hash table over a medium.
pub type Table<M, S> = Versioned<M, Hashed<S>>;
pub(crate) type Writer = structure::Writer<Pass>;
pub(crate) type Change<'a> = structure::Change<'a, Pass, Part>;

/// The structure with entries in buckets.
pub struct Hashed<S> {
    seed: u64,
    parts: PhantomData<fn() -> S>,
}

/// The table's part of a change.
pub struct Part {
    pub(crate) readers: Readers,
    pub(crate) directory: Directory,
    /// Slots of the directory that reference new nodes, with their old content.
    pub(crate) linked: Vec<(u64, u64)>,
}

impl<S: Schema<Tail = [u64; 0]>> Structure for Hashed<S> {
    const ENGINE: &'static str = ENGINE;
    type Schema = S;
    type Options = Options;
    type Pass = Pass;
    type Part = Part;

    /// # Panics
    /// If the segment size is not one that [`Options::segment_slots`] allows.
    fn found<M: Medium>(medium: &M, root: u64, options: &Options) -> Result<Self> {
        let slots = options.segment_slots;
        assert!(slots.is_power_of_two() && (2..=SEGMENT_SLOTS_MAX).contains(&slots), "slots of a segment");
        let seed = if root == 0 { options.seed } else { directory_at(medium, root)?.seed(medium) };
        Ok(Self { seed, parts: PhantomData })
    }

    /// Writes a directory with one empty bucket.
    fn format<M: Medium>(
        &self,
        region: &Region<M>,
        writer: &mut Writer,
        (_, persist): (&Shape, Persist),
        options: &Options,
    ) -> Result<u64> {
        let (medium, slots) = (region.medium(), options.segment_slots);
        let sizes = Directory::first(0, slots);
        let mut take = |bytes| writer.allocator.take(region, &mut writer.log, Kind::Inner, bytes);
        let (top, segment) = (take(sizes.top_bytes())?, take(sizes.segment_bytes())?);
        let directory = Directory::first(top, slots);
        directory.write_top(medium, persist, self.seed, &[segment]);
        directory.write_segment(medium, persist, 0, segment);
        Ok(top)
    }

    fn owns<M: Medium>(of: &Table<M, S>, view: &View, class: Class, at: u64) -> Result<bool> {
        of.leads_to(view, class, at)
    }

    fn begin<M: Medium>(of: &Table<M, S>, writer: &Writer) -> Result<Part> {
        let (readers, directory) = (of.pins.readers(&of.visible), of.directory(writer)?);
        Ok(Part { readers, directory, linked: Vec::new() })
    }

    fn finish<M: Medium>(_: &Table<M, S>, _: &mut Change<'_>) -> Result<()> {
        Ok(())
    }

    /// Links to nodes of a write group that has ended stay.
    fn next_group(part: &mut Part) {
        part.linked.clear();
    }

    /// Removes the links to new nodes, durably.
    fn abandon<M: Medium>(of: &Table<M, S>, part: Part) {
        let medium = of.region.medium();
        for (slot_at, first) in part.linked.iter().rev() {
            medium.publish(*slot_at, *first);
            medium.flush(*slot_at, WORD);
        }
        if !part.linked.is_empty() {
            medium.fence(Fence::Guard);
        }
    }

    fn prepare<M: Medium>(of: &Table<M, S>, writes: &[Write<'_, S::Key, S::Value>]) -> Result<()> {
        of.grow_for(writes)
    }

    /// Adds a bucket if the buckets are full, or removes one if they are sparse. Makes a free slot if all slots of a bucket are taken and
    /// garbage must first be freed.
    fn make_space<M: Medium>(
        of: &Table<M, S>,
        writer: &mut Writer,
        writes: &[Write<'_, S::Key, S::Value>],
    ) -> Result<()> {
        match writes {
            [Write::Delete(_)] => of.shrink_if_sparse(writer).map(drop),
            _ => {
                of.grow_if_full(writer)?;
                writes.iter().try_for_each(|write| of.make_hole(writer, write.key()))
            }
        }
    }

    #[inline]
    fn put_in<M: Medium>(
        of: &Table<M, S>,
        change: &mut Change<'_>,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        of.put_in(change, key, value)
    }

    #[inline]
    fn delete_in<M: Medium>(of: &Table<M, S>, change: &mut Change<'_>, key: &S::Key) -> Result<bool> {
        of.delete_in(change, key)
    }

    #[inline]
    fn find_in<M: Medium>(of: &Table<M, S>, view: &View, key: &S::Key) -> Result<Option<Entry>> {
        of.find_in(view, key)
    }

    /// A byte string's key is in the record with its value.
    #[inline]
    fn of_schema(entry: &Entry) -> index::Entry {
        let key = if S::PLAIN { entry.key } else { entry.payload };
        index::Entry::new([key, 0], entry.payload)
    }

    fn count<M: Medium>(of: &Table<M, S>, mark: &Mark) -> Result<u64> {
        let mut keys = 0;
        of.pairs_at(mark.clone()).each(|_, _| {
            keys += 1;
            true
        })?;
        Ok(keys)
    }

    fn sweep<M: Medium>(of: &Table<M, S>, writer: &mut Writer) -> Result<()> {
        of.sweep_locked(writer)
    }

    fn lines_of<M: Medium>(
        of: &Table<M, S>,
        writer: &Writer,
        writes: &[Write<'_, S::Key, S::Value>],
    ) -> Result<u64> {
        let directory = of.directory(writer)?;
        let buckets: HashSet<u64> =
            writes.iter().map(|write| directory.bucket_of(of.hash(write.key()))).collect();
        // Buckets are cleaned, and full ones get more nodes.
        let more = (buckets.len() + writes.len() / of.shape.slots) as u64 * (of.shape.bytes / LINE);
        let lines = of.lines_of_resize(writer)? + of.lines_of_buckets(&directory, buckets)? + more;
        Ok(lines)
    }

    fn collect_some<M: Medium>(of: &Table<M, S>, places: usize) -> Result<bool> {
        of.collect_places(places)
    }

    /// Removes buckets until no more can be removed, and ends a running pass.
    fn begin_collection<M: Medium>(of: &Table<M, S>) -> Result<()> {
        while of.shrink_alone()? {}
        of.enter()?.pass = None;
        Ok(())
    }

    fn check<M: Medium>(of: &Table<M, S>) -> Report {
        of.check_all_buckets()
    }

    fn is_leaf<M: Medium>(medium: &M, node: Node) -> bool {
        bucket_in(medium, node).is_some()
    }

    /// Leftovers of a bucket's split do not count.
    fn is_at_home<M: Medium>(medium: &M, root: u64, node: Node, entry: &Entry) -> bool {
        let Some(directory) = Directory::read(medium, root) else { return true };
        let own = Self { seed: directory.seed(medium), parts: PhantomData };
        bucket_in(medium, node) == Some(directory.bucket_of(own.hash_of(entry)))
    }

    fn clear<M: Medium>(of: &Table<M, S>) -> Result<()> {
        of.clear_all()
    }
}

impl<S: Schema<Tail = [u64; 0]>> Hashed<S> {
    #[inline]
    fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed)
    }

    #[inline]
    fn hash_of(&self, entry: &Entry) -> u64 {
        // The schema's bytes of a 64-bit key are those of its word.
        if S::PLAIN { self.hash_bytes(&entry.key.to_le_bytes()) } else { entry.key }
    }
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// The current directory, for the writer.
    ///
    /// # Errors
    /// `Corrupt` if its top is damaged.
    pub(crate) fn directory(&self, writer: &Writer) -> Result<Directory> {
        directory_at(self.region.medium(), writer.state.root)
    }

    /// Runs an operation of the allocator that has no version. On an error nothing has changed.
    pub(crate) fn operation<T>(
        &self,
        writer: &mut Writer,
        make: impl FnOnce(&mut Writer) -> Result<T>,
    ) -> Result<T> {
        let made = make(writer);
        if made.is_err() {
            writer.allocator.abort(&self.region, &mut writer.log);
        }
        self.stripes.unlock(&mut writer.held);
        made
    }

    /// Maximum lines that the cleaning of these buckets changes: nodes, slots of the directory, and allocation bits of freed blocks.
    pub(crate) fn lines_of_buckets(
        &self,
        directory: &Directory,
        buckets: impl IntoIterator<Item = u64>,
    ) -> Result<u64> {
        let (mut nodes, mut slots) = (0, 0);
        for bucket in buckets {
            nodes += self.chain(directory, bucket)?.len() as u64;
            slots += 1;
        }
        // One line of allocation bits for each freed block, but at most as many lines as there are.
        let chunk_bytes = self.region.geometry().chunk_bytes;
        let bits = (self.region.medium().len() / chunk_bytes + 1) * (chunk_bytes / 16 / 8).div_ceil(LINE);
        let given = if S::PLAIN { nodes } else { nodes * (1 + self.shape.slots as u64) };
        Ok(nodes * (self.shape.bytes / LINE) + slots + given.min(bits))
    }

    /// Maximum lines that adding or removing one bucket changes.
    pub(crate) fn lines_of_resize(&self, writer: &Writer) -> Result<u64> {
        let directory = self.directory(writer)?;
        let (buckets, last) = (directory.buckets, directory.buckets - 1);
        let above = (directory.segment_bytes() + directory.doubled(0).top_bytes()) / LINE;
        // A split cleans and copies one bucket. A join cleans and copies two.
        let split = self.lines_of_buckets(&directory, [partner(buckets)])?;
        let joined = match last {
            0 => 0,
            last => self.lines_of_buckets(&directory, [last, partner(last)])?,
        };
        Ok(above + 2 * split.max(joined))
    }

    /// Removes every key. If no version is kept, all versions are rolled back. Otherwise each entry is ended.
    fn clear_all(&self) -> Result<()> {
        self.spare_intervals()?;
        let mut writer = self.enter()?;
        self.settle_doubt(&mut writer)?;
        self.free_intervals(&mut writer, 1)?;
        // While this lives, no reader can begin to keep the present version.
        if let Some(none_above) = self.pins.none_kept() {
            let taken_back = self.roll_back_locked(&mut writer, 0, 0);
            drop(none_above);
            return self.end_roll_back(writer, taken_back);
        }
        drop(writer);
        let mut writer = self.enter_for(|writer| {
            let directory = self.directory(writer)?;
            Ok(self.lines_besides(1, 0) + self.lines_of_buckets(&directory, 0..directory.buckets)?)
        })?;
        self.change(&mut writer, |change| self.clear_in(change))?;
        self.acknowledge(writer, WriteOptions::default())
    }

    /// The hash of a key, from its bytes.
    #[inline]
    pub(crate) fn hash(&self, key: &S::Key) -> u64 {
        self.own.hash_bytes(S::key_bytes(key).as_ref())
    }

    /// The hash of an entry's key.
    #[inline]
    pub(crate) fn hash_of(&self, entry: &Entry) -> u64 {
        self.own.hash_of(entry)
    }

    /// The present number of buckets.
    ///
    /// # Errors
    /// `Corrupt` if the directory is damaged.
    pub fn buckets(&self) -> Result<u64> {
        Ok(self.directory(&self.writer_side())?.buckets)
    }
}

fn directory_at<M: Medium>(medium: &M, top: u64) -> Result<Directory> {
    Directory::read(medium, top).ok_or(Error::Corrupt { what: "directory", at: top })
}
