//! wip
use crash::{Options, explore};
use lab::crash_tree::subject::*;
use lab::crash_tree::workloads::*;
use tree::{Keyed, Prefixed, Schema, Words};

fn options() -> Options { Options { create: false, close: false, cap: 256, samples: 32, nested_cap: 16, ..Options::default() } }

#[test]
fn stale() {
    let maker = Maker::new::<Prefixed>(Sizes::new(2));
    for w in [maker.reused_chunk::<Prefixed>(), maker.large()] {
        let r = explore(&w, &options());
        println!("{} s {r}", r.elapsed.as_secs_f32());
    }
    let w = maker.reused_chunk::<Keyed>();
        let r = explore(&w, &options());
        println!("{} s {r}", r.elapsed.as_secs_f32());
        let _ = Words::NAME;
}
