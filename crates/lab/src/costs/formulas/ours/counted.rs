//! Unsorted nodes with a counter: link, number of entries, entries packed in insertion order. The columns of the table are fields of
//! [`Change`]: *fresh*, words in unused space; *over*, overwritten words in use.
//!
//! | change | fresh | over |
//! |---|---|---|
//! | insert | the entry, after the last one | the number of entries |
//! | delete | | the last entry, copied into the position of the deleted entry (nothing, if the deleted entry is the last one); the number of entries |
//! | new node of c entries | c entries, link, the number of entries | |
//! | split | | entries that stay, but in positions above the new number of entries: they are copied into positions of entries that left; the new entry, if it stays in the old node; the link, if the node is a leaf; the number of entries |

use bptree::shape::Shape;

use super::{Change, Cut, LINK, Nodes, Run, entries, entry};
use crate::costs::survey::Step;

/// Layout of nodes with a counter. See the module's head.
pub struct Counted;

const NUMBER: Run = Run::new(1, 1);

/// Old positions of the entries that stay, by rank; `None` for the new entry.
fn staying(node: &Step, cut: Cut) -> Vec<Option<u16>> {
    let mut staying: Vec<_> = node.numbers[..cut.keep].iter().copied().map(Some).collect();
    if let Some(rank) = cut.join {
        staying.insert(rank, None);
    }
    staying
}

impl Nodes for Counted {
    fn insert(&self, node: &Step) -> Change {
        let fresh = entry(&node.shape, node.count());
        Change { fresh, ..Change::over(node.node, vec![NUMBER]) }
    }

    fn remove(&self, node: &Step) -> Change {
        let place = usize::from(node.numbers[node.rank]);
        let mut over = if place + 1 == node.count() { Vec::new() } else { entry(&node.shape, place) };
        over.push(NUMBER);
        Change::over(node.node, over)
    }

    fn fill(&self, shape: &Shape, count: usize) -> Change {
        let mut fresh = entries(shape, 0..count);
        fresh.extend([LINK, NUMBER]);
        Change { fresh, ..Change::default() }
    }

    fn shrink(&self, node: &Step, cut: Cut) -> Change {
        let moved = staying(node, cut).into_iter().zip(self.kept(node, cut));
        let moved = moved.filter(|(old, new)| *old != Some(*new)).map(|(_, new)| usize::from(new));
        let mut over = entries(&node.shape, moved);
        over.extend(cut.relink.then_some(LINK));
        over.push(NUMBER);
        Change::over(node.node, over)
    }

    fn inserted(&self, node: &Step) -> Vec<u16> {
        let mut numbers = node.numbers.clone();
        numbers.insert(node.rank, node.count() as u16);
        numbers
    }

    fn kept(&self, node: &Step, cut: Cut) -> Vec<u16> {
        let staying = staying(node, cut);
        let in_place = |old: &u16| usize::from(*old) < staying.len();
        let taken: Vec<u16> = staying.iter().flatten().copied().filter(in_place).collect();
        let mut holes = (0..staying.len() as u16).filter(|place| !taken.contains(place));
        let place = |old: &Option<u16>| old.filter(in_place).or_else(|| holes.next()).unwrap_or(0);
        staying.iter().map(place).collect()
    }
}
