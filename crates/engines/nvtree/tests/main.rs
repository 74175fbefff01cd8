//! Tests of the NV-Tree: contents, costs, damage, failures, threads, schedules. They are one program, so that the engines are compiled
//! once. Under `cfg(shuttle)` there are only the schedules.

mod common;
#[cfg(not(shuttle))]
mod cost;
#[cfg(not(shuttle))]
mod damage;
#[cfg(not(shuttle))]
mod journal;
#[cfg(not(shuttle))]
mod model;
#[cfg(not(shuttle))]
mod nth_failure;
#[cfg(shuttle)]
mod schedules;
#[cfg(not(shuttle))]
mod snapshots;
#[cfg(not(shuttle))]
mod sparse;
#[cfg(not(shuttle))]
mod threads;
#[cfg(not(shuttle))]
mod write_groups;
