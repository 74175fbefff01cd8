//! The program `bristlecone` as scripts and clients see it. One test program, so that the engines are compiled once for all of these tests.

mod beside;
mod common;
mod configuration;
mod durable;
mod expiry;
mod functions;
mod jobs;
mod kill;
mod load;
mod memcached;
mod memory;
mod network;
mod operator;
mod real_clients;
mod shared_keys;
mod structures;
mod takeover;
mod top;
mod tour;
mod transactions;
mod usage;
mod versions;
