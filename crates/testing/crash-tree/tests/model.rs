//! Compares every tree with `BTreeMap`. The tests are in this crate because it depends on all trees, so no other test program must compile
//! them.

// The library already has the instantiations on a store's medium.
use bptree::WriteAtomic;
use bptree::commit_protocol::CommitProtocol;
use bptree::layout::Layouts;
use bptree::roster::{self, ByteStrings, TREES, Visitor};
use bristlecone as _;
use index::About;
use index::Fixed;

use crate::streams::{Streams, on_observed};

/// Values of 1, 3, 7 and 15 words in the entry.
struct WideStreams;

impl Visitor for WideStreams {
    type Out = ();

    fn visit<B: ByteStrings, L: Layouts, D: CommitProtocol>(self, about: &'static About) {
        for lines in [10, 64].into_iter().filter(|lines| about.allows(*lines)) {
            if const { L::PAGES } {
                [1, 3, 7, 15].into_iter().for_each(|words| on_observed::<Fixed, L, D>(lines, words, lines));
            }
        }
    }
}

#[test]
fn trees_of_wide_entries_equal_the_model() {
    for about in TREES.iter().filter(|about| about.lines.1 > 16) {
        println!("{}", about.name);
        roster::visit(about.name, WideStreams).expect("a tree of the roster");
    }
}

fn equals_the_model(wanted: impl Fn(&About) -> bool) {
    for about in TREES.iter().filter(|about| wanted(about)) {
        println!("{}", about.name);
        roster::visit(about.name, Streams).expect("a tree of the roster");
    }
}

#[test]
fn trees_of_small_write_atomic_nodes_equal_the_model() {
    equals_the_model(|about| about.lines.0 <= 16 && about.commit_protocol.starts_with(WriteAtomic::NAME));
}

#[test]
fn trees_of_small_nodes_with_other_commit_protocols_equal_the_model() {
    equals_the_model(|about| about.lines.0 <= 16 && !about.commit_protocol.starts_with(WriteAtomic::NAME));
}

#[test]
fn trees_of_pages_equal_the_model() {
    equals_the_model(|about| about.lines.0 > 16);
}
