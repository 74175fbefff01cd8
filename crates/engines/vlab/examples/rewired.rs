//! The cost of a lookup with the directory and with a window of remapped pages, on one index in memory, in turns.
//!
//! `cargo run --release -p bristlecone-vlab --example rewired -- 1000000 ordered` (number of keys, default 1 million; without the second
//! argument keys are inserted in random order, so nearly every bucket of the window needs a kernel mapping of its own)
//!
//! Prints the minimum and the median of all turns: ns per lookup of an existing key, single and in calls for many keys (`get_each`); ns per
//! delete and reinsert of a key, together; ns per key of a scan; ms per open.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::ops::Bound;
use std::path::Path;
use std::time::Instant;

use index::Words;
use index::leaf_list::prelude::*;
use pmem::file::memory_file;
use pmem::{Durability, Native};
use vlab::{Addressing, Options, Vlab};

/// Lookups per turn.
const LOOKS: u64 = 500_000;
/// Turns of each addressing.
const TURNS: usize = 9;
/// Keys per call.
const GROUP: u64 = 256;
/// Changes per turn.
const CHANGES: u64 = 200_000;

type Index = Vlab<Native, Words>;

/// Key number `n`. All keys are different. Without `ordered` they are in no order (the finisher of SplitMix64).
fn key(n: u64, ordered: bool) -> u64 {
    if ordered {
        return n << 20;
    }
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

fn memory(file: &File) -> Result<Native, Box<dyn Error>> {
    Ok(Native::map(file.try_clone()?, Path::new("memory"), 64 << 30, Durability::Process)?)
}

fn ns(began: Instant, count: u64) -> f64 {
    began.elapsed().as_nanos() as f64 / count as f64
}

/// Time per lookup, one by one and in calls for many keys.
fn look(
    index: &Index,
    (keys, ordered): (u64, bool),
    rng: &mut fastrand::Rng,
) -> Result<(f64, f64), Box<dyn Error>> {
    let (mut value, mut found) = (0, 0);
    let began = Instant::now();
    for _ in 0..LOOKS {
        found += u64::from(index.get(&key(rng.u64(1..=keys), ordered), Some(&mut value))?);
    }
    let alone = ns(began, LOOKS);
    let began = Instant::now();
    for _ in 0..LOOKS / GROUP {
        let group: Vec<u64> = (0..GROUP).map(|_| key(rng.u64(1..=keys), ordered)).collect();
        let group: Vec<&u64> = group.iter().collect();
        index.get_each(&group, &mut |value| {
            found += u64::from(black_box(value).is_some());
            true
        })?;
    }
    assert_eq!(found, LOOKS + LOOKS / GROUP * GROUP, "a key is not found");
    Ok((alone, ns(began, LOOKS / GROUP * GROUP)))
}

fn change(
    index: &Index,
    (keys, ordered): (u64, bool),
    rng: &mut fastrand::Rng,
) -> Result<f64, Box<dyn Error>> {
    let began = Instant::now();
    for n in 0..CHANGES {
        let key = key(rng.u64(1..=keys), ordered);
        index.delete(&key)?;
        index.put(&key, &n)?;
    }
    Ok(ns(began, CHANGES))
}

fn scan(index: &Index) -> Result<f64, Box<dyn Error>> {
    let (mut cursor, mut key, mut value) = (index.cursor(), 0, 0);
    cursor.seek(Bound::Unbounded, false);
    let (began, mut sum) = (Instant::now(), 0_u64);
    let mut count = 0;
    while cursor.next(&mut key, &mut value)? {
        sum = sum.wrapping_add(value);
        count += 1;
    }
    black_box(sum);
    Ok(ns(began, count))
}

fn main() -> Result<(), Box<dyn Error>> {
    let keys = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse::<u64>())?;
    let ordered = std::env::args().nth(2).is_some_and(|word| word == "ordered");
    let file = memory_file()?;
    let how = Options::new(64, Durability::Process);
    let index = Index::create(memory(&file)?, &how)?;
    let began = Instant::now();
    for n in 1..=keys {
        index.put(&key(n, ordered), &n)?;
    }
    println!("{keys} keys, {:.0} ns an insert", ns(began, keys));
    index.combine()?;
    index.close()?;
    drop(index);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut seen = [Vec::new(), Vec::new()];
    for turn in 0..2 * TURNS {
        let addressing = if turn % 2 == 0 { Addressing::Directory } else { Addressing::Rewired };
        let began = Instant::now();
        let (index, _) =
            Index::open(memory(&file)?, Path::new("memory"), &Options { addressing, ..how.clone() })?;
        let open = began.elapsed().as_secs_f64() * 1e3;
        look(&index, (keys, ordered), &mut rng)?;
        let (alone, among) = look(&index, (keys, ordered), &mut rng)?;
        let (addressed, paths) = (index.addressed(), index.paths());
        let (scan, change) = (scan(&index)?, change(&index, (keys, ordered), &mut rng)?);
        seen[turn % 2].push([alone, among, change, scan, open]);
        if turn < 2 {
            println!("{addressed}; {} buckets, directory {} bytes", paths.directory, paths.directory_bytes);
        }
        index.close()?;
    }
    println!("least, median of {TURNS} turns: get ns, get_each ns, change ns, scan ns, open ms");
    for (name, turns) in ["directory", "rewired"].iter().zip(&mut seen) {
        let of = |column: usize| {
            let mut of: Vec<f64> = turns.iter().map(|turn| turn[column]).collect();
            of.sort_by(f64::total_cmp);
            format!("{:.1} {:.1}", of[0], of[TURNS / 2])
        };
        println!("{name:9}  {}", (0..5).map(of).collect::<Vec<_>>().join("   "));
    }
    Ok(())
}
