//! Counts the loads of lookups by the cache level that serves them [Bw-tree figure 7].
//!
//! The maps with which the Bw-tree is compared are foreign code, whose reads cannot be counted from inside. So the program runs again under
//! Valgrind, whose tool Callgrind simulates a first and a last cache level. Each map is simulated twice: in one run the last level has the
//! size of [`Config`]'s second level, in the other run the size of its third level. The third level serves the loads that miss the last
//! level in the first run and hit it in the second run. This assumes that the third level also holds all lines of the second level.

use std::collections::HashMap;
use std::path::Path;

use bwtree::Tree;
use competitors::Choice;
use competitors::maps::{Handle, Map};
use competitors::place::Place;
use pcm::{Config, Level};

use super::streams::{self, Keys, Stream, WordKeys};
use super::{OURS, Ours, SKIP_LIST, STD};
use crate::callgrind;
use crate::{Error, wrong};

/// Loads of lookups in a map, by the level that served them.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Loads {
    /// Name of the map.
    pub map: &'static str,
    /// Number of lookups of random keys.
    pub lookups: u64,
    /// Loads per lookup from the first, second and third level, and from memory, without instruction fetches.
    pub each: [f64; 4],
}

impl Loads {
    /// Fraction of the loads that the first two levels served.
    pub(super) fn near(&self) -> f64 {
        (self.each[0] + self.each[1]) / self.each.iter().sum::<f64>()
    }
}

/// The function whose loads are counted. Callgrind identifies it by name, so it must not be inlined.
#[inline(never)]
fn counted_lookups(handle: &mut dyn Handle<u64, u64>, stream: &Stream<WordKeys>) -> usize {
    let (mut value, mut found) = (0, 0);
    // A closure would have a name that contains this function's name, and Callgrind would stop counting there.
    for i in 0..stream.keys.len() {
        found += usize::from(handle.get(stream.keys.get(i), &mut value));
    }
    found
}

/// Fills a map and looks all keys up in another order. This function runs under Valgrind.
///
/// # Errors
/// `Choice` if this build does not have the map, `Wrong` if keys are missing.
pub fn lookups(name: &str, keys: u64, seed: u64) -> Result<(), Error> {
    let map: Box<dyn Map<u64, u64>> = if name == OURS {
        Box::new(Ours(Tree::<bwtree::Words>::default()))
    } else {
        let kind = competitors::maps::of_words().into_iter().find(|kind| kind.name == name);
        let unknown = || Choice::Unknown { name: name.to_owned(), known: known().join(", ") };
        (kind.ok_or_else(unknown)?.make)()
    };
    let workload = streams::uniform(keys, seed);
    let (inserts, lookups) = (&workload.parts[0].1, &workload.parts[1].1);
    let mut handle = map.handle();
    for i in 0..inserts.keys.len() {
        let key = inserts.keys.get(i);
        handle.put(key, key);
    }
    match counted_lookups(&mut *handle, lookups) {
        found if found as u64 == keys => Ok(()),
        found => Err(wrong(name, format!("{found} keys of {keys}"))),
    }
}

/// Names of the compared maps in this build.
fn known() -> Vec<&'static str> {
    let built = competitors::maps::of_words().into_iter().map(|kind| kind.name);
    std::iter::once(OURS).chain(built.filter(|name| [SKIP_LIST, STD].contains(name))).collect()
}

/// Counts the loads of each map.
///
/// # Errors
/// `Valgrind` if it is missing or fails; `File` if the directory for its output cannot be made.
pub(super) fn count(
    keys: u64,
    seed: u64,
    place: &Place,
    progress: &dyn Fn(&str),
) -> Result<Vec<Loads>, Error> {
    let (caches, folder) = (Config::pcm(), place.folder("callgrind")?);
    let counted = |map| {
        progress(&format!("lookups of {keys} keys below Valgrind: {map}"));
        // Two simulations run at the same time, each on one processor.
        let (second, third) = std::thread::scope(|scope| {
            let simulate = |last| simulate(map, keys, seed, &caches, last, &folder);
            let third = scope.spawn(move || simulate(caches.l3));
            (simulate(caches.l2), third.join())
        });
        let (second, third) = (second?, third.map_err(|_| Error::Valgrind("a thread panicked".into()))??);
        let levels = [
            second.all.saturating_sub(second.miss_first),
            second.miss_first.saturating_sub(second.miss_last),
            second.miss_last.saturating_sub(third.miss_last),
            third.miss_last,
        ];
        Ok(Loads { map, lookups: keys, each: levels.map(|loads| loads as f64 / keys as f64) })
    };
    known().into_iter().map(counted).collect()
}

/// Counts of Callgrind.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    all: u64,
    miss_first: u64,
    miss_last: u64,
}

fn simulate(
    map: &str,
    keys: u64,
    seed: u64,
    caches: &Config,
    last: Level,
    folder: &Path,
) -> Result<Counted, Error> {
    let out = folder.join(format!("{} {}", map, last.bytes));
    let geometry = |level: Level| format!("{},{},{}", level.bytes, level.ways, pmem::LINE);
    let options = [
        "--cache-sim=yes".to_owned(),
        format!("--I1={}", geometry(caches.l1)),
        format!("--D1={}", geometry(caches.l1)),
        format!("--LL={}", geometry(last)),
    ];
    let arguments = ["bench", "bwtree-lookups", map, &keys.to_string(), "--seed", &seed.to_string()];
    callgrind::run(&arguments.map(str::to_owned), "counted_lookups", &options, &out)?;
    loads(&callgrind::sums(&out)?).ok_or_else(|| Error::Valgrind("no loads of lookups were counted".into()))
}

/// The loads among a report's sums. `None` if there are none.
fn loads(sums: &HashMap<String, u64>) -> Option<Counted> {
    let sum = |name| sums.get(name).copied();
    let counted = Counted { all: sum("Dr")?, miss_first: sum("D1mr")?, miss_last: sum("DLmr")? };
    (counted.all > 0).then_some(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_found_by_their_names() {
        let sums =
            |counts: &[(&str, u64)]| counts.iter().map(|(name, sum)| ((*name).to_owned(), *sum)).collect();
        let counted = loads(&sums(&[("Ir", 900), ("Dr", 400), ("D1mr", 30), ("DLmr", 7)]));
        assert_eq!(counted, Some(Counted { all: 400, miss_first: 30, miss_last: 7 }));
        assert_eq!(loads(&sums(&[("Dr", 0), ("D1mr", 0), ("DLmr", 0)])), None, "nothing was counted");
        assert_eq!(loads(&sums(&[("Ir", 900)])), None);
    }

    #[test]
    fn maps_find_what_they_were_given() {
        known().into_iter().for_each(|name| lookups(name, 500, 1).unwrap());
        assert!(matches!(lookups("nosuch", 5, 1), Err(Error::Choice(_))));
    }
}
