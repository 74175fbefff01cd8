//! Workloads: the phases of a database's life, and a trace [VLAB §6].
//!
//! The paper generates its workloads with YCSB. The known properties are kept: the mix of operations, and keys from a Zipfian distribution
//! (with YCSB's exponent). The unknown ones are chosen simply: an inserted key is new, all other operations find their key, and a deleted
//! key is not used again. So every answer is known in advance.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use crate::keys::Random as _;

/// YCSB's exponent of the Zipfian distribution.
pub(in super::super) const EXPONENT: f64 = 0.99;

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Look up an existing key.
    Query,
    /// Insert a new key.
    Insert,
    /// Replace the value of an existing key.
    Update,
    /// Delete an existing key.
    Delete,
}

/// A mix of operations in percent.
#[derive(Debug)]
pub(super) struct Workload {
    /// Name in the paper.
    pub(super) name: &'static str,
    mix: &'static [(u8, Act)],
    /// True if keys are drawn from the newest ones instead of from all.
    newest: bool,
}

const fn workload(name: &'static str, mix: &'static [(u8, Act)]) -> Workload {
    Workload { name, mix, newest: false }
}

pub(super) const QUERY_LOAD: Workload = workload("QueryLoad", &[(100, Act::Query)]);
pub(super) const INSERT_LOAD: Workload = workload("InsertLoad", &[(100, Act::Insert)]);
pub(super) const DELETE_LOAD: Workload = workload("DeleteLoad", &[(100, Act::Delete)]);
pub(super) const UPDATE_LOAD: Workload = workload("UpdateLoad", &[(100, Act::Update)]);

/// The phases, and three of YCSB's workloads.
pub(super) const MIXED: [Workload; 6] = [
    workload("GrowPhase", &[(90, Act::Insert), (10, Act::Delete)]),
    workload("AdultPhase", &[(25, Act::Insert), (25, Act::Delete), (25, Act::Update), (25, Act::Query)]),
    workload("ElderPhase", &[(60, Act::Delete), (40, Act::Query)]),
    workload("Workload-A", &[(50, Act::Query), (50, Act::Update)]),
    workload("Workload-B", &[(95, Act::Query), (5, Act::Update)]),
    Workload { newest: true, ..workload("Workload-D", &[(95, Act::Query), (5, Act::Insert)]) },
];

/// Name of the trace.
pub(super) const RETAIL: &str = "retail";

/// An operation with its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deed {
    pub(super) act: Act,
    pub(super) key: u64,
}

/// A sequence of operations, and the contents before them.
pub(in super::super) struct Stream {
    pub(super) name: &'static str,
    /// Initial keys, in insertion order.
    pub(super) before: Vec<u64>,
    pub(super) deeds: Vec<Deed>,
    /// Final keys, in ascending order.
    pub(in super::super) after: Vec<u64>,
    /// True if no value is changed.
    pub(super) keeps_values: bool,
}

/// The initial keys that are not deleted, the most likely ones first.
struct Living {
    numbers: Vec<u64>,
    /// For each position: itself, or a later position that is not after the next living key.
    next: Vec<usize>,
}

impl Living {
    fn new(keys: u64, seed: u64) -> Self {
        let mut numbers: Vec<u64> = (0..keys).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut numbers);
        Self { next: (0..=numbers.len()).collect(), numbers }
    }

    /// The first position of a living key at or after this one. If there is none, the first of all.
    fn at(&mut self, place: usize) -> Option<usize> {
        let found = self.behind(place);
        if found < self.numbers.len() {
            return Some(found);
        }
        Some(self.behind(0)).filter(|found| *found < self.numbers.len())
    }

    fn behind(&mut self, mut place: usize) -> usize {
        while self.next[place] != place {
            self.next[place] = self.next[self.next[place]];
            place = self.next[place];
        }
        place
    }
}

/// Makes a sequence of `operations` operations on `keys` keys. It is shorter if no keys to delete remain.
pub(super) fn stream(workload: &Workload, keys: u64, operations: u64, seed: u64) -> Stream {
    let key = |number| u64::numbered(seed, number);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut choice = fastrand::Rng::with_seed(seed);
    let zipf = Zipf::new(keys.max(1) as f64, EXPONENT).expect("there are keys, and the exponent is positive");
    let (mut living, mut made) = (Living::new(keys, seed), keys);
    let mut deeds = Vec::with_capacity(operations as usize);
    for _ in 0..operations {
        let mut percent = choice.u8(..100);
        let of = workload.mix.iter().find(|(part, _)| {
            let is_it = percent < *part;
            percent = percent.saturating_sub(*part);
            is_it
        });
        let act = of.map_or(Act::Query, |(_, act)| *act);
        let rank = zipf.sample(&mut random) as u64 - 1;
        let number = match act {
            Act::Insert => {
                made += 1;
                made - 1
            }
            _ if workload.newest => made - 1 - rank,
            _ => {
                let Some(place) = living.at(rank as usize) else { break };
                if act == Act::Delete {
                    living.next[place] = place + 1;
                }
                living.numbers[place]
            }
        };
        deeds.push(Deed { act, key: key(number) });
    }
    let mut before: Vec<u64> = (0..keys).map(key).collect();
    choice.shuffle(&mut before);
    let left = (0..living.numbers.len()).filter(|place| living.next[*place] == *place);
    let mut after: Vec<u64> =
        left.map(|place| key(living.numbers[place])).chain((keys..made).map(key)).collect();
    after.sort_unstable();
    let keeps_values = workload.mix.iter().all(|(_, act)| *act != Act::Update);
    Stream { name: workload.name, before, deeds, after, keeps_values }
}

/// Baskets of items as an index from items to baskets: the item's number in the upper bits, the basket's number in the lower bits.
pub(in super::super) fn trace(baskets: &[Vec<u32>]) -> Stream {
    let deed = |(basket, item): (usize, &u32)| Deed {
        act: Act::Insert,
        key: u64::from(*item) << 32 | basket as u64,
    };
    let deeds: Vec<_> = baskets
        .iter()
        .enumerate()
        .flat_map(|(basket, items)| items.iter().map(move |item| (basket, item)))
        .map(deed)
        .collect();
    let after: BTreeSet<u64> = deeds.iter().map(|deed| deed.key).collect();
    Stream { name: RETAIL, before: Vec::new(), deeds, after: after.into_iter().collect(), keeps_values: true }
}

/// Parses a trace: a basket per line, item numbers separated by blanks. Duplicate items of a basket count once.
///
/// # Errors
/// An error text with the line that cannot be parsed.
pub(super) fn read_trace(text: &str) -> Result<Vec<Vec<u32>>, String> {
    let basket = |(line, text): (usize, &str)| {
        let mut items = BTreeSet::new();
        for word in text.split_whitespace() {
            items.insert(
                word.parse().map_err(|_| format!("line {}: `{word}` is no item's number", line + 1))?,
            );
        }
        Ok(items.into_iter().collect())
    };
    text.lines().enumerate().map(basket).filter(|items| items != &Ok(Vec::new())).collect()
}

/// Generates baskets with the statistics of the paper's shop trace: number of baskets, average items per basket, number of items.
pub(super) fn made_trace(scale: f64, seed: u64) -> Vec<Vec<u32>> {
    const BASKETS: f64 = 88_162.0;
    const ITEMS_OF_ONE: f64 = 10.3;
    const ITEMS: f64 = 16_470.0;
    let (mut random, mut choice) = (SmallRng::seed_from_u64(seed), fastrand::Rng::with_seed(seed));
    let zipf = Zipf::new(ITEMS, EXPONENT).expect("there are items, and the exponent is positive");
    let basket = |_| {
        // Number of failures before a success: geometrically distributed with this mean.
        let size = 1 + (choice.f64().ln() / (1.0 - 1.0 / ITEMS_OF_ONE).ln()) as usize;
        let mut items = BTreeSet::new();
        while items.len() < size.min(200) {
            items.insert(zipf.sample(&mut random) as u32);
        }
        items.into_iter().collect()
    };
    (0..((BASKETS * scale) as u64).max(10)).map(basket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Workload> {
        [&QUERY_LOAD, &INSERT_LOAD, &DELETE_LOAD, &UPDATE_LOAD].into_iter().chain(&MIXED)
    }

    #[test]
    fn every_answer_is_what_the_stream_says() {
        for workload in all() {
            let stream = stream(workload, 3000, 2000, 7);
            assert_eq!((stream.before.len(), stream.deeds.len()), (3000, 2000), "{}", workload.name);
            let mut there: BTreeSet<u64> = stream.before.iter().copied().collect();
            for Deed { act, key } in &stream.deeds {
                let is_right = match act {
                    Act::Insert => there.insert(*key),
                    Act::Delete => there.remove(key),
                    Act::Query | Act::Update => there.contains(key),
                };
                assert!(is_right, "{}: {act:?} of {key}", workload.name);
            }
            assert!(there.into_iter().eq(stream.after), "{}", workload.name);
        }
    }

    #[test]
    fn mixes_are_the_papers_and_some_keys_are_far_more_likely() {
        for workload in all() {
            let deeds = stream(workload, 20_000, 10_000, 3).deeds;
            for (percent, act) in workload.mix {
                let part = deeds.iter().filter(|deed| deed.act == *act).count() as f64 / 100.0;
                assert!((part - f64::from(*percent)).abs() < 2.0, "{}: {act:?} {part} %", workload.name);
            }
        }
        let mut queries = std::collections::HashMap::new();
        let deeds = stream(&QUERY_LOAD, 20_000, 10_000, 3).deeds;
        deeds.iter().for_each(|deed| *queries.entry(deed.key).or_insert(0_u64) += 1);
        assert!(queries.values().max() > Some(&500) && queries.len() > 2000, "{}", queries.len());
    }

    #[test]
    fn all_can_be_deleted_and_then_there_is_nothing_to_do() {
        let stream = stream(&DELETE_LOAD, 500, 1000, 1);
        assert_eq!((stream.deeds.len(), stream.after.len()), (500, 0));
    }

    #[test]
    fn traces_are_read_and_made() {
        let baskets = read_trace("3 1 2 2\n\n7\n").unwrap();
        assert_eq!(baskets, [vec![1, 2, 3], vec![7]]);
        let stream = trace(&baskets);
        assert_eq!(stream.after, [1 << 32, 2 << 32, 3 << 32, 7 << 32 | 1]);
        assert_eq!(read_trace("1\n2 x"), Err("line 2: `x` is no item's number".to_owned()));
        let made = made_trace(0.05, 1);
        let items = made.iter().map(Vec::len).sum::<usize>() as f64 / made.len() as f64;
        assert!(made.len() == 4408 && (items - 10.3).abs() < 1.0, "{items}");
    }
}
