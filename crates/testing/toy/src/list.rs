//! The list of the toy engine: opening, search for the page of a key, reads and the check.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::PoisonError;

use index::check::Walk;
use index::leaf_list::bound::bound;
use index::leaf_list::garbage::own as own_garbage;
use index::leaf_list::meta::Meta;
use index::leaf_list::prelude::*;
use index::leaf_list::recover::is_leaf_block;
use index::leaf_list::write_group::{Step, Stored, WriteOf};
use index::leaf_list::{LeafCopy, Writer};
use index::{Entry, Report, Schema, Write};
use pmem::alloc::{self, Kind};
use pmem::sync::Ordering;
use pmem::{Error, Medium, Region, Result};

use crate::Toy;
use crate::page::{Page, Shape};

/// The type of deferred changes. It is empty, because every change is complete by itself.
pub enum Never {}

impl<M: Medium, S: Schema> Toy<M, S> {
    pub(crate) fn with_pages<T>(&self, run: impl FnOnce(&mut BTreeMap<S::KeyBuf, u64>) -> T) -> T {
        run(&mut self.pages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The page before the page with this lower bound.
    pub(crate) fn page_before(&self, low: &S::KeyBuf) -> Option<u64> {
        self.with_pages(|pages| pages.range(..low).next_back().map(|(_, page)| *page))
    }

    /// Reads the list: the map of its pages and the number of keys. Stores nothing.
    pub(crate) fn load(&self) -> Result<()> {
        let (medium, mut pages, mut keys) = (self.region.medium(), BTreeMap::new(), 0);
        let mut next = self.head()?;
        while next != 0 || pages.is_empty() {
            let page = Page(next);
            let count = page.count(medium, &self.shape).filter(|_| is_leaf_block(self, next));
            let (Some(count), Some(behind)) = (count, page.next(medium)) else {
                return Err(Error::Corrupt { what: "page", at: next });
            };
            let low = bound::<M, S>(medium, page.low(medium))?;
            let ascends = pages.last_key_value().map_or(page.low(medium) == 0, |(last, _)| *last < low);
            if !ascends {
                return Err(Error::Corrupt { what: "order of pages", at: next });
            }
            pages.insert(low, next);
            keys += count as u64;
            next = behind;
        }
        self.changes.begin();
        self.keys.store(keys, Ordering::Release);
        self.with_pages(|old| *old = pages);
        self.changes.end();
        Ok(())
    }
}

impl<M: Medium, S: Schema> LeafList for Toy<M, S> {
    type Medium = M;
    type Schema = S;
    type Own = ();
    type Change = Never;

    fn payload_words(&self) -> usize {
        self.shape.0.payload_words
    }

    fn leaf_bytes(&self) -> u64 {
        self.shape.bytes()
    }

    fn root_block(&self) -> u64 {
        self.meta.load(Ordering::Acquire)
    }

    fn set_root_block(&self, root: u64) {
        self.meta.store(root, Ordering::Release);
    }

    fn head(&self) -> Result<u64> {
        Meta(self.root_block()).head(self.region.medium())
    }

    fn next_leaf(&self, leaf: u64) -> Option<u64> {
        Page(leaf).next(self.region.medium())
    }

    fn write_empty(&self, leaf: u64, root: u64) {
        crate::write_empty::<M, S>(self.region.medium(), &self.shape, leaf, root);
    }

    fn leaf_of(&self, key: &S::Key, below: bool) -> u64 {
        let key = S::key_of(S::key_bytes(key).as_ref()).unwrap_or_default();
        let end = if below { Bound::Excluded(&key) } else { Bound::Included(&key) };
        self.with_pages(|pages| {
            let found = pages.range((Bound::Unbounded, end)).next_back().or(pages.first_key_value());
            found.map_or(0, |(_, page)| *page)
        })
    }

    fn last_leaf(&self) -> u64 {
        self.with_pages(|pages| pages.last_key_value().map_or(0, |(_, page)| *page))
    }

    fn is_leaf(&self, leaf: u64) -> bool {
        let medium = self.region.medium();
        leaf != 0 && Page(leaf).next(medium).is_some() && Page(leaf).count(medium, &self.shape).is_some()
    }

    fn lower_bound(&self, leaf: u64) -> u64 {
        Page(leaf).low(self.region.medium())
    }

    fn upper_bound(&self, leaf: u64) -> u64 {
        let medium = self.region.medium();
        match Page(leaf).next(medium) {
            Some(next) if next != 0 && next < medium.len() => Page(next).low(medium),
            _ => 0,
        }
    }

    fn entry_of(&self, leaf: u64, key: &S::Key) -> Option<Entry<S::Tail>> {
        let (entries, found) = self.find(Page(leaf), S::probe(key)).ok()?;
        entries.get(found.ok()?).copied()
    }

    fn entries_of(&self, leaf: u64, copy: &mut LeafCopy<S>) {
        let entries = Page(leaf).entries(self.region.medium(), &self.shape);
        copy.clear();
        entries.into_iter().for_each(|entry| copy.push(entry));
    }

    /// Each write needs a page, and one more for a split.
    fn leaves_for(&self, _leaf: u64, writes: u64) -> u64 {
        2 * writes
    }

    fn store(&self, _: &mut Writer<()>, _: &WriteOf<'_, Self>, _: u64) -> Result<Step<Never>> {
        Ok(Step::Apart)
    }

    fn publish(&self, change: &Never) {
        match *change {}
    }

    fn conclude(&self, _: &mut Writer<()>, _: &Write<'_, S::Key, S::Value>, stored: &Stored<Never>) {
        match stored.change {}
    }

    fn put_locked(&self, writer: &mut Writer<()>, key: &S::Key, value: &S::Value) -> Result<bool> {
        let was_there = self.put_in_page(writer, key, value)?;
        self.keys.fetch_add(u64::from(!was_there), Ordering::AcqRel);
        Ok(was_there)
    }

    fn delete_locked(&self, writer: &mut Writer<()>, key: &S::Key) -> Result<bool> {
        let was_there = self.delete_in_page(writer, key)?;
        self.keys.fetch_sub(u64::from(was_there), Ordering::AcqRel);
        Ok(was_there)
    }

    fn reload(&self, _writer: &mut Writer<()>) {
        let _ = self.load();
    }

    fn check(&self) -> Report {
        let _writer = self.writer_side();
        let mut walk = Walk::begin(&self.region, self.root_block());
        match self.head() {
            Ok(head) => self.check_list(&mut walk, head),
            Err(error) => walk.problem(error.to_string()),
        }
        own_garbage(self, &mut walk);
        walk.end(&self.region, self.len())
    }

    fn salvage<R: Medium>(region: &Region<R>, leaf: u64) -> Vec<Entry<S::Tail>> {
        let identity = region.identity();
        let shape =
            S::payload_words(&identity.kind).and_then(|words| Shape::new::<S>(identity.node_lines, words));
        let Some(shape) = shape else { return Vec::new() };
        Page(leaf).entries(region.medium(), &shape).collect()
    }
}

impl<M: Medium, S: Schema> Toy<M, S> {
    fn check_list(&self, walk: &mut Walk, head: u64) {
        let (medium, shape) = (self.region.medium(), &self.shape);
        let (mut next, mut last) = (head, None);
        while next != 0 && walk.goes_on() {
            let page = Page(next);
            let is_page = alloc::allocated(&self.region, next).is_some_and(|class| class.kind == Kind::Leaf)
                && page.count(medium, shape).is_some()
                && !walk.has(next);
            let Some(behind) = is_page.then(|| page.next(medium)).flatten() else {
                return walk.problem(format!("no page at {next:#x}, or a second time"));
            };
            walk.report.nodes += 1;
            walk.report.leaves += 1;
            walk.own(next, Kind::Leaf);
            let word = page.low(medium);
            if !S::PLAIN && word != 0 {
                walk.own(word, Kind::Separator);
            }
            let Ok(low) = bound::<M, S>(medium, word) else {
                return walk.problem(format!("page {next:#x} has no lower bound"));
            };
            if last.as_ref().map_or(word != 0, |last| *last >= low) {
                walk.problem(format!("page {next:#x} begins with {low:?} after {last:?}"));
            }
            let high = self.upper_bound(next);
            let high = (high != 0).then(|| bound::<M, S>(medium, high).ok()).flatten();
            walk.check_entries::<M, S>(
                &self.region,
                next,
                page.entries(medium, shape),
                (&low, high.as_ref()),
            );
            if self.leaf_of(S::borrow(&low), false) != next {
                walk.problem(format!("{low:?} does not lead to page {next:#x}"));
            }
            last = Some(low);
            next = behind;
        }
        let known = self.with_pages(|pages| pages.len() as u64);
        if walk.is_sound() && known != walk.report.nodes {
            walk.problem(format!("{} pages are in the list, {known} are found", walk.report.nodes));
        }
    }
}
