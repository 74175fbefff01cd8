//! Power cuts throughout the life of a store. After a cut, the contents are those after some operation between the last acknowledged one
//! and the last one that started.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (default 1). A round judges about 3000 images. `BRISTLECONE_SEED` changes the seeds.

use faults::{Lie, mix};

use crate::common::Dir;
use crate::common::life::{Life, Tally, number_from};

const LIVES: u64 = 8;

fn life(seed: u64, lie: Lie) -> Result<Tally, String> {
    let dir = Dir::new("power");
    let mut life = Life::new(&dir.0, seed, lie, Vec::new());
    let store = life.create();
    life.live(store, 150).map_err(|why| format!("seed {seed}: {why}"))?;
    life.judge(seed, 12, 20)
}

#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let mut total = Tally::default();
    for number in 0..LIVES * rounds {
        total.add(&life(mix(seed, number), Lie::None).unwrap_or_else(|why| panic!("{why}")));
    }
    println!("power cuts: {total:?}");
    assert!(total.judged >= 500 * rounds && total.second >= 100 * rounds, "{total:?}");
    assert!(total.images.names_mixed > 0 && total.images.files_torn > 0, "{total:?}");
    assert!(total.newer > 0 && total.kills > 0 && total.closes > 0, "{total:?}");
    assert!(total.checkpoints > 0 && total.evictions > 0 && total.moved_images > 0, "{total:?}");
}
