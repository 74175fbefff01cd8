//! Search for the bucket of a key [VLAB §5.2.1], and the reader's functions on a bucket ([`index::leaf_list::read`]).

use index::Entry;
use index::Report;
use index::engine::Anatomy;
use index::leaf_list::write_group::{Step, Stored, WriteOf};
use index::leaf_list::{LeafCopy, LeafList};
use index::{Schema, Write};
use pmem::sync::Ordering;
use pmem::{Error, Medium, Region, Result, WORD};

use crate::bucket::{Bucket, MAX, MIN, slots};
use crate::directory::{ALIAS, Directory, SPLIT};
use crate::index::{Own, View, Vlab, Writer};
use crate::insert::Change;
use crate::rewired::{Way, place_at};

/// The result of a search for a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Led {
    pub bucket: Bucket,
    /// The directory's entry; `None` if the bucket is from the braids.
    pub entry: Option<usize>,
    pub comparisons: u32,
}

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// The bucket for a key in a view, with its own address, not a window's. With `below`: for the keys strictly below the key.
    #[inline]
    pub(crate) fn locate(&self, view: &View<S>, key: &S::Key, below: bool) -> Led {
        let found = view.directory.find::<S>(key, below, self.guide);
        self.lead(view, key, below, found)
    }

    /// The bucket for a key, for a read that follows the view's way. Prefetches its lines.
    #[inline]
    pub(crate) fn locate_to_read(&self, view: &View<S>, key: &S::Key) -> Led {
        let found = match &view.way {
            Way::Directory(_) => view.directory.find::<S>(key, false, self.guide),
            Way::Window(window) => view.directory.find_in::<S>(&**window, key, false, self.guide),
        };
        let led = self.lead(view, key, false, found);
        match (&view.way, led.entry) {
            (Way::Window(window), Some(i)) => self.ask_for(&**window, Bucket(place_at(i))),
            _ => self.ask_for(self.region.medium(), led.bucket),
        }
        led
    }

    /// Prefetches a whole bucket. Otherwise reads of entries would wait for the header, and the read of an entry's last line would wait for
    /// its first line.
    #[inline(always)]
    fn ask_for(&self, medium: &impl Medium, bucket: Bucket) {
        medium.prefetch(bucket.0, self.shape.bytes());
    }

    /// Follows the directory's entry to the bucket, which may be in the braids.
    #[inline(always)]
    fn lead(&self, view: &View<S>, key: &S::Key, below: bool, (i, comparisons): (usize, u32)) -> Led {
        let (directory, mut comparisons) = (&view.directory, comparisons);
        let marked = directory.marked(i);
        if marked & SPLIT != 0 {
            let (item, more) = view.braids.find(key, below);
            comparisons += more + 1;
            let is_nearer = |key: &S::KeyBuf| directory.compare::<S>(i, S::borrow(key)).is_lt();
            if let Some(item) = item.filter(|item| is_nearer(&item.key)) {
                return Led { bucket: Bucket(item.at), entry: None, comparisons };
            }
        }
        Led { bucket: Bucket(Directory::address(marked)), entry: Some(i), comparisons }
    }

    /// The writer's bucket for a key.
    ///
    /// # Errors
    /// `Corrupt` if there is no bucket.
    pub(crate) fn bucket_of(&self, key: &S::Key) -> Result<Bucket> {
        self.check_bucket(Bucket(self.leaf_of(key, false)))
    }

    /// The last bucket, for the writer.
    pub(crate) fn last_bucket(&self, view: &View<S>) -> Bucket {
        let directory = &view.directory;
        let i = directory.len() - 1;
        let last = view.braids.last();
        let marked = directory.marked(i);
        match last {
            Some(item) if marked & SPLIT != 0 && directory.compare::<S>(i, S::borrow(&item.key)).is_lt() => {
                Bucket(item.at)
            }
            _ => Bucket(Directory::address(marked)),
        }
    }

    /// Returns the bucket if there is one at this address.
    pub(crate) fn check_bucket(&self, bucket: Bucket) -> Result<Bucket> {
        match bucket.nxt(self.region.medium()) {
            Some(_) => Ok(bucket),
            None => Err(Error::Corrupt { what: "bucket", at: bucket.0 }),
        }
    }

    /// Number of comparisons that a lookup of this key takes to find its bucket.
    pub fn comparisons(&self, key: &S::Key) -> u32 {
        self.locate_to_read(&self.view(), key).comparisons
    }

    /// True if an entry of the directory leads to a bucket of another key.
    pub(crate) fn is_alias(marked: u64) -> bool {
        marked & ALIAS != 0
    }
}

impl<M: Medium, S: Schema> LeafList for Vlab<M, S> {
    type Medium = M;
    type Schema = S;
    type Own = Own<S>;
    type Change = Change;

    fn payload_words(&self) -> usize {
        self.shape.entries.payload_words
    }

    fn leaf_bytes(&self) -> u64 {
        self.shape.bytes()
    }

    fn root_block(&self) -> u64 {
        self.root.load(Ordering::Acquire)
    }

    fn set_root_block(&self, root: u64) {
        self.root.store(root, Ordering::Release);
    }

    fn head(&self) -> Result<u64> {
        self.meta().head(self.region.medium())
    }

    fn next_leaf(&self, leaf: u64) -> Option<u64> {
        Bucket(leaf).nxt(self.region.medium())
    }

    fn write_empty(&self, leaf: u64, root: u64) {
        crate::index::write_empty::<M, S>(self.region.medium(), &self.shape, (leaf, root), self.faithful);
    }

    /// Under `faithful` there may be two lists and a half-finished combine.
    fn can_switch(&self) -> bool {
        !self.faithful
    }

    #[inline]
    fn leaf_of(&self, key: &S::Key, below: bool) -> u64 {
        let led = self.locate(&self.view(), key, below);
        self.ask_for(self.region.medium(), led.bucket);
        led.bucket.0
    }

    fn last_leaf(&self) -> u64 {
        self.last_bucket(&self.view()).0
    }

    #[inline]
    fn is_leaf(&self, leaf: u64) -> bool {
        Bucket(leaf).nxt(self.region.medium()).is_some()
    }

    fn lower_bound(&self, leaf: u64) -> u64 {
        self.region.medium().word(leaf + MIN)
    }

    fn upper_bound(&self, leaf: u64) -> u64 {
        self.region.medium().word(leaf + MAX)
    }

    #[inline]
    fn entry_of(&self, leaf: u64, key: &S::Key) -> Option<Entry<S::Tail>> {
        let (medium, shape, bucket) = (self.region.medium(), &self.shape, Bucket(leaf));
        bucket
            .find::<M, S>(medium, shape, S::probe(key))
            .map(|slot| bucket.entry::<M, S::Tail>(medium, shape, slot))
    }

    #[inline]
    fn entry_for<V>(
        &self,
        key: &S::Key,
        first_look: impl FnOnce(u64) -> V,
    ) -> (V, Option<Entry<S::Tail>>, bool) {
        // The view must live while the window is read.
        let view = self.view();
        let led = self.locate_to_read(&view, key);
        let seen = first_look(led.bucket.0);
        let probe = S::probe(key);
        if let (Way::Window(window), Some(i)) = (&view.way, led.entry) {
            let (window, page, shape) = (&**window, Bucket(place_at(i)), &self.shape);
            let slot = page.find::<_, S>(window, shape, probe);
            let entry = slot.map(|slot| page.entry(window, shape, slot));
            return (seen, entry, page.nxt(window).is_some());
        }
        (seen, self.entry_of(led.bucket.0, key), self.is_leaf(led.bucket.0))
    }

    fn leaves_to_read(&self, keys: &[&S::Key], leaves: &mut [u64]) {
        keys.iter().for_each(|key| _ = self.locate_to_read(&self.view(), key));
        leaves.fill(0);
    }

    fn entries_of(&self, leaf: u64, copy: &mut LeafCopy<S>) {
        let (medium, shape, bucket) = (self.region.medium(), &self.shape, Bucket(leaf));
        copy.clear();
        for slot in slots(&bucket.bits(medium, shape)) {
            copy.push(bucket.entry::<M, S::Tail>(medium, shape, slot));
        }
    }

    fn leaves_for(&self, leaf: u64, writes: u64) -> u64 {
        // An update may split a bucket that is not full, because its bitmap word is full. A delete may merge.
        let held = Bucket(leaf).count(self.region.medium(), &self.shape) as u64;
        writes.min(2 + 3 * (held + writes) / self.shape.capacity() as u64)
    }

    #[inline]
    fn store(&self, writer: &mut Writer<S>, write: &WriteOf<'_, Self>, leaf: u64) -> Result<Step<Change>> {
        match write {
            Write::Put(key, value) => self.store_value(writer, Bucket(leaf), key, value),
            Write::Delete(key) => self.store_removal(writer, Bucket(leaf), key),
        }
    }

    #[inline]
    fn publish(&self, change: &Change) {
        let medium = self.region.medium();
        medium.publish(change.at, change.word);
        medium.flush(change.at, WORD);
    }

    #[inline]
    fn conclude(&self, writer: &mut Writer<S>, write: &WriteOf<'_, Self>, stored: &Stored<Change>) {
        match write {
            Write::Put(..) if stored.was_there => return,
            Write::Put(..) => self.keys.fetch_add(1, Ordering::AcqRel),
            Write::Delete(_) => self.keys.fetch_sub(1, Ordering::AcqRel),
        };
        if let Write::Delete(key) = write {
            // The key is removed. If a neighbour is damaged, reads of the neighbour report it.
            let _ = self.thin_out(writer, key, stored.change.bucket);
        }
        self.combine_some(writer);
    }

    fn put_locked(&self, writer: &mut Writer<S>, key: &S::Key, value: &S::Value) -> Result<bool> {
        self.put_in_bucket(writer, key, value)
    }

    fn delete_locked(&self, writer: &mut Writer<S>, key: &S::Key) -> Result<bool> {
        self.delete_in_bucket(writer, key)
    }

    fn reload(&self, writer: &mut Writer<S>) {
        writer.rebuild = None;
        writer.aliases = 0;
        let _ = self.load(pmem::Found::Clean { keys: 0 });
        self.begin_window(writer);
    }

    fn check(&self) -> Report {
        Vlab::check(self)
    }

    fn anatomy(&self, keys: &mut dyn Iterator<Item = &S::Key>) -> Option<Anatomy> {
        let paths = self.paths();
        let (mut count, mut compared) = (0_u64, 0_u64);
        for key in keys {
            (count, compared) = (count + 1, compared + u64::from(self.comparisons(key)));
        }
        Some(Anatomy {
            leaves: (paths.directory + paths.in_braids) as u64,
            leaf_bytes: self.shape.bytes(),
            extra_bytes: paths.directory_bytes + paths.braids_bytes,
            comparisons: Some(compared as f64 / count.max(1) as f64),
        })
    }

    fn salvage<R: Medium>(region: &Region<R>, leaf: u64) -> Vec<Entry<S::Tail>> {
        crate::salvage::entries::<R, S>(region, leaf)
    }
}
