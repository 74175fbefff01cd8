//! wip
use crash::{Options, explore};
use lab::crash_tree::subject::*;
use lab::crash_tree::workloads::*;
use lab::crash_tree::laps;
use tree::{Keyed, Prefixed, Words};

fn options() -> Options { Options { cap: 256, samples: 32, nested_cap: 16, line_cap: 64, ..Options::default() } }

#[test]
fn some() {
    let maker = Maker::new::<Prefixed>(Sizes::new(2));
    for w in [maker.long_bitmap::<Prefixed>(), maker.refused(), maker.lives(1, 40), maker.bulk_loads()] {
        let r = explore(&w, &options());
        println!("{} s {r}", r.elapsed.as_secs_f32());
    }
    let maker = Maker::new::<Words>(Sizes::new(16));
    for w in [maker.lives::<Words>(1, 10), maker.bulk_loads()] {
        let r = explore(&w, &options());
        println!("{} s {r}", r.elapsed.as_secs_f32());
    }
    for w in [laps::tags_come_round(), laps::short_laps()] {
        let r = explore(&w, &options());
        println!("{} s {r}", r.elapsed.as_secs_f32());
    }
    let maker = Maker::new::<Keyed>(Sizes::new(2));
        let r = explore(&maker.lives::<Keyed>(1, 10), &options());
        println!("{} s {r}", r.elapsed.as_secs_f32());
}
