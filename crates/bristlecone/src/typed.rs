//! Typed keys: tuples of integers, strings and byte strings, encoded so that the order of the bytes is the order of the tuples.
//!
//! The encoding of a tuple is that of its parts, one after the other. So the encoding of the first parts is a prefix of the whole, and
//! [`StoreOf::scan_prefix`](crate::Store::scan_prefix) finds all tuples that begin with them.
//!
//! | part | bytes |
//! |---|---|
//! | `u8`, `u16`, `u32`, `u64`, `u128` | big-endian |
//! | `i8`, `i16`, `i32`, `i64`, `i128` | big-endian, with the sign bit inverted |
//! | `bool` | one byte, `00` or `01` |
//! | `str`, `[u8]` | the bytes, each `00` as `00 FF`; then `00 00` |
//!
//! The types are not written. A caller that reads a key must know them.
//!
//! ```
//! use bristlecone::typed::{FromKey as _, ToKey as _};
//! # let dir = tempfile::tempdir()?;
//! let store = bristlecone::Store::open(dir.path(), Default::default())?;
//! store.put(&("visit", "ada", -3_i64).to_key(), b"")?;
//! store.put(&("visit", "ada", 20_i64).to_key(), b"")?;
//! let days = store.scan_prefix(&("visit", "ada").to_key()).map(|pair| {
//!     let (_, _, day) = <(String, String, i64)>::from_key(&pair?.0).expect("the keys of this prefix are such tuples");
//!     Ok(day)
//! });
//! assert_eq!(days.collect::<bristlecone::Result<Vec<_>>>()?, [-3, 20]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// A part of a key.
pub trait Part {
    /// Appends the encoding. O(n) in the bytes of the part.
    fn write(&self, key: &mut Vec<u8>);
}

/// A part that can be read from a key.
pub trait OwnedPart: Part + Sized {
    /// Takes the part from the front of `key`. `None` if there is none.
    fn read(key: &mut &[u8]) -> Option<Self>;
}

macro_rules! integers {
    ($($unsigned:ty, $signed:ty);*) => {$(
        impl Part for $unsigned {
            fn write(&self, key: &mut Vec<u8>) {
                key.extend_from_slice(&self.to_be_bytes());
            }
        }
        impl OwnedPart for $unsigned {
            fn read(key: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = key.split_first_chunk()?;
                *key = rest;
                Some(Self::from_be_bytes(*bytes))
            }
        }
        impl Part for $signed {
            fn write(&self, key: &mut Vec<u8>) {
                (self.cast_unsigned() ^ <$signed>::MIN.cast_unsigned()).write(key);
            }
        }
        impl OwnedPart for $signed {
            fn read(key: &mut &[u8]) -> Option<Self> {
                Some(<$unsigned>::read(key)?.cast_signed() ^ <$signed>::MIN)
            }
        }
    )*};
}
integers!(u8, i8; u16, i16; u32, i32; u64, i64; u128, i128);

impl Part for bool {
    fn write(&self, key: &mut Vec<u8>) {
        key.push((*self).into());
    }
}
impl OwnedPart for bool {
    fn read(key: &mut &[u8]) -> Option<Self> {
        match u8::read(key)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Part for [u8] {
    fn write(&self, key: &mut Vec<u8>) {
        for byte in self {
            key.push(*byte);
            if *byte == 0 {
                key.push(0xFF);
            }
        }
        key.extend_from_slice(&[0, 0]);
    }
}
impl Part for str {
    fn write(&self, key: &mut Vec<u8>) {
        self.as_bytes().write(key);
    }
}
impl<P: Part + ?Sized> Part for &P {
    fn write(&self, key: &mut Vec<u8>) {
        (**self).write(key);
    }
}
impl Part for Vec<u8> {
    fn write(&self, key: &mut Vec<u8>) {
        self.as_slice().write(key);
    }
}
impl Part for String {
    fn write(&self, key: &mut Vec<u8>) {
        self.as_str().write(key);
    }
}
impl OwnedPart for Vec<u8> {
    fn read(key: &mut &[u8]) -> Option<Self> {
        let mut bytes = Vec::new();
        loop {
            match **key {
                [0, 0, ref rest @ ..] => {
                    *key = rest;
                    return Some(bytes);
                }
                [0, 0xFF, ref rest @ ..] => {
                    bytes.push(0);
                    *key = rest;
                }
                [0, ..] | [] => return None,
                [byte, ref rest @ ..] => {
                    bytes.push(byte);
                    *key = rest;
                }
            }
        }
    }
}
impl OwnedPart for String {
    fn read(key: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(Vec::read(key)?).ok()
    }
}

/// A tuple of parts, as a key or the prefix of keys.
pub trait ToKey {
    /// The encoding.
    fn to_key(&self) -> Vec<u8>;
}

/// A tuple that can be read from a key.
pub trait FromKey: Sized {
    /// The tuple with this encoding. `None` if `key` is not the encoding of such a tuple.
    fn from_key(key: &[u8]) -> Option<Self>;
}

macro_rules! tuples {
    ($($($part:ident)+);*) => {$(
        impl<$($part: Part),+> ToKey for ($($part,)+) {
            fn to_key(&self) -> Vec<u8> {
                #[allow(non_snake_case)]
                let ($($part,)+) = self;
                let mut key = Vec::new();
                $($part.write(&mut key);)+
                key
            }
        }
        impl<$($part: OwnedPart),+> FromKey for ($($part,)+) {
            fn from_key(mut key: &[u8]) -> Option<Self> {
                let tuple = ($($part::read(&mut key)?,)+);
                key.is_empty().then_some(tuple)
            }
        }
    )*};
}
tuples!(A; A B; A B C; A B C D; A B C D E; A B C D E F);

#[cfg(test)]
mod tests {
    use super::*;

    /// Values whose order and encoding are likely to differ if something is wrong.
    fn tuples() -> Vec<(i32, String, Vec<u8>, u16)> {
        let texts = ["", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "ab", "b", "\u{ff}"];
        let bytes: [&[u8]; 5] = [b"", b"\0", b"\0\xff", b"\xff", b"\xff\xff"];
        let mut all = Vec::new();
        for number in [i32::MIN, -256, -1, 0, 1, 255, i32::MAX] {
            for text in texts {
                for bytes in bytes {
                    all.extend(
                        [0, 1, 255, 256, u16::MAX]
                            .map(|last| (number, text.to_owned(), bytes.to_vec(), last)),
                    );
                }
            }
        }
        all
    }

    #[test]
    fn keys_order_as_their_tuples_and_read_as_they_were_written() {
        let mut all = tuples();
        all.sort();
        let keys: Vec<_> = all.iter().map(ToKey::to_key).collect();
        assert!(keys.is_sorted_by(|one, other| one < other));
        for (tuple, key) in all.iter().zip(&keys) {
            assert_eq!(FromKey::from_key(key), Some(tuple.clone()));
            assert!(key.starts_with(&(tuple.0, &tuple.1).to_key()));
            assert_eq!(<(i32, String, Vec<u8>, u16)>::from_key(&key[..key.len() - 1]), None);
            assert_eq!(<(i32, String, Vec<u8>, u16)>::from_key(&[&key[..], &[0]].concat()), None);
        }
        let numbers = (i64::MIN, i8::MIN, u128::MAX, true, i128::MAX, u64::MAX);
        assert_eq!(FromKey::from_key(&numbers.to_key()), Some(numbers));
        assert_eq!(<(bool,)>::from_key(&[2]), None);
        assert_eq!(<(String,)>::from_key(b"\xff\0\0"), None, "not UTF-8");
        assert_eq!(<(Vec<u8>,)>::from_key(b"a\0\x01"), None, "no such escape");
    }
}
