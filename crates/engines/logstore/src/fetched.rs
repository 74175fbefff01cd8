//! Images that were read ahead, for direct I/O: there the page cache cannot keep them. The upkeep needs many images one after the other, and
//! knows them before. With data beyond memory all updates wait for the upkeep, so the reads of its images overlap.
//!
//! Invariants:
//! * E1: the bytes of a segment below [`Segment::written`] never change, and no number of a segment is used twice. So a part stays right until
//!   it is displaced.
//! * E2: a part is expected from [`Fetched::expect`] on until the returned value is dropped, whatever happens to the thread that reads it. So no
//!   reader waits for ever.

use std::collections::VecDeque;
use std::sync::Arc;

use pmem::direct::{Aligned, BLOCK};
use pmem::ring::{self, Ring};

use crate::segment::Segment;
use crate::sync::{Condvar, Mutex, PoisonError, lock};

/// Number of reads at the same time.
const TOGETHER: u32 = 64;

/// A part of a segment: whole blocks.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    number: u64,
    segment: Arc<Segment>,
    from: u64,
    bytes: usize,
}

impl Wanted {
    /// The blocks of segment `number` with these bytes.
    pub(crate) fn new(number: u64, segment: Arc<Segment>, from: u64, bytes: u64) -> Self {
        let before = from % BLOCK as u64;
        let bytes = ((before + bytes) as usize).next_multiple_of(BLOCK);
        Self { number, segment, from: from - before, bytes }
    }

    fn as_part(&self) -> ring::Part<'_> {
        ring::Part { file: &self.segment.file, at: self.from, bytes: self.bytes }
    }

    fn has(&self, number: u64, from: u64, bytes: usize) -> bool {
        let end = from.saturating_add(bytes as u64);
        number == self.number && from >= self.from && end <= self.from + self.bytes as u64
    }
}

#[derive(Debug, Default)]
struct Parts {
    /// The parts that were read last.
    read: VecDeque<(Wanted, Aligned)>,
    /// Lists of parts that are expected, and their numbers.
    expected: Vec<(u64, Vec<Wanted>)>,
    lists: u64,
}

/// Parts that were read ahead.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// `None`: the system has no ring to give, as in many containers.
    ring: Mutex<Option<Ring>>,
    parts: Mutex<Parts>,
    /// Something is not expected any more.
    done: Condvar,
    /// Maximum bytes of the parts.
    most: usize,
}

/// Parts that are expected. Readers of them wait until this is dropped.
#[derive(Debug)]
pub(crate) struct Expected {
    fetched: Arc<Fetched>,
    list: u64,
}

impl Fetched {
    pub(crate) fn new(most: usize, has_ring: bool) -> Self {
        let ring = if has_ring { Ring::new(TOGETHER).ok() } else { None };
        Self { ring: Mutex::new(ring), parts: Mutex::default(), done: Condvar::new(), most }
    }

    /// Announces parts.
    pub(crate) fn expect(self: &Arc<Self>, wanted: Vec<Wanted>) -> Expected {
        let mut parts = lock(&self.parts);
        parts.lists += 1;
        let list = parts.lists;
        parts.expected.push((list, wanted));
        Expected { fetched: Arc::clone(self), list }
    }

    /// Bytes of a segment, if they were read ahead. Waits for them if they are expected.
    pub(crate) fn get(&self, number: u64, from: u64, bytes: usize) -> Option<Vec<u8>> {
        let mut parts = lock(&self.parts);
        loop {
            let read = parts.read.iter().rev().find(|(part, _)| part.has(number, from, bytes));
            if let Some((part, read)) = read {
                let from = (from - part.from) as usize;
                return read.get(from..from + bytes).map(<[u8]>::to_vec);
            }
            let mut expected = parts.expected.iter().flat_map(|(_, list)| list);
            if !expected.any(|part| part.has(number, from, bytes)) {
                return None;
            }
            parts = self.done.wait(parts).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads parts. `None`: a part could not be read. The thread that needs it tries again, and reports the error.
    fn read(&self, wanted: &[Wanted]) -> Vec<Option<Aligned>> {
        match &mut *lock(&self.ring) {
            Some(ring) => {
                let parts: Vec<_> = wanted.iter().map(Wanted::as_part).collect();
                ring.read(&parts).into_iter().map(Result::ok).collect()
            }
            None => wanted.iter().map(|own| own.segment.read_blocks(own.from, own.bytes).ok()).collect(),
        }
    }
}

impl Expected {
    /// Reads the parts. Older ones are displaced.
    pub(crate) fn fetch(self) {
        let fetched = &*self.fetched;
        let list = lock(&fetched.parts).expected.iter().find(|(list, _)| *list == self.list).cloned();
        let wanted = list.map_or_else(Vec::new, |(_, wanted)| wanted);
        let read = fetched.read(&wanted);
        let mut parts = lock(&fetched.parts);
        parts.read.extend(wanted.into_iter().zip(read).filter_map(|(part, read)| Some((part, read?))));
        let mut total: usize = parts.read.iter().map(|(_, read)| read.len()).sum();
        while total > fetched.most
            && let Some((_, read)) = parts.read.pop_front()
        {
            total -= read.len();
        }
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
    use std::sync::atomic::AtomicU64;

    use super::*;

    const BYTES: usize = 40 * BLOCK;

    /// A segment in which each word is its offset.
    fn segment() -> Arc<Segment> {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..BYTES as u64 / 8).flat_map(|word| (word * 8).to_le_bytes()).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let written = AtomicU64::new(BYTES as u64);
        Arc::new(Segment { file, path: "segment".into(), written, block: None })
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
            let wanted = wanted.map(|(from, bytes)| Wanted::new(5, Arc::clone(&segment), from, bytes));
            fetched.expect(wanted.to_vec()).fetch();
            for (from, bytes) in
                [(64, 100), (3 * 4096 - 64, 128), (20 * 4096, 8192), (21 * 4096 + 8, 4088), (0, 8)]
            {
                let read = fetched.get(5, from, bytes);
                assert_eq!(read.as_ref().map(Vec::len), Some(bytes));
                assert_eq!(first(read), Some(from));
                assert_eq!(fetched.get(6, from, bytes), None);
            }
            for (from, bytes) in [(4096, 8), (4088, 16), (22 * 4096 - 8, 16), (u64::MAX, 8)] {
                assert_eq!(fetched.get(5, from, bytes), None, "{from}");
            }
        }
    }

    #[test]
    fn the_last_parts_stay() {
        let (fetched, segment) = (Arc::new(Fetched::new(10 * BLOCK, true)), segment());
        for block in 0..40 {
            fetched.expect(vec![Wanted::new(1, Arc::clone(&segment), block * 4096, 8)]).fetch();
        }
        for block in 0..40 {
            let from = block * 4096;
            assert_eq!(first(fetched.get(1, from, 8)), (block >= 30).then_some(from));
        }
    }

    /// A part that reaches behind the end of the file, as after a damage, is not there.
    #[test]
    fn a_part_that_is_not_in_the_file_is_not_found() {
        for has_ring in [false, true] {
            let (fetched, segment) = (Arc::new(Fetched::new(1 << 20, has_ring)), segment());
            fetched.expect(vec![Wanted::new(1, segment, BYTES as u64 - 8, 100)]).fetch();
            assert_eq!(first(fetched.get(1, BYTES as u64 - 8, 8)), Some(BYTES as u64 - 8));
            assert_eq!(fetched.get(1, BYTES as u64 - 8, 100), None);
        }
    }

    /// E2. A reader waits for an expected part until it was read, or until it is given up.
    #[test]
    fn readers_wait_for_expected_parts() {
        for is_read in [true, false] {
            let (fetched, segment) = (Arc::new(Fetched::new(1 << 20, true)), segment());
            let expected = fetched.expect(vec![Wanted::new(1, segment, 4096, 8)]);
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| first(fetched.get(1, 4096, 8)));
                // Another part is not waited for.
                assert_eq!(fetched.get(1, 0, 8), None);
                assert!(!reader.is_finished());
                if is_read {
                    expected.fetch()
                } else {
                    drop(expected)
                }
                assert_eq!(reader.join().unwrap(), is_read.then_some(4096));
            });
        }
    }
}
