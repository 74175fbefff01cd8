//! The buffers of the commit log. Threads add records without a lock; one thread at a time writes full buffers.
//!
//! A record is reserved by one exchange of the buffer's state, filled, and finished: *committed* if its update happened, otherwise *void*.
//! A thread *seals* a buffer and opens the next one when the buffer is full, or when its records are to become durable. The writer waits
//! until all records of a sealed buffer are finished. That takes a few steps of the threads that reserved them: between the reservation and
//! the end of a record no thread waits for anything.
//!
//! ```text
//! state   sealed: bit 63 | unfinished records: 15 bits | used words: 48 bits
//! record  kind: u8, 0: void | is large: u8 | words of the record: u32 (in the upper half) || bytes of the contents: u64 || contents …
//! ```
//!
//! The contents of a large record are beside the buffer; the record has only the two words of its header.
//!
//! A log sequence number (LSN) is the number of words before a record, counted from the first record of the store.
//!
//! Invariants:
//! * B1: two reservations never overlap, and a reservation lies in one buffer. The base LSN of a buffer is the end of the one before.
//! * B2: a sealed buffer gets no more reservations until it is opened again.
//! * B3: a buffer is opened again only after it was written, and it is written only when none of its records is unfinished.
//!
//! Linearization point of a reservation: the exchange of the state. The idea is that of the flush buffers of the paper's §VI.

use crate::sync::{AtomicU64, Mutex, Ordering, lock, pause};

/// Bytes of a word.
pub(crate) const WORD: usize = 8;
/// Words of a record before its contents.
pub(crate) const HEADER: u64 = 2;
/// The kind of a record whose update did not happen.
pub(crate) const VOID: u64 = 0;
/// The kind of a record of updates.
pub(crate) const UPDATES: u64 = 1;
/// Set if the contents are beside the buffer.
pub(crate) const LARGE: u64 = 1 << 8;

const SEALED: u64 = 1 << 63;
const ONE: u64 = 1 << 48;
const USED: u64 = ONE - 1;
const UNFINISHED: u64 = !(SEALED | USED);

/// A buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    state: AtomicU64,
    /// LSN of the first word.
    base: AtomicU64,
    words: Box<[AtomicU64]>,
    /// Contents of large records, each with the index of its record.
    large: Mutex<Vec<(u64, Vec<u8>)>>,
}

/// The contents of a sealed buffer whose records are all finished.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) base: u64,
    pub(crate) words: Vec<u8>,
    /// Contents of large records, in the order of the records.
    pub(crate) large: Vec<Vec<u8>>,
}

/// A reserved record that is not finished. Dropping it makes it void.
#[derive(Debug)]
pub(crate) struct Entry<'b> {
    buffer: &'b Buffer,
    at: u64,
    first: u64,
    /// LSN after the record.
    pub(crate) end: u64,
}

impl Entry<'_> {
    /// The update has happened.
    pub(crate) fn commit(self) {
        self.buffer.word(self.at).store(self.first | UPDATES, Ordering::Relaxed);
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        // Release: the writer that sees the record finished reads its words.
        self.buffer.state.fetch_sub(ONE, Ordering::Release);
    }
}

impl Buffer {
    fn new(words: usize) -> Self {
        Self {
            state: AtomicU64::new(SEALED),
            base: AtomicU64::new(0),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            large: Mutex::new(Vec::new()),
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[at as usize]
    }

    /// Opens the buffer (B3).
    fn open(&self, base: u64) {
        self.base.store(base, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
    }

    /// Reserves words and returns their index. `None` if the buffer is sealed or has too few words left.
    fn reserve(&self, words: u64) -> Option<u64> {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let used = state & USED;
            if state & SEALED != 0 || used + words > self.words.len() as u64 {
                return None;
            }
            let new = state + ONE + words;
            match self.state.compare_exchange_weak(state, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(used),
                Err(found) => state = found,
            }
        }
    }

    /// Reserves a record and fills it. `None` as in [`reserve`](Self::reserve).
    fn add(&self, contents: &[u8], is_large: bool) -> Option<Entry<'_>> {
        let words = HEADER + if is_large { 0 } else { contents.len().div_ceil(WORD) as u64 };
        let at = self.reserve(words)?;
        let first = words << 32 | if is_large { LARGE } else { 0 };
        self.word(at).store(first | VOID, Ordering::Relaxed);
        self.word(at + 1).store(contents.len() as u64, Ordering::Relaxed);
        if is_large {
            lock(&self.large).push((at, contents.to_vec()));
        } else {
            let (chunks, rest) = contents.as_chunks::<WORD>();
            let mut to = self.words[(at + HEADER) as usize..].iter();
            for (chunk, word) in chunks.iter().zip(&mut to) {
                word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
            }
            if !rest.is_empty()
                && let Some(word) = to.next()
            {
                let mut last = [0; WORD];
                last[..rest.len()].copy_from_slice(rest);
                word.store(u64::from_le_bytes(last), Ordering::Relaxed);
            }
        }
        let end = self.base.load(Ordering::Relaxed) + at + words;
        Some(Entry { buffer: self, at, first, end })
    }

    /// Waits until all records of a sealed buffer are finished, and copies them.
    fn finished(&self) -> Sealed {
        let used = loop {
            let state = self.state.load(Ordering::Acquire);
            if state & UNFINISHED == 0 {
                break state & USED;
            }
            pause();
        };
        let mut words = Vec::with_capacity(used as usize * WORD);
        for word in &self.words[..used as usize] {
            words.extend(word.load(Ordering::Relaxed).to_le_bytes());
        }
        let mut large = std::mem::take(&mut *lock(&self.large));
        large.sort_by_key(|(at, _)| *at);
        Sealed {
            base: self.base.load(Ordering::Relaxed),
            words,
            large: large.into_iter().map(|(_, contents)| contents).collect(),
        }
    }
}

/// A ring of buffers, one of which is open.
#[derive(Debug)]
pub(crate) struct Ring {
    buffers: Box<[Buffer]>,
    /// Number of the open buffer, counted from the beginning; its place in the ring is the remainder.
    open: AtomicU64,
    /// Buffers below this number were written.
    written: AtomicU64,
    turn: Mutex<()>,
}

impl Ring {
    /// A ring of `buffers` buffers of `words` words, whose first record gets the LSN `base`.
    pub(crate) fn new(buffers: usize, words: usize, base: u64) -> Self {
        let buffers: Box<[Buffer]> = (0..buffers).map(|_| Buffer::new(words)).collect();
        buffers[0].open(base);
        Self { buffers, open: AtomicU64::new(0), written: AtomicU64::new(0), turn: Mutex::new(()) }
    }

    fn buffer(&self, number: u64) -> &Buffer {
        &self.buffers[(number % self.buffers.len() as u64) as usize]
    }

    /// True if a record with contents of this length is stored beside its buffer.
    pub(crate) fn is_large(&self, contents: usize) -> bool {
        contents > self.buffers[0].words.len() * WORD / 4
    }

    /// Adds a record that is void until it is committed. `None` if every buffer is full: then a buffer must be written first.
    pub(crate) fn add(&self, contents: &[u8]) -> Option<Entry<'_>> {
        let is_large = self.is_large(contents.len());
        loop {
            let number = self.open.load(Ordering::Acquire);
            // The buffer may be a later one of the ring by now. Then the reservation is in that one.
            if let Some(entry) = self.buffer(number).add(contents, is_large) {
                return Some(entry);
            }
            if !self.seal(number) {
                return None;
            }
        }
    }

    /// Seals the buffer of this number, if it is open, and opens the next one. False if the next one is not written yet.
    fn seal(&self, number: u64) -> bool {
        let _turn = lock(&self.turn);
        if self.open.load(Ordering::Acquire) != number {
            return true;
        }
        let next = number + 1;
        if next - self.written.load(Ordering::Acquire) >= self.buffers.len() as u64 {
            return false;
        }
        let sealed = self.buffer(number);
        let used = sealed.state.fetch_or(SEALED, Ordering::AcqRel) & USED;
        self.buffer(next).open(sealed.base.load(Ordering::Relaxed) + used);
        self.open.store(next, Ordering::Release);
        true
    }

    /// LSN after the last reserved record.
    pub(crate) fn end(&self) -> u64 {
        loop {
            let number = self.open.load(Ordering::Acquire);
            let buffer = self.buffer(number);
            let base = buffer.base.load(Ordering::Relaxed);
            let used = buffer.state.load(Ordering::Acquire) & USED;
            // Otherwise the two belong to different buffers.
            if self.open.load(Ordering::Acquire) == number {
                return base + used;
            }
            pause();
        }
    }

    /// True if half of the buffers wait to be written.
    pub(crate) fn is_pressed(&self) -> bool {
        // In this order: the open buffer is never below the written ones.
        let written = self.written.load(Ordering::Acquire);
        let waiting = self.open.load(Ordering::Acquire) - written;
        waiting * 2 >= self.buffers.len() as u64
    }

    /// Calls `write` for every sealed buffer, oldest first. Returns the LSN after the last record of these buffers. One thread at a time calls
    /// this.
    pub(crate) fn write_sealed<E>(&self, mut write: impl FnMut(Sealed) -> Result<(), E>) -> Result<u64, E> {
        let open = self.open.load(Ordering::Acquire);
        self.write_below(open, &mut write)?;
        // No other thread writes, so this buffer is not opened a second time.
        Ok(self.buffer(open).base.load(Ordering::Relaxed))
    }

    /// Seals the open buffer, unless it is empty, and calls `write` for every sealed buffer, oldest first. One thread at a time calls this.
    /// Returns the LSN after the last record of these buffers.
    pub(crate) fn drain<E>(&self, mut write: impl FnMut(Sealed) -> Result<(), E>) -> Result<u64, E> {
        let last = self.open.load(Ordering::Acquire);
        self.write_below(last, &mut write)?;
        let open = self.buffer(last);
        if self.open.load(Ordering::Acquire) == last
            && open.state.load(Ordering::Acquire) & (USED | SEALED) == 0
        {
            return Ok(open.base.load(Ordering::Relaxed));
        }
        self.seal(last);
        self.write_below(last + 1, &mut write)?;
        // No other thread writes, so the buffer that follows is not opened a second time.
        Ok(self.buffer(last + 1).base.load(Ordering::Relaxed))
    }

    fn write_below<E>(&self, end: u64, write: &mut impl FnMut(Sealed) -> Result<(), E>) -> Result<(), E> {
        for number in self.written.load(Ordering::Acquire)..end {
            write(self.buffer(number).finished())?;
            self.written.store(number + 1, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn all(ring: &Ring) -> Vec<Sealed> {
        let mut written = Vec::new();
        let end = ring.drain(|sealed| {
            written.push(sealed);
            Ok::<_, ()>(())
        });
        assert!(end.is_ok_and(|end| end <= ring.end()));
        written
    }

    #[test]
    fn records_are_in_the_order_of_their_lsns_and_void_until_committed() {
        let ring = Ring::new(2, 64, 100);
        ring.add(b"seven b").unwrap().commit();
        let void = ring.add(b"nine byte").unwrap();
        assert_eq!(void.end, 100 + 3 + 4);
        drop(void);
        let large = ring.add(&[7; 200]).unwrap();
        assert_eq!(large.end, 109);
        large.commit();
        let [sealed] = &all(&ring)[..] else { panic!("one buffer") };
        assert_eq!((sealed.base, sealed.words.len()), (100, 9 * 8));
        assert_eq!(sealed.large, [vec![7; 200]]);
        let kinds: Vec<_> = [0, 3, 7].iter().map(|at| sealed.words[at * 8]).collect();
        assert_eq!(kinds, [UPDATES as u8, VOID as u8, UPDATES as u8]);
        assert_eq!(&sealed.words[16..24], b"seven b\0");
        assert!(all(&ring).is_empty());
    }

    #[test]
    fn a_full_ring_takes_no_record_until_a_buffer_is_written() {
        let ring = Ring::new(2, 8, 0);
        let mut taken = 0;
        while let Some(entry) = ring.add(&[1; 2]) {
            entry.commit();
            taken += 1;
        }
        assert_eq!(taken, 4);
        assert_eq!(all(&ring).iter().map(|sealed| sealed.words.len()).sum::<usize>(), 4 * 3 * 8);
        assert!(ring.add(&[1; 2]).is_some());
    }

    #[test]
    fn threads_lose_no_record() {
        let ring = Ring::new(3, 128, 0);
        let written = std::sync::Mutex::new(Vec::new());
        let done = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (ring, done) = (&ring, &done);
                scope.spawn(move || {
                    for i in 0..20_000u64 {
                        let contents = (thread << 32 | i).to_le_bytes();
                        loop {
                            if let Some(entry) = ring.add(&contents) {
                                if i % 3 != 0 {
                                    entry.commit();
                                }
                                break;
                            }
                            std::thread::yield_now();
                        }
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            scope.spawn(|| {
                while done.load(Ordering::SeqCst) < 3 {
                    written.lock().unwrap().extend(all(&ring));
                }
            });
        });
        let mut written = written.into_inner().unwrap();
        written.extend(all(&ring));
        let (mut next, mut lsn) = ([0u64; 3], 0);
        for sealed in written {
            assert_eq!(sealed.base, lsn);
            lsn += sealed.words.len() as u64 / 8;
            for record in sealed.words.chunks(24) {
                let number = u64::from_le_bytes(record[16..].try_into().unwrap());
                let (thread, i) = ((number >> 32) as usize, number & 0xffff_ffff);
                assert_eq!((i, record[0]), (next[thread], u8::from(i % 3 != 0)));
                next[thread] += 1;
            }
        }
        assert_eq!(next, [20_000; 3]);
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    /// Two threads add records to buffers of this number of words, the first one `of_first` of them, while a third thread writes: each
    /// committed record is written once, whole.
    ///
    /// The exchanges of `clock` order nothing. Loom tries another order of two steps only if they are neighbours among the accesses to a
    /// word, and an adder reads the state before it exchanges it. So without the clock no record would be added before the first `drain`.
    fn no_record_is_lost_or_torn(words: usize, of_first: usize) {
        loom::model(move || {
            let (ring, clock) = (Arc::new(Ring::new(2, words, 0)), Arc::new(AtomicU64::new(0)));
            let adders: Vec<_> = (1..3u8)
                .map(|thread| {
                    let (ring, clock) = (Arc::clone(&ring), Arc::clone(&clock));
                    let add = move || {
                        clock.fetch_add(1, Ordering::Relaxed);
                        let entry = ring.add(&[thread; 8])?;
                        let end = entry.end;
                        clock.fetch_add(1, Ordering::Relaxed);
                        entry.commit();
                        Some(end)
                    };
                    let count = if thread == 1 { of_first } else { 1 };
                    loom::thread::spawn(move || (0..count).filter_map(|_| add()).collect::<Vec<u64>>())
                })
                .collect();
            let mut written = Vec::new();
            let mut drain = || {
                let end = ring.drain(|sealed| {
                    written.push(sealed);
                    Ok::<_, ()>(())
                });
                end.unwrap()
            };
            for _ in 0..2 {
                clock.fetch_add(1, Ordering::Relaxed);
                drain();
            }
            let mut ends: Vec<u64> = adders.into_iter().flat_map(|adder| adder.join().unwrap()).collect();
            ends.sort_unstable();
            let added = ends.len();
            assert!(ends.iter().zip(1..).all(|(end, number)| *end == number * 3));
            let end = drain();
            let bytes: Vec<u8> = written.iter().flat_map(|sealed| sealed.words.clone()).collect();
            assert_eq!((bytes.len(), end), (added * 24, added as u64 * 3));
            let mut lsn = 0;
            for sealed in &written {
                assert_eq!(sealed.base, lsn);
                lsn += (sealed.words.len() / WORD) as u64;
            }
            for record in bytes.chunks(24) {
                assert_eq!(record[0], UPDATES as u8);
                assert!(record[16..].iter().all(|byte| *byte == record[16] && *byte > 0));
            }
        });
    }

    #[test]
    fn no_record_of_a_shared_buffer_is_lost_or_torn() {
        no_record_is_lost_or_torn(6, 1);
    }

    #[test]
    fn no_record_of_full_buffers_is_lost_or_torn() {
        // A record takes three of the four words.
        no_record_is_lost_or_torn(4, 2);
    }
}
