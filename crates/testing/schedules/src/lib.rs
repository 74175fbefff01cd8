//! Schedules of whole operations: indexes of the smallest nodes, writers and readers beside each other, another thread perhaps going on
//! before every single load and store (`medium`), in random bursts and by priorities (`scheduler`).
//!
//! What each thread was told is written down (`work`) and has to be explained by one operation after the other, key by key, with
//! batches as one; and so has what is there after a power cut at any moment of it: everything that returned before,
//! what readers returned too (`campaign`). Any `index::Index` can be run so (`scheduled`).
//!
//! The injected faults (`pmem::canary`) leave out a part of the protocols each, and must be detected.
//!
//! Only under `cfg(shuttle)`; else this crate is empty. `BRISTLECONE_ROUNDS` sets how many times as many schedules there are (1),
//! `BRISTLECONE_SEED` moves the seeds.
#![cfg(shuttle)]
#![allow(missing_docs)]

pub mod campaign;
mod disk;
mod medium;
pub mod scheduled;
pub mod scheduler;
mod work;
