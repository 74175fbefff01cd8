//! Pointers that lead to a wrong intact node: no key is silently missing, no key is stored in a wrong leaf, and no scan is endless.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bptree::layout::Layouts;
use bptree::{Bitmap, Slotted, Tree, WriteAtomic};
use index::{Life, Prefixed, Schema, Words};
use pmem::alloc::{Kind, blocks_in, chunks};
use pmem::{Counter, Durability, Memory, Observed, WORD};

use crate::streams::options;

const BYTES: u64 = 1 << 20;
const LINES: u64 = 2;
const KEYS: u64 = 200;
const ADDRESS: u64 = (1 << 48) - 1;

type TreeOf<S, L> = Tree<Observed, S, L, WriteAtomic>;

/// Keys and values from numbers.
trait Sample: Schema {
    fn key(n: u64) -> Self::KeyBuf;
    fn value(n: u64) -> Self::ValueBuf;
}

impl Sample for Words {
    fn key(n: u64) -> u64 {
        n << 50 | 0x1234_5678
    }
    fn value(n: u64) -> u64 {
        n << 40 | 7
    }
}

impl Sample for Prefixed {
    fn key(n: u64) -> Vec<u8> {
        format!("key{n:06}").into_bytes()
    }
    fn value(n: u64) -> Vec<u8> {
        format!("value of {n}").into_bytes()
    }
}

struct Damaged<S: Sample, L: Layouts> {
    memory: Arc<Memory>,
    sound: Vec<u64>,
    kinds: BTreeMap<u64, (Kind, u64)>,
    of: std::marker::PhantomData<(S, L)>,
}

impl<S: Sample<ValueBuf: PartialEq>, L: Layouts> Damaged<S, L> {
    /// A closed tree of the even keys, with at least three levels.
    fn new() -> Self {
        let memory = Memory::new(BYTES, 0);
        let medium = || Observed::new(Arc::clone(&memory), Arc::new(Counter::default()));
        let tree = TreeOf::<S, L>::create(medium(), &options::<WriteAtomic>(LINES)).unwrap();
        for n in (0..KEYS).step_by(2) {
            tree.put(S::borrow(&S::key(n)), S::borrow_value(&S::value(n))).unwrap();
        }
        assert!(tree.check().levels >= 3, "inner nodes above inner nodes");
        tree.close().unwrap();
        let mut kinds = BTreeMap::new();
        for (chunk, class) in chunks(tree.region()) {
            if let Some(class) = class.unwrap() {
                let of_class = |at| (at, (class.kind, class.block_bytes));
                kinds.extend(blocks_in(tree.region(), chunk, class).map(of_class));
            }
        }
        kinds.retain(|_, (kind, _)| kind.is_node());
        drop(tree);
        let sound = (0..memory.len() / WORD).map(|word| memory.peek(word * WORD)).collect();
        Self { memory, sound, kinds, of: std::marker::PhantomData }
    }

    fn open(&self) -> pmem::Result<TreeOf<S, L>> {
        let medium = Observed::new(Arc::clone(&self.memory), Arc::new(Counter::default()));
        Ok(Tree::open(medium, Path::new("damaged"), "t", Durability::Power, 1024)?.0)
    }

    /// Words in nodes of this kind that are addresses of nodes, each with every wrong address to store there.
    fn cases(&self, of: Kind) -> Vec<(u64, u64)> {
        let mut cases = Vec::new();
        for (node, (_, bytes)) in self.kinds.iter().filter(|(_, (kind, _))| *kind == of) {
            for at in (*node..node + bytes).step_by(WORD as usize) {
                let word = self.memory.peek(at);
                let Some((kind, _)) = self.kinds.get(&(word & ADDRESS)) else { continue };
                let others =
                    self.kinds.iter().filter(|(other, (of, _))| of == kind && **other != word & ADDRESS);
                cases.extend(others.map(|(other, _)| (at, word & !ADDRESS | other)));
                cases.extend((0..48).map(|bit| (at, word ^ 1 << bit)));
            }
        }
        cases
    }

    /// Stores the word at its address. Calls `judge` with the tree, if it opens.
    fn with(&self, (at, word): (u64, u64), judge: impl FnOnce(&TreeOf<S, L>)) {
        self.memory.poke(at, word);
        if let Ok(tree) = self.open() {
            judge(&tree);
        }
        (0..).zip(&self.sound).for_each(|(word, value)| self.memory.poke(word * WORD, *value));
    }

    fn scan(tree: &TreeOf<S, L>, down: bool) -> pmem::Result<u64> {
        let (mut key, mut value) = (S::KeyBuf::default(), S::ValueBuf::default());
        let mut cursor = tree.cursor();
        cursor.seek(Bound::Unbounded, down);
        let mut count = 0;
        while cursor.next(&mut key, &mut value)? {
            count += 1;
            assert!(count <= KEYS, "a scan without end");
        }
        Ok(count)
    }
}

fn assert_not_silent<S: Sample<ValueBuf: PartialEq>, L: Layouts>() {
    let damaged = Damaged::<S, L>::new();
    let (mut told, mut refused) = (0, 0);
    let cases = damaged.cases(Kind::Inner);
    for case in &cases {
        damaged.with(*case, |tree| {
            for n in (0..KEYS).step_by(2) {
                let mut value = S::ValueBuf::default();
                match tree.get(S::borrow(&S::key(n)), Some(&mut value)) {
                    Ok(found) => assert!(found && value == S::value(n), "{case:x?}: key {n} is gone"),
                    Err(_) => told += 1,
                }
                let mut found = None;
                let many = tree.get_each(&[S::borrow(&S::key(n))], &mut |value| {
                    found = value;
                    true
                });
                match many {
                    Ok(()) => assert!(found == Some(S::value(n)), "{case:x?}: key {n} is gone"),
                    Err(_) => told += 1,
                }
            }
            for down in [true, false] {
                if let Ok(count) = Damaged::<S, L>::scan(tree, down) {
                    assert_eq!(count, KEYS / 2, "{case:x?}: a scan, down: {down}");
                }
            }
        });
        for n in (1..KEYS).step_by(26) {
            damaged.with(*case, |tree| {
                assert!(!matches!(tree.delete(S::borrow(&S::key(n - 1))), Ok(false)), "{case:x?}: {n}");
            });
            damaged.with(*case, |tree| {
                let taken = tree.put(S::borrow(&S::key(n)), S::borrow_value(&S::value(n)));
                refused += u64::from(taken.is_err());
                // With the correct pointer restored, accepted writes are in the correct leaf.
                if taken.is_ok() && damaged.memory.peek(case.0) == case.1 {
                    damaged.memory.poke(case.0, damaged.sound[(case.0 / WORD) as usize]);
                    assert!(
                        tree.get(S::borrow(&S::key(n)), None).unwrap(),
                        "{case:x?}: {n} joined another leaf"
                    );
                }
            });
        }
    }
    println!("{} wrong pointers, {told} refused reads, {refused} refused puts", cases.len());
    assert!(
        cases.len() > 300 && told > cases.len() as u64 && refused > 0,
        "{}, {told}, {refused}",
        cases.len()
    );
    // A scan can only check that a leaf's link leads to higher keys. The check finds leaves that it skips.
    for case in damaged.cases(Kind::Leaf) {
        damaged.with(case, |tree| _ = Damaged::<S, L>::scan(tree, false));
    }
}

#[test]
fn a_child_pointer_to_another_node_hides_no_key_of_words() {
    assert_not_silent::<Words, (Slotted, Slotted)>();
    assert_not_silent::<Words, (Bitmap, Bitmap)>();
}

#[test]
fn a_child_pointer_to_another_node_hides_no_key_of_byte_strings() {
    assert_not_silent::<Prefixed, (Slotted, Slotted)>();
}
