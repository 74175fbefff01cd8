//! Images that were read ahead, for direct I/O: there the page cache cannot keep them. The upkeep and long scans need many images one after
//! the other, and know them before. With data beyond memory all updates wait for the upkeep, so the reads of its images overlap.
//!
//! Invariants:
//! * E1: the bytes of a segment below [`Segment::written`] never change, and a part is known by the id of its segment, which is never used
//!   twice, as numbers are. So a part stays right until it is displaced.
//! * E2: a part is expected from [`Fetched::expect`] on until the returned value is dropped, whatever happens to the thread that reads it.
//!   So no reader waits for ever.
//! * E3: the parts that were read, and those of one list, take at most the bytes that [`Fetched::new`] gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pmem::direct::{Aligned, BLOCK};
use pmem::ring::{self, Ring};

use crate::segment::Segment;
use crate::sync::{Condvar, Mutex, PoisonError, lock};

/// Number of reads at the same time.
const TOGETHER: u32 = 64;

/// A part of a segment: whole blocks.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    segment: Arc<Segment>,
    from: u64,
    bytes: usize,
}

impl Wanted {
    /// The blocks of the segment that have these bytes.
    pub(crate) fn new(segment: Arc<Segment>, from: u64, bytes: u64) -> Self {
        let before = from % BLOCK as u64;
        let bytes = ((before + bytes) as usize).next_multiple_of(BLOCK);
        Self { segment, from: from - before, bytes }
    }

    fn as_part(&self) -> ring::Part<'_> {
        ring::Part { file: &self.segment.file, at: self.from, bytes: self.bytes }
    }

    fn has(&self, id: u64, from: u64, bytes: usize) -> bool {
        let end = from.saturating_add(bytes as u64);
        id == self.segment.id && from >= self.from && end <= self.from + self.bytes as u64
    }

    /// Bytes of memory of the part.
    fn memory(&self) -> usize {
        self.bytes + BLOCK
    }
}

/// A part that was read.
#[derive(Debug)]
struct Read {
    bytes: Arc<Aligned>,
    memory: usize,
    /// Number of its list.
    list: u64,
    /// True after a use. A part may have several images, and most are used once.
    is_used: bool,
}

#[derive(Debug, Default)]
struct Parts {
    /// By id of the segment, and offset.
    read: BTreeMap<(u64, u64), Read>,
    /// Lists of parts that are expected, and their numbers.
    expected: Vec<(u64, Arc<Vec<Wanted>>)>,
    lists: u64,
    /// Number of threads that wait for an expected part.
    waiting: usize,
}

/// The ring, made when it is needed.
#[derive(Debug)]
enum Reader {
    Unknown,
    Ring(Box<Ring>),
    /// The system has no ring to give, as in many containers, or the ring has failed.
    None,
}

/// Parts that were read ahead.
#[derive(Debug)]
pub(crate) struct Fetched {
    reader: Mutex<Reader>,
    parts: Mutex<Parts>,
    /// Something is not expected any more.
    done: Condvar,
    /// Maximum bytes of the parts that were read, and of those of one list.
    most: usize,
    /// Reads of images that found their part. Only tests read this number.
    hits: AtomicU64,
}

/// Parts that are expected. Readers of them wait until this is dropped.
#[derive(Debug)]
pub(crate) struct Expected {
    fetched: Arc<Fetched>,
    list: u64,
    wanted: Arc<Vec<Wanted>>,
}

impl Fetched {
    /// With at most this number of bytes of parts.
    pub(crate) fn new(most: usize, may_have_ring: bool) -> Self {
        let reader = Mutex::new(if may_have_ring { Reader::Unknown } else { Reader::None });
        Self { reader, parts: Mutex::default(), done: Condvar::new(), most, hits: AtomicU64::new(0) }
    }

    /// Announces parts: the first ones that fit into half of the memory, so that those of the list before can stay (E3).
    pub(crate) fn expect(self: &Arc<Self>, mut wanted: Vec<Wanted>) -> Expected {
        let mut memory = 0;
        wanted.retain(|part| {
            let fits = memory + part.memory() <= self.most / 2;
            memory += if fits { part.memory() } else { 0 };
            fits
        });
        let wanted = Arc::new(wanted);
        let mut parts = lock(&self.parts);
        parts.lists += 1;
        let list = parts.lists;
        parts.expected.push((list, Arc::clone(&wanted)));
        Expected { fetched: Arc::clone(self), list, wanted }
    }

    /// Bytes of a segment, if they were read ahead. Waits for them if they are expected.
    pub(crate) fn get(&self, id: u64, from: u64, bytes: usize) -> Option<Vec<u8>> {
        let mut parts = lock(&self.parts);
        loop {
            let near = parts.read.range_mut((id, 0)..=(id, from)).next_back();
            if let Some(((_, first), read)) = near {
                let from = (from - first) as usize;
                let end = from.checked_add(bytes)?;
                if end <= read.bytes.len() {
                    read.is_used = true;
                    let bytes = Arc::clone(&read.bytes);
                    drop(parts);
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    return bytes.get(from..end).map(<[u8]>::to_vec);
                }
            }
            let mut expected = parts.expected.iter().flat_map(|(_, list)| &**list);
            if !expected.any(|part| part.has(id, from, bytes)) {
                return None;
            }
            parts.waiting += 1;
            parts = self.done.wait(parts).unwrap_or_else(PoisonError::into_inner);
            parts.waiting -= 1;
        }
    }

    /// Number of reads of images that found their part.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Reads parts. `None`: a part could not be read. The thread that needs it tries again, and reports the error.
    fn read(&self, wanted: &[Wanted]) -> Vec<Option<Aligned>> {
        let mut reader = lock(&self.reader);
        if matches!(*reader, Reader::Unknown) {
            *reader = Ring::new(TOGETHER).map_or(Reader::None, |ring| Reader::Ring(Box::new(ring)));
        }
        let mut read: Vec<Option<Aligned>> = match &mut *reader {
            Reader::Ring(ring) => {
                let parts: Vec<_> = wanted.iter().map(Wanted::as_part).collect();
                let read = ring.read(&parts).into_iter().map(Result::ok).collect();
                if ring.is_broken() {
                    *reader = Reader::None;
                }
                read
            }
            Reader::Unknown | Reader::None => wanted.iter().map(|_| None).collect(),
        };
        drop(reader);
        for (own, read) in wanted.iter().zip(&mut read).filter(|(_, read)| read.is_none()) {
            *read = own.segment.read_blocks(own.from, own.bytes).ok();
        }
        read
    }
}

impl Expected {
    /// Reads the parts. Others are displaced, used ones first.
    pub(crate) fn fetch(self) {
        let (fetched, list) = (&*self.fetched, self.list);
        let read = fetched.read(&self.wanted);
        let mut displaced = Vec::new();
        let mut parts = lock(&fetched.parts);
        for (part, bytes) in self.wanted.iter().zip(read) {
            let Some(bytes) = bytes else { continue };
            let read = Read { bytes: Arc::new(bytes), memory: part.memory(), list, is_used: false };
            displaced.extend(parts.read.insert((part.segment.id, part.from), read));
        }
        let mut total: usize = parts.read.values().map(|read| read.memory).sum();
        if total > fetched.most {
            let mut by_worth: Vec<_> =
                parts.read.iter().map(|(at, read)| (!read.is_used, read.list, *at)).collect();
            by_worth.sort_unstable();
            for (.., at) in by_worth {
                if total <= fetched.most {
                    break;
                }
                let read = parts.read.remove(&at);
                total -= read.as_ref().map_or(0, |read| read.memory);
                displaced.extend(read);
            }
        }
        // The memory of the displaced ones is freed without the lock.
        drop(parts);
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        lock(&self.fetched.parts).expected.retain(|(list, _)| *list != self.list);
        self.fetched.done.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const BYTES: usize = 40 * BLOCK;

    /// A segment in which each word is its offset.
    fn segment() -> Arc<Segment> {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..BYTES as u64 / 8).flat_map(|word| (word * 8).to_le_bytes()).collect();
        file.write_all_at(&bytes, 0).unwrap();
        Arc::new(Segment::new(file, "segment".into(), BYTES as u64, None))
    }

    fn first(bytes: Option<Vec<u8>>) -> Option<u64> {
        bytes.map(|bytes| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
    }

    /// Parts that begin and end within blocks are found; others of the segment and of other segments are not.
    #[test]
    fn parts_are_read_ahead() {
        for has_ring in [false, true] {
            let (fetched, segment) = (Arc::new(Fetched::new(1 << 20, has_ring)), segment());
            let wanted = [(64, 100), (3 * 4096 - 64, 128), (20 * 4096, 8192)];
            let wanted = wanted.map(|(from, bytes)| Wanted::new(Arc::clone(&segment), from, bytes));
            fetched.expect(wanted.to_vec()).fetch();
            for (from, bytes) in
                [(64, 100), (3 * 4096 - 64, 128), (20 * 4096, 8192), (21 * 4096 + 8, 4088), (0, 8)]
            {
                let read = fetched.get(segment.id, from, bytes);
                assert_eq!(read.as_ref().map(Vec::len), Some(bytes));
                assert_eq!(first(read), Some(from));
                assert_eq!(fetched.get(segment.id + 1, from, bytes), None);
            }
            for (from, bytes) in [(4096, 8), (4088, 16), (22 * 4096 - 8, 16), (u64::MAX, 8)] {
                assert_eq!(fetched.get(segment.id, from, bytes), None, "{from}");
            }
        }
    }

    /// E3.
    #[test]
    fn the_last_parts_stay() {
        // Ten parts of a block, with the memory for their alignment.
        let (fetched, segment) = (Arc::new(Fetched::new(20 * BLOCK, true)), segment());
        let fetch =
            |block: u64| fetched.expect(vec![Wanted::new(Arc::clone(&segment), block * 4096, 8)]).fetch();
        (0..30).for_each(fetch);
        // Two are used, so they go first.
        for block in [25, 29] {
            assert_eq!(first(fetched.get(segment.id, block * 4096, 8)), Some(block * 4096));
        }
        (30..32).for_each(fetch);
        let found: Vec<u64> =
            (0..40).filter(|block| fetched.get(segment.id, block * 4096, 8).is_some()).collect();
        assert_eq!(found, [20, 21, 22, 23, 24, 26, 27, 28, 30, 31]);
        // A list takes at most half: five of these.
        let other = self::segment();
        let list = (0..10).map(|block| Wanted::new(Arc::clone(&other), block * 4096, 8)).collect();
        fetched.expect(list).fetch();
        let found: Vec<u64> =
            (0..40).filter(|block| fetched.get(other.id, block * 4096, 8).is_some()).collect();
        assert_eq!(found, [0, 1, 2, 3, 4]);
        assert_eq!(fetched.hits(), 2 + 10 + 5);
    }

    /// A part that reaches behind the end of the file, as after a damage, is not there.
    #[test]
    fn a_part_that_is_not_in_the_file_is_not_found() {
        for has_ring in [false, true] {
            let (fetched, segment) = (Arc::new(Fetched::new(1 << 20, has_ring)), segment());
            fetched.expect(vec![Wanted::new(Arc::clone(&segment), BYTES as u64 - 8, 100)]).fetch();
            assert_eq!(first(fetched.get(segment.id, BYTES as u64 - 8, 8)), Some(BYTES as u64 - 8));
            assert_eq!(fetched.get(segment.id, BYTES as u64 - 8, 100), None);
        }
    }

    /// E2. A reader waits for an expected part until it was read, or until it is given up.
    #[test]
    fn readers_wait_for_expected_parts() {
        for is_read in [true, false] {
            let (fetched, segment) = (Arc::new(Fetched::new(1 << 20, true)), segment());
            let id = segment.id;
            let expected = fetched.expect(vec![Wanted::new(segment, 4096, 8)]);
            let (tell, told) = std::sync::mpsc::channel();
            let own = Arc::clone(&fetched);
            std::thread::spawn(move || tell.send(first(own.get(id, 4096, 8))));
            while lock(&fetched.parts).waiting == 0 {
                std::thread::yield_now();
            }
            // Another part is not waited for.
            assert_eq!(fetched.get(id, 0, 8), None);
            if is_read {
                expected.fetch()
            } else {
                drop(expected)
            }
            // Far longer than any read takes.
            let found = told.recv_timeout(std::time::Duration::from_secs(60));
            assert_eq!(found, Ok(is_read.then_some(4096)));
        }
    }
}
