//! The parameters of a memory hierarchy. Each parameter can be set. The presets are phase-change memory as in [wB+ Table 4] and two other
//! memories.

/// A cache level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Size in bytes.
    pub bytes: u64,
    /// Associativity: number of lines per set.
    pub ways: u64,
    /// Cycles of a load that hits this level.
    pub cycles: u64,
}

/// A processor, its caches and its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// First cache level.
    pub l1: Level,
    /// Second cache level.
    pub l2: Level,
    /// Third cache level. It contains all lines of the others.
    pub l3: Level,
    /// Number of 4 KiB pages whose translations the TLB holds.
    pub tlb_entries: u64,
    /// Cycles of a TLB miss. The paper does not state it; page tables are assumed to be in L3.
    pub tlb_miss_cycles: u64,
    /// Maximum number of lines in transfer from memory, for prefetches and stores.
    pub fills: u64,
    /// Maximum number of lines in transfer to memory.
    pub queue: u64,
    /// Number of banks that work in parallel. Adjacent lines are in different banks.
    pub ranks: u64,
    /// Cycles to read a line from a rank.
    pub read_cycles: u64,
    /// Cycles to write a line to a rank, regardless of its changed words.
    pub write_line_cycles: u64,
    /// Additional cycles for each changed word of 8 bytes.
    pub write_word_cycles: u64,
    /// Cycles of processing a word after its load: a comparison or a move.
    pub compute_cycles: u64,
    /// Cycles to issue a store, a prefetch or a flush.
    pub issue_cycles: u64,
    /// True if a flushed line stays in the cache (`clwb`). False if it is evicted (`clflush`), as in the paper.
    pub flush_keeps: bool,
    /// Picojoules to read a bit.
    pub read_bit_pj: f64,
    /// Picojoules to write a changed bit.
    pub write_bit_pj: f64,
    /// Clock frequency in GHz, which is cycles per nanosecond.
    pub ghz: f64,
    /// Number of writes that a cell survives.
    pub endurance: f64,
}

/// A memory with a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name of the preset.
    pub name: &'static str,
    /// Description of the preset.
    pub about: &'static str,
    make: fn() -> Config,
}

/// All presets.
pub const PRESETS: [Preset; 3] = [
    Preset { name: "pcm", about: "phase-change memory of the wB+-Tree paper's Table 4", make: Config::pcm },
    Preset {
        name: "sttram",
        about: "spin-transfer-torque memory: reads as DRAM's, lines written in 50 ns",
        make: Config::sttram,
    },
    Preset {
        name: "nvdimm",
        about: "DRAM behind a battery: reads and writes of a line alike",
        make: Config::nvdimm,
    },
];

impl Config {
    /// Phase-change memory [wB+ Table 4] with a core of 3 GHz. A cell survives 1e8 writes, a common figure for such memory.
    pub fn pcm() -> Self {
        Self {
            l1: Level { bytes: 32 << 10, ways: 8, cycles: 4 },
            l2: Level { bytes: 256 << 10, ways: 8, cycles: 11 },
            l3: Level { bytes: 8 << 20, ways: 16, cycles: 39 },
            tlb_entries: 64,
            tlb_miss_cycles: 39,
            fills: 16,
            queue: 32,
            ranks: 4,
            read_cycles: 230,
            write_line_cycles: 0,
            write_word_cycles: 450,
            compute_cycles: 1,
            issue_cycles: 1,
            flush_keeps: false,
            read_bit_pj: 2.0,
            write_bit_pj: 16.0,
            ghz: 3.0,
            endurance: 1e8,
        }
    }

    /// Spin-transfer-torque memory: reads and writes of a line take 50 ns, a cell survives 1e15 writes.
    pub fn sttram() -> Self {
        Self {
            read_cycles: 150,
            write_line_cycles: 150,
            write_word_cycles: 0,
            read_bit_pj: 1.0,
            write_bit_pj: 2.5,
            endurance: 1e15,
            ..Self::pcm()
        }
    }

    /// DRAM with a battery: reads and writes of a line take 50 ns; cells do not wear out.
    pub fn nvdimm() -> Self {
        Self {
            read_cycles: 150,
            write_line_cycles: 150,
            write_word_cycles: 0,
            read_bit_pj: 1.0,
            write_bit_pj: 1.0,
            endurance: f64::INFINITY,
            ..Self::pcm()
        }
    }

    /// Returns the preset of this name.
    ///
    /// # Errors
    /// An error text with the known names.
    pub fn preset(name: &str) -> Result<Self, String> {
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        let found = PRESETS.iter().find(|preset| preset.name == name);
        let found = found.ok_or_else(|| format!("no memory `{name}`; there are {}", names.join(", ")))?;
        Ok((found.make)())
    }

    /// All parameters by name, as in [`Config::set`].
    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut figures = Vec::new();
        for name in NAMES {
            figures.extend(self.clone().place(name).map(|place| (*name, place.get())));
        }
        figures
    }

    /// Changes a parameter: `read-cycles=300`.
    ///
    /// # Errors
    /// Like [`Config::set_all`].
    pub fn set(&mut self, assignment: &str) -> Result<(), String> {
        self.set_all([assignment])
    }

    /// Changes parameters, in any order.
    ///
    /// # Errors
    /// An error text for an unknown parameter, an invalid number, or values that no hierarchy can have. Then no parameter changes.
    pub fn set_all<'a>(&mut self, assignments: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
        let mut changed = *self;
        assignments.into_iter().try_for_each(|assignment| changed.assign(assignment))?;
        changed.check()?;
        *self = changed;
        Ok(())
    }

    fn assign(&mut self, assignment: &str) -> Result<(), String> {
        let (name, value) = assignment.split_once('=').ok_or_else(|| {
            format!("`{assignment}` is not of the form NAME=NUMBER; the names are {}", NAMES.join(", "))
        })?;
        let number: f64 = value.trim().parse().map_err(|_| format!("{name}: `{value}` is not a number"))?;
        let place = self.place(name.trim());
        let place = place.ok_or_else(|| format!("no figure `{name}`; there are {}", NAMES.join(", ")))?;
        place.set(number).map_err(|why| format!("{name}: {why}"))
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// An error text if no hierarchy can have these parameters.
    pub fn check(&self) -> Result<(), String> {
        for (name, level) in [("l1", self.l1), ("l2", self.l2), ("l3", self.l3)] {
            if level.ways == 0 || level.bytes == 0 || !level.bytes.is_multiple_of(level.ways * pmem::LINE) {
                return Err(format!(
                    "{name}: its bytes are not a whole number of sets of {} lines",
                    level.ways
                ));
            }
        }
        if self.l1.bytes > self.l2.bytes || self.l2.bytes > self.l3.bytes {
            return Err("a level of the cache is larger than the next one, which holds its lines too".into());
        }
        if self.l3.bytes > CACHE_MAX {
            return Err("the last level of the cache has more than 1 GiB".into());
        }
        let parts = [self.tlb_entries, self.fills, self.queue, self.ranks];
        if !parts.iter().all(|part| (1..=PARTS_MAX).contains(part)) {
            return Err(format!("there are 1 to {PARTS_MAX} TLB entries, fills, queue entries and ranks"));
        }
        let cycles = [
            self.l1.cycles,
            self.l2.cycles,
            self.l3.cycles,
            self.tlb_miss_cycles,
            self.read_cycles,
            self.write_line_cycles,
            self.write_word_cycles,
            self.compute_cycles,
            self.issue_cycles,
        ];
        if cycles.iter().any(|cycles| *cycles > CYCLES_MAX) {
            return Err(format!("nothing takes more than {CYCLES_MAX} cycles"));
        }
        let positive = |figure: f64| figure.is_finite() && figure >= 0.0;
        let energies = positive(self.read_bit_pj) && positive(self.write_bit_pj);
        if !energies || !(0.001..=1000.0).contains(&self.ghz) {
            return Err("energies are positive numbers, and the clock has from 0.001 to 1000 GHz".into());
        }
        Ok(())
    }

    fn place(&mut self, name: &str) -> Option<Figure<'_>> {
        Some(match name {
            "l1-bytes" => Figure::Whole(&mut self.l1.bytes),
            "l1-ways" => Figure::Whole(&mut self.l1.ways),
            "l1-cycles" => Figure::Whole(&mut self.l1.cycles),
            "l2-bytes" => Figure::Whole(&mut self.l2.bytes),
            "l2-ways" => Figure::Whole(&mut self.l2.ways),
            "l2-cycles" => Figure::Whole(&mut self.l2.cycles),
            "l3-bytes" => Figure::Whole(&mut self.l3.bytes),
            "l3-ways" => Figure::Whole(&mut self.l3.ways),
            "l3-cycles" => Figure::Whole(&mut self.l3.cycles),
            "tlb-entries" => Figure::Whole(&mut self.tlb_entries),
            "tlb-miss-cycles" => Figure::Whole(&mut self.tlb_miss_cycles),
            "fills" => Figure::Whole(&mut self.fills),
            "queue" => Figure::Whole(&mut self.queue),
            "ranks" => Figure::Whole(&mut self.ranks),
            "read-cycles" => Figure::Whole(&mut self.read_cycles),
            "write-line-cycles" => Figure::Whole(&mut self.write_line_cycles),
            "write-word-cycles" => Figure::Whole(&mut self.write_word_cycles),
            "compute-cycles" => Figure::Whole(&mut self.compute_cycles),
            "issue-cycles" => Figure::Whole(&mut self.issue_cycles),
            "flush-keeps" => Figure::Switch(&mut self.flush_keeps),
            "read-bit-pj" => Figure::Real(&mut self.read_bit_pj),
            "write-bit-pj" => Figure::Real(&mut self.write_bit_pj),
            "ghz" => Figure::Real(&mut self.ghz),
            "endurance" => Figure::Real(&mut self.endurance),
            _ => return None,
        })
    }
}

const NAMES: &[&str] = &[
    "l1-bytes",
    "l1-ways",
    "l1-cycles",
    "l2-bytes",
    "l2-ways",
    "l2-cycles",
    "l3-bytes",
    "l3-ways",
    "l3-cycles",
    "tlb-entries",
    "tlb-miss-cycles",
    "fills",
    "queue",
    "ranks",
    "read-cycles",
    "write-line-cycles",
    "write-word-cycles",
    "compute-cycles",
    "issue-cycles",
    "flush-keeps",
    "read-bit-pj",
    "write-bit-pj",
    "ghz",
    "endurance",
];

enum Figure<'a> {
    Whole(&'a mut u64),
    Switch(&'a mut bool),
    Real(&'a mut f64),
}

/// Exceeds every allowed value.
const WHOLE_MAX: f64 = (1_u64 << 40) as f64;
/// Maximum bytes of the last level: the simulation stores each of its lines.
const CACHE_MAX: u64 = 1 << 30;
/// Maximum number of entries and ranks: the simulation searches them linearly.
const PARTS_MAX: u64 = 1024;
/// Maximum cycles, so that no clock overflows.
const CYCLES_MAX: u64 = 1 << 24;

impl Figure<'_> {
    fn get(&self) -> f64 {
        match self {
            Figure::Whole(figure) => **figure as f64,
            Figure::Switch(figure) => f64::from(u8::from(**figure)),
            Figure::Real(figure) => **figure,
        }
    }

    fn set(self, number: f64) -> Result<(), String> {
        match self {
            Figure::Whole(figure) if number.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(&number) => {
                *figure = number as u64;
            }
            Figure::Whole(_) => return Err(format!("{number} is not a whole number from 0 to 2^40")),
            Figure::Switch(figure) if number == 0.0 || number == 1.0 => *figure = number == 1.0,
            Figure::Switch(_) => return Err(format!("{number} is neither 0 nor 1")),
            Figure::Real(figure) if number >= 0.0 => *figure = number,
            Figure::Real(_) => return Err(format!("{number} is not a positive number")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_can_be_read_and_set_by_its_name() {
        for Preset { name, make, .. } in PRESETS {
            assert_eq!(Config::preset(name).unwrap(), make());
            make().check().unwrap();
            let figures = make().figures();
            assert_eq!(figures.len(), NAMES.len());
            for (figure, value) in figures {
                let mut config = make();
                config.set(&format!("{figure}={value}")).unwrap_or_else(|why| panic!("{name}: {why}"));
                assert_eq!(config, make(), "{figure}");
            }
        }
        let mut config = Config::pcm();
        config.set("read-cycles = 300").unwrap();
        assert_eq!(config, Config { read_cycles: 300, ..Config::pcm() });
        config.set_all(["l2-bytes=16777216", "l3-bytes=33554432"]).unwrap();
        assert!(Config::preset("flash").unwrap_err().contains("sttram"));
    }

    #[test]
    fn what_no_hierarchy_has_is_refused_and_changes_nothing() {
        let wrong = [
            "read-cycles",
            "read-cycles=fast",
            "read-cycles=-1",
            "read-cycles=1.5",
            "read-cycles=1e300",
            "read-cycles=NaN",
            "reed-cycles=1",
            "ranks=0",
            "l1-ways=0",
            "l1-bytes=1000",
            "l1-bytes=16777216",
            "flush-keeps=2",
            "ghz=0",
            "ghz=5e-324",
            "ranks=1e9",
            "l3-bytes=1099511627776",
            "compute-cycles=1099511627776",
            "write-bit-pj=inf",
        ];
        for assignment in wrong {
            let mut config = Config::pcm();
            assert!(config.set(assignment).is_err(), "{assignment}");
            assert_eq!(config, Config::pcm());
        }
    }
}
