//! The cost of latency samples for a get: the same lookups by the engine alone, by the store with its samples, and with every lookup timed.
//!
//! `cargo run --release -p bristlecone --example timing_cost -- 10000 1000000 10000000`
//!
//! Each argument is a number of integer keys. Its store is in /dev/shm. Lookups of random keys run in stretches of 2,000, the three
//! variants in turn. A stretch is so short that most stretches are not interrupted. Other load on the machine affects all variants alike.
//! Each variant runs 4,000 stretches. The printed time is the 10th percentile.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bristlecone::registry::Open as _;
use bristlecone::{Durability, Engine, Options, StoreU64, TIMED_EVERY, U64};
use hdrhistogram::Histogram;

const STRETCH: u64 = 2000;
const ROUNDS: usize = 4000;

/// Key number `n`. Keys are distinct and in no order.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn main() -> Result<(), Box<dyn Error>> {
    let sizes = std::env::args().skip(1).map(|size| size.parse()).collect::<Result<Vec<u64>, _>>()?;
    let dir = Path::new("/dev/shm").join(format!("timing-cost-{}", std::process::id()));
    sizes.iter().try_for_each(|keys| {
        let outcome = measure(&dir, *keys);
        std::fs::remove_dir_all(&dir)?;
        outcome
    })
}

fn measure(dir: &Path, keys: u64) -> Result<(), Box<dyn Error>> {
    let options = Options::default().durability(Durability::Process);
    let engine: Arc<Engine<U64>> = U64::open(dir, &options)?;
    let store = StoreU64::from_engine(Arc::clone(&engine));
    for n in 0..keys {
        store.put(&key(n), &n)?;
    }
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 1 << 36, 2)?;
    let (mut times, mut value) = ([const { Vec::new() }; 3], 0);
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..ROUNDS * 3 {
        let numbers: Vec<u64> = (0..STRETCH).map(|_| random.u64(..keys)).collect();
        let way = (round + round / 3) % 3;
        let start = Instant::now();
        for &n in &numbers {
            let found = match way {
                0 => engine.get(&key(n), Some(&mut value))?,
                1 => store.get_into(&key(n), &mut value)?,
                _ => {
                    let start = Instant::now();
                    let found = engine.get(&key(n), Some(&mut value))?;
                    histogram.saturating_record(start.elapsed().as_nanos() as u64);
                    found
                }
            };
            black_box(found);
        }
        times[way].push(start.elapsed().as_nanos() as f64 / STRETCH as f64);
    }
    let [engine, store, each] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 10]
    });
    let more = |time: f64| format!("{:+.1} ns, {:+.2} %", time - engine, (time / engine - 1.0) * 100.0);
    println!(
        "{keys} keys: {engine:.1} ns a get; one in {TIMED_EVERY} timed: {}; each timed: {}",
        more(store),
        more(each)
    );
    Ok(())
}
