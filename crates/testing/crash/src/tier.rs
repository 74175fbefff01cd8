//! How much a test does: little at every change, much in a soak.

use std::ops::Range;

/// The short tier's number, or the soak's: `BRISTLECONE_SOAK` is set.
pub fn by_tier<T>(short: T, soak: T) -> T {
    if is_soak() { soak } else { short }
}

/// True in a soak.
pub fn is_soak() -> bool {
    std::env::var_os("BRISTLECONE_SOAK").is_some()
}

/// `BRISTLECONE_TURN`, by which tests that cannot do everything at every change take turns. `cargo xtask test` takes it from the commit.
///
/// # Panics
/// It is no number.
pub fn turn() -> u64 {
    std::env::var("BRISTLECONE_TURN").map_or(0, |turn| turn.parse().expect("BRISTLECONE_TURN is a number"))
}

/// True for the one member of `count` that this run tests, and for every member in a soak: some tests are too long to run whole at every
/// change.
pub fn has_turn(member: u64, count: u64) -> bool {
    is_soak() || turn() % count == member % count
}

/// The seeds of a campaign: so many at every change, so many in a soak. Each `BRISTLECONE_SEED` (0) has seeds of its own.
///
/// # Panics
/// `BRISTLECONE_SEED` is no number.
pub fn seeds(short: u64, soak: u64) -> Range<u64> {
    let campaign: u64 = std::env::var("BRISTLECONE_SEED")
        .map_or(0, |seed| seed.parse().expect("BRISTLECONE_SEED is a number"));
    let first = campaign * soak;
    first..first + by_tier(short, soak)
}
