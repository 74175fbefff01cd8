//! The kinds of keys and values that a user of a store can choose. A [`Schema`] defines how an engine stores a kind.

use std::fmt::Debug;

use crate::schema::Schema;

/// A kind of keys and values. Only [`Bytes`], [`U64`] and [`Fixed`] implement it.
pub trait Kind: Debug + Copy + Send + Sync + 'static {
    /// A key as a caller passes it.
    type Key: ?Sized + Ord + Debug;
    /// A key as the store returns it.
    type KeyBuf: Ord + Clone + Debug + Default + Send + Sync;
    /// A value as a caller passes it.
    type Value: ?Sized + PartialEq + Debug + ToOwned;
    /// A value as the store returns it.
    type ValueBuf: Clone + Debug + Default + Send + Sync;
    /// Name for users. The name of a store with [`Fixed`] values also has their length.
    const NAME: &'static str;
    /// True if all values of a store have one length, chosen at its creation.
    const HAS_VALUE_BYTES: bool = false;

    /// Borrows a key.
    fn key(buf: &Self::KeyBuf) -> &Self::Key;
    /// Borrows a value.
    fn value(buf: &Self::ValueBuf) -> &Self::Value;
    /// Copies a key.
    fn own_key(key: &Self::Key) -> Self::KeyBuf;
    /// Copies a value.
    fn own_value(value: &Self::Value) -> Self::ValueBuf;
    /// Returns an error if the length of a key or a value is not allowed.
    ///
    /// # Errors
    /// The length of the key or the value.
    fn validate(key: &Self::Key, value: Option<&Self::Value>) -> Result<(), BadLength>;
    /// Bytes of a key and a value as the user counts them, for space accounting.
    fn payload_bytes(key: &Self::Key, value: &Self::Value) -> u64;
}

/// A key or a value with a length that no store accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLength {
    /// Length of the key in bytes.
    Key(usize),
    /// Length of the value in bytes.
    Value(usize),
}

/// Keys of 1 to 65,535 bytes, values of 0 to 256 MiB, less the bytes that [tables](crate::tables) add to them.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// 64-bit keys to 64-bit values.
#[derive(Clone, Copy, Debug)]
pub struct U64;

/// 64-bit keys to byte strings of one length, stored in the entries. A read saves the cache miss of a record. An update writes the whole
/// value.
#[derive(Clone, Copy, Debug)]
pub struct Fixed;

/// Longest key in bytes of a store without tables.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest value in bytes of a store without tables.
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
    /// The index checks the length, because the store chooses it at its creation.
    fn validate(_key: &u64, _value: Option<&[u8]>) -> Result<(), BadLength> {
        Ok(())
    }
    fn payload_bytes(_key: &u64, value: &[u8]) -> u64 {
        8 + value.len() as u64
    }
}

/// A schema with the keys and values of a kind.
pub trait SchemaOf<K: Kind>:
    Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}
impl<K: Kind, S> SchemaOf<K> for S where
    S: Schema<Key = K::Key, KeyBuf = K::KeyBuf, Value = K::Value, ValueBuf = K::ValueBuf>
{
}
