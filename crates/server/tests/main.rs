//! The server: commands, connections, the parser of requests. One program, so that the engines are compiled once for all of these tests.

mod commands;
mod common;
mod connections;
mod parser;
