//! The path to the key of an operation, read before the operation runs.
//!
//! The cost formulas ([`super::formulas`]) need numbers of entries, ranks and positions in the nodes of this path. This module reads them
//! from the medium, without the code of the tree's operations.

use bptree::layout::{Layout, Layouts};
use bptree::shape::{Link, Node, Shape};
use pmem::Medium;

/// A node on the path, or the leaf of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Offset of the node.
    pub node: u64,
    /// Level of the node; 0 for a leaf.
    pub level: usize,
    /// Positions of its entries, in key order.
    pub numbers: Vec<u16>,
    /// Number of entries with a smaller key; in an inner node, with a smaller or equal key.
    pub rank: usize,
    /// Layout parameters of the node.
    pub shape: Shape,
    /// For a log leaf: number of positions in use, including those of replaced and deleted entries.
    pub logged: Option<usize>,
}

impl Step {
    /// Number of live entries.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Number of positions in use.
    pub fn taken(&self) -> usize {
        self.logged.unwrap_or(self.count())
    }

    /// True if there is no space for another entry.
    pub fn is_full(&self) -> bool {
        self.taken() == self.shape.capacity
    }

    /// True if the key is greater than all keys of the node.
    pub fn is_behind_all(&self) -> bool {
        self.rank == self.count()
    }
}

/// The path from the root to the leaf of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The nodes, from root to leaf.
    pub steps: Vec<Step>,
    /// True if the key exists.
    pub hit: bool,
    /// True if the leaf is the last one.
    pub last: bool,
    /// Layout parameters of inner nodes; `None` for lists.
    pub inner: Option<Shape>,
    /// Numbers of leaves of a list and of its second list, if it has one.
    pub lists: Option<[u64; 2]>,
}

impl Way {
    /// The leaf.
    pub fn leaf(&self) -> &Step {
        self.steps.last().expect("a way ends at a leaf")
    }

    /// Number of levels that an insert splits: consecutive full nodes from the leaf up.
    pub fn full_levels(&self) -> usize {
        self.steps.iter().rev().take_while(|step| step.is_full()).count()
    }

    /// Number of entries of the node that receives the last separator of an insert (or, without a split, its entry) and is not split. 0 if
    /// the root is split.
    pub fn count_above_splits(&self) -> usize {
        self.steps.iter().rev().nth(self.full_levels()).map_or(0, Step::count)
    }

    /// True if the leaf has a left neighbour.
    pub fn has_left_neighbour(&self) -> bool {
        self.steps.iter().any(|step| step.level > 0 && step.rank > 0)
    }
}

/// Finds the path to a key in a tree whose keys are one word. `None` if the tree is damaged.
pub fn way<M: Medium, L: Layouts>(
    medium: &M,
    leaf: &Shape,
    inner: &Shape,
    root: u64,
    key: u64,
) -> Option<Way> {
    let mut steps = Vec::new();
    let mut node = Node(root);
    loop {
        let link = Link::read(medium, node)?;
        if link.level == 0 {
            let (step, hit) = look::<M, L::Leaf>(medium, leaf, node, 0, key);
            steps.push(step);
            return Some(Way { steps, hit, last: link.node.0 == 0, inner: Some(*inner), lists: None });
        }
        let (step, _) = look::<M, L::Inner>(medium, inner, node, link.level, key);
        let before = step.rank.checked_sub(1).map(|rank| usize::from(step.numbers[rank]));
        steps.push(step);
        node = before.map_or(link.node, |place| Node::of_payload(medium.word(inner.payload_at(node, place))));
    }
}

fn look<M: Medium, L: Layout>(medium: &M, shape: &Shape, node: Node, level: usize, key: u64) -> (Step, bool) {
    let order = L::order::<_, index::Words>(medium, shape, node);
    let numbers: Vec<u16> = order.iter().map(|number| number as u16).collect();
    let keys = || numbers.iter().map(|number| medium.word(shape.key_at(node, usize::from(*number))));
    let hit = keys().any(|found| found == key);
    let rank = keys().filter(|found| *found < key || (level > 0 && *found == key)).count();
    (Step { node: node.0, level, numbers, rank, shape: *shape, logged: None }, hit)
}
