//! What the explorer asks of the thing under test, and the workloads it is driven by.
//!
//! A subject must be deterministic: the same calls on the same words do the same loads and stores in the same order
//! (no clock, no address, no randomly seeded hash map). A subject that is not is reported as a violation.

use std::collections::BTreeMap;
use std::fmt::Debug;

use pmem::Observed;

/// What an ordered store holds.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Something that can be made, changed, recovered and verified on a medium.
pub trait Subject: Sized + 'static {
    /// One operation.
    type Op: Clone + Debug + 'static;
    /// What `create` and `recover` are told.
    type Config: Clone + Debug + 'static;

    /// Bytes in use at the start, and the most bytes the memory may grow to.
    fn size(config: &Self::Config) -> (u64, u64);

    /// Formats fresh memory. When it returns, an empty subject is durable.
    ///
    /// # Errors
    /// Any error is a violation: the memory is as large as `size` said.
    fn create(medium: Observed, config: &Self::Config) -> Result<Self, String>;

    /// Recovers from an image.
    ///
    /// # Errors
    /// An error says "never created", which is right only if the crash was inside `create`; else it is a violation.
    fn recover(medium: Observed, config: &Self::Config) -> Result<Self, String>;

    /// Carries out an operation; when it returns, the operation is durable.
    ///
    /// # Errors
    /// Any error is a violation.
    fn apply(&mut self, op: &Self::Op) -> Result<(), String>;

    /// True if a crash inside the operation may leave any of its keys as before and others as after.
    fn is_divisible(op: &Self::Op) -> bool {
        let _ = op;
        false
    }

    /// What `apply` does to an ordered map.
    fn apply_model(op: &Self::Op, model: &mut Contents);

    /// Full structural verification, and the contents by a forward scan (backward scan, gets and counts are compared
    /// with it inside).
    ///
    /// # Errors
    /// Any broken invariant, leak or block with two owners.
    fn verify(&self) -> Result<Contents, String>;

    /// A few operations around the one in flight (delete, insert again, update, a forced split, a forced merge), carried
    /// out after recovery.
    fn continuation(op: &Self::Op) -> Vec<Self::Op>;

    /// Whether a second recovery may store to the word at `at` (the superblock's state).
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
    /// The operation runs to its end; every crash inside it is explored.
    Run(Op),
    /// The operation is cut short at a random event and one random image is recovered; every crash inside that recovery
    /// is explored, and the workload goes on from there. So what recovery left unflushed meets later operations.
    Cut(Op),
}

impl<Op> Step<Op> {
    /// The operation, run to its end or not.
    pub fn op(&self) -> &Op {
        match self {
            Self::Run(op) | Self::Cut(op) => op,
        }
    }
}

/// A configuration, operations that lead to the start state, and the steps explored from there.
#[derive(Clone, Debug)]
pub struct Workload<S: Subject> {
    /// For `create` and `recover`.
    pub config: S::Config,
    /// Carried out first, without exploring.
    pub prepare: Vec<S::Op>,
    /// Explored.
    pub steps: Vec<Step<S::Op>>,
}

impl<S: Subject> Workload<S> {
    /// A workload of whole operations from the empty state.
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

/// All sequences of `length` operations over `alphabet`, in the order of an odometer whose last wheel is fastest.
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

/// `count` operations made by `make` from a generator seeded with `seed`.
pub fn random<Op>(seed: u64, count: usize, mut make: impl FnMut(&mut fastrand::Rng) -> Op) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| make(&mut rng)).collect()
}

/// Steps for `ops`, about one in `every` cut short by a crash.
pub fn interrupted<Op>(seed: u64, every: usize, ops: impl IntoIterator<Item = Op>) -> Vec<Step<Op>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    ops.into_iter()
        .map(|op| if rng.usize(..every.max(1)) == 0 { Step::Cut(op) } else { Step::Run(op) })
        .collect()
}
