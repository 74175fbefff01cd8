//! The interface of the code under test, and the workloads that drive it.
//!
//! A subject must be deterministic: the same calls on the same words do the same loads and stores in the same order (no clock, no address,
//! no randomly seeded hash map). The explorer reports a subject that is not deterministic as a violation.

use std::collections::BTreeMap;
use std::fmt::Debug;

use pmem::Observed;

/// The contents of an ordered store.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A data structure that can be created, changed, recovered and verified on a medium.
pub trait Subject: Sized + 'static {
    /// One operation.
    type Op: Clone + Debug + 'static;
    /// The parameters of `create` and `recover`.
    type Config: Clone + Debug + 'static;

    /// Returns the bytes in use at the start, and the maximum bytes of the memory.
    fn size(config: &Self::Config) -> (u64, u64);

    /// Formats fresh memory. When it returns, an empty subject is durable.
    ///
    /// # Errors
    /// Any error is a violation: the memory has the size that `size` returned.
    fn create(medium: Observed, config: &Self::Config) -> Result<Self, String>;

    /// Recovers from an image.
    ///
    /// # Errors
    /// An error means "never created". It is valid only if the crash was inside `create`. Otherwise it is a violation.
    fn recover(medium: Observed, config: &Self::Config) -> Result<Self, String>;

    /// Runs an operation. When it returns, the operation is durable.
    ///
    /// # Errors
    /// Any error is a violation.
    fn apply(&mut self, op: &Self::Op) -> Result<(), String>;

    /// True if a crash inside the operation may leave some of its keys in their old state and others in their new state.
    fn is_divisible(op: &Self::Op) -> bool {
        let _ = op;
        false
    }

    /// Applies the operation to an ordered map.
    fn apply_model(op: &Self::Op, model: &mut Contents);

    /// Verifies the whole structure. Returns the contents of a forward scan, after comparing them with a backward scan, gets and counts.
    ///
    /// # Errors
    /// Any broken invariant, leak or block with two owners.
    fn verify(&self) -> Result<Contents, String>;

    /// A few operations near the one in flight (delete, insert again, update, a forced split, a forced merge). They run after recovery.
    fn continuation(op: &Self::Op) -> Vec<Self::Op>;

    /// True if a second recovery may store to the word at `at` (the superblock's state).
    fn idempotence_exempt(at: u64) -> bool {
        let _ = at;
        false
    }

    /// Closes cleanly. When it returns, every store is durable.
    ///
    /// # Errors
    /// Any error is a violation.
    fn close(self) -> Result<(), String>;
}

/// One step of a workload.
#[derive(Clone, Debug)]
pub enum Step<Op> {
    /// The operation runs to its end. Every crash inside it is explored.
    Run(Op),
    /// The operation is cut at a random event and one random image is recovered. Every crash inside that recovery is explored, and the
    /// workload continues from there. So later operations run on lines that recovery left unflushed.
    Cut(Op),
}

impl<Op> Step<Op> {
    /// The operation.
    pub fn op(&self) -> &Op {
        match self {
            Self::Run(op) | Self::Cut(op) => op,
        }
    }
}

/// A configuration, operations that lead to the start state, and the steps to explore.
#[derive(Clone, Debug)]
pub struct Workload<S: Subject> {
    /// Passed to `create` and `recover`.
    pub config: S::Config,
    /// Operations that run first, without exploration.
    pub prepare: Vec<S::Op>,
    /// Steps to explore.
    pub steps: Vec<Step<S::Op>>,
}

impl<S: Subject> Workload<S> {
    /// A workload of complete operations that starts empty.
    pub fn new(config: S::Config, ops: impl IntoIterator<Item = S::Op>) -> Self {
        Self { config, prepare: Vec::new(), steps: ops.into_iter().map(Step::Run).collect() }
    }

    /// The same steps after `prepare`.
    #[must_use]
    pub fn after(mut self, prepare: impl IntoIterator<Item = S::Op>) -> Self {
        self.prepare = prepare.into_iter().collect();
        self
    }
}

/// Returns all sequences of `length` operations over `alphabet`. The last position changes fastest.
pub fn sequences<Op: Clone>(alphabet: &[Op], length: usize) -> impl Iterator<Item = Vec<Op>> {
    let count = alphabet.len().pow(length as u32);
    (0..count).map(move |mut number| {
        let mut ops: Vec<Op> = (0..length)
            .map(|_| {
                let op = alphabet[number % alphabet.len()].clone();
                number /= alphabet.len();
                op
            })
            .collect();
        ops.reverse();
        ops
    })
}

/// Returns `count` operations, made by `make` from a generator with the seed `seed`.
pub fn random<Op>(seed: u64, count: usize, mut make: impl FnMut(&mut fastrand::Rng) -> Op) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| make(&mut rng)).collect()
}

/// Returns steps for `ops`. About one in `every` is cut by a crash.
pub fn interrupted<Op>(seed: u64, every: usize, ops: impl IntoIterator<Item = Op>) -> Vec<Step<Op>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    ops.into_iter()
        .map(|op| if rng.usize(..every.max(1)) == 0 { Step::Cut(op) } else { Step::Run(op) })
        .collect()
}
