//! The memory of a store over a run: data of many times the budget is loaded, read, changed and scanned, and samples of the process's memory
//! are drawn as a picture.
//!
//! The store runs in this process, so the samples include the memory of the benchmark itself (a few MiB).

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bristlecone::{Durability, Options, Store};
use plotters::prelude::*;
use serde::Serialize;

/// Bytes of a value.
const VALUE: usize = 1000;
/// Bytes of a pair.
const PAIR: u64 = VALUE as u64 + 8;
const PAUSE: Duration = Duration::from_millis(100);
const MIB: f64 = (1 << 20) as f64;

/// What to run.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The memory budget of the store in bytes.
    pub budget_bytes: u64,
    /// Bytes of all keys and values.
    pub data_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Duration of each phase after the load.
    pub phase: Duration,
}

/// The process's memory at a moment.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Seconds since the begin.
    pub seconds: f64,
    /// Memory of the process that is not backed by files.
    pub anonymous_bytes: u64,
    /// Pages and the mapping table, as the store counts them.
    pub page_bytes: u64,
}

/// A part of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// What the threads do.
    pub name: &'static str,
    /// Seconds at its end.
    pub end: f64,
    /// Operations of all threads per second.
    pub per_second: f64,
    /// The most memory of the process during the phase.
    pub peak_bytes: u64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// The memory budget.
    pub budget_bytes: u64,
    /// Bytes of all keys and values.
    pub data_bytes: u64,
    /// The most memory of the process.
    pub peak_bytes: u64,
    /// That as a multiple of the budget.
    pub peak_to_budget: f64,
    /// The parts of the run.
    pub phases: Vec<Phase>,
    /// Samples.
    pub samples: Vec<Sample>,
}

/// An operation of a thread on random keys below this number.
type Work = fn(&Store, &mut fastrand::Rng, u64) -> bristlecone::Result<()>;

fn random_key(random: &mut fastrand::Rng, keys: u64) -> [u8; 8] {
    random.u64(..keys).to_be_bytes()
}

const WORKS: [(&str, Work); 5] = [
    ("get", |store, random, keys| store.get(&random_key(random, keys)).map(drop)),
    ("set", |store, random, keys| store.set(&random_key(random, keys), &[random.u8(..); VALUE])),
    ("put", |store, random, keys| store.put(&random_key(random, keys), &[random.u8(..); VALUE]).map(drop)),
    ("get and put", |store, random, keys| match random.bool() {
        true => store.get(&random_key(random, keys)).map(drop),
        false => store.put(&random_key(random, keys), &[random.u8(..); VALUE]).map(drop),
    }),
    ("scan of 100", |store, random, keys| {
        let from = Bound::Included(random_key(random, keys).to_vec());
        store.scan((from, Bound::Unbounded)).take(100).try_for_each(|pair| pair.map(drop))
    }),
];

/// Anonymous memory of this process.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Runs all phases on a new store in `dir`. `say` gets the name of each phase.
///
/// # Errors
/// Those of the store.
pub fn run(dir: &Path, options: &MemoryOptions, say: &dyn Fn(&str)) -> bristlecone::Result<Memory> {
    let MemoryOptions { budget_bytes, data_bytes, threads, phase } = *options;
    let settings = Options::default().engine(crate::ENGINE).durability(Durability::Process);
    let store = Store::open(dir, settings.memory_bytes(budget_bytes))?;
    let (keys, begin, is_done) = ((data_bytes / PAIR).max(1), Instant::now(), AtomicBool::new(false));
    let (mut phases, mut samples) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let (store, is_done) = (&store, &is_done);
        let sampler = scope.spawn(move || {
            let mut samples = Vec::new();
            while !is_done.load(Ordering::Relaxed) {
                let page_bytes = store.stats().paging.map_or(0, |paging| paging.page_bytes);
                let seconds = begin.elapsed().as_secs_f64();
                samples.push(Sample { seconds, anonymous_bytes: anonymous_bytes(), page_bytes });
                std::thread::sleep(PAUSE);
            }
            samples
        });
        let mut one = |name, operate: &(dyn Fn(u64) -> bristlecone::Result<u64> + Sync)| {
            say(name);
            let (at, done) = (Instant::now(), AtomicU64::new(0));
            let results: Vec<bristlecone::Result<u64>> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || operate(thread))).collect();
                all.into_iter().map(|thread| thread.join().expect("a thread of the benchmark")).collect()
            });
            for result in results {
                done.fetch_add(result?, Ordering::Relaxed);
            }
            let per_second = done.into_inner() as f64 / at.elapsed().as_secs_f64();
            phases.push(Phase { name, end: begin.elapsed().as_secs_f64(), per_second, peak_bytes: 0 });
            bristlecone::Result::Ok(())
        };
        // In key order for each thread: a load in random order takes many times as long.
        let mut all = || {
            one("load", &|thread| {
                let (from, to) = (keys * thread / threads, keys * (thread + 1) / threads);
                (from..to)
                    .try_for_each(|key| store.put(&key.to_be_bytes(), &[key as u8; VALUE]).map(drop))?;
                Ok(to - from)
            })?;
            for (name, work) in WORKS {
                one(name, &|thread| {
                    let (mut random, at) = (fastrand::Rng::with_seed(thread), Instant::now());
                    let mut count = 0;
                    while at.elapsed() < phase {
                        work(store, &mut random, keys)?;
                        count += 1;
                    }
                    Ok(count)
                })?;
            }
            Ok(())
        };
        let done: bristlecone::Result<()> = all();
        is_done.store(true, Ordering::Relaxed);
        samples = sampler.join().expect("the thread that samples");
        done
    })?;
    let mut from = 0.0;
    for phase in &mut phases {
        let inside = samples.iter().filter(|sample| sample.seconds >= from && sample.seconds <= phase.end);
        phase.peak_bytes = inside.map(|sample| sample.anonymous_bytes).max().unwrap_or(0);
        from = phase.end;
    }
    let peak_bytes = samples.iter().map(|sample| sample.anonymous_bytes).max().unwrap_or(0);
    let peak_to_budget = peak_bytes as f64 / budget_bytes as f64;
    Ok(Memory { budget_bytes, data_bytes, peak_bytes, peak_to_budget, phases, samples })
}

impl std::fmt::Display for Memory {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(to, "{:<12} {:>16} {:>20}", "phase", "operations/s", "memory at most, MiB")?;
        for Phase { name, per_second, peak_bytes, .. } in &self.phases {
            writeln!(to, "{name:<12} {per_second:>16.0} {:>20.0}", *peak_bytes as f64 / MIB)?;
        }
        writeln!(to, "at most {:.2} times the memory budget", self.peak_to_budget)
    }
}

impl Memory {
    /// The picture.
    ///
    /// # Errors
    /// An error text if the drawing fails.
    pub fn svg(&self) -> Result<String, String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|error| error.to_string())?;
        Ok(svg)
    }

    fn draw<'a>(&self, svg: &'a mut String) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let root = SVGBackend::with_string(svg, (900, 420)).into_drawing_area();
        root.fill(&WHITE)?;
        let (budget, end) =
            (self.budget_bytes as f64 / MIB, self.phases.last().map_or(1.0, |phase| phase.end));
        let most = (self.peak_bytes as f64 / MIB).max(budget) * 1.2;
        let caption =
            format!("Memory of a store with {:.0} MiB of data, in MiB", self.data_bytes as f64 / MIB);
        let mut chart = ChartBuilder::on(&root)
            .caption(caption, ("sans-serif", 18))
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..end, 0.0..most)?;
        chart.configure_mesh().disable_x_mesh().x_desc("seconds").y_desc("MiB").draw()?;
        let mut from = 0.0;
        for phase in &self.phases {
            chart.draw_series([PathElement::new([(phase.end, 0.0), (phase.end, most)], BLACK.mix(0.25))])?;
            chart.draw_series([Text::new(phase.name, (from, most * 0.99), ("sans-serif", 13))])?;
            from = phase.end;
        }
        type Of = fn(&Sample) -> u64;
        let series: [(&str, RGBColor, Of); 2] = [
            ("memory of the process", RED, |sample| sample.anonymous_bytes),
            ("pages", BLUE, |sample| sample.page_bytes),
        ];
        for (name, colour, of) in series {
            let line = self.samples.iter().map(|sample| (sample.seconds, of(sample) as f64 / MIB));
            let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
            drawn.label(name).legend(legend);
        }
        let line = [(0.0, budget), (end, budget)];
        let drawn = chart.draw_series(DashedLineSeries::new(line, 8, 6, BLACK.stroke_width(1)))?;
        let legend = |(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK.stroke_width(1));
        drawn.label("budget").legend(legend);
        let labels = chart.configure_series_labels();
        { labels }
            .position(SeriesLabelPosition::LowerRight)
            .border_style(BLACK.mix(0.3))
            .background_style(WHITE.mix(0.9))
            .draw()?;
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_sampled_and_drawn() {
        let dir = tempfile::tempdir().unwrap();
        let phase = Duration::from_millis(120);
        let options = MemoryOptions { budget_bytes: 16 << 20, data_bytes: 24 << 20, threads: 2, phase };
        let memory = run(dir.path(), &options, &|_| ()).unwrap();
        assert_eq!(memory.phases.len(), 1 + WORKS.len());
        assert!(memory.phases.iter().all(|phase| phase.per_second > 0.0));
        assert!(memory.samples.len() > 3 && memory.samples.iter().any(|sample| sample.page_bytes > 1 << 20));
        assert_eq!(Some(memory.peak_bytes), memory.samples.iter().map(|sample| sample.anonymous_bytes).max());
        let svg = memory.svg().unwrap();
        assert!(svg.contains("</svg>") && WORKS.iter().all(|(name, _)| svg.contains(name)));
    }
}
