//! NV-Tree's leaves: a header of one line (link, number of entries, lower bound, seal of the bound, four words of signs), then entries in
//! the order of their insertion. The sign of an entry tells whether it inserts its key (positive) or deletes it (negative). The columns of
//! the table are fields of [`Change`]: *fresh*, words in unused space; *over*, overwritten words in use.
//!
//! | change | fresh | over |
//! |---|---|---|
//! | insert | the entry, behind the last one | the number of entries |
//! | delete | an entry with the key only, behind the last one | the word with the entry's sign; the number of entries |
//! | delete in a full leaf | | the word with the sign of the removed entry |
//! | new leaf of c entries | c entries, the header | |
//! | split | a second new leaf, with the lower entries: two new leaves replace the full one | |

use bptree::shape::Shape;

use super::{Change, Cut, Nodes, Run, entries, entry};
use crate::costs::survey::Step;

/// Layout of a log leaf. See the module's head.
pub struct LogLeaf;

const NUMBER: Run = Run::new(1, 1);
const SIGNS_AT: u64 = 4;
const HEADER: Run = Run::new(0, 8);

fn sign_of(place: usize) -> Run {
    Run::new(SIGNS_AT + place as u64 / 64, 1)
}

impl Nodes for LogLeaf {
    fn insert(&self, node: &Step) -> Change {
        let fresh = entry(&node.shape, node.taken());
        Change { fresh, ..Change::over(node.node, vec![NUMBER]) }
    }

    fn remove(&self, node: &Step) -> Change {
        if node.is_full() {
            return Change::over(node.node, vec![sign_of(node.numbers[node.rank].into())]);
        }
        let key = Run::new(node.shape.keys_at + node.taken() as u64 * node.shape.key_step, 1);
        Change { fresh: vec![key], ..Change::over(node.node, vec![sign_of(node.taken()), NUMBER]) }
    }

    fn fill(&self, shape: &Shape, count: usize) -> Change {
        let mut fresh = entries(shape, 0..count);
        fresh.push(HEADER);
        Change { fresh, ..Change::default() }
    }

    fn shrink(&self, node: &Step, cut: Cut) -> Change {
        self.fill(&node.shape, cut.keep)
    }
}
