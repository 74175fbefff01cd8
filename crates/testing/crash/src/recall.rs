//! Skips images from which the subject would read the same contents as from an image judged before.
//!
//! A subject is deterministic (I1 of the crate): its execution on an image is a function of the contents that it reads, that is, of each
//! line's content at the first read of the line. So if it would read the same contents from a second image, the second image has the same
//! verdict. This is frequent inside recovery: the images differ only in lines that recovery overwrites, or that are never read.
//!
//! Recall keeps the reads of executed images as a tree. Images that read the same contents follow the same path. The path branches after a
//! read that returned different contents in different images. At a branch, a table maps the fingerprint of everything read so far to the
//! reads that followed. Fingerprints have 128 bits. In a run of a hundred million images, the probability that two of them collide is less
//! than 10^-22.
//!
//! Invariants:
//! * R1: only good images are kept. A broken image is executed every time.
//! * R2: a fingerprint also covers the expected contents and the length of the region. All images are forgotten when the explorer changes
//!   the operations that it runs after recovery (the continuation).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pmem::LINE;
use xxhash_rust::xxh3::xxh3_128;

use crate::line::Words;

/// A fingerprint of everything that was read so far.
pub(crate) type Fingerprint = u128;

/// Maximum number of reads, about half a gigabyte. Beyond it all are forgotten.
const READS_MAX: usize = 10 << 20;

/// The place of a first read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Number of the line. [`END`]: no more reads follow, and the image was good.
    line: u32,
    /// Number of lines in use. A line outside reads as zeros.
    len: u32,
    /// Index of the words stored before the read, if `mask` is not 0.
    stored: u32,
    /// Mask of the words (a bit each) that were stored before the read.
    mask: u8,
}

const END: u32 = u32::MAX;

/// A read, and the fingerprint after it.
#[derive(Clone, Copy, Debug)]
struct Read {
    place: Place,
    then: Fingerprint,
}

/// Reads, and the words that were stored before them.
#[derive(Default)]
struct Reads {
    reads: Vec<Read>,
    stored: Vec<Words>,
}

/// The line with the words of `mask` replaced by those of `stored`.
pub(crate) fn over(words: &Words, mask: u8, stored: &Words) -> Words {
    std::array::from_fn(|word| if mask & (1 << word) != 0 { stored[word] } else { words[word] })
}

/// A hasher that returns the fingerprint itself, which is already a hash.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

/// The reads of all good images.
#[derive(Default)]
pub(crate) struct Recall {
    known: Reads,
    /// For a fingerprint, the index of the next read in `known`, if it is not the one that follows directly.
    branches: HashMap<Fingerprint, usize, BuildHasherDefault<AsItIs>>,
    /// The reads of the running image.
    path: Reads,
    start: Fingerprint,
}

/// The fingerprint before the first read.
fn start(expected: Fingerprint, len: u64) -> Fingerprint {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&expected.to_le_bytes());
    bytes[16..].copy_from_slice(&len.to_le_bytes());
    xxh3_128(&bytes)
}

/// The fingerprint after one more line.
fn extend(so_far: Fingerprint, line: u32, words: &Words) -> Fingerprint {
    let mut bytes = [0; 88];
    bytes[..16].copy_from_slice(&so_far.to_le_bytes());
    bytes[16..20].copy_from_slice(&line.to_le_bytes());
    for (place, word) in bytes[24..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_128(&bytes)
}

impl Reads {
    fn clear(&mut self) {
        self.reads.clear();
        self.stored.clear();
    }

    /// The mask and the words that were stored before the read.
    fn stored(&self, place: Place) -> Option<(u8, &Words)> {
        (place.mask != 0).then(|| (place.mask, &self.stored[place.stored as usize]))
    }

    fn push(&mut self, mut read: Read, stored: Option<(u8, &Words)>) {
        if let Some((_, words)) = stored {
            read.place.stored = self.stored.len() as u32;
            self.stored.push(*words);
        }
        self.reads.push(read);
    }
}

impl Recall {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.branches.clear();
        self.path.clear();
    }

    /// Begins the execution of an image with `len` bytes in use.
    pub(crate) fn begin(&mut self, expected: Fingerprint, len: u64) {
        self.path.clear();
        self.start = start(expected, len);
    }

    /// Records the first read of a line, with `len` bytes in use. `stored` is the mask of the words stored before, and a line that holds
    /// them (other words are zero).
    pub(crate) fn read(&mut self, line: u64, len: u64, stored: Option<(u8, &Words)>, words: &Words) {
        let (line, len) = ((line / LINE) as u32, len.div_ceil(LINE) as u32);
        let so_far = self.path.reads.last().map_or(self.start, |read| read.then);
        let place = Place { line, len, stored: 0, mask: stored.map_or(0, |stored| stored.0) };
        self.path.push(Read { place, then: extend(so_far, line, words) }, stored);
    }

    /// Keeps the image: it was good. Returns false if it read another line than an earlier image that had read the same contents. Then the
    /// subject is not deterministic.
    pub(crate) fn learn(&mut self) -> bool {
        if self.known.reads.len() > READS_MAX {
            self.known.clear();
            self.branches.clear();
        }
        let end = Place { line: END, len: 0, stored: 0, mask: 0 };
        let last = self.path.reads.last().map_or(self.start, |read| read.then);
        self.path.push(Read { place: end, then: last }, None);
        let mut so_far = self.start;
        let mut next = self.branches.get(&so_far).copied();
        for (at, read) in self.path.reads.iter().enumerate() {
            let Some(known) = next else {
                self.branches.insert(so_far, self.known.reads.len());
                for read in &self.path.reads[at..] {
                    self.known.push(*read, self.path.stored(read.place));
                }
                return true;
            };
            let place = self.known.reads[known].place;
            let is_same = (place.line, place.len) == (read.place.line, read.place.len)
                && self.known.stored(place) == self.path.stored(read.place);
            if !is_same {
                return false;
            }
            next = self.behind(known, read.then);
            so_far = read.then;
        }
        true
    }

    /// Index of the read that follows read `known` if the fingerprint is `then`.
    fn behind(&self, known: usize, then: Fingerprint) -> Option<usize> {
        match self.known.reads[known].then == then {
            true => Some(known + 1),
            false => self.branches.get(&then).copied(),
        }
    }

    /// Returns true if an image with `len` bytes in use is known to be good, because a good image read the same contents. `content` returns
    /// the content of a line, given the bytes in use at its read and the words stored before.
    pub(crate) fn knows(
        &self,
        expected: Fingerprint,
        len: u64,
        mut content: impl FnMut(u64, u64, Option<(u8, &Words)>) -> Words,
    ) -> bool {
        let mut so_far = start(expected, len);
        let mut next = self.branches.get(&so_far).copied();
        while let Some(known) = next {
            let place = self.known.reads[known].place;
            if place.line == END {
                return true;
            }
            let (line, len) = (u64::from(place.line) * LINE, u64::from(place.len) * LINE);
            so_far = extend(so_far, place.line, &content(line, len, self.known.stored(place)));
            next = self.behind(known, so_far);
        }
        false
    }
}
