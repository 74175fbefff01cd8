//! The bounds of leaves as words. With 64-bit keys, the word is the key. With byte strings, it is the address of a
//! separator record. 0 means that there is no bound.

use crate::schema::Schema;
use pmem::{Medium, Result, record};

/// Reads the key of a bound's word; the lowest key if the word is 0. False if there is no such key (a race, or damage).
pub fn read_bound<M: Medium, S: Schema>(medium: &M, word: u64, out: &mut S::KeyBuf) -> bool {
    let bytes = if S::PLAIN {
        word.to_le_bytes().to_vec()
    } else {
        let mut bytes = Vec::new();
        if word != 0 && !record::read_key(medium, word, &mut bytes) {
            return false;
        }
        bytes
    };
    match S::key_of(&bytes) {
        Some(key) => {
            *out = key;
            true
        }
        None => false,
    }
}

/// The key of a bound's word.
///
/// # Errors
/// `Corrupt` if there is no such key.
pub fn bound<M: Medium, S: Schema>(medium: &M, word: u64) -> Result<S::KeyBuf> {
    let mut key = S::KeyBuf::default();
    let sound = read_bound::<M, S>(medium, word, &mut key);
    if sound { Ok(key) } else { Err(pmem::Error::Corrupt { what: "bound of a bucket", at: word }) }
}

/// Converts a key to a word. If two words differ, they compare as their keys do.
#[inline(always)]
pub fn word_of<S: Schema>(key: &S::Key) -> u64 {
    if S::PLAIN { S::plain(S::probe(key)) } else { leading(S::key_bytes(key).as_ref()) }
}

/// The first eight bytes as a big-endian word, padded with zeros.
#[inline(always)]
pub fn leading(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}
