//! Tests of the CDDS B-Tree and hash table: contents, costs, crashes, mutants, damage, threads, versions. They are one program, so that the
//! engines are compiled once.

mod common;
mod cost;
mod crash;
mod damage;
mod groups;
mod hash_common;
mod hash_cost;
mod hash_crash;
mod hash_full;
mod hash_model;
mod hash_mutants;
mod hash_threads;
mod kept;
mod model;
mod mutants;
mod nth_failure;
mod panics;
mod pointers;
mod simd_scan;
mod threads;
mod turn;
mod turns;
