//! A combine: it merges the directory and the braids into a new directory, in small steps, concurrent with reads and writes [VLAB §5.2.5].
//! The directory lists the buckets in key order. Braids are short sorted lists of the buckets that were added after the directory was
//! built.
//!
//! The new directory is built from the old directory and the braids, in key order. Each insert and each delete does up to
//! [`Options::combine_step`](crate::Options) steps of this build. When the new directory is complete, it replaces the old directory and the
//! braids. Until then, splits and merges update the old directory and braids, and the part of the new directory that is already built. If a
//! split adds a bucket after the last key that the build has reached, the build finds the bucket later. Otherwise the split adds the bucket
//! to new braids, which are published with the new directory, and marks the preceding entry of the new directory as split. The old
//! directory and braids are freed in parts: each insert and each delete frees at most one part.
//!
//! So no operation waits for a combine. The work that a combine adds to one operation does not depend on the size of the index:
//!
//! * at most `combine_step` steps ([`Work::most`] is the measured maximum). A step copies one entry of the old directory or of the braids,
//!   or fills up to 64 cells of the new directory's search table;
//! * at most one freed part ([`Work::most_parts`]): a segment of 1,024 entries, or a braid.
//!
//! By default a combine changes volatile memory only.
//!
//! With the option `faithful`, as in the paper, new buckets are in a second durable list until the next combine. The combine then merges
//! the second list into the first, in one operation and in the paper's four states [figure 14]. `nxt` and `vnxt` are the two link words of
//! a bucket. The paper does not say how recovery distinguishes a complete chain of `vnxt` links from a partial one. Here a word in the meta
//! block contains the phase of the combine (idle, linked, copied):
//!
//! | fence passed ([`pmem::Fence`]) | durable | recovery |
//! |---|---|---|
//! | none | some `vnxt` | phase idle: recovery clears every `vnxt` |
//! | links | every `vnxt`; phase linked or not | as in the row above or below, by the phase |
//! | phase linked | phase linked; some `nxt` | `vnxt` links the list: recovery copies every `vnxt` to `nxt` and continues |
//! | copies | every `nxt`; phase copied or not | as in the row above or below, by the phase |
//! | phase copied | phase copied or idle; some `vnxt` cleared | `nxt` links the list: recovery clears every `vnxt` |
//! | first fence of the next operation | phase idle, an empty second list; some `vnxt` cleared | recovery clears the remaining `vnxt` |
//!
//! A combine begins if one of these is true:
//!
//! * the braids are half full: they have 50 % of L x N buckets, where L is the maximum number of buckets of a braid and N the maximum
//!   number of braids [§6.1];
//! * the braids have a sixteenth as many buckets as the directory, and at least 16;
//! * more than half of the directory's buckets, and more than 16 buckets, were freed.

use std::sync::Arc;

use index::leaf_list::prelude::*;
use index::{Schema, WriteOptions};
use pmem::region::checked;
use pmem::{Fence, Medium, WORD};

use crate::braids::Braids;
use crate::bucket::{NXT, VNXT};
use crate::directory::{ALIAS, Directory};
use crate::index::{View, Vlab, Writer};
use crate::meta::Phase;

/// The conditions that compare with the directory's size apply only if the braids have at least this many buckets, or if there are more
/// aliases than this.
const FEW: usize = 16;

/// Braids also count as full if they have this fraction of the directory's number of buckets: one in `SHARE`.
const SHARE: usize = 16;

/// A new directory that is being built.
pub(crate) struct Rebuild<S: Schema> {
    pub directory: Directory,
    /// Buckets that were added at places that the build had already passed.
    pub late: Braids<S>,
    /// Number of entries of the new directory whose bucket was freed.
    pub aliases: u64,
    /// The next entry of the old directory.
    next: usize,
}

/// The work of combines since the index was opened, in counts ([`crate::combine`] has the bounds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of directories that replaced an older one.
    pub combines: u64,
    /// Maximum steps of one operation; at most `combine_step`.
    pub most: u64,
    /// Steps of all operations.
    pub steps: u64,
    /// Maximum parts of old directories and braids that one operation freed; at most one.
    pub most_parts: u64,
    /// Parts that all operations freed.
    pub parts: u64,
    /// Parts that remain to be freed: segments of directories, and braids.
    pub parts_left: u64,
}

/// Replaced directories and braids. They are freed in parts when no reader has them.
pub(crate) struct Retired<S: Schema> {
    directories: Vec<Arc<Directory>>,
    braids: Vec<Braids<S>>,
}

impl<S: Schema> Default for Retired<S> {
    fn default() -> Self {
        Self { directories: Vec::new(), braids: Vec::new() }
    }
}

impl<S: Schema> Retired<S> {
    fn take(&mut self, view: &View<S>) {
        self.directories.push(Arc::clone(&view.directory));
        self.braids.push(view.braids.clone());
    }

    /// Frees one part. False if no part can be freed now.
    fn give_part(&mut self) -> bool {
        if let Some(braids) = self.braids.last_mut() {
            if braids.take_down() {
                return true;
            }
            self.braids.pop();
        }
        let Some(directory) = self.directories.last_mut().and_then(Arc::get_mut) else { return false };
        if !directory.take_down() {
            self.directories.pop();
        }
        true
    }

    fn parts(&self) -> u64 {
        let segments: usize = self.directories.iter().map(|directory| directory.segments()).sum();
        (segments + self.braids.iter().map(Braids::braids).sum::<usize>()) as u64
    }
}

impl<S: Schema> Rebuild<S> {
    fn begin(view: &View<S>) -> Self {
        let entries = view.buckets();
        let range = range_of(view);
        let range = range.as_ref().map(|(first, last)| (S::borrow(first), S::borrow(last)));
        let directory = Directory::with_capacity::<S>(entries + entries / 8, range);
        Self { directory, late: Braids::default(), aliases: 0, next: 0 }
    }

    /// True if the build has passed the place of a bucket with this `min`.
    pub(crate) fn is_past(&self, key: &S::Key) -> bool {
        let made = self.directory.len();
        made > 0 && self.directory.compare::<S>(made - 1, key).is_gt()
    }

    /// Does up to `steps` steps. Returns their number, and true if nothing remains.
    fn go_on(&mut self, view: &View<S>, steps: usize) -> (usize, bool) {
        let old = &view.directory;
        let last = self.directory.len().checked_sub(1).map(|last| self.directory.key::<S>(last));
        let mut items = view.braids.above(last.as_ref().map(|key| S::borrow(key))).peekable();
        for step in 0..steps {
            let marked = (self.next < old.len()).then(|| old.marked(self.next));
            if marked.is_some_and(|marked| marked & ALIAS != 0) {
                self.next += 1;
                continue;
            }
            let takes_item = match (marked, items.peek()) {
                (None, None) => return (step, true),
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(_), Some(item)) => old.compare::<S>(self.next, S::borrow(&item.key)).is_gt(),
            };
            match (marked, takes_item) {
                (Some(marked), false) => {
                    let key = old.key::<S>(self.next);
                    if self.directory.reach::<S>(S::borrow(&key)) {
                        self.directory.push::<S>(S::borrow(&key), Directory::address(marked));
                        self.next += 1;
                    }
                }
                _ => {
                    if let Some(item) = items.next_if(|item| self.directory.reach::<S>(S::borrow(&item.key)))
                    {
                        self.directory.push::<S>(S::borrow(&item.key), item.at);
                    }
                }
            }
        }
        (steps, false)
    }
}

impl<S: Schema> View<S> {
    /// Number of buckets, including aliases.
    fn buckets(&self) -> usize {
        self.directory.len() + self.braids.count()
    }

    /// Addresses of all buckets, in key order.
    fn in_order(&self) -> Vec<u64> {
        let mut all = Rebuild::begin(self);
        while !all.go_on(self, 1 << 10).1 {}
        (0..all.directory.len()).map(|i| Directory::address(all.directory.marked(i))).collect()
    }
}

/// The smallest key of a view except for the first bucket's, and the greatest key.
fn range_of<S: Schema>(view: &View<S>) -> Option<(S::KeyBuf, S::KeyBuf)> {
    let directory = &view.directory;
    let second = (directory.len() > 1).then(|| directory.key::<S>(1));
    let first = second.into_iter().chain(view.braids.first().map(|item| item.key.clone())).min();
    let last = (directory.len() > 1).then(|| directory.key::<S>(directory.len() - 1));
    let last = last.into_iter().chain(view.braids.last().map(|item| item.key.clone())).max();
    first.zip(last)
}

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// Maximum buckets of a braid: L = 2 log2(B) [VLAB §6.1].
    pub(crate) fn braid_limit(&self, view: &View<S>) -> usize {
        let buckets = view.directory.len() + view.braids.count();
        self.braid_buckets.unwrap_or(2 * buckets.max(2).ilog2() as usize).max(1)
    }

    /// Continues the running combine, or begins one if it is due.
    pub(crate) fn combine_some(&self, writer: &mut Writer<S>) {
        self.rewire_some(writer);
        self.give_some(writer);
        if writer.rebuild.is_none() {
            let view = self.view();
            let (held, entries) = (view.braids.count(), view.directory.len());
            let full = self.braid_limit(&view) * self.braids_max / 2;
            let is_full = held > 0 && held >= full.min((entries / SHARE).max(FEW));
            let is_sparse = writer.aliases as usize > FEW.max(entries / 2);
            if !is_full && !is_sparse {
                return;
            }
            writer.rebuild = Some(Rebuild::begin(&view));
        }
        if self.faithful {
            // Over a journal the running group may lack space. Then the combine is postponed, and the braids get more buckets meanwhile.
            let lines = 2 * self.view().buckets() as u64;
            if self.has_lines_beside(lines) {
                self.merge_lists(writer);
                while !self.go_on(writer).1 {}
            } else {
                writer.rebuild = None;
            }
            return;
        }
        let (steps, _) = self.go_on(writer);
        writer.work.most = writer.work.most.max(steps as u64);
        writer.work.steps += steps as u64;
    }

    /// Does some steps. Returns their number, and true if the combine has ended.
    fn go_on(&self, writer: &mut Writer<S>) -> (usize, bool) {
        let view = Arc::clone(&self.view());
        let Some(rebuild) = &mut writer.rebuild else { return (0, true) };
        let (steps, is_whole) = rebuild.go_on(&view, self.combine_step);
        if let Some(rebuild) = writer.rebuild.take_if(|_| is_whole) {
            writer.aliases = rebuild.aliases;
            writer.turnover.rebuilds += 1;
            writer.retired.take(&view);
            // Both views lead to the same buckets, so no reader has to retry.
            let way = self.new_way(&mut writer.wiring, &view.way);
            self.set_view(View { directory: rebuild.directory.into(), way, braids: rebuild.late });
        }
        (steps, writer.rebuild.is_none())
    }

    /// Frees one part of replaced directories and braids.
    #[inline]
    fn give_some(&self, writer: &mut Writer<S>) {
        if !writer.retired.directories.is_empty() || !writer.retired.braids.is_empty() {
            let given = u64::from(writer.retired.give_part());
            writer.work.most_parts = writer.work.most_parts.max(given);
            writer.work.parts += given;
        }
    }

    /// The paper's combine: merges the second list into the first.
    fn merge_lists(&self, writer: &mut Writer<S>) {
        let medium = self.region.medium();
        let order = self.view().in_order();
        self.stripes.lock_all(&mut writer.held);
        if let Some(pending) = &self.pending {
            order.iter().for_each(|at| pending.note_node(*at));
        }
        let next = order.iter().skip(1).copied().chain([0]);
        for (at, next) in order.iter().zip(next) {
            medium.copy(at + VNXT, checked(next / WORD));
            medium.flush(at + VNXT, WORD);
        }
        medium.fence(Fence::Payload);
        self.meta().publish_phase(medium, Phase::Linked);
        medium.fence(Fence::Commit);
        self.copy_links(&order);
        self.stripes.unlock(&mut writer.held);
    }

    /// Continues a combine from the state in which `vnxt` links the list.
    fn copy_links(&self, order: &[u64]) {
        let medium = self.region.medium();
        for at in order {
            medium.copy(at + NXT, medium.word(at + VNXT));
            medium.flush(at + NXT, WORD);
        }
        medium.fence(Fence::Home);
        self.meta().publish_phase(medium, Phase::Copied);
        medium.fence(Fence::Commit);
        self.clear_links(order);
    }

    /// Continues a combine from the state in which `nxt` links the list.
    fn clear_links(&self, order: &[u64]) {
        let medium = self.region.medium();
        self.clear_begun(order);
        // The next operation's first fence is early enough. Until then no new link is stored.
        self.meta().publish_idle(medium);
    }

    /// Clears all `vnxt`. This needs no fence: the next open clears again if the stores were not durable.
    fn clear_begun(&self, order: &[u64]) {
        let medium = self.region.medium();
        for at in order.iter().filter(|at| medium.word(**at + VNXT) != 0) {
            medium.copy(at + VNXT, 0);
        }
    }

    /// Completes or undoes a combine that a crash interrupted. Stores nothing if the phase is idle and every `vnxt` is clear.
    pub(crate) fn finish_combine(
        &self,
        phase: Phase,
        main: &[(S::KeyBuf, u64)],
        second: &[(S::KeyBuf, u64)],
    ) {
        let order: Vec<u64> = main.iter().chain(second).map(|(_, at)| *at).collect();
        match phase {
            Phase::Linked => self.copy_links(&order),
            Phase::Copied => self.clear_links(&order),
            Phase::Idle => self.clear_begun(&order),
        }
    }

    /// True while a new directory is being built. Each operation continues the build.
    pub fn is_combining(&self) -> bool {
        self.writer_side().rebuild.is_some()
    }

    /// The work of combines since the index was opened.
    pub fn work(&self) -> Work {
        let writer = self.writer_side();
        Work { combines: writer.turnover.rebuilds, parts_left: writer.retired.parts(), ..writer.work }
    }

    /// Combines at once, whatever the braids hold, and completes a running combine. With
    /// [`Addressing::Rewired`](crate::rewired::Addressing) the window is then complete, too, unless a reader still uses the previous
    /// window.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`, `Failed`; `TooLarge` if no group can hold the stores of `faithful`; the errors of [`Life::commit`].
    pub fn combine(&self) -> pmem::Result<()> {
        let buckets = self.view().buckets() as u64;
        let mut writer = self.enter_for(|_| Ok(if self.faithful { 2 * buckets } else { 0 }))?;
        let view = self.view();
        writer.rebuild.get_or_insert_with(|| Rebuild::begin(&view));
        if self.faithful {
            self.merge_lists(&mut writer);
        }
        drop(view);
        while !self.go_on(&mut writer).1 {}
        self.rewire_all(&mut writer);
        while writer.retired.give_part() {}
        self.leave(writer, WriteOptions::default())
    }
}
