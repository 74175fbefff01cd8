//! One segment file, and the addresses of images in it. The format is that of [`segments`](crate::segments).

use std::fs::File;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use bwtree::Address;
use pmem::direct::{Aligned, BLOCK};
use pmem::file::io;
use pmem::{Result, system};

/// The least and the greatest number of bytes of a segment at which the next one begins.
pub(crate) const SEGMENT_MIN: u64 = 4 << 20;
pub(crate) const SEGMENT: u64 = 64 << 20;
/// Images begin at multiples of this.
pub(crate) const UNIT: u64 = 64;
/// The greatest number of a segment.
pub(crate) const SEGMENT_MAX: u64 = (1 << 24) - 1;
const OFFSET_BITS: u32 = 20;
const LENGTH_BITS: u32 = 18;
const PACKED: u64 = 1 << 62;
const _: () = assert!(SEGMENT <= UNIT << OFFSET_BITS);

/// An address in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// Bytes with head and padding. 0: unknown.
    pub(crate) bytes: u64,
    /// True if the image is compressed ([`packed`](crate::packed)).
    pub(crate) is_packed: bool,
}

impl Parts {
    /// `None`: there are too many segments.
    pub(crate) fn pack(self) -> Option<Address> {
        let length = self.bytes / UNIT;
        let length = if length < 1 << LENGTH_BITS { length } else { 0 };
        let packed =
            self.segment << (OFFSET_BITS + LENGTH_BITS) | (self.offset / UNIT) << LENGTH_BITS | length;
        let packed = if self.is_packed { packed | PACKED } else { packed };
        (self.segment <= SEGMENT_MAX).then(|| NonZeroU64::new(packed).map(Address)).flatten()
    }

    pub(crate) fn of(address: Address) -> Self {
        let packed = address.0.get();
        Self {
            // There is no segment of this number if the highest bit is set.
            segment: (packed & !PACKED) >> (OFFSET_BITS + LENGTH_BITS),
            offset: (packed >> LENGTH_BITS & ((1 << OFFSET_BITS) - 1)) * UNIT,
            bytes: (packed & ((1 << LENGTH_BITS) - 1)) * UNIT,
            is_packed: packed & PACKED != 0,
        }
    }
}

/// A segment file.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Unlike its number, no other segment of this process ever has it.
    pub(crate) id: u64,
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// Bytes that are written.
    pub(crate) written: AtomicU64,
    /// `Some`: direct I/O, and writes are multiples of this number of bytes. `None`: the page cache is used.
    pub(crate) block: Option<usize>,
}

impl Segment {
    /// A segment whose file is written up to this number of bytes.
    pub(crate) fn new(file: File, path: PathBuf, written: u64, block: Option<usize>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Self { id: IDS.fetch_add(1, Ordering::Relaxed), file, path, written: written.into(), block }
    }

    /// Reads bytes, or fewer at the end of the file.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn read(&self, from: u64, bytes: usize) -> Result<Vec<u8>> {
        if self.block.is_some() {
            let before = from as usize % BLOCK;
            let read = self.read_blocks(from - before as u64, (before + bytes).next_multiple_of(BLOCK))?;
            return Ok(read.get(before..read.len().min(before + bytes)).unwrap_or_default().to_vec());
        }
        let mut read = vec![0; bytes];
        let count = self.read_into(from, &mut read)?;
        read.truncate(count);
        Ok(read)
    }

    /// As [`read`](Self::read). With direct I/O, offset and length are multiples of [`BLOCK`].
    pub(crate) fn read_blocks(&self, from: u64, bytes: usize) -> Result<Aligned> {
        let mut read = Aligned::zeroed(bytes);
        let count = self.read_into(from, &mut read)?;
        read.truncate(count);
        Ok(read)
    }

    fn read_into(&self, from: u64, bytes: &mut [u8]) -> Result<usize> {
        let (mut at, mut stopped) = (0, None);
        while at < bytes.len() {
            match system::read_at(&self.file, &self.path, from + at as u64, &mut bytes[at..]) {
                Ok(0) => break,
                Ok(count) => at += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(io("cannot read", &self.path, source)),
            }
            if self.block.is_some() && !at.is_multiple_of(BLOCK) {
                // The end of the file, or a bad sector: then the next read fails.
                if from + at as u64 >= self.written() || stopped == Some(at) {
                    break;
                }
                stopped = Some(at);
                at = at / BLOCK * BLOCK;
            }
        }
        Ok(at)
    }

    /// Writes bytes behind those that are written. With direct I/O, offset and length are multiples of `block`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        if self.block.is_some() {
            let mut aligned = Aligned::zeroed(bytes.len());
            aligned.copy_from_slice(bytes);
            system::write_all_at(&self.file, &self.path, at, &aligned)?;
        } else {
            system::write_all_at(&self.file, &self.path, at, bytes)?;
        }
        self.written.store(at + bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_parts() {
        for segment in [1, 2, SEGMENT_MAX] {
            for offset in [512, SEGMENT - 64] {
                for bytes in [64, 4096, (64 << 18) - 64] {
                    for is_packed in [false, true] {
                        let parts = Parts { segment, offset, bytes, is_packed };
                        assert_eq!(parts.pack().map(Parts::of), Some(parts));
                    }
                }
                let large = Parts { segment, offset, bytes: 64 << 18, is_packed: false };
                assert_eq!(large.pack().map(Parts::of), Some(Parts { bytes: 0, ..large }));
            }
        }
        assert_eq!(Parts { segment: SEGMENT_MAX + 1, offset: 0, bytes: 0, is_packed: false }.pack(), None);
    }
}
