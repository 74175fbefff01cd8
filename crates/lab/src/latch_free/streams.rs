//! The operations of `bench bwtree`: keys in the order of their use, in flat arrays, so that reading them costs every map the same.
//!
//! The traces of [Bw-tree §VI-A] are not public. The known properties are kept: sizes, numbers of operations, reads per write, number of
//! distinct chunks (the keys of the deduplication trace). The unknown properties are chosen simply: all keys are equally likely, and half
//! of them exist before the first operation.

use crate::keys::Random as _;

/// The value of a key begins with this number of bytes from the end of the key. So an answer identifies its key.
const MARK: usize = size_of::<u64>();

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Look the key up.
    Get,
    /// Store the key, whether it exists or not.
    Put,
    /// Look the key up, and store it if it does not exist.
    Meet,
}

/// A sequence of keys.
pub(super) trait Keys: Default + Send + Sync {
    /// Type of a key.
    type Key: competitors::maps::Item + ?Sized;
    /// Type of a value.
    type Value: competitors::maps::Item + ?Sized;
    /// Number of keys.
    fn len(&self) -> usize;
    /// Returns the key at index `i`.
    fn get(&self, i: usize) -> &Self::Key;
    /// Appends the key with this number.
    fn push(&mut self, seed: u64, number: u64, sizes: Sizes);
    /// Returns a value of this size, for any key.
    fn value(sizes: Sizes) -> <Self::Value as ToOwned>::Owned;
    /// Changes the value to that of a key.
    fn fill(value: &mut <Self::Value as ToOwned>::Owned, key: &Self::Key);
    /// True if the value belongs to the key.
    fn is_of(value: &<Self::Value as ToOwned>::Owned, key: &Self::Key, sizes: Sizes) -> bool;
}

/// Bytes of a key and of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes(pub(super) usize, pub(super) usize);

#[derive(Default)]
pub(super) struct WordKeys(Vec<u64>);

impl Keys for WordKeys {
    type Key = u64;
    type Value = u64;

    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, i: usize) -> &u64 {
        &self.0[i]
    }
    fn push(&mut self, seed: u64, number: u64, _sizes: Sizes) {
        self.0.push(u64::numbered(seed, number));
    }
    fn value(_sizes: Sizes) -> u64 {
        0
    }
    fn fill(value: &mut u64, key: &u64) {
        *value = *key;
    }
    fn is_of(value: &u64, key: &u64, _sizes: Sizes) -> bool {
        value == key
    }
}

#[derive(Default)]
pub(super) struct StringKeys {
    bytes: Vec<u8>,
    key_bytes: usize,
}

/// The end of a key, which identifies it.
fn mark(key: &[u8]) -> &[u8] {
    &key[key.len() - MARK..]
}

impl Keys for StringKeys {
    type Key = [u8];
    type Value = [u8];

    fn len(&self) -> usize {
        self.bytes.len().checked_div(self.key_bytes).unwrap_or(0)
    }
    fn get(&self, i: usize) -> &[u8] {
        &self.bytes[i * self.key_bytes..(i + 1) * self.key_bytes]
    }
    /// Random bytes, as of a hash. No two keys have the same end.
    fn push(&mut self, seed: u64, number: u64, Sizes(key_bytes, _): Sizes) {
        self.key_bytes = key_bytes;
        let word = u64::numbered(seed, number);
        let mut random = fastrand::Rng::with_seed(word);
        self.bytes.extend((0..key_bytes - MARK).map(|_| random.u8(..)));
        self.bytes.extend_from_slice(&word.to_be_bytes());
    }
    fn value(Sizes(_, value_bytes): Sizes) -> Vec<u8> {
        vec![b'v'; value_bytes]
    }
    fn fill(value: &mut Vec<u8>, key: &[u8]) {
        value[..MARK].copy_from_slice(mark(key));
    }
    fn is_of(value: &Vec<u8>, key: &[u8], Sizes(_, value_bytes): Sizes) -> bool {
        value.len() == value_bytes && value.starts_with(mark(key))
    }
}

/// A sequence of operations and their keys.
#[derive(Default)]
pub(super) struct Stream<K> {
    pub(super) keys: K,
    pub(super) what: Vec<What>,
    /// True if every looked-up key exists.
    pub(super) finds_all: bool,
}

impl<K: Keys> Stream<K> {
    fn push(&mut self, what: What, seed: u64, number: u64, sizes: Sizes) {
        self.keys.push(seed, number, sizes);
        self.what.push(what);
    }
}

/// A workload: the initial keys, and the measured parts in order.
pub(super) struct Workload<K> {
    pub(super) name: &'static str,
    pub(super) sizes: Sizes,
    pub(super) before: Stream<K>,
    pub(super) parts: Vec<(&'static str, Stream<K>)>,
}

/// Gets and puts of keys, half of which exist initially.
fn mixed<K: Keys>(
    name: &'static str,
    sizes: Sizes,
    keys: u64,
    operations: u64,
    gets_each_put: f64,
    seed: u64,
) -> Workload<K> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut before, mut stream) = (Stream::default(), Stream::default());
    (0..keys / 2).for_each(|number| before.push(What::Put, seed, number, sizes));
    for _ in 0..operations {
        let is_put = random.f64() * (gets_each_put + 1.0) < 1.0;
        stream.push(if is_put { What::Put } else { What::Get }, seed, random.u64(..keys), sizes);
    }
    Workload { name, sizes, before, parts: vec![("all", stream)] }
}

/// The paper's first workload: 27 M gets and sets with keys of 94 and values of 1,200 bytes, 7.5 gets per set; as many keys as sets.
pub(super) fn xbox(scale: f64, seed: u64) -> Workload<StringKeys> {
    let operations = (27e6 * scale) as u64;
    mixed("Xbox", Sizes(94, 1200), ((operations as f64 / 8.5) as u64).max(2), operations, 7.5, seed)
}

/// The paper's third workload: 42 M gets and puts of words, 5 gets per put, 1 M initial keys.
pub(super) fn synthetic(scale: f64, seed: u64) -> Workload<WordKeys> {
    mixed("synthetic", Sizes(8, 8), ((2e6 * scale) as u64).max(2), ((42e6 * scale) as u64).max(1), 5.0, seed)
}

/// The paper's second workload: 27 M chunks, 12 M of them distinct. Each is looked up, and stored if it is new; 20 and 44 bytes. (2.2 reads
/// per write.)
pub(super) fn deduplication(scale: f64, seed: u64) -> Workload<StringKeys> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut stream, mut known, sizes) = (Stream::default(), 0, Sizes(20, 44));
    for _ in 0..((27e6 * scale) as u64).max(1) {
        let is_new = known == 0 || random.u64(..27) < 12;
        let number = if is_new { known } else { random.u64(..known) };
        known += u64::from(is_new);
        stream.push(What::Meet, seed, number, sizes);
    }
    Workload { name: "deduplication", sizes, before: Stream::default(), parts: vec![("all", stream)] }
}

/// Words in a random order that are inserted, looked up and updated.
pub(super) fn uniform(keys: u64, seed: u64) -> Workload<WordKeys> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut numbers: Vec<u64> = (0..keys).collect();
    let mut part = |what| {
        random.shuffle(&mut numbers);
        let mut stream = Stream { finds_all: true, ..Stream::default() };
        numbers.iter().for_each(|number| stream.push(what, seed, *number, Sizes(8, 8)));
        stream
    };
    let parts =
        vec![("inserts", part(What::Put)), ("lookups", part(What::Get)), ("updates", part(What::Put))];
    Workload { name: "uniform", sizes: Sizes(8, 8), before: Stream::default(), parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share<K>(stream: &Stream<K>, what: What) -> f64 {
        stream.what.iter().filter(|own| **own == what).count() as f64 / stream.what.len() as f64
    }

    #[test]
    fn streams_have_the_papers_statistics() {
        let xbox = xbox(0.002, 1);
        let stream = &xbox.parts[0].1;
        assert_eq!((stream.keys.len(), stream.keys.get(7).len()), (54_000, 94));
        assert!((share(stream, What::Put) - 1.0 / 8.5).abs() < 0.01);
        let synthetic = synthetic(0.002, 1);
        assert_eq!((synthetic.before.keys.len(), synthetic.parts[0].1.keys.len()), (2000, 84_000));
        assert!((share(&synthetic.parts[0].1, What::Put) - 1.0 / 6.0).abs() < 0.01);
        let chunks = deduplication(0.002, 1);
        let keys = &chunks.parts[0].1.keys;
        let distinct: std::collections::HashSet<_> = (0..keys.len()).map(|i| keys.get(i)).collect();
        assert!((distinct.len() as f64 / keys.len() as f64 - 12.0 / 27.0).abs() < 0.01);
    }

    #[test]
    fn a_value_shows_its_key() {
        let sizes = Sizes(20, 44);
        let mut keys = StringKeys::default();
        (0..2).for_each(|number| keys.push(3, number, sizes));
        let mut value = StringKeys::value(sizes);
        StringKeys::fill(&mut value, keys.get(0));
        assert!(
            StringKeys::is_of(&value, keys.get(0), sizes) && !StringKeys::is_of(&value, keys.get(1), sizes)
        );
    }
}
