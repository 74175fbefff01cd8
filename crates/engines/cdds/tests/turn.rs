//! The mutation run of one engine. `BRISTLECONE_ENGINE` names the engine. Without it, the number `BRISTLECONE_TURN` selects the engine;
//! `cargo xtask test` derives this number from the git commit.
//!
//! Only one of the crate's three engines runs each time, because a run of all three would take longer than all other tests of this crate.

use crate::{hash_mutants, mutants};

type Engine = (&'static str, fn());

const ENGINES: [Engine; 3] = [
    ("cdds", mutants::nothing_can_be_left_out_of_nodes_in_order),
    ("cdds-unsorted", mutants::nothing_can_be_left_out_of_nodes_without_order),
    ("cdds-hash", hash_mutants::nothing_can_be_left_out),
];

/// The engine of this turn, or the named one.
fn chosen(turn: u64, named: Option<&str>) -> Engine {
    match named {
        Some(name) => {
            let found = ENGINES.iter().find(|(engine, _)| *engine == name);
            *found.unwrap_or_else(|| panic!("BRISTLECONE_ENGINE={name} is no engine of this crate"))
        }
        None => ENGINES[(turn % ENGINES.len() as u64) as usize],
    }
}

#[test]
fn nothing_can_be_left_out_of_the_engine_whose_turn_it_is() {
    let named = std::env::var("BRISTLECONE_ENGINE").ok();
    let (name, run) = chosen(crash::turn(), named.as_deref());
    println!("{name}");
    run();
}

#[test]
fn every_engine_has_its_turn() {
    let names: Vec<_> = (0..3).map(|turn| chosen(turn, None).0).collect();
    assert_eq!(names, ENGINES.map(|(name, _)| name));
}
