//! wip
use crash::{Options, explore, explore_all};
use lab::crash_tree::subject::*;
use lab::crash_tree::workloads::*;
use tree::{Keyed, Prefixed, Words};

fn options() -> Options {
    Options { create: false, close: false, ..Options::default() }
}

#[test]
fn pairs_words_2() {
    let maker = Maker::new::<Words>(Sizes::new(2));
    println!("entries {}", maker.entries);
    for (name, w) in
        [("empty", maker.from_empty::<Words>()), ("full", maker.from_full()), ("low", maker.from_low())]
    {
        let r = explore_all(&w, &options());
        println!("{name}: {r}");
    }
}
#[test]
fn create_close() {
    let maker = Maker::new::<Words>(Sizes::new(2));
    let w: Work<Words> = whole(maker.sizes, vec![], vec![maker.op(Act::Put(1), 1), maker.op(Act::Reopen, 1)]);
    println!("{}", explore(&w, &Options::default()));
}
