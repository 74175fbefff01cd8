//! The contents that one cache line may have after a crash.
//!
//! A line has a base (known durable) and an ordered list of the stores made since: copies, and publishes of one word. Inside recovery a
//! line can have several bases: if recovery stores to a line that it has not read, each content that the first crash may have left is a
//! base. A crash keeps a prefix of the publishes: every store up to and including the last kept publish survives. Any subset of the copies
//! between that publish and the next one may survive. So each word holds its old value or any value copied to it in that stretch. A flush
//! records the number of stores that it covers. The next fence moves these stores into the base.
//!
//! Invariants:
//! * the possible contents are numbered. Number 0 is always a base ("nothing survived"). No two of them are equal.
//! * a store only adds contents, and a fence only removes some. So a crash before a fence covers every instant since the previous fence.

use std::collections::HashSet;
use std::sync::Arc;

use pmem::Store;
use xxhash_rust::xxh3::Xxh3Default;

/// The words of a line.
pub type Words = [u64; 8];

/// A store that is not known to be durable.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Index of the word in its line.
    pub word: usize,
    /// Its new value.
    pub value: u64,
    /// The verb that stored it: copy or publish.
    pub kind: Store,
}

/// The contents that a line may have after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// The distinct contents, the known-durable one first.
    pub contents: Vec<Words>,
    /// True if there were more contents than the cap. Then `contents` is a sample.
    pub capped: bool,
}

/// One line's base, the stores since, and the number of them that a flush has covered.
#[derive(Clone, Debug)]
pub struct LineState {
    bases: Vec<Words>,
    pending: Vec<Pending>,
    flushed: usize,
    choices: Option<Arc<Choices>>,
}

impl LineState {
    /// A line that durably holds one of `bases`.
    ///
    /// # Panics
    /// If `bases` is empty.
    pub fn new(bases: Vec<Words>) -> Self {
        assert!(!bases.is_empty(), "a line holds something");
        Self { bases, pending: Vec::new(), flushed: 0, choices: None }
    }

    /// Records a store to a word.
    pub fn store(&mut self, pending: Pending) {
        self.pending.push(pending);
        self.choices = None;
    }

    /// Records a flush. Returns true if it covers a store that no flush covered since the last fence.
    pub fn flush(&mut self) -> bool {
        let gained = self.flushed < self.pending.len();
        self.flushed = self.pending.len();
        gained
    }

    /// Records a fence: flushed stores become durable. Returns true if there were any.
    pub fn fence(&mut self) -> bool {
        for pending in self.pending.drain(..self.flushed) {
            self.bases.iter_mut().for_each(|base| base[pending.word] = pending.value);
        }
        let advanced = self.flushed > 0;
        if advanced {
            self.flushed = 0;
            self.choices = None;
            let mut seen = HashSet::new();
            self.bases.retain(|base| seen.insert(*base));
        }
        advanced
    }

    /// Records a read: outside the words of `mask` the line's base equals `words`.
    pub fn narrow(&mut self, mask: u8, words: &Words) {
        let agrees = |base: &Words| (0..8).all(|word| mask & (1 << word) != 0 || base[word] == words[word]);
        self.bases.retain(agrees);
        self.choices = None;
        assert!(!self.bases.is_empty(), "what was read was one of the bases");
    }

    /// Hashes the state that [`LineState::choices`] depends on.
    pub(crate) fn fingerprint(&self, hash: &mut Xxh3Default) {
        self.bases.iter().flatten().for_each(|word| hash.update(&word.to_le_bytes()));
        for Pending { word, value, kind } in &self.pending {
            hash.update(&[*word as u8, u8::from(*kind == Store::Publish)]);
            hash.update(&value.to_le_bytes());
        }
        hash.update(&(self.bases.len() << 32 | self.pending.len()).to_le_bytes());
    }

    /// The durable content; `None` if it is not known.
    pub fn base(&self) -> Option<&Words> {
        if let [base] = self.bases.as_slice() { Some(base) } else { None }
    }

    /// True if the line's content after a crash is known.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.bases.len() == 1
    }

    /// Returns at most `cap` possible contents. If there are more, they are a sample by `seed`.
    pub fn choices(&mut self, cap: usize, seed: u64) -> Arc<Choices> {
        let fresh = || Arc::new(union(&self.bases, &self.pending, cap, seed ^ self.pending.len() as u64));
        self.choices.get_or_insert_with(fresh).clone()
    }
}

/// The contents that follow from any of `bases`.
fn union(bases: &[Words], pending: &[Pending], cap: usize, seed: u64) -> Choices {
    if let [base] = bases {
        return contents(base, pending, cap, seed);
    }
    let mut seen = HashSet::new();
    let mut all = Choices { contents: Vec::new(), capped: false };
    for base in bases {
        let choices = contents(base, pending, cap, seed);
        all.capped |= choices.capped;
        all.contents.extend(choices.contents.into_iter().filter(|words| seen.insert(*words)));
    }
    all.capped |= all.contents.len() > cap;
    sample(&mut all.contents, cap, seed);
    all
}

/// Keeps at most `cap` contents: the first, the last, and a sample of the others. The last one matters because the effect of a missing line
/// often shows only if all other lines are complete.
fn sample(contents: &mut Vec<Words>, cap: usize, seed: u64) {
    if contents.len() > cap {
        let last = contents.len() - 1;
        contents.swap(1, last);
        fastrand::Rng::with_seed(seed).shuffle(&mut contents[2..]);
        contents.truncate(cap.max(1));
    }
}

/// A stretch of copies between two publishes: for each word, its value before the stretch and the values copied to it.
struct Stretch {
    values: [Vec<u64>; 8],
}

impl Stretch {
    fn new(start: &Words, copies: &[Pending]) -> Self {
        let mut values = start.map(|word| vec![word]);
        for copy in copies {
            if !values[copy.word].contains(&copy.value) {
                values[copy.word].push(copy.value);
            }
        }
        Self { values }
    }

    fn count(&self) -> usize {
        self.values.iter().fold(1, |product, values| product.saturating_mul(values.len()))
    }

    /// The `number`-th content. Number 0 is the content before the stretch.
    fn nth(&self, mut number: usize) -> Words {
        std::array::from_fn(|word| {
            let values = &self.values[word];
            let value = values[number % values.len()];
            number /= values.len();
            value
        })
    }

    fn random(&self, rng: &mut fastrand::Rng) -> Words {
        std::array::from_fn(|word| self.values[word][rng.usize(..self.values[word].len())])
    }
}

/// Enumerates the contents of a line with `base` durable and `pending` stored since, as the module's head defines them.
pub fn contents(base: &Words, pending: &[Pending], cap: usize, seed: u64) -> Choices {
    let stretches = stretches(base, pending);
    let total = stretches.iter().fold(0_usize, |sum, stretch| sum.saturating_add(stretch.count()));
    let mut seen = HashSet::new();
    let mut contents = Vec::new();
    let mut keep = |words: Words| {
        if seen.insert(words) {
            contents.push(words);
        }
    };
    // Many stores of few values repeat the same contents, so the product may be far above the number of distinct contents.
    if total <= cap.saturating_mul(8) {
        for stretch in &stretches {
            (0..stretch.count()).for_each(|number| keep(stretch.nth(number)));
        }
        let capped = contents.len() > cap;
        sample(&mut contents, cap, seed);
        return Choices { contents, capped };
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    keep(*base);
    keep(stretches[stretches.len() - 1].nth(stretches[stretches.len() - 1].count() - 1));
    for _ in 0..cap {
        keep(stretches[rng.usize(..stretches.len())].random(&mut rng));
    }
    contents.truncate(cap.max(1));
    Choices { contents, capped: true }
}

fn stretches(base: &Words, pending: &[Pending]) -> Vec<Stretch> {
    let mut start = *base;
    let mut rest = pending;
    let mut stretches = Vec::new();
    loop {
        let publish = rest.iter().position(|store| store.kind == Store::Publish);
        let (copies, after) = rest.split_at(publish.unwrap_or(rest.len()));
        stretches.push(Stretch::new(&start, copies));
        let Some((publish, after)) = after.split_first() else { return stretches };
        for store in copies.iter().chain([publish]) {
            start[store.word] = store.value;
        }
        rest = after;
    }
}
