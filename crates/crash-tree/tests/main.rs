//! The durable trees and lists of leaves under the crash explorer. One program, so that the engines are compiled once for all of these tests.

mod laps;
mod lists;
mod long;
mod regressions;
mod report;
mod threads;
mod trees;
mod turn;
