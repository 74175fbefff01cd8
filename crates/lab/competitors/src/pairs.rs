//! Keys and values of benchmarks. Keys are distinct and pseudo-random; a key depends only on the seed and its number. A value depends only on
//! its key and a version, so an answer is checked without a second copy of the data.

use std::fmt::Debug;

/// A string key of the papers' length.
pub type Text = [u8; 20];

/// Keys that an experiment can draw.
pub trait Random: Copy + Ord + Debug + Send + Sync + 'static {
    /// The key with this number. Keys of different numbers differ.
    fn numbered(seed: u64, number: u64) -> Self;

    /// The keys of the numbers `from..from + count`.
    fn range(seed: u64, from: u64, count: u64) -> Vec<Self> {
        (from..from + count).map(|number| Self::numbered(seed, number)).collect()
    }
}

impl Random for u64 {
    fn numbered(seed: u64, number: u64) -> Self {
        mix(number.wrapping_add(seed << 40))
    }
}

impl Random for Text {
    /// Letters and digits. The first 11 encode the 64-bit key of the same number, so all keys differ.
    fn numbered(seed: u64, number: u64) -> Self {
        const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
        let word = u64::numbered(seed, number);
        let (first, second) = (u128::from(word), u128::from(mix(!word)));
        let bits = first | second << 66;
        std::array::from_fn(|i| LETTERS[(bits >> (i * 6) & 63) as usize])
    }
}

/// The finaliser of MurmurHash3, a bijection on 64 bits.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x = (x ^ x >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ x >> 33
}

/// Bytes of a value.
pub const VALUE_BYTES: usize = 100;

/// The value of a key. It begins with the key's first 8 bytes. Values of different versions differ.
pub fn value_of(key: &Text, version: u8) -> [u8; VALUE_BYTES] {
    let word = first_word(key);
    let mut value = [0; VALUE_BYTES];
    for (index, bytes) in value.chunks_mut(8).enumerate() {
        let factor = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let word = word ^ factor ^ if index == 0 { 0 } else { u64::from(version) };
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
    value
}

/// The version of a value. `None` if it is no value of the key.
pub fn version_of(key: &Text, value: &[u8]) -> Option<u8> {
    let version = value.get(8)? ^ value_of(key, 0)[8];
    (value == value_of(key, version)).then_some(version)
}

/// The first 8 bytes as a number.
pub fn first_word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_different_numbers_differ_and_strings_are_letters() {
        let mut words = u64::range(1, 0, 10_000);
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 10_000);
        let mut texts = Text::range(1, 0, 10_000);
        assert!(texts.iter().flatten().all(u8::is_ascii_graphic));
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 10_000);
    }

    #[test]
    fn a_value_tells_its_version_and_any_changed_byte_is_found() {
        let [key, other] = [1, 2].map(|number| Text::numbered(1, number));
        for version in [0, 1, 77, 255] {
            let value = value_of(&key, version);
            assert_eq!(version_of(&key, &value), Some(version));
            assert_eq!(version_of(&other, &value), None);
            assert_eq!(version_of(&key, &value[..99]), None);
            for at in 0..VALUE_BYTES {
                let mut damaged = value;
                damaged[at] ^= 1;
                assert_eq!(version_of(&key, &damaged), None, "byte {at}");
            }
        }
    }
}
