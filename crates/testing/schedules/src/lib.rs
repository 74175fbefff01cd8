//! Schedules: runs of concurrent writers and readers in which a scheduler chooses the order of all steps. The threads do whole operations
//! on an index with the smallest nodes. The scheduler may switch threads before every load and store (`medium`). Some executions use random
//! bursts (`scheduler`), others random priorities (shuttle's PCT scheduler).
//!
//! `work` records the answer of each operation. For each key, one order of its operations must explain all answers; a batch counts as one
//! operation. An order must also explain the contents after a power cut at any moment (`campaign`): they include every write that returned
//! before the cut, and every write whose value a read returned before the cut. Any `index::Index` can run in this way (`scheduled`).
//!
//! The tests of this crate also run transactions on whole stores (`tests/transactions.rs`).
//!
//! Each injected fault (`pmem::omission`) leaves out a part of a protocol, and must be detected.
//!
//! This crate is empty without `cfg(shuttle)`. `BRISTLECONE_ROUNDS` multiplies the number of schedules (default 1). `BRISTLECONE_SEED`
//! offsets the seeds.
#![cfg(shuttle)]
#![allow(missing_docs)]

pub mod campaign;
pub mod disk;
pub mod medium;
pub mod scheduled;
pub mod scheduler;
mod work;
