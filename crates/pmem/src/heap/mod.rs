//! The content of a region: superblock, blocks, records, and the redo log.

pub mod alloc;
pub mod log;
pub mod record;
pub mod region;
