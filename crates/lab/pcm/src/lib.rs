//! Phase-change memory that nobody can buy, simulated below any index: how many cycles its operations would take, how much
//! energy, and which lines wear out [wB+ §2.4, §5.1].
//!
//! [`Pcm`] watches an [`Observed`](pmem::Observed) medium, so the same code that runs on DRAM runs here, to the cycle and on any
//! machine alike. It is a model of one in-order core with a clock, not of a pipeline:
//!
//! * `config`: every figure of the hierarchy, and presets of Table 4 and of other memories.
//! * `cache`: sets of lines in order of use. `device`: ranks, reads before writes, the write-back queue.
//! * `sim`: the clock, and what a load, store, prefetch, flush and fence do to it.
//! * `wear`: writes per line, levelled or not; years of life.
//!
//! Invariants:
//! * P1: every cycle, bit and count follows from the order of calls and the configuration alone. No host time, no addresses of
//!   the host, no random numbers.
//! * P2: the device keeps a copy of its own. A line's modified words and bits are what differs between it and the line as it is
//!   written back; so what is stored twice, or back to what it was, costs what it costs on the device.
//! * P3: caches are inclusive: a line in L1 is in L2, one in L2 in L3. A dirty line is in L3 until it is in the queue.
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

/// An observer that charges everything to a simulated hierarchy. See the module's head.
#[derive(Debug)]
pub struct Pcm {
    on: AtomicBool,
    /// Flushes and fences are carried out.
    durable: bool,
    sim: Mutex<Sim>,
}

impl Pcm {
    /// A hierarchy over `memory`, switched off: nothing is charged until [`Pcm::begin`]. Where nothing has to be `durable`,
    /// flushes and fences are left out.
    ///
    /// # Panics
    /// If the configuration does not pass [`Config::check`].
    pub fn new(memory: Arc<Memory>, config: Config, durable: bool) -> Arc<Self> {
        Arc::new(Self { on: AtomicBool::new(false), durable, sim: Mutex::new(Sim::new(memory, config)) })
    }

    /// From here on everything is charged. The device holds what the memory holds, the caches are empty and all counts zero.
    pub fn begin(&self) {
        self.sim().begin();
        self.on.store(true, Ordering::Relaxed);
    }

    /// Nothing is charged any more; the counts stay.
    pub fn end(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    /// The simulation itself: its counts, its wear.
    pub fn sim(&self) -> MutexGuard<'_, Sim> {
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was charged since [`Pcm::begin`].
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
