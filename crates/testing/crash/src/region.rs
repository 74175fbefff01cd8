//! Checks of the region below a subject, for every oracle: the superblock copies and the recorded length.
//!
//! An index reads neither during its operations, so its own check cannot detect an error in them. Both matter after the next crash. If only
//! one superblock copy is valid, the next torn change loses it. If the recorded length is too short, a file truncated to it passes as
//! complete.

use pmem::region::{COPIES, LENGTH_AT, unchecked};
use pmem::{Geometry, Medium, Observed, WORD};

/// Words of a superblock copy.
const COPY_WORDS: u64 = 32;

/// Checks an open region: both superblock copies are equal (R1), and the recorded length is the region's length.
///
/// # Errors
/// The check that failed.
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

/// Checks an image, even before recovery: the recorded length covers every chunk in use. Otherwise a file truncated to it passes as
/// complete.
///
/// # Errors
/// The first chunk that the recorded length does not cover.
pub fn verify_image(medium: &Observed, geometry: Geometry) -> Result<(), String> {
    let noted = noted(medium);
    let chunks = (geometry.heap_at()..medium.len()).step_by(geometry.chunk_bytes as usize);
    match chunks.into_iter().find(|at| at + geometry.chunk_bytes > noted && medium.word(*at) != 0) {
        Some(at) => Err(format!("chunk {at:#x} is in use beyond the noted length {noted:#x}")),
        None => Ok(()),
    }
}

/// The recorded length in bytes; 0 if there is none.
fn noted(medium: &Observed) -> u64 {
    unchecked(medium.word(LENGTH_AT)).unwrap_or(0) * WORD
}
