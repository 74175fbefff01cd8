//! The head of an image in a segment. The format is that of [`segments`](crate::segments).

use crate::header::word;

/// Bytes of a head.
pub(crate) const HEAD: usize = 40;
/// Bytes at the front of an image that its checksum does not cover: the magic number and the checksum.
pub(crate) const UNSUMMED: usize = 8;
const MAGIC: u32 = 0x4547_4d49;
/// In the number of bytes: they are packed.
const PACKED: u64 = 1 << 63;

/// The head of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// CRC-32C of the rest of the head, and of the bytes behind it.
    pub(crate) sum: u32,
    /// Number of bytes behind the head, without padding.
    pub(crate) bytes: u64,
    /// True if they are packed ([`packed`](crate::packed)).
    pub(crate) is_packed: bool,
    /// LSN after the log's last record.
    pub(crate) lsn: u64,
    /// Number of the image since the open.
    pub(crate) number: u64,
}

impl Head {
    /// The head at the front of these bytes. `None` if there is none of this store.
    pub(crate) fn decode(bytes: &[u8], store: u64) -> Option<Self> {
        let [first, found, length, lsn, number] = [0, 8, 16, 24, 32].map(|at| word(bytes, at));
        let is_head = bytes.len() >= HEAD && first as u32 == MAGIC && found == store;
        let (bytes, is_packed) = (length & !PACKED, length & PACKED != 0);
        is_head.then_some(Self { sum: (first >> 32) as u32, bytes, is_packed, lsn, number })
    }
}

/// Appends an image with its head and checksum, without padding.
pub(crate) fn append(
    to: &mut Vec<u8>,
    store: u64,
    contents: &[u8],
    is_packed: bool,
    (lsn, number): (u64, u64),
) {
    let from = to.len();
    to.extend(MAGIC.to_le_bytes());
    to.extend([0; 4]);
    let length = contents.len() as u64 | if is_packed { PACKED } else { 0 };
    for number in [store, length, lsn, number] {
        to.extend(number.to_le_bytes());
    }
    to.extend(contents);
    let sum = crc32c::crc32c(&to[from + UNSUMMED..]);
    to[from + 4..from + UNSUMMED].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_found_as_it_was_written() {
        for is_packed in [false, true] {
            let mut image = vec![1, 2, 3];
            append(&mut image, 7, b"contents", is_packed, (11, 13));
            let image = &image[3..];
            let sum = crc32c::crc32c(&image[8..]);
            let head = Head { sum, bytes: 8, is_packed, lsn: 11, number: 13 };
            assert_eq!(Head::decode(image, 7), Some(head));
            assert_eq!(&image[HEAD..], b"contents");
            assert_eq!(Head::decode(image, 8), None, "another store");
            assert_eq!(Head::decode(&image[..HEAD - 1], 7), None, "too short");
        }
    }
}
