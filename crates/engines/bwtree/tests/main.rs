//! The Bw-tree: streams against a model, threads, schedules. One program, so that the engines are compiled once for all of these tests.
//! Under `cfg(shuttle)` there are the schedules alone.

mod common;
#[cfg(not(shuttle))]
mod model;
#[cfg(shuttle)]
mod schedules;
#[cfg(not(shuttle))]
mod threads;
