//! Digests of byte strings: the numbers by which a node orders its separators ([`crate::node`]).
//!
//! A *scale* says how the keys of a node become digests. Most often a digest is the four bytes after the *prefix*, with which all separators
//! begin. In a server's structures these bytes are often the same in many separators: a structure's number comes first, then bytes that all
//! of its elements have, and then those in which they differ. So a scale may have a *middle*: bytes after the first one to three of a
//! digest that most separators have in common. They are left out, and the digest goes on after them. If a key has other bytes there, the rest
//! of its digest is zeros if they are smaller than the middle, and ones if they are greater.
//!
//! Invariant: digests never fall from a key to a greater one, whatever the prefix and the middle are. Keys are compared as if zeros followed
//! them without end. So two keys may differ and have the same digest, but if their digests differ, they compare as the keys.
//!
//! ```text
//! word 0     bits 0..8 length of the prefix   8..16 bytes of a digest before the middle   16..24 length of the middle
//! words 1..7 the prefix and then the middle, each padded with zeros to whole words
//! ```

use std::cmp::Ordering as Order;

use index::leaf_list::bound::leading;

/// Number of words of a scale.
const SCALE_WORDS: usize = 7;
/// Maximum number of bytes of a prefix.
const PREFIX_MAX: usize = (SCALE_WORDS - 1) * 8;
/// Number of bytes of a digest.
const BYTES: usize = 4;

/// The words of a scale.
pub(crate) type Scale = [u64; SCALE_WORDS];

/// The digest of a key; never all ones. If the key does not begin with the prefix, the error is its order to the prefix. `word` returns a
/// word of the scale. It may return anything during a change of the node.
#[inline(always)]
pub(crate) fn digest(word: impl Fn(usize) -> u64, key: &[u8]) -> Result<u32, Order> {
    let lengths = word(0);
    let prefix = (lengths & 0xFF) as usize;
    let rest = strip(&word, 1, prefix, key)?;
    let middle = (lengths >> 16 & 0xFF) as usize;
    if middle == 0 {
        return Ok(upper_half(leading(rest)));
    }
    let first = ((lengths >> 8 & 0xFF) as usize).min(BYTES);
    let later = u64::MAX >> (8 * first);
    let last = match strip(&word, 1 + prefix.div_ceil(8), middle, &rest[first.min(rest.len())..]) {
        Ok(rest) => leading(rest) >> (8 * first),
        Err(Order::Less) => 0,
        Err(_) => later,
    };
    Ok(upper_half(leading(rest) & !later | last))
}

/// Takes `bytes` bytes, in the words from `from` on, off the front of a key. If the key does not begin with them, the error is its order to
/// them.
#[inline(always)]
fn strip(word: impl Fn(usize) -> u64, from: usize, bytes: usize, key: &[u8]) -> Result<&[u8], Order> {
    let (mut rest, mut left) = (key, bytes);
    for i in from..SCALE_WORDS {
        if left == 0 {
            break;
        }
        let taken = left.min(8);
        let theirs = leading(rest) & u64::MAX << (64 - 8 * taken);
        let mine = word(i);
        if theirs != mine {
            return Err(theirs.cmp(&mine));
        }
        rest = &rest[rest.len().min(taken)..];
        left -= taken;
    }
    Ok(rest)
}

/// The upper half of a word; the greatest digest if all its bits are ones.
#[inline(always)]
fn upper_half(word: u64) -> u32 {
    ((word >> 32) as u32).min(u32::MAX - 1)
}

/// The words of a scale. The prefix and the middle must fit.
fn scale(prefix: &[u8], first: usize, middle: &[u8]) -> Scale {
    let mut words = [0; SCALE_WORDS];
    words[0] = (prefix.len() | first << 8 | middle.len() << 16) as u64;
    for (word, bytes) in words[1..].iter_mut().zip(prefix.chunks(8).chain(middle.chunks(8))) {
        *word = leading(bytes);
    }
    words
}

/// A scale for these keys, which ascend: the one without a middle, or one of three with a middle if it makes more digests different. O(keys).
pub(crate) fn scale_of(keys: &[Vec<u8>]) -> Scale {
    let prefix = match keys {
        [first, .., last] => common(first, last, PREFIX_MAX),
        _ => &[],
    };
    let digests = |scale: &Scale| {
        let mut all: Vec<_> = keys.iter().map(|key| digest(|i| scale[i], key)).collect();
        all.dedup();
        all.len()
    };
    let mut best = scale(prefix, BYTES, &[]);
    let mut most = digests(&best);
    let room = PREFIX_MAX - prefix.len().next_multiple_of(8);
    for first in 1..BYTES {
        if most == keys.len() {
            break;
        }
        // The middle is what the most keys with the same first bytes have in common.
        let start = |key: &Vec<u8>| key.get(..prefix.len() + first).map(<[u8]>::to_vec);
        let groups = keys.chunk_by(|a, b| start(a) == start(b));
        let Some([low, .., high]) = groups.max_by_key(|group| group.len()) else { continue };
        let (Some(low), Some(high)) = (low.get(prefix.len() + first..), high.get(prefix.len() + first..))
        else {
            continue;
        };
        let middle = common(low, high, room);
        let other = scale(prefix, first, middle);
        let count = digests(&other);
        if !middle.is_empty() && count > most {
            (best, most) = (other, count);
        }
    }
    best
}

/// The bytes that both keys begin with, at most `bytes_max`.
fn common<'k>(a: &'k [u8], b: &[u8], bytes_max: usize) -> &'k [u8] {
    let count = a.iter().zip(b).take(bytes_max).take_while(|(a, b)| a == b).count();
    &a[..count]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys as the elements of lists: a number, a tag, and a position.
    fn positions(lists: std::ops::Range<u64>, each: u64) -> Vec<Vec<u8>> {
        let key = |list: u64, at: u64| {
            [&[1][..], &list.to_be_bytes(), b"l", &(1 << 63 | at).to_be_bytes()].concat()
        };
        lists.flat_map(|list| (0..each).map(move |at| key(list, at))).collect()
    }

    fn all_of(scale: &Scale, keys: &[Vec<u8>]) -> Vec<u32> {
        keys.iter().map(|key| digest(|i| scale[i], key).unwrap()).collect()
    }

    #[test]
    fn elements_of_several_structures_have_different_digests() {
        for (lists, each) in [(1..2, 60), (200..203, 20), (254..258, 15), (5..35, 2)] {
            let keys = positions(lists, each);
            let all = all_of(&scale_of(&keys), &keys);
            assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
            // Without a middle most of them are equal.
            let mut plain = all_of(&scale(common(&keys[0], &keys[59], 48), BYTES, &[]), &keys);
            plain.dedup();
            assert!(each == 60 || plain.len() < 35, "{}", plain.len());
        }
    }

    #[test]
    fn keys_whose_four_bytes_differ_need_no_middle() {
        let keys: Vec<Vec<u8>> = (0..50).map(|i| format!("user:{:04}:name", i * 7).into_bytes()).collect();
        let scale = scale_of(&keys);
        assert_eq!(scale[0], 6 | 4 << 8, "the prefix is `user:0`");
        assert_eq!(scale_of(&[]), [4 << 8, 0, 0, 0, 0, 0, 0]);
    }

    proptest::proptest! {
        #[test]
        fn digests_order_all_keys_whatever_the_scale_is(
            keys in proptest::collection::btree_set(key(), 1..60),
            others in proptest::collection::vec(key(), 0..60),
        ) {
            let separators: Vec<_> = keys.into_iter().collect();
            let scale = scale_of(&separators);
            let prefix = (scale[0] & 0xFF) as usize;
            let start = separators[0][..prefix].to_vec();
            let mut all: Vec<_> = separators.iter().cloned().chain(others).collect();
            all.sort();
            let place = |key: &Vec<u8>| match digest(|i| scale[i], key) {
                Err(Order::Less) => (0, 0),
                Ok(digest) => (1, digest),
                Err(_) => (2, 0),
            };
            proptest::prop_assert!(all.iter().map(place).is_sorted());
            for key in &separators {
                proptest::prop_assert!(key.starts_with(&start));
                proptest::prop_assert!(digest(|i| scale[i], key).is_ok_and(|digest| digest < u32::MAX));
            }
        }
    }

    /// Keys of few bytes, with zeros and ones, so that many begin with the same bytes.
    fn key() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        let byte = proptest::sample::select(vec![0, 1, 0x7F, 0xFF]);
        proptest::collection::vec(byte, 0..14)
    }
}
