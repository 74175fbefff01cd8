//! The tree, and its operations on single keys [Bw-tree §III].
//!
//! An update: find the leaf, read what the key is, draw an LSN above that of the head that was read, put a delta in front of it. If the
//! exchange fails the LSN is void, and all of it is done again: so of two updates of a page the later has the larger LSN, and what an
//! update was told is what it replaced. The exchange is the moment at which it happens.
//!
//! Numbers are drawn above those of all nodes that a page is made of, and no two nodes have the same: so of two updates of a key, too,
//! the later has the larger LSN, whatever page the key was in. Updates of different keys say nothing of each other.

use std::borrow::Borrow;
use std::mem::ManuallyDrop;

use crate::canary::Canary;
use crate::epoch::{Epochs, Seat};
use crate::error::Result;
use crate::node::{Body, Bounds, Changed, Graves, Node, Retired, Weighed};
use crate::options::Options;
use crate::page::{Step, lookup, step};
use crate::pairs::{At, Pairs, RECORD_BYTES, Target};
use crate::stats::{Count, Memory};
use crate::table::{Pid, ROOT, Table};

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
    pub(crate) epochs: Epochs<Weighed<P>>,
    pub(crate) options: Options,
    pub(crate) graves: Graves<P>,
}

/// Somebody at work: what he finds in the tree stays there as long as he does.
pub(crate) struct Visit<'t, P: Pairs> {
    pub(crate) tree: &'t Tree<P>,
    pub(crate) seat: Seat<'t, Weighed<P>>,
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
        let table = Table::new(options.segment_entries);
        let bounds = Bounds { low: None, high: None, right: None };
        // The first PID of a table is ROOT.
        let root = Node::base(0, 0, 0, Body::leaf(&[], bounds));
        let bytes = root.memory();
        table.allocate(root);
        let tree = Self { table, epochs: Epochs::new(), options, graves: Graves::new() };
        tree.epochs.enter().count(Count::MadeBytes, bytes as u64);
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
        Visit { tree: self, seat: self.epochs.enter() }
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
        let Options { leaf_chain_read: limit, groups, .. } = self.options;
        // Behind a group is the base page: nobody would find anything sooner.
        if limit > 0 && head.depth >= limit && !(groups && matches!(head.body, Body::Group { .. })) {
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
            let old = lookup(head, key).and_then(P::record_value);
            let was_there = old.is_some();
            let decided = decide(old);
            if let Change::Put(value) = &decided {
                P::check_value(value.borrow())?;
            }
            // Bytes of the page without the record.
            let rest = head.bytes - if was_there { RECORD_BYTES } else { 0 };
            let (value, records, bytes) = match &decided {
                Change::Keep => return Ok((was_there, 0)),
                Change::Delete if !was_there => return Ok((false, 0)),
                Change::Delete => (None, -1, rest),
                Change::Put(value) => (Some(value.borrow()), i64::from(!was_there), rest + RECORD_BYTES),
            };
            let (lsn, before) = (visit.draw(head.lsn), head.depth);
            if !visit.place(pid, head, P::fresh(key, value), lsn, bytes) {
                visit.count(Count::UpdateFailures);
                continue;
            }
            visit.count(Count::Updates);
            visit.seat.count(Count::Records, records.cast_unsigned());
            let is_small = records < 0 && bytes < self.options.leaf_merge_bytes && pid != ROOT;
            // Of a key that is changed again a group has one change.
            if before + 1 >= self.options.leaf_chain || is_small {
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

    /// Bytes of memory that it takes, without a look at its pages; exact when nobody writes.
    pub fn memory(&self) -> Memory {
        // In this order what is freed meanwhile is not missed: it was made and retired before.
        let [freed, retired, made] =
            [Count::FreedBytes, Count::RetiredBytes, Count::MadeBytes].map(|count| self.epochs.tally(count));
        Memory {
            page_bytes: made.saturating_sub(retired),
            limbo_bytes: retired.saturating_sub(freed),
            table_bytes: self.table.memory() as u64,
        }
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<P: Pairs> Visit<'_, P> {
    pub(crate) fn count(&self, count: Count) {
        self.seat.count(count, 1);
    }

    /// Puts a change of a key in front of a leaf: in a group of its own, or with those before it. Says whether the leaf was still as it
    /// was with this head.
    #[inline(always)]
    fn place(&self, pid: Pid, head: &Node<P>, record: P::Fresh, lsn: u64, bytes: usize) -> bool {
        let memory = P::record_memory(P::record(&record)) as u64;
        let changed = Node::changed(head, self.tree.options.groups, lsn, bytes, P::record(&record));
        let Some(Changed { node, takes_place, dead }) = changed else { return false };
        // If the exchange succeeds it is the page's from then on (N6).
        let record = ManuallyDrop::new(record);
        let done = if takes_place {
            self.exchange(pid, head, node, Canary::Update, |head| Retired::node(head, dead))
        } else {
            self.append(pid, node, Canary::Update)
        };
        if done {
            self.seat.count(Count::MadeBytes, memory);
        } else {
            drop(ManuallyDrop::into_inner(record));
        }
        done
    }

    /// See [`Table::append`].
    #[inline(always)]
    pub(crate) fn append(&self, pid: Pid, delta: Box<Node<P>>, canary: Canary) -> bool {
        let bytes = delta.memory();
        let done = self.tree.table.append(pid, delta, canary);
        if done {
            self.seat.count(Count::MadeBytes, bytes as u64);
        }
        done
    }

    /// See [`Table::replace`]. What a page was, and what of its records the new one has not, is retired.
    pub(crate) fn replace(
        &self,
        pid: Pid,
        head: &Node<P>,
        page: Box<Node<P>>,
        dead: &[P::Record<'_>],
        canary: Canary,
    ) -> bool {
        self.exchange(pid, head, page, canary, |head| Retired::chain(head, dead))
    }

    #[inline(always)]
    fn exchange<'h>(
        &self,
        pid: Pid,
        head: &'h Node<P>,
        node: Box<Node<P>>,
        canary: Canary,
        retired: impl FnOnce(&'h Node<P>) -> Weighed<P>,
    ) -> bool {
        let bytes = node.memory();
        let done = self.tree.table.replace(pid, head, node, canary);
        if done {
            self.seat.count(Count::MadeBytes, bytes as u64);
            self.retire(retired(head));
        }
        done
    }

    /// See [`Table::allocate`].
    pub(crate) fn allocate(&self, page: Box<Node<P>>) -> Option<Pid> {
        let bytes = page.memory();
        let pid = self.tree.table.allocate(page);
        if pid.is_some() {
            self.seat.count(Count::MadeBytes, bytes as u64);
        }
        pid
    }

    /// Draws a number for a node that says more of a page than the one with this number.
    #[inline(always)]
    pub(crate) fn draw(&self, above: u64) -> u64 {
        self.seat.draw(above)
    }

    /// The newest node of a page that is known from the tree.
    #[inline(always)]
    pub(crate) fn load(&self, pid: Pid) -> Option<&Node<P>> {
        self.tree.table.load(pid, &self.seat)
    }

    /// The leaf of a place in the order of keys, and its head.
    #[inline(always)]
    pub(crate) fn leaf(&self, target: impl Target<P>) -> (Pid, &Node<P>) {
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
    pub(crate) fn find(&self, target: impl Target<P>, level: u32) -> Option<(Pid, &Node<P>)> {
        let mut pid = ROOT;
        loop {
            let Some(head) = self.load(pid) else {
                pid = ROOT;
                continue;
            };
            if head.level < level {
                return None;
            }
            match step(head, target, level) {
                Step::Child(child) => pid = child,
                Step::Here => return Some((pid, head)),
                Step::Right(key, right) => {
                    self.count(Count::Helped);
                    self.post_index(pid, head.level, key, right);
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
