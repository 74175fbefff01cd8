//! Images of leaves, in segment files that are written from the front to the end and never changed.
//!
//! ```text
//! file      header (512 bytes) | image | image | …
//! image     magic: u32 | CRC-32C of the rest: u32 | id of the store: u64 | bytes, the highest bit if it is packed: u64 |
//!           LSN after the log's last record: u64 | number of the image since the open: u64 | bytes … | zeros up to a multiple of 64
//!           zeros up to a multiple of 4096 behind the last image of a direct write
//! address   0: 1 bit | packed: 1 bit | segment: 24 bits | offset / 64: 20 bits | length / 64: 18 bits, 0 if it needs more
//! ```
//!
//! Invariants:
//! * P1: an image is read from its file when it is written, and from a buffer before. A leaf in memory is evicted only when its image is
//!   written ([`Segments::is_written`]). A buffer that is *handed over* stays until it is written: by a helper, or by the next call that
//!   needs that. The next buffer of the same kind is handed over after that. So each file is written from the front to the end.
//! * P2: a checkpoint is published only when the segments of its images are synced.
//! * P3: a segment is removed only when no current image and no image of the published checkpoint is in it, and the checkpoint is durable.
//!   The base of changes that were made since the checkpoint began is current, too ([`Segments::begin_checkpoint`]).
//! * P4: a recovered store continues in a new segment.
//! * P5: behind the greatest number, the numbers of removed segments are used again, from the least one on. So a store may write any number of
//!   segments during its life. An address that a reader, or a leaf in memory, has from before is that of another
//!   image only if all numbers were used meanwhile: 64 TiB of images at least.
//!
//! Changes are replaced far sooner than whole images, so each kind has segments of its own. Segments of changes soon have no live image.
//!
//! One thread at a time appends and removes; any number of threads read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use bwtree::guide::PIECE;
use bwtree::{Address, ImageKind, Shelf};
use pmem::direct::{self, Aligned};
use pmem::file::{io, will_read};
use pmem::system::OWNER;
use pmem::{Error, Result, system};

use crate::fetched::{Fetched, Wanted};
use crate::head::{self, HEAD, Head, UNSUMMED};
use crate::header::{self, Header, Kind};
use crate::helper::Helper;
use crate::omission::{Omission, is_omitted};
use crate::packed::{Packer, space, unpack};
use crate::pieces::Pieces;
use crate::place::Place;
use crate::segment::{Parts, SEGMENT, SEGMENT_MAX, Segment, UNIT};
use crate::settings::Settings;
use crate::stream::{BUFFER, Stream};
use crate::sync::{Mutex, PoisonError, lock};

/// The name of segments.
pub(crate) const PAGES: &str = "pages";
/// A prefetch also reads bytes that it does not need, if at most this number are between two images. A read has a cost of its own.
const NEAR: u64 = 8 << 10;

/// A prefetch adds no image to a read that is longer than this number of bytes.
const READ: u64 = 256 << 10;

/// Opens a file of a segment. `action` is for the text of an error.
fn open_file(how: &mut OpenOptions, path: &Path, action: &'static str, is_direct: bool) -> Result<File> {
    if is_direct {
        direct::set(how);
    }
    system::open(how, path).map_err(|source| match is_direct && direct::is_refused(&source) {
        true => refused(path, source),
        false => io(action, path, source),
    })
}

fn refused(path: &Path, source: std::io::Error) -> Error {
    io("its file system has no direct I/O, open the store without it:", path, source)
}

/// Writes a block with direct I/O, to a file that is removed before. So an open is refused, and not a later write.
fn try_direct(place: &Place, block: usize) -> Result<()> {
    let path = place.dir.join(format!("{}.direct", place.stem));
    let mut how = OpenOptions::new();
    direct::set(how.write(true).create(true).truncate(true).mode(OWNER));
    let done = system::open(&how, &path).and_then(|file| {
        system::remove_file(&path)?;
        system::write_all_at(&file, &path, 0, &Aligned::zeroed(block))
    });
    match done {
        Err(source) if direct::is_refused(&source) => Err(refused(&path, source)),
        // A full disk does not prevent an open.
        _ => Ok(()),
    }
}

/// The segments to which nothing was appended after a moment. Their numbers are not ordered by age (P5).
#[derive(Clone, Debug)]
pub(crate) struct Filled(BTreeSet<u64>);

impl Filled {
    /// True if a segment is one of them.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.0.contains(&number)
    }
}

/// The segments that are appended to.
#[derive(Debug, Default)]
struct Writer {
    /// One for each kind of images.
    streams: [Stream; 2],
    next_number: u64,
    /// Number of images since the open.
    images: u64,
    /// Segments of the bases of changes that were made since the last checkpoint began (P3).
    bases: BTreeSet<u64>,
    /// Segments that were written to since the last sync.
    unsynced: Vec<Arc<Segment>>,
}

/// The segments of a store.
#[derive(Debug)]
pub(crate) struct Segments {
    place: Place,
    /// Bytes of a segment at which the next one begins.
    bytes: AtomicU64,
    /// Small segments are those of tests: no other thread writes or reads ahead.
    is_small: bool,
    syncs: bool,
    /// Compresses images. `None`: they are not compressed.
    packer: Option<Mutex<Packer>>,
    /// With direct I/O: bytes of which writes are multiples, and images that were read ahead.
    block: Option<usize>,
    fetched: Option<Arc<Fetched>>,
    open: RwLock<BTreeMap<u64, Arc<Segment>>>,
    writer: Mutex<Writer>,
    /// Reads images ahead, or asks the system for them. Started when it is needed, as is the next one.
    reader: OnceLock<Option<Helper>>,
    /// Writes buffers that are handed over.
    writing: OnceLock<Option<Helper>>,
    /// The error of the last failed read of an image.
    error: Mutex<Option<Error>>,
    written: AtomicU64,
    read: AtomicU64,
    /// Bytes that compression has saved.
    saved: AtomicU64,
}

impl Segments {
    /// The segments with these numbers, to which nothing is appended any more. All other segments are removed: their images belong to no
    /// checkpoint.
    ///
    /// # Errors
    /// `Foreign`, also if one is missing; `Io`.
    pub(crate) fn open(place: Place, settings: &Settings, used: &[u64], compresses: bool) -> Result<Self> {
        let (syncs, may_remove) = (settings.survives_power, !settings.read_only);
        let block = settings.direct_io.then(|| settings.block());
        if let Some(block) = block.filter(|_| may_remove) {
            try_direct(&place, block)?;
        }
        let mut open = BTreeMap::new();
        let found = place.numbers(PAGES)?;
        for number in used {
            let path = place.path(PAGES, *number);
            if !found.contains(number) {
                return Err(Error::Foreign { path, why: "a segment of the checkpoint is missing" });
            }
            let file = open_file(OpenOptions::new().read(true), &path, "cannot open", block.is_some())?;
            let length =
                system::inspect(&file, &path).map_err(|source| io("cannot inspect", &path, source))?.len();
            let segment = Segment::new(file, path, length, block);
            let head = segment.read(0, header::BYTES)?;
            let header = Header::decode(&head, Kind::Segment, place.store, &segment.path)?;
            if header.number != *number {
                let why = "its header is that of another file of the store";
                return Err(Error::Foreign { path: segment.path, why });
            }
            open.insert(*number, Arc::new(segment));
        }
        let unused: Vec<&u64> = found.iter().filter(|number| may_remove && !used.contains(number)).collect();
        if syncs && !unused.is_empty() && !is_omitted(Omission::RecoveredNames) {
            // P3: a killed process may have renamed the checkpoint without a sync. Then the one before can still come back.
            system::sync_dir(&place.dir).map_err(|source| io("cannot sync directory", &place.dir, source))?;
        }
        for number in unused {
            let path = place.path(PAGES, *number);
            system::remove_file(&path).map_err(|source| io("cannot remove", &path, source))?;
        }
        // A file with a greater number was not made by a store.
        let next_number = found.iter().rfind(|number| **number <= SEGMENT_MAX).map_or(1, |last| last + 1);
        let packer = compresses.then(Mutex::default);
        let most = settings.fetched_bytes() as usize;
        let fetched = block.map(|_| Arc::new(Fetched::new(most, !settings.is_small)));
        let usual = Self::of(place, settings.segment(0), syncs, open, next_number);
        Ok(Self { packer, block, fetched, is_small: settings.is_small, ..usual })
    }

    /// All segments that can be read, also those with a damaged header. Only for salvage.
    ///
    /// # Errors
    /// `Io` if the directory cannot be read.
    pub(crate) fn salvage(place: Place) -> Result<Self> {
        let mut open = BTreeMap::new();
        for number in place.numbers(PAGES)? {
            let path = place.path(PAGES, number);
            let file = system::open(OpenOptions::new().read(true), &path);
            let length = file.as_ref().ok().and_then(|file| system::inspect(file, &path).ok());
            if let (Ok(file), Some(length)) = (file, length) {
                open.insert(number, Arc::new(Segment::new(file, path, length.len(), None)));
            }
        }
        Ok(Self::of(place, SEGMENT, false, open, 0))
    }

    fn of(
        place: Place,
        bytes: u64,
        syncs: bool,
        open: BTreeMap<u64, Arc<Segment>>,
        next_number: u64,
    ) -> Self {
        Self {
            place,
            bytes: bytes.into(),
            is_small: false,
            syncs,
            packer: None,
            block: None,
            fetched: None,
            open: RwLock::new(open),
            reader: OnceLock::new(),
            writing: OnceLock::new(),
            error: Mutex::new(None),
            writer: Mutex::new(Writer { next_number, ..Writer::default() }),
            written: 0.into(),
            read: 0.into(),
            saved: 0.into(),
        }
    }

    /// The good images of a segment: the LSN and the number of each, and its address.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn images(&self, number: u64) -> Result<Vec<((u64, u64), Address)>> {
        let Some(segment) = self.find(number) else { return Ok(Vec::new()) };
        let mut pieces = Pieces::open(&segment.path)?;
        let (mut images, mut at) = (Vec::new(), header::BYTES as u64);
        while at + HEAD as u64 <= pieces.len() {
            let head = Head::decode(pieces.get(at, HEAD)?, self.place.store);
            let bytes = head.map_or(0, |head| head.bytes.saturating_add(HEAD as u64));
            let sum = pieces.sum(at, bytes, UNSUMMED)?;
            let Some(head) = head.filter(|head| sum == Some(head.sum)) else {
                at += UNIT;
                continue;
            };
            let bytes = bytes.next_multiple_of(UNIT);
            let parts = Parts { segment: number, offset: at, bytes, is_packed: head.is_packed };
            images.extend(parts.pack().map(|address| ((head.lsn, head.number), address)));
            at += bytes;
        }
        Ok(images)
    }

    /// Bytes of a segment at which the next one begins.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Lets segments from now on begin when the one before has this number of bytes.
    pub(crate) fn resize(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn find(&self, number: u64) -> Option<Arc<Segment>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// Appends an image. Salvage orders images by `lsn` and their numbers.
    ///
    /// # Errors
    /// `NoSpace`; `Io`; `Full` if there are too many segments.
    pub(crate) fn append(&self, image: &[u8], kind: ImageKind, lsn: u64) -> Result<Address> {
        // Before the lock that readers of buffers need.
        let mut packer = self.packer.as_ref().map(lock);
        let packed = packer.as_mut().and_then(|packer| packer.pack(image));
        let (contents, is_packed) = (packed.unwrap_or(image), packed.is_some());
        let mut writer = lock(&self.writer);
        let bytes = space(contents.len());
        let stream = &writer.streams[kind as usize];
        let end = stream.at + stream.buffer.len() as u64;
        if stream.current.is_none() || (end + bytes as u64 > self.bytes() && end > header::BYTES as u64) {
            self.begin(&mut writer, kind)?;
        }
        let Writer { streams, unsynced, images, .. } = &mut *writer;
        *images += 1;
        let stream = &mut streams[kind as usize];
        let Some((segment, _)) = stream.current else { return Err(Error::Closed) };
        let buffer = &mut stream.buffer;
        let offset = stream.at + buffer.len() as u64;
        let parts = Parts { segment, offset, bytes: bytes as u64, is_packed };
        let address = parts.pack().ok_or(Error::Full { max_bytes: self.bytes() * SEGMENT_MAX })?;
        let from = buffer.len();
        head::append(buffer, self.place.store, contents, is_packed, (lsn, *images));
        buffer.resize(from + bytes, 0);
        stream.saved += (space(image.len()) - bytes) as u64;
        if let Some(packer) = &mut packer {
            packer.shrink();
        }
        if stream.buffer.len() >= BUFFER {
            self.hand_over(stream, unsynced)?;
        }
        Ok(address)
    }

    /// Writes all images that were appended (P1).
    ///
    /// # Errors
    /// `NoSpace`: a later call tries again; `Io`.
    pub(crate) fn write_all(&self) -> Result<()> {
        self.write_streams(&mut lock(&self.writer))
    }

    fn write_streams(&self, Writer { streams, unsynced, .. }: &mut Writer) -> Result<()> {
        streams.iter_mut().try_for_each(|stream| self.write(stream, unsynced))
    }

    /// Makes all images that were appended durable, if the store promises to survive a power cut (P2).
    ///
    /// # Errors
    /// `NoSpace`; `Io`: after a failed sync the images may be lost, so the caller must fail.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut writer = lock(&self.writer);
        self.write_streams(&mut writer)?;
        for segment in std::mem::take(&mut writer.unsynced) {
            if self.syncs && !is_omitted(Omission::ImageSync) {
                system::sync_all(&segment.file, &segment.path)
                    .map_err(|source| io("cannot sync", &segment.path, source))?;
            }
        }
        if self.syncs {
            system::sync_dir(&self.place.dir)
                .map_err(|source| io("cannot sync directory", &self.place.dir, source))?;
        }
        Ok(())
    }

    /// Lets another thread write all images that were appended. Waits until those of the call before are written.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all), for the images of the call before.
    pub(crate) fn hand_over_all(&self) -> Result<()> {
        let mut writer = lock(&self.writer);
        let Writer { streams, unsynced, .. } = &mut *writer;
        streams.iter_mut().try_for_each(|stream| self.hand_over(stream, unsynced))
    }

    fn hand_over(&self, stream: &mut Stream, unsynced: &mut Vec<Arc<Segment>>) -> Result<()> {
        // In tests, the next call writes the buffer.
        let helper = (!self.is_small).then(|| self.writing.get_or_init(|| Helper::start("page-writer")));
        self.empty(stream, unsynced, |stream| stream.hand_over(helper.and_then(Option::as_ref)))
    }

    fn write(&self, stream: &mut Stream, unsynced: &mut Vec<Arc<Segment>>) -> Result<()> {
        self.empty(stream, unsynced, Stream::write)
    }

    /// Lets `work` empty the buffer of a stream.
    fn empty(
        &self,
        stream: &mut Stream,
        unsynced: &mut Vec<Arc<Segment>>,
        work: impl FnOnce(&mut Stream) -> Result<()>,
    ) -> Result<()> {
        if let Some((_, segment)) = stream.current.as_ref().filter(|_| !stream.buffer.is_empty())
            && !unsynced.iter().any(|other| Arc::ptr_eq(other, segment))
        {
            unsynced.push(Arc::clone(segment));
        }
        let at = stream.at;
        let done = work(stream);
        // A buffer that stays is counted later.
        if stream.at > at {
            self.written.fetch_add(stream.at - at, Ordering::Relaxed);
            self.saved.fetch_add(std::mem::take(&mut stream.saved), Ordering::Relaxed);
        }
        done
    }

    /// The first number from this one on that no segment has, then those below it (P5).
    fn unused_number(&self, from: u64) -> Result<u64> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = (from..=SEGMENT_MAX).chain(1..from.min(SEGMENT_MAX + 1));
        numbers
            .find(|number| !open.contains_key(number))
            .ok_or(Error::Full { max_bytes: self.bytes() * SEGMENT_MAX })
    }

    /// Begins the next segment.
    fn begin(&self, writer: &mut Writer, kind: ImageKind) -> Result<()> {
        self.hand_over(&mut writer.streams[kind as usize], &mut writer.unsynced)?;
        let number = self.unused_number(writer.next_number)?;
        let path = self.place.path(PAGES, number);
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(true).mode(OWNER);
        let file = open_file(&mut how, &path, "cannot make", self.block.is_some())?;
        let text = String::new();
        let header = Header { kind: Kind::Segment, store: self.place.store, number, lsn: 0, text };
        let segment = Arc::new(Segment::new(file, path, 0, self.block));
        writer.next_number = number + 1;
        let stream = &mut writer.streams[kind as usize];
        stream.buffer.extend(header.encode());
        (stream.current, stream.at) = (Some((number, Arc::clone(&segment))), 0);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, segment);
        Ok(())
    }

    /// The error of the last failed read of an image, once.
    pub(crate) fn take_error(&self) -> Option<Error> {
        lock(&self.error).take()
    }

    /// True if an image is in its file.
    pub(crate) fn is_written(&self, address: Address) -> bool {
        let parts = Parts::of(address);
        is_omitted(Omission::Written)
            || self.find(parts.segment).is_some_and(|segment| parts.offset < segment.written())
    }

    /// Begins a checkpoint: returns the segments to which nothing is appended any more.
    pub(crate) fn begin_checkpoint(&self) -> Filled {
        let mut writer = lock(&self.writer);
        writer.bases.clear();
        let current = writer.streams.each_ref().map(|stream| stream.current.as_ref().map(|own| own.0));
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        Filled(open.keys().copied().filter(|number| !current.contains(&Some(*number))).collect())
    }

    /// True if a segment has the base of changes that were made since the last checkpoint began (P3).
    pub(crate) fn is_base(&self, number: u64) -> bool {
        !is_omitted(Omission::Bases) && lock(&self.writer).bases.contains(&number)
    }

    /// All segments, with their bytes.
    pub(crate) fn sizes(&self) -> Vec<(u64, u64)> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.iter().map(|(number, segment)| (*number, segment.written())).collect()
    }

    /// Removes segments (P3).
    ///
    /// # Errors
    /// `Io`. The next open removes the rest.
    pub(crate) fn remove(&self, numbers: &[u64]) -> Result<()> {
        for number in numbers {
            let segment = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(number);
            if let Some(segment) = segment {
                system::remove_file(&segment.path)
                    .map_err(|source| io("cannot remove", &segment.path, source))?;
                // The close returns the file's blocks to the file system, which may take long. No write waits behind it.
                if let Some(helper) = self.reader.get().and_then(Option::as_ref) {
                    helper.run(move || drop(segment));
                }
            }
        }
        Ok(())
    }

    /// Bytes that were written to segments and read from them since the store was opened.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.read.load(Ordering::Relaxed))
    }

    /// True if new images are compressed.
    pub(crate) fn compresses(&self) -> bool {
        self.packer.is_some()
    }

    /// Bytes that compression has saved since the store was opened.
    pub(crate) fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// An image that is not written yet (P1).
    fn buffered(&self, parts: Parts, segment: &Segment) -> Option<Vec<u8>> {
        if parts.offset < segment.written() || is_omitted(Omission::Written) {
            return None;
        }
        let writer = lock(&self.writer);
        // None: it was written meanwhile.
        let image = writer.streams.iter().find_map(|stream| stream.bytes(parts.segment, parts.offset))?;
        let Head { bytes, is_packed, .. } = Head::decode(image, self.place.store)?;
        let contents = image.get(HEAD..HEAD.checked_add(bytes as usize)?)?.to_vec();
        drop(writer);
        if is_packed { unpack(&contents) } else { Some(contents) }
    }

    fn unreadable(&self, error: Error) -> bwtree::Error {
        let why = error.to_string();
        *lock(&self.error) = Some(error);
        bwtree::Error::Unreadable { why }
    }

    /// Reads a part of the bytes of an image, unchecked.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the segment is missing.
    fn part(&self, address: Address, part: Range<usize>) -> Result<Vec<u8>> {
        let parts = Parts::of(address);
        let segment =
            self.find(parts.segment).ok_or(Error::Corrupt { what: "image of a page", at: parts.offset })?;
        if let Some(image) = self.buffered(parts, &segment) {
            return Ok(image.get(part).unwrap_or_default().to_vec());
        }
        if parts.is_packed {
            return Ok(self.image(address)?.get(part).unwrap_or_default().to_vec());
        }
        let read = segment.read(parts.offset + (HEAD + part.start) as u64, part.len())?;
        self.read.fetch_add(read.len() as u64, Ordering::Relaxed);
        Ok(read)
    }

    /// Reads an image, checked.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn image(&self, address: Address) -> Result<Vec<u8>> {
        let parts = Parts::of(address);
        let corrupt = || Error::Corrupt { what: "image of a page", at: parts.offset };
        let segment = self.find(parts.segment).ok_or_else(corrupt)?;
        if let Some(image) = self.buffered(parts, &segment) {
            return Ok(image);
        }
        let read = |bytes: usize| {
            let fetched = self.fetched.as_ref().and_then(|own| own.get(segment.id, parts.offset, bytes));
            fetched.map_or_else(|| segment.read(parts.offset, bytes), Ok)
        };
        let mut image = read(if parts.bytes > 0 { parts.bytes as usize } else { HEAD })?;
        let Head { sum, bytes, is_packed, .. } =
            Head::decode(&image, self.place.store).ok_or_else(corrupt)?;
        // No length beyond the file is believed.
        if bytes > segment.written().saturating_sub(parts.offset) {
            return Err(corrupt());
        }
        let end = HEAD + bytes as usize;
        if parts.bytes == 0 {
            image = read(end)?;
        }
        if image.len() < end || crc32c::crc32c(&image[UNSUMMED..end]) != sum {
            return Err(corrupt());
        }
        self.read.fetch_add(end as u64, Ordering::Relaxed);
        image.truncate(end);
        if is_packed != parts.is_packed {
            return Err(corrupt());
        }
        if is_packed {
            return unpack(&image[HEAD..]).ok_or_else(corrupt);
        }
        image.drain(..HEAD);
        Ok(image)
    }
}

impl Shelf for Segments {
    fn read(&self, address: Address) -> bwtree::Result<Vec<u8>> {
        self.image(address).map_err(|error| self.unreadable(error))
    }

    fn read_part(&self, address: Address, part: Range<usize>) -> bwtree::Result<Vec<u8>> {
        self.part(address, part).map_err(|error| self.unreadable(error))
    }

    fn first_piece(&self, address: Address) -> usize {
        let parts = Parts::of(address);
        if parts.is_packed { usize::MAX } else { PIECE - (parts.offset as usize + HEAD) % PIECE }
    }

    fn prefetch(&self, addresses: &mut [Address]) {
        addresses.sort_unstable_by_key(|address| {
            let Parts { segment, offset, .. } = Parts::of(*address);
            (segment, offset)
        });
        let mut images = addresses.iter().map(|address| Parts::of(*address)).peekable();
        let mut wanted = Vec::with_capacity(addresses.len());
        while let Some(first) = images.next() {
            // Images that are near each other are one read.
            let mut end = first.offset + first.bytes.max(UNIT);
            let is_near = |next: &Parts, end: u64| {
                next.segment == first.segment && next.offset <= end + NEAR && end - first.offset < READ
            };
            while let Some(next) = images.next_if(|next| is_near(next, end)) {
                end = next.offset + next.bytes.max(UNIT);
            }
            if let Some(segment) = self.find(first.segment) {
                let end = end.min(segment.written());
                if first.offset < end {
                    wanted.push((segment, first.offset, end - first.offset));
                }
            }
        }
        // A reader asks for one image, and needs it now.
        let may_wait = addresses.len() > 1 && !self.is_small;
        let helper = may_wait.then(|| self.reader.get_or_init(|| Helper::start("read-ahead")));
        let helper = helper.and_then(Option::as_ref);
        let work: Box<dyn FnOnce() + Send> = match &self.fetched {
            None => Box::new(move || {
                wanted.iter().for_each(|(segment, from, bytes)| will_read(&segment.file, *from, *bytes));
            }),
            Some(fetched) if helper.is_some() => {
                let wanted = wanted.into_iter();
                let wanted = wanted.map(|(segment, from, bytes)| Wanted::new(segment, from, bytes));
                let expected = fetched.expect(wanted.collect());
                Box::new(move || expected.fetch())
            }
            // The caller reads one image after the other.
            Some(_) => return,
        };
        match helper {
            Some(helper) => helper.run(work),
            None => work(),
        }
    }

    fn size(&self, address: Address) -> usize {
        // A guess: unpacked, text is about twice as long.
        let Parts { bytes, is_packed, .. } = Parts::of(address);
        bytes as usize * if is_packed { 2 } else { 1 }
    }

    fn is_kept(&self, address: Address) -> bool {
        let number = Parts::of(address).segment;
        let is_kept = self.find(number).is_some();
        if is_kept {
            lock(&self.writer).bases.insert(number);
        }
        is_kept
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
