//! The size of a test: short for every change, long in a soak.

use std::ops::Range;

/// Returns `soak` in a soak, otherwise `short`.
pub fn by_tier<T>(short: T, soak: T) -> T {
    if is_soak() { soak } else { short }
}

/// True in a soak: `BRISTLECONE_SOAK` is set.
pub fn is_soak() -> bool {
    std::env::var_os("BRISTLECONE_SOAK").is_some()
}

/// Returns `BRISTLECONE_TURN` (default 0). Tests that are too long to run completely at every change use it to take turns.
/// `cargo xtask test` derives it from the commit.
///
/// # Panics
/// It is not a number.
pub fn turn() -> u64 {
    std::env::var("BRISTLECONE_TURN").map_or(0, |turn| turn.parse().expect("BRISTLECONE_TURN is a number"))
}

/// True for the one member of `count` that this run tests, and for every member in a soak. For tests that are too long to run completely at
/// every change.
pub fn has_turn(member: u64, count: u64) -> bool {
    is_soak() || turn() % count == member % count
}

/// The seeds of a campaign: `short` seeds at every change, `soak` seeds in a soak. Campaigns with different `BRISTLECONE_SEED` (default 0)
/// have disjoint seeds.
///
/// # Panics
/// `BRISTLECONE_SEED` is not a number.
pub fn seeds(short: u64, soak: u64) -> Range<u64> {
    let campaign: u64 = std::env::var("BRISTLECONE_SEED")
        .map_or(0, |seed| seed.parse().expect("BRISTLECONE_SEED is a number"));
    let first = campaign * soak;
    first..first + by_tier(short, soak)
}
