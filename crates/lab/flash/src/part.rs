//! One part of the run: all stores with data of one size, at one durability.

use std::collections::BTreeMap;
use std::path::PathBuf;

use competitors::place::{Place, bytes_below};
use competitors::{Kind, Promise};

use crate::cgroup::{Group, Hierarchy};
use crate::judge::best_other;
use crate::process::Process;
use crate::protocol::{Cell, Job, Measured, Order, Verb};
use crate::report::{Figure, Part, Row};
use crate::work::PAIR_BYTES;
use crate::{Error, OURS, Options};

/// Numbers of writers of the cells that update.
const WRITERS: [u64; 2] = [1, 8];
/// Maximum number of keys of the stores whose syncs are counted. More keys do not change the syncs per commit.
const COUNTED_KEYS: u64 = 100_000;

/// The parameters of a part.
pub struct Plan<'a> {
    pub options: &'a Options,
    pub kinds: &'a [Kind],
    pub hierarchy: Option<&'a Hierarchy>,
    pub place: &'a Place,
    /// Number of the part. The order of the stores depends on it.
    pub turn: usize,
    /// Size of the data as a multiple of the memory.
    pub size: f64,
    pub promise: Promise,
    pub progress: &'a dyn Fn(&str),
}

/// A store that takes part.
struct Entrant {
    kind: Kind,
    folder: PathBuf,
    group: Option<Group>,
    /// `None` after its memory was full.
    process: Option<Process>,
    samples: BTreeMap<Cell, Vec<Measured>>,
    file_bytes: Option<u64>,
    anonymous_bytes: Option<u64>,
    reopen_seconds: Option<f64>,
    syncs: BTreeMap<Cell, f64>,
    failure: Option<String>,
    uncounted: Option<String>,
}

/// Keeps the results of a store whose memory was full (F4).
fn survive<T>(failure: &mut Option<String>, result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error @ Error::Memory(_)) => {
            *failure = Some(error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Plan<'_> {
    /// Measures the part.
    ///
    /// # Errors
    /// As [`crate::run`].
    pub fn run(&self) -> Result<Part, Error> {
        let mut entrants = Vec::new();
        for kind in self.kinds {
            entrants.push(self.enter(kind)?);
        }
        let cells = self.cells();
        let load = Cell { verb: Verb::Load, threads: 1 };
        self.cell(&mut entrants, load, 0, 0)?;
        for round in 0..self.options.rounds {
            for (number, cell) in cells.iter().enumerate() {
                self.cell(&mut entrants, *cell, round, number)?;
            }
        }
        for entrant in &mut entrants {
            self.finish(entrant)?;
        }
        if self.counts_syncs() {
            for entrant in &mut entrants {
                self.count_syncs(entrant)?;
            }
        }
        let columns: Vec<_> = std::iter::once(load).chain(cells).collect();
        Ok(self.report(&columns, &entrants))
    }

    fn keys(&self) -> u64 {
        self.options.keys(self.size)
    }

    fn say(&self, what: &str) {
        (self.progress)(&format!("{} times the memory, {}: {what}", self.size, self.promise));
    }

    /// The cells after the load. Reads do not depend on the durability, so only the first durability has them.
    fn cells(&self) -> Vec<Cell> {
        let reads = [Verb::GetUniform, Verb::GetZipfian, Verb::Scan].map(|verb| Cell { verb, threads: 1 });
        let reads = reads.into_iter().filter(|_| self.options.promises.first() == Some(&self.promise));
        let updates = [Verb::Mixed, Verb::Update]
            .into_iter()
            .flat_map(|verb| WRITERS.map(|threads| Cell { verb, threads: threads.min(self.keys()) }));
        reads.chain(updates).collect()
    }

    fn seconds(&self, cell: Cell) -> f64 {
        if cell.verb == Verb::Load { self.options.load_seconds } else { self.options.seconds }
    }

    /// Syncs are counted once for each durability.
    fn counts_syncs(&self) -> bool {
        self.promise == Promise::Power && self.options.sizes.first() == Some(&self.size)
    }

    fn job(&self, kind: &Kind, folder: PathBuf) -> Job {
        Job {
            store: kind.name.to_owned(),
            folder,
            promise: self.promise,
            cache_bytes: self.options.cache_bytes(),
            direct_io: self.options.direct_io && kind.name == OURS.name,
            keys: self.keys(),
            seed: self.options.seed,
            versions: None,
            counts_syncs: false,
        }
    }

    fn group(&self, kind: &Kind) -> Result<Option<Group>, Error> {
        let made = self.hierarchy.map(|hierarchy| hierarchy.make(kind.name, self.options.memory_bytes));
        made.transpose().map_err(|source| Error::System { what: "make a memory control group", source })
    }

    fn enter(&self, kind: &Kind) -> Result<Entrant, Error> {
        let folder = self.place.folder(&format!("{}-{}", kind.name, self.turn))?;
        let group = self.group(kind)?;
        let job = self.job(kind, folder.clone());
        let mut failure = None;
        let process = survive(&mut failure, Process::start(&self.options.child, &job, group.as_ref()))?;
        Ok(Entrant {
            kind: *kind,
            folder,
            group,
            process: process.map(|(process, _)| process),
            samples: BTreeMap::new(),
            file_bytes: None,
            anonymous_bytes: None,
            reopen_seconds: None,
            syncs: BTreeMap::new(),
            failure,
            uncounted: None,
        })
    }

    /// Measures a cell on every store in turn.
    fn cell(&self, entrants: &mut [Entrant], cell: Cell, round: usize, number: usize) -> Result<(), Error> {
        let stores = entrants.len();
        let Options { rounds, operations_max, .. } = *self.options;
        let seconds = self.seconds(cell);
        for turn in 0..stores {
            let entrant = &mut entrants[(turn + round + number + self.turn) % stores];
            let Entrant { kind, group, process, samples, failure, .. } = entrant;
            let Some(running) = process else { continue };
            self.say(&format!("round {} of {rounds}, {cell}, {}", round + 1, kind.name));
            let group = group.as_ref();
            let mut measure =
                |seconds| survive(failure, running.measure(cell, (seconds, operations_max), group));
            // Reads begin with the cache that the cell before them left.
            let is_warm = cell.writes() || measure(seconds / 2.0)?.is_some();
            let measured = if is_warm { measure(seconds)? } else { None };
            match measured {
                Some(measured) => samples.entry(cell).or_default().push(measured),
                None => *process = None,
            }
        }
        Ok(())
    }

    /// Kills the process of a store, opens the store again and compares its contents. Removes its files.
    fn finish(&self, entrant: &mut Entrant) -> Result<(), Error> {
        let Entrant { kind, folder, group, process, failure, .. } = entrant;
        if let Some(mut running) = process.take() {
            self.say(&format!("comparing what {} has after a kill", kind.name));
            let group = group.as_ref();
            entrant.file_bytes = Some(bytes_below(folder));
            entrant.anonymous_bytes = group.and_then(Group::anonymous_bytes);
            let versions = folder.with_extension("versions");
            running.order(&Order::Save(versions.clone()), group)?;
            drop(running);
            let job = Job { versions: Some(versions), ..self.job(kind, folder.clone()) };
            let opened = Process::start(&self.options.child, &job, group);
            if let Some((mut running, seconds)) = survive(failure, opened)? {
                entrant.reopen_seconds = Some(seconds);
                if survive(failure, running.order(&Order::Verify, group))?.is_some() {
                    running.order(&Order::Close, group)?;
                }
            }
        }
        let removed = std::fs::remove_dir_all(&*folder);
        removed.map_err(|source| Error::System { what: "remove the files of a store", source })
    }

    /// Counts the syncs of the cells that update, on a new store. Counting costs time, so it is a pass of its own.
    fn count_syncs(&self, entrant: &mut Entrant) -> Result<(), Error> {
        let Entrant { kind, group, syncs, failure, uncounted, .. } = entrant;
        self.say(&format!("counting the syncs of {}", kind.name));
        let folder = self.place.folder(&format!("{}-counted", kind.name))?;
        let keys = self.keys().min(COUNTED_KEYS);
        let job = Job { keys, counts_syncs: true, ..self.job(kind, folder) };
        let group = group.as_ref();
        let started = match Process::start(&self.options.child, &job, group) {
            Err(error @ Error::Uncounted { .. }) => {
                *uncounted = Some(error.to_string());
                return Ok(());
            }
            started => survive(failure, started)?,
        };
        let Some((mut process, _)) = started else { return Ok(()) };
        let load = Cell { verb: Verb::Load, threads: 1 };
        for cell in std::iter::once(load).chain(self.cells().into_iter().filter(|cell| cell.updates())) {
            let extent = (self.seconds(cell), self.options.operations_max);
            let measured = process.measure(cell, extent, group);
            let Some(measured) = survive(failure, measured)? else { return Ok(()) };
            let count = measured.syncs.unwrap_or(0) as f64;
            syncs.insert(cell, count / measured.commits.max(1) as f64);
        }
        process.order(&Order::Close, group)
    }

    fn report(&self, columns: &[Cell], entrants: &[Entrant]) -> Part {
        let live_bytes = self.keys() * PAIR_BYTES;
        let row = |entrant: &Entrant| {
            let written: u64 = entrant.updates().map(|sample| sample.written_bytes).sum();
            let put: u64 = entrant.updates().map(|sample| sample.puts * PAIR_BYTES).sum();
            Row {
                name: entrant.kind.name,
                setting: (entrant.kind.setting)(self.promise),
                cells: columns.iter().map(|cell| entrant.figure(*cell)).collect(),
                write_amplification: (put > 0).then(|| written as f64 / put as f64),
                space_amplification: entrant.file_bytes.map(|bytes| bytes as f64 / live_bytes as f64),
                reopen_seconds: entrant.reopen_seconds,
                peak_bytes: entrant.group.as_ref().and_then(Group::peak_bytes),
                anonymous_bytes: entrant.anonymous_bytes,
                busy_cells: entrant.samples.values().flatten().filter(|sample| !sample.is_idle).count(),
                failure: entrant.failure.clone(),
                uncounted: entrant.uncounted.clone(),
            }
        };
        let rows: Vec<_> = entrants.iter().map(row).collect();
        Part {
            size: self.size,
            keys: self.keys(),
            live_bytes,
            durability: self.promise,
            columns: columns.iter().map(Cell::to_string).collect(),
            ratios: (0..columns.len()).map(|column| best_other(&rows, column)).collect(),
            cells: columns.to_vec(),
            rows,
        }
    }
}

impl Entrant {
    fn updates(&self) -> impl Iterator<Item = &Measured> {
        self.samples.iter().filter(|(cell, _)| cell.updates()).flat_map(|(_, samples)| samples)
    }

    /// The medians of a cell. `None` if the store has no result.
    fn figure(&self, cell: Cell) -> Option<Figure> {
        let samples = self.samples.get(&cell)?;
        let sorted = |of: &dyn Fn(&Measured) -> f64| {
            let mut values: Vec<_> = samples.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let rates = sorted(&|sample| sample.operations as f64 / sample.seconds);
        let durations = sorted(&|sample| sample.p999_ns as f64 / 1000.0);
        let put: u64 = samples.iter().map(|sample| sample.puts * PAIR_BYTES).sum();
        let written: u64 = samples.iter().map(|sample| sample.written_bytes).sum();
        Some(Figure {
            operations: samples.iter().map(|sample| sample.operations).sum(),
            per_second: rates[rates.len() / 2],
            slowest: rates[0],
            fastest: rates[rates.len() - 1],
            p999_us: durations[durations.len() / 2],
            written_per_byte: (put > 0).then(|| written as f64 / put as f64),
            syncs_per_commit: self.syncs.get(&cell).copied(),
        })
    }
}
