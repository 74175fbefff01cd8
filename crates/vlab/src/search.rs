//! How the bucket of a key is found [VLAB §5.2.1], and what a bucket is to readers ([`chain::read`]).

use chain::{Chain, Pages};
use pmem::{Error, Medium, Result};
use tree::Schema;
use tree::check::Report;
use tree::shape::Entry;

use crate::bucket::{Bucket, MAX, MIN, slots};
use crate::directory::{ALIAS, Directory, SPLIT};
use crate::index::{Own, View, Vlab, Writer};

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// The bucket for a key in a view (for the keys strictly below it, if so asked), and the number of comparisons.
    #[inline]
    pub(crate) fn locate(&self, view: &View<S>, key: &S::Key, below: bool) -> (Bucket, u32) {
        let directory = &view.directory;
        let (i, comparisons) = directory.find::<S>(key, below, self.guide);
        let marked = directory.marked(i);
        if marked & SPLIT != 0 {
            let (item, more) = view.braids.find(key, below);
            let is_nearer = |key: &S::KeyBuf| directory.compare::<S>(i, S::borrow(key)).is_lt();
            if let Some(item) = item.filter(|item| is_nearer(&item.key)) {
                return (Bucket(item.at), comparisons + more + 1);
            }
            return (Bucket(Directory::address(marked)), comparisons + more + 1);
        }
        (Bucket(Directory::address(marked)), comparisons)
    }

    /// The writer's bucket for a key.
    ///
    /// # Errors
    /// `Corrupt` if there is no bucket.
    pub(crate) fn bucket_of(&self, key: &S::Key) -> Result<Bucket> {
        let (bucket, _) = self.locate(&self.view.load(), key, false);
        self.check_bucket(bucket)
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

    /// The same bucket, if there is one.
    pub(crate) fn check_bucket(&self, bucket: Bucket) -> Result<Bucket> {
        match bucket.nxt(self.region.medium()) {
            Some(_) => Ok(bucket),
            None => Err(Error::Corrupt { what: "bucket", at: bucket.0 }),
        }
    }

    /// Comparisons that finding the bucket of a key takes now.
    pub fn comparisons(&self, key: &S::Key) -> u32 {
        self.locate(&self.view.load(), key, false).1
    }

    /// True if an entry of the directory leads to a bucket of another key.
    pub(crate) fn is_alias(marked: u64) -> bool {
        marked & ALIAS != 0
    }
}

impl<M: Medium, S: Schema> Chain for Vlab<M, S> {
    type Medium = M;
    type Schema = S;
    type Own = Own<S>;

    fn payload_words(&self) -> usize {
        self.shape.entries.payload_words
    }

    fn leaf_bytes(&self) -> u64 {
        self.shape.bytes()
    }

    fn root_block(&self) -> u64 {
        self.meta.0
    }

    #[inline]
    fn leaf_of(&self, key: &S::Key, below: bool) -> u64 {
        self.locate(&self.view.load(), key, below).0.0
    }

    fn last_leaf(&self) -> u64 {
        self.last_bucket(&self.view.load()).0
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
    fn entry_of(&self, leaf: u64, probe: S::Probe<'_>) -> Option<Entry<S::Tail>> {
        let (medium, shape, bucket) = (self.region.medium(), &self.shape, Bucket(leaf));
        bucket.find::<M, S>(medium, shape, probe).map(|slot| bucket.entry::<M, S::Tail>(medium, shape, slot))
    }

    fn entries_of(&self, leaf: u64, page: &mut Pages<S>) -> bool {
        let (medium, shape, bucket) = (self.region.medium(), &self.shape, Bucket(leaf));
        let mut sound = true;
        for slot in slots(&bucket.bits(medium, shape)) {
            let entry = bucket.entry::<M, S::Tail>(medium, shape, slot);
            let mut key = S::KeyBuf::default();
            sound &= S::read_key(medium, entry.key, &mut key);
            page.push((key, entry));
        }
        sound
    }

    fn leaves_for(&self, leaf: u64, writes: u64) -> u64 {
        // An update may split a bucket that is not full, for its bitmap word is; a delete may merge.
        let held = Bucket(leaf).count(self.region.medium(), &self.shape) as u64;
        writes.min(2 + 3 * (held + writes) / self.shape.capacity() as u64)
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
    }

    fn check(&self) -> Report {
        Vlab::check(self)
    }
}
