//! The simulated clock, and the effects of operations on it.
//!
//! | call | waits for |
//! |---|---|
//! | load | the translation; the cache level that has the line; the line itself, if it comes from memory or is still in transfer |
//! | store | the translation; if the line comes from memory, a free fill (a place for a line in transfer), but not the line |
//! | prefetch | the translation; if no fill is free, the simulator drops the prefetch |
//! | flush | the line, if it is in transfer from memory; space in the queue, if it is dirty |
//! | fence | the transfer of all lines that stores need; the write of all flushed lines |
//!
//! A line that is evicted from L3 also leaves the other levels. If it is dirty, it goes into the queue, and the access that fetched the new
//! line waits for space there.

use std::ops::Sub;
use std::sync::Arc;

use pmem::LINE;
use pmem::observed::Memory;

use crate::cache::{Cache, Tlb};
use crate::config::Config;
use crate::device::Device;
use crate::wear::{Levelling, Wear};

const LINES_PER_PAGE: u64 = 4096 / LINE;
const BITS_PER_LINE: u64 = 8 * LINE;

/// Totals of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Cycles of the clock.
    pub cycles: u64,
    /// Number of words read.
    pub loads: u64,
    /// Number of words stored.
    pub stores: u64,
    /// Number of prefetched lines.
    pub prefetches: u64,
    /// Number of flushed lines.
    pub flushes: u64,
    /// Number of fences.
    pub fences: u64,
    /// Loads, stores and prefetches that missed L1. Misses of L3 are `line_reads`.
    pub l1_misses: u64,
    /// Loads, stores and prefetches that missed L1 and L2.
    pub l2_misses: u64,
    /// Lines read from memory.
    pub line_reads: u64,
    /// Number of TLB misses.
    pub tlb_misses: u64,
    /// Lines written to memory because of a flush or an eviction.
    pub line_writes: u64,
    /// Changed words in them.
    pub words_written: u64,
    /// Changed bits in them.
    pub bits_written: u64,
    /// Energy of the lines read, in picojoules.
    pub read_pj: f64,
    /// Energy of the bits written, in picojoules.
    pub write_pj: f64,
    /// Cycles of waiting for space in the queue.
    pub queue_cycles: u64,
    /// Cycles of waiting in fences.
    pub fence_cycles: u64,
}

impl Sub for Totals {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cycles: self.cycles - before.cycles,
            loads: self.loads - before.loads,
            stores: self.stores - before.stores,
            prefetches: self.prefetches - before.prefetches,
            flushes: self.flushes - before.flushes,
            fences: self.fences - before.fences,
            l1_misses: self.l1_misses - before.l1_misses,
            l2_misses: self.l2_misses - before.l2_misses,
            line_reads: self.line_reads - before.line_reads,
            tlb_misses: self.tlb_misses - before.tlb_misses,
            line_writes: self.line_writes - before.line_writes,
            words_written: self.words_written - before.words_written,
            bits_written: self.bits_written - before.bits_written,
            read_pj: self.read_pj - before.read_pj,
            write_pj: self.write_pj - before.write_pj,
            queue_cycles: self.queue_cycles - before.queue_cycles,
            fence_cycles: self.fence_cycles - before.fence_cycles,
        }
    }
}

/// A line in transfer from memory into the caches.
#[derive(Clone, Copy, Debug)]
struct Fill {
    line: u64,
    ready: u64,
    /// True if a store in the store buffer waits for the line.
    stored: bool,
}

/// A simulated processor and its memory. Line 0 is the first line of the medium.
#[derive(Debug)]
pub struct Sim {
    config: Config,
    memory: Arc<Memory>,
    /// The contents of the device in words (P2).
    image: Vec<u64>,
    l1: Cache,
    l2: Cache,
    l3: Cache,
    tlb: Tlb,
    /// A bit for each line that is newer in the caches than on the device.
    dirty: Vec<u64>,
    fills: Vec<Fill>,
    /// The time when all transfers are complete.
    fills_until: u64,
    device: Device,
    wear: Wear,
    totals: Totals,
    now: u64,
}

impl Sim {
    /// A processor with empty caches over `memory`. The device is empty until [`Sim::begin`].
    ///
    /// # Panics
    /// If the configuration does not pass [`Config::check`].
    pub fn new(memory: Arc<Memory>, config: Config) -> Self {
        config.check().expect("figures that a hierarchy may have");
        let lines = memory.capacity() / LINE;
        Self {
            image: vec![0; (lines * LINE / 8) as usize],
            l1: Cache::new(config.l1),
            l2: Cache::new(config.l2),
            l3: Cache::new(config.l3),
            tlb: Tlb::new(config.tlb_entries),
            dirty: vec![0; lines.div_ceil(64) as usize],
            fills: Vec::new(),
            fills_until: 0,
            device: Device::new(&config),
            wear: Wear::new(lines, Levelling::None),
            totals: Totals::default(),
            now: 0,
            memory,
            config,
        }
    }

    /// Uses wear levelling from the next [`Sim::begin`] on.
    pub fn level(&mut self, levelling: Levelling) {
        self.wear = Wear::new(self.memory.capacity() / LINE, levelling);
    }

    /// Starts a trace of all writes. Earlier writes are discarded.
    pub fn trace(&mut self) {
        self.wear.begin(true);
    }

    /// Starts again: the device holds the contents of the memory, caches are empty, counts and wear are zero.
    pub fn begin(&mut self) {
        for (at, word) in self.image.iter_mut().enumerate().take((self.memory.len() / 8) as usize) {
            *word = self.memory.peek(at as u64 * 8);
        }
        [&mut self.l1, &mut self.l2, &mut self.l3].into_iter().for_each(Cache::clear);
        self.tlb.clear();
        self.dirty.fill(0);
        self.fills.clear();
        self.device = Device::new(&self.config);
        self.wear.begin(self.wear.trace().is_some());
        (self.now, self.fills_until, self.totals) = (0, 0, Totals::default());
    }

    /// Totals since [`Sim::begin`].
    pub fn totals(&self) -> Totals {
        Totals { cycles: self.now, ..self.totals }
    }

    /// The parameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The writes by line.
    pub fn wear(&self) -> &Wear {
        &self.wear
    }

    /// The clock, in cycles.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The clock, in seconds.
    pub fn seconds(&self) -> f64 {
        self.now as f64 / (self.config.ghz * 1e9)
    }

    /// Reads a word of a line.
    pub fn load(&mut self, line: u64) {
        self.totals.loads += 1;
        self.now += self.config.compute_cycles;
        self.translate(line);
        if self.l1.touch(line) {
            self.now += self.config.l1.cycles;
        } else if self.near(line) {
            self.now += if self.l2.touch(line) { self.config.l2.cycles } else { self.config.l3.cycles };
            self.come_nearer(line);
        } else {
            self.now += self.config.l3.cycles;
            let ready = self.fetch(line);
            self.now = self.now.max(ready);
            return;
        }
        self.wait_for(line);
    }

    /// Stores a word of a line.
    pub fn store(&mut self, line: u64) {
        self.totals.stores += 1;
        self.now += self.config.issue_cycles;
        self.translate(line);
        let here = self.l1.touch(line) || self.near(line);
        if here {
            self.come_nearer(line);
            // The line may still be in transfer because of a prefetch.
            if let Some(fill) = self.fills.iter_mut().find(|fill| fill.line == line) {
                fill.stored = true;
            }
        } else {
            self.free_fill();
            self.fetch_aside(line, true);
        }
        self.dirty[(line / 64) as usize] |= 1 << (line % 64);
    }

    /// Prefetches a line.
    pub fn prefetch(&mut self, line: u64) {
        self.totals.prefetches += 1;
        self.now += self.config.issue_cycles;
        self.translate(line);
        if self.l1.touch(line) {
            return;
        }
        if self.near(line) {
            self.come_nearer(line);
            return;
        }
        self.drop_fills();
        if (self.fills.len() as u64) < self.config.fills {
            self.fetch_aside(line, false);
        }
    }

    /// Writes a line back if it is dirty. Evicts it unless flushes keep lines.
    pub fn flush(&mut self, line: u64) {
        self.totals.flushes += 1;
        self.now += self.config.issue_cycles;
        self.translate(line);
        self.wait_for(line);
        self.write_back(line, true);
        if !self.config.flush_keeps {
            self.l1.remove(line);
            self.l2.remove(line);
            self.l3.remove(line);
        }
    }

    /// Waits until the caches have the lines of all stores, and all flushed lines are written.
    pub fn fence(&mut self) {
        self.totals.fences += 1;
        let stored = self.fills.iter().filter(|fill| fill.stored).map(|fill| fill.ready).max();
        let before = self.now;
        self.now = self.now.max(stored.unwrap_or(0));
        self.now = self.device.flushed(self.now);
        self.totals.fence_cycles += self.now - before;
        self.drop_fills();
    }

    fn translate(&mut self, line: u64) {
        if !self.tlb.touch(line / LINES_PER_PAGE) {
            self.totals.tlb_misses += 1;
            self.now += self.config.tlb_miss_cycles;
        }
    }

    /// True if L2 or L3 has a line that L1 missed.
    fn near(&mut self, line: u64) -> bool {
        self.totals.l1_misses += 1;
        self.l3.touch(line)
    }

    /// Copies a line of L3 into the levels above. The next level still has any line that is displaced (P3).
    fn come_nearer(&mut self, line: u64) {
        if self.l1.touch(line) {
            return;
        }
        if !self.l2.touch(line) {
            self.totals.l2_misses += 1;
            if let Some(victim) = self.l2.insert(line) {
                self.l1.remove(victim);
            }
        }
        self.l1.insert(line);
    }

    /// Reads a line from memory into all levels. Returns the time when it is available.
    fn fetch(&mut self, line: u64) -> u64 {
        self.totals.line_reads += 1;
        self.totals.read_pj += BITS_PER_LINE as f64 * self.config.read_bit_pj;
        let ready = self.device.read(line, self.now);
        if let Some(victim) = self.l3.insert(line) {
            self.l1.remove(victim);
            self.l2.remove(victim);
            self.fills.retain(|fill| fill.line != victim);
            self.write_back(victim, false);
        }
        self.come_nearer(line);
        ready
    }

    fn fetch_aside(&mut self, line: u64, stored: bool) {
        let ready = self.fetch(line);
        self.fills.push(Fill { line, ready, stored });
        self.fills_until = self.fills_until.max(ready);
    }

    /// Waits for a line if it is in transfer.
    fn wait_for(&mut self, line: u64) {
        if self.now >= self.fills_until {
            return;
        }
        if let Some(place) = self.fills.iter().position(|fill| fill.line == line) {
            let fill = self.fills.swap_remove(place);
            self.now = self.now.max(fill.ready);
        }
    }

    /// Waits until the number of transfers is below its maximum.
    fn free_fill(&mut self) {
        self.drop_fills();
        if self.fills.len() as u64 >= self.config.fills {
            let first = self.fills.iter().map(|fill| fill.ready).min();
            self.now = self.now.max(first.unwrap_or(0));
            self.drop_fills();
        }
    }

    fn drop_fills(&mut self) {
        self.fills.retain(|fill| fill.ready > self.now);
    }

    /// Puts a line into the queue if it is dirty.
    fn write_back(&mut self, line: u64, flushed: bool) {
        let (word, bit) = ((line / 64) as usize, 1 << (line % 64));
        if self.dirty[word] & bit == 0 {
            return;
        }
        self.dirty[word] &= !bit;
        let (mut words, mut bits) = (0, 0);
        for (i, old) in self.image[line as usize * 8..][..8].iter_mut().enumerate() {
            let new = self.memory.peek(line * LINE + i as u64 * 8);
            words += u64::from(new != *old);
            bits += u64::from((new ^ *old).count_ones());
            *old = new;
        }
        if words == 0 {
            return; // all words have their old values: the device compares before it writes
        }
        self.queue(line, words, flushed);
        self.totals.bits_written += bits;
        self.totals.write_pj += bits as f64 * self.config.write_bit_pj;
        if let Some(moved) = self.wear.note(self.now, line) {
            // The device moves a line internally. About half of its bits differ from those of the overwritten line.
            self.totals.read_pj += BITS_PER_LINE as f64 * self.config.read_bit_pj;
            self.totals.bits_written += BITS_PER_LINE / 2;
            self.totals.write_pj += (BITS_PER_LINE / 2) as f64 * self.config.write_bit_pj;
            self.queue(moved, LINE / 8, false);
        }
    }

    fn queue(&mut self, line: u64, words: u64, flushed: bool) {
        self.totals.line_writes += 1;
        self.totals.words_written += words;
        let cycles = self.config.write_line_cycles + words * self.config.write_word_cycles;
        let taken = self.device.write(line, cycles, flushed, self.now);
        self.totals.queue_cycles += taken - self.now;
        self.now = taken;
    }
}
