//! Tests of the Bw-tree: comparison with a map, threads, schedules. They are one program, so that the engines are compiled once.
//! With `cfg(shuttle)` only the schedules run.

#[cfg(not(shuttle))]
mod ahead;
mod common;
#[cfg(not(shuttle))]
mod model;
#[cfg(not(shuttle))]
mod paged;
#[cfg(shuttle)]
mod schedules;
#[cfg(not(shuttle))]
mod threads;
