//! Reading of a file in pieces of bounded size: a log file or a segment is larger than the memory that an open may use for it.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use pmem::file::io;
use pmem::{Result, system};

/// Bytes that are read together. In tests smaller than most blocks, so that blocks cross pieces and are longer than a piece.
pub(crate) const PIECE: usize = if cfg!(any(test, feature = "omissions")) { 1 << 10 } else { 1 << 20 };

/// A file, and a part of its contents in memory: a piece, or what the last [`get`](Self::get) needed if that was more.
#[derive(Debug)]
pub(crate) struct Pieces {
    file: File,
    path: PathBuf,
    /// Bytes of the file.
    bytes: u64,
    /// Offset of the buffer in the file.
    start: u64,
    buffer: Vec<u8>,
}

impl Pieces {
    /// Opens a file.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = system::open(OpenOptions::new().read(true), path)
            .map_err(|source| io("cannot open", path, source))?;
        let bytes = system::inspect(&file, path).map_err(|source| io("cannot inspect", path, source))?.len();
        Ok(Self { file, path: path.to_owned(), bytes, start: 0, buffer: Vec::new() })
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// The bytes at an offset: this number, or those up to the end of the file.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn get(&mut self, at: u64, count: usize) -> Result<&[u8]> {
        let rest = self.rest(at, count)?;
        Ok(&rest[..count.min(rest.len())])
    }

    /// All bytes in memory from an offset on: at least this number, or those up to the end of the file.
    fn rest(&mut self, at: u64, least: usize) -> Result<&[u8]> {
        let end = at.saturating_add(least as u64).min(self.bytes);
        if at >= end {
            return Ok(&[]);
        }
        if at < self.start || end > self.start + self.buffer.len() as u64 {
            self.fill(at, end)?;
        }
        Ok(&self.buffer[(at - self.start) as usize..])
    }

    /// Makes the buffer begin at an offset, and reads at least up to `end`.
    fn fill(&mut self, at: u64, end: u64) -> Result<()> {
        let wanted = (end - at).max(PIECE as u64).min(self.bytes - at) as usize;
        let known = at.checked_sub(self.start).filter(|skipped| *skipped < self.buffer.len() as u64);
        let mut buffer = std::mem::take(&mut self.buffer);
        match known {
            Some(skipped) => _ = buffer.drain(..skipped as usize),
            None => buffer.clear(),
        }
        let mut filled = buffer.len();
        buffer.resize(wanted.max(filled), 0);
        // The memory of a long block is not kept.
        buffer.shrink_to(2 * PIECE);
        while filled < wanted {
            match system::read_at(&self.file, &self.path, at + filled as u64, &mut buffer[filled..wanted]) {
                // The file is shorter than it was when it was opened.
                Ok(0) => return Err(io("cannot read", &self.path, ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(io("cannot read", &self.path, source)),
            }
        }
        (self.start, self.buffer) = (at, buffer);
        Ok(())
    }

    /// CRC-32C of `count` bytes at an offset without the first `skipped`. `None` if the file is shorter. Takes the memory of a piece,
    /// so that a damaged length takes no more. O(count).
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn sum(&mut self, at: u64, count: u64, skipped: usize) -> Result<Option<u32>> {
        if at.checked_add(count).is_none_or(|end| end > self.bytes) {
            return Ok(None);
        }
        let (mut sum, mut done) = (0, 0);
        while done < count {
            let piece = self.get(at + done, (count - done).min(PIECE as u64) as usize)?;
            sum = crc32c::crc32c_append(
                sum,
                piece.get(if done == 0 { skipped } else { 0 }..).unwrap_or_default(),
            );
            done += piece.len() as u64;
        }
        Ok(Some(sum))
    }

    /// The first offset, counted in steps from `from` on, at which this number is.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn find(&mut self, number: u32, from: u64, step: usize) -> Result<Option<u64>> {
        let (number, mut at) = (number.to_le_bytes(), from);
        while at.saturating_add(number.len() as u64) <= self.bytes {
            let rest = self.rest(at, number.len())?;
            let last = rest.len() - number.len();
            if let Some(found) = (0..=last).step_by(step).find(|i| rest[*i..].starts_with(&number)) {
                return Ok(Some(at + found as u64));
            }
            at += (last / step + 1) as u64 * step as u64;
        }
        Ok(None)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn file(contents: &[u8]) -> (tempfile::TempDir, Pieces) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, contents).unwrap();
        let pieces = Pieces::open(&path).unwrap();
        (dir, pieces)
    }

    #[test]
    fn any_bytes_can_be_read_in_any_order() {
        let mut random = fastrand::Rng::with_seed(1);
        let contents: Vec<u8> = (0..10 * PIECE + 77).map(|_| random.u8(..4)).collect();
        let (_dir, mut pieces) = file(&contents);
        assert_eq!(pieces.len(), contents.len() as u64);
        let mut at = 0;
        for turn in 0..4000 {
            // Forward as the replay, with jumps.
            at = if turn % 16 == 0 { random.usize(..contents.len() + 99) } else { at + random.usize(..999) };
            let count = if turn % 64 == 0 { random.usize(..5 * PIECE) } else { random.usize(..999) };
            let from = at.min(contents.len());
            let expected = &contents[from..(at + count).min(contents.len()).max(from)];
            assert_eq!(pieces.get(at as u64, count).unwrap(), expected, "{count} at {at}");
            let skipped = random.usize(..9);
            let sum = pieces.sum(at as u64, count as u64, skipped).unwrap();
            let is_inside = at + count <= contents.len();
            assert_eq!(sum, is_inside.then(|| crc32c::crc32c(expected.get(skipped..).unwrap_or_default())));
            assert!(pieces.buffer.capacity() <= (2 * PIECE).max(pieces.buffer.len()));
        }
        assert_eq!(pieces.get(u64::MAX, 8).unwrap(), []);
        assert_eq!(pieces.sum(u64::MAX, u64::MAX, 8).unwrap(), None);
        assert_eq!(pieces.sum(0, u64::MAX, 8).unwrap(), None);
    }

    #[test]
    fn numbers_are_found_at_steps_and_across_pieces() {
        let mut contents = vec![0; 5 * PIECE];
        let places = [24, PIECE - 8, PIECE, 3 * PIECE - 8, 5 * PIECE - 8, 5 * PIECE - 4];
        places.iter().for_each(|at| contents[*at..at + 4].copy_from_slice(&7u32.to_le_bytes()));
        let (_dir, mut pieces) = file(&contents);
        for step in [8, 64, 512] {
            for from in [0, 8, 24, 32, PIECE - 64, 5 * PIECE - 16] {
                let expected: Vec<u64> = places
                    .iter()
                    .filter(|at| **at >= from && (**at - from).is_multiple_of(step))
                    .map(|at| *at as u64)
                    .collect();
                let (mut found, mut at) = (Vec::new(), from as u64);
                while let Some(place) = pieces.find(7, at, step).unwrap() {
                    found.push(place);
                    at = place + step as u64;
                }
                assert_eq!(found, expected, "from {from} in steps of {step}");
            }
        }
        assert_eq!(pieces.find(7, u64::MAX - 3, 8).unwrap(), None);
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let (dir, mut pieces) = file(&[1; 3 * PIECE]);
        assert_eq!(pieces.get(0, 9).unwrap(), [1; 9]);
        let file = File::options().write(true).open(dir.path().join("file")).unwrap();
        file.set_len(2 * PIECE as u64).unwrap();
        assert!(pieces.get(0, 3 * PIECE).is_err());
        assert_eq!(pieces.get(0, 9).unwrap(), [1; 9], "after the error");
    }
}
