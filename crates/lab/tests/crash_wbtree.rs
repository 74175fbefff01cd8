//! wip
use crash::{Options, explore, explore_all};
use lab::crash_tree::subject::*;
use lab::crash_tree::workloads::*;
use tree::{Keyed, Prefixed, Words};

fn options() -> Options {
    Options { create: false, close: false, ..Options::default() }
}

fn all<S: Sample>(lines: u64) {
    let maker = Maker::new::<S>(Sizes::new(lines));
    println!("{} {lines} entries {}", S::NAME, maker.entries);
    for (name, w) in [
        ("empty", maker.from_empty::<S>()),
        ("full", maker.from_full()),
        ("low", maker.from_low()),
        ("level", vec![maker.levelling(false)]),
        ("level mirrored", vec![maker.levelling(true)]),
        ("random", vec![maker.random(1, 500, 60, 50)]),
        ("random large", vec![maker.random(1, 500, 60, 3000)]),
    ] {
        let r = explore_all(&w, &options());
        println!("{name}: {r}");
    }
}
#[test]
fn words() {
    all::<Words>(2);
}
#[test]
fn prefixed() {
    all::<Prefixed>(2);
}
#[test]
fn keyed() {
    all::<Keyed>(3);
}
