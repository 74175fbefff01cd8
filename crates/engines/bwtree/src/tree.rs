//! The tree, and its operations on single keys [Bw-tree §III].
//!
//! An update: find the leaf, read what the key is, draw an LSN above that of the head that was read, write the change into the place
//! beside the leaf that it claims, and exchange the page's word for one that sees it. If there is no place, or somebody claimed it and
//! has not come to his exchange, a new base page with the change takes the page's place: nobody waits for another. If the
//! exchange fails the LSN is void, and all of it is done again: so of two updates of a page the later has the larger LSN, and what an
//! update was told is what it replaced. The exchange is the moment at which it happens.
//!
//! Numbers are drawn above those of all nodes that a page is made of, and no two nodes have the same: so of two updates of a key, too,
//! the later has the larger LSN, whatever page the key was in. Updates of different keys say nothing of each other.

use crate::canary::Canary;
use crate::epoch::{Epochs, ThreadSlot};
use crate::error::Result;
use crate::node::{
    Body, Bounds, Claimed, Graves, Head, Made, New, Node, Retired, SEEN_MAX, Weighed, delta_bytes,
    inner_bytes, leaf_bytes,
};
use crate::options::Options;
use crate::page::{Step, Term, lookup, step};
use crate::pairs::{At, Pairs, RECORD_BYTES, Spot, Target};
use crate::stats::{Count, Memory};
use crate::table::{Pid, ROOT, Table};
use std::borrow::Borrow;

/// What [`Tree::update`] does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// Nothing.
    Keep,
    /// The key is there with this value.
    Put(V),
    /// The key is not there.
    Delete,
}

/// An ordered map that threads share by reference; nobody waits for anybody.
#[derive(Debug)]
pub struct Tree<P: Pairs> {
    pub(crate) table: Table<P>,
    pub(crate) graves: Graves<P>,
    /// With the memory that everything else lies in: it goes last.
    pub(crate) epochs: Epochs<Weighed<P>>,
    pub(crate) options: Options,
}

/// How a change came into a leaf.
enum Way {
    /// Beside it.
    Beside,
    /// With a new base page.
    Renewed,
}

/// Somebody at work: what he finds in the tree stays there as long as he does.
pub(crate) struct Visit<'t, P: Pairs> {
    pub(crate) tree: &'t Tree<P>,
    pub(crate) slot: ThreadSlot<'t, Weighed<P>>,
}

impl<P: Pairs> Default for Tree<P> {
    fn default() -> Self {
        Self::of(Options::default())
    }
}

impl<P: Pairs> Tree<P> {
    /// An empty tree.
    ///
    /// # Errors
    /// Options that have no sense.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self::of(options))
    }

    fn of(options: Options) -> Self {
        let (table, epochs) = (Table::new(options.segment_entries), Epochs::new());
        let tree = Self { table, graves: Graves::new(), epochs, options };
        let bounds = Bounds { low: None, high: None, right: None };
        // The first PID of a table is ROOT.
        let visit = tree.visit();
        visit.allocate(visit.leaf_page(New { level: 0, lsn: 0, bytes: 0 }, &[], bounds));
        drop(visit);
        tree
    }

    /// The tree's options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// An LSN above those of all updates that returned so far.
    pub fn next_lsn(&self) -> u64 {
        self.epochs.drawn() + 1
    }

    #[inline]
    pub(crate) fn visit(&self) -> Visit<'_, P> {
        Visit { tree: self, slot: self.epochs.enter() }
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &P::Key) -> Option<P::ValueBuf> {
        self.get_with(key, P::own_value)
    }

    /// What `with` makes of a key's value, in its place. While `with` runs, what is retired cannot be freed.
    #[inline]
    pub fn get_with<R>(&self, key: &P::Key, with: impl FnOnce(&P::Value) -> R) -> Option<R> {
        let visit = self.visit();
        let (pid, head) = visit.leaf(At(key));
        let found = lookup(head, key).and_then(P::record_value).map(with);
        // Changes stand beside the base page: nobody would find anything sooner if there were none.
        let limit = self.options.leaf_chain_read;
        if limit > 0 && !head.is_base() && head.depth() >= limit {
            visit.maintain(pid);
        }
        found
    }

    /// True if the key is there.
    pub fn contains(&self, key: &P::Key) -> bool {
        self.get_with(key, |_| ()).is_some()
    }

    /// The key is there with this value from now on. Says whether it was there.
    ///
    /// # Errors
    /// A key or a value that is too long.
    pub fn put(&self, key: &P::Key, value: &P::Value) -> Result<bool> {
        self.change(key, |_| Change::Put(value)).map(|(was_there, _)| was_there)
    }

    /// The key is there with this value from now on, if it was not there. Says whether it was inserted.
    ///
    /// # Errors
    /// A key or a value that is too long.
    pub fn insert(&self, key: &P::Key, value: &P::Value) -> Result<bool> {
        P::check_value(value)?;
        let decide = |old: Option<&P::Value>| if old.is_some() { Change::Keep } else { Change::Put(value) };
        self.change(key, decide).map(|(was_there, _)| !was_there)
    }

    /// The key is not there from now on. Says whether it was.
    ///
    /// # Errors
    /// A key that is too long.
    pub fn delete(&self, key: &P::Key) -> Result<bool> {
        self.change(key, |_| Change::<&P::Value>::Delete).map(|(was_there, _)| was_there)
    }

    /// Asks `decide` what to do with the key, telling it what the key is, and does it, as one: nobody changes the key in between.
    /// `decide` is asked again if somebody did. Says whether the key was there when it was asked last.
    ///
    /// # Errors
    /// A key or a value that is too long.
    pub fn update<V: Borrow<P::Value>>(
        &self,
        key: &P::Key,
        decide: impl FnMut(Option<&P::Value>) -> Change<V>,
    ) -> Result<bool> {
        self.change(key, decide).map(|(was_there, _)| was_there)
    }

    /// As [`put`](Self::put); says which LSN the update has.
    ///
    /// # Errors
    /// A key or a value that is too long.
    pub fn put_with_lsn(&self, key: &P::Key, value: &P::Value) -> Result<u64> {
        self.change(key, |_| Change::Put(value)).map(|(_, lsn)| lsn)
    }

    /// The way of all updates. Says whether the key was there, and the LSN, 0 if nothing was changed.
    #[inline]
    fn change<V: Borrow<P::Value>>(
        &self,
        key: &P::Key,
        mut decide: impl FnMut(Option<&P::Value>) -> Change<V>,
    ) -> Result<(bool, u64)> {
        P::check_key(key)?;
        let visit = self.visit();
        loop {
            let (pid, head) = visit.leaf(At(key));
            let Some((old, spot)) = head.locate(key) else {
                // A merge left it, or is about to: its changes have their places when that is done.
                visit.maintain(pid);
                continue;
            };
            let old = old.and_then(P::record_value);
            let was_there = old.is_some();
            let decided = decide(old);
            if let Change::Put(value) = &decided {
                P::check_value(value.borrow())?;
            }
            // Bytes of the page without the record.
            let rest = head.bytes() - if was_there { RECORD_BYTES } else { 0 };
            let (value, records, bytes) = match &decided {
                Change::Keep => return Ok((was_there, 0)),
                Change::Delete if !was_there => return Ok((false, 0)),
                Change::Delete => (None, -1, rest),
                Change::Put(value) => (Some(value.borrow()), i64::from(!was_there), rest + RECORD_BYTES),
            };
            let lsn = visit.draw(head.lsn());
            let block = Some(P::fresh_space(key, value))
                .filter(|bytes| *bytes > 0)
                .map(|bytes| visit.slot.take(bytes));
            let Some(way) = visit.place(pid, head, P::fresh(key, value, block), spot, lsn, bytes) else {
                visit.count(Count::UpdateFailures);
                continue;
            };
            visit.count(Count::Updates);
            visit.slot.count(Count::Records, records.cast_unsigned());
            let is_large = matches!(way, Way::Renewed) && bytes > self.options.leaf_split_bytes;
            let is_small = records < 0 && bytes < self.options.leaf_merge_bytes && pid != ROOT;
            if is_large || is_small {
                visit.maintain(pid);
            }
            return Ok((was_there, lsn));
        }
    }

    /// How many records there are; exact when nobody writes.
    pub fn len(&self) -> u64 {
        // Who inserted may have counted before who deleted has.
        self.epochs.tally(Count::Records).cast_signed().max(0).cast_unsigned()
    }

    /// Bytes that it has of the system, but for the mapping table: one look at one word.
    #[inline]
    pub fn held_bytes(&self) -> u64 {
        self.epochs.held()
    }

    /// Bytes of memory that it takes, without a look at its pages; exact when nobody writes.
    pub fn memory(&self) -> Memory {
        // In this order what is freed meanwhile is not missed: it was made and retired before.
        let [freed, retired, made] =
            [Count::FreedBytes, Count::RetiredBytes, Count::MadeBytes].map(|count| self.epochs.tally(count));
        Memory {
            page_bytes: made.saturating_sub(retired),
            limbo_bytes: retired.saturating_sub(freed),
            table_bytes: self.table.memory() as u64,
            spare_bytes: self.epochs.held().saturating_sub(made.saturating_sub(freed)),
        }
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<P: Pairs> Visit<'_, P> {
    pub(crate) fn count(&self, count: Count) {
        self.slot.count(count, 1);
    }

    /// Makes a change of a key, of a leaf that is a base page: in a place beside it, or with a new one in its place. `None` if the leaf was
    /// not any more as it was with this head.
    #[inline(always)]
    fn place(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        fresh: P::Fresh,
        spot: Spot,
        lsn: u64,
        bytes: usize,
    ) -> Option<Way> {
        let record = P::record(&fresh);
        let way = match head.claim(record, spot, lsn, bytes) {
            Some(Claimed(word)) => {
                self.tree.table.exchange(pid, head, word, Canary::Update).then_some(Way::Beside)
            }
            None => self.renew(pid, head, record, lsn, bytes).then_some(Way::Renewed),
        };
        if way.is_some() {
            // It is the page's from now on (N6).
            self.slot.count(Count::MadeBytes, P::record_memory(record) as u64);
        } else {
            self.drop_fresh(fresh);
        }
        way
    }

    /// A new base page in place of a leaf that is one, with a change beside it. Says whether the leaf was still as it was with this head.
    #[cold]
    fn renew(&self, pid: Pid, head: Head<'_, P>, record: P::Record<'_>, lsn: u64, bytes: usize) -> bool {
        // Without the change the page is what it was.
        let Some((page, dead)) = self.merged(head, head.lsn()) else { return false };
        let word = page.with_change(record, lsn, bytes);
        let done = self.exchange(pid, head, page, word, Canary::Consolidation);
        if done {
            self.retire(Retired::chain(head, &dead));
        }
        self.count(if done { Count::Consolidations } else { Count::ConsolidationFailures });
        done
    }

    /// Makes a page what this word says, which leads to `made`, if its head is still this one.
    fn exchange(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        made: Made<P>,
        word: *mut Node<P>,
        canary: Canary,
    ) -> bool {
        let bytes = made.head().memory();
        let done = self.tree.table.exchange(pid, head, word, canary);
        if done {
            self.slot.count(Count::MadeBytes, bytes as u64);
        } else {
            self.drop_made(made);
        }
        done
    }

    /// Puts a delta in front of a page, if its head is still the one that the delta was made for.
    pub(crate) fn append(&self, pid: Pid, head: Head<'_, P>, delta: Made<P>, canary: Canary) -> bool {
        let word = delta.word();
        self.exchange(pid, head, delta, word, canary)
    }

    /// Puts a page in place of a chain, if its head is still this one. What it was, and what of its records the new one has not, is retired.
    pub(crate) fn replace(
        &self,
        pid: Pid,
        head: Head<'_, P>,
        page: Made<P>,
        dead: &[P::Record<'_>],
        canary: Canary,
    ) -> bool {
        let word = page.word();
        let done = self.exchange(pid, head, page, word, canary);
        if done {
            self.retire(Retired::chain(head, dead));
        }
        done
    }

    /// See [`Table::allocate`].
    pub(crate) fn allocate(&self, page: Made<P>) -> Option<Pid> {
        let bytes = page.head().memory();
        match self.tree.table.allocate(page) {
            Ok(pid) => {
                self.slot.count(Count::MadeBytes, bytes as u64);
                Some(pid)
            }
            Err(page) => {
                self.drop_made(page);
                None
            }
        }
    }

    /// Places for changes beside a leaf.
    fn places(&self) -> u32 {
        self.tree.options.leaf_chain.min(SEEN_MAX)
    }

    /// A base page of these records.
    pub(crate) fn leaf_page(&self, new: New, records: &[P::Record<'_>], bounds: Bounds<P>) -> Made<P> {
        let block = self.slot.take(leaf_bytes::<P>(records.len(), self.places()));
        Made::leaf(block, new, records, bounds, self.places())
    }

    /// A base page of these terms.
    pub(crate) fn inner_page(&self, new: New, terms: &[Term<'_, P>], bounds: Bounds<P>) -> Made<P> {
        Made::inner(self.slot.take(inner_bytes::<P>(terms)), new, terms, bounds)
    }

    /// The leaf with this head as a base page with its changes in their places, if it is a base page; and what is not in it any more.
    pub(crate) fn merged<'g>(&self, head: Head<'g, P>, lsn: u64) -> Option<(Made<P>, Vec<P::Record<'g>>)> {
        let Body::Leaf { run, .. } = head.body() else { return None };
        let records = P::len(run) + head.depth() as usize;
        let block = self.slot.take(leaf_bytes::<P>(records, self.places()));
        Made::merged(block, head, lsn, self.places())
    }

    /// A delta in front of `head`.
    pub(crate) fn delta(&self, head: Head<'_, P>, lsn: u64, bytes: usize, body: Body<P>) -> Made<P> {
        Made::delta(self.slot.take(delta_bytes::<P>()), head, lsn, bytes, body)
    }

    /// Draws a number for a node that says more of a page than the one with this number.
    #[inline(always)]
    pub(crate) fn draw(&self, above: u64) -> u64 {
        self.slot.draw(above)
    }

    /// The newest node of a page that is known from the tree.
    #[inline(always)]
    pub(crate) fn load(&self, pid: Pid) -> Option<Head<'_, P>> {
        self.tree.table.load(pid, &self.slot)
    }

    /// The leaf of a place in the order of keys, and its head.
    #[inline(always)]
    pub(crate) fn leaf(&self, target: impl Target<P>) -> (Pid, Head<'_, P>) {
        loop {
            if let Some(found) = self.find(target, 0) {
                return found;
            }
        }
    }

    /// The page on a level in which a place in the order of keys is, and its head; `None` if the tree has not so many levels.
    ///
    /// Whoever comes by an unfinished split or merge completes it.
    #[inline(always)]
    pub(crate) fn find(&self, target: impl Target<P>, level: u32) -> Option<(Pid, Head<'_, P>)> {
        let mut pid = ROOT;
        loop {
            let Some(head) = self.load(pid) else {
                pid = ROOT;
                continue;
            };
            if head.level() < level {
                return None;
            }
            match step(head, target, level) {
                Step::Child(child) => pid = child,
                Step::Here => return Some((pid, head)),
                Step::Right(key, right) => {
                    self.count(Count::Helped);
                    self.post_index(pid, head.level(), key, right);
                    pid = right;
                }
                Step::Removed => {
                    self.count(Count::Helped);
                    self.finish_removal(head);
                    pid = ROOT;
                }
            }
        }
    }
}
