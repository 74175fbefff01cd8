//! What an operation is about to meet: the nodes on the way to its key, read before it runs.
//!
//! Numbers of entries, ranks and places in nodes are all that the formulas depend on; they are read from the medium, not
//! asked of the tree.

use bptree::layout::{Layout, Layouts};
use bptree::shape::{Link, Node, Shape};
use pmem::Medium;

/// A node on the way, or the leaf of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Offset of the node.
    pub node: u64,
    /// 0 for the leaf.
    pub level: usize,
    /// Numbers (places) of its entries, in key order.
    pub numbers: Vec<u16>,
    /// Entries with smaller keys; in an inner node, with keys up to this one.
    pub rank: usize,
    /// Where things are in the node.
    pub shape: Shape,
    /// In a leaf that is a log: places taken, by entries that were replaced or taken away too.
    pub logged: Option<usize>,
}

impl Step {
    /// Entries in use.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Places taken.
    pub fn taken(&self) -> usize {
        self.logged.unwrap_or(self.count())
    }

    /// True if there is no space for one more.
    pub fn is_full(&self) -> bool {
        self.taken() == self.shape.capacity
    }

    /// The key is behind all of the node's.
    pub fn is_behind_all(&self) -> bool {
        self.rank == self.count()
    }
}

/// The way from the root to a key's leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Root first, leaf last.
    pub steps: Vec<Step>,
    /// The key is there.
    pub hit: bool,
    /// No leaf is right of this one.
    pub last: bool,
    /// Where things are in inner nodes; none in lists.
    pub inner: Option<Shape>,
    /// Leaves of a list and of its second one, where there is a second.
    pub lists: Option<[u64; 2]>,
}

impl Way {
    /// The leaf.
    pub fn leaf(&self) -> &Step {
        self.steps.last().expect("a way ends at a leaf")
    }

    /// Levels that an insert splits: full nodes one above the other, from the leaf up.
    pub fn full_levels(&self) -> usize {
        self.steps.iter().rev().take_while(|step| step.is_full()).count()
    }

    /// Entries of the node that takes an insert's last separator (or, without a split, its entry) without being split; none
    /// if the root is split.
    pub fn count_above_splits(&self) -> usize {
        self.steps.iter().rev().nth(self.full_levels()).map_or(0, Step::count)
    }

    /// The leaf has a left neighbour.
    pub fn has_left_neighbour(&self) -> bool {
        self.steps.iter().any(|step| step.level > 0 && step.rank > 0)
    }
}

/// Finds the way to a key in a tree whose keys are one word. `None` if the tree is damaged.
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
