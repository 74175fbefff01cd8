//! Checkpoints: the low key and the image of every leaf, and the LSN from which the log is replayed.
//!
//! A checkpoint is one file, which replaces the one before. It names leaves by their low keys and not by page ids: so page ids are not part
//! of the durable state, the inner pages are built anew by an open, and every checkpoint is a sound tree, whatever splits and merges ran
//! while it was made.
//!
//! ```text
//! header (512 bytes; lsn: where the replay begins)
//! LSN at the publication: u64 | number of leaves: u64 | bytes of the leaves: u64
//! leaf     address: u64 | address of the base, or 0: u64 | bytes in memory: u64 | records: u32 | bytes of the low key: u32 | low key …
//!          1 << 31 in the records: the number may be wrong, because the image has late changes
//! CRC-32C of everything before: u32 | 0: u32
//! ```
//!
//! Invariants:
//! * C1: the images of a checkpoint are durable, and every update in them is durable in the log, before the checkpoint is published.
//! * C2: the update of every record below the LSN of the header had happened before the first leaf was saved. So an image has all updates
//!   of records below that LSN, and the replay of the records from there on, in their order, gives each key its last value: the updates
//!   set values and do not depend on earlier ones.
//!
//! Commit point: the rename, or a sync of the directory behind it if the store promises to survive a power cut. Paper: Bw-tree §V-C, redo scan start point.

use std::fs::OpenOptions;
use std::num::NonZeroU64;
use std::path::PathBuf;

use bwtree::{Address, Image, Pairs, RestoredLeaf};
use pmem::file::io;
use pmem::{Error, Result, system};

use crate::header::{self, Header, Kind, word};
use crate::omission::{Omission, is_omitted};
use crate::place::Place;
use crate::replay::read;

const HEAD: usize = header::BYTES + 24;
const LEAF: usize = 32;
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
    pub(crate) leaves: Vec<RestoredLeaf<K>>,
}

/// The path of the checkpoint.
pub(crate) fn path(place: &Place) -> PathBuf {
    place.dir.join(format!("{}.checkpoint", place.stem))
}

fn encode<P: Pairs>(store: u64, checkpoint: &Checkpoint<P::KeyBuf>) -> Vec<u8> {
    use std::borrow::Borrow;
    let Checkpoint { number, redo, end, leaves } = checkpoint;
    let header = Header { kind: Kind::Checkpoint, store, number: *number, lsn: *redo, text: String::new() };
    let mut bytes = header.encode();
    bytes.extend(end.to_le_bytes());
    bytes.extend((leaves.len() as u64).to_le_bytes());
    bytes.extend([0; 8]);
    for leaf in leaves {
        bytes.extend(leaf.image.address.0.get().to_le_bytes());
        bytes.extend(leaf.image.base.map_or(0, |base| base.0.get()).to_le_bytes());
        bytes.extend(leaf.bytes.to_le_bytes());
        let mark = if leaf.is_counted { 0 } else { UNCOUNTED };
        bytes.extend((leaf.records | mark).to_le_bytes());
        let from = bytes.len();
        bytes.extend([0; 4]);
        if let Some(low) = &leaf.low {
            P::write_key(low.borrow(), &mut bytes);
        }
        let length = (bytes.len() - from - 4) as u32;
        bytes[from..from + 4].copy_from_slice(&length.to_le_bytes());
    }
    let length = (bytes.len() - HEAD) as u64;
    bytes[HEAD - 8..HEAD].copy_from_slice(&length.to_le_bytes());
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(u64::from(sum).to_le_bytes());
    bytes
}

/// Makes a checkpoint the store's; [`make_durable`] completes it. Returns the bytes of its file.
///
/// # Errors
/// `NoSpace` or `Io`. The store has the old checkpoint then, or the new one if the rename failed after its effect.
pub(crate) fn publish<P: Pairs>(
    place: &Place,
    syncs: bool,
    checkpoint: &Checkpoint<P::KeyBuf>,
) -> Result<u64> {
    let (path, bytes) = (path(place), encode::<P>(place.store, checkpoint));
    let new = path.with_extension("checkpoint-new");
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(true);
    let written = system::open(&how, &new).and_then(|file| {
        system::write_all_at(&file, &new, 0, &bytes)?;
        if syncs { system::sync_all(&file, &new) } else { Ok(()) }
    });
    if let Err(source) = written {
        let _ = system::remove_file(&new);
        return Err(match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Error::NoSpace { path, bytes: bytes.len() as u64 }
            }
            _ => io("cannot write", &path, source),
        });
    }
    system::rename(&new, &path).map_err(|source| io("cannot rename to", &path, source))?;
    Ok(bytes.len() as u64)
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
    let bytes = match read(&path) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    decode::<P>(&bytes, place.store, &path).map(Some)
}

fn decode<P: Pairs>(bytes: &[u8], store: u64, path: &std::path::Path) -> Result<Checkpoint<P::KeyBuf>> {
    let header = Header::decode(bytes, Kind::Checkpoint, store, path)?;
    let corrupt = |at: usize| Error::Corrupt { what: "checkpoint", at: at as u64 };
    let length = usize::try_from(word(bytes, HEAD - 8)).ok();
    let end = length.and_then(|length| HEAD.checked_add(length)).ok_or_else(|| corrupt(HEAD))?;
    if end.checked_add(8) != Some(bytes.len()) || word(bytes, end) != crc32c::crc32c(&bytes[..end]).into() {
        return Err(corrupt(end.min(bytes.len())));
    }
    let count = word(bytes, HEAD - 16);
    let (mut leaves, mut at) = (Vec::new(), HEAD);
    while at < end {
        let key_bytes = (word(bytes, at + 24) >> 32) as usize;
        let behind = at + LEAF + key_bytes;
        let address =
            NonZeroU64::new(word(bytes, at)).filter(|_| behind <= end).ok_or_else(|| corrupt(at))?;
        let low = match leaves.is_empty() {
            true => None,
            false => Some(P::read_key(&bytes[at + LEAF..behind]).ok_or_else(|| corrupt(at))?),
        };
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
    if leaves.len() as u64 != count {
        return Err(corrupt(HEAD - 16));
    }
    Ok(Checkpoint { number: header.number, redo: header.lsn, end: word(bytes, header::BYTES), leaves })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
        let checkpoint = Checkpoint { number: 2, redo: 10, end: 20, leaves };
        let bytes = encode::<bwtree::Bytes>(9, &checkpoint);
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
