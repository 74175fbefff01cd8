//! Entries of leaves and inner nodes: key words and payload words.

/// Payload words behind the first: `[u64; 0]` in all but trees of wide values.
pub trait Tail: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// There never are any.
    const EMPTY: bool;
    /// So many zeros, or as many as there may be.
    fn zeros(words: usize) -> Self;
    /// The words.
    fn words(&self) -> &[u64];
    /// The words, to be written.
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

/// Most words of a [`LongTail`]: with a key and the payload's first word they are 128 bytes.
pub const TAIL_MAX: usize = 14;

/// Words whose number the tree knows when it is opened.
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

/// An entry's words: keys, then the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<T = [u64; 0]> {
    /// Key words; the second is 0 where keys have one.
    pub key: [u64; 2],
    /// Value word, record or child.
    pub payload: u64,
    /// The rest of a wide value.
    pub tail: T,
}

impl<T: Tail> Entry<T> {
    /// An entry without a tail: of inner nodes, and of leaves whose payload is one word.
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
