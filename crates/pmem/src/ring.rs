//! Many reads of files with few system calls: an `io_uring` of Linux. Reads of a disk overlap.
//!
//! Invariants:
//! * U1: the system writes into a buffer until the read's completion was seen. Until then the buffer is not freed. If the system does not
//!   tell the completion any more, it is never freed.
//! * U2: a ring that failed once makes no further calls.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::direct::Aligned;

/// Number of times that a list of reads is offered again to a system without memory for it, and the pause before each.
const REFUSED_MAX: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub struct Part<'f> {
    /// The file.
    pub file: &'f File,
    /// The offset in bytes.
    pub at: u64,
    /// The number of bytes, less than 2 GiB.
    pub bytes: usize,
}

/// A queue of reads.
pub struct Ring {
    ring: IoUring,
    entries: usize,
    /// True after a failure (U2).
    is_broken: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("entries", &self.entries).field("is_broken", &self.is_broken).finish()
    }
}

impl Ring {
    /// A ring for this number of reads at a time.
    ///
    /// # Errors
    /// The system's: it has no `io_uring`, or does not allow it (containers often do not).
    pub fn new(entries: u32) -> Result<Self> {
        let ring = IoUring::new(entries)?;
        Ok(Self { ring, entries: entries as usize, is_broken: false })
    }

    /// True after a failure. Then all reads fail.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Reads all these parts. Each result has the bytes that one read of the system gave: fewer than the part's at the end of the file, and
    /// maybe elsewhere.
    pub fn read(&mut self, parts: &[Part<'_>]) -> Vec<Result<Aligned>> {
        parts.chunks(self.entries).flat_map(|parts| self.read_together(parts)).collect()
    }

    /// Reads at most as many parts as the ring has entries.
    fn read_together(&mut self, parts: &[Part<'_>]) -> Vec<Result<Aligned>> {
        let failed = || Error::other("the ring has failed");
        if self.is_broken {
            return parts.iter().map(|_| Err(failed())).collect();
        }
        // Until all completions were seen. U1 and U2 hold if this thread panics, too.
        self.is_broken = true;
        let mut buffers: Vec<_> =
            parts.iter().map(|part| ManuallyDrop::new(Aligned::zeroed(part.bytes))).collect();
        let mut results: Vec<Option<i32>> = vec![None; parts.len()];
        let mut pushed = 0;
        for (number, (part, buffer)) in parts.iter().zip(&mut buffers).enumerate() {
            let file = types::Fd(part.file.as_raw_fd());
            let read = opcode::Read::new(file, buffer.as_mut_ptr(), buffer.len() as u32);
            let entry = read.offset(part.at).build().user_data(number as u64);
            // SAFETY: the buffer stays until the completion is seen (U1). The file is open until the read is submitted, in this call; after
            // that the system keeps it.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                break;
            }
            pushed += 1;
        }
        let (mut waiting, mut refused) = (pushed, 0);
        while waiting > 0 {
            let submitted = self.ring.submit_and_wait(waiting);
            for completion in self.ring.completion() {
                let result = results.get_mut(completion.user_data() as usize);
                if let Some(result) = result.filter(|result| result.is_none()) {
                    *result = Some(completion.result());
                    waiting -= 1;
                }
            }
            match submitted.map_err(|error| error.kind()) {
                Ok(_) | Err(ErrorKind::Interrupted) => {}
                // Without memory for now, the system takes the rest later. Readers wait, so not for ever.
                Err(ErrorKind::WouldBlock | ErrorKind::ResourceBusy) if refused < REFUSED_MAX => {
                    refused += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(_) => break,
            }
        }
        self.is_broken = waiting > 0 || pushed < parts.len();
        let mut done = Vec::with_capacity(parts.len());
        for (number, (buffer, result)) in buffers.into_iter().zip(results).enumerate() {
            // U1: a buffer that was pushed and has no completion stays as it is.
            if result.is_none() && number < pushed {
                done.push(Err(failed()));
                continue;
            }
            let mut buffer = ManuallyDrop::into_inner(buffer);
            done.push(match result {
                Some(code) if code < 0 => Err(Error::from_raw_os_error(-code)),
                Some(bytes) => {
                    buffer.truncate(bytes as usize);
                    Ok(buffer)
                }
                None => Err(failed()),
            });
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// `None`: this system has no rings, or forbids them, so there is nothing to test. Its users are tested without a ring, too.
    fn ring() -> Option<Ring> {
        let refusals = [ErrorKind::Unsupported, ErrorKind::PermissionDenied, ErrorKind::OutOfMemory];
        match Ring::new(8) {
            Ok(ring) => Some(ring),
            Err(error) => {
                assert!(refusals.contains(&error.kind()), "{error}");
                println!("not tested: this system gives no ring ({error})");
                None
            }
        }
    }

    #[test]
    fn all_parts_are_read_in_their_order() {
        let Some(mut ring) = ring() else { return };
        let file = tempfile::tempfile().unwrap();
        let contents: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_all_at(&contents, 0).unwrap();
        // More than the ring has entries; the last ones reach behind the end of the file, or begin there.
        let parts: Vec<Part<'_>> =
            (0..103_u64).map(|i| Part { file: &file, at: i * 1000, bytes: 1 + 29 * i as usize }).collect();
        for (part, read) in parts.iter().zip(ring.read(&parts)) {
            let from = contents.len().min(part.at as usize);
            let to = contents.len().min(from + part.bytes);
            assert_eq!(read.unwrap()[..], contents[from..to], "{part:?}");
        }
    }

    #[test]
    fn a_read_that_fails_does_not_disturb_the_others() {
        let Some(mut ring) = ring() else { return };
        let (file, dir) = (tempfile::tempfile().unwrap(), tempfile::tempdir().unwrap());
        file.write_all_at(b"contents", 0).unwrap();
        let dir = File::open(dir.path()).unwrap();
        let parts = [&file, &dir, &file].map(|file| Part { file, at: 0, bytes: 8 });
        let read = ring.read(&parts);
        assert_eq!(read[1].as_ref().unwrap_err().kind(), ErrorKind::IsADirectory);
        assert!([0, 2].iter().all(|i| read[*i].as_ref().unwrap()[..] == b"contents"[..]));
    }

    #[test]
    fn a_broken_ring_reads_nothing() {
        let Some(mut ring) = ring() else { return };
        let file = tempfile::tempfile().unwrap();
        ring.is_broken = true;
        let read = ring.read(&[Part { file: &file, at: 0, bytes: 8 }]);
        assert_eq!(read[0].as_ref().unwrap_err().kind(), ErrorKind::Other);
    }
}
