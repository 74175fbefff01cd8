//! The cost of file access compared with memory access [CDDS thesis, chapter 3].
//!
//! Figures 3.2 and 3.3: the experiment updates a region block by block, in five ways. The ways are stores to mapped
//! memory, without and with a flush and a fence after each block; `write` on a memory file system; and `write` on an
//! ordinary file system, without and with `fsync` after each block. Figure 3.4: the experiment makes single lines at
//! random positions durable, by a flush and a fence or by `write` and `fsync`.
//!
//! The experiment counts the system calls of each block. The number of `write` calls is from the kernel's statistics of the thread. Syncs
//! are counted as in [`competitors::syncs`].
//!
//! Stores to mapped memory have eight bytes, as in trees. So the thesis's smallest blocks, of two bytes, are omitted.
//! The experiment touches all pages before it measures.

use std::fmt::{Display, Formatter};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Instant;

use competitors::syncs::{self, Counter};
use pmem::{Durability, Fence, LINE, Medium, Native, WORD};

use super::{Experiment, Options, Outcome, Progress, Step};
use crate::scratch::{self, Instructions};
use crate::verdict::Verdict;
use crate::{Error, median};

/// Bytes of the region at scale 1.
const REGION: u64 = 256 << 20;
const REGION_MIN: u64 = 1 << 20;
/// Block sizes in bytes.
const BLOCKS: [u64; 7] = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 128 << 10];
/// Maximum number of blocks written to a file in a sample, and of synced lines.
const WRITES_MAX: u64 = 1 << 18;
const SYNCS_MAX: u64 = 2000;
/// Maximum number of blocks whose system calls are counted.
const BLOCKS_COUNTED: u64 = 16;

/// A way to update memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Stores into mapped memory.
    Mapped,
    /// Stores into mapped memory, with a flush and a fence after every block.
    Flushed,
    /// `write` to a file in memory.
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
    /// The way to update.
    pub way: Way,
    /// Bytes of a block.
    pub block: u64,
    /// Millions of bytes per second.
    pub mb_s: f64,
    /// Writing system calls per block.
    pub writes: f64,
    /// Syncing system calls per block.
    pub syncs: f64,
}

/// One bar of figure 3.4: a line at a random position is made durable.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Bar {
    /// The way to make it durable.
    pub way: &'static str,
    /// Nanoseconds per line.
    pub ns: f64,
}

/// Results of the experiment.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Description of the experiment.
    pub about: &'static str,
    /// Bytes of the region.
    pub region: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Directory on a memory file system.
    pub backing: PathBuf,
    /// Directory of the ordinary file.
    pub disk: PathBuf,
    /// Results of figures 3.2 and 3.3.
    pub cells: Vec<Cell>,
    /// Results of figure 3.4.
    pub bars: Vec<Bar>,
    /// The claims of the thesis.
    pub claims: Vec<Verdict>,
}

/// Runs the experiment.
///
/// # Errors
/// `Pmem` or `File` if a directory cannot be used, `Uncounted` if the kernel does not allow counting calls.
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

/// Number of blocks of a sample.
fn blocks(way: Way, block: u64, region: u64) -> u64 {
    let most = match way {
        Way::Mapped | Way::Flushed => u64::MAX,
        Way::MemoryFile | Way::File => WRITES_MAX,
        Way::FileSynced => SYNCS_MAX / 10,
    };
    (region / block).min(most)
}

/// The memory or file that is updated.
enum Place {
    Mapped(Native, bool),
    File { file: File, path: PathBuf, is_synced: bool },
}

impl Place {
    fn new(way: Way, options: &Options, region: u64) -> Result<Self, Error> {
        let file = |folder: &PathBuf, is_synced| -> Result<Self, Error> {
            let place =
                Self::File { file: scratch::file(folder, "layers")?, path: folder.clone(), is_synced };
            // Touch every page before the measurement.
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

    /// Updates blocks. Returns millions of bytes per second.
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

/// Writing and syncing system calls per block.
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

/// Number of writing calls of this thread, by the kernel's statistics.
fn writes_so_far() -> std::io::Result<u64> {
    let about = std::fs::read_to_string("/proc/thread-self/io")?;
    let count = about.lines().find_map(|line| line.strip_prefix("syscw: ")?.trim().parse().ok());
    count.ok_or_else(|| std::io::Error::other("the kernel does not count writes"))
}

/// Measures the time to make a line at a random position durable.
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
