//! Scans in both directions, beside the writer.
//!
//! A cursor copies the entries of one leaf between a version read and a validation. It reads the next leaf's version before it validates
//! the present leaf for the last time. If anything changed, it descends again from the last key that it returned. So a scan returns each
//! key at most once, in order, and misses no key that was present throughout.
//!
//! A descending scan finds the next leaf by a descent for the keys below the separator that is the present leaf's lower bound. If the
//! validations of a step fail repeatedly, the writer waits for the reader (see [`pmem::stripe`]). Between two steps a cursor holds no lock.
//!
//! A scan sees all or nothing of each atomic batch: all if the batch ended before the cursor was placed ([`index::images`]).

use std::ops::Bound;

use pmem::stripe::Version;
use pmem::{Error, Medium, Result};

use crate::commit_protocol::CommitProtocol;
use crate::layout::{Layout, Layouts};
use crate::search::{Search, dispatch_any};
use crate::shape::{Link, Node};
use crate::tree::Tree;
use index::Entry;
use index::Target;
use index::images::{Scanned, Scans, View};
use index::{Life, Phase, Schema, Snapshot};

/// Number of records that a scan prefetches ahead: most records of a leaf. In measurements this was faster than a prefetch of one record at
/// a time, also across leaves.
const RECORDS_AHEAD: usize = 24;

/// A position in key order. It holds no lock.
pub struct TreeCursor<'a, M: Medium, S: Schema, L, D: CommitProtocol> {
    tree: &'a Tree<M, S, L, D>,
    descending: bool,
    /// The position up to which the tree was read, exactly, because batches compare with it. A stale page is read again from here.
    from: Bound<S::KeyBuf>,
    /// If set, the next descent goes below this separator. The page above it is used up.
    below: Option<S::KeyBuf>,
    page: Page<S::Tail>,
    /// The first key of the page.
    first: S::KeyBuf,
    /// The lower bound of the page's leaf, for descending scans.
    low: Option<S::KeyBuf>,
    state: State,
    /// The view that the scan reads, and its state.
    scanned: Scanned<'a, S>,
    /// True if the scan returns only durable data.
    durable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next step descends to `from`.
    Seek,
    /// The page has entries to return.
    Page,
    Ended,
}

/// Entries of one leaf in the direction of the scan.
struct Page<T> {
    leaf: Node,
    version: Version,
    next_leaf: Node,
    /// Space for a whole leaf, allocated once.
    entries: Box<[Entry<T>]>,
    count: usize,
    given: usize,
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Tree<M, S, L, D> {
    /// A cursor before the first key.
    pub fn cursor(&self) -> TreeCursor<'_, M, S, L, D> {
        self.cursor_through(self.images.view())
    }

    /// A cursor before the first key of a snapshot.
    pub fn cursor_of<'a>(snapshot: &Snapshot<'a, Self>) -> TreeCursor<'a, M, S, L, D> {
        snapshot.index.cursor_through(snapshot.view())
    }

    fn cursor_through<'a>(&'a self, view: View<'a, S>) -> TreeCursor<'a, M, S, L, D> {
        TreeCursor {
            tree: self,
            descending: false,
            from: Bound::Unbounded,
            below: None,
            page: Page {
                leaf: Node(0),
                version: self.stripes.read(0),
                next_leaf: Node(0),
                entries: vec![Entry::new([0; 2], 0); self.leaf.capacity].into(),
                count: 0,
                given: 0,
            },
            first: S::KeyBuf::default(),
            low: None,
            state: State::Seek,
            // A snapshot sees only durable data.
            durable: !view.is_snapshot(),
            scanned: Scanned::new(view),
        }
    }
}

impl<M: Medium, S: Schema, L: Layouts, D: CommitProtocol> TreeCursor<'_, M, S, L, D> {
    /// Does not wait for data that is not durable yet. For callers that hold the writer's lock, or that only delete the keys.
    #[must_use]
    pub(crate) fn unsettled(mut self) -> Self {
        self.durable = false;
        self
    }

    /// Places the cursor at the bound `from`. An ascending scan returns the keys from this bound up, a descending scan the keys from this
    /// bound down.
    pub fn seek(&mut self, from: Bound<S::KeyBuf>, descending: bool) {
        self.scanned.begin();
        self.from = from;
        self.below = None;
        self.descending = descending;
        self.state = State::Seek;
    }

    /// Moves to the next key and copies key and value. False at the end.
    ///
    /// # Errors
    /// `Corrupt` if a node or record is damaged; `SnapshotBytes` if the scan or its snapshot is too old; `Failed` if the writer failed
    /// during a change of these nodes.
    #[inline]
    pub fn next(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        self.next_seen(key, value)
    }

    /// Moves to the next key without its value. False at the end.
    ///
    /// # Errors
    /// `Corrupt` if a node or a key is damaged; `Failed` if the writer failed during a change of these nodes.
    pub fn next_key(&mut self, key: &mut S::KeyBuf) -> Result<bool> {
        let tree = self.tree;
        let mut tries = tree.stripes.tries();
        loop {
            match self.state {
                State::Ended => return Ok(false),
                State::Seek => self.load()?,
                State::Page if self.page.given == self.page.count => self.turn()?,
                State::Page => {
                    let entry = self.page.entries[self.page.given];
                    let sound = S::read_key(self.tree.region.medium(), entry.key, key);
                    if !self.tree.stripes.check(self.page.version) {
                        self.state = State::Seek;
                        tries.fail()?;
                        continue;
                    }
                    if !sound {
                        return Err(Error::Corrupt { what: "key of record", at: entry.payload });
                    }
                    self.page.given += 1;
                    self.from = Bound::Excluded(key.clone());
                    return Ok(true);
                }
            }
        }
    }

    /// Copies a record if the leaf is unchanged. Otherwise it returns false and the cursor has to descend again.
    fn give_record(
        &mut self,
        entry: &Entry<S::Tail>,
        key: &mut S::KeyBuf,
        value: &mut S::ValueBuf,
    ) -> Result<bool> {
        let medium = self.tree.region.medium();
        // The records of a leaf are scattered, so later ones are prefetched while one is read.
        if let Some(later) = self.page.entries[..self.page.count].get(self.page.given + RECORDS_AHEAD) {
            S::prefetch(medium, later);
        }
        let sound = S::read_pair(medium, entry, key, value);
        if !self.tree.stripes.check(self.page.version) {
            self.state = State::Seek;
            return Ok(false);
        }
        if !sound {
            return Err(Error::Corrupt { what: "record", at: entry.payload });
        }
        self.page.given += 1;
        Ok(true)
    }

    /// Goes to the next leaf after the page is used up.
    fn turn(&mut self) -> Result<()> {
        if self.descending {
            match self.low.take() {
                None => self.state = State::Ended,
                Some(low) => {
                    self.below = Some(low);
                    self.state = State::Seek;
                }
            }
            return Ok(());
        }
        let next = self.page.next_leaf;
        if next.0 == 0 {
            self.state = State::Ended;
            // The end may have moved since the page was read.
            if !self.tree.stripes.check(self.page.version) {
                self.state = State::Seek;
            }
            return Ok(());
        }
        let version = self.tree.stripes.read(next.0);
        let is_read = self.tree.stripes.check(self.page.version)
            && self.read_page(next, version, 0, usize::MAX)?
            && self.goes_on()?;
        if !is_read {
            self.state = State::Seek;
            // An unfinished change keeps its versions locked for ever.
            if self.tree.stripes.is_abandoned() {
                return Err(Error::Failed);
            }
        }
        Ok(())
    }

    /// Verifies that the page begins after the last returned key. A damaged link may lead back, and the scan would never end. False if the
    /// leaf changed.
    fn goes_on(&mut self) -> Result<bool> {
        let (Some(entry), Bound::Excluded(last)) = (self.page.entries[..self.page.count].first(), &self.from)
        else {
            return Ok(true);
        };
        let is_whole = S::read_key(self.tree.region.medium(), entry.key, &mut self.first);
        if is_whole && self.first > *last {
            return Ok(true);
        }
        match self.tree.stripes.check(self.page.version) {
            false => Ok(false),
            true => Err(Error::Corrupt { what: "order of leaves, at leaf", at: self.page.leaf.0 }),
        }
    }

    /// Descends to `from` and reads the leaf.
    fn load(&mut self) -> Result<()> {
        dispatch_any!(self.tree, V => self.load_with::<V>())
    }

    #[inline(always)]
    fn load_with<V: Search>(&mut self) -> Result<()> {
        let tree = self.tree;
        let (medium, shape) = (tree.region.medium(), &tree.leaf_for::<V>());
        // If a descending scan continues, the leaf that it leaves must be linked after the leaf that it reaches.
        let behind = self.below.is_some().then_some(self.page.leaf);
        let from = self.below.take().map_or_else(|| self.from.clone(), Bound::Excluded);
        let from = from.as_ref().map(|key| S::probe(S::borrow(key)));
        let target = Target::of_scan(from, self.descending);
        loop {
            let low = self.descending.then_some(&mut self.low);
            let seen = tree.find_leaf::<V>(target, low)?;
            let mut is_hit = false;
            let (skip, take) = match from {
                Bound::Unbounded => (0, usize::MAX),
                Bound::Included(probe) | Bound::Excluded(probe) => {
                    let located = L::Leaf::locate::<_, S, V>(medium, shape, seen.leaf, probe);
                    is_hit = located.hit.is_some();
                    let with_hit = located.rank + usize::from(located.hit.is_some());
                    match (from, self.descending) {
                        (Bound::Included(_), false) => (located.rank, usize::MAX),
                        (_, false) => (with_hit, usize::MAX),
                        (Bound::Included(_), true) => (0, with_hit),
                        (_, true) => (0, located.rank),
                    }
                }
            };
            let next = Link::read(medium, seen.leaf).map(|link| link.node);
            // For keys below a separator, the leaf that contains the separator is the wrong leaf.
            let is_hit = is_hit && matches!(target, Target::Holding(_));
            let is_sure = is_hit || behind.is_some_and(|behind| next == Some(behind));
            if (is_sure || tree.is_right_leaf(target, &seen)?)
                && self.read_page(seen.leaf, seen.version, skip, take)?
            {
                return Ok(());
            }
            if tree.stripes.is_abandoned() {
                return Err(Error::Failed);
            }
        }
    }

    /// Copies the entries of a leaf with the ranks `skip..take`. False if the leaf changed meanwhile.
    fn read_page(&mut self, leaf: Node, version: Version, skip: usize, take: usize) -> Result<bool> {
        let tree = self.tree;
        let (medium, shape) = (tree.region.medium(), &tree.leaf);
        // The check for a failure must come before any read.
        let pending =
            tree.pending.as_ref().filter(|_| self.durable).map(|pending| (pending, pending.has_failed()));
        tree.readable(pending.is_some_and(|(_, failed)| failed))?;
        let link = Link::read(medium, leaf).filter(|link| link.level == 0);
        let order = L::Leaf::order::<_, S>(medium, shape, leaf);
        let page = &mut self.page;
        page.next_leaf = link.map_or(Node(0), |link| link.node);
        if !self.descending {
            medium.prefetch(page.next_leaf.0, shape.bytes());
        }
        let take = take.min(order.len());
        let skip = skip.min(take);
        page.count = take - skip;
        for (place, rank) in page.entries.iter_mut().zip(skip..take) {
            *place = shape.entry(medium, leaf, order.at(rank));
        }
        if !tree.stripes.check(version) {
            return Ok(false);
        }
        // A snapshot waits for no commit. The phase is checked after the read, because a rollback first sets the phase.
        tree.readable(!self.durable && tree.pending.is_some() && tree.phase() == Phase::Failed)?;
        if link.is_none() {
            return Err(Error::Corrupt { what: "leaf", at: leaf.0 });
        }
        if let Some((pending, false)) = pending
            && let Some(ticket) = pending.wait_for_node(leaf.0)
            && tree.wait_to_read(pending, ticket).is_err()
        {
            return Ok(false); // the write was rolled back
        }
        if self.descending {
            page.entries[..page.count].reverse();
        }
        if !S::PLAIN {
            let first = &page.entries[..page.count.min(RECORDS_AHEAD)];
            first.iter().for_each(|entry| S::prefetch(medium, entry));
        }
        page.leaf = leaf;
        page.version = version;
        page.given = 0;
        self.state = State::Page;
        Ok(true)
    }
}

impl<'a, M: Medium, S: Schema, L: Layouts, D: CommitProtocol> Scans<'a, S> for TreeCursor<'a, M, S, L, D> {
    #[inline(always)]
    fn scanned(&mut self) -> &mut Scanned<'a, S> {
        &mut self.scanned
    }

    fn position(&self) -> (&Bound<S::KeyBuf>, bool) {
        (&self.from, self.descending)
    }

    #[inline(always)]
    fn advance(&mut self, key: &S::KeyBuf) {
        match &mut self.from {
            Bound::Excluded(from) => from.clone_from(key),
            from => *from = Bound::Excluded(key.clone()),
        }
    }

    fn settle_image(&self, ticket: u64) -> Result<()> {
        if self.durable { self.tree.wait_for_image(ticket) } else { Ok(()) }
    }

    #[inline(always)]
    fn next_held(&mut self, key: &mut S::KeyBuf, value: &mut S::ValueBuf) -> Result<bool> {
        let tree = self.tree;
        let mut tries = tree.stripes.tries();
        loop {
            match self.state {
                State::Ended => return Ok(false),
                State::Seek => self.load()?,
                State::Page if self.page.given == self.page.count => self.turn()?,
                State::Page => {
                    let entry = self.page.entries[self.page.given];
                    if S::PLAIN {
                        // The words were copied before the leaf was validated.
                        S::read_key(self.tree.region.medium(), entry.key, key);
                        S::read_value(self.tree.region.medium(), &entry, value);
                        self.page.given += 1;
                        return Ok(true);
                    }
                    if self.give_record(&entry, key, value)? {
                        return Ok(true);
                    }
                    tries.fail()?;
                }
            }
        }
    }
}
