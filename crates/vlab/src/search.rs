//! Look-ups [VLAB §5.2.1], beside the writer.
//!
//! A reader notes `changes`, finds the bucket in the view, looks at its stripe, reads, and looks again: at the stripe, for what
//! was read, and at `changes`, for whether this was the bucket (V2).

use pmem::stripe::Version;
use pmem::sync::Ordering;
use pmem::{Error, Medium, Result};
use tree::Schema;

use crate::bucket::Bucket;
use crate::directory::{ALIAS, Directory, SPLIT};
use crate::index::{View, Vlab};

/// Keys whose buckets are asked for before they are looked at.
const LANES: usize = 16;

/// A bucket as a reader found it.
pub(crate) struct Seen {
    pub bucket: Bucket,
    pub version: Version,
    changes: u64,
}

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

    /// A reader's first look at the bucket that `choose` finds in the view.
    #[inline]
    pub(crate) fn see(&self, choose: impl Fn(&View<S>) -> Bucket) -> Seen {
        let changes = self.changes.load(Ordering::Acquire);
        let bucket = choose(&self.view.load());
        Seen { bucket, version: self.stripes.read(bucket.0), changes }
    }

    /// A reader's second look.
    #[inline]
    pub(crate) fn is_good(&self, seen: &Seen) -> bool {
        self.stripes.check(seen.version) && self.changes.load(Ordering::Relaxed) == seen.changes
    }

    /// Copies the value of `key` into `value` (if given); false if the key is absent.
    ///
    /// # Errors
    /// `Corrupt` if the bucket or the record is damaged.
    pub fn get(&self, key: &S::Key, mut value: Option<&mut S::ValueBuf>) -> Result<bool> {
        let found = self.get_durable(key, value.as_deref_mut())?;
        if self.batches.is_running() {
            return Ok(self.batches.before(key, value).unwrap_or(found));
        }
        Ok(found)
    }

    /// Looks for a key and answers when what was read is durable.
    fn get_durable(&self, key: &S::Key, mut value: Option<&mut S::ValueBuf>) -> Result<bool> {
        let Some(pending) = &self.pending else { return Ok(self.look(key, value)?.0) };
        loop {
            let failed = pending.has_failed();
            let (found, bucket) = self.look(key, value.as_deref_mut())?;
            if failed || pending.wait_for_node(bucket.0).is_none() {
                return Ok(found);
            }
            match pending.wait_for_key(S::hash(key)) {
                Some(ticket) if self.settle(pending, ticket).is_err() => {} // it was taken back
                _ => return Ok(found),
            }
        }
    }

    /// Values of these keys in their order, until `give` returns false. Of each atomic batch all is seen or nothing.
    ///
    /// # Errors
    /// As [`Vlab::get`].
    pub fn get_each(
        &self,
        keys: &[&S::Key],
        give: &mut dyn FnMut(Option<S::ValueBuf>) -> bool,
    ) -> Result<()> {
        let now = self.batches.now();
        for some in keys.chunks(LANES) {
            self.prefetch(some);
            for key in some {
                let mut value = S::ValueBuf::default();
                let found = self.get_durable(key, Some(&mut value))?.then_some(value);
                // Behind the second look: a batch that shows in what was read is in the chain by now.
                let found = now.replaced(key).map_or(found, |old| old.cloned());
                if !give(found) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Looks for a key, durable or not; and where.
    pub(crate) fn look(&self, key: &S::Key, mut value: Option<&mut S::ValueBuf>) -> Result<(bool, Bucket)> {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let probe = S::probe(key);
        let mut tries = self.stripes.tries();
        loop {
            let seen = self.see(|view| self.locate(view, key, false).0);
            let bucket = seen.bucket;
            let slot = bucket.find::<M, S>(medium, shape, probe);
            let entry = slot.map(|slot| bucket.entry::<M, S::Tail>(medium, shape, slot));
            let sound = match (&entry, &mut value) {
                (Some(entry), Some(value)) => S::read_value(medium, entry, value),
                _ => true,
            };
            let is_bucket = bucket.nxt(medium).is_some();
            if !self.is_good(&seen) {
                tries.fail();
                continue;
            }
            return match (is_bucket, sound) {
                (true, true) => Ok((entry.is_some(), bucket)),
                (false, _) => Err(Error::Corrupt { what: "bucket", at: bucket.0 }),
                (_, false) => {
                    Err(Error::Corrupt { what: "record", at: entry.map_or(0, |entry| entry.payload) })
                }
            };
        }
    }

    /// Comparisons that finding the bucket of a key takes now.
    pub fn comparisons(&self, key: &S::Key) -> u32 {
        self.locate(&self.view.load(), key, false).1
    }

    /// Has the processor bring in the headers of these keys' buckets.
    pub fn prefetch(&self, keys: &[&S::Key]) {
        let view = self.view.load();
        for key in keys {
            let (bucket, _) = self.locate(&view, key, false);
            self.region.medium().prefetch(bucket.0, self.shape.bytes());
        }
    }

    /// True if an entry of the directory leads to a bucket of another key.
    pub(crate) fn is_alias(marked: u64) -> bool {
        marked & ALIAS != 0
    }
}
