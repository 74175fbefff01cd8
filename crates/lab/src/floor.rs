//! The baseline: the cost of the memory itself, measured in the same backing directory as the trees, over about as much
//! memory as they use.
//!
//! R is a dependent read with a cache miss: a pointer chase through lines in random order. F is the same chase with a store to each line, a
//! flush and a fence. In a tree larger than the cache, no operation is faster than R unless cache misses overlap, and no durable operation
//! is faster than F.

use std::time::Instant;

use pmem::{Fence, LINE, Medium, Native, Result};

/// A random cycle of pointers through the lines of a medium. Both chases follow it.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    medium_lines: u64,
    seed: u64,
}

impl Floor {
    /// Prepares a random cycle through the first `bytes` of the medium.
    ///
    /// # Errors
    /// Errors of growing the medium.
    pub fn prepare(medium: &Native, bytes: u64, seed: u64) -> Result<Self> {
        medium.grow(bytes)?;
        let lines = bytes / LINE;
        // Sattolo's shuffle gives one cycle through all lines.
        let mut order: Vec<u32> = (0..lines as u32).collect();
        let mut random = fastrand::Rng::with_seed(seed);
        for i in (1..order.len()).rev() {
            order.swap(i, random.usize(..i));
        }
        for (i, next) in order.iter().enumerate() {
            medium.copy(i as u64 * LINE, u64::from(*next) * LINE);
        }
        Ok(Self { medium_lines: lines, seed })
    }

    /// R: nanoseconds per dependent read.
    pub fn read_ns(&self, medium: &Native, steps: u64) -> f64 {
        self.chase(medium, steps, |_| {})
    }

    /// F: nanoseconds per dependent read, store, flush and fence.
    pub fn flush_ns(&self, medium: &Native, steps: u64) -> f64 {
        self.chase(medium, steps, |at| {
            medium.publish(at + 8, at);
            medium.flush(at + 8, 8);
            medium.fence(Fence::Commit);
        })
    }

    fn chase(&self, medium: &Native, steps: u64, at_each: impl Fn(u64)) -> f64 {
        let mut at = self.seed % self.medium_lines * LINE;
        let start = Instant::now();
        for _ in 0..steps {
            let next = medium.word(at);
            at_each(at);
            at = next;
        }
        let elapsed = start.elapsed();
        std::hint::black_box(at);
        elapsed.as_nanos() as f64 / steps as f64
    }
}
