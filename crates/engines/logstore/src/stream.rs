//! The end of a segment: bytes that were appended to it and are not written yet (P1 of [`segments`](crate::segments)).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use pmem::file::io;
use pmem::{Error, Result};

use crate::helper::Helper;
use crate::segment::Segment;

/// Bytes that are collected before a write.
pub(crate) const BUFFER: usize = 1 << 20;

/// A buffer that is handed over (P1).
#[derive(Debug)]
pub(crate) struct Handed {
    number: u64,
    segment: Arc<Segment>,
    at: u64,
    bytes: Arc<Vec<u8>>,
    /// The result of the write. `None`: no thread writes it.
    pub(crate) result: Option<Receiver<std::io::Result<()>>>,
}

/// A segment that is appended to.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) current: Option<(u64, Arc<Segment>)>,
    /// Bytes that are not written or handed over yet, and their offset.
    pub(crate) buffer: Vec<u8>,
    pub(crate) at: u64,
    /// Bytes that compression has saved in the buffer.
    pub(crate) saved: u64,
    pub(crate) handed: Option<Handed>,
}

impl Stream {
    /// The bytes of a segment from an offset on that this stream has.
    pub(crate) fn bytes(&self, number: u64, offset: u64) -> Option<&[u8]> {
        let handed = self.handed.iter().map(|own| (own.number, own.at, &**own.bytes));
        let current = self.current.iter().map(|own| (own.0, self.at, &*self.buffer));
        handed.chain(current).filter(|own| own.0 == number).find_map(|(_, at, bytes)| {
            let from = usize::try_from(offset.checked_sub(at)?).ok()?;
            bytes.get(from..).filter(|bytes| !bytes.is_empty())
        })
    }

    /// Lets a thread write the buffer. Before, waits until the buffer that was handed over is written. Without a thread, the next hand-over
    /// or write does it.
    ///
    /// # Errors
    /// `NoSpace`; `Io`: the buffer that was handed over is not written. A later call tries again.
    pub(crate) fn hand_over(&mut self, helper: Option<&Helper>) -> Result<()> {
        let spare = self.finish()?;
        let Some((number, segment)) = self.current.clone().filter(|_| !self.buffer.is_empty()) else {
            self.reuse(spare);
            return Ok(());
        };
        if let Some(block) = segment.block {
            self.buffer.resize(self.buffer.len().next_multiple_of(block), 0);
        }
        let (at, bytes) = (self.at, Arc::new(std::mem::replace(&mut self.buffer, spare)));
        self.at += bytes.len() as u64;
        let result = helper.map(|helper| {
            let (done, result) = sync_channel(1);
            let (segment, bytes) = (Arc::clone(&segment), Arc::clone(&bytes));
            helper.run(move || {
                let written = segment.write(at, &bytes);
                drop(bytes);
                // Without a receiver the segments are dropped.
                let _ = done.send(written);
            });
            result
        });
        self.handed = Some(Handed { number, segment, at, bytes, result });
        Ok(())
    }

    /// Writes the buffer.
    ///
    /// # Errors
    /// As [`hand_over`](Self::hand_over).
    pub(crate) fn write(&mut self) -> Result<()> {
        self.hand_over(None)?;
        let spare = self.finish()?;
        self.reuse(spare);
        Ok(())
    }

    /// Keeps an empty buffer for the next images, unless there is one.
    fn reuse(&mut self, spare: Vec<u8>) {
        if self.buffer.capacity() == 0 {
            self.buffer = spare;
        }
    }

    /// Waits until the buffer that is handed over is written. If that failed, writes it. Returns an empty buffer.
    fn finish(&mut self) -> Result<Vec<u8>> {
        let Some(handed) = &mut self.handed else { return Ok(Vec::new()) };
        // A thread that has ended has no result.
        let written = handed.result.take().and_then(|result| result.recv().ok()?.ok());
        written.map_or_else(|| handed.segment.write(handed.at, &handed.bytes), Ok).map_err(|source| {
            let path = &handed.segment.path;
            match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    Error::NoSpace { path: path.clone(), bytes: handed.bytes.len() as u64 }
                }
                _ => io("cannot write", path, source),
            }
        })?;
        let mut spare =
            self.handed.take().and_then(|handed| Arc::into_inner(handed.bytes)).unwrap_or_default();
        spare.clear();
        // One large image has made it longer.
        spare.shrink_to(2 * BUFFER);
        Ok(spare)
    }
}
