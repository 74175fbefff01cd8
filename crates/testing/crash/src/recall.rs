//! What was read before need not be read again.
//!
//! A subject is deterministic (I1): what it does on an image is a function of the contents that it reads, each line's when it is
//! first read. So an image from which it would read what it read from another one is as good as that one, and two images inside
//! recovery often are: they differ in what recovery overwrites, or in what nobody looks at.
//!
//! Kept are the reads of images that were carried out, one behind the other, each with a fingerprint of everything read so far; where
//! another content led elsewhere, the fingerprint leads to the reads that followed. Fingerprints have 128 bits: that two of them are
//! equal by chance in a run of a hundred million is less likely than one in 10^22.
//!
//! Invariants:
//! * R1: only good images are kept. What is broken is carried out each time.
//! * R2: a fingerprint begins with what was expected and with the bytes in use; all is forgotten when the operations that follow
//!   recovery change.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pmem::LINE;
use xxhash_rust::xxh3::xxh3_128;

use crate::line::Words;

/// Of everything that was read so far.
pub(crate) type Fingerprint = u128;

/// Reads beyond which all are forgotten: about half a gigabyte.
const READS_MAX: usize = 10 << 20;

/// A first read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Which line; [`END`]: nothing more is read, and all was well.
    line: u32,
    /// Lines in use: it reads as zeros if it is outside.
    len: u32,
    /// Where the words are that had been stored to before, if `mask` says that there are any.
    stored: u32,
    /// Words (a bit each) that had been stored to before.
    mask: u8,
}

const END: u32 = u32::MAX;

/// What was read, and the fingerprint with it.
#[derive(Clone, Copy, Debug)]
struct Read {
    place: Place,
    then: Fingerprint,
}

/// Reads, and the words that had been stored to before them.
#[derive(Default)]
struct Reads {
    reads: Vec<Read>,
    stored: Vec<Words>,
}

/// A line whose words of `mask` are those of `stored`.
pub(crate) fn over(words: &Words, mask: u8, stored: &Words) -> Words {
    std::array::from_fn(|word| if mask & (1 << word) != 0 { stored[word] } else { words[word] })
}

/// A fingerprint is as good a hash as any.
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

/// Everything that was read.
#[derive(Default)]
pub(crate) struct Recall {
    known: Reads,
    /// Which of them are next, where that are not those behind.
    branches: HashMap<Fingerprint, usize, BuildHasherDefault<AsItIs>>,
    /// Those of the image that is carried out.
    path: Reads,
    start: Fingerprint,
}

/// The fingerprint before anything is read.
fn start(expected: Fingerprint, len: u64) -> Fingerprint {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&expected.to_le_bytes());
    bytes[16..].copy_from_slice(&len.to_le_bytes());
    xxh3_128(&bytes)
}

/// The fingerprint with one more line.
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

    /// The words that had been stored to, and which these are.
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

    /// An image with so many bytes in use is going to be carried out.
    pub(crate) fn begin(&mut self, expected: Fingerprint, len: u64) {
        self.path.clear();
        self.start = start(expected, len);
    }

    /// It read a line for the first time, with so many bytes in use. `stored`: what had been stored to before, and a line of zeros
    /// with it.
    pub(crate) fn read(&mut self, line: u64, len: u64, stored: Option<(u8, &Words)>, words: &Words) {
        let (line, len) = ((line / LINE) as u32, len.div_ceil(LINE) as u32);
        let so_far = self.path.reads.last().map_or(self.start, |read| read.then);
        let place = Place { line, len, stored: 0, mask: stored.map_or(0, |stored| stored.0) };
        self.path.push(Read { place, then: extend(so_far, line, words) }, stored);
    }

    /// It was good. False if it read another line than one that had read the same before: the subject is not deterministic.
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

    /// What is read behind a read that made the fingerprint this.
    fn behind(&self, known: usize, then: Fingerprint) -> Option<usize> {
        match self.known.reads[known].then == then {
            true => Some(known + 1),
            false => self.branches.get(&then).copied(),
        }
    }

    /// True if an image with so many bytes in use is good, because of all it would read, which `content` tells of each line with the
    /// bytes in use then and what had been stored to before, an image that was good read the same.
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
