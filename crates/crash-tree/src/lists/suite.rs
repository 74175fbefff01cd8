//! Which workloads an index gets, and the mutation run over them.

use index::{Fixed, Keyed, Prefixed, Words};

use super::subject::{Buckets, Family, Logs, sizes};
use super::workloads::{
    Work, closed_chunks, first, lives, long_bitmap, mixed, moved_records, narrowed_chunk, waves,
};
use crate::subject::Sample;
use crate::suite::{Depth, OPS_LONG, Run};
use crate::{Engine, Options};

/// Lines of a leaf: of two as few entries as there can be of byte strings, of three some more, which do not fill the last line.
pub fn node_lines() -> Vec<u64> {
    vec![2, 3]
}

/// The workloads of an exploration.
pub fn exploration(options: &Options) -> Vec<Run> {
    if options.engine.name() == vlab::ENGINE {
        explored::<Buckets>(options)
    } else {
        explored::<Logs>(options)
    }
}

/// The ways in which an index of this family can do things.
fn ways<K: Family>() -> &'static [(bool, &'static str)] {
    if K::TWO_WAYS { &[(false, ""), (true, ", as the paper has it")] } else { &[(false, "")] }
}

fn explored<K: Family>(options: &Options) -> Vec<Run> {
    let mut runs = Vec::new();
    for lines in options.node_lines.map_or_else(node_lines, |lines| vec![lines]) {
        add::<K, Words>(&mut runs, "words", (lines, 24), options);
        add::<K, Keyed>(&mut runs, "byte strings", (lines, 16), options);
        if lines == 2 {
            runs.push(Run::new(
                "byte strings: moved records".to_owned(),
                Depth::Lists,
                vec![moved_records::<K, Keyed>()],
            ));
        }
        // Two lines hold too few of these.
        if lines > 2 {
            add::<K, Prefixed>(&mut runs, "byte strings with prefixes", (lines, 16), options);
            add::<K, Fixed>(&mut runs, "values of 24 bytes", (lines, 16), options);
        }
    }
    runs
}

fn add<K: Family, S: Sample>(runs: &mut Vec<Run>, kind: &str, (lines, keys): (u64, u32), options: &Options) {
    let depth = if options.ops > OPS_LONG { Depth::Long } else { Depth::Lists };
    for (faithful, way) in ways::<K>() {
        let sizes = sizes(lines, *faithful);
        let mut run = |name: &str, depth, work: Work<K, S>| {
            runs.push(Run::new(format!("{kind}, {lines} lines{way}: {name}"), depth, vec![work]));
        };
        run("lives", Depth::Lists, lives(sizes, keys));
        if lines == 2 {
            run("waves", Depth::Lists, waves(*faithful));
        }
        run("random", depth, mixed(options.seed, sizes, options.ops, keys, 0));
        run("cut", depth, mixed(options.seed + 1, sizes, options.ops, keys, 4));
    }
}

/// The workloads that find mutants, those first that find many soon.
pub fn mutation_runs(engine: Engine, seed: u64) -> Vec<Run> {
    if engine.name() == vlab::ENGINE { for_mutants::<Buckets>(seed) } else { for_mutants::<Logs>(seed) }
}

fn for_mutants<K: Family>(seed: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    fn of<K: Family, S: Sample>(name: &str, depth: Depth, work: Work<K, S>) -> Run {
        Run::new(name.to_owned(), depth, vec![work])
    }
    for (faithful, way) in ways::<K>() {
        let name = format!("words, first operations{way}");
        runs.push(of::<K, Words>(&name, Depth::ListsDeep, first(*faithful)));
    }
    runs.push(of::<K, Keyed>("byte strings, first operations", Depth::ListsDeep, first(false)));
    runs.push(of::<K, Words>("creation", Depth::Lines, Work::<K, Words>::new(sizes(2, false), [])));
    runs.push(of::<K, Words>("words, waves", Depth::Lists, waves(false)));
    runs.push(of::<K, Keyed>("byte strings, waves", Depth::Lists, waves(false)));
    runs.push(of::<K, Words>("words, lives", Depth::Lists, lives(sizes(2, false), 12)));
    let paper = sizes(2, K::TWO_WAYS);
    runs.push(of::<K, Words>("words, random", Depth::Lists, mixed(seed, paper, 80, 14, 0)));
    runs.push(of::<K, Keyed>("byte strings, random", Depth::Lists, mixed(seed + 1, paper, 40, 14, 0)));
    runs.push(of::<K, Words>("words, cut", Depth::Lists, mixed(seed + 21, sizes(2, false), 60, 14, 3)));
    // What recovery stores for a split that was cut short, and the next operation goes on from, few steps show.
    runs.push(of::<K, Keyed>("byte strings, cut", Depth::Lists, mixed(seed + 21, paper, 150, 14, 3)));
    runs.push(of::<K, Keyed>("long bitmap", Depth::ListsDeep, long_bitmap()));
    runs.push(of::<K, Keyed>("closed chunks", Depth::ListsDeep, closed_chunks()));
    runs.push(of::<K, Keyed>("narrowed chunk", Depth::ListsDeep, narrowed_chunk()));
    runs
}
