//! Dual-VA in user space [VLAB §4.2.1, §5.1]: the bucket pages of the region's file are mapped a second time, in key order, so that
//! entry i of the directory is page i of a window ([`pmem::window`]). A lookup's search compares `min` and `max` in the pages, and it
//! reads the bucket there, whose address translation search has paid for already. Writers and scans, which go to the buckets' own
//! addresses, search the directory: they would pay for both.
//!
//! The paper adds a system call; here `mmap` is called for each run of pages that are neighbours in the file too. It goes for words as
//! keys (`min` of byte strings is a record's address), buckets of one page (the allocator aligns them to pages of the file), and a
//! medium whose file is mapped and shared; everything else, and what the kernel's limit of mappings does not hold, has the directory
//! alone, and [`Vlab::addressed`] says why. A window takes no part in what is durable: all stores go through the region's own addresses,
//! in the same order and number. So crashes are explored without one.
//!
//! The directory stays beside it: for the buckets' own addresses, by which stripes are kept and all writing is done, and for its words,
//! so that a window can be done without at any time. A combine gives the new directory to readers at once, takes down the window of the
//! old one when nobody reads through it any more, and makes the new window aside, some places with each operation; it is switched to when
//! it is whole. The two are never there at once, for the limit would have to hold both.
//!
//! Invariants:
//! * W1: place i of a view's window is the page of the bucket that entry i of its directory leads to, but while the stripes are odd of
//!   the bucket that it led to and the one that it will.
//! * W2: whoever searched a window of an earlier view, or one in which a place was changed meanwhile, finds `changes` changed if any
//!   bucket was split, merged or given back since it noted them.
//!
//! Why search by pages is right. Entry i leads to the bucket that holds its key (D2 of [`crate::directory`]), so the `min` of page i is
//! at or below that key: below it where the bucket of that key was merged into another. Hence every entry at or below a wanted key is
//! so by its page too, and search ends at the last such entry or behind it. If at it, all is as with the directory. If behind it, the
//! page's bucket begins at or below the wanted key and holds one above it: it is the bucket. So is one that search meets on its way whose
//! bounds hold the key.
//!
//! Why a reader may read a page that was given back, or has become another bucket's, or none's. It noted `changes` before it loaded the
//! view, and the writer of a merge publishes a view whose window was changed before it moves `changes` on, and lets a block be used
//! again only afterwards. So a view loaded after a merge that was noted shows it; and one that was not noted is noticed at the second
//! look, which comes behind all that was read (a fence pair with the writer's stores to the block, see [`pmem::stripe`]; a changed
//! mapping is seen only after the stripe was made odd, for the kernel interrupts every processor of the process between the two). The
//! stripe that it looks at is that of the bucket's own address, the one the writer makes odd. What it reads meanwhile can be anything:
//! places are bounded by the directory, slots by the shape, and every offset by the window.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use index::Schema;
use pmem::Medium;
use pmem::window::{PAGE, Refusal, Window, runs};

use crate::bucket::{Bucket, MAX, MIN, NXT};
use crate::directory::{Directory, Lows};
use crate::index::{View, Vlab, Writer};

/// Places that one merge or split may change; each is a system call. With more, the window is given up until the next combine.
const CHANGED: usize = 16;
/// An operation maps one place for so many directory entries that it may take over: a page takes so much longer.
const COSTLIER: usize = 4;

/// How the place of a bucket becomes its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// By the software page table alone ([`crate::directory`]).
    Directory,
    /// By the processor's page table, where that goes: the pages of the buckets are mapped a second time, in key order [VLAB §5.1].
    Rewired,
}

/// How buckets are addressed now.
#[derive(Clone, Debug)]
pub enum Addressed {
    /// By the directory alone.
    Directory(Why),
    /// By a window.
    Window {
        /// Mappings of the kernel's that it takes, at most.
        mappings: u64,
        /// Bytes of the kernel's memory: of these mappings and of the page table.
        bytes: u64,
    },
}

impl fmt::Display for Addressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(why) => write!(f, "directory ({why})"),
            Self::Window { mappings, bytes } => {
                write!(f, "rewired ({mappings} mappings, {bytes} bytes of the kernel's memory)")
            }
        }
    }
}

/// Why buckets are addressed by the directory alone.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Why {
    /// So it was asked for.
    #[error("as asked for")]
    Asked,
    /// The window is being made; writes go on with it.
    #[error("the window is being made")]
    Making,
    /// `min` is not the key itself.
    #[error("keys are not words")]
    Keys,
    /// Pages of the system are not buckets.
    #[error("buckets have {0} bytes and not {PAGE}")]
    Buckets(u64),
    /// There is no file, or its pages are not those that are stored to.
    #[error("the memory is not a file that is mapped and shared")]
    Medium,
    /// One merge changed what so many places lead to; the next combine makes another window.
    #[error("a merge changed {0} places at once; the next combine makes a window again")]
    Merged(usize),
    /// The window was refused.
    #[error("no window: {0}")]
    Refused(#[source] Arc<Refusal>),
}

/// What of a view leads to the pages.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Directory(Why),
    Window(Arc<Window>),
}

/// What the writer has of windows.
#[derive(Default)]
pub(crate) struct Wiring {
    /// The one for the current directory, in the making.
    making: Option<Making>,
    /// Windows through which readers of earlier views may read.
    old: Vec<Arc<Window>>,
}

/// Its window once the old ones are gone, and the place to be mapped next.
#[derive(Default)]
struct Making {
    window: Option<Window>,
    next: usize,
}

impl Wiring {
    fn retire(&mut self, way: &Way) {
        if let Way::Window(window) = way {
            self.old.push(Arc::clone(window));
        }
    }

    /// Ends the making.
    fn give_up(&mut self) {
        self.old.extend(self.making.take().and_then(|making| making.window).map(Arc::new));
    }

    /// Takes down so many places of what nobody reads through; true when all is gone.
    fn take_down(&mut self, places: usize) -> bool {
        self.old.pop_if(|window| Arc::get_mut(window).is_some_and(|window| window.take_down(places)));
        self.old.is_empty()
    }
}

impl Making {
    /// Maps so many places; true when that were the last.
    fn go_on<M: Medium>(
        &mut self,
        medium: &M,
        directory: &Directory,
        places: usize,
        most: u64,
    ) -> Result<bool, Why> {
        let Some(pages) = medium.pages() else { return Err(Why::Medium) };
        let at = |i: usize| Directory::address(directory.marked(i));
        let window = match &mut self.window {
            Some(window) => window,
            None => {
                let runs = runs((0..directory.len()).map(at));
                self.window.insert(Window::reserve(directory.len(), runs, most).map_err(refused)?)
            }
        };
        let end = self.next.saturating_add(places).min(directory.len());
        let some: Vec<u64> = (self.next..end).map(at).collect();
        window.map(&pages, self.next, &some).map_err(refused)?;
        self.next = end;
        Ok(end == directory.len())
    }
}

fn refused(refusal: Refusal) -> Why {
    Why::Refused(Arc::new(refusal))
}

/// Offset of a place in its window.
#[inline(always)]
pub(crate) fn place_at(i: usize) -> u64 {
    i as u64 * PAGE
}

/// Search compares the pages' `min`, and stops at one whose `max`, in the same line, is above the key: a look at another page would
/// cost more than all else.
impl Lows for Window {
    #[inline(always)]
    fn low(&self, i: usize) -> u64 {
        self.word(place_at(i) + MIN)
    }

    #[inline(always)]
    fn is_last(&self, i: usize, word: u64) -> bool {
        let max = self.word(place_at(i) + MAX);
        max == 0 || word < max
    }
}

impl<M: Medium, S: Schema> Vlab<M, S> {
    /// How buckets are addressed now, and why no other way.
    pub fn addressed(&self) -> Addressed {
        match &self.view().way {
            Way::Directory(why) => Addressed::Directory(why.clone()),
            Way::Window(window) => Addressed::Window { mappings: window.mappings(), bytes: window.memory() },
        }
    }

    /// Why this index never has a window.
    fn hindrance(&self) -> Option<Why> {
        if self.addressing == Addressing::Directory {
            return Some(Why::Asked);
        }
        let bytes = self.shape.bytes();
        (!S::PLAIN).then_some(Why::Keys).or((bytes != PAGE).then_some(Why::Buckets(bytes))).or(self
            .region
            .medium()
            .pages()
            .is_none()
            .then_some(Why::Medium))
    }

    /// The way of a view with a new directory; its window is made from now on.
    pub(crate) fn new_way(&self, wiring: &mut Wiring, old: &Way) -> Way {
        wiring.give_up();
        wiring.retire(old);
        let why = self.hindrance().unwrap_or_else(|| {
            wiring.making = Some(Making::default());
            Why::Making
        });
        Way::Directory(why)
    }

    /// Readers take another way to the same buckets: nobody has to look again.
    fn show_way(&self, way: Way) {
        let view = self.view();
        let (directory, braids) = (Arc::clone(&view.directory), view.braids.clone());
        self.set_view(View { directory, way, braids });
    }

    /// Makes the window of a directory that was just loaded.
    pub(crate) fn begin_window(&self, writer: &mut Writer<S>) {
        let way = self.new_way(&mut writer.wiring, &self.view().way);
        self.show_way(way);
        self.rewire_all(writer);
    }

    /// Does all that there is to do for windows and need not wait for a reader.
    pub(crate) fn rewire_all(&self, writer: &mut Writer<S>) {
        while self.rewire(writer, usize::MAX) {}
    }

    /// Takes down or maps what an operation may.
    #[inline]
    pub(crate) fn rewire_some(&self, writer: &mut Writer<S>) {
        if writer.wiring.making.is_some() || !writer.wiring.old.is_empty() {
            self.rewire(writer, (self.combine_step / COSTLIER).max(1));
        }
    }

    /// Takes down or maps so many places; true if there is more to do at once.
    #[cold]
    fn rewire(&self, writer: &mut Writer<S>, places: usize) -> bool {
        let wiring = &mut writer.wiring;
        let before = wiring.old.len();
        if !wiring.take_down(places) {
            return wiring.old.len() < before;
        }
        let Some(making) = &mut wiring.making else { return false };
        let most = self.mappings_max.unwrap_or(u64::MAX);
        match making.go_on(self.region.medium(), &self.view().directory, places, most) {
            Ok(false) => return true,
            Ok(true) => {
                let window = wiring.making.take().and_then(|making| making.window);
                window.into_iter().for_each(|window| self.show_way(Way::Window(Arc::new(window))));
            }
            Err(why) => {
                wiring.give_up();
                self.show_way(Way::Directory(why));
            }
        }
        true
    }

    /// These entries of the view's directory lead to `target` now: so do their places (W1). The way of the view that says so.
    pub(crate) fn follow(
        &self,
        wiring: &mut Wiring,
        view: &View<S>,
        places: Range<usize>,
        target: Bucket,
    ) -> Way {
        let (window, mapped) = match (&view.way, &wiring.making) {
            (Way::Window(window), _) => (Some(&**window), usize::MAX),
            (Way::Directory(_), Some(making)) => (making.window.as_ref(), making.next),
            (Way::Directory(_), None) => (None, 0),
        };
        let (Some(window), false) = (window, places.is_empty()) else { return view.way.clone() };
        let changed = self.change_places(window, mapped, places, target);
        let Err(why) = changed else { return view.way.clone() };
        wiring.give_up();
        wiring.retire(&view.way);
        Way::Directory(why)
    }

    fn change_places(
        &self,
        window: &Window,
        mapped: usize,
        places: Range<usize>,
        target: Bucket,
    ) -> Result<(), Why> {
        if places.len() > CHANGED {
            return Err(Why::Merged(places.len()));
        }
        let Some(pages) = self.region.medium().pages() else { return Err(Why::Medium) };
        for i in places {
            // What is not mapped yet will be, from the directory.
            let done = if i < mapped { window.replace(&pages, i, target.0) } else { window.expect_change() };
            done.map_err(refused)?;
        }
        Ok(())
    }

    /// The first place of the view's window that is not the bucket of its entry (W1), for [`Vlab::check`].
    pub(crate) fn misplaced(&self, view: &View<S>) -> Option<usize> {
        let Way::Window(window) = &view.way else { return None };
        let medium = self.region.medium();
        (0..view.directory.len()).find(|i| {
            let at = Directory::address(view.directory.marked(*i));
            // No two buckets agree in both.
            [NXT, MIN].iter().any(|word| window.word(place_at(*i) + word) != medium.word(at + word))
        })
    }
}
