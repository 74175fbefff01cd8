//! Entries of leaves and inner nodes: key words and payload words.

/// The payload words after the first one: `[u64; 0]`, except in trees of wide values.
pub trait Tail: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// True if the type never has words.
    const EMPTY: bool;
    /// A tail of `words` zeros, but at most the maximum number of words of the type.
    fn zeros(words: usize) -> Self;
    /// The words.
    fn words(&self) -> &[u64];
    /// The words, mutable.
    fn words_mut(&mut self) -> &mut [u64];
}

impl Tail for [u64; 0] {
    const EMPTY: bool = true;
    #[inline(always)]
    fn zeros(_words: usize) -> Self {
        []
    }
    #[inline(always)]
    fn words(&self) -> &[u64] {
        self
    }
    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u64] {
        self
    }
}

/// Maximum number of words of a [`LongTail`]. With a key and the first payload word, they are 128 bytes.
pub const TAIL_MAX: usize = 14;

/// A tail with a number of words that is known when the tree is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongTail {
    words: [u64; TAIL_MAX],
    len: usize,
}

impl Tail for LongTail {
    const EMPTY: bool = false;
    fn zeros(words: usize) -> Self {
        Self { words: [0; TAIL_MAX], len: words.min(TAIL_MAX) }
    }
    fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }
    fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words[..self.len]
    }
}

/// The words of an entry: key words, then payload words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<T = [u64; 0]> {
    /// Key words. The second one is 0 if keys have one word.
    pub key: [u64; 2],
    /// Value word, record pointer or child.
    pub payload: u64,
    /// The other words of a wide value.
    pub tail: T,
}

impl<T: Tail> Entry<T> {
    /// An entry without a tail: in inner nodes, and in leaves with one payload word.
    #[inline(always)]
    pub fn new(key: [u64; 2], payload: u64) -> Self {
        Self { key, payload, tail: T::zeros(0) }
    }

    /// Payload word `number`.
    #[inline(always)]
    pub fn payload_word(&self, number: usize) -> u64 {
        if number == 0 { self.payload } else { self.tail.words()[number - 1] }
    }
}
