//! Compression of images, by the block format of LZ4.
//!
//! ```text
//! packed image   bytes of the image: u32 | CRC-32C of the image: u32 | block of LZ4
//! ```
//!
//! An image is packed only if that saves enough: a packed image has to be read as a whole, and unpacked. Its own checksum shows that the
//! unpacked bytes are those that were packed.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use crate::head::HEAD;
use crate::segment::UNIT;
use crate::stream::BUFFER;

/// Bytes before the block.
const PREFIX: usize = 8;
/// An image is packed if this part of its space is saved.
const PART: usize = 4;
/// A longer image is not packed. So the address of a packed image always has the length of the packed form.
const LONGEST: usize = 15 << 20;
/// A block of LZ4 becomes at most this number of times as long when it is unpacked: a byte adds 255 to the length of a match.
const RATIO_MAX: usize = 255;

/// Packs one image after another, with the same memory.
#[derive(Default)]
pub(crate) struct Packer {
    table: CompressTable,
    packed: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// The packed form of an image. `None` if it does not save enough.
    pub(crate) fn pack(&mut self, image: &[u8]) -> Option<&[u8]> {
        if image.len() > LONGEST {
            return None;
        }
        let most = PREFIX + get_maximum_output_size(image.len());
        if self.packed.len() < most {
            self.packed.resize(most, 0);
        }
        let (prefix, block) = self.packed.split_at_mut(PREFIX);
        prefix[..4].copy_from_slice(&(image.len() as u32).to_le_bytes());
        prefix[4..].copy_from_slice(&crc32c::crc32c(image).to_le_bytes());
        let bytes = PREFIX + compress_into_with_table(image, block, &mut self.table).ok()?;
        let (space, packed) = (space(image.len()), space(bytes));
        (packed <= space - space / PART).then(|| &self.packed[..bytes])
    }

    /// Frees the memory that only a long image needs.
    pub(crate) fn shrink(&mut self) {
        if self.packed.len() > 2 * BUFFER {
            self.packed = Vec::new();
        }
    }
}

/// Bytes that contents of this length take in a segment.
pub(crate) fn space(contents: usize) -> usize {
    (HEAD + contents).next_multiple_of(UNIT as usize)
}

/// The image of a packed form. `None`: the bytes are damaged.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = packed.split_first_chunk()?;
    let (sum, block) = rest.split_first_chunk()?;
    let bytes = u32::from_le_bytes(*length) as usize;
    // No length is believed that such a block cannot have.
    if bytes > LONGEST.min(block.len().saturating_mul(RATIO_MAX)) {
        return None;
    }
    let mut image = vec![0; bytes];
    let is_whole = decompress_into(block, &mut image).ok()? == bytes;
    (is_whole && crc32c::crc32c(&image) == u32::from_le_bytes(*sum)).then_some(image)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Bytes that repeat: `variety` different ones.
    fn image(bytes: usize, variety: u8, random: &mut fastrand::Rng) -> Vec<u8> {
        let words: Vec<[u8; 8]> = (0..variety).map(|_| random.u64(..).to_le_bytes()).collect();
        let mut image: Vec<u8> = Vec::new();
        while image.len() < bytes {
            image.extend(words[random.usize(..words.len())]);
        }
        image.truncate(bytes);
        image
    }

    #[test]
    fn an_image_of_any_length_is_packed_and_unpacked() {
        let (mut packer, mut random) = (Packer::default(), fastrand::Rng::with_seed(1));
        let mut packed_count = 0;
        for bytes in (0..600).chain([4096, 65_534, 65_535, 65_536, 3 * BUFFER, 16 << 10, LONGEST]) {
            let image = image(bytes, 4, &mut random);
            let Some(packed) = packer.pack(&image).map(<[u8]>::to_vec) else { continue };
            assert!(space(packed.len()) * 4 <= space(bytes) * 3);
            assert_eq!(unpack(&packed), Some(image));
            packed_count += 1;
        }
        assert!(packed_count > 300, "{packed_count}");
        assert!(packer.packed.len() > LONGEST);
        packer.shrink();
        assert!(packer.packed.is_empty());
        // The longest image of its block, and one that is too long.
        let mut zeros = vec![0; LONGEST];
        let packed = packer.pack(&zeros).unwrap().to_vec();
        assert_eq!(unpack(&packed).as_ref(), Some(&zeros));
        zeros.push(0);
        assert_eq!(packer.pack(&zeros), None);
    }

    #[test]
    fn random_bytes_are_not_packed() {
        let (mut packer, mut random) = (Packer::default(), fastrand::Rng::with_seed(2));
        for bytes in [1, 100, 4096, 100_000] {
            let image: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
            assert_eq!(packer.pack(&image), None);
        }
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let (mut packer, mut random) = (Packer::default(), fastrand::Rng::with_seed(3));
        let image = image(4096, 4, &mut random);
        let packed = packer.pack(&image).unwrap().to_vec();
        for end in 0..packed.len() {
            assert_eq!(unpack(&packed[..end]), None, "{end} bytes");
        }
        for _ in 0..20_000 {
            let mut damaged = packed.clone();
            let at = random.usize(..damaged.len());
            damaged[at] ^= random.u8(1..);
            assert!(unpack(&damaged).is_none_or(|found| found == image), "byte {at}");
        }
        for length in [0, 1, 4095, 4097, LONGEST as u32, u32::MAX] {
            let other = [&length.to_le_bytes()[..], &packed[4..]].concat();
            assert_eq!(unpack(&other), None, "{length} bytes");
        }
    }
}
