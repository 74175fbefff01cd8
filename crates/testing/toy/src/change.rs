//! A change of the toy engine: it writes the page of a key anew, as one page or two, and switches the link to it.
//!
//! The commit point is an 8-byte store. It replaces the link to the old page. This link is in the previous page or in the meta block.
//!
//! | fence passed ([`pmem::Fence`]) | possible state of the medium | recovery |
//! |---|---|---|
//! | none | some of the new pages, of the records of their values, and of the intents (the list of the blocks that the change allocates or frees) | frees the blocks of the pages and records, because nothing references them |
//! | payload | all new pages, records and intents; the old or the new link | keeps the pages that the link references, the old one or the new ones, and frees the others |
//! | commit | the new link | frees the blocks of the old page, if they are not free |

use index::leaf_list::Writer;
use index::leaf_list::bound::bound;
use index::leaf_list::prelude::*;
use index::shape::Node;
use index::{Entry, Schema};
use pmem::alloc::Kind;
use pmem::region::{checked, unchecked};
use pmem::{Error, Fence, Medium, Result, WORD, record};

use crate::Toy;
use crate::page::{LINK, Page};

/// Entries in key order.
pub(crate) type Run<S> = Vec<Entry<<S as Schema>::Tail>>;

impl<M: Medium, S: Schema> Toy<M, S> {
    /// The entries of a page, and the position of the key, or its insertion point.
    pub(crate) fn find(
        &self,
        page: Page,
        probe: S::Probe<'_>,
    ) -> Result<(Run<S>, std::result::Result<usize, usize>)> {
        let medium = self.region.medium();
        if page.count(medium, &self.shape).is_none() {
            return Err(Error::Corrupt { what: "page", at: page.0 });
        }
        let entries: Run<S> = page.entries(medium, &self.shape).collect();
        let order = |i: usize| S::compare(medium, self.shape.0.key_at(Node(page.0), i), probe);
        let rank = (0..entries.len()).take_while(|i| order(*i).is_lt()).count();
        let is_there = rank < entries.len() && order(rank).is_eq();
        Ok((entries, if is_there { Ok(rank) } else { Err(rank) }))
    }

    pub(crate) fn put_in_page(
        &self,
        writer: &mut Writer<()>,
        key: &S::Key,
        value: &S::Value,
    ) -> Result<bool> {
        S::check_value(value, self.shape.0.payload_words)?;
        let page = Page(self.sound_leaf_of(key)?);
        let (mut entries, found) = self.find(page, S::probe(key))?;
        let entry = self.make(writer, key, value)?;
        match found {
            Ok(rank) => {
                self.give_blocks(writer, &entries[rank])?;
                entries[rank] = entry;
            }
            Err(rank) => entries.insert(rank, entry),
        }
        self.note_key(key);
        let right = if entries.len() > self.shape.0.capacity {
            entries.split_off(entries.len() / 2)
        } else {
            Vec::new()
        };
        self.replace(writer, page, &[entries, right])?;
        Ok(found.is_ok())
    }

    pub(crate) fn delete_in_page(&self, writer: &mut Writer<()>, key: &S::Key) -> Result<bool> {
        let page = Page(self.sound_leaf_of(key)?);
        let (mut entries, found) = self.find(page, S::probe(key))?;
        let Ok(rank) = found else { return Ok(false) };
        let gone = entries.remove(rank);
        self.give_blocks(writer, &gone)?;
        self.note_key(key);
        self.replace(writer, page, &[entries, Vec::new()])?;
        Ok(true)
    }

    /// Replaces one page by new pages with these entries: two pages, one if the second part is empty, none if both parts are empty and
    /// `old` is not the first page.
    fn replace(&self, writer: &mut Writer<()>, old: Page, [left, right]: &[Run<S>; 2]) -> Result<()> {
        let (region, medium, shape) = (&self.region, self.region.medium(), &self.shape);
        let corrupt = |at| Error::Corrupt { what: "link to a page", at };
        let (low, after) = (old.low(medium), old.next(medium).ok_or(corrupt(old.0))?);
        let low_key = bound::<M, S>(medium, low)?;
        let before = self.page_before(&low_key);
        let link_at = before.map_or(self.root_block(), |before| before + LINK);
        if unchecked(medium.word(link_at)).map(|link| link * WORD) != Some(old.0) {
            return Err(self.give_up(writer, corrupt(link_at)));
        }
        let is_gone = left.is_empty() && before.is_some();

        let take = |writer: &mut Writer<()>| {
            let page = writer.allocator.take(region, &mut writer.log, Kind::Leaf, shape.bytes());
            page.map(Page).map_err(|error| self.give_up(writer, error))
        };
        let new_left = if is_gone { None } else { Some(take(writer)?) };
        let mut new_right = None;
        if let (Some(below), Some(above)) = (left.last(), right.first()) {
            let page = take(writer)?;
            let separator = S::separate(region, &mut writer.allocator, &mut writer.log, below, above)
                .map_err(|error| self.give_up(writer, error))?;
            let low = S::separator_block(separator).unwrap_or(separator[0]);
            let key = bound::<M, S>(medium, low).map_err(|error| self.give_up(writer, error))?;
            new_right = Some((page, low, key));
        }
        let mut given = writer.allocator.give(region, old.0);
        if is_gone && !S::PLAIN {
            given = given.and_then(|()| record::give(region, &mut writer.allocator, low));
        }
        given.map_err(|error| self.give_up(writer, error))?;

        before.into_iter().chain([old.0]).for_each(|page| self.lock(writer, page));
        let mut next = after;
        if let Some((page, low, _)) = &new_right {
            self.lock(writer, page.0);
            page.compose(medium, shape, (next, *low), right);
            next = page.0;
        }
        if let Some(page) = new_left {
            self.lock(writer, page.0);
            page.compose(medium, shape, (next, low), left);
            next = page.0;
        }
        medium.fence(Fence::Payload);
        writer.allocator.flip(region);
        medium.publish(link_at, checked(next / WORD));
        medium.flush(link_at, WORD);
        medium.fence(Fence::Commit);
        writer.allocator.finish(region, &mut writer.log);

        self.changes.begin();
        self.with_pages(|pages| {
            match new_left {
                Some(page) => _ = pages.insert(low_key, page.0),
                None => _ = pages.remove(&low_key),
            }
            if let Some((page, _, key)) = new_right {
                pages.insert(key, page.0);
            }
        });
        self.changes.end();
        self.stripes.unlock(&mut writer.held);
        Ok(())
    }
}
