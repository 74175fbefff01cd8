//! What every oracle asks of the region below a subject: the superblock copies and the noted length.
//!
//! An index reads neither during its operations, so its own check cannot miss them. Both matter after the next crash: a region
//! with one valid superblock copy loses it to the next torn change, and a file cut down to a noted length that is too short
//! passes for whole.

use pmem::region::{COPIES, LENGTH_AT, unchecked};
use pmem::{Geometry, Medium, Observed, WORD};

/// Words of a superblock copy.
const COPY_WORDS: u64 = 32;

/// For an open region: both superblock copies are the same (R1), and the noted length is the region's.
///
/// # Errors
/// Which of the two is not so.
pub fn verify_open(medium: &Observed) -> Result<(), String> {
    let differs = |word: &u64| medium.word(COPIES[0] + word * WORD) != medium.word(COPIES[1] + word * WORD);
    if let Some(word) = (0..COPY_WORDS).find(differs) {
        return Err(format!(
            "the superblock copies differ in word {word}: the next change of one may leave none"
        ));
    }
    let (noted, len) = (noted(medium), medium.len());
    if noted != len {
        return Err(format!("the noted length is {noted:#x}, the region has {len:#x} bytes"));
    }
    Ok(())
}

/// Before recovery, too: the noted length covers every chunk in use. Else a file cut down to it passes for whole.
///
/// # Errors
/// The first chunk that it does not cover.
pub fn verify_image(medium: &Observed, geometry: Geometry) -> Result<(), String> {
    let noted = noted(medium);
    let chunks = (geometry.heap_at()..medium.len()).step_by(geometry.chunk_bytes as usize);
    match chunks.into_iter().find(|at| at + geometry.chunk_bytes > noted && medium.word(*at) != 0) {
        Some(at) => Err(format!("chunk {at:#x} is in use beyond the noted length {noted:#x}")),
        None => Ok(()),
    }
}

/// The noted length in bytes; 0 if there is none.
fn noted(medium: &Observed) -> u64 {
    unchecked(medium.word(LENGTH_AT)).unwrap_or(0) * WORD
}
