//! Checkpoints: the low key and the image of every leaf, and the LSN from which the log is replayed.
//!
//! A checkpoint is one file, which replaces the one before. It names leaves by their low keys and not by page ids: so page ids are not part
//! of the durable state, the inner pages are built anew by an open, and every checkpoint is a sound tree, whatever splits and merges ran
//! while it was made.
//!
//! ```text
//! header (512 bytes; lsn: where the replay begins; text: the compression of new images, empty if there is none)
//! leaf     address: u64 | address of the base, or 0: u64 | bytes in memory: u64 | records: u32 | bytes of the low key: u32 | low key …
//!          1 << 31 in the records: the number may be wrong, because the image has late changes
//! LSN at the publication: u64 | number of leaves: u64
//! CRC-32C of everything before: u32 | 0: u32
//! ```
//!
//! Invariants:
//! * C1: the images of a checkpoint are durable, and every update in them is durable in the log, before the checkpoint is published.
//! * C2: the update of every record below the LSN of the header had happened before the first leaf was saved. So an image has all updates
//!   of records below that LSN, and the replay of the records from there on, in their order, gives each key its last value: the updates
//!   set values and do not depend on earlier ones.
//!
//! Commit point: the rename, or a sync of the directory behind it if the store promises to survive a power cut. Paper: Bw-tree §V-C, redo
//! scan start point.

use std::borrow::Borrow;
use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bwtree::{Address, Image, Pairs, RestoredLeaf};
use pmem::file::io;
use pmem::system::OWNER;
use pmem::{Error, Result, system};

use crate::header::{self, Header, Kind, word};
use crate::log::LSN_MAX;
use crate::omission::{Omission, is_omitted};
use crate::pieces::Pieces;
use crate::place::Place;

/// Bytes behind the leaves.
const TAIL: usize = 24;
const LEAF: usize = 32;
/// The sizes of pages are numbers of 31 bits.
const LEAF_BYTES_MAX: u64 = (1 << 31) - 1;
/// Marks a number of records that may be wrong.
const UNCOUNTED: u32 = 1 << 31;

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint<K> {
    /// Number of checkpoints before it.
    pub(crate) number: u64,
    /// LSN from which the log is replayed (C2).
    pub(crate) redo: u64,
    /// LSN below which all records were durable at the publication.
    pub(crate) end: u64,
    /// True if the store compresses new images.
    pub(crate) compresses: bool,
    pub(crate) leaves: Vec<RestoredLeaf<K>>,
}

/// The text of the header of a store that compresses new images.
const LZ4: &str = "lz4";

/// The path of the checkpoint.
pub(crate) fn path(place: &Place) -> PathBuf {
    place.dir.join(format!("{}.checkpoint", place.stem))
}

/// Appends the bytes of a leaf.
fn encode<P: Pairs>(leaf: &RestoredLeaf<P::KeyBuf>, to: &mut Vec<u8>) {
    to.extend(leaf.image.address.0.get().to_le_bytes());
    to.extend(leaf.image.base.map_or(0, |base| base.0.get()).to_le_bytes());
    to.extend(leaf.bytes.to_le_bytes());
    let mark = if leaf.is_counted { 0 } else { UNCOUNTED };
    to.extend((leaf.records | mark).to_le_bytes());
    let from = to.len();
    to.extend([0; 4]);
    if let Some(low) = &leaf.low {
        P::write_key(low.borrow(), to);
    }
    let length = (to.len() - from - 4) as u32;
    to[from..from + 4].copy_from_slice(&length.to_le_bytes());
}

/// A checkpoint that is being written to a file of its own. The leaves are written as they come, because a list of all leaves would take much
/// memory. A drop removes the file.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    new: PathBuf,
    /// `None`: it is published.
    file: Option<File>,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    /// Bytes in the file, and their checksum.
    written: u64,
    sum: u32,
    leaves: u64,
}

/// Bytes that are written together.
const BUFFER: usize = 1 << 18;

impl Writer {
    /// Begins checkpoint `number`, from which the log is replayed at `redo`. `compresses`: new images of the store are compressed.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(crate) fn begin(place: &Place, number: u64, redo: u64, compresses: bool) -> Result<Self> {
        let path = path(place);
        let new = path.with_extension("checkpoint-new");
        let mut how = OpenOptions::new();
        how.write(true).create(true).truncate(true).mode(OWNER);
        let text = if compresses { LZ4.to_owned() } else { String::new() };
        let header = Header { kind: Kind::Checkpoint, store: place.store, number, lsn: redo, text };
        let file = system::open(&how, &new).map_err(|source| failed(&path, 0, source))?;
        let buffer = header.encode();
        Ok(Self { path, new, file: Some(file), buffer, written: 0, sum: 0, leaves: 0 })
    }

    /// Adds the next leaf.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(crate) fn add<P: Pairs>(&mut self, leaf: &RestoredLeaf<P::KeyBuf>) -> Result<()> {
        encode::<P>(leaf, &mut self.buffer);
        self.leaves += 1;
        if self.buffer.len() >= BUFFER { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        self.sum = crc32c::crc32c_append(self.sum, &self.buffer);
        let written = system::write_all_at(file, &self.new, self.written, &self.buffer);
        written.map_err(|source| failed(&self.path, self.buffer.len() as u64, source))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the checkpoint the store's; [`make_durable`] completes it. `end`: the LSN below which all records are durable. Returns the bytes
    /// of its file.
    ///
    /// # Errors
    /// `NoSpace` or `Io`. The store has the old checkpoint then, or the new one if the rename failed after its effect.
    pub(crate) fn publish(mut self, end: u64, syncs: bool) -> Result<u64> {
        self.buffer.extend(end.to_le_bytes());
        self.buffer.extend(self.leaves.to_le_bytes());
        let sum = crc32c::crc32c_append(self.sum, &self.buffer);
        self.buffer.extend(u64::from(sum).to_le_bytes());
        self.write()?;
        if let Some(file) = self.file.take_if(|_| syncs) {
            let synced = system::sync_all(&file, &self.new);
            self.file = Some(file);
            synced.map_err(|source| failed(&self.path, 0, source))?;
        }
        system::rename(&self.new, &self.path).map_err(|source| io("cannot rename to", &self.path, source))?;
        self.file = None;
        Ok(self.written)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = system::remove_file(&self.new);
        }
    }
}

fn failed(path: &Path, bytes: u64, source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::NoSpace { path: path.to_owned(), bytes }
        }
        _ => io("cannot write", path, source),
    }
}

/// Makes the rename of a published checkpoint durable. Only then the files that it frees may be removed.
///
/// # Errors
/// `Io`: either checkpoint may be there after a power cut.
pub(crate) fn make_durable(place: &Place, syncs: bool) -> Result<()> {
    if syncs && !is_omitted(Omission::Rename) {
        system::sync_dir(&place.dir).map_err(|source| io("cannot sync directory", &place.dir, source))?;
    }
    Ok(())
}

/// Reads the store's checkpoint. `None` if there is none.
///
/// # Errors
/// `Foreign`, `Version`, `Corrupt`, `Io`.
pub(crate) fn load<P: Pairs>(place: &Place) -> Result<Option<Checkpoint<P::KeyBuf>>> {
    let path = path(place);
    let mut pieces = match Pieces::open(&path) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        pieces => pieces?,
    };
    // The list of its leaves takes more memory than the file.
    let bytes = pieces.get(0, pieces.len() as usize)?;
    decode::<P>(bytes, place.store, &path).map(Some)
}

/// True if the store compresses new images. `None` if the header of its checkpoint cannot be read.
pub(crate) fn compresses(place: &Place) -> Option<bool> {
    let path = path(place);
    let mut pieces = Pieces::open(&path).ok()?;
    let header = pieces.get(0, header::BYTES).ok()?;
    Some(Header::decode(header, Kind::Checkpoint, place.store, &path).ok()?.text == LZ4)
}

fn decode<P: Pairs>(bytes: &[u8], store: u64, path: &std::path::Path) -> Result<Checkpoint<P::KeyBuf>> {
    let header = Header::decode(bytes, Kind::Checkpoint, store, path)?;
    let corrupt = |at: usize| Error::Corrupt { what: "checkpoint", at: at as u64 };
    let end = bytes.len().checked_sub(TAIL).filter(|end| *end >= header::BYTES);
    let end = end.ok_or_else(|| corrupt(bytes.len()))?;
    let sum = bytes.len() - 8;
    if word(bytes, sum) != crc32c::crc32c(&bytes[..sum]).into() {
        return Err(corrupt(sum));
    }
    let compresses = header.text == LZ4;
    let is_known = compresses || header.text.is_empty();
    if header.lsn > LSN_MAX || word(bytes, end) > LSN_MAX || header.number == u64::MAX || !is_known {
        return Err(corrupt(0));
    }
    let (mut leaves, mut at) = (Vec::new(), header::BYTES);
    while at < end {
        if at + LEAF > end {
            return Err(corrupt(at));
        }
        let key_bytes = (word(bytes, at + 24) >> 32) as usize;
        let behind = at + LEAF + key_bytes;
        let address =
            NonZeroU64::new(word(bytes, at)).filter(|_| behind <= end).ok_or_else(|| corrupt(at))?;
        let low = match leaves.is_empty() {
            true => None,
            false => Some(P::read_key(&bytes[at + LEAF..behind]).ok_or_else(|| corrupt(at))?),
        };
        if word(bytes, at + 16) > LEAF_BYTES_MAX {
            return Err(corrupt(at + 16));
        }
        leaves.push(RestoredLeaf {
            low,
            image: Image {
                address: Address(address),
                base: NonZeroU64::new(word(bytes, at + 8)).map(Address),
            },
            records: word(bytes, at + 24) as u32 & !UNCOUNTED,
            is_counted: word(bytes, at + 24) as u32 & UNCOUNTED == 0,
            bytes: word(bytes, at + 16),
        });
        at = behind;
    }
    if leaves.len() as u64 != word(bytes, end + 8) {
        return Err(corrupt(end + 8));
    }
    Ok(Checkpoint { number: header.number, redo: header.lsn, end: word(bytes, end), compresses, leaves })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn absurd_numbers_with_a_right_checksum_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { dir: dir.path().to_owned(), stem: "store".to_owned(), store: 9 };
        let written = |number, redo, end, leaf_bytes| {
            let image = Image { address: Address(5.try_into().unwrap()), base: None };
            let leaf = RestoredLeaf { low: None, image, records: 3, is_counted: true, bytes: leaf_bytes };
            let mut writer = Writer::begin(&place, number, redo, true).unwrap();
            writer.add::<bwtree::Bytes>(&leaf).unwrap();
            writer.publish(end, false).unwrap();
            load::<bwtree::Bytes>(&place)
        };
        assert!(written(1, LSN_MAX, LSN_MAX, LEAF_BYTES_MAX).is_ok());
        assert!(written(u64::MAX, 1, 2, 3).is_err());
        assert!(written(1, LSN_MAX + 1, 2, 3).is_err());
        assert!(written(1, 1, LSN_MAX + 1, 3).is_err());
        assert!(written(1, 1, 2, LEAF_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn every_damaged_byte_of_a_checkpoint_is_noticed() {
        let leaf = |low: Option<&[u8]>, address: u64| RestoredLeaf {
            low: low.map(Into::into),
            image: Image {
                address: Address(address.try_into().unwrap()),
                base: (address > 5).then(|| Address(9.try_into().unwrap())),
            },
            records: 3,
            is_counted: address != 6,
            bytes: 100,
        };
        let leaves = vec![leaf(None, 5), leaf(Some(b"a"), 6), leaf(Some(b"bcd"), 7)];
        let checkpoint = Checkpoint { number: 2, redo: 10, end: 20, compresses: true, leaves };
        let dir = tempfile::tempdir().unwrap();
        let place = Place { dir: dir.path().to_owned(), stem: "store".to_owned(), store: 9 };
        let mut writer = Writer::begin(&place, 2, 10, true).unwrap();
        checkpoint.leaves.iter().for_each(|leaf| writer.add::<bwtree::Bytes>(leaf).unwrap());
        writer.publish(20, false).unwrap();
        let bytes = std::fs::read(path(&place)).unwrap();
        drop(Writer::begin(&place, 3, 11, false).unwrap());
        assert_eq!(compresses(&place), Some(true));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a file of a dropped writer stays");
        let decode = |bytes: &[u8]| decode::<bwtree::Bytes>(bytes, 9, std::path::Path::new("file"));
        assert_eq!(decode(&bytes).unwrap(), checkpoint);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err());
        }
    }
}
