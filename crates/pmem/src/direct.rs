//! Direct I/O: reads and writes of a file that bypass the page cache of the operating system. Memory, offsets and lengths of such calls are
//! multiples of [`BLOCK`].

use std::fs::OpenOptions;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;

/// A multiple of the blocks of all usual disks, in bytes.
pub const BLOCK: usize = 4096;

/// Bytes at an address that is a multiple of [`BLOCK`].
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    from: usize,
    bytes: usize,
}

impl Aligned {
    /// Zeros.
    pub fn zeroed(bytes: usize) -> Self {
        let memory = vec![0; bytes + BLOCK - 1];
        // A vector that is moved keeps the address of its bytes.
        let from = memory.as_ptr().align_offset(BLOCK);
        Self { memory, from, bytes }
    }

    /// Keeps the first bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.from..self.from + self.bytes]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.bytes]
    }
}

/// Files that are opened in this way have direct I/O. A file system without it refuses: see [`is_refused`].
pub fn set(how: &mut OpenOptions) {
    how.custom_flags(libc::O_DIRECT);
}

/// True if a call failed because the file system has no direct I/O.
pub fn is_refused(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_keep_their_place() {
        for bytes in [0, 1, BLOCK - 1, BLOCK, 10 * BLOCK] {
            let mut aligned = Aligned::zeroed(bytes);
            assert!(aligned.len() == bytes && aligned.iter().all(|byte| *byte == 0));
            aligned.fill(7);
            let address = aligned.as_ptr();
            let mut moved = Box::new(aligned);
            assert_eq!((moved.as_ptr(), moved.as_ptr().align_offset(BLOCK)), (address, 0));
            moved.truncate(bytes / 2);
            assert_eq!(**moved, *vec![7; bytes / 2]);
            moved.truncate(bytes);
            assert_eq!(moved.len(), bytes / 2);
        }
    }
}
