//! What stands between a program and memory when it goes through files [CDDS thesis, chapter 3]: a region is updated block by
//! block, mapped into the program, and by `write` on a file system of memory and on an ordinary one (figures 3.2 and 3.3); then
//! single lines at random places are made durable, by flushes and by `fsync` (figure 3.4). System calls are counted, not
//! assumed: writes by the kernel's own account of the process, syncs as in [`crate::syncs`].
//!
//! Mapped memory is stored to in words of eight bytes, as trees do; the thesis's smallest blocks, of two bytes, have no place
//! here. Pages are touched before anything is measured.

use std::fmt::{Display, Formatter};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Instant;

use pmem::{Durability, Fence, LINE, Medium, Native, WORD};

use super::{Experiment, Options, Outcome, Progress, Step};
use crate::scratch::{self, Instructions};
use crate::syncs::{self, Counter};
use crate::verdict::Verdict;
use crate::{Error, median};

/// Bytes of the region at scale 1.
const REGION: u64 = 256 << 20;
const REGION_MIN: u64 = 1 << 20;
/// Bytes of a block.
const BLOCKS: [u64; 7] = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 128 << 10];
/// Blocks that are written to a file in a sample, at most, and lines that are synced.
const WRITES_MAX: u64 = 1 << 18;
const SYNCS_MAX: u64 = 2000;
/// Blocks whose system calls are counted, at most.
const BLOCKS_COUNTED: u64 = 16;

/// A way to update memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Stores into mapped memory.
    Mapped,
    /// The same, every block flushed, with a fence.
    Flushed,
    /// `write` to a file of memory.
    MemoryFile,
    /// `write` to an ordinary file.
    File,
    /// `write` and `fsync`.
    FileSynced,
}

impl Way {
    const ALL: [Self; 5] = [Self::Mapped, Self::Flushed, Self::MemoryFile, Self::File, Self::FileSynced];

    fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Flushed => "mapped, flushed",
            Self::MemoryFile => "write, memory",
            Self::File => "write, file",
            Self::FileSynced => "write, file, fsync",
        }
    }
}

/// One cell of figures 3.2 and 3.3.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Cell {
    /// How.
    pub way: Way,
    /// Bytes of a block.
    pub block: u64,
    /// Millions of bytes a second.
    pub mb_s: f64,
    /// System calls that write, for each block.
    pub writes: f64,
    /// System calls that sync, for each block.
    pub syncs: f64,
}

/// One bar of figure 3.4: a line at a random place, durable.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Bar {
    /// How.
    pub way: &'static str,
    /// Nanoseconds.
    pub ns: f64,
}

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Which.
    pub experiment: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Bytes of the region.
    pub region: u64,
    /// Rounds.
    pub rounds: usize,
    /// Directory of memory.
    pub backing: PathBuf,
    /// Directory of the ordinary file.
    pub disk: PathBuf,
    /// Figures 3.2 and 3.3.
    pub cells: Vec<Cell>,
    /// Figure 3.4.
    pub bars: Vec<Bar>,
    /// What the thesis says.
    pub claims: Vec<Verdict>,
}

/// Runs it.
///
/// # Errors
/// `Pmem` or `File` if a directory cannot be used, `Uncounted` if the kernel does not let calls be counted.
pub fn chapter_3(
    experiment: &'static Experiment,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Outcome, Error> {
    let region = ((REGION as f64 * options.scale) as u64).max(REGION_MIN).next_multiple_of(REGION_MIN);
    let mut cells = Vec::new();
    let total = (Way::ALL.len() * BLOCKS.len()) as u64 + 1;
    for way in Way::ALL {
        let place = Place::new(way, options, region)?;
        for block in BLOCKS {
            let what = format!("{}, blocks of {block} bytes", way.name());
            progress(Step { done: cells.len() as u64, total, what });
            let rates: Result<Vec<f64>, Error> =
                (0..options.rounds).map(|_| place.update(block, blocks(way, block, region))).collect();
            let [writes, syncs] = calls(&place, block, BLOCKS_COUNTED.min(region / block))?;
            cells.push(Cell { way, block, mb_s: median(rates?), writes, syncs });
        }
    }
    progress(Step { done: total - 1, total, what: "lines at random places".into() });
    let bars = bars(options, region)?;
    let claims = claims(&cells, &bars);
    Ok(Outcome::Layers(Report {
        experiment: experiment.name,
        about: experiment.about,
        region,
        rounds: options.rounds,
        backing: options.backing.clone(),
        disk: options.disk.clone(),
        cells,
        bars,
        claims,
    }))
}

/// Blocks of a sample.
fn blocks(way: Way, block: u64, region: u64) -> u64 {
    let most = match way {
        Way::Mapped | Way::Flushed => u64::MAX,
        Way::MemoryFile | Way::File => WRITES_MAX,
        Way::FileSynced => SYNCS_MAX / 10,
    };
    (region / block).min(most)
}

/// What is updated.
enum Place {
    Mapped(Native, bool),
    File { file: File, path: PathBuf, is_synced: bool },
}

impl Place {
    fn new(way: Way, options: &Options, region: u64) -> Result<Self, Error> {
        let file = |folder: &PathBuf, is_synced| -> Result<Self, Error> {
            let place =
                Self::File { file: scratch::file(folder, "layers")?, path: folder.clone(), is_synced };
            // Every page is there before anything is measured.
            place.write(0, &vec![0; region as usize])?;
            Ok(place)
        };
        match way {
            Way::Mapped => Ok(Self::Mapped(mapped(options, region, Instructions::Best)?, false)),
            Way::Flushed => Ok(Self::Mapped(mapped(options, region, Instructions::Best)?, true)),
            Way::MemoryFile => file(&options.backing, false),
            Way::File => file(&options.disk, false),
            Way::FileSynced => file(&options.disk, true),
        }
    }

    fn write(&self, at: u64, block: &[u8]) -> Result<(), Error> {
        match self {
            Self::Mapped(medium, is_flushed) => {
                for word in (at..at + block.len() as u64).step_by(WORD as usize) {
                    medium.copy(word, word);
                }
                if *is_flushed {
                    medium.flush(at, block.len() as u64);
                    medium.fence(Fence::Commit);
                }
            }
            Self::File { file, path, is_synced } => {
                let done = file
                    .write_all_at(block, at)
                    .and_then(|()| if *is_synced { file.sync_all() } else { Ok(()) });
                done.map_err(|source| Error::File { path: path.clone(), source })?;
            }
        }
        Ok(())
    }

    /// Millions of bytes a second.
    fn update(&self, block: u64, count: u64) -> Result<f64, Error> {
        let bytes = vec![7; block as usize];
        let start = Instant::now();
        (0..count).try_for_each(|number| self.write(number * block, &bytes))?;
        Ok((count * block) as f64 / start.elapsed().as_secs_f64() / 1e6)
    }
}

fn mapped(options: &Options, region: u64, instructions: Instructions) -> Result<Native, Error> {
    let medium = scratch::medium(&options.backing, "layers", region, Durability::Power, instructions)?;
    medium.grow(region)?;
    (0..region).step_by(LINE as usize).for_each(|at| medium.copy(at, at));
    Ok(medium)
}

/// System calls of a block: those that write, those that sync.
fn calls(place: &Place, block: u64, count: u64) -> Result<[f64; 2], Error> {
    let uncounted = |source| Error::Uncounted { store: "a file", source };
    let work = |counter: &Counter| -> Result<[f64; 2], Error> {
        let before = writes_so_far().map_err(uncounted)?;
        counter.take().map_err(uncounted)?;
        place.update(block, count)?;
        let syncs = counter.take().map_err(uncounted)?.total();
        let writes = writes_so_far().map_err(uncounted)? - before;
        Ok([writes, syncs].map(|calls| calls as f64 / count as f64))
    };
    syncs::counted(work).map_err(uncounted)?
}

/// Calls of this thread that wrote, as the kernel counts them.
fn writes_so_far() -> std::io::Result<u64> {
    let about = std::fs::read_to_string("/proc/thread-self/io")?;
    let count = about.lines().find_map(|line| line.strip_prefix("syscw: ")?.trim().parse().ok());
    count.ok_or_else(|| std::io::Error::other("the kernel does not count writes"))
}

/// A line at a random place, durable.
fn bars(options: &Options, region: u64) -> Result<Vec<Bar>, Error> {
    let mut bars = Vec::new();
    let lines = region / LINE;
    let mut time = |way, count: u64, update: &mut dyn FnMut(u64) -> Result<(), Error>| {
        let mut random = fastrand::Rng::with_seed(options.seed);
        let samples: Result<Vec<f64>, Error> = (0..options.rounds)
            .map(|_| {
                let start = Instant::now();
                (0..count).try_for_each(|_| update(random.u64(..lines) * LINE))?;
                Ok(start.elapsed().as_nanos() as f64 / count as f64)
            })
            .collect();
        bars.push(Bar { way, ns: median(samples?) });
        Ok::<(), Error>(())
    };
    let line = [7; LINE as usize];
    for (way, instructions) in
        [("clflush, mfence", Instructions::Paper), ("best flush, sfence", Instructions::Best)]
    {
        let place = Place::Mapped(mapped(options, region, instructions)?, true);
        time(way, lines.min(WRITES_MAX), &mut |at| place.write(at, &line))?;
    }
    for (way, folder) in [("fsync, memory", &options.backing), ("fsync, file", &options.disk)] {
        let file = scratch::file(folder, "layers")?;
        let place = Place::File { file, path: folder.clone(), is_synced: true };
        place.write(0, &vec![0; region as usize])?;
        time(way, SYNCS_MAX, &mut |at| place.write(at, &line))?;
    }
    Ok(bars)
}

fn claims(cells: &[Cell], bars: &[Bar]) -> Vec<Verdict> {
    let rate = |way: Way, block: u64| {
        cells.iter().find(|cell| (cell.way, cell.block) == (way, block)).map_or(f64::NAN, |cell| cell.mb_s)
    };
    let ns = |way: &str| bars.iter().find(|bar| bar.way == way).map_or(f64::NAN, |bar| bar.ns);
    let small = rate(Way::Mapped, 64) / rate(Way::MemoryFile, 64);
    let page = rate(Way::MemoryFile, 4 << 10) / rate(Way::Mapped, 4 << 10) * 100.0;
    let synced = ns("fsync, memory") / ns("clflush, mfence");
    vec![
        Verdict {
            claim: "in blocks of 64 bytes mapped memory is 65 times as fast as a file system of memory"
                .into(),
            ours: format!("{small:.0} times"),
            holds: small >= 65.0,
        },
        Verdict {
            claim: "in blocks of 4 KiB the file system reaches 83 % of it".into(),
            ours: format!("{page:.0} %"),
            holds: page >= 83.0,
        },
        Verdict {
            claim: "a line made durable by fsync in memory takes 19.5 times as long as by a flush".into(),
            ours: format!("{synced:.1} times (fsync flushes nothing there)"),
            holds: synced >= 19.5,
        },
    ]
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.experiment, self.about)?;
        writeln!(
            f,
            "a region of {} MiB on {} and {}, median of {} rounds; MB a second (calls that write, that sync, for each block)\n",
            self.region >> 20,
            self.backing.display(),
            self.disk.display(),
            self.rounds
        )?;
        write!(f, "{:>14}", "block, bytes")?;
        Way::ALL.iter().try_for_each(|way| write!(f, "{:>22}", way.name()))?;
        for block in BLOCKS {
            write!(f, "\n{block:>14}")?;
            for cell in self.cells.iter().filter(|cell| cell.block == block) {
                let text = format!("{:.0} ({:.0}, {:.0})", cell.mb_s, cell.writes, cell.syncs);
                write!(f, "{text:>22}")?;
            }
        }
        writeln!(f, "\n\na line at a random place, durable:")?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{:>20}{:>12.0} ns", bar.way, bar.ns))?;
        writeln!(f)?;
        let claims: Vec<String> = self.claims.iter().map(Verdict::to_string).collect();
        write!(f, "{}", claims.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_memory_is_updated_without_a_call_and_a_synced_file_with_two_each() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = super::super::find("cdds-fig3").unwrap();
        let options = Options {
            keys: 0,
            operations: 0,
            rounds: 1,
            node_lines: Vec::new(),
            backing: folder.path().to_owned(),
            trace: None,
            words: None,
            disk: folder.path().to_owned(),
            scale: 0.001,
            seed: 1,
            memory: pcm::Config::preset("pcm").unwrap(),
        };
        let outcome = (experiment.run)(experiment, &options, &|_| {}).unwrap();
        let Outcome::Layers(report) = outcome else { panic!("another experiment's outcome") };
        assert_eq!(report.cells.len(), Way::ALL.len() * BLOCKS.len());
        for cell in &report.cells {
            let expected = match cell.way {
                Way::Mapped | Way::Flushed => [0.0, 0.0],
                Way::MemoryFile | Way::File => [1.0, 0.0],
                Way::FileSynced => [1.0, 1.0],
            };
            assert_eq!([cell.writes, cell.syncs], expected, "{cell:?}");
            assert!(cell.mb_s > 0.0);
        }
        assert_eq!(report.bars.len(), 4);
    }
}
