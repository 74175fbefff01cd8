//! The suite `model_of_lists` for VLAB, also with windows of remapped pages and with directories of production sizes. Searches among many
//! buckets are tested, too.

#[path = "../../../index/tests/shared/model_of_lists.rs"]
mod shared;

use crate::common::{Home, Index, Mapped, Sample, memory, rewired};
use index::leaf_list::prelude::*;
use index::{Fixed, Words};
use pmem::{Durability, Native};
use vlab::{Addressed, Guide, Options, Vlab};

/// Returns the numbers of observations of the index with a window of remapped pages and without.
fn behind_windows<S: Sample>(faithful: bool, seed: u64, steps: usize, keys: u32) -> [usize; 2] {
    let (home, mut ways) = (Mapped::new(), [0; 2]);
    shared::run_in(
        || home.medium(),
        &rewired::<S>(faithful),
        (seed, steps, keys),
        |index: &Index<Native, S>| {
            ways[usize::from(matches!(index.addressed(), Addressed::Directory(_)))] += 1;
        },
    );
    ways
}

/// Splits, merges, combines and opens in between.
#[test]
fn words_behind_windows_are_as_in_a_map() {
    for (faithful, seed, steps, keys) in [(false, 21, 60_000, 9_000), (true, 22, 40_000, 9_000)] {
        let ways = behind_windows::<Words>(faithful, seed, steps, keys);
        println!("{} looks through a window, {} without", ways[0], ways[1]);
        assert!(ways[0] > steps / 4, "{ways:?}");
    }
    let ways = behind_windows::<Fixed>(false, 23, 40_000, 6_000);
    assert!(ways[0] > 10_000, "{ways:?}");
}

/// Buckets after splits, with unevenly distributed words: the number of comparisons of a search.
#[test]
fn a_search_among_many_buckets_of_uniform_keys_compares_few() {
    for (guide, most) in
        [(Guide::Halves, 22.0), (Guide::Once, 24.0), (Guide::Again, 24.0), (Guide::Table, 10.99)]
    {
        let (medium, _) = memory(256 << 20);
        let small = Options { guide, ..Options::new(2, Durability::Power) };
        let index: Vlab<_, Words> = Vlab::create(medium, &small).unwrap();
        let mut rng = fastrand::Rng::with_seed(10);
        (0..150_000).for_each(|n| assert!(!index.put(&rng.u64(..), &n).unwrap()));
        index.combine().unwrap();
        let compared: u64 = (0..10_000).map(|_| u64::from(index.comparisons(&rng.u64(..)))).sum();
        let (mean, buckets) = (compared as f64 / 1e4, index.paths().directory);
        println!("{guide:?}: {mean:.2} comparisons among {buckets} buckets");
        assert!(mean < most && buckets > 1 << 15, "{guide:?}: {mean} comparisons among {buckets} buckets");
    }
}

/// Full buckets, braids and combines of production sizes.
#[test]
fn pages_are_as_in_a_map() {
    shared::pages(|index| {
        let paths = index.paths();
        assert!(paths.directory > paths.in_braids && paths.braids <= 512, "{paths:?}");
        index.combine().unwrap();
        let combined = index.paths();
        assert_eq!((combined.directory, combined.in_braids), (paths.directory + paths.in_braids, 0));
    });
}
