//! Tests of VLAB: contents, costs, damage, failures, threads, rewired pages, schedules. They are one program, so that the engines are
//! compiled once. Under `cfg(shuttle)` there are only the schedules.

#[cfg(not(shuttle))]
mod bound;
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
#[cfg(not(shuttle))]
mod rewired;
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
