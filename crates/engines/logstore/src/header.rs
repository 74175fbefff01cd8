//! The first sector of every file: what the file is, which store it belongs to, and the version of the format.
//!
//! ```text
//! 0    magic: 8 bytes | version: u32 | kind: u32 | id of the store: u64 | number: u64 | lsn: u64 | bytes of the text: u32 | text …
//! 508  CRC-32C of the bytes before
//! ```

use std::path::Path;

use pmem::{Error, Result};

/// Bytes of the header.
pub(crate) const BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"BRSTPAGE";
/// Version of the format of all files that this crate writes.
pub(crate) const VERSION: u32 = 4;
/// The oldest version that it reads. Before version 4 there were no packed images.
const OLDEST: u32 = 3;
const TEXT: usize = 44;
const SUM: usize = BYTES - 4;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Identity of the store.
    Store = 1,
    /// A file of the commit log.
    Log = 2,
    /// A segment of images.
    Segment = 3,
    /// A checkpoint.
    Checkpoint = 4,
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Random number of the store. All its files have it.
    pub(crate) store: u64,
    /// Number of the file among those of its kind.
    pub(crate) number: u64,
    /// In a log file: LSN of its first record.
    pub(crate) lsn: u64,
    /// In the store's file: its engine, keys and values.
    pub(crate) text: String,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.kind as u32).to_le_bytes());
        for (at, number) in [(16, self.store), (24, self.number), (32, self.lsn)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let text = &self.text.as_bytes()[..self.text.len().min(SUM - TEXT)];
        bytes[40..44].copy_from_slice(&(text.len() as u32).to_le_bytes());
        bytes[TEXT..TEXT + text.len()].copy_from_slice(text);
        let sum = crc32c::crc32c(&bytes[..SUM]);
        bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the header of a file of this kind, which belongs to this store (0: to any).
    ///
    /// # Errors
    /// `Foreign` or `Version`.
    pub(crate) fn decode(bytes: &[u8], kind: Kind, store: u64, path: &Path) -> Result<Self> {
        let foreign = |why| Error::Foreign { path: path.to_owned(), why };
        let Some(bytes) = bytes.get(..BYTES) else { return Err(foreign("it is too short")) };
        if bytes[..8] != *MAGIC {
            return Err(foreign("it does not begin as a file of an engine with pages does"));
        }
        if word(bytes, SUM) as u32 != crc32c::crc32c(&bytes[..SUM]) {
            return Err(foreign("its header is damaged"));
        }
        let version = word(bytes, 8) as u32;
        if !(OLDEST..=VERSION).contains(&version) {
            return Err(Error::Version { found: version.into(), known: VERSION.into() });
        }
        if word(bytes, 12) as u32 != kind as u32 {
            return Err(foreign("its header is that of another kind of file"));
        }
        let found = word(bytes, 16);
        if store != 0 && found != store {
            return Err(foreign("it belongs to another store"));
        }
        let text = bytes.get(TEXT..TEXT + word(bytes, 40) as u32 as usize);
        let text = text.filter(|text| text.len() <= SUM - TEXT);
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        let text = text.ok_or_else(|| foreign("its header is damaged"))?.to_owned();
        Ok(Self { kind, store: found, number: word(bytes, 24), lsn: word(bytes, 32), text })
    }

    /// True if these bytes are a header of any kind and store.
    pub(crate) fn is_whole(bytes: &[u8]) -> bool {
        let sum = |bytes: &[u8]| u64::from(crc32c::crc32c(&bytes[..SUM]));
        bytes.get(..BYTES).is_some_and(|bytes| bytes[..8] == *MAGIC && word(bytes, SUM) == sum(bytes))
    }

    /// True if a file begins as the files of this crate do.
    pub(crate) fn is_ours(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }
}

/// The 64-bit number at an offset. Bytes behind the end are zeros.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let from = bytes.get(at..).unwrap_or_default();
    let count = from.len().min(8);
    word[..count].copy_from_slice(&from[..count]);
    u64::from_le_bytes(word)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_damaged_bit_of_a_header_is_noticed() {
        let header =
            Header { kind: Kind::Log, store: 7, number: 3, lsn: 99, text: "bwtree, words".to_owned() };
        let (bytes, path) = (header.encode(), Path::new("file"));
        assert_eq!(Header::decode(&bytes, Kind::Log, 7, path).unwrap(), header);
        for bit in 0..BYTES * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&damaged, Kind::Log, 7, path).is_err(), "bit {bit}");
        }
        for end in 0..BYTES {
            assert!(Header::decode(&bytes[..end], Kind::Log, 7, path).is_err());
        }
        assert!(Header::decode(&bytes, Kind::Segment, 7, path).is_err());
        assert!(Header::decode(&bytes, Kind::Log, 8, path).is_err());
    }

    #[test]
    fn the_version_before_is_read_and_others_are_refused() {
        let header = Header { kind: Kind::Log, store: 7, number: 3, lsn: 99, text: String::new() };
        for version in 0..9 {
            let mut bytes = header.encode();
            bytes[8..12].copy_from_slice(&u32::to_le_bytes(version));
            let sum = crc32c::crc32c(&bytes[..SUM]);
            bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
            match Header::decode(&bytes, Kind::Log, 7, Path::new("file")) {
                Ok(found) => assert!((3..=4).contains(&version) && found == header),
                Err(Error::Version { found, .. }) => {
                    assert!(!(3..=4).contains(&version) && found == u64::from(version));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
