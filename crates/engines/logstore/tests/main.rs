//! Tests of the store: comparison with a map, threads, restarts, power cuts, failing calls. They are one program.

#![cfg(not(loom))]

mod churn;
mod common;
mod cuts;
mod damage;
mod failing;
mod model;
mod omissions;
mod power;
mod threads;
