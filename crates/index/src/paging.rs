//! Counts of an index whose pages are partly outside of memory.

/// The pages of an index that are in memory, and the traffic of the others. Counts are since the open.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Paging {
    /// Memory budget in bytes.
    pub memory_bytes: u64,
    /// Bytes of pages in memory.
    pub page_bytes: u64,
    /// Bytes of changes that evicted leaves keep in memory.
    pub unsaved_bytes: u64,
    /// Leaves that operations used. A scan uses a leaf once for all its pairs.
    pub used_leaves: u64,
    /// Leaves that were read from files.
    pub read_leaves: u64,
    /// Evicted leaves.
    pub evictions: u64,
    /// Bytes of keys and values of writes.
    pub put_bytes: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Bytes of images written.
    pub image_bytes: u64,
    /// Bytes that compression has saved in the images written.
    pub saved_bytes: u64,
    /// Bytes of images read.
    pub read_bytes: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes of checkpoints written.
    pub checkpoint_bytes: u64,
    /// Images that the cleaner moved.
    pub moved_images: u64,
    /// Number of times that an operation waited for memory or for a checkpoint, or did a part of that work. Many waits say that the disk
    /// does not keep up with the writes.
    pub waits: u64,
    /// Microseconds of these waits, of all threads together.
    pub waited_us: u64,
}

impl Paging {
    /// The share of uses that found their leaf in memory. `None` without a use.
    pub fn hit_rate(&self) -> Option<f64> {
        let misses = self.read_leaves.min(self.used_leaves);
        (self.used_leaves > 0).then(|| (self.used_leaves - misses) as f64 / self.used_leaves as f64)
    }

    /// Bytes of images before their compression, for each byte written. `None` if compression has saved nothing.
    pub fn compression(&self) -> Option<f64> {
        let whole = (self.image_bytes + self.saved_bytes) as f64;
        (self.saved_bytes > 0 && self.image_bytes > 0).then(|| whole / self.image_bytes as f64)
    }

    /// Bytes written to files for each byte of keys and values. `None` without a write.
    pub fn write_amplification(&self) -> Option<f64> {
        let written = self.log_bytes + self.image_bytes + self.checkpoint_bytes;
        (self.put_bytes > 0).then(|| written as f64 / self.put_bytes as f64)
    }
}
