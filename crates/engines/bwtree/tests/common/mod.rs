//! Keys and values by number, for both kinds of pairs.
#![allow(dead_code)] // not every test uses all of it

use std::borrow::Borrow;

use bwtree::{Bytes, Pairs, Words};

/// A kind of pairs with keys and values by number.
pub trait Numbered: Pairs<KeyBuf: PartialEq, ValueBuf: PartialEq> {
    /// Key number `n`. Keys ascend with `n`.
    fn key(n: u64) -> Self::KeyBuf;
    /// Value number `n`.
    fn value(n: u64) -> Self::ValueBuf;
    /// The number of a value. Panics if the value is torn.
    fn number(value: &Self::Value) -> u64;
    /// The number of a key.
    fn key_number(key: &Self::Key) -> u64;
}

impl Numbered for Words {
    fn key(n: u64) -> u64 {
        n
    }
    fn value(n: u64) -> u64 {
        n
    }
    fn number(value: &u64) -> u64 {
        *value
    }
    fn key_number(key: &u64) -> u64 {
        *key
    }
}

impl Numbered for Bytes {
    /// Short and long keys, so that some end within the eight bytes of a slot and some do not. Key number 0 is empty.
    fn key(n: u64) -> Box<[u8]> {
        match n {
            0 => Box::default(),
            n if n % 3 == 0 => format!("k{n:05} and something behind it").into_bytes().into(),
            n => format!("k{n:05}").into_bytes().into(),
        }
    }
    /// Repetitions of the number, of different lengths, some large.
    fn value(n: u64) -> Vec<u8> {
        n.to_be_bytes().repeat(if n.is_multiple_of(7) { 150 } else { 1 + n as usize % 4 })
    }
    fn number(value: &[u8]) -> u64 {
        let (words, rest) = value.as_chunks::<8>();
        assert!(rest.is_empty() && words.iter().all(|word| *word == words[0]), "a torn value: {value:?}");
        u64::from_be_bytes(words[0])
    }
    fn key_number(key: &[u8]) -> u64 {
        if key.is_empty() { 0 } else { std::str::from_utf8(&key[1..6]).unwrap().parse().unwrap() }
    }
}

/// The number of an owned key.
pub fn key_of<P: Numbered>(key: &P::KeyBuf) -> u64 {
    P::key_number(key.borrow())
}

/// The number of an owned value.
pub fn value_of<P: Numbered>(value: &P::ValueBuf) -> u64 {
    P::number(value.borrow())
}

/// A number from an environment variable.
pub fn number_from(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")),
        Err(_) => default,
    }
}
