//! `lab crash --tree`: the durable trees under the crash explorer.
pub mod laps;
pub mod subject;
pub mod workloads;
