//! Lookups and walks through all pairs, at any pinned version, concurrent with the writer.
//!
//! A bucket has one version lock for its slot and all of its nodes. The directory has a version lock of its own. A reader reads a lock's
//! version before the words that the lock protects, and validates it afterwards. A pin keeps the blocks that the pinned version sees, so a
//! validated entry may be read later.
//!
//! A walk goes by the bit-reversed hash. A bucket has all hashes between two points of that order, whatever the number of buckets. So a
//! walk that remembers a point finds each key once, also when the table grows or shrinks meanwhile.

use std::cmp::Ordering::Equal;
use std::cmp::Reverse;

use index::Schema;
use pmem::sync::Ordering;
use pmem::{Error, Medium, Result, WORD};

use super::bucket::Chain;
use super::directory::{Directory, bits_of};
use super::table::{DIRECTORY, Hashed, Table, stripe_of};
use crate::node::{Entry, Node};
use crate::pins::Mark;
use crate::snapshot::SnapshotOf;
use crate::structure::Structure;
use crate::version::View;

/// A key in the form that lookups compare.
#[derive(Clone, Copy)]
pub(crate) struct Probe<P> {
    pub hash: u64,
    /// Key word of its entries.
    pub word: u64,
    pub key: P,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Table<M, S> {
    /// The entry of `key` in a view of a pinned version or of a newer one.
    pub(crate) fn find_in(&self, view: &View, key: &S::Key) -> Result<Option<Entry>> {
        let medium = self.region.medium();
        let probe = self.probe(key);
        self.read_bucket(probe.hash, |_, _, mut chain| {
            while let Some(node) = chain.step()? {
                let mut slots = 0..self.shape.slots;
                if let Some(slot) = slots.find(|slot| self.shows(view, node, *slot, &probe)) {
                    return Ok(Some(node.entry(medium, slot)));
                }
            }
            Ok(None)
        })
    }

    pub(crate) fn probe<'k>(&self, key: &'k S::Key) -> Probe<S::Probe<'k>> {
        let (hash, key) = (self.hash(key), S::probe(key));
        Probe { hash, word: if S::PLAIN { S::plain(key) } else { hash }, key }
    }

    /// True if the view sees an entry of this key in a slot.
    #[inline]
    pub(crate) fn shows(&self, view: &View, node: Node, slot: usize, probe: &Probe<S::Probe<'_>>) -> bool {
        let (medium, at) = (self.region.medium(), node.slot_at(slot));
        medium.word(at) == probe.word
            && view.sees(medium.word(at + 2 * WORD), medium.word(at + 3 * WORD))
            && (S::PLAIN || S::compare(medium, at + WORD, probe.key) == Equal)
    }

    /// Calls `read` for the bucket of a hash until the validation succeeds.
    ///
    /// # Errors
    /// `Corrupt` if the directory is damaged; `Failed` if the writer panicked while it changed a node that is read; errors of `read`.
    #[inline]
    fn read_bucket<T>(
        &self,
        hash: u64,
        mut read: impl FnMut(Directory, u64, Chain<'_, M>) -> Result<T>,
    ) -> Result<T> {
        let mut tries = self.stripes.tries();
        loop {
            if let Some(outcome) = self.try_bucket(hash, &mut read) {
                return outcome;
            }
            tries.fail()?;
        }
    }

    /// `None` if the validation failed.
    #[inline]
    fn try_bucket<T>(
        &self,
        hash: u64,
        read: impl FnOnce(Directory, u64, Chain<'_, M>) -> Result<T>,
    ) -> Option<Result<T>> {
        let medium = self.region.medium();
        let above = self.stripes.read(DIRECTORY);
        let top = self.root.load(Ordering::Acquire);
        let found = Directory::read(medium, top).and_then(|directory| {
            let bucket = directory.bucket_of(hash);
            let version = self.stripes.read(stripe_of(bucket));
            let first = medium.word(directory.slot_at(medium, bucket)?);
            Some((directory, bucket, first, version))
        });
        if !self.stripes.check(above) {
            return None;
        }
        let Some((directory, bucket, first, version)) = found else {
            return Some(Err(Error::Corrupt { what: "directory", at: top }));
        };
        // Entries are anywhere in a node, so all of its lines are prefetched at once.
        medium.prefetch(first, self.shape.bytes);
        let outcome = read(directory, bucket, Chain::new(medium, bucket, first));
        self.stripes.check(version).then_some(outcome)
    }

    /// All pairs of the newest durable version, in the order of their bit-reversed hashes. The walk keeps its version.
    pub fn pairs(&self) -> Pairs<'_, M, S> {
        self.pairs_at(self.mark_to_read())
    }

    pub(crate) fn pairs_at(&self, mark: Mark) -> Pairs<'_, M, S> {
        let view = self.view_at(mark.version());
        Pairs { table: self, _mark: mark, view, next: Some(0), behind: None, page: Vec::new() }
    }

    /// Calls `each` with all pairs of the newest durable version, in the order of their bit-reversed hashes, until `each` returns false.
    ///
    /// # Errors
    /// As [`Pairs::next`].
    pub fn each(&self, each: impl FnMut(&S::Key, &S::Value) -> bool) -> Result<()> {
        self.pairs().each(each)
    }
}

/// A version of the table.
pub type Snapshot<'a, M, S> = SnapshotOf<'a, M, Hashed<S>>;

impl<'a, M: Medium, S: Schema<Tail = [u64; 0]>> Snapshot<'a, M, S> {
    /// All pairs, in the order of their bit-reversed hashes. The walk keeps the version itself, also after the snapshot is dropped.
    pub fn pairs(&self) -> Pairs<'a, M, S> {
        self.of.pairs_at(self.mark.clone())
    }
}

/// A walk through all pairs of one version. It holds no lock. It keeps its version as long as it lives.
pub struct Pairs<'a, M: Medium, S: Schema<Tail = [u64; 0]>> {
    table: &'a Table<M, S>,
    _mark: Mark,
    view: View,
    /// The least reversed hash that was not read yet. `None` at the end.
    next: Option<u64>,
    /// The walk continues after this key, which has this hash.
    behind: Option<(u64, S::KeyBuf)>,
    page: Vec<Entry>,
}

impl<M: Medium, S: Schema<Tail = [u64; 0]>> Pairs<'_, M, S> {
    /// Restarts before all pairs, or after this key. The key need not exist.
    pub fn start(&mut self, behind: Option<&S::Key>) {
        let key = |key| S::key_of(S::key_bytes(key).as_ref()).map(|own| (self.table.hash(key), own));
        self.behind = behind.and_then(key);
        self.next = Some(self.behind.as_ref().map_or(0, |(hash, _)| hash.reverse_bits()));
        self.page.clear();
    }

    /// Copies the next pair. False at the end.
    ///
    /// # Errors
    /// `TakenBack` if the walk's version was rolled back; `Corrupt` if a node or record is damaged; `Failed` if the writer panicked while
    /// it changed a node that is read.
    pub fn next(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        loop {
            if let Some(entry) = self.page.pop() {
                // This pin keeps the record.
                let _reading = self.table.reading(self.view.version)?;
                let of_schema = Hashed::<S>::of_schema(&entry);
                let whole = S::read_pair(self.table.region.medium(), &of_schema, key, value);
                return if whole {
                    Ok(true)
                } else {
                    Err(Error::Corrupt { what: "record", at: entry.payload })
                };
            }
            let Some(from) = self.next else { return Ok(false) };
            self.next = self.load(from)?;
        }
    }

    /// Calls `each` with the remaining pairs until `each` returns false.
    ///
    /// # Errors
    /// As [`Pairs::next`].
    pub fn each(&mut self, mut each: impl FnMut(&S::Key, &S::Value) -> bool) -> Result<()> {
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        while self.next(&mut key, &mut value)? && each(S::borrow(&key), S::borrow_value(&value)) {}
        Ok(())
    }

    /// Reads the bucket of a reversed hash. Returns the first reversed hash of the next bucket.
    fn load(&mut self, from: u64) -> Result<Option<u64>> {
        let Self { table, view, page, behind, .. } = self;
        let medium = table.region.medium();
        let _reading = table.reading(view.version)?;
        let next = table.read_bucket(from.reverse_bits(), |directory, bucket, mut chain| {
            page.clear();
            while let Some(node) = chain.step()? {
                let entries = (0..table.shape.slots).map(|slot| node.entry(medium, slot));
                page.extend(entries.filter(|entry| {
                    let is_here =
                        |hash: u64| directory.bucket_of(hash) == bucket && hash.reverse_bits() >= from;
                    view.sees(entry.start, entry.end) && is_here(table.hash_of(entry))
                }));
            }
            let bits = bits_of(bucket, directory.buckets);
            Ok(1_u64.checked_shl(64 - bits).and_then(|span| bucket.reverse_bits().checked_add(span)))
        })?;
        // Pairs are returned from the end of the page. Keys of one hash are in key order.
        page.sort_unstable_by_key(|entry| Reverse(table.hash_of(entry).reverse_bits()));
        let key_of = |entry: &Entry| {
            let mut key = S::KeyBuf::default();
            S::read_key(medium, Hashed::<S>::of_schema(entry).key, &mut key).then_some(key)
        };
        for same in page.chunk_by_mut(|one, other| table.hash_of(one) == table.hash_of(other)) {
            if same.len() > 1 {
                same.sort_by_cached_key(|entry| Reverse(key_of(entry)));
            }
        }
        if let Some((hash, last)) = behind.take() {
            let is_before =
                |entry: &Entry| table.hash_of(entry) == hash && key_of(entry).is_none_or(|key| key <= last);
            while page.last().is_some_and(is_before) {
                page.pop();
            }
        }
        Ok(next)
    }
}
