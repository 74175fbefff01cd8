//! The server: commands, connections, the parser of requests. The tests are one program, so that the engines are compiled once.

mod acl;
mod command_table;
mod commands;
mod common;
mod connections;
mod differential;
mod dumps;
mod eviction;
mod expiry;
mod functions;
mod limits;
mod memcached;
mod metrics;
mod notifications;
mod observe;
mod parser;
mod scripts;
mod settings;
mod sockets;
mod sort;
mod streams;
mod structures;
mod subscriptions;
mod templates;
mod tracking;
mod watched;
