//! What a region holds: its superblock, blocks, records, and the redo log.

pub mod alloc;
pub mod log;
pub mod record;
pub mod region;
