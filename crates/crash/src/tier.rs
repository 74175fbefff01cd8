//! How much a test does: little at every change, much in a soak.

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
