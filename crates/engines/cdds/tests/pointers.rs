//! Child pointers that lead to a wrong intact node: no key is silently missing.

use std::path::Path;
use std::sync::Arc;

use crate::common::{Sample, open, options};
use cdds::node::{Header, Node};
use cdds::{Inlined, Order, Recovery, Sorted, Tree, Unsorted};
use index::{Life, Words};
use pmem::{Counter, Medium, Memory, Observed, WORD};

const BYTES: u64 = 1 << 20;
const LINES: u64 = 3;
const KEYS: u32 = 120;

/// Replaces every child pointer by every other node of the same level, and flips each of its bits.
fn assert_not_silent<S: Sample, O: Order>() {
    let memory = Memory::new(BYTES, 0);
    let medium = Observed::new(Arc::clone(&memory), Arc::new(Counter::default()));
    drop(Tree::<_, S, O>::create(medium.clone(), &options(LINES)).unwrap());
    let tree = open::<S, O>(&medium, LINES, Recovery::Lazy);
    for n in 0..KEYS {
        tree.put(S::borrow(&S::key(n)), S::borrow_value(&S::value(n))).unwrap();
    }
    assert!(tree.check().levels >= 3, "inner nodes above inner nodes");
    tree.close().unwrap();
    drop(tree);
    let tree = open::<S, O>(&medium, LINES, Recovery::Lazy);
    let meta = cdds::meta::Meta(tree.region().root().unwrap());
    let version = tree.version();
    let view = cdds::version::View { version, dead: meta.read_dead(&medium, version).unwrap() };
    let mut open_nodes = vec![Node(medium.word(meta.0 + WORD))];
    let (mut links, mut levels) = (Vec::new(), Vec::new());
    while let Some(node) = open_nodes.pop() {
        let header = Header::read(&medium, node).unwrap();
        levels.push((node, header.level));
        if header.level > 0 {
            for (slot, link) in node.seen(&medium, tree.shape(), &view) {
                links.push((node.slot_at(slot) + WORD, link.payload, header.level - 1));
                open_nodes.push(Node(link.payload));
            }
        }
    }
    drop(tree);
    let sound: Vec<u64> = (0..memory.len() / WORD).map(|word| memory.peek(word * WORD)).collect();
    let (mut cases, mut told) = (0, 0);
    for (at, child, level) in links {
        let others =
            levels.iter().filter(|(node, of)| *of == level && node.0 != child).map(|(node, _)| node.0);
        let flipped = (0..64).map(|bit| child ^ 1 << bit);
        for wrong in others.chain(flipped) {
            memory.poke(at, wrong);
            let opened = Tree::<Observed, S, O>::open(
                medium.clone(),
                Path::new("damaged"),
                &options(LINES),
                Recovery::Lazy,
            );
            if let Ok((tree, _)) = opened {
                for n in 0..KEYS {
                    let mut value = S::ValueBuf::default();
                    match tree.get(S::borrow(&S::key(n)), Some(&mut value)) {
                        Ok(found) => {
                            assert!(found && value == S::value(n), "{at:#x}: {wrong:#x}: key {n} is gone")
                        }
                        Err(_) => told += 1,
                    }
                }
            }
            (0..).zip(&sound).for_each(|(word, value)| memory.poke(word * WORD, *value));
            cases += 1;
        }
    }
    println!("{cases} wrong children, {told} refused reads");
    assert!(cases > 300 && told > cases, "{cases}, {told}");
}

#[test]
fn a_child_pointer_to_another_node_hides_no_key() {
    assert_not_silent::<Words, Sorted>();
    assert_not_silent::<Words, Unsorted>();
    assert_not_silent::<Inlined, Sorted>();
    assert_not_silent::<Inlined, Unsorted>();
}
