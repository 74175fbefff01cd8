//! Input files, plain or gzip, read line by line in bounded memory.
//!
//! Invariant: besides buffers of fixed size, at most one line (one record of CSV) is in memory. The caller bounds the bytes of a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use crate::failure::{Failure, Result, io};

const BUFFER_BYTES: usize = 256 << 10;

/// Counts the bytes that are read from the file, before unpacking.
struct Counting<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A file that is read line by line.
pub struct Lines {
    reader: Box<dyn BufRead>,
    /// Name for messages.
    pub name: String,
    /// Length of the file in bytes, 0 if unknown.
    pub file_bytes: u64,
    /// Lines read so far.
    pub number: u64,
    line_bytes_max: u64,
    count: Arc<AtomicU64>,
}

impl Lines {
    /// Opens a file, or standard input for `-`. Unpacks gzip, which it recognizes by the first bytes. [`Lines::append`] refuses a line with
    /// more than `line_bytes_max` bytes.
    pub fn open(path: &Path, line_bytes_max: u64) -> Result<Self> {
        let (raw, name, file_bytes): (Box<dyn Read>, _, _) = if path.as_os_str() == "-" {
            (Box::new(io::stdin()), "standard input".to_owned(), 0)
        } else {
            let name = path.display().to_string();
            let file = File::open(path).map_err(io(format!("cannot open {name}")))?;
            let metadata = file.metadata().map_err(io(format!("cannot open {name}")))?;
            if metadata.is_dir() {
                return Err(Failure::Text(format!("cannot load {name}: it is a directory")));
            }
            (Box::new(file), name, metadata.len())
        };
        let count = Arc::new(AtomicU64::new(0));
        let counting = Counting { inner: raw, count: Arc::clone(&count) };
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, counting);
        let start = plain.fill_buf().map_err(io(format!("cannot read {name}")))?;
        let reader: Box<dyn BufRead> = if start.starts_with(&[0x1f, 0x8b]) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(plain)))
        } else {
            Box::new(plain)
        };
        Ok(Self { reader, name, file_bytes, number: 0, line_bytes_max, count })
    }

    /// Number of bytes read from the file so far; of a gzip file, packed bytes.
    pub fn read_bytes(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Appends the next line, including its line feed if it has one. Returns false at the end of the file. Returns an error text if the
    /// line cannot be read or is too long together with the bytes that `line` already has.
    pub fn append(&mut self, line: &mut Vec<u8>) -> std::result::Result<bool, String> {
        let held = line.len() as u64;
        let space = (self.line_bytes_max + 1).saturating_sub(held);
        self.number += 1;
        let read = self.reader.by_ref().take(space).read_until(b'\n', line);
        match read.map_err(|error| format!("cannot be read: {error}"))? {
            0 if space > 0 => {
                self.number -= 1;
                Ok(false)
            }
            _ if line.len() as u64 > self.line_bytes_max => {
                Err(format!("longer than {} MiB", self.line_bytes_max >> 20))
            }
            _ => Ok(true),
        }
    }
}
