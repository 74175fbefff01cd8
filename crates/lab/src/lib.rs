//! Benchmarks, peers and experiments.
