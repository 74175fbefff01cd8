//! The bristlecone program.
fn main() {}
