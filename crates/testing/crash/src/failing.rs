//! Durable memory whose N-th growth or sync fails, once or from then on. A test repeats its run with N = 1, 2, 3 … until a run has no
//! failure ([`every_nth`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pmem::{Counter, Error, Fence, Line, Medium, Memory, Observed, Result};

/// The calls that fail.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// True for growths, false for syncs.
    pub growth: bool,
    /// Number of the first call that fails, from 1.
    pub nth: u64,
    /// True if all calls after it fail, too.
    pub for_good: bool,
}

impl Plan {
    /// The error of a failed growth. It alternates between the possible ones, by `nth`.
    fn error(&self, bytes: u64) -> Error {
        let path = PathBuf::from("memory");
        match self.nth % 3 {
            0 => Error::Full { max_bytes: bytes - 1 },
            1 => Error::NoSpace { path, bytes },
            _ => Error::Io { what: "cannot grow", path, source: std::io::Error::other("planned") },
        }
    }
}

/// Counts the calls of one run and selects those that fail.
#[derive(Debug)]
pub struct Faults {
    plan: Plan,
    armed: AtomicBool,
    calls: AtomicU64,
    met: AtomicU64,
}

impl Faults {
    /// Counts and injects failures from the start.
    pub fn new(plan: Plan) -> Arc<Self> {
        Arc::new(Self { plan, armed: true.into(), calls: 0.into(), met: 0.into() })
    }

    /// The calls that fail.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    fn fails(&self, growth: bool) -> bool {
        if growth != self.plan.growth || !self.armed.load(Ordering::Relaxed) {
            return false;
        }
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = call == self.plan.nth || (self.plan.for_good && call > self.plan.nth);
        self.met.fetch_add(fails.into(), Ordering::Relaxed);
        fails
    }

    /// Number of calls that failed so far.
    pub fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// Enables or disables failures. Calls are counted only while they are enabled.
    pub fn arm(&self, armed: bool) {
        self.armed.store(armed, Ordering::Relaxed);
    }
}

/// The medium that fails.
pub struct Failing {
    below: Observed,
    faults: Arc<Faults>,
}

impl Failing {
    /// A medium over `memory`. The memory keeps stored words, as a file does when the process dies.
    pub fn new(memory: &Arc<Memory>, faults: &Arc<Faults>) -> Self {
        let below = Observed::new(Arc::clone(memory), Arc::new(Counter::default()));
        Self { below, faults: Arc::clone(faults) }
    }
}

impl Medium for Failing {
    const SHOWS_LINES: bool = false;

    fn line(&self, at: u64) -> &Line {
        self.below.line(at)
    }
    fn copy(&self, at: u64, value: u64) {
        self.below.copy(at, value);
    }
    fn publish(&self, at: u64, value: u64) {
        self.below.publish(at, value);
    }
    fn flush(&self, at: u64, bytes: u64) {
        self.below.flush(at, bytes);
    }
    fn fence(&self, why: Fence) {
        self.below.fence(why);
    }
    fn prefetch(&self, at: u64, bytes: u64) {
        self.below.prefetch(at, bytes);
    }
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes > self.len() && self.faults.fails(true) {
            return Err(self.faults.plan.error(bytes));
        }
        self.below.grow(bytes)
    }
    fn sync(&self, at: u64, bytes: u64) -> Result<()> {
        if self.faults.fails(false) {
            let source = std::io::Error::other("planned");
            return Err(Error::Io { what: "cannot sync", path: PathBuf::from("memory"), source });
        }
        self.below.sync(at, bytes)
    }
    fn lines(&self, _at: u64, _count: usize) -> Option<&[Line]> {
        None
    }
}

/// Calls `run` with N = 1, 2, 3 … until it returns false, which means that no call failed. Does this twice: with only the N-th call
/// failing, and with all later calls failing, too. At least `floor` calls must be able to fail each time.
///
/// # Panics
/// If fewer can.
pub fn every_nth(growth: bool, floor: u64, run: impl Fn(Plan) -> bool) {
    for for_good in [false, true] {
        let clean = (1..).find(|nth| !run(Plan { growth, nth: *nth, for_good })).expect("runs are finite");
        println!("{} calls could fail", clean - 1);
        assert!(clean > floor, "only {} calls could fail", clean - 1);
    }
}
