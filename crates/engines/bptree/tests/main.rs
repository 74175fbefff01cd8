//! Tests of the B+-trees: contents, costs, failures, readers, schedules. They are one program, so that the engines are compiled once. Under
//! `cfg(shuttle)` there are only the schedules.

#[cfg(not(shuttle))]
mod common;
#[cfg(not(shuttle))]
mod cost;
#[cfg(not(shuttle))]
mod damage;
#[cfg(not(shuttle))]
mod format_page;
#[cfg(not(shuttle))]
mod model;
#[cfg(not(shuttle))]
mod nth_failure;
#[cfg(not(shuttle))]
mod pointers;
#[cfg(not(shuttle))]
mod readers;
#[cfg(shuttle)]
mod schedules;
#[cfg(not(shuttle))]
mod snapshots;
#[cfg(not(shuttle))]
mod sparse;
#[cfg(not(shuttle))]
mod streams;
