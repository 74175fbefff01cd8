//! Compression of images, by the block format of LZ4.
//!
//! ```text
//! packed image   bytes of the image: u32 | block of LZ4
//! ```
//!
//! An image is packed only if that saves enough: a packed image has to be read as a whole, and unpacked.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use crate::stream::BUFFER;

/// Bytes of the length before the block.
const LENGTH: usize = 4;
/// An image is packed if this part of it is saved.
const PART: usize = 8;
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
        let length = u32::try_from(image.len()).ok()?.to_le_bytes();
        let most = LENGTH + get_maximum_output_size(image.len());
        // The memory of a long image is not kept.
        if self.packed.len() > 2 * BUFFER {
            self.packed = Vec::new();
        }
        if self.packed.len() < most {
            self.packed.resize(most, 0);
        }
        self.packed[..LENGTH].copy_from_slice(&length);
        let bytes = compress_into_with_table(image, &mut self.packed[LENGTH..], &mut self.table).ok()?;
        let packed = &self.packed[..LENGTH + bytes];
        (packed.len() <= image.len() - image.len() / PART).then_some(packed)
    }
}

/// The image of a packed form. `None`: the bytes are damaged.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (length, block) = packed.split_first_chunk::<LENGTH>()?;
    let bytes = u32::from_le_bytes(*length) as usize;
    // No length is believed that such a block cannot have.
    if bytes > block.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    let mut image = vec![0; bytes];
    (decompress_into(block, &mut image).ok()? == bytes).then_some(image)
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
        for bytes in (0..300).chain([4096, 65_534, 65_535, 65_536, 3 * BUFFER, 16 << 10]) {
            let image = image(bytes, 4, &mut random);
            let Some(packed) = packer.pack(&image).map(<[u8]>::to_vec) else { continue };
            assert!(packed.len() <= bytes - bytes / PART);
            assert_eq!(unpack(&packed), Some(image));
            packed_count += 1;
        }
        assert!(packed_count > 250, "{packed_count}");
        assert!(packer.packed.len() < 2 * BUFFER, "the memory of the long image is freed");
        // The longest block for its bytes.
        let zeros = vec![0; 16 << 20];
        let packed = packer.pack(&zeros).unwrap().to_vec();
        assert_eq!(unpack(&packed), Some(zeros));
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
    fn damaged_bytes_are_an_error_or_another_image_of_bounded_length() {
        let (mut packer, mut random) = (Packer::default(), fastrand::Rng::with_seed(3));
        let image = image(4096, 4, &mut random);
        let packed = packer.pack(&image).unwrap().to_vec();
        for end in 0..packed.len() {
            assert_eq!(unpack(&packed[..end]), None, "{end} bytes");
        }
        for _ in 0..20_000 {
            let mut damaged = packed.clone();
            let at = random.usize(..damaged.len());
            damaged[at] = random.u8(..);
            assert!(unpack(&damaged).is_none_or(|image| image.len() <= packed.len() * RATIO_MAX));
        }
        let long = [&u32::MAX.to_le_bytes()[..], &packed[LENGTH..]].concat();
        assert_eq!(unpack(&long), None);
        let short = [&4095u32.to_le_bytes()[..], &packed[LENGTH..]].concat();
        assert_eq!(unpack(&short), None);
        let longer = [&4097u32.to_le_bytes()[..], &packed[LENGTH..]].concat();
        assert_eq!(unpack(&longer), None);
    }
}
