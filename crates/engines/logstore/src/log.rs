//! The commit log: files of blocks of records, with group commit.
//!
//! ```text
//! file    header (512 bytes; text: bytes of the file, and the alignment of blocks, in decimal) | block | block | … | zeros
//! block   magic: u32 | CRC-32C of the rest: u32 | id of the store: u64 | base LSN: u64 | bytes of records: u64 | bytes beside them: u64 |
//!         LSN below which all was durable when the block was written: u64 | records … | large contents … | zeros up to the alignment
//! ```
//!
//! A thread that wants its record to be durable takes the turn, writes all sealed buffers, and syncs once. Meanwhile other threads add
//! records and wait for the end of the turn. One of them makes the records of all of them durable with the next sync.
//!
//! Invariants:
//! * L1: LSNs below `stable` are written, and synced if the store promises to survive a power cut. `stable` only grows.
//! * L2: a block says below which LSN everything was durable when it was written. The first bad block ends the log. If a block behind it
//!   says that the bad one was durable, the log is damaged; otherwise a power cut kept a later sector and lost an earlier one.
//! * L3: the length of a file is durable before its header is written, and does not change afterwards. Header and name are durable before
//!   the first block goes into the file.
//! * L4: a record is accepted only if the allocated files have room for it and for all records before it. So a full disk refuses a write
//!   and never loses one.
//! * L5: a failed write or sync is never repeated. After it, no record is accepted and nothing becomes stable.
//! * L6: a recovered log continues in a new file, whose header has the LSN at which it continues. So a torn block is never followed by a
//!   new one in its file. Before a file is begun, all blocks of the one before are durable. So recovery syncs the last file before it
//!   continues: a killed process may have written blocks that it did not sync.
//! * L7: the removal of files is not durable before the next sync of the directory, and any of them may come back after a power cut. So the
//!   replay begins with the last file whose first record is at or before its start. Files before that one are not read.
//! * L8: the next file is made when the header of the one before is durable. So a file without a header directly follows the last one with
//!   a header. Otherwise a file is missing.
//!
//! Commit point of a record: the sync of its block. Paper: Bw-tree §V, write-ahead log protocol.

use std::fs::File;
use std::path::{Path, PathBuf};

use pmem::file::{allocate, io};
use pmem::{Error, Result, system};

use crate::buffer::{Entry, Ring, Sealed, WORD};
use crate::header::{self, Header, Kind};
use crate::omission::{Omission, is_omitted};
use crate::place::Place;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::turns::{Turn, Turns};

/// Bytes to which blocks are aligned if they are synced: a sector, so that a torn write of one block does not touch the one before.
pub(crate) const SECTOR: u64 = 512;
/// Bytes to which blocks are aligned if they are not synced: then no write is torn, except the last one of a killed process.
pub(crate) const UNSYNCED: u64 = 8;
pub(crate) const BLOCK: usize = 48;
/// A file with a greater LSN is damaged: a store reaches this one after 8 EiB of log.
pub(crate) const LSN_MAX: u64 = 1 << 60;
pub(crate) const MAGIC: u32 = 0x4b4c_4f42;

/// Sizes of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Number of buffers.
    pub(crate) buffers: usize,
    /// Words of a buffer.
    pub(crate) words: usize,
    /// Bytes of a file.
    pub(crate) file: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { buffers: 4, words: (1 << 20) / WORD, file: 16 << 20 }
    }
}

impl Sizes {
    /// Most bytes that full buffers take in a file, with the headers of their blocks.
    fn pending(&self) -> u64 {
        self.buffers as u64 * ((self.words * WORD) as u64 + 2 * SECTOR)
    }
}

/// A file of the log.
#[derive(Debug)]
struct LogFile {
    file: File,
    path: PathBuf,
    number: u64,
    /// LSN of its first record. The spare file has none yet.
    base: u64,
    /// End of the last block.
    end: u64,
    /// Allocated bytes.
    bytes: u64,
}

/// The files that are written. The others are closed.
#[derive(Debug)]
struct Files {
    /// The file that is written. `None` if an open had no space for it.
    current: Option<LogFile>,
    /// The next file, without a header. `None` if there was no space for it.
    spare: Option<LogFile>,
    /// Older files: number and the LSN of their first record.
    older: Vec<(u64, u64)>,
    next_number: u64,
    /// LSN below which all blocks are durable as promised (L2).
    durable: u64,
    /// LSN below which all blocks are written.
    unsynced: u64,
}

/// The commit log.
#[derive(Debug)]
pub(crate) struct Log {
    place: Place,
    sizes: Sizes,
    ring: Ring,
    files: Mutex<Files>,
    turns: Turns,
    /// L1.
    stable: AtomicU64,
    /// Bytes for which the largest allocated file has room.
    room: AtomicU64,
    /// Bytes of large records that are not written, or are about to be added.
    large: AtomicU64,
    failed: AtomicBool,
    /// True if blocks are synced.
    syncs: bool,
    /// Bytes of blocks that were written since the log was opened, and number of syncs.
    written: std::sync::atomic::AtomicU64,
    synced: std::sync::atomic::AtomicU64,
}

/// Counts of the log's work since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Bytes of blocks.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// LSN after the last record.
    pub end: u64,
    /// LSN up to which all records are durable as promised.
    pub stable: u64,
}

/// The bytes of a large record that is about to be added. They are subtracted again if it is not.
struct Large<'l> {
    all: &'l AtomicU64,
    bytes: u64,
}

impl<'l> Large<'l> {
    fn new(all: &'l AtomicU64, bytes: u64) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { all, bytes }
    }

    /// The record was added: its bytes are subtracted when it is written.
    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Large<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Log {
    /// The log of a new store, or the continuation of a recovered one whose last record ends at `base` and whose files are `older`.
    ///
    /// # Errors
    /// `NoSpace`; `Io`.
    pub(crate) fn begin(
        place: Place,
        sizes: Sizes,
        syncs: bool,
        base: u64,
        older: Vec<(u64, u64)>,
    ) -> Result<Self> {
        let next_number = older.last().map_or(1, |(number, _)| number + 1);
        let files = Files { current: None, spare: None, older, next_number, durable: base, unsynced: base };
        let log = Self {
            ring: Ring::new(sizes.buffers, sizes.words, base),
            place,
            sizes,
            files: Mutex::new(files),
            turns: Turns::new(),
            stable: AtomicU64::new(base),
            room: AtomicU64::new(0),
            large: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            syncs,
            written: 0.into(),
            synced: 0.into(),
        };
        {
            let mut files = lock(&log.files);
            // L8: the last recovered file is durable before the next one is made.
            log.sync_recovered(&files)?;
            let is_recovered = !files.older.is_empty();
            // A full disk does not prevent an open: the first record that finds space begins the file (L4, L6).
            let make = |files: &mut Files| match log.place.make(files, sizes.file) {
                Err(Error::NoSpace { .. }) if is_recovered => Ok(None),
                made => made.map(Some),
            };
            files.spare = make(&mut files)?;
            if files.spare.is_some() {
                log.rotate(&mut files, base)?;
                log.remove_empty(&mut files, base)?;
                // L8.
                files.spare = make(&mut files)?;
            }
            log.note_room(&files);
        }
        Ok(log)
    }

    /// Adds a record, void until it is committed.
    ///
    /// # Errors
    /// `Failed`; `NoSpace`: nothing was added; `Io`.
    pub(crate) fn add(&self, contents: &[u8]) -> Result<Entry<'_>> {
        // L4: before the check for room, so that large records of several threads do not count on the same room.
        let large =
            self.ring.is_large(contents.len()).then(|| Large::new(&self.large, contents.len() as u64));
        loop {
            self.check()?;
            let needed = self.sizes.pending() + self.large.load(Ordering::Relaxed);
            if needed > self.room.load(Ordering::Relaxed) {
                self.provide(needed)?;
            }
            if let Some(entry) = self.ring.add(contents) {
                if let Some(large) = large {
                    large.keep();
                }
                return Ok(entry);
            }
            // All buffers are full.
            let mut files = lock(&self.files);
            self.drain(&mut files)?;
        }
    }

    /// Writes sealed buffers without a sync, if few buffers are free. A thread calls this before it enters the tree: in the tree it would keep
    /// retired memory from being freed while it writes.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn write_ahead(&self) -> Result<()> {
        if !self.ring.is_pressed() {
            return Ok(());
        }
        let mut files = lock(&self.files);
        self.check()?;
        let end =
            self.ring.write_sealed(|sealed| self.write(&mut files, sealed)).inspect_err(|_| self.fail())?;
        if !self.syncs {
            self.stable.fetch_max(end, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Makes all records below `lsn` durable as promised.
    ///
    /// # Errors
    /// `Io`; `Failed` after an earlier error.
    pub(crate) fn commit(&self, lsn: u64) -> Result<()> {
        if self.stable.load(Ordering::Acquire) >= lsn {
            return Ok(());
        }
        // Without syncs a commit takes less time than a thread needs to wake up.
        let is_done = || self.stable.load(Ordering::Acquire) >= lsn || self.check().is_err();
        let turn = if self.syncs { self.turns.take(is_done) } else { None };
        turn.iter().for_each(Turn::gather);
        let mut files = lock(&self.files);
        if self.stable.load(Ordering::Acquire) >= lsn {
            return Ok(());
        }
        self.drain(&mut files)?;
        Ok(())
    }

    /// Makes all records durable as promised. Returns the LSN after the last one. All updates of records below it have happened.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_all(&self) -> Result<u64> {
        let mut files = lock(&self.files);
        self.drain(&mut files)
    }

    /// LSN below which all records are durable as promised.
    pub(crate) fn stable(&self) -> u64 {
        self.stable.load(Ordering::Acquire)
    }

    /// LSN after the last record.
    pub(crate) fn end(&self) -> u64 {
        self.ring.end()
    }

    /// Returns `Failed` after a failed write or sync.
    pub(crate) fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) { Err(Error::Failed) } else { Ok(()) }
    }

    /// Refuses all later records.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(crate) fn stats(&self) -> LogStats {
        LogStats {
            written_bytes: self.written.load(std::sync::atomic::Ordering::Relaxed),
            syncs: self.synced.load(std::sync::atomic::Ordering::Relaxed),
            end: self.end(),
            stable: self.stable(),
        }
    }

    /// Makes all records durable. Returns the number of the file that is written, and the end of its last block. Bytes before that do not
    /// change any more.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn extent(&self) -> Result<Option<(u64, u64)>> {
        let mut files = lock(&self.files);
        self.drain(&mut files)?;
        Ok(files.current.as_ref().map(|file| (file.number, file.end)))
    }

    /// Removes the files whose records are all below `lsn`.
    ///
    /// # Errors
    /// `Io`. A file that was not removed is removed by a later call.
    pub(crate) fn discard_below(&self, lsn: u64) -> Result<()> {
        let mut files = lock(&self.files);
        loop {
            let follower = files.older.get(1).map(|(_, base)| *base);
            let follower = follower.or_else(|| files.current.as_ref().map(|file| file.base));
            let Some((number, _)) = files.older.first().copied() else { return Ok(()) };
            if follower.is_none_or(|base| base > lsn) {
                return Ok(());
            }
            let path = self.place.path(LOG, number);
            system::remove_file(&path).map_err(|source| io("cannot remove", &path, source))?;
            files.older.remove(0);
        }
    }

    /// Removes the file that was allocated for later blocks.
    pub(crate) fn drop_spare(&self) {
        let spare = lock(&self.files).spare.take();
        if let Some(spare) = spare {
            // Its only effect is the space. The next open removes it.
            let _ = system::remove_file(&spare.path);
        }
        self.room.store(0, Ordering::Relaxed);
    }

    /// Writes all sealed buffers and syncs them.
    fn drain(&self, files: &mut Files) -> Result<u64> {
        self.check()?;
        let drained = self.ring.drain(|sealed| self.write(files, sealed));
        let synced = drained.and_then(|end| {
            // Void records count, too: the records behind them continue at their end.
            if files.unsynced > files.durable && self.syncs && !is_omitted(Omission::LogSync) {
                self.sync(files)?;
            }
            Ok(end)
        });
        let end = synced.inspect_err(|_| self.fail())?;
        self.stable.fetch_max(end, Ordering::AcqRel);
        Ok(end)
    }

    fn sync(&self, files: &mut Files) -> Result<()> {
        if let Some(LogFile { file, path, .. }) = &files.current {
            system::sync_data(file, path).map_err(|source| io("cannot sync", path, source))?;
            self.synced.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            files.durable = files.unsynced;
        }
        Ok(())
    }

    /// Bytes to which blocks are aligned.
    fn align(&self) -> u64 {
        if self.syncs { SECTOR } else { UNSYNCED }
    }

    /// Writes a block.
    fn write(&self, files: &mut Files, sealed: Sealed) -> Result<()> {
        let large: u64 = sealed.large.iter().map(|contents| contents.len() as u64).sum();
        let base = sealed.base;
        let end = base + (sealed.words.len() / WORD) as u64;
        let block = encode(self.place.store, files.durable, sealed, self.align());
        let fits = |file: &LogFile| file.end + block.len() as u64 <= file.bytes;
        if !files.current.as_ref().is_some_and(fits) {
            // L6.
            if self.syncs {
                self.sync(files)?;
            }
            if files.spare.is_none() {
                files.spare = Some(self.place.make(files, self.sizes.file)?);
            }
            if let Some(spare) = files.spare.as_mut().filter(|spare| !fits(spare)) {
                spare.grow(header::BYTES as u64 + block.len() as u64)?;
            }
            self.rotate(files, base)?;
            files.spare = self.place.make(files, self.sizes.file).ok();
        }
        let Some(current) = &mut files.current else { return Err(Error::Closed) };
        system::write_all_at(&current.file, &current.path, current.end, &block)
            .map_err(|source| io("cannot write", &current.path, source))?;
        current.end += block.len() as u64;
        files.unsynced = end;
        if !self.syncs {
            files.durable = end;
        }
        self.written.fetch_add(block.len() as u64, std::sync::atomic::Ordering::Relaxed);
        self.large.fetch_sub(large, Ordering::Relaxed);
        self.note_room(files);
        Ok(())
    }

    /// Removes recovered files without records. Each killed process leaves one.
    fn remove_empty(&self, files: &mut Files, base: u64) -> Result<()> {
        while let Some((number, _)) = files.older.last().copied().filter(|(_, first)| *first == base) {
            let path = self.place.path(LOG, number);
            system::remove_file(&path).map_err(|source| io("cannot remove", &path, source))?;
            files.older.pop();
        }
        Ok(())
    }

    /// L6: recovery has read blocks that a killed process wrote and did not sync. Only the last file can have such blocks.
    fn sync_recovered(&self, files: &Files) -> Result<()> {
        let Some((number, _)) = files.older.last().filter(|_| self.syncs) else { return Ok(()) };
        if is_omitted(Omission::RecoveredLog) {
            return Ok(());
        }
        let path = self.place.path(LOG, *number);
        system::open(&system::new_or_found(), &path)
            .and_then(|file| system::sync_all(&file, &path))
            .map_err(|source| io("cannot sync", &path, source))?;
        // L8.
        sync_dir(&self.place.dir)
    }

    /// Makes the spare file the current one. Its first record is at `base`.
    fn rotate(&self, files: &mut Files, base: u64) -> Result<()> {
        let Some(mut next) = files.spare.take() else { return Err(Error::Closed) };
        let header = Header {
            kind: Kind::Log,
            store: self.place.store,
            number: next.number,
            lsn: base,
            text: format!("{} {}", next.bytes, self.align()),
        };
        let sync = || -> Result<()> {
            let synced = if self.syncs { system::sync_all(&next.file, &next.path) } else { Ok(()) };
            synced.map_err(|source| io("cannot sync", &next.path, source))
        };
        // L3: a file with a header has its length.
        sync()?;
        system::write_all_at(&next.file, &next.path, 0, &header.encode())
            .map_err(|source| io("cannot write", &next.path, source))?;
        sync()?;
        if self.syncs {
            sync_dir(&self.place.dir)?;
        }
        next.base = base;
        if let Some(old) = files.current.replace(next) {
            files.older.push((old.number, old.base));
        }
        Ok(())
    }

    /// Allocates a spare file with room for this number of bytes of blocks.
    #[cold]
    fn provide(&self, bytes: u64) -> Result<()> {
        let mut files = lock(&self.files);
        if bytes <= self.room.load(Ordering::Relaxed) {
            return Ok(());
        }
        let wanted = self.sizes.file.max(header::BYTES as u64 + bytes + SECTOR);
        match &mut files.spare {
            Some(spare) => spare.grow(wanted)?,
            None => files.spare = Some(self.place.make(&mut files, wanted)?),
        }
        self.note_room(&files);
        Ok(())
    }

    fn note_room(&self, files: &Files) {
        let room = |file: &LogFile| file.bytes.saturating_sub(file.end);
        let room = files.current.iter().chain(&files.spare).map(room).max();
        self.room.store(room.unwrap_or(0), Ordering::Relaxed);
    }
}

impl LogFile {
    fn grow(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.bytes {
            allocate(&self.file, &self.path, self.bytes, bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

/// The name of log files.
pub(crate) const LOG: &str = "log";

impl Place {
    /// Makes a file of zeros (L3).
    fn make(&self, files: &mut Files, bytes: u64) -> Result<LogFile> {
        let number = files.next_number;
        let path = self.path(LOG, number);
        let how = system::new_or_found();
        let file = system::open(&how, &path).map_err(|source| io("cannot make", &path, source))?;
        let prepared = system::set_len(&file, &path, 0)
            .map_err(|source| io("cannot truncate", &path, source))
            .and_then(|()| allocate(&file, &path, 0, bytes));
        if let Err(error) = prepared {
            let _ = system::remove_file(&path);
            return Err(error);
        }
        files.next_number += 1;
        Ok(LogFile { file, path, number, base: 0, end: header::BYTES as u64, bytes })
    }
}

fn sync_dir(dir: &Path) -> Result<()> {
    system::sync_dir(dir).map_err(|source| io("cannot sync directory", dir, source))
}

fn encode(store: u64, durable: u64, sealed: Sealed, align: u64) -> Vec<u8> {
    let large: usize = sealed.large.iter().map(Vec::len).sum();
    let bytes = BLOCK + sealed.words.len() + large;
    let aligned = bytes.next_multiple_of(align as usize);
    let mut block = Vec::with_capacity(aligned);
    block.extend(MAGIC.to_le_bytes());
    block.extend([0; 4]);
    for number in [store, sealed.base, sealed.words.len() as u64, large as u64, durable] {
        block.extend(number.to_le_bytes());
    }
    block.extend(sealed.words);
    sealed.large.iter().for_each(|contents| block.extend(contents));
    let sum = crc32c::crc32c(&block[8..]);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
    block.resize(aligned, 0);
    block
}
