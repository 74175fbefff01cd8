//! The durable trees and lists of leaves under the crash explorer. One program, so that the engines are compiled once for all of these tests.

mod clear;
mod laps;
mod long;
mod model;
mod panics;
mod regressions;
mod report;
#[path = "../../../engines/bptree/tests/streams.rs"]
mod streams;
mod threads;
mod trees;
mod turn;
