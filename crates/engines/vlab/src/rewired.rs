//! Dual-VA in user space: a second mapping of the bucket pages, in key order [VLAB §4.2.1, §5.1].
//!
//! Entry i of the directory is page i of a window ([`pmem::page_remap`]). A lookup's search compares `min` and `max` in the pages. The
//! lookup then reads the bucket in the same page, whose address the search has already translated. Writers and scans use the buckets' own
//! addresses, so they search the directory. With a window they would need two address translations.
//!
//! The paper adds a system call. Here `mmap` is called for each run of pages that are adjacent both in the window and in the file. A window
//! needs keys that are words (for byte strings `min` is a record's address), buckets of one page (the allocator aligns them to pages of the
//! file), and a medium with a shared mapping of a file. Otherwise, and beyond the kernel's limit of mappings, the index uses the directory
//! alone, and [`Vlab::addressed`] gives the reason. A window does not affect durability: all stores use the region's own addresses, in the
//! same order and number. So crash exploration runs without a window.
//!
//! The directory is kept beside a window. The directory has the buckets' own addresses, which version locks and all stores need. It also
//! has the words that a search compares, so a window can be dropped at any time. A combine publishes the new directory immediately. Later
//! operations remove the old directory's window when no reader uses it, and then map the new window, some places with each operation.
//! Readers use the new window when it is complete. The two windows never exist at the same time, because the kernel's limit would have to
//! cover both.
//!
//! Invariants:
//! * W1: place i of a view's window is the page of the bucket that entry i of its directory leads to, except while the versions of the old
//!   and the new bucket of the entry are locked.
//! * W2: a reader may have searched a window of an earlier view, or a window in which a place was changed meanwhile. If any bucket was
//!   split, merged or freed since the reader read `changes`, the reader's validation finds a new value of `changes`.
//!
//! Why a search by pages is right:
//! * Entry i leads to the bucket that holds its key (D2 of [`crate::directory`]). So the `min` of page i is at or below that key. The `min`
//!   is below that key if the bucket of the key was merged into another.
//! * Hence, if an entry is at or below a wanted key, the `min` of its page is, too. The search ends at the last such entry or after it.
//! * If it ends at that entry, everything is as with the directory. If it ends at a later entry, the key of that entry is above the wanted
//!   key and its bucket's `min` is at or below the wanted key. So the wanted key belongs to this bucket.
//! * If the bounds of a page on the way contain the key, its bucket is the right one, too.
//!
//! Why a reader may read a page that was freed or belongs to another bucket:
//! * The reader reads `changes` before it loads the view. The writer of a merge publishes a view with the changed window before it adds 2
//!   to `changes`. Only afterwards may the block be used again.
//! * So if the reader's value of `changes` includes the merge, its view shows the merge. Otherwise the reader's validation fails. The
//!   validation comes after all reads: a pair of fences orders it with the writer's stores to the block, see [`pmem::stripe`]. No reader
//!   sees a changed mapping before it can see the locked version: the writer locks the version first, and the change of the mapping then
//!   interrupts every processor of the process.
//! * The validated version is that of the bucket's own address, which the writer locks.
//! * The words that the reader reads meanwhile may be anything. Places are bounded by the directory, slots by the shape, and every offset
//!   by the window.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use index::Schema;
use pmem::Medium;
use pmem::page_remap::{PAGE, Refusal, Window, runs};

use crate::bucket::{Bucket, MAX, MIN, NXT};
use crate::directory::{Directory, Lows};
use crate::index::{View, Vlab, Writer};

/// Maximum places that one merge or split may change; each is a system call. Beyond it the window is dropped until the next combine.
const CHANGED: usize = 16;
/// Mapping a page costs as much as copying this many directory entries. So an operation maps `combine_step` divided by this number of
/// places.
const COSTLIER: usize = 4;

/// The way from the place of a bucket to its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// By the software page table only ([`crate::directory`]).
    Directory,
    /// By the processor's page table, where possible: the pages of the buckets are mapped a second time, in key order [VLAB §5.1].
    Rewired,
}

/// The present way to the buckets.
#[derive(Clone, Debug)]
pub enum Addressed {
    /// By the directory only.
    Directory(Why),
    /// By a window.
    Window {
        /// Maximum number of kernel mappings that it takes.
        mappings: u64,
        /// Bytes of kernel memory, for these mappings and for the page table.
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

/// The reason why only the directory is used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Why {
    /// The option asks for it.
    #[error("as asked for")]
    Asked,
    /// The window is being made. Writes continue the work.
    #[error("the window is being made")]
    Making,
    /// `min` is not the key itself.
    #[error("keys are not words")]
    Keys,
    /// Buckets do not have the size of a page.
    #[error("buckets have {0} bytes and not {PAGE}")]
    Buckets(u64),
    /// There is no file, or stores do not go to its pages.
    #[error("the memory is not a file that is mapped and shared")]
    Medium,
    /// One merge changed too many places. The next combine makes another window.
    #[error("a merge changed {0} places at once; the next combine makes a window again")]
    Merged(usize),
    /// The window could not be made.
    #[error("no window: {0}")]
    Refused(#[source] Arc<Refusal>),
}

/// The part of a view that leads to the pages.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Directory(Why),
    Window(Arc<Window>),
}

/// The writer's state of windows.
#[derive(Default)]
pub(crate) struct Wiring {
    /// The window of the current directory, while it is being made.
    making: Option<Making>,
    /// Windows that readers of earlier views may use.
    old: Vec<Arc<Window>>,
}

/// The window that is being made, and the next place to map. The window is reserved after the old ones are gone.
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

    /// Stops making the window.
    fn give_up(&mut self) {
        self.old.extend(self.making.take().and_then(|making| making.window).map(Arc::new));
    }

    /// Unmaps up to `places` places of windows without readers. True if no old window is left.
    fn take_down(&mut self, places: usize) -> bool {
        self.old.pop_if(|window| Arc::get_mut(window).is_some_and(|window| window.take_down(places)));
        self.old.is_empty()
    }
}

impl Making {
    /// Maps up to `places` places. True if the window is complete.
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

/// The search compares the `min` of pages. It stops at a page whose `max`, in the same line, is above the key: reading another page would
/// cost more than the rest of the search.
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
    /// The present way to the buckets, with the reason if there is no window.
    pub fn addressed(&self) -> Addressed {
        match &self.view().way {
            Way::Directory(why) => Addressed::Directory(why.clone()),
            Way::Window(window) => Addressed::Window { mappings: window.mappings(), bytes: window.memory() },
        }
    }

    /// The reason why this index never has a window, if there is one.
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

    /// The way of a view with a new directory. Making its window begins now.
    pub(crate) fn new_way(&self, wiring: &mut Wiring, old: &Way) -> Way {
        wiring.give_up();
        wiring.retire(old);
        let why = self.hindrance().unwrap_or_else(|| {
            wiring.making = Some(Making::default());
            Why::Making
        });
        Way::Directory(why)
    }

    /// Publishes another way to the same buckets, so no reader has to retry.
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

    /// Does all window work that does not have to wait for a reader.
    pub(crate) fn rewire_all(&self, writer: &mut Writer<S>) {
        while self.rewire(writer, usize::MAX) {}
    }

    /// Does the window work of one operation.
    #[inline]
    pub(crate) fn rewire_some(&self, writer: &mut Writer<S>) {
        if writer.wiring.making.is_some() || !writer.wiring.old.is_empty() {
            self.rewire(writer, (self.combine_step / COSTLIER).max(1));
        }
    }

    /// Unmaps or maps up to `places` places. True if more can be done at once.
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

    /// Maps the places of these entries to `target`, to which the view's directory now leads (W1). Returns the way for the new view.
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
            // Places that are not mapped yet will be mapped from the directory.
            let done = if i < mapped { window.replace(&pages, i, target.0) } else { window.expect_change() };
            done.map_err(refused)?;
        }
        Ok(())
    }

    /// The first place of the view's window that is not the bucket of its entry (W1). For [`Vlab::check`].
    pub(crate) fn misplaced(&self, view: &View<S>) -> Option<usize> {
        let Way::Window(window) = &view.way else { return None };
        let medium = self.region.medium();
        (0..view.directory.len()).find(|i| {
            let at = Directory::address(view.directory.marked(*i));
            // No two buckets have the same `nxt` and the same `min`.
            [NXT, MIN].iter().any(|word| window.word(place_at(*i) + word) != medium.word(at + word))
        })
    }
}
