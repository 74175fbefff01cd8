//! The program `bristlecone-lab`, and the cost model. One test program, so that the engines are compiled once for all of these tests.

mod common;
mod costs;
mod experiments;
mod simulated;
mod usage;
