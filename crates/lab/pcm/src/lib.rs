//! A simulator of phase-change memory that works below any index. It computes cycles and energy of operations and the wear of lines [wB+
//! §2.4, §5.1].
//!
//! [`Pcm`] observes an [`Observed`](pmem::Observed) medium, so the code that runs on DRAM runs here unchanged. The results are the same on
//! any machine, to the cycle. The simulator models one in-order core, which has a clock but no pipeline. Its modules:
//!
//! * `config`: all parameters of the hierarchy, with presets for the paper's phase-change memory (table 4) and for other memories.
//! * `cache`: a set-associative cache. `device`: ranks that read and write lines, with priority for reads, and the write-back queue.
//! * `sim`: the clock, and the effects of a load, store, prefetch, flush and fence.
//! * `wear`: writes per line, with and without wear levelling; years of lifetime.
//!
//! Invariants:
//! * P1: all cycles, bits and counts depend only on the order of calls and the configuration. The simulation uses no time, no addresses and
//!   no random numbers of the host.
//! * P2: the device keeps its own copy of the memory. The changed words and bits of a line are the differences between this copy and the
//!   line at its write-back. So repeated stores to a word, or a store of its old value, cost the same as on a real device.
//! * P3: caches are inclusive: a line in L1 is in L2, a line in L2 is in L3. A dirty line is in L3 until it is in the queue.
#![forbid(unsafe_code)]

mod cache;
mod config;
mod device;
mod sim;
mod wear;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::LINE;
use pmem::observed::{Event, Memory, Observer};

pub use config::{Config, Level, PRESETS, Preset};
pub use sim::{Sim, Totals};
pub use wear::{Levelling, Wear, Write};

/// An observer that charges all accesses to a simulated hierarchy. See the module's head.
#[derive(Debug)]
pub struct Pcm {
    on: AtomicBool,
    /// True if flushes and fences are executed.
    durable: bool,
    sim: Mutex<Sim>,
}

impl Pcm {
    /// Makes a hierarchy over `memory`. It charges nothing until [`Pcm::begin`]. If `durable` is false, it ignores flushes and fences.
    ///
    /// # Panics
    /// If the configuration does not pass [`Config::check`].
    pub fn new(memory: Arc<Memory>, config: Config, durable: bool) -> Arc<Self> {
        Arc::new(Self { on: AtomicBool::new(false), durable, sim: Mutex::new(Sim::new(memory, config)) })
    }

    /// Starts charging. The device then holds the contents of the memory, the caches are empty, and all counts are zero.
    pub fn begin(&self) {
        self.sim().begin();
        self.on.store(true, Ordering::Relaxed);
    }

    /// Stops charging; the counts stay.
    pub fn end(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    /// Locks the simulation, for its counts and wear.
    pub fn sim(&self) -> MutexGuard<'_, Sim> {
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Totals since [`Pcm::begin`].
    pub fn totals(&self) -> Totals {
        self.sim().totals()
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}

impl Observer for Pcm {
    fn read(&self, line: u64) {
        if self.is_on() {
            self.sim().load(line / LINE);
        }
    }

    fn prefetch(&self, line: u64) {
        if self.is_on() {
            self.sim().prefetch(line / LINE);
        }
    }

    fn event(&self, event: Event) {
        if !self.is_on() {
            return;
        }
        let mut sim = self.sim();
        match event {
            Event::Store { at, .. } => sim.store(at / LINE),
            Event::Flush { line, .. } if self.durable => sim.flush(line / LINE),
            Event::Fence { .. } if self.durable => sim.fence(),
            Event::Flush { .. } | Event::Fence { .. } => {}
        }
    }
}
