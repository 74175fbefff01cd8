//! Crash exploration of the durable trees and lists of leaves. The tests form one program, so that the engines are compiled once.

mod clear;
mod generations;
mod long;
mod model;
mod panics;
mod regressions;
mod report;
#[path = "../../../engines/bptree/tests/streams.rs"]
mod streams;
mod tables;
mod threads;
mod trees;
mod turn;
