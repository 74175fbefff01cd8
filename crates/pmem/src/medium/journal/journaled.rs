//! The journal's medium: creating, opening, committing to and closing a pair of files. The contract is in the head of
//! [`crate::medium::journal`].

use std::fs::File;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::file::{io, lock};
use crate::medium::journal::group::{self, Closed, Position, SECTOR, Scratch};
use crate::medium::journal::header::{DATA_AT, HALVES_AT, Header};
use crate::medium::journal::image::Image;
use crate::medium::journal::live::{Live, guard};
use crate::medium::journal::recover::{self, Replay};
use crate::medium::journal::sizes::*;
use crate::medium::journal::storage::{FileStorage, Files, Storage};
use crate::medium::traits::{Fence, Group, Line, Medium};
use crate::medium::view::{PAGE, View};
use crate::sync::atomics::unmodelled::{Condvar, Mutex};
use crate::system;

/// Most bytes of scratch memory that are kept between commits.
const SCRATCH_MAX: usize = 1 << 20;

/// A medium over an ordinary file and its journal. The head of [`crate::medium::journal`] is its contract.
///
/// Order of locks: `appending`, the lock with which a commit holds off stores, `header`, `durable_bytes`, then one of `live`, a
/// file's sync lock, the image's running group, and its waiting ranges (`space`).
#[derive(Debug)]
pub struct Journal {
    pub(super) files: Files,
    pub(super) image: Image,
    /// The header as it was at open. Fields that never change are read here, concurrently with a checkpoint.
    pub(super) pair: Header,
    /// Held by a commit until its group is durable.
    pub(super) appending: Mutex<Scratch>,
    /// Held by a checkpoint until the header has changed.
    pub(super) header: Mutex<Header>,
    /// Lower bound of the data file's durable length in bytes. Locked while the file gets longer or shorter.
    pub(super) durable_bytes: Mutex<u64>,
    /// See [`Journal::bound_memory`].
    pub(super) memory_bytes: AtomicU64,
    pub(super) live: Mutex<Live>,
    /// Signalled when a half is full or the journal failed.
    pub(super) turned: Condvar,
}

impl Journal {
    /// Makes a pair of files. `data` is empty, open for reading and writing, and locked; `path` is its path. A file at
    /// `journal_path` is overwritten, unless it is in use. The caller makes the names durable.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, `Locked`; `Durability` for a capacity or a maximum out of bounds.
    pub fn create(data: File, path: &Path, journal_path: &Path, options: &Options) -> Result<Self> {
        Self::create_as(data, journal_path, (path, journal_path), options)
    }

    /// As [`Journal::create`], for files that are renamed later. `names` are the paths of both files after that, for errors.
    ///
    /// # Errors
    /// As [`Journal::create`].
    pub fn create_as(
        data: File,
        journal_path: &Path,
        names: (&Path, &Path),
        options: &Options,
    ) -> Result<Self> {
        half_of(options.capacity_bytes)?;
        check_maximum(options.max_bytes)?;
        let how = system::new_or_found();
        let journal =
            system::open(&how, journal_path).map_err(|source| io("cannot make", journal_path, source))?;
        lock(&journal, journal_path)?;
        system::set_len(&journal, journal_path, 0)
            .map_err(|source| io("cannot empty", journal_path, source))?;
        let data = Box::new(FileStorage::new(data, names.0));
        let journal = Box::new(FileStorage::new(journal, names.1));
        Self::create_on(data, journal, random_id()?, options)
    }

    /// Makes an empty region on two empty files. `id` pairs them: random, or fixed in tests.
    ///
    /// # Errors
    /// As [`Journal::create`].
    pub fn create_on(
        data: Box<dyn Storage>,
        journal: Box<dyn Storage>,
        id: [u64; 2],
        options: &Options,
    ) -> Result<Self> {
        check_maximum(options.max_bytes)?;
        let files = Files::new(data, journal);
        let header = Header::new(id, half_of(options.capacity_bytes)?);
        header.make(&files)?;
        Self::go_on(files, header, 0, options.max_bytes)
    }

    /// Opens a pair of files and writes the groups of the journal to the data file. `data` is open for reading and writing and
    /// locked, `path` is its path, `max_bytes` is as in [`Options`]. Reads both halves of the journal unless it was closed.
    ///
    /// # Errors
    /// `Locked`; `Foreign`, `Version`, `Journal` if the two are not a pair that this program reads; `Truncated`; `NoSpace` if they
    /// have holes (copies of files may) for which the disk has no space; `Corrupt` if an acknowledged group is damaged;
    /// `Durability` for a maximum out of bounds; `Io`, `Failed`. Except after the last two, the content of the files is unchanged.
    pub fn open(data: File, path: &Path, journal_path: &Path, max_bytes: u64) -> Result<(Self, Replay)> {
        let journal = match system::open(File::options().read(true).write(true), journal_path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::Journal { path: journal_path.to_owned(), why: "is missing" });
            }
            other => other.map_err(|source| io("cannot open", journal_path, source))?,
        };
        lock(&journal, journal_path)?;
        let data = Box::new(FileStorage::new(data, path));
        let journal = Box::new(FileStorage::new(journal, journal_path));
        Self::open_on(data, journal, max_bytes)
    }

    /// Opens a pair of files. See [`Journal::open`].
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_on(
        data: Box<dyn Storage>,
        journal: Box<dyn Storage>,
        max_bytes: u64,
    ) -> Result<(Self, Replay)> {
        check_maximum(max_bytes)?;
        let files = Files::new(data, journal);
        let (header, region_bytes, replay) = recover::recover(&files)?;
        Ok((Self::go_on(files, header, region_bytes, max_bytes)?, replay))
    }

    fn go_on(files: Files, header: Header, region_bytes: u64, max_bytes: u64) -> Result<Self> {
        let image = Image::new(&files, max_bytes.max(region_bytes))?;
        image.extend(&files, region_bytes)?;
        image.find_holes(&files)?;
        let live = Live {
            oldest: header.oldest,
            generation: header.oldest,
            used: [0; 2],
            pages: [0; 2],
            annex: None,
            first: [header.first; 2],
            next: header.first,
            held_off: 0,
            waits_ended: false,
            checkpoints: 0,
        };
        Ok(Self {
            files,
            image,
            pair: header,
            appending: Mutex::default(),
            header: Mutex::new(header),
            durable_bytes: Mutex::new(DATA_AT + region_bytes),
            memory_bytes: AtomicU64::new(memory_default()),
            live: Mutex::new(live),
            turned: Condvar::new(),
        })
    }

    /// Makes everything stored since the last commit durable as one group. Returns the group's number; numbers begin with 1 and
    /// have no gaps. If nothing was changed, it writes nothing and returns the number of the newest group.
    ///
    /// The thread that stores calls this, or another thread while no thread stores (M3 of `image`).
    ///
    /// # Errors
    /// As [`Journal::commit_beside`].
    pub fn commit(&self) -> Result<u64> {
        self.commit_beside(|| Some(()))
    }

    /// As [`Journal::commit`], concurrently with writers. `hold` keeps stores away while the group is closed. Its result is dropped
    /// before the group is written, so the next group runs meanwhile. If `hold` returns `None`, the call does nothing.
    ///
    /// # Errors
    /// `TooLarge` if the group is larger than 4 GiB, `NoSpace` if it is larger than a half and the disk is full: nothing was
    /// written, and the group can be rolled back. `Io` or `Corrupt` if the group, or a checkpoint that had to make space for it,
    /// failed. `Failed` if anything failed before. After these three, the journal accepts no further group, and the next open
    /// shows whether this group is durable.
    pub fn commit_beside<G>(&self, hold: impl FnOnce() -> Option<G>) -> Result<u64> {
        let mut scratch = guard(&self.appending);
        self.files.check()?;
        let Some(held) = hold() else { return Ok(self.newest()) };
        let Scratch { lines, .. } = &mut *scratch;
        self.image.changed(lines);
        if lines.is_empty() {
            let generation = guard(&self.live).generation;
            self.image.close(generation, lines);
            self.image.acknowledge();
            return Ok(self.newest());
        }
        let (_, pages) = self.image.noted();
        let (at, number) = self.make_space(group::bytes_for(lines), pages)?;
        let region_bytes = self.image.memory.len();
        let pages = self.image.close(at.generation, lines);
        drop(held);
        self.write_group(&mut scratch, &Closed { number, at, region_bytes, pages })
    }

    /// Writes the lines of a closed group and syncs them. A separate function, because [`Journal::commit_beside`] is generic and
    /// each caller has a copy of it.
    fn write_group(&self, scratch: &mut Scratch, closed: &Closed) -> Result<u64> {
        let Closed { number, at: Position { generation, from, in_annex }, pages, .. } = *closed;
        let Scratch { lines, bytes } = scratch;
        group::encode(bytes, lines);
        group::seal(bytes, self.pair.salt(generation), closed);
        let in_half = if in_annex { &bytes[..SECTOR as usize] } else { &bytes[..] };
        let write = |at, bytes: &[u8]| self.files.write(&self.files.journal, at, bytes);
        if self.image.space.take_unsynced() {
            self.files.sync(&self.files.data).map_err(|error| self.fail(error))?;
        }
        let mut written = if in_annex { write(self.pair.annex_at(), bytes) } else { Ok(()) };
        written = written.and_then(|()| write(self.pair.half_at(generation) + from, in_half));
        if let Err(error) = written.and_then(|()| self.files.sync(&self.files.journal)) {
            return Err(self.fail(error));
        }
        let mut live = guard(&self.live);
        live.used[(generation % 2) as usize] = from + in_half.len() as u64;
        live.pages[(generation % 2) as usize] += pages;
        live.annex = if in_annex { Some(generation) } else { live.annex };
        live.next = number + 1;
        drop(live);
        self.image.acknowledge();
        if bytes.capacity() > SCRATCH_MAX {
            *scratch = Scratch::default();
        }
        Ok(number)
    }

    /// Rolls back everything that is not durable, in the image that readers see: the stores since the last commit, and after a
    /// failed commit those of its group too. The rule of [`Journal::commit`] for the calling thread applies. No commit may run
    /// concurrently.
    ///
    /// The rollback restores lines one by one and begins with the line that was saved last. This is not the reverse order of the
    /// stores: a line that was stored to twice is restored at once. So the caller keeps readers out meanwhile, with the version locks
    /// of everything that the groups changed, or lets them validate again.
    pub fn roll_back(&self) {
        self.image.roll_back();
    }

    /// Bounds the private memory in bytes: the pages with changes that are not in the data file yet, those that are kept after their
    /// checkpoint for the next store, and the buffers of the running group and of the one that is being written. A group or a generation
    /// ends early if it would otherwise exceed the bound. A single operation that stores to more pages may exceed the bound. A checkpoint
    /// takes additional memory for its reads: up to a half, and 32 bytes for each line. The default is [`memory_default`], the minimum is
    /// [`MEMORY_MIN`], at which no page is kept.
    pub fn bound_memory(&self, bytes: u64) {
        self.memory_bytes.store(bytes.max(MEMORY_MIN), Ordering::Relaxed);
    }

    /// Maximum number of lines that a group can change and still fit into a half, even if it changes all words of them. A larger
    /// group goes through the annex.
    pub fn group_lines_max(&self) -> u64 {
        group::lines_in(self.pair.half_bytes)
    }

    /// Bytes of the journal's halves.
    pub fn capacity_bytes(&self) -> u64 {
        2 * self.pair.half_bytes
    }

    /// Bytes of the journal file, without an annex.
    pub fn file_bytes(&self) -> u64 {
        HALVES_AT + self.capacity_bytes()
    }

    /// Statistics since the open, and the present content.
    pub fn activity(&self) -> Activity {
        let live = guard(&self.live);
        Activity {
            groups: live.next - self.pair.first,
            syncs: self.files.syncs(),
            checkpoints: live.checkpoints,
            waiting_bytes: (live.oldest..=live.generation)
                .map(|generation| live.used[(generation % 2) as usize])
                .sum(),
        }
    }

    /// The address of the lines. It must not be used after this medium is dropped.
    pub(crate) fn view(&self) -> View {
        self.image.memory.view()
    }

    /// Number of the newest durable group; 0 if there is none.
    pub fn newest(&self) -> u64 {
        guard(&self.live).next - 1
    }

    /// True if an append, a sync or a write to the data file failed: no more groups are taken.
    pub fn has_failed(&self) -> bool {
        self.files.check().is_err()
    }

    /// Checkpoints the older half if the writer has left it and no copy holds off checkpoints. `None` otherwise. Any thread may call
    /// this, concurrently with the writer and readers.
    ///
    /// # Errors
    /// `Io`, or `Corrupt` if an acknowledged group cannot be read back: the journal takes no more groups then. `Failed` if the
    /// journal failed before.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        let live = guard(&self.live);
        let due = live.is_due().then_some(live.oldest);
        drop(live);
        due.map_or_else(
            || self.files.check().map(|()| None),
            |generation| self.checkpoint_generation(generation),
        )
    }

    /// Checkpoints every group, so the next open has nothing to replay. The running group is not included. Commits wait meanwhile.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`].
    pub fn checkpoint_all(&self) -> Result<()> {
        let _appending = guard(&self.appending);
        self.take_all_home()
    }

    /// Checkpoints every group and ends writing: no more groups are taken, and the next open searches for none. The stores since
    /// the last commit are lost. A second call does nothing.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`].
    pub fn close(&self) -> Result<()> {
        let _appending = guard(&self.appending);
        if guard(&self.header).closed {
            return Ok(());
        }
        self.take_all_home()?;
        let mut header = guard(&self.header);
        self.trim_file(true);
        let closed = header.close(&self.files);
        drop(header);
        // Also after an error: a group under a header that says closed would not be found.
        let _ = self.fail(Error::Closed);
        closed
    }

    /// The caller holds `appending`.
    fn take_all_home(&self) -> Result<()> {
        self.files.check()?;
        loop {
            let mut live = guard(&self.live);
            let oldest = live.oldest;
            if live.generation == oldest {
                if live.used[(oldest % 2) as usize] == 0 && !self.image.space.waits_for(oldest) {
                    return Ok(());
                }
                live.turn();
            }
            drop(live);
            self.checkpoint_generation(oldest)?;
        }
    }

    /// Waits until a half is full and no copy holds off checkpoints, or until `limit` has passed. Returns whether a half is full.
    /// The checkpoint thread calls it between checkpoints.
    ///
    /// # Errors
    /// `Failed` as soon as the journal takes no more groups, `Closed` after [`Journal::end_waits`].
    pub fn wait_until_due(&self, limit: Duration) -> Result<bool> {
        let live = guard(&self.live);
        let idle = |live: &mut Live| !live.is_due() && !live.waits_ended && self.files.check().is_ok();
        let waited = self.turned.wait_timeout_while(live, limit, idle);
        let live = waited.unwrap_or_else(PoisonError::into_inner).0;
        if live.waits_ended {
            return Err(Error::Closed);
        }
        self.files.check().map(|()| live.is_due())
    }

    /// Ends all waits for a full half.
    pub fn end_waits(&self) {
        guard(&self.live).waits_ended = true;
        self.turned.notify_all();
    }

    /// Makes the data file at least `bytes` bytes long, durably. Each growth costs a sync, so the file grows by more than the
    /// region needs, unless the disk is nearly full.
    fn make_file_long(&self, durable_bytes: &mut u64, bytes: u64) -> Result<()> {
        if *durable_bytes >= bytes {
            return Ok(());
        }
        // The file may be longer than `durable_bytes`, after a growth that failed half-way.
        let found = self.files.data.len()?;
        let more = match bytes {
            ..GROWTH_EXACT => 0,
            _ => (bytes / GROWTH_PART).max(bytes.min(GROWTH_DOUBLES)).min(GROWTH_MAX).next_multiple_of(PAGE),
        };
        let ahead = (bytes + more).min(DATA_AT + self.image.max_bytes).max(bytes);
        let made = match ahead > found {
            false => found,
            true => match self.files.data.allocate(found, ahead) {
                Err(Error::NoSpace { .. }) if found < bytes => {
                    self.files.data.allocate(found, bytes)?;
                    bytes
                }
                Err(Error::NoSpace { .. }) => found,
                outcome => outcome.map(|()| ahead)?,
            },
        };
        self.files.sync(&self.files.data).map_err(|error| self.fail(error))?;
        *durable_bytes = made;
        Ok(())
    }

    /// Removes the bytes of the data file beyond the region, if `closes` is true, or if the region has at least as many bytes in
    /// holes: then it will not grow soon. The header is held. On failure the file stays long.
    pub(super) fn trim_file(&self, closes: bool) {
        let mut durable_bytes = guard(&self.durable_bytes);
        let end = DATA_AT + self.image.memory.len();
        let ahead = durable_bytes.saturating_sub(end);
        let may = closes || self.image.space.hole_bytes() >= ahead;
        if ahead > 0 && may && self.files.data.shorten(end).is_ok() {
            *durable_bytes = end;
        }
    }

    /// Ends writing permanently (J7) and wakes all waiters. The caller does not hold `live`.
    pub(super) fn fail(&self, error: Error) -> Error {
        let error = self.files.poison(error);
        // A waiter that saw no failure holds `live` until it sleeps. A notification before that would be lost (J8).
        drop(guard(&self.live));
        self.turned.notify_all();
        error
    }
}

impl Medium for Journal {
    #[inline(always)]
    fn line(&self, at: u64) -> &Line {
        self.image.memory.line(at)
    }

    #[inline(always)]
    fn copy(&self, at: u64, value: u64) {
        self.image.before_store(at);
        self.image.memory.copy(at, value);
    }

    #[inline(always)]
    fn publish(&self, at: u64, value: u64) {
        self.image.before_store(at);
        self.image.memory.publish(at, value);
    }

    /// Does nothing: a group has all lines that were stored to.
    #[inline(always)]
    fn flush(&self, _at: u64, _bytes: u64) {}

    /// Does nothing but a compiler fence: a group becomes durable as a whole.
    #[inline(always)]
    fn fence(&self, _why: Fence) {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn prefetch(&self, at: u64, bytes: u64) {
        self.image.memory.prefetch(at, bytes);
    }

    #[inline(always)]
    fn len(&self) -> u64 {
        self.image.memory.len()
    }

    /// If the file needs a new length, this length is durable when the call returns. The growth may wait for a checkpoint's sync
    /// of the data file.
    fn grow(&self, bytes: u64) -> Result<()> {
        self.files.check()?;
        let new = bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        if new <= self.len() {
            return Ok(());
        }
        if new > self.image.max_bytes {
            return Err(Error::Full { max_bytes: self.image.max_bytes });
        }
        let mut durable_bytes = guard(&self.durable_bytes);
        self.make_file_long(&mut durable_bytes, DATA_AT + new)?;
        self.image.extend(&self.files, new)
    }

    /// The checkpoint of the running group returns the storage (`space`).
    fn discard(&self, at: u64, bytes: u64) -> bool {
        !self.has_failed() && self.image.discard(at, at + bytes)
    }

    fn provide(&self, at: u64, bytes: u64) -> Result<()> {
        while !self.image.provide(&self.files, at, at + bytes)? {
            drop(guard(&self.header)); // locked until the header that tells of the hole is written
        }
        Ok(())
    }

    fn holes(&self) -> Vec<(u64, u64)> {
        self.image.space.holes()
    }

    /// A commit, for any range: a group is not divided.
    fn sync(&self, _at: u64, _bytes: u64) -> Result<()> {
        self.commit().map(|_| ())
    }

    #[inline(always)]
    fn lines(&self, at: u64, count: usize) -> Option<&[Line]> {
        self.image.memory.lines(at, count)
    }

    fn group(&self) -> Option<Group> {
        let (noted, pages) = self.image.noted();
        let lines_limit = group::lines_in(group::BODY_BYTES_MAX);
        let (lines, lines_max) = (noted, self.group_lines_max());
        // The next lines may all be in other pages. The smaller remainder counts: that of the half, or that of the memory.
        let each = PAGE + LINE_MEMORY;
        let taken = (pages * PAGE + noted * LINE_MEMORY).div_ceil(each);
        let taken_max = self.memory_bytes.load(Ordering::Relaxed) / MEMORY_PART / each;
        Some(match taken_max.saturating_sub(taken) < lines_max.saturating_sub(lines) {
            true => Group { lines: taken, lines_max: taken_max, lines_limit },
            false => Group { lines, lines_max, lines_limit },
        })
    }

    /// Reserves at most `RESERVED_MAX` bytes. The commit allocates the rest if more is needed, and all if another group is in the
    /// annex.
    fn reserve(&self, lines: u64) -> Result<()> {
        // `live` stays locked meanwhile, because a checkpoint removes an annex while it holds this lock.
        let live = guard(&self.live);
        match lines > self.group_lines_max() && live.annex.is_none() {
            true => self.make_annex(group::bytes_for_any(lines).min(RESERVED_MAX)),
            false => Ok(()),
        }
    }

    fn commit_beside<G>(&self, hold: impl FnOnce() -> Option<G>) -> Result<()> {
        Self::commit_beside(self, hold).map(|_| ())
    }

    fn roll_back(&self) {
        Self::roll_back(self);
    }
}

/// The id of a pair: 128 random bits.
pub(super) fn random_id() -> Result<[u64; 2]> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    let read = File::open(source).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    read.map_err(|error| io("cannot read", source, error))?;
    Ok([group::word(&bytes, 0), group::word(&bytes, 1)])
}
