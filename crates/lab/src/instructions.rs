//! Instructions of an operation, counted by Callgrind: a part of `bench trees`.
//!
//! A run of this program under Callgrind fills an index in memory at power durability, and then does a batch of one operation of
//! `bench trees`. The count of a batch includes the loop over its keys. The same program counts the same on every machine with AVX2. With
//! AVX-512 the count can differ, because Valgrind does not have these instructions.

use std::collections::BTreeMap;

use index::About;
use pmem::{Durability, Native};

use crate::callgrind;
use crate::keys::Random as _;
use crate::measured::{Making, Measured, of_words};
use crate::trees::{GROUP, OPERATIONS, Options};
use crate::{Error, wrong};
use competitors::place::Place;

/// Most keys of an index whose instructions are counted: Callgrind runs about fifty times slower than the processor.
pub(crate) const KEYS_MAX: u64 = 300_000;
/// Number of operations of a batch.
const BATCH: u64 = 20_000;
/// Length of a scan.
const SCAN: usize = 100;
/// Scans are a twentieth of a batch.
const SCANS: usize = BATCH as usize / 20;

/// Counts the instructions of each operation on each engine.
///
/// # Errors
/// `Valgrind` if it is missing or fails; `File` if the directory for its output cannot be made.
pub(crate) fn count(
    options: &Options,
    engines: &[(&'static About, u64)],
    progress: &dyn Fn(&str),
) -> Result<Vec<BTreeMap<&'static str, f64>>, Error> {
    let place = Place::take(&options.backing)?;
    let numbers = [options.keys.min(KEYS_MAX), options.seed];
    let mut all = Vec::new();
    for &(engine, lines) in engines {
        progress(&format!("counting the instructions of {} below Valgrind", engine.name));
        let folder = place.folder(&format!("{} {lines}", engine.name))?;
        let of = |operation: &'static str| -> Result<(&'static str, f64), Error> {
            let out = folder.join(operation);
            let numbers = [lines, numbers[0], numbers[1]].map(|number| number.to_string());
            let arguments = ["bench", "trees-operations", engine.name, operation].map(str::to_owned);
            let arguments: Vec<_> = arguments.into_iter().chain(numbers).collect();
            callgrind::run(&arguments, "counted_operations", &[], &out)?;
            let executed = callgrind::sums(&out)?.get("Ir").copied().unwrap_or_default();
            Ok((operation, executed as f64 / batch(operation) as f64))
        };
        let mut counts = BTreeMap::new();
        // Two runs at the same time, each on one processor.
        for pair in counted().collect::<Vec<_>>().chunks(2) {
            let both = std::thread::scope(|scope| {
                let threads: Vec<_> = pair.iter().map(|operation| scope.spawn(|| of(operation))).collect();
                threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
            });
            for count in both {
                let (operation, count) = count.map_err(|_| Error::Valgrind("a thread panicked".into()))??;
                counts.insert(operation, count);
            }
        }
        all.push(counts);
    }
    Ok(all)
}

/// Number of operations of a batch.
fn batch(operation: &str) -> usize {
    if operation == "scan 100" { SCANS } else { BATCH as usize }
}

/// The operations after the load.
fn counted() -> impl Iterator<Item = &'static str> {
    OPERATIONS.into_iter().map(|(operation, _)| operation).skip(1)
}

/// Fills an index and does a batch of one operation. This function runs under Callgrind.
///
/// # Errors
/// `Pmem` for an error of the index; `Wrong` for a wrong answer.
pub fn operate(
    engine: &'static About,
    operation: &str,
    node_lines: u64,
    keys: u64,
    seed: u64,
) -> Result<(), Error> {
    let durability = if engine.durable { Durability::Power } else { Durability::Process };
    let medium = Native::anonymous((keys + BATCH).next_power_of_two() * 512 + (64 << 20), durability)?;
    let making = Making { name: engine.name.into(), medium, node_lines, durability, payload_words: 1 };
    let mut tree = of_words(engine, making)?;
    let mut loaded = u64::range(seed, 0, keys);
    let mut random = fastrand::Rng::with_seed(seed);
    random.shuffle(&mut loaded);
    tree.insert(&loaded)?;
    let hits: Vec<u64> = (0..BATCH).map(|_| loaded[random.usize(..loaded.len())]).collect();
    let fresh = u64::range(seed, keys, BATCH);
    let keys = match operation {
        "search miss" | "insert" | "insert 64" => &fresh,
        "delete" | "delete 64" => {
            tree.insert(&fresh)?;
            &fresh
        }
        _ => &hits[..batch(operation)],
    };
    let answer = counted_operations(&mut *tree, operation, keys)?;
    let is_right = match operation {
        "search miss" => answer == 0,
        "scan 100" => answer > 0,
        _ => answer == keys.len() as u64,
    };
    if is_right {
        Ok(())
    } else {
        Err(wrong(engine.name, format!("{operation}: {answer} of {} keys", keys.len())))
    }
}

/// The function whose instructions are counted.
#[inline(never)]
fn counted_operations(tree: &mut dyn Measured, operation: &str, keys: &[u64]) -> pmem::Result<u64> {
    match operation {
        "search hit" | "search miss" => tree.get(keys),
        "insert" => tree.insert(keys),
        "update" => tree.update(keys, 7),
        "delete" => tree.delete(keys),
        "scan 100" => tree.scan(keys, SCAN),
        "get 64" => tree.get_many(keys, GROUP),
        "insert 64" => tree.insert_many(keys, GROUP),
        _ => tree.delete_many(keys, GROUP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_gives_the_right_answer() {
        for name in ["line", "wbtree", "vlab"] {
            let engine = crate::engine(name).unwrap();
            for operation in counted() {
                operate(engine, operation, engine.default_lines, 30_000, 1).unwrap();
            }
        }
    }
}
