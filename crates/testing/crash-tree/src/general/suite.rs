//! The choice of workloads for an index, and the mutation run over them.

use bristlecone::registry;
use index::{About, Family, Fixed, Keyed, Prefixed, Visitor, Words, kind};
use pmem::Observed;

use super::subject::{Buckets, Logs, Registered, Sizes, sizes};
use super::workloads::{
    Work, clears, closed_chunks, cut_splits, first, lives, long_bitmap, mixed, moved_records, narrowed_chunk,
    reuse, write_groups,
};
use crate::subject::Explored;
use crate::suite::{Depth, OPS_LONG, Run};
use crate::{Engine, Options};

/// Returns the explored sizes of a leaf, in lines. In the lists, two lines hold the minimum number of byte strings. Three lines hold some
/// more, which do not fill the last line.
pub fn node_lines(about: &About) -> Vec<u64> {
    let least = least_lines(about);
    vec![least, least + 1]
}

/// The minimum number of lines of a leaf. The lists support smaller leaves than the settings of a user allow.
fn least_lines(about: &About) -> u64 {
    if [vlab::ENGINE, nvtree::ENGINE].contains(&about.name) { 2 } else { about.lines.0 }
}

/// Returns the workloads of an exploration.
pub fn exploration(options: &Options) -> Vec<Run> {
    let mut runs = Vec::new();
    for lines in options.node_lines.map_or_else(|| node_lines(options.engine.about()), |lines| vec![lines]) {
        match options.engine.name() {
            vlab::ENGINE => {
                add::<Buckets<kind::U64, Words>>(&mut runs, "words", (lines, 24), options);
                add::<Buckets<kind::Bytes, Keyed>>(&mut runs, "byte strings", (lines, 16), options);
                runs.extend((lines == 2).then(of_moved_records::<Buckets<kind::Bytes, Keyed>>));
                // Two lines hold too few of these entries.
                if lines > 2 {
                    add::<Buckets<kind::Bytes, Prefixed>>(
                        &mut runs,
                        "byte strings with prefixes",
                        (lines, 16),
                        options,
                    );
                    add::<Buckets<kind::Fixed, Fixed>>(&mut runs, "values of 24 bytes", (lines, 16), options);
                }
            }
            nvtree::ENGINE => {
                add::<Logs<kind::U64, Words>>(&mut runs, "words", (lines, 24), options);
                add::<Logs<kind::Bytes, Keyed>>(&mut runs, "byte strings", (lines, 16), options);
                runs.extend((lines == 2).then(of_moved_records::<Logs<kind::Bytes, Keyed>>));
                if lines > 2 {
                    add::<Logs<kind::Bytes, Prefixed>>(
                        &mut runs,
                        "byte strings with prefixes",
                        (lines, 16),
                        options,
                    );
                    add::<Logs<kind::Fixed, Fixed>>(&mut runs, "values of 24 bytes", (lines, 16), options);
                }
            }
            name => {
                let add = AddRegistered { runs: &mut runs, lines, options };
                registry::visit(name, add).expect("the engine was taken from the registry");
            }
        }
    }
    runs
}

/// Adds the runs of an engine that has no settings of its own for the explorer.
struct AddRegistered<'a> {
    runs: &'a mut Vec<Run>,
    lines: u64,
    options: &'a Options,
}

impl Visitor for AddRegistered<'_> {
    type Out = ();
    fn visit<F: Family>(self, about: &'static About) {
        let Self { runs, lines, options } = self;
        add::<Registered<kind::U64, F::Words<Observed>>>(runs, "words", (lines, 24), options);
        add::<Registered<kind::Bytes, F::Bytes<Observed>>>(runs, "byte strings", (lines, 16), options);
        if lines == least_lines(about) {
            runs.push(of_moved_records::<Registered<kind::Bytes, F::Bytes<Observed>>>());
        }
    }
}

fn of_moved_records<E: Explored<Sizes = Sizes>>() -> Run {
    Run::new("byte strings: moved records".to_owned(), Depth::Lists, vec![moved_records::<E>()])
}

/// The variants of the engine with this name: the flag `faithful`, and the suffix of the run's name.
fn ways(name: &str) -> &'static [(bool, &'static str)] {
    if name == vlab::ENGINE { &[(false, ""), (true, ", as the paper has it")] } else { &[(false, "")] }
}

fn add<E: Explored<Sizes = Sizes>>(
    runs: &mut Vec<Run>,
    kind: &str,
    (lines, keys): (u64, u32),
    options: &Options,
) {
    let depth = if options.ops > OPS_LONG { Depth::Long } else { Depth::Lists };
    for (faithful, way) in ways(options.engine.name()) {
        let sizes = sizes(lines, *faithful);
        let mut run = |name: &str, depth, work: Work<E>| {
            runs.push(Run::new(format!("{kind}, {lines} lines{way}: {name}"), depth, vec![work]));
        };
        run("lives", Depth::Lists, lives(sizes, keys));
        if lines == least_lines(options.engine.about()) {
            run("write_groups", Depth::Lists, write_groups(lines, *faithful));
            if !*faithful {
                // In the paper's variant a clear deletes key by key.
                run("clears", Depth::Lists, clears(lines));
            }
        }
        run("reuse", Depth::Lists, reuse(lines));
        run("random", depth, mixed(options.seed, sizes, options.ops, keys, 0));
        run("cut", depth, mixed(options.seed + 1, sizes, options.ops, keys, 4));
    }
}

/// Returns the workloads that find mutants. Those that find many quickly come first.
pub fn mutation_runs(engine: Engine, seed: u64) -> Vec<Run> {
    match engine.name() {
        vlab::ENGINE => {
            for_mutants::<Buckets<kind::U64, Words>, Buckets<kind::Bytes, Keyed>>(engine.about(), seed)
        }
        nvtree::ENGINE => {
            for_mutants::<Logs<kind::U64, Words>, Logs<kind::Bytes, Keyed>>(engine.about(), seed)
        }
        name => {
            registry::visit(name, RegisteredMutants { seed }).expect("the engine was taken from the registry")
        }
    }
}

struct RegisteredMutants {
    seed: u64,
}

impl Visitor for RegisteredMutants {
    type Out = Vec<Run>;
    fn visit<F: Family>(self, about: &'static About) -> Vec<Run> {
        for_mutants::<Registered<kind::U64, F::Words<Observed>>, Registered<kind::Bytes, F::Bytes<Observed>>>(
            about, self.seed,
        )
    }
}

/// `W` has words, `B` byte strings.
fn for_mutants<W: Explored<Sizes = Sizes>, B: Explored<Sizes = Sizes>>(about: &About, seed: u64) -> Vec<Run> {
    fn of<E: Explored<Sizes = Sizes>>(name: &str, depth: Depth, work: Work<E>) -> Run {
        Run::new(name.to_owned(), depth, vec![work])
    }
    let (least, mut runs) = (least_lines(about), Vec::new());
    for (faithful, way) in ways(about.name) {
        let name = format!("words, first operations{way}");
        runs.push(of::<W>(&name, Depth::ListsDeep, first(least, *faithful)));
    }
    let usual = sizes(least, false);
    runs.push(of::<B>("byte strings, first operations", Depth::ListsDeep, first(least, false)));
    runs.push(of::<W>("creation", Depth::Lines, Work::<W>::new(usual, [])));
    runs.push(of::<W>("words, write_groups", Depth::Lists, write_groups(least, false)));
    runs.push(of::<B>("byte strings, write_groups", Depth::Lists, write_groups(least, false)));
    runs.push(of::<W>("words, clears", Depth::Lists, clears(least)));
    runs.push(of::<B>("byte strings, clears", Depth::Lists, clears(least)));
    runs.push(of::<W>("words, reuse", Depth::Lists, reuse(least)));
    runs.push(of::<B>("byte strings, reuse", Depth::Lists, reuse(least)));
    runs.push(of::<W>("words, lives", Depth::Lists, lives(usual, 12)));
    let paper = sizes(least, ways(about.name).len() > 1);
    runs.push(of::<W>("words, random", Depth::Lists, mixed(seed, paper, 80, 14, 0)));
    runs.push(of::<B>("byte strings, random", Depth::Lists, mixed(seed + 1, paper, 40, 14, 0)));
    runs.push(of::<W>("words, cut", Depth::Lists, mixed(seed + 21, usual, 60, 14, 3)));
    // After a cut split, the next operation continues from the stores of recovery. Only few steps do so.
    runs.push(of::<B>("byte strings, cut", Depth::Lists, mixed(seed + 21, paper, 150, 14, 3)));
    // One seed of these does not cut every step of a split.
    for more in 4..8 {
        runs.push(of::<B>("byte strings, cut splits", Depth::Lists, cut_splits(least, seed + more)));
    }
    runs.push(of::<B>("long bitmap", Depth::ListsDeep, long_bitmap()));
    runs.push(of::<B>("closed chunks", Depth::ListsDeep, closed_chunks()));
    runs.push(of::<B>("narrowed chunk", Depth::ListsDeep, narrowed_chunk()));
    runs
}
