//! SIMD and scalar search of nodes agree. Two trees do the same operations. The medium of one tree gives access to whole cache lines
//! ([`pmem::Medium::lines`]), which the SIMD search needs. The medium of the other tree does not, so its search is scalar. Their answers
//! are equal, and so are all their stored words.

use std::ops::Bound;

use crate::common::{Sample, memory, options, pairs, write_many};
use cdds::{Inlined, Mark, Order, Sorted, Tree, Unsorted};
use index::Words;
use pmem::simd::Wide;
use pmem::{Durability, Medium, Native, WORD};

const BYTES: u64 = 8 << 20;

/// A tree, with the parts that must be equal to those of another tree.
struct Twin<M: Medium, S: Sample, O: Order> {
    tree: Tree<M, S, O>,
    marks: Vec<Mark>,
}

impl<M: Medium, S: Sample, O: Order> Twin<M, S, O> {
    fn new(medium: M, lines: u64) -> Self {
        Self { tree: Tree::create(medium, &options(lines)).unwrap(), marks: Vec::new() }
    }

    /// Runs the next operation and returns its result.
    fn step(&mut self, rng: &mut fastrand::Rng, keys: u32) -> String {
        let (tree, n) = (&self.tree, rng.u32(..keys));
        let (key, value) = (S::key(n), S::value(rng.u32(..60)));
        match rng.u32(..100) {
            0..50 => format!("{:?}", tree.put(S::borrow(&key), S::borrow_value(&value))),
            50..75 => format!("{:?}", tree.delete(S::borrow(&key))),
            75..80 => {
                let each = (0..rng.usize(..6))
                    .map(|_| (S::key(rng.u32(..keys)), rng.bool().then(|| S::value(rng.u32(..60)))));
                format!("{:?}", write_many(tree, &each.collect::<Vec<_>>()).is_ok())
            }
            80..84 if self.marks.len() < 3 => {
                self.marks.push(tree.snapshot().mark().clone());
                "mark".into()
            }
            84..87 if !self.marks.is_empty() => {
                drop(self.marks.swap_remove(rng.usize(..self.marks.len())));
                "let go".into()
            }
            87 if !self.marks.is_empty() => {
                format!("{:?}", tree.roll_back(&self.marks[rng.usize(..self.marks.len())]).is_ok())
            }
            88 => format!("{:?}", tree.collect_some(rng.usize(1..9))),
            89..92 => format!("{:?}", pairs(&mut tree.cursor(), Bound::Included(key), rng.bool())),
            _ => {
                let mut found = S::ValueBuf::default();
                format!("{:?} {found:?}", tree.get(S::borrow(&key), Some(&mut found)))
            }
        }
    }

    fn words(&self) -> Vec<u64> {
        let medium = self.tree.region().medium();
        (0..medium.len() / WORD).map(|word| medium.word(word * WORD)).collect()
    }
}

fn run<S: Sample, O: Order>(seed: u64, lines: u64, steps: usize) {
    let native = Native::anonymous(BYTES, Durability::Power).unwrap();
    let mut shown = Twin::<_, S, O>::new(native, lines);
    let mut hidden = Twin::<_, S, O>::new(memory(BYTES).0, lines);
    assert_eq!(shown.tree.shape().vectors, Wide::of_processor());
    // The region's header does not belong to the tree.
    let header = shown.words().iter().zip(hidden.words()).filter(|(a, b)| **a != *b).count();
    let (mut rng, keys) = (fastrand::Rng::with_seed(seed), 30 * lines as u32);
    for step in 0..steps {
        let mut same = rng.clone();
        let (first, second) = (shown.step(&mut rng, keys), hidden.step(&mut same, keys));
        assert_eq!(first, second, "step {step}, nodes of {lines} lines");
    }
    let (first, second) = (shown.words(), hidden.words());
    assert_eq!(first.len(), second.len());
    let differ: Vec<usize> = (0..first.len()).filter(|word| first[*word] != second[*word]).collect();
    assert!(differ.len() <= header && differ.iter().all(|word| *word < 64), "words {differ:?}");
    assert_eq!(shown.tree.check().problems, Vec::<String>::new());
}

#[test]
fn trees_of_words_are_the_same_with_and_without_vectors() {
    for lines in [2, 3, 5, 8, 15, 16, 17, 31, 33, 48] {
        run::<Words, Sorted>(lines, lines, 3000);
        run::<Words, Unsorted>(lines + 100, lines, 3000);
    }
}

#[test]
fn trees_of_byte_strings_are_the_same_with_and_without_vectors() {
    for lines in [2, 3, 5, 8, 15, 16, 17, 33] {
        run::<Inlined, Sorted>(lines, lines, 3000);
        run::<Inlined, Unsorted>(lines + 100, lines, 3000);
    }
}
