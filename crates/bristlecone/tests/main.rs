//! Stores of every engine through the public API: contents, crashes, power cuts, damage, backups. The tests are one program, so that the
//! engines are compiled once.

mod backup;
mod battery;
mod beside_unsynced;
mod common;
mod compact;
mod damage;
mod directories;
mod failing_calls;
mod golden;
mod histories;
mod in_files;
mod journal_volume;
mod large_batches;
mod latch_free;
mod power;
mod read_only;
mod refusals;
mod scans_and_batches;
mod snapshots;
mod stats;
mod tables;
mod tickets;
mod transactions;
