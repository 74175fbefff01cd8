//! Power cuts throughout the life of a store. After a cut, the contents are those after some operation between the last acknowledged one
//! and the last one that started.
//!
//! `BRISTLECONE_ROUNDS` sets the number of rounds (default 1). A round judges about 3000 images. `BRISTLECONE_SEED` changes the seeds.

use faults::{Lie, mix};

use crate::common::Dir;
use crate::common::life::{Life, Tally, number_from, settings};

const LIVES: u64 = 6;

fn life(seed: u64, lie: Lie) -> Result<Tally, String> {
    let dir = Dir::new("power");
    let mut life = Life::new(&dir.0, seed, lie, Vec::new());
    let store = life.create();
    life.live(store, 180).map_err(|why| format!("seed {seed}: {why}"))?;
    life.judge(seed, 16, 60)
}

#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let mut total = Tally::default();
    for number in 0..LIVES * rounds {
        total.add(&life(mix(seed, number), Lie::None).unwrap_or_else(|why| panic!("{why}")));
    }
    let direct = (0..LIVES * rounds).filter(|number| settings(mix(seed, *number)).direct_io).count();
    println!("power cuts: {total:?}, {direct} lives with direct I/O");
    assert!(total.judged >= 500 * rounds && total.second >= 100 * rounds, "{total:?}");
    assert!(total.images.names_mixed > 0 && total.images.files_torn > 0, "{total:?}");
    assert!(total.newer > 0 && total.kills > 0 && total.closes > 0, "{total:?}");
    assert!(total.checkpoints > 0 && total.evictions > 0 && total.moved_images > 0, "{total:?}");
    assert!(total.compactions > 4 * rounds && total.copies > rounds, "{total:?}");
    assert!(total.saved_bytes > 0, "{total:?}");
}

/// Every cut of short lives: while a store is made, checkpointed, closed and opened again.
#[test]
fn a_store_is_whole_once_it_was_made_and_after_each_step_of_a_close() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let mut total = Tally::default();
    for number in 0..2 * rounds {
        let (dir, seed) = (Dir::new("close"), mix(seed ^ 0xc105e, number));
        let mut life = Life::new(&dir.0, seed, Lie::None, Vec::new());
        let mut store = life.create();
        for _ in 0..2 {
            (0..6).for_each(|_| life.act(&store).unwrap());
            store.checkpoint().unwrap();
            life.act(&store).unwrap();
            store.close().unwrap();
            life.is_durable();
            drop(store);
            store = life.reopen().unwrap();
        }
        total.add(&life.judge(seed, 1, 0).unwrap_or_else(|why| panic!("{why}")));
    }
    println!("creation and close: {total:?}");
    assert!(total.not_made > 0 && total.judged >= 300 * rounds, "{total:?}");
}

/// Every cut of compactions, each between operations: the cleaner moves images, and segments are removed.
#[test]
fn a_compaction_loses_nothing_at_any_of_its_steps() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let mut total = Tally::default();
    for number in 0..rounds {
        let (dir, seed) = (Dir::new("compact"), mix(seed ^ 0xc03a, number));
        let mut life = Life::new(&dir.0, seed, Lie::None, Vec::new());
        let store = life.create();
        (0..120).for_each(|_| life.act(&store).unwrap());
        life.is_judged_from_here();
        for _ in 0..2 {
            store.compact(&|_, _| ()).unwrap();
            life.is_durable();
            (0..10).for_each(|_| life.act(&store).unwrap());
        }
        life.tally.moved_images += store.stats().moved_images;
        drop(store);
        total.add(&life.judge(seed, 1, 0).unwrap_or_else(|why| panic!("{why}")));
    }
    println!("compactions: {total:?}");
    assert!(total.moved_images > 5 * rounds && total.judged >= 50 * rounds, "{total:?}");
}

/// Without syncs an acknowledged update survives the end of the process.
#[test]
fn nothing_acknowledged_is_lost_by_a_kill_if_nothing_is_synced() {
    let (rounds, seed) = (number_from("BRISTLECONE_ROUNDS", 1), number_from("BRISTLECONE_SEED", 0));
    let mut total = Tally::default();
    for number in 0..12 * rounds {
        let (dir, seed) = (Dir::new("kill"), mix(seed ^ 0x4b11, number));
        let mut life = Life::new(&dir.0, seed, Lie::None, Vec::new());
        life.settings.survives_power = false;
        let store = life.create();
        life.live(store, 250).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        total.add(&life.tally);
    }
    println!("kills: {total:?}");
    assert!(total.kills >= 40 * rounds && total.evictions > 0 && total.checkpoints > 0, "{total:?}");
}
