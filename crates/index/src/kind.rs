//! Kinds of keys and values, as a user of a store names them. A [`Schema`] says how an engine keeps them.

use std::fmt::Debug;

use crate::schema::Schema;

/// What keys and values are. Implemented by [`Bytes`], [`U64`] and [`Fixed`] only.
pub trait Kind: Debug + Copy + Send + Sync + 'static {
    /// A key as it is passed in.
    type Key: ?Sized + Ord + Debug;
    /// A key as it is handed out.
    type KeyBuf: Ord + Clone + Debug + Default + Send + Sync;
    /// A value as it is passed in.
    type Value: ?Sized + PartialEq + Debug + ToOwned;
    /// A value as it is handed out.
    type ValueBuf: Clone + Debug + Default + Send + Sync;
    /// Name for people. A store of [`Fixed`] values has their length in its name too.
    const NAME: &'static str;
    /// All values of a store have one length, which is chosen when the store is made.
    const HAS_VALUE_BYTES: bool = false;

    /// Borrows a key.
    fn key(buf: &Self::KeyBuf) -> &Self::Key;
    /// Borrows a value.
    fn value(buf: &Self::ValueBuf) -> &Self::Value;
    /// Copies a key.
    fn own_key(key: &Self::Key) -> Self::KeyBuf;
    /// Copies a value.
    fn own_value(value: &Self::Value) -> Self::ValueBuf;
    /// Refuses a key or value that is out of bounds.
    ///
    /// # Errors
    /// Which of the two, and its length.
    fn validate(key: &Self::Key, value: Option<&Self::Value>) -> Result<(), BadLength>;
    /// Fewest bytes that a key and a value take from a user's point of view, for space accounting.
    fn payload_bytes(key: &Self::Key, value: &Self::Value) -> u64;
}

/// A key or a value of a length that no store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLength {
    /// A key of so many bytes.
    Key(usize),
    /// A value of so many bytes.
    Value(usize),
}

/// Keys of 1 to 65,535 bytes, values of 0 to 256 MiB.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// 64-bit keys to 64-bit values.
#[derive(Clone, Copy, Debug)]
pub struct U64;

/// 64-bit keys to byte strings of one length, which stand inside the index's entries. A read saves the cache miss of a record; an
/// update writes the whole value.
#[derive(Clone, Copy, Debug)]
pub struct Fixed;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

impl Kind for Bytes {
    type Key = [u8];
    type KeyBuf = Vec<u8>;
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    const NAME: &'static str = "bytes";

    fn key(buf: &Vec<u8>) -> &[u8] {
        buf
    }
    fn value(buf: &Vec<u8>) -> &[u8] {
        buf
    }
    fn own_key(key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }
    fn own_value(value: &[u8]) -> Vec<u8> {
        value.to_vec()
    }
    fn validate(key: &[u8], value: Option<&[u8]>) -> Result<(), BadLength> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(BadLength::Key(key.len()));
        }
        match value {
            Some(value) if value.len() > VALUE_BYTES_MAX => Err(BadLength::Value(value.len())),
            _ => Ok(()),
        }
    }
    fn payload_bytes(key: &[u8], value: &[u8]) -> u64 {
        (key.len() + value.len()) as u64
    }
}

impl Kind for U64 {
    type Key = u64;
    type KeyBuf = u64;
    type Value = u64;
    type ValueBuf = u64;
    const NAME: &'static str = "u64";

    fn key(buf: &u64) -> &u64 {
        buf
    }
    fn value(buf: &u64) -> &u64 {
        buf
    }
    fn own_key(key: &u64) -> u64 {
        *key
    }
    fn own_value(value: &u64) -> u64 {
        *value
    }
    fn validate(_key: &u64, _value: Option<&u64>) -> Result<(), BadLength> {
        Ok(())
    }
    fn payload_bytes(_key: &u64, _value: &u64) -> u64 {
        16
    }
}

impl Kind for Fixed {
    type Key = u64;
    type KeyBuf = u64;
    type Value = [u8];
    type ValueBuf = Vec<u8>;
    const NAME: &'static str = <crate::schema::Fixed as Schema>::NAME;
    const HAS_VALUE_BYTES: bool = true;

    fn key(buf: &u64) -> &u64 {
        buf
    }
    fn value(buf: &Vec<u8>) -> &[u8] {
        buf
    }
    fn own_key(key: &u64) -> u64 {
        *key
    }
    fn own_value(value: &[u8]) -> Vec<u8> {
        value.to_vec()
    }
    /// The index knows how long its values are, and refuses others.
    fn validate(_key: &u64, _value: Option<&[u8]>) -> Result<(), BadLength> {
        Ok(())
    }
    fn payload_bytes(_key: &u64, value: &[u8]) -> u64 {
        8 + value.len() as u64
    }
}

/// A schema whose keys and values are those of a kind.
pub trait SchemaOf<K: Kind>:
    Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}
impl<K: Kind, S> SchemaOf<K> for S where
    S: Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}
